"""Sharpness along a trajectory: each point starts from the eigenvectors of the point before.

Two vectors are followed, not one, so that the second eigenvalue overtaking the first is noticed.
Where they have not turned far, their two Hessian products already give the answer (a Rayleigh
quotient is accurate to the square of the angle); otherwise locally optimal block conjugate
gradients (LOBPCG, Knyazev 2001) improve them, two products at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from deeplin.checks import InputError, positive_number
from deeplin.networks import Network
from deeplin.sharpness.hessian import linear_operator, over_batch, parameters, surface

BLOCK = 2
MAX_ROUNDS = 200


class Tracked(NamedTuple):
    """Sharpness with its evidence, for each network (and each record, along a trajectory)."""

    value: Array
    """Rayleigh quotient: never above the largest eigenvalue."""
    error: Array
    """Bound of the distance to the largest eigenvalue, given that it is the one followed."""
    block: Float[Array, "... 2 n"]
    """The vectors to start from at the next point."""
    products: Array
    """Hessian-vector products used."""


def sharpness_along(
    problem: Any, trajectory: Any, *, start: Array | None = None, tolerance: float = 1e-3
) -> Tracked:
    """Sharpness at each record of a trajectory (a leading record axis, then perhaps a batch axis).

    Arguments:
        problem: a `Problem` or a loss, as for `sharpness`.
        trajectory: a `Network` such as `run.trajectory`, or a pytree whose arrays have a leading
            record axis.
        start: the `block` of an earlier result, to go on from there.
        tolerance: the residual ‖Hv − θv‖ allowed, relative to θ. The value itself is far more
            accurate, about tolerance².

    ```python
    run = deeplin.gradient_descent(problem, net, learning_rate=0.02, steps=1000, record_every=10)
    deeplin.sharpness_along(problem, run.trajectory).value
    ```
    """
    positive_number("tolerance", tolerance)
    networks, batched = _with_record_and_batch(trajectory)
    risk, data = surface(problem, _first(networks))
    leaves = jax.tree.leaves(parameters(networks)[0])
    shape = leaves[0].shape[:2]
    if start is None:
        start = random_block(_first(networks))
    block = jnp.broadcast_to(jnp.asarray(start), (shape[1], BLOCK, jnp.shape(start)[-1]))
    result = _along(risk, data, networks, block, jnp.asarray(tolerance))
    return result if batched else Tracked(*(item[:, 0] for item in result))


def random_block(networks: Any, seed: int = 0) -> Array:
    """Two random orthonormal vectors over the parameters of one network, as a first start."""
    leaves = jax.tree.leaves(parameters(networks)[0])
    size = sum(leaf[0].size for leaf in leaves)
    draw = np.random.default_rng(seed).standard_normal((size, min(BLOCK, size)))
    block = np.zeros((BLOCK, size))
    block[: min(BLOCK, size)] = np.linalg.qr(draw)[0].T
    return jnp.asarray(block, leaves[0].dtype)


@eqx.filter_jit
def follow(risk: Callable, data: Any, networks: Any, blocks: Array, tolerance: Array) -> Tracked:
    """Sharpness of each network of a batch, from blocks (batch, 2, N) near its eigenvectors."""

    def one(network, block):
        return _improve(linear_operator(risk, data, network), block, tolerance)

    return over_batch(one)(networks, blocks)


@eqx.filter_jit
def _along(risk, data, trajectory, blocks, tolerance) -> Tracked:
    arrays, fixed = eqx.partition(trajectory, eqx.is_array)

    def step(blocks, arrays):
        result = follow(risk, data, eqx.combine(arrays, fixed), blocks, tolerance)
        return result.block, result

    return jax.lax.scan(step, blocks, arrays)[1]


class _Pairs(NamedTuple):
    """Ritz pairs: vectors with their images, the last search directions, and evidence."""

    vectors: Array
    images: Array
    directions: Array
    direction_images: Array
    values: Array
    residuals: Array
    rounds: Array


def _improve(multiply: Callable, block: Array, tolerance: Array) -> Tracked:
    """LOBPCG on `block` until the residual of the largest Ritz pair is below the tolerance."""
    apply = jax.vmap(multiply)
    nothing = jnp.zeros_like(block)
    images = apply(block)
    pairs = _ritz(block, images, nothing, nothing, jnp.asarray(1))

    def unfinished(pairs: _Pairs):
        # NaN compares false: a lost run ends at once
        return (pairs.residuals[0] > tolerance * _scale(pairs)) & (pairs.rounds < MAX_ROUNDS)

    def improve(pairs: _Pairs):
        slope = _unit(pairs.images - pairs.values[:, None] * pairs.vectors)
        slope = _unit(slope - (slope @ pairs.vectors.T) @ pairs.vectors)
        found = jnp.concatenate([pairs.vectors, slope, pairs.directions])
        images = jnp.concatenate([pairs.images, apply(slope), pairs.direction_images])
        return _ritz(found, images, pairs.vectors, pairs.images, pairs.rounds + 1)

    pairs = jax.lax.while_loop(unfinished, improve, pairs)
    return Tracked(pairs.values[0], _error(pairs), pairs.vectors, BLOCK * pairs.rounds)


def _ritz(vectors: Array, images: Array, old: Array, old_images: Array, rounds: Array) -> _Pairs:
    """The largest Ritz pairs in the span of the rows of `vectors`, which may be dependent."""
    gram = vectors @ vectors.T
    weights, basis = jnp.linalg.eigh(gram)
    dependent = weights <= _negligible(jnp.finfo(gram.dtype).eps) * weights[-1]
    basis = jnp.where(dependent, 0, basis / jnp.sqrt(jnp.where(dependent, 1, weights)))
    matrix = basis.T @ (vectors @ images.T) @ basis
    lowest = -1 - 2 * jnp.abs(matrix).sum()  # keeps the dropped directions out of the way
    matrix = (matrix + matrix.T) / 2 + jnp.diag(jnp.where(dependent, lowest, 0))
    values, coordinates = jnp.linalg.eigh(matrix)
    mixing = (basis @ coordinates[:, : -BLOCK - 1 : -1]).T
    new, new_images = mixing @ vectors, mixing @ images
    length = jnp.linalg.norm(new, axis=1, keepdims=True)
    missing = length < 0.5  # fewer independent directions than asked for
    new, new_images = (jnp.where(missing, 0, item / length) for item in (new, new_images))
    values = jnp.where(missing[:, 0], -jnp.inf, values[: -BLOCK - 1 : -1])
    residuals = jnp.linalg.norm(new_images - jnp.where(missing, 0, values[:, None]) * new, axis=1)
    overlap = new @ old.T
    moved, moved_images = new - overlap @ old, new_images - overlap @ old_images
    step = jnp.linalg.norm(moved, axis=1, keepdims=True)
    moved, moved_images = (item / jnp.where(step > 0, step, 1) for item in (moved, moved_images))
    return _Pairs(new, new_images, moved, moved_images, values, residuals, rounds)


def _error(pairs: _Pairs) -> Array:
    """λ − θ ≤ min(r, r²/(θ − λ₂)) (residual and Kato-Temple bounds), and rounding."""
    top, second = pairs.values
    residual = pairs.residuals[0]
    gap = top - second - pairs.residuals[1]
    sharp = jnp.where(gap > 0, residual**2 / jnp.where(gap > 0, gap, 1), jnp.inf)
    epsilon = jnp.finfo(residual.dtype).eps
    rounding = 8 * epsilon * jnp.sqrt(pairs.vectors.shape[1] / _negligible(epsilon))
    return jnp.minimum(residual, sharp) + rounding * _scale(pairs)


def _scale(pairs: _Pairs) -> Array:
    """A lower bound of ‖H‖, about |θ| once the pair has settled."""
    return jnp.linalg.norm(pairs.images, axis=1).max()


def _negligible(epsilon) -> Array:
    """Squared length below which a direction counts as dependent; dividing by it costs digits."""
    return jnp.sqrt(epsilon)


def _unit(rows: Array) -> Array:
    length = jnp.linalg.norm(rows, axis=1, keepdims=True)
    return rows / jnp.where(length > 0, length, 1)


def _first(tree: Any) -> Any:
    """The batch at the first record."""
    return jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, tree)


def _with_record_and_batch(tree: Any) -> tuple[Any, bool]:
    """The trajectory with a record and a batch axis on every array, and whether it had a batch."""
    if not isinstance(tree, Network):
        expand = lambda leaf: leaf[:, None] if eqx.is_array(leaf) else leaf  # noqa: E731
        return jax.tree.map(expand, tree), False
    batched = tree.weights[0].ndim == 4
    if tree.weights[0].ndim not in (3, 4):
        raise InputError(
            f"the trajectory's weights have {tree.weights[0].ndim} dimensions; pass "
            "run.trajectory, with a leading record axis."
        )
    weights = tuple(weight if batched else weight[:, None] for weight in tree.weights)
    readout = tree.readout
    if readout is not None:
        if readout.ndim == tree.weights[0].ndim - 1 and not batched:
            readout = readout[:, None]
        readout = jnp.broadcast_to(readout, (*weights[0].shape[:2], readout.shape[-1]))
    fields = (lambda net: net.weights, lambda net: net.readout)
    is_leaf = lambda leaf: leaf is None  # noqa: E731
    tree = eqx.tree_at(fields[0], tree, weights)
    return eqx.tree_at(fields[1], tree, readout, is_leaf=is_leaf), batched
