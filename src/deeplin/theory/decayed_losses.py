"""Weight decay with any convex loss of one output: the global minimizer and its sharpness (X-15).

For a given product w the least Σ‖W_k‖_F² is L(‖w‖/‖p‖)^{2/L}, so F = ℓ + λΣ‖W_k‖_F² becomes
ℓ(w) + λ'L‖w‖^{2/L}, λ' = λ‖p‖^{−2/L}. Among all w of one norm N the loss is least on the ridge path
w(μ) = argmin ℓ + μ‖·‖², along which dℓ = −2μN dN. A point of the path is stationary for
λ' = μN^{2−2/L}, and d log N/d log μ = −2μ ŵᵀ(H + 2μ)⁻¹ŵ, which also holds without a minimizer of ℓ.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.problems.newton import fit
from deeplin.theory.secular import root

SPACING = 0.1
"""Of the grid in log μ. Extremes of the functions searched are found by their slopes, so that only
two of them in one cell would be overlooked."""


class Point(NamedTuple):
    """One point of the ridge path."""

    mu: float
    norm: float
    gain: float
    """ℓ(0) − ℓ(w(μ))."""
    fall: float
    """−d log N/d log μ, from 0 to 1."""
    product: np.ndarray
    """w(μ), (d, 1)."""
    coordinates: np.ndarray


class LossRidgePath:
    """The ridge path of a problem, evaluated where it is needed."""

    def __init__(self, problem: GeneralizedLinearProblem, depth: int):
        self.problem, self.depth = problem, depth
        zero = np.zeros((problem.dimension, 1))
        self.pull = float(np.linalg.norm(problem.value_and_gradient(zero)[1]))
        """‖∇ℓ(0)‖."""
        self.level = float(np.linalg.eigvalsh(problem.curvature_at(zero))[-1])
        """λ_max of H, the largest seen so far."""
        self._points: dict[float, Point] = {}

    def at(self, mu: float) -> Point:
        """w(μ), from the nearest point known."""
        if mu in self._points:
            return self._points[mu]
        problem = self.problem
        near = min(self._points.values(), key=lambda p: abs(np.log(p.mu / mu)), default=None)
        found = fit(
            problem.convex_loss,
            problem.coordinates,
            problem.require_data("weight decay")[1],
            ridge=mu,
            start=None if near is None else near.coordinates,
        )
        w = problem.coordinates.theta(found.coordinates)
        N, H = float(np.linalg.norm(w)), problem.curvature_at(w)
        solved = np.linalg.solve(H + 2 * mu * np.eye(len(H)), w)
        fall = 2 * mu * float(np.sum(w * solved)) / N**2 if N > 0 else 1.0
        self.level = max(self.level, float(np.linalg.eigvalsh(H)[-1]))
        gain = problem.zero_gap - float(problem.gap(w))
        self._points[mu] = Point(mu, N, gain, fall, w, found.coordinates)
        return self._points[mu]

    def best(self, decay: float) -> Point | None:
        """The global minimizer for λ' > 0, or None where that is w = 0.

        As dF/dN = 2N^{2/L−1}(λ' − μN^{2−2/L}), minima are where μN^{2−2/L} passes λ' upwards.
        """
        L = self.depth
        if L == 1:
            return self.at(decay) if self.pull > 0 else None
        if (2 * decay >= self.pull and L == 2) or self.pull == 0:
            return None

        def missing(log_mu: float) -> float:
            point = self.at(float(np.exp(log_mu)))
            return log_mu + (2 - 2 / L) * np.log(point.norm) - np.log(decay)

        def slope(log_mu: float) -> float:
            return 1 - (2 - 2 / L) * self.at(float(np.exp(log_mu))).fall

        found = [self.at(float(np.exp(x))) for x in self._rising(missing, slope, decay)]
        costs = [decay * L * point.norm ** (2 / L) - point.gain for point in found]
        return found[int(np.argmin(costs))] if costs and min(costs) < 0 else None

    def collapse(self) -> tuple[float, float]:
        """λ' from which on w = 0 is the global minimizer, and ‖w‖ just below it.

        The supremum of (ℓ(0) − ℓ(w))/(L‖w‖^{2/L}); on the path it is where L μN² is the gain.
        For L = 2 it is ‖∇ℓ(0)‖/2, reached continuously; for L ≥ 3 the norm jumps.
        """
        L = self.depth
        if L <= 2 or self.pull == 0:
            return (np.inf if L == 1 else self.pull / 2), 0.0

        def ratio(point: Point) -> float:
            return point.gain / (L * point.norm ** (2 / L))

        def surplus(log_mu: float) -> float:
            point = self.at(float(np.exp(log_mu)))
            return L * point.mu * point.norm**2 / point.gain - 1

        some = max(ratio(self.at(self.level * 4.0**-k)) for k in range(6))
        found = [self.at(float(np.exp(x))) for x in self._rising(surplus, None, some)]
        best = max(found, key=ratio)
        return ratio(best), best.norm

    def _rising(
        self,
        function: Callable[[float], float],
        slope: Callable[[float], float] | None,
        decay: float,
    ) -> list[float]:
        """All log μ where a function grows through zero, for minima at strengths from `decay` on.

        F ≤ F(0) bounds the norm of a minimizer, N^{2/L} ≤ (ℓ(0) − inf ℓ)/(λ'L), and with it
        μ = λ'N^{2/L−2} from below; from (λ_max(H)/2)·L/(L−2) on, μN^{2−2/L} only falls.
        """
        L = self.depth
        squared = (self.problem.zero_gap / (decay * L)) ** L
        low = np.log(decay) + (1 / L - 1) * np.log(squared) - SPACING
        if L == 2:
            # μN grows to ‖∇ℓ(0)‖/2: two ends are enough
            high = np.log(self.level) + SPACING
            while function(high) <= 0 and high < 60:
                high += 2.0
            return [root(function, low, high)] if function(low) < 0 < function(high) else []
        grid, values = [low], [function(low)]
        while grid[-1] <= np.log(self.level / 2 * L / (L - 2)) + SPACING:
            grid.append(grid[-1] + SPACING)
            values.append(function(grid[-1]))
        points = list(zip(grid, values, strict=True))
        if slope is not None:
            slopes = [slope(x) for x in grid]
            turns = [
                root(slope, grid[k], grid[k + 1])
                for k in range(len(grid) - 1)
                if slopes[k] * slopes[k + 1] < 0
            ]
            points = sorted(points + [(x, function(x)) for x in turns])
        return [
            root(function, a, b)
            for (a, before), (b, after) in pairwise(points)
            if before < 0 <= after
        ]


def sharpness_with_decay(
    problem: GeneralizedLinearProblem, product: np.ndarray, L: int, norm: float, decay: float
) -> float:
    """S_λ = max{4λ, λ_max(c²DHD + 2λ(I − (L−1)ŵŵᵀ))}, D = I + (√L − 1)ŵŵᵀ (X-15).

    c² = ‖p‖^{2/L}‖w‖^{2−2/L}. At w = 0: 2λ, and ‖p‖‖∇ℓ(0)‖ more for L = 2.
    """
    size = float(np.linalg.norm(product))
    if size == 0:
        pull = float(np.linalg.norm(problem.value_and_gradient(product)[1]))
        return 2 * decay + (norm * pull if L == 2 else 0.0)
    H, u = problem.curvature_at(product), product[:, 0] / size
    along = np.outer(u, u)
    D = np.eye(len(u)) + (np.sqrt(L) - 1) * along
    scale = norm ** (2 / L) * size ** (2 - 2 / L)
    matrix = scale * D @ H @ D + 2 * decay * (np.eye(len(u)) - (L - 1) * along)
    top = float(np.linalg.eigvalsh(matrix)[-1])
    return top if L == 1 else max(4 * decay, top)
