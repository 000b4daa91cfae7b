"""Largest eigenvalues of changing symmetric operators, each found from the previous record.

The eigenvector of a new record is predicted from those of the last two, and improved by locally
optimal conjugate gradients (LOBPCG, Knyazev 2001) until the residual ρ = ‖Hx − θx‖ says that the
value is accurate: its error is at most min(ρ, ρ²/(λ_1 − λ_2)). An eigenvalue that rises from below,
with a vector nearly orthogonal to the tracked one, is found by an occasional search among all
vectors orthogonal to it.

Arrays of vectors have the batch axis last, (N, b): many operators are tracked at once, and each is
frozen once it has converged, so that its result does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

Multiply = Callable[[Float[Array, "N b"]], Float[Array, "N b"]]

MAX_PRODUCTS = 400
SEARCH_PRODUCTS = 12
"""Number of products in a search for a larger eigenvalue."""
TURNED_COSINE = 0.9
"""Cosine between the vectors of two records below which another eigenvalue has taken over."""
TOLERANCE_SHARE = 0.25
"""Fraction of the tolerance that is used, since the gap is that of an earlier record."""
SMALLEST_REMAINDER = 1e-6
"""Smallest squared length of an orthogonalized residual, relative to its own."""
NEWTON_STEPS = 5
SECOND_RESIDUAL = 0.03
"""Residual, relative to ‖H‖, at which the second vector is accurate enough."""
VALUE_FLOOR = 1e-3
"""The tolerance is relative to the value, or to this fraction of ‖H‖ if that is larger."""


class TrackingState(NamedTuple):
    """State of each operator between records."""

    vector: Float[Array, "N b"]
    before: Float[Array, "N b"]
    """The vector of the record before the last."""
    cosine: Float[Array, " b"]
    """⟨vector, before⟩."""
    second: Float[Array, "N b"]
    """An approximate eigenvector of the second eigenvalue."""
    gap: Float[Array, " b"]
    """(λ_1 − λ_2)/λ_1 at the last search, within [0, 1]."""
    searched: Float[Array, " b"]
    """λ_1 at the last search."""
    prediction: Float[Array, "2 b"]
    """Coefficients of `vector` and `before` that would have predicted `vector` best."""


class Found(NamedTuple):
    """Rayleigh quotients with residuals and cost."""

    value: Float[Array, "*records b"]
    residual: Float[Array, "*records b"]
    scale: Float[Array, "*records b"]
    """A lower bound of ‖H‖."""
    products: Float[Array, "*records b"]


class _Ritz(NamedTuple):
    """A unit vector that converges to an eigenvector."""

    vector: Array
    image: Array
    step: Array
    """The last step, at length one and orthogonal to the vector; zero before the first."""
    step_image: Array
    below: Array
    """⟨p, Hp⟩ of the last step p."""
    found: Found
    products: Array


def begin(vectors: Float[Array, "2 N"], batch: int) -> TrackingState:
    """Return the state before the first record, with random directions."""
    first, second = (_unit(jnp.repeat(v[:, None], batch, axis=1)) for v in vectors)
    known = jnp.zeros((2, batch), first.dtype).at[0].set(1)
    gap, value = jnp.full(batch, 0.1, first.dtype), jnp.full(batch, jnp.inf, first.dtype)
    return TrackingState(first, first, jnp.ones_like(gap), second, gap, value, known)


def follow(
    operator: Callable[[Any, Any], Multiply],
    data: Any,
    records: Any,
    count: Array | np.integer,
    state: TrackingState,
    fresh: Float[Array | np.ndarray, " N"],
    search: Array | np.integer,
    tolerance: Array | np.ndarray,
) -> tuple[TrackingState, Found, Bool[Array, " b"]]:
    """Find the largest eigenvalue of `operator(data, record)` at the first `count` of the records.

    With `search`, a larger eigenvalue is then sought at the last record, by a second vector that
    starts from its previous value mixed with the direction `fresh`. If one is found, it is tracked
    from there on. The last result marks where that happened, or where the vector turned by itself:
    earlier records may then have missed a larger eigenvalue. The loop has a step for each record,
    and two more with a search, so that the product is compiled once.
    """
    batch = state.vector.shape[1]
    capacity = jax.tree.leaves(records)[0].shape[0]
    dtype = state.vector.dtype

    def advance(index: Array, carry: tuple) -> tuple:
        state, found, higher, turned = carry
        at = jnp.minimum(index, count - 1)
        stage = index - at  # 0: the next record, 1: search, 2: improve what the search found
        multiply = operator(data, jax.tree.map(lambda leaf: leaf[at], records))
        known = Found(*(column[at] for column in found))
        start = jax.lax.switch(stage, [_predicted, _mixed, lambda s, _: s.vector], state, fresh)

        def needed(ritz: _Ritz) -> Array:
            gap = jnp.where(stage == 0, _remaining_gap(state, ritz.found.value), 0)
            exact = ritz.found.residual > _allowed(ritz.found, gap, tolerance, len(start))
            wanted = jnp.where(stage == 2, higher, True) & (ritz.products < MAX_PRODUCTS)
            loose = ritz.found.residual > SECOND_RESIDUAL * ritz.found.scale
            searching = loose & (ritz.products < SEARCH_PRODUCTS)
            return jnp.where(stage == 1, searching, exact & wanted)

        ritz = _improved(multiply, start, state.vector, stage == 1, needed)
        state, result, higher = jax.lax.switch(
            stage, [_moved, _searched, _settled], state, known, ritz, higher
        )
        found = Found(*(column.at[at].set(new) for column, new in zip(found, result, strict=True)))
        return state, found, higher, turned | (state.cosine < TURNED_COSINE)

    none = jnp.zeros((capacity, batch), dtype)
    no = jnp.zeros(batch, bool)
    start = state, Found(none, none, none, none), no, no
    state, found, higher, turned = jax.lax.fori_loop(0, count + 2 * search, advance, start)
    return state, found, higher | turned


# --- before and after the improvement of a step ---------------------------------------------


def _predicted(state: TrackingState, _: Array) -> Array:
    return _unit(state.prediction[0] * state.vector + state.prediction[1] * state.before)


def _mixed(state: TrackingState, fresh: Array) -> Array:
    return _orthogonal(_unit(state.second) + fresh[:, None], state.vector)


def _moved(
    state: TrackingState, _known: Found, ritz: _Ritz, higher: Array
) -> tuple[TrackingState, Found, Array]:
    """Keep the new vector and the prediction that would have had the largest cosine with it.

    The candidates are the last vector, its linear extrapolation, and the vector two records ago. A
    cosine below one half predicts nothing: a vector that has just been found must not be replaced
    by the one it replaced.
    """
    x, p, q = ritz.vector, state.vector, state.before
    here, there = _dot(x, p), _dot(x, q)
    sign = jnp.where(here < 0, -1.0, 1.0).astype(x.dtype)
    here, there = here * sign, there * sign
    stay, back = jnp.maximum(here, 0.5), there
    line = (2 * here - there) / jnp.sqrt(jnp.maximum(5 - 4 * state.cosine, 1))
    ahead, behind = jnp.where(line > stay, 2, 1), jnp.where(line > stay, -1, 0)
    returned = back > jnp.maximum(stay, line)
    prediction = jnp.stack([jnp.where(returned, 0, ahead), jnp.where(returned, 1, behind)])
    finite = jnp.isfinite(ritz.found.value)
    new = state._replace(
        vector=sign * x, before=p, cosine=here, prediction=prediction.astype(x.dtype)
    )
    return _choose(finite, new, state), ritz.found, higher


def _searched(
    state: TrackingState, known: Found, ritz: _Ritz, _: Array
) -> tuple[TrackingState, Found, Array]:
    """Keep the second vector; it becomes the first where it is higher."""
    value, below = known.value, ritz.found.value
    higher = below > value + 0.1 * known.residual
    gap = jnp.clip((value - below - ritz.found.residual) * _inverse(jnp.abs(value)), 0, 1)
    stay = jnp.zeros_like(state.prediction).at[0].set(1)
    one = jnp.ones_like(gap)
    swapped = TrackingState(ritz.vector, ritz.vector, one, state.vector, gap, below, stay)
    same = state._replace(second=ritz.vector, gap=gap, searched=value)
    new = _choose(jnp.isfinite(below) & jnp.isfinite(value), _choose(higher, swapped, same), state)
    return new, known._replace(products=known.products + ritz.found.products), higher


def _settled(
    state: TrackingState, known: Found, ritz: _Ritz, higher: Array
) -> tuple[TrackingState, Found, Array]:
    """Keep the improved result of the search."""
    count = known.products + jnp.where(higher, ritz.found.products, 0)
    result = _choose(higher, ritz.found, known)
    vector = jnp.where(higher, ritz.vector, state.vector)
    moved = state._replace(vector=vector, before=jnp.where(higher, vector, state.before))
    return moved, result._replace(products=count), higher


def _choose(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def _remaining_gap(state: TrackingState, value: Array) -> Array:
    """Return a lower bound on the gap if the second eigenvalue moved as much as the first."""
    moved = jnp.abs(value - state.searched) * _inverse(jnp.abs(state.searched))
    return jnp.where(jnp.isinf(state.searched), state.gap, jnp.maximum(state.gap - moved, 0))


def _allowed(found: Found, gap: Array, tolerance: Array | np.ndarray, size: int) -> Array:
    """Return the residual at which the value is accurate, never below rounding."""
    value = jnp.maximum(jnp.abs(found.value), VALUE_FLOOR * found.scale)
    error = tolerance * value
    accurate = jnp.maximum(error, jnp.sqrt(TOLERANCE_SHARE * error * gap * value))
    return jnp.maximum(accurate, rounding(found.scale.dtype, size) * found.scale)


def rounding(dtype: Any, size: int) -> float:
    """Return how far rounding may move an eigenvalue, relative to ‖H‖."""
    return 8 * float(jnp.finfo(dtype).eps) * size**0.5


# --- conjugate gradients ---------------------------------------------------------------------


def _improved(
    multiply: Multiply, start: Array, first: Array, apart: Array, needed: Callable
) -> _Ritz:
    """Iterate while `needed`; if `apart`, among vectors orthogonal to the unit vectors `first`.

    Each iteration is a Rayleigh-Ritz step in the space of the vector, its residual and its last
    step. In exact arithmetic these are orthogonal (the residual to the whole previous space, the
    step to the vector), and the vector is a Ritz vector, so that H is tridiagonal in this basis. A
    residual close to rounding is not orthogonal to the others, so it is normalized and
    orthogonalized again. Inner products dominate the cost, so known ones are not computed.
    """

    def step(ritz: _Ritz) -> _Ritz:
        opening, active = ritz.products == 0, needed(ritz)
        x, hx, p, hp = ritz.vector, ritz.image, ritz.step, ritz.step_image
        value, length = ritz.found.value, ritz.found.residual
        rest = (hx - value * x) * jnp.where(active, _inverse(length), 0)
        along, across = _dot(x, rest), _dot(p, rest)
        # ‖rest‖² without these parts
        left = jnp.maximum(1 - along**2 - across**2, SMALLEST_REMAINDER)
        q = jnp.where(opening, x, (rest - along * x - across * p) / jnp.sqrt(left))
        hq = jax.lax.cond(apart, lambda h: h - first * _dot(first, h), lambda h: h, multiply(q))
        a, b, c = _dot(q, hq), _dot(p, hq), ritz.below
        m, y, z = _largest(a - value, b, c - value, length)
        m, y, z = (jnp.where(active & ~opening, part, 0) for part in (m, y, z))
        square = y * y + z * z
        norm, back = 1 / jnp.sqrt(1 + square), _inverse(jnp.sqrt(square * (1 + square)))
        move, image_move = y * q + z * p, y * hq + z * hp
        new, image = norm * (x + move), jnp.where(opening, hq, norm * (hx + image_move))
        # ⟨p, Hp⟩ of the new step, which is (move − square·x)·back
        below = y * y * a + 2 * y * z * b + z * z * c - 2 * square * y * length
        below = jnp.where(opening, 0, back**2 * (below + square**2 * value))
        value = _dot(new, image) / _dot(new, new)
        rest = image - value * new
        residual = jnp.sqrt(_dot(rest, rest))
        scale = jnp.maximum(jnp.abs(value) + residual, jnp.abs(a))
        scale = jnp.where(active, jnp.maximum(scale, ritz.found.scale), ritz.found.scale)
        count = ritz.found.products + active
        return _Ritz(
            new, image, back * (move - square * x), back * (image_move - square * hx), below,
            Found(value, residual, scale, count), ritz.products + 1,
        )  # fmt: skip

    unknown = jnp.full(start.shape[1], jnp.inf, start.dtype)
    nothing, none = jnp.zeros_like(unknown), jnp.zeros_like(start)
    found = Found(nothing, unknown, nothing, nothing)
    ritz = _Ritz(start, none, none, none, nothing, found, jnp.asarray(0))
    ritz = jax.lax.while_loop(lambda r: jnp.any(needed(r)), step, ritz)
    value = _dot(ritz.vector, ritz.image) / _dot(ritz.vector, ritz.vector)  # without its rounding
    return ritz._replace(found=ritz.found._replace(value=value))


def _largest(a: Array, b: Array, c: Array, r: Array) -> tuple[Array, Array, Array]:
    """Return the largest eigenvalue of ((0, r, 0), (r, a, b), (0, b, c)) and its vector (1, y, z).

    The eigenvalues of the two 2×2 blocks are lower bounds, from which Newton's method increases to
    it, since m − a − b²/(m − c) − r²/m is increasing and concave. Unless c < 0 the last step is
    omitted.
    """
    b, c = jnp.where(c < 0, b, 0), jnp.where(c < 0, c, -r)
    root = jnp.sqrt(a * a + 4 * r * r)
    m = jnp.where(a < 0, 2 * r * r / (root - a), 0.5 * (a + root))
    m = jnp.maximum(m, 0.5 * (a + c) + jnp.sqrt(0.25 * (a - c) ** 2 + b * b))
    for _ in range(NEWTON_STEPS):
        u, w = 1 / m, 1 / (m - c)
        above = m - a - b * b * w - r * r * u
        m = m - above / (1 + (b * w) ** 2 + (r * u) ** 2)
    y = m * _inverse(r)
    return m, y, b * y * _inverse(m - c)


# --- vectors ---------------------------------------------------------------------------------


def _dot(left: Array, right: Array) -> Array:
    """Return ⟨left, right⟩ of each operator, (b,).

    The sum has two stages that XLA must not merge: on a CPU one long sum is a chain of dependent
    additions, which takes five times as long.
    """
    products = left * right
    size, batch = products.shape
    parts = next((k for k in range(4, 17) if size % k == 0), 1)
    partial = products.reshape(parts, size // parts, batch).sum(0)
    return jax.lax.optimization_barrier(partial).sum(0)


def _inverse(numbers: Array) -> Array:
    """Return 1/x, and 0 for 0."""
    return jnp.where(numbers == 0, 0, 1 / jnp.where(numbers == 0, 1, numbers))


def _unit(vectors: Array) -> Array:
    """Return the vectors scaled to length one; zero stays zero."""
    return vectors * _inverse(jnp.sqrt(_dot(vectors, vectors)))


def _orthogonal(vectors: Array, to: Array) -> Array:
    """Return each vector without its part along the unit vector `to`, scaled to length one."""
    rest = _unit(vectors - to * _dot(to, vectors))
    return _unit(rest - to * _dot(to, rest))
