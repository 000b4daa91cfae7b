"""The ridge path of a loss, and the points of it that minimize F with weight decay (X-9, X-15).

For a given product w the least Σ‖W_k‖_F² is L(‖w‖/‖p‖)^{2/L} (balanced, rank one, aligned), so
F = ℓ + λΣ‖W_k‖_F² becomes ℓ(w) + λ'L‖w‖^{2/L}, λ' = λ‖p‖^{−2/L} (X-9, X-15). Among all w of one
norm N the loss is least on the path w(μ) = argmin ℓ + μ‖·‖², where dℓ = −2μN dN. A point of the
path is stationary for λ' = μN^{2−2/L}, and d log N/d log μ = −2μ ŵᵀ(H + 2μ)⁻¹ŵ, H the Hessian of ℓ
there; this also holds without a minimizer of ℓ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.problems.newton import fit
from deeplin.theory.roots import root


class Point(NamedTuple):
    """One point of the ridge path."""

    mu: float
    norm: float
    gain: float
    """ℓ(0) − ℓ(w(μ))."""
    fall: float
    """−d log N/d log μ, from 0 to 1."""
    product: np.ndarray
    """w(μ)."""


class RidgePath(ABC):
    """The ridge path of a loss, and which of its points are global minima of F."""

    depth: int
    spacing: float
    """Spacing of the grid in log μ that is searched. Extremes are located by sign changes of the
    slope, so that only two in one cell would be missed."""
    pull: float
    """‖∇ℓ(0)‖."""
    level: float
    """Largest λ_max of H computed so far."""
    most: float
    """ℓ(0) − inf ℓ."""

    @abstractmethod
    def at(self, mu: float) -> Point:
        """Return the point w(μ)."""

    def best(self, decay: float) -> Point | None:
        """Return the global minimizer for λ' > 0, or None if it is w = 0.

        As dF/dN = 2N^{2/L−1}(λ' − μN^{2−2/L}), minima are where μN^{2−2/L} passes λ' upwards.
        """
        L = self.depth
        if self.pull == 0 or (L == 2 and 2 * decay >= self.pull):
            return None
        if L == 1:
            return self.at(decay)

        def missing(log_mu: float) -> float:
            norm = self.at(float(np.exp(log_mu))).norm
            return log_mu + (2 - 2 / L) * np.log(norm) - np.log(decay) if norm > 0 else -np.inf

        def slope(log_mu: float) -> float:
            return 1 - (2 - 2 / L) * self.at(float(np.exp(log_mu))).fall

        found = [self.at(float(np.exp(x))) for x in self._rising(missing, slope, decay)]
        costs = [decay * L * point.norm ** (2 / L) - point.gain for point in found]
        return found[int(np.argmin(costs))] if costs and min(costs) < 0 else None

    def collapse(self) -> tuple[float, float]:
        """Return λ' from which on w = 0 is the global minimizer, and ‖w‖ just below it.

        The supremum of (ℓ(0) − ℓ(w))/(L‖w‖^{2/L}); on the path it is where LμN² passes the gain.
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
        """Return all log μ where a function increases through zero, for strengths ≥ `decay`.

        F ≤ F(0) bounds the norm of a minimizer, N^{2/L} ≤ (ℓ(0) − inf ℓ)/(λ'L), and with it
        μ = λ'N^{2/L−2} from below; from (λ_max(H)/2)·L/(L−2) on, μN^{2−2/L} only falls.
        """
        L, step = self.depth, self.spacing
        low = np.log(decay) + (1 - L) * np.log(self.most / (decay * L)) - step
        if L == 2:
            # μN grows to ‖∇ℓ(0)‖/2: two ends are enough
            high = np.log(self.level) + step
            while function(high) <= 0 and high < 60 + np.log(self.level):
                high += 2.0
            return [root(function, low, high)] if function(low) < 0 < function(high) else []
        grid, values = [low], [function(low)]  # this may raise the level
        while grid[-1] <= np.log(self.level / 2 * L / (L - 2)) + step:
            grid.append(grid[-1] + step)
            values.append(function(grid[-1]))
        if slope is not None:
            slopes = [slope(x) for x in grid]
            signs = zip(pairwise(grid), pairwise(slopes), strict=True)
            grid = sorted([*grid, *(root(slope, *ends) for ends, (a, b) in signs if a * b < 0)])
            values = [function(x) for x in grid]
        signs = zip(pairwise(grid), pairwise(values), strict=True)
        return [root(function, *ends) for ends, (before, after) in signs if before < 0 <= after]


class SquaredPath(RidgePath):
    """Path of squared loss: w(μ)_i = ℓ_i w*_i/(ℓ_i + μ) in the eigenbasis of Σ̂, with ℓ_i > 0."""

    spacing = 0.02

    def __init__(
        self, eigenvalues: Float[np.ndarray, " r"], coordinates: Float[np.ndarray, " r"], depth: int
    ):
        self.eigenvalues, self.coordinates, self.depth = eigenvalues, coordinates, depth
        self.pull = 2 * float(np.linalg.norm(eigenvalues * coordinates))
        self.level = 2 * float(eigenvalues.max())
        self.most = float(eigenvalues @ coordinates**2)

    def at(self, mu: float) -> Point:
        """Return the point in closed form, with its gain Σℓ_i w*_i²(1 − (μ/(ℓ_i+μ))²)."""
        shares = self.eigenvalues / (self.eigenvalues + mu)
        w = shares * self.coordinates
        square = float(w @ w)
        gain = float((shares * (2 - shares)) @ (self.eigenvalues * self.coordinates**2))
        fall = float((1 - shares) @ w**2) / square if square > 0 else 1.0
        return Point(mu, np.sqrt(square), gain, fall, w)


class LossPath(RidgePath):
    """Path computed by Newton's method, each point from the nearest known one."""

    spacing = 0.1

    def __init__(self, problem: GeneralizedLinearProblem, depth: int):
        self.problem, self.depth = problem, depth
        zero = np.zeros(problem.dimension)
        self.pull = float(np.linalg.norm(problem.value_and_gradient(zero)[1]))
        self.level = float(np.linalg.eigvalsh(problem.curvature_at(zero))[-1])
        self.most = problem.zero_gap
        self._points: dict[float, tuple[Point, np.ndarray]] = {}

    def at(self, mu: float) -> Point:
        """Return the ridge solution and the rate at which its norm decreases."""
        if mu in self._points:
            return self._points[mu][0]
        problem = self.problem
        near = min(self._points, key=lambda other: abs(np.log(other / mu)), default=None)
        found = fit(
            problem.convex_loss,
            problem.coordinates,
            problem.require_data("weight decay")[1],
            ridge=mu,
            start=None if near is None else self._points[near][1],
        )
        w = problem.coordinates.theta(found.coordinates)[:, 0]
        N, H = float(np.linalg.norm(w)), problem.curvature_at(w)
        solved = np.linalg.solve(H + 2 * mu * np.eye(len(H)), w)
        fall = 2 * mu * float(np.sum(w * solved)) / N**2 if N > 0 else 1.0
        self.level = max(self.level, float(np.linalg.eigvalsh(H)[-1]))
        point = Point(mu, N, problem.zero_gap - float(problem.gap(w)), fall, w)
        self._points[mu] = point, found.coordinates
        return point
