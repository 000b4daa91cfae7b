"""Extreme eigenvalues from Hessian-vector products, with a certificate.

The method is Lanczos with full reorthogonalization from a random unit vector. The largest Ritz
value θ never exceeds the largest eigenvalue λ. For the other side, let π_j be the orthonormal
polynomials that the recurrence coefficients define. If there is an eigenvalue μ > θ, the squared
component of the start on its eigenspace is at most 1/Σ_j π_j(μ)² (the Christoffel function: no
measure with these moments has more mass at μ). A uniformly random unit vector in N dimensions has a
component below t with probability at most t√(2N/π). So outside an event of probability
FAILURE_PROBABILITY, λ lies below the μ where the polynomials have grown to 1/t (van Dorsselaer,
Hochstenbach, van der Vorst, 2000). This holds for clustered, multiple and low-rank spectra alike,
where the residual ‖Hv − θv‖ alone only says that *some* eigenvalue is near θ.

For a low-rank Hessian the Krylov space is exhausted early and the recurrence breaks down. It then
continues from a new random vector orthogonal to the space found, and the two small probabilities
multiply.

A guess x of the eigenvector saves products. Lanczos from x alone needs few of them for the Ritz
pair (θ, x) with a small residual ρ = ‖Hx − θx‖. If the compression of H to the complement of x has
no eigenvalue above μ, then λ is at most the larger eigenvalue of ((θ, ρ), (ρ, μ)), which is about
θ + ρ²/(θ − μ) for μ < θ. Lanczos from a random vector in that complement shows it as above, but for
a μ far above the eigenvalues there instead of one within the tolerance of λ, which is fast. With
its Ritz vector y, the larger eigenvalue of H on the plane of x and y is a lower bound, also where
another eigenvalue has become the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.linalg

FAILURE_PROBABILITY = 1e-10
"""Probability that the certificate fails, because the random start is nearly orthogonal to the
eigenvector."""

DENSE = 24
"""Size up to which a stack of dense matrices is solved faster than single tridiagonal ones."""

ASSUMED_GAP = 0.01
"""Relative gap below the largest eigenvalue for which a guess is improved until λ is certified."""


class Extreme(NamedTuple):
    """The largest eigenvalue of each operator of a batch."""

    value: np.ndarray
    error: np.ndarray
    vector: np.ndarray
    products: np.ndarray
    scale: np.ndarray
    """A lower bound of the operator's norm, the scale of rounding and tolerance."""


def largest(
    multiply: Callable[[np.ndarray, np.ndarray], np.ndarray],
    shape: tuple[int, int],
    dtype: np.dtype,
    *,
    seed: int = 0,
    guess: np.ndarray | None = None,
    tolerance: float,
    max_products: int,
    failure: float = FAILURE_PROBABILITY,
) -> Extreme:
    """Return the largest eigenvalue of each operator of a symmetric batch; `shape` is (batch, N).

    `multiply(members, vectors)` returns the products of the operators with indices `members` with
    one vector each. An operator is finished when its error is below `tolerance` relative to its
    norm, or when the error is dominated by rounding. A `guess` of the eigenvectors saves products
    where it is good. The error is a bound except with probability `failure`.
    """
    limit = min(shape[1], max_products)
    members = np.arange(shape[0])
    unknown = np.full(shape[0], np.nan, dtype)
    vectors, products = np.full(shape, np.nan, dtype), np.zeros(shape[0], int)
    found = Extreme(unknown, unknown.copy(), vectors, products, unknown.copy())
    if guess is not None and shape[1] > 1:
        known, certified = _largest_near(multiply, guess, limit, seed, tolerance, failure)
        for column, values in zip(found, known, strict=True):
            column[members] = values
        members = members[~certified]
        if len(members) == 0:
            return found
    state = Recurrence((len(members), shape[1]), limit, dtype, seed)
    before, check = found.products.copy(), min(8, limit)
    while len(members):
        while state.steps < check:
            state.advance(partial(multiply, members))
        result = state.extreme(failure)
        goal = state.goal(result.scale, tolerance)
        going_on = (result.error > goal) & np.isfinite(result.scale) & (state.steps < limit)
        for column, values in zip(found, result, strict=True):
            column[members] = values
        found.products[members] += before[members]
        members = members[going_on]
        state.keep(going_on)
        check = min(limit, state.steps + max(4, state.steps // 4))
    return found


def _largest_near(
    multiply: Callable[[np.ndarray, np.ndarray], np.ndarray],
    guess: np.ndarray,
    limit: int,
    seed: int,
    tolerance: float,
    failure: float,
) -> tuple[Extreme, np.ndarray]:
    """Return the eigenpairs near a guess, and for which operators they are certified the largest.

    First the pairs are improved, by Lanczos from the guess. Then Lanczos from a random vector in
    the complement of each bounds all other eigenvalues.
    """
    every, (batch, size) = np.arange(len(guess)), guess.shape
    guess = np.where(guess.any(axis=1, keepdims=True), guess, 1).astype(guess.dtype)
    near = Recurrence((batch, size), limit, guess.dtype, seed, guess)
    going_on = True
    while going_on:
        near.advance(partial(multiply, every))
        pair = near.ritz_pair()
        goal = near.goal(pair.scale, tolerance)
        small = pair.residual <= np.maximum(goal, np.sqrt(goal * pair.scale * ASSUMED_GAP))
        going_on = near.steps < limit // 2 and not np.all(small | ~np.isfinite(pair.scale))

    vector, shift = _unit(pair.vector), pair.scale[:, None]

    def across(vectors: np.ndarray) -> np.ndarray:
        return vectors - np.sum(vector * vectors, axis=1, keepdims=True) * vector

    def deflated(vectors: np.ndarray) -> np.ndarray:
        rest = across(vectors)
        return across(multiply(every, rest)) - shift * (vectors - rest)  # below all others

    others = Recurrence((batch, size), limit, guess.dtype, seed)
    others.basis[:, 0] = _unit(across(others.basis[:, 0]))
    while True:
        others.advance(deflated)
        other = others.ritz_pair()
        scale = np.maximum(pair.scale, other.scale)
        rounding = near.rounding(scale) + others.rounding(scale)
        excess = 0 if others.steps == size else others.excess(other.value, other.scale, failure)
        coupling = np.sum(pair.rest * other.vector, axis=1)  # ⟨x, Hy⟩
        value = _larger(pair.value, coupling, other.value)
        error = _larger(pair.value, pair.residual, other.value + excess) - value + rounding
        goal = np.maximum(tolerance * scale, 2 * rounding)
        certified = error <= goal
        # no more products in the complement can certify it
        least = _larger(pair.value, pair.residual, other.value) - value + rounding
        hopeless = (least > goal) & (excess <= goal)
        finished = certified | hopeless | ~np.isfinite(scale)
        if finished.all() or near.steps + others.steps >= limit:
            break
    angle = np.arctan2(2 * coupling, pair.value - other.value)[:, None] / 2
    turned = _unit(np.cos(angle) * vector + np.sin(angle) * other.vector)
    error = np.where(np.isnan(error), np.inf, error)
    products = np.full(batch, near.steps + others.steps)
    return Extreme(value, error, turned, products, scale), certified


def _larger(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the larger eigenvalue of ((a, b), (b, c))."""
    return (a + c) / 2 + np.hypot((a - c) / 2, b)


class RitzPair(NamedTuple):
    """The largest Ritz value of each operator of a batch, with its vector."""

    value: np.ndarray
    vector: np.ndarray
    rest: np.ndarray
    """Hx − θx."""
    residual: np.ndarray
    """‖Hx − θx‖."""
    scale: np.ndarray
    """A lower bound of the operator's norm."""


class Recurrence:
    """The current orthonormal basis, and the tridiagonal matrix of the operator in it."""

    def __init__(self, shape, limit: int, dtype, seed: int, guess: np.ndarray | None = None):
        batch, size = shape
        self.seed = seed
        self.basis = np.zeros((batch, min(limit, 64) + 1, size), dtype)
        self.basis[:, 0] = self._random(0) if guess is None else _unit(guess)
        self.diagonal = np.zeros((batch, limit), dtype)
        self.off_diagonal = np.zeros((batch, limit), dtype)
        self.broken = np.zeros((batch, limit), bool)
        self.noise = np.zeros(batch, dtype)
        self.steps = 0

    def _random(self, step: int) -> np.ndarray:
        """Return a random unit vector, the same for every member, whatever the batch."""
        draw = np.random.default_rng([self.seed, step]).standard_normal(self.basis.shape[2])
        return (draw / np.linalg.norm(draw)).astype(self.basis.dtype)

    def advance(self, multiply: Callable[[np.ndarray], np.ndarray]) -> None:
        """Take one step: multiply, orthogonalize against the whole basis, normalize."""
        j = self.steps
        if j + 1 == self.basis.shape[1]:
            self.basis = np.concatenate([self.basis, np.zeros_like(self.basis[:, 1:])], axis=1)
        known = self.basis[:, : j + 1]
        inner, rest = _orthogonalized(known, multiply(known[:, j]))
        self.diagonal[:, j] = inner[:, j]
        if j > 0:
            # In exact arithmetic the image meets only its neighbors in the basis: all else it
            # meets is rounding of the products, and tells how far eigenvalues may have moved.
            inner[:, j - 1] -= np.where(self.broken[:, j - 1], 0, self.off_diagonal[:, j - 1])
            self.noise = np.maximum(self.noise, np.abs(inner[:, :j]).max(axis=1))
        length = np.linalg.norm(rest, axis=1)
        self.off_diagonal[:, j] = length
        self.steps = j + 1
        self.broken[:, j] = length <= self.rounding(self._scale())
        if self.broken[:, j].any():
            fresh = _orthogonalized(known, np.broadcast_to(self._random(j + 1), rest.shape))[1]
            rest = np.where(self.broken[:, j, None], fresh, rest)
        self.basis[:, j + 1] = _unit(rest)

    @property
    def tridiagonal(self) -> tuple[np.ndarray, np.ndarray]:
        """The diagonal of T (batch, k), and its off-diagonal (batch, k − 1)."""
        k = self.steps
        coupling = np.where(self.broken, 0, self.off_diagonal)
        return self.diagonal[:, :k], coupling[:, : k - 1]

    def ritz_pair(self) -> RitzPair:
        """Return the largest Ritz value, with its vector and residual."""
        k = self.steps
        top, mixing = _top_of_tridiagonal(*self.tridiagonal)
        last = np.where(self.broken[:, k - 1], 0, self.off_diagonal[:, k - 1])
        vector = _combination(self.basis[:, :k], mixing)
        rest = (last * mixing[:, -1])[:, None] * self.basis[:, k]
        scale = np.maximum(np.abs(top), self._scale())
        return RitzPair(top, vector, rest, last * np.abs(mixing[:, -1]), scale)

    def extreme(self, failure: float) -> Extreme:
        """Return the largest Ritz pair, and how far the largest eigenvalue can be above it."""
        pair = self.ritz_pair()
        complete = self.steps == self.basis.shape[2]  # the basis spans the whole space
        above = 0 if complete else self.excess(pair.value, pair.scale, failure)
        error = np.maximum(pair.residual, above) + self.rounding(pair.scale)
        error = np.where(pair.scale == 0, 0, np.where(np.isnan(error), np.inf, error))
        products = np.full(len(error), self.steps)
        return Extreme(pair.value, error, pair.vector, products, pair.scale)

    def keep(self, chosen: np.ndarray) -> None:
        """Continue with some of the operators only."""
        if not chosen.all():
            for name in ("basis", "diagonal", "off_diagonal", "broken", "noise"):
                setattr(self, name, getattr(self, name)[chosen])

    def _scale(self) -> np.ndarray:
        """Return a lower bound of the operator's norm from quantities already known."""
        k = self.steps
        return np.maximum(np.abs(self.diagonal[:, :k]), self.off_diagonal[:, :k]).max(axis=1)

    def rounding(self, scale: np.ndarray) -> np.ndarray:
        """Return how far rounding may have moved an eigenvalue."""
        epsilon = np.finfo(self.basis.dtype).eps
        return np.sqrt(self.basis.shape[2]) * (8 * epsilon * scale + 2 * self.noise)

    def goal(self, scale: np.ndarray, tolerance: float) -> np.ndarray:
        """Return the error to reach: the tolerance, or twice the rounding where that is larger."""
        rounding, wanted = self.rounding(scale), tolerance * scale
        return np.where(rounding < wanted, wanted, 2 * rounding)

    def excess(self, top: np.ndarray, scale: np.ndarray, failure: float) -> np.ndarray:
        """Return the least μ − θ on a grid such that no eigenvalue exceeds μ.

        The statement fails with probability at most `failure`; the start must be random.

        π_j is followed through the pivots of μ − T, π_{j+1}/π_j = pivot/β, positive above θ. Each
        stretch between breakdowns has its own random start and contributes its own improbability.
        """
        epsilon = np.finfo(scale.dtype).eps
        unit = np.where(scale > 0, scale, 1)[:, None]
        diagonal = self.diagonal / unit
        off_diagonal = np.maximum(self.off_diagonal / unit, epsilon)
        offsets = np.geomspace(epsilon, 1e3, 64, dtype=scale.dtype)
        mu = top[:, None] / unit + offsets
        chance = 0.5 * np.log(2 * self.basis.shape[2] / np.pi)  # log √(2N/π)
        growth = np.zeros_like(mu)
        evidence, best = np.zeros_like(mu), np.zeros_like(mu)
        pivot, before = np.ones_like(mu), np.zeros((len(top), 1), scale.dtype)
        for j in range(self.steps):
            pivot = np.maximum(mu - diagonal[:, j, None] - before**2 / pivot, offsets)
            before = off_diagonal[:, j, None]
            growth = growth + np.log(pivot / before)
            best = np.maximum(best, growth - chance)
            restart = self.broken[:, j, None]
            evidence = np.where(restart, evidence + best, evidence)
            best, growth = np.where(restart, 0, best), np.where(restart, 0, growth)
            before = np.where(restart, 0, before)
        reached = evidence + best >= -np.log(failure)
        return np.where(reached.any(axis=1), offsets[reached.argmax(axis=1)] * scale, np.inf)


def _top_of_tridiagonal(
    diagonal: np.ndarray, off_diagonal: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest eigenpair of each tridiagonal matrix; NaN for one that is not finite."""
    last = diagonal.shape[1] - 1
    values = np.full(len(diagonal), np.nan, diagonal.dtype)
    vectors = np.full_like(diagonal, np.nan)
    finite = np.flatnonzero(np.isfinite(diagonal.sum(axis=1) + off_diagonal.sum(axis=1)))
    if last < DENSE:
        dense = diagonal[finite, :, None] * np.eye(last + 1, dtype=diagonal.dtype)
        below = np.arange(1, last + 1), np.arange(last)  # all that eigh looks at
        dense[:, *below] = off_diagonal[finite]
        roots, columns = np.linalg.eigh(dense)
        values[finite], vectors[finite] = roots[:, -1], columns[:, :, -1]
        return values, vectors
    for member in finite:
        value, vector = scipy.linalg.eigh_tridiagonal(
            diagonal[member],
            off_diagonal[member],
            select="i",
            select_range=(last, last),
            check_finite=False,
        )
        values[member], vectors[member] = value[0], vector[:, 0]
    return values, vectors


def _orthogonalized(basis: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates of each vector in its basis, and the remainder, orthogonalized twice."""
    first = (basis @ vectors[:, :, None])[:, :, 0]
    rest = vectors - _combination(basis, first)
    second = (basis @ rest[:, :, None])[:, :, 0]
    return first + second, rest - _combination(basis, second)


def _combination(basis: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
    return (coordinates[:, None, :] @ basis)[:, 0]


def _unit(vectors: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length > 0, length, 1)
