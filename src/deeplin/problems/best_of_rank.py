"""The best product of a given rank: what a network with a narrow hidden layer can reach (X-34)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from deeplin.problems.factorizations import numerical_rank

TIE = 1e-9
"""Relative difference of singular values up to which they count as equal."""
STARTS = 4
"""Random starts of the descent, beside the truncated optimum."""
POLISHING_STEPS = 60
"""Steps of Levenberg and Marquardt after the descent; they converge quadratically."""


@dataclass(frozen=True, eq=False)
class BestOfRank:
    """The best product of rank at most r (X-34); it unpacks into `product, risk`."""

    product: np.ndarray
    """Θ_r, of shape (q, d), or (d,) for one output."""
    risk: float
    """The least risk of a network whose narrowest hidden layer has width r."""
    excess: float
    """`risk` − R_min, not computed as a difference."""
    rank: int
    """The rank of `product`: r, or less if the optimum has a smaller rank."""
    unique: bool
    """Whether no other product of rank r is as good, apart from parts that no sample sees."""
    exact: bool
    """Whether `product` has a closed form, and is not the best found by descent."""

    def __iter__(self) -> Iterator[Any]:
        return iter((self.product, self.risk))


class Truncation(NamedTuple):
    """Parts of Θ*Σ̂^{1/2} = U S Vᵀ that a product of rank r keeps, shares and drops."""

    kept: Float[np.ndarray, "k q"]
    """Left singular vectors that every best product keeps, as rows."""
    tied: Float[np.ndarray, "m q"]
    """Vectors of equal singular value of which it keeps `free`; none where Θ_r is unique."""
    free: int
    excess: float
    """Σ_{i>r} s_i²."""

    @property
    def left(self) -> Float[np.ndarray, "k q"]:
        """The vectors that one best product keeps, as rows."""
        return np.vstack([self.kept, self.tied[: self.free]])


def truncation(
    eigenvalues: Float[np.ndarray, " n"], coordinates: Float[np.ndarray, "n q"], rank: int
) -> Truncation:
    """Return which parts of the optimum the best product of this rank keeps.

    Args:
        eigenvalues: the nonzero eigenvalues of Σ̂.
        coordinates: Θ*ᵀ in the basis of its eigenvectors.
        rank: r.
    """
    scaled = np.sqrt(eigenvalues)[:, None] * coordinates
    _, values, left = np.linalg.svd(scaled, full_matrices=False)
    total = numerical_rank(values, max(scaled.shape)) if values.size else 0
    left, values = left[:total], values[:total]
    if rank >= total:
        return Truncation(left, left[:0], 0, 0.0)
    same = np.abs(values - values[rank - 1]) <= TIE * values[rank - 1]
    if not same[rank]:
        return Truncation(left[:rank], left[:0], 0, float(np.sum(values[rank:] ** 2)))
    first = int(np.argmax(same))
    excess = float(np.sum(values[rank:] ** 2))
    return Truncation(left[:first], left[same], rank - first, excess)


class Factors(NamedTuple):
    """Descent of R(FGᵀ) on the factors F (n×r) and G (q×r) of a product."""

    risk: Callable[[np.ndarray], tuple[float, np.ndarray]]
    """R and ∇R of a product (n, q)."""
    hessian: Callable[[np.ndarray], np.ndarray]
    """∇²R of a product, (q·n, q·n), with the inputs of each output together."""
    inputs: int
    outputs: int
    rank: int

    def split(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return F and G."""
        at = self.inputs * self.rank
        return flat[:at].reshape(-1, self.rank), flat[at:].reshape(-1, self.rank)

    def value(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the risk and its gradient."""
        F, G = self.split(flat)
        value, slope = self.risk(F @ G.T)
        return value, np.concatenate([(slope @ G).ravel(), (slope.T @ F).ravel()])

    def second(self, flat: np.ndarray) -> np.ndarray:
        """Return the Hessian."""
        (F, G), (n, q, r) = self.split(flat), (self.inputs, self.outputs, self.rank)
        slope = self.risk(F @ G.T)[1]
        first = np.einsum("ij,bc->bijc", np.eye(n), G).reshape(q * n, n * r)
        last = np.einsum("ab,ic->aibc", np.eye(q), F).reshape(q * n, q * r)
        jacobian = np.hstack([first, last])
        total = jacobian.T @ self.hessian(F @ G.T) @ jacobian
        cross = np.einsum("ib,cd->icbd", slope, np.eye(r)).reshape(n * r, q * r)
        total[: n * r, n * r :] += cross
        total[n * r :, : n * r] += cross.T
        return total

    def least(self, guess: np.ndarray) -> np.ndarray:
        """Return the best product found, from the truncated guess and random starts beside it."""
        from scipy.optimize import minimize

        rng = np.random.default_rng(0)
        size = float(np.linalg.norm(guess)) / np.sqrt(guess.size)
        others = [guess + size * rng.normal(size=guess.shape) for _ in range(STARTS)]
        found = []
        for start in [guess, *others]:
            left, values, right = np.linalg.svd(start, full_matrices=False)
            roots = np.sqrt(values[: self.rank])
            pieces = left[:, : self.rank] * roots, right[: self.rank].T * roots
            flat = np.concatenate([piece.ravel() for piece in pieces])
            options = {"maxiter": 5000, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-9}
            found.append(minimize(self.value, flat, method="L-BFGS-B", jac=True, options=options))
        best = self._polished(min(found, key=lambda each: each.fun).x)
        F, G = self.split(best)
        return F @ G.T

    def _polished(self, flat: np.ndarray) -> np.ndarray:
        value, slope = self.value(flat)
        size = float(np.linalg.norm(slope))
        for _ in range(POLISHING_STEPS):
            if size <= 1e-15 * (1 + abs(value)):
                break
            second = self.second(flat)
            damped = second + max(size, 1e-13 * np.trace(second)) * np.eye(len(flat))
            trial = flat - np.linalg.solve(damped, slope)
            value, after = self.value(trial)
            if not np.linalg.norm(after) < size:
                break
            flat, slope, size = trial, after, float(np.linalg.norm(after))
        return flat
