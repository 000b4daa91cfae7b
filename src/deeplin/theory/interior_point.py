"""An interior-point method for the geodesically convex program of `gauge`.

−log det(I − M/S) = Σ_j tr(M^j)S^{−j}/j is geodesically convex in the P_k and log S together, and
the minimum of τ log S plus this barrier tends to S_min as τ grows. The dual certifies it:
S_min ≥ min_P tr RM for every R ⪰ 0 of trace one, a smooth geodesically convex problem. With
R ∝ (S − M)⁻¹ the bound tends to S_min, because at the solution the derivative of tr RM vanishes for
some R on the top eigenspace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from threadpoolctl import threadpool_limits

Matrices = list[np.ndarray]
GAPS = tuple(10.0**-k for k in range(9))
"""Relative distances of S from S_min, about, at which the barrier is minimized in turn."""
CENTERED = 1e-6
"""Predicted decrease of log S at which such a minimization stops, relative to the gap."""
RESOLUTION = 1e-13
"""Smallest decrease of log S that rounding leaves visible."""
ANGLE_STEP = 1e-6
"""Step of the differences by which angles of tied directions are differentiated."""
one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
"""Decorate a function whose many small products would make threads of BLAS wait for each other."""


class Moments(NamedTuple):
    """The function Σ_k ⟨Γ_k, P_k⁻¹⊗P_{k−1}⟩ of the P_k, with P_0 and P_L traced out."""

    inverse: Matrices
    """Weights of P_1⁻¹ … P_{L−1}⁻¹ alone."""
    middle: Matrices
    """Γ_2 … Γ_{L−1} as arrays (a, i, b, j) of rows and columns of a_k."""
    last: np.ndarray
    """Weight of P_{L−1}."""
    constant: float = 0.0

    def at(self, factors: Matrices) -> tuple[float, Matrices]:
        """Return the value and its derivatives in the P_k, given their Cholesky factors."""
        P, inverses = [C @ C.T for C in factors], [inverse(C) for C in factors]
        outer = [weight.copy() for weight in self.inverse]
        inner = [np.zeros_like(C) for C in P[:-1]] + [self.last]
        for k, weight in enumerate(self.middle):
            outer[k + 1] += np.einsum("aibj,ij->ab", weight, P[k])
            inner[k] = np.einsum("aibj,ab->ij", weight, inverses[k + 1])
        value = self.constant + float(np.sum(self.last * P[-1]))
        value += sum(float(np.sum(G * X)) for G, X in zip(outer, inverses, strict=True))
        return value, [g - X @ G @ X for g, G, X in zip(inner, outer, inverses, strict=True)]


@dataclass(frozen=True, eq=False)
class Form(ABC):
    """The form Q at a factorization W⁰ whose hidden widths are its rank."""

    start: tuple[np.ndarray, ...]
    """W⁰, in the bases of the inputs and outputs that the form uses."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The rank of Q, or more."""

    @abstractmethod
    def barrier(self, factors: Matrices, level: float) -> tuple[float, Moments] | None:
        """Return −log det(I − M/S) and the Γ_k of tr (S − M)⁻¹M; None unless M ≺ S."""

    @abstractmethod
    def top(self, factors: Matrices) -> float:
        """Return λ_max(M)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number and size of the P_k."""
        return len(self.start) - 1, len(self.start[0])

    def identities(self) -> Matrices:
        """Return P_k = I, the start itself."""
        count, r = self.shape
        return [np.eye(r)] * count

    def weights(self, factors: Matrices) -> Matrices:
        """Return the layers W_k = M_kW⁰_kM_{k−1}⁻¹ of these P_k."""
        before, layers = np.eye(self.start[0].shape[1]), []
        for W, C in zip(self.start, [*factors, np.eye(len(self.start[-1]))], strict=True):
            layers.append(C.T @ W @ before)
            before = inverse_factor(C).T
        return layers


class Solution(NamedTuple):
    """Solution of the program."""

    form: Form
    factors: Matrices
    """Cholesky factors of P_1 … P_{L−1}."""
    value: float
    """λ_max(M), attained by `weights`."""
    lower: float
    """The dual bound of it; where directions are tied, only for those chosen."""

    @property
    def weights(self) -> Matrices:
        """The layers, in the bases of the form."""
        return self.form.weights(self.factors)


@one_thread
def solve(family: Callable[[np.ndarray], Form], angles: np.ndarray, start: float) -> Solution:
    """Minimize λ_max(M) over the P_k, and over angles on which the form depends.

    Args:
        family: the form for each array of angles, which is empty where the product is unique.
        angles: where to start.
        start: λ_max(M) there at P_k = I.
    """
    shape = family(angles).shape
    cut = shape[0] * shape[1] * (shape[1] + 1) // 2
    tau = 1.0

    def barrier(x: np.ndarray, turn: np.ndarray) -> tuple[float, Moments] | None:
        return family(turn).barrier(unpacked(x[:cut], shape), float(np.exp(x[cut])))

    def objective(x: np.ndarray) -> tuple[float, np.ndarray] | None:
        turn = x[cut + 1 :]
        steps = ANGLE_STEP * np.eye(len(turn))
        around = [(barrier(x, turn + step), barrier(x, turn - step)) for step in steps]
        found = barrier(x, turn)
        if found is None or any(None in pair for pair in around):
            return None
        value, slopes = found[1].at(unpacked(x[:cut], shape))
        turning = [(high[0] - low[0]) / (2 * ANGLE_STEP) for high, low in around]  # pyright: ignore
        slope = [packed(slopes, unpacked(x[:cut], shape)), [tau - value], turning]
        return x[cut] + found[0] / tau, np.concatenate(slope) / tau

    x = np.concatenate([np.zeros(cut), [np.log(1.5 * start)], angles])
    curvature, before = None, x
    for gap in GAPS:
        tau = family(angles).size / gap
        ahead = x + 0.1 * (x - before)  # x is nearly linear in the gap
        before, x = x, x if objective(ahead) is None else ahead
        x, curvature = quasi_newton(objective, x, max(CENTERED * gap, RESOLUTION), curvature)
    form, factors, level = (
        family(x[cut + 1 :]),
        unpacked(x[:cut], shape),
        np.exp(x[cut]),
    )
    found = form.barrier(factors, float(level))
    assert found is not None  # the last point that the search accepted
    trace = (form.size + found[1].at(factors)[0]) / level
    value = form.top(factors)
    return Solution(form, factors, value, min(value, least(found[1], factors)[0] / trace))


@one_thread
def least(moments: Moments, factors: Matrices) -> tuple[float, Matrices]:
    """Return the least Σ⟨Γ_k, P_k⁻¹⊗P_{k−1}⟩ and the Cholesky factors of its P_k."""
    shape = len(factors), len(factors[0])
    start = moments.at(factors)[0]

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        factors = unpacked(x, shape)
        value, slopes = moments.at(factors)
        return float(np.log(value / start)), packed(slopes, factors) / value

    # until nothing decreases: a predicted decrease is too small along directions of small curvature
    x, _ = quasi_newton(objective, entries(factors), 0.0, steps=2000)
    return start * float(np.exp(objective(x)[0])), unpacked(x, shape)


def quasi_newton(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray] | None],
    x: np.ndarray,
    tolerance: float,
    inverse: np.ndarray | None = None,
    steps: int = 300,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Minimize by BFGS with backtracking from a point of the domain.

    SciPy's line searches stop at the edge of a domain, and forget the curvature between calls.

    Args:
        objective: the value and gradient; None outside the domain.
        x: where to start.
        tolerance: the predicted decrease at which to stop.
        inverse: an approximate inverse of the Hessian from an earlier call.
        steps: the largest number of steps.

    Returns:
        The minimum and the approximate inverse of the Hessian there.
    """
    value, slope = objective(x)  # pyright: ignore[reportGeneralTypeIssues]
    stalled = 0
    for _ in range(steps):
        direction = -slope if inverse is None else -inverse @ slope
        descent = float(slope @ direction)
        if descent >= 0:
            inverse, direction, descent = None, -slope, -float(slope @ slope)
        if -descent <= tolerance or stalled == 3:
            break
        length = min(1.0, 1 / float(np.linalg.norm(direction))) if inverse is None else 1.0
        while (found := objective(x + length * direction)) is None or not (
            found[0] <= value + 1e-4 * length * descent
        ):
            length *= 0.3
            if length < 1e-12:
                return x, inverse
        step, change = length * direction, found[1] - slope
        bend = float(step @ change)
        if bend > 0:
            if inverse is None:
                inverse = np.eye(len(x)) * bend / float(change @ change)
            scaled = inverse @ change
            inverse = inverse - (np.outer(step, scaled) + np.outer(scaled, step)) / bend
            inverse += (1 + change @ scaled / bend) * np.outer(step, step) / bend
        stalled = stalled + 1 if value - found[0] <= 4e-16 * max(1.0, abs(value)) else 0
        x, (value, slope) = x + step, found
    return x, inverse


def unpacked(flat: np.ndarray, shape: tuple[int, int]) -> Matrices:
    """Return lower triangular matrices whose diagonals are exponentials of the entries."""
    count, r = shape
    rows, columns = np.tril_indices(r)
    factors, entries = np.zeros((count, r, r)), flat.reshape(count, len(rows))
    with np.errstate(over="ignore"):
        factors[:, rows, columns] = np.where(rows == columns, np.exp(entries), entries)
    return list(factors)


def entries(factors: Matrices) -> np.ndarray:
    """Return the entries from which `unpacked` makes these factors."""
    rows, columns = np.tril_indices(len(factors[0]))
    below = [np.where(np.eye(len(C)) > 0, np.log(np.diag(C)), C) for C in factors]
    return np.concatenate([C[rows, columns] for C in below])


def packed(slopes: Matrices, factors: Matrices) -> np.ndarray:
    """Return derivatives in the entries of `unpacked` from those in the P_k = CCᵀ."""
    rows, columns = np.tril_indices(len(factors[0]))
    parts = []
    for slope, C in zip(slopes, factors, strict=True):
        entries = (2 * slope @ C)[rows, columns]
        parts.append(np.where(rows == columns, entries * C[rows, columns], entries))
    return np.concatenate(parts)


def cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """Return the Cholesky factor of a positive definite matrix, None of another."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None


def log_det(factor: np.ndarray) -> float:
    """Return log det CCᵀ."""
    return 2 * float(np.sum(np.log(np.diag(factor))))


def solve_lower(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return C⁻¹B."""
    return solve_triangular(factor, right, lower=True, check_finite=False)


def inverse_factor(factor: np.ndarray) -> np.ndarray:
    """Return C⁻¹."""
    return solve_lower(factor, np.eye(len(factor)))


def inverse(factor: np.ndarray) -> np.ndarray:
    """Return (CCᵀ)⁻¹."""
    half = inverse_factor(factor)
    return half.T @ half
