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
from jaxtyping import Array

from deeplin.checks import InputError, positive_number
from deeplin.networks import Network
from deeplin.sharpness.hessian import as_batch, linear_operator, over_batch, parameters, surface

BLOCK = 2
MAX_ROUNDS = 200


class Tracked(NamedTuple):
    """Sharpness with its evidence, for each network (and each record, along a trajectory)."""

    value: Any
    """Rayleigh quotient: never above the largest eigenvalue."""
    error: Any
    """Bound of the distance to the largest eigenvalue, given that it is the one followed."""
    block: Any
    """The vectors to start from at the next point."""
    products: Any
    """Hessian-vector products used."""


class SharpnessTracker:
    """Sharpness of a batch of networks, called again and again as they move.

    Arguments:
        problem: a `Problem` or a loss, as for `sharpness`.
        tolerance: the residual ‖Hv − θv‖ allowed, relative to ‖Hv‖. The value itself is far more
            accurate, about tolerance².

    ```python
    tracker = SharpnessTracker(problem)
    tracker(networks).value  # later, for networks nearby: two products each
    ```
    """

    def __init__(self, problem: Any, *, tolerance: float = 1e-3):
        self.problem = problem
        self.tolerance = positive_number("tolerance", tolerance)
        self.block: Array | None = None

    def __call__(self, networks: Any) -> Tracked:
        """Sharpness of each network, from the eigenvectors found at the last call."""
        risk, data = surface(self.problem, networks)
        trees = as_batch(networks)
        start = _random_block(trees) if self.block is None else self.block
        found = follow(risk, data, trees, start, jnp.asarray(self.tolerance))
        # A run that is lost for a moment must not lose its vectors.
        finite = jnp.isfinite(found.block).all(axis=(1, 2), keepdims=True)
        self.block = jnp.where(finite, found.block, start)
        return Tracked(*(np.asarray(item) for item in found))


def sharpness_along(problem: Any, trajectory: Any, *, tolerance: float = 1e-3) -> Tracked:
    """Sharpness at each record of a trajectory (a leading record axis, then perhaps a batch axis).

    `trajectory` is a `Network` such as `run.trajectory`, or for a loss of your own a pytree whose
    arrays have a leading record axis. Arguments and accuracy as for `SharpnessTracker`.

    ```python
    run = deeplin.gradient_descent(problem, net, learning_rate=0.02, steps=1000, record_every=10)
    deeplin.sharpness_along(problem, run.trajectory).value
    ```
    """
    leaves = jax.tree.leaves(parameters(trajectory)[0])
    batched = isinstance(trajectory, Network) and leaves[0].ndim == 4
    if isinstance(trajectory, Network) and leaves[0].ndim not in (3, 4):
        raise InputError(
            f"the trajectory's weights have {leaves[0].ndim} dimensions; pass run.trajectory, "
            "with a leading record axis."
        )
    tracker = SharpnessTracker(problem, tolerance=tolerance)
    found = [tracker(_record(trajectory, index)) for index in range(len(leaves[0]))]
    columns = (np.stack(column) for column in zip(*found, strict=True))
    return Tracked(*(column if batched else column[:, 0] for column in columns))


@eqx.filter_jit
def follow(risk: Callable, data: Any, trees: Any, blocks: Array, tolerance: Array) -> Tracked:
    """Sharpness of each tree of a batch, from blocks (batch, 2, N) near its eigenvectors."""

    def one(tree, block):
        return _improve(linear_operator(risk, data, tree), block, tolerance)

    return over_batch(one)(trees, blocks)


def _random_block(trees: Any) -> Array:
    """Two random orthonormal vectors (one, if there is one parameter), the same for each tree."""
    leaves = jax.tree.leaves(parameters(trees)[0])
    size = sum(leaf[0].size for leaf in leaves)
    count = min(BLOCK, size)
    draw = np.random.default_rng(0).standard_normal((size, count))
    block = np.zeros((BLOCK, size))
    block[:count] = np.linalg.qr(draw)[0].T
    return jnp.broadcast_to(jnp.asarray(block, leaves[0].dtype), (len(leaves[0]), *block.shape))


def _record(trajectory: Any, index: int) -> Any:
    """One record of a trajectory; a read-out shared by all records stays as it is."""
    if isinstance(trajectory, Network):
        readout = trajectory.readout
        if readout is not None and readout.ndim == trajectory.weights[0].ndim - 1:
            readout = readout[index]
        weights = [weight[index] for weight in trajectory.weights]
        return Network(weights, readout, trajectory.activation)
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, trajectory)


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
