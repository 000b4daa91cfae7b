"""Brackets of S_min and S_bal that are best possible for given Λ, a and L (X-18)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import InputError, finite_array, whole_number
from deeplin.problems import Problem
from deeplin.theory.architecture import architecture


class SharpnessBrackets(NamedTuple):
    """Best possible brackets of S_min and S_bal for given Λ, a, ‖w*‖, ‖p‖ and L (X-18)."""

    minimal: tuple[float, float]
    """N a G(c) ≤ S_min ≤ N L a c^{1/L}, with N = 2‖w*‖^{2−2/L}‖p‖^{2/L}."""
    balanced: tuple[float, float]
    """N max(La, Λ) ≤ S_bal ≤ N(Λ + (L−1)a)."""
    spread: float
    """c = Λ/a ≥ 1."""
    worst_ratio: float
    """The largest S_bal/S_min of any data with this spread (`worst_sharpness_ratio`)."""


def sharpness_brackets(
    problem: Problem, depth: int, readout: ArrayLike | None = None
) -> SharpnessBrackets:
    """Return the best possible brackets of S_min and S_bal for given Λ, a and L (X-18).

    G(c) = L for c = Λ/a ≤ L and c((L−1)/(c−1))^{(L−1)/L} above. For c ≤ L the bracket of S_min is
    narrower than a factor e^{1/e} = 1.445. The bracket of FM-T2 contains it.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    low, high = dl.theory.bounds.sharpness_brackets(problem, depth=10).minimal
    assert low <= dl.theory.minimal_sharpness(problem, depth=10).exact <= high
    ```
    """
    problem.require_single_target("this bracket")
    net = architecture(problem, depth, readout, "the minimal sharpness")
    L, a, Lambda = net.depth, problem.alignment, problem.largest_eigenvalue
    c = max(Lambda / a, 1.0)
    unit = 2 * problem.optimum_norm ** (2 - 2 / L) * net.norm ** (2 / L)
    return SharpnessBrackets(
        minimal=(unit * a * float(least_sharpness(L, c)), unit * L * a * c ** (1 / L)),
        balanced=(unit * max(L * a, Lambda), unit * (Lambda + (L - 1) * a)),
        spread=c,
        worst_ratio=float(worst_sharpness_ratio(L, c)),
    )


def least_sharpness(depth: int, spread: ArrayLike) -> np.ndarray:
    """Return G(c), the least S_min/(Na) of data with Λ/a = c (X-18)."""
    c = np.asarray(spread, dtype=np.float64)
    return np.maximum(c, depth) / _diagonal_ratio(depth, c)


def worst_sharpness_ratio(depth: int, spread: ArrayLike) -> float | np.ndarray:
    """Return R(c, L), the supremum of S_bal/S_min over all data with Λ/a ≤ c (X-18).

    The bound of FM-C2 is 4Λ/λ.

    With r(c) = (c+L−1)/(L c^{1/L}), approached by Σ̂ = diag(c, ν), ν → 0, and, for c > L,
    D(c) = ((c−1)/(L−1))^{(L−1)/L}, attained by Σ̂ = diag(c, 1) and w* along the second axis:
    R = r(c) for c ≤ L−1 and R ≥ max(r, D) always (theorems). In general R is the maximum of
    `plane_ratio` over a plane of data (theorem). For L ≥ 3 and c > L−1 that maximum is max(r, D) to
    rounding at every value tried (computed, not proved); for L = 2 and c < 2.2 it is up to 1.113 %
    larger, and searched here.

    Args:
        depth: L.
        spread: c = Λ/a ≥ 1, a number or an array.

    ```python
    import deeplin as dl
    assert dl.theory.worst_sharpness_ratio(depth=10, spread=5.0) < 1.2
    assert dl.theory.worst_sharpness_ratio(depth=10, spread=1000.0) > 60
    ```
    """
    L = whole_number("depth", depth)
    c = finite_array("spread", spread, (0, 1, 2))
    if c.min() < 1:
        raise InputError(f"spread is {c.min():g}; pass Λ/a, which is at least 1.")
    ratio = np.maximum((c + L - 1) / (L * c ** (1 / L)), _diagonal_ratio(L, c))
    if L == 2:
        near = (c > 1) & (c < 2.2)
        ratio = np.vectorize(lambda x, r, n: _worst_of_two_layers(x) if n else r)(c, ratio, near)
    return float(ratio) if c.ndim == 0 else ratio


def _diagonal_ratio(L: int, c: np.ndarray) -> np.ndarray:
    """Return D(c) for c > L, else 1."""
    above = np.maximum(c - 1, L - 1) / max(L - 1, 1)
    return np.where(c > L, above, 1.0) ** ((L - 1) / L)


def plane_ratio(depth: int, spread: ArrayLike, overlap: ArrayLike) -> np.ndarray:
    """Return S_bal/S_min for Σ̂ = bbᵀ + κqqᵀ, ‖b‖ = a = 1, (q·b)² = g, κ such that Λ = c (X-18).

    These data attain the worst ratio: λ(L, κ)/min_x λ(x + (L−1)x^{−1/(L−1)}, xκ) with λ(y_1, y_2)
    the larger eigenvalue of y_1 bbᵀ + y_2 qqᵀ and κ = c(c−1)/(c−1+g). The denominator is convex in
    log x.
    """
    L = whole_number("depth", depth, minimum=2)
    c, g = np.broadcast_arrays(np.asarray(spread, float), np.asarray(overlap, float))
    kappa = np.divide(c * (c - 1), c - 1 + g, out=np.zeros(c.shape), where=c > 1)

    def top(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return (first + second + np.sqrt((first - second) ** 2 + 4 * first * second * g)) / 2

    def objective(log_x: np.ndarray) -> np.ndarray:
        x = np.exp(log_x)
        return top(x + (L - 1) * x ** (-1 / (L - 1)), x * kappa)

    # Above x = 1 both arguments grow with x; below (c + L)^{1−L} the first exceeds the value at 1.
    low, high = (1 - L) * np.log(c + L), np.zeros(c.shape)
    golden = (np.sqrt(5) - 1) / 2
    for _ in range(90):
        left, right = high - golden * (high - low), low + golden * (high - low)
        lower = objective(left) < objective(right)
        low, high = np.where(lower, low, left), np.where(lower, right, high)
    return top(np.full(c.shape, float(L)), kappa) / objective((low + high) / 2)


def _worst_of_two_layers(c: float) -> float:
    """Return max over g of `plane_ratio(2, c, g)`, by a grid that is refined twice."""
    low, high = 0.0, 1.0
    for _ in range(5):
        grid = np.linspace(low, high, 65)
        ratios = plane_ratio(2, c, grid)
        best = int(np.argmax(ratios))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 64)]
    return float(ratios[best])
