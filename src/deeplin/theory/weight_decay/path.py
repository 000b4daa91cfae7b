"""The ridge path, on which every global minimiser with weight decay lies (X-9).

For one output and a given product w the least Σ‖W_k‖_F² is L(‖w‖/‖p‖)^{2/L} (balanced, rank one,
aligned), so F = R + λΣ‖W_k‖_F² becomes R(w) + λ'L‖w‖^{2/L}, λ' = λ‖p‖^{−2/L}. Among all w of one
norm the risk is least on the path w(μ) = (Σ̂ + μI)^{-1}Σ̂w*, where dR = −2μN dN with N = ‖w(μ)‖.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from deeplin.theory.secular import root

SPACING = 0.02
"""Of the grid in log μ. The slope of log(μN^{2−2/L}) changes by at most one for each unit of log μ,
so a pair of roots between two points would differ by less than 1e-7 in the objective."""


@dataclass(frozen=True, eq=False)
class RidgePath:
    """N(μ) and R(w(μ)) from the eigenvalues ℓ_i > 0 of Σ̂ and the coordinates w*_i."""

    eigenvalues: Float[np.ndarray, " r"]
    coordinates: Float[np.ndarray, " r"]
    depth: int

    def shrunk(self, mu: float) -> Float[np.ndarray, " r"]:
        """The coordinates of w(μ)."""
        return self.eigenvalues * self.coordinates / (self.eigenvalues + mu)

    def norms(self, mu: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """N(μ)."""
        shares = self.eigenvalues / (self.eigenvalues + mu[:, None])
        return np.sqrt(shares**2 @ self.coordinates**2)

    def gains(self, mu: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """R(0) − R(w(μ)) = Σ ℓ_i w*_i² (1 − (μ/(ℓ_i+μ))²), without cancellation for large μ."""
        shares = self.eigenvalues / (self.eigenvalues + mu[:, None])
        return (shares * (2 - shares)) @ (self.eigenvalues * self.coordinates**2)

    def strength(self, mu: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """μN^{2−2/L}: the weight decay λ' for which w(μ) is stationary."""
        return mu * self.norms(mu) ** (2 - 2 / self.depth)

    @property
    def last(self) -> float:
        """Beyond this μ no stationary point is a minimum, L ≥ 3: μN^{2−2/L} only falls."""
        return float(self.eigenvalues.max()) * self.depth / (self.depth - 2)

    def best(self, decay: float) -> float | None:
        """μ of the global minimiser for λ' > 0, or None where that is w = 0.

        As dF/dN = 2N^{2/L−1}(λ' − μN^{2−2/L}), minima are where μN^{2−2/L} passes λ' upwards.
        """
        L, size = self.depth, float(np.linalg.norm(self.coordinates))
        first = decay * size ** (2 / L - 2)  # μ = λ'‖w‖^{2/L−2} and ‖w‖ ≤ ‖w*‖
        if L == 1:
            return decay
        if L == 2:
            pull = float(np.linalg.norm(self.eigenvalues * self.coordinates))
            return self._only_root(decay, first, pull) if decay < pull else None
        found = [self._refine(cell, decay) for cell in self._rising_cells(decay, first)]
        costs = [self._cost(mu, decay) for mu in found]
        return found[int(np.argmin(costs))] if costs and min(costs) < 0 else None

    def collapse(self) -> tuple[float, float]:
        """λ' from which on w = 0 is the global minimiser, and ‖w‖ just below it.

        λ'_c = sup over w of (R(0) − R(w))/(L‖w‖^{2/L}), on the path where L μN² = R(0) − R(w(μ)).
        For L = 2 it is ‖Σ̂w*‖, reached continuously; for L ≥ 3 the norm jumps.
        """
        L, size = self.depth, float(np.linalg.norm(self.coordinates))
        if L == 1:
            return np.inf, 0.0
        if L == 2:
            return float(np.linalg.norm(self.eigenvalues * self.coordinates)), 0.0
        # λ'_c is at least the ratio of w*, which bounds μ = λ'‖w‖^{2/L−2} from below
        first = float(self.eigenvalues @ self.coordinates**2) / (L * size**2)
        mu = self._grid(first)
        surplus = self._surplus(mu)
        cells = np.flatnonzero((surplus[:-1] < 0) & (surplus[1:] >= 0))

        found = [_rising_root(self._surplus, mu[k], mu[k + 1]) for k in cells]
        points = np.array(found)
        norms = self.norms(points)
        ratios = self.gains(points) / (L * norms ** (2 / L))
        best = int(np.argmax(ratios))
        return float(ratios[best]), float(norms[best])

    def _surplus(self, mu: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """LμN² − (R(0) − R(w(μ))): the ratio of `collapse` is largest where it grows through 0."""
        return self.depth * mu * self.norms(mu) ** 2 - self.gains(mu)

    def _grid(self, first: float) -> Float[np.ndarray, " m"]:
        # a little beyond both ends, which may themselves be the roots looked for
        low, high = np.log(first) - SPACING, np.log(self.last) + SPACING
        return np.exp(np.linspace(low, high, 2 + max(0, int((high - low) / SPACING))))

    def _rising_cells(self, decay: float, first: float) -> list[tuple[float, float]]:
        if first >= self.last:
            return []
        mu = self._grid(first)
        above = self.strength(mu) >= decay
        return [(mu[k], mu[k + 1]) for k in np.flatnonzero(~above[:-1] & above[1:])]

    def _refine(self, cell: tuple[float, float], decay: float) -> float:
        return _rising_root(lambda mu: self.strength(mu) / decay - 1, *cell)

    def _only_root(self, decay: float, first: float, pull: float) -> float:
        """L = 2: μN grows from 0 to ‖Σ̂w*‖, at μ ≤ Λλ'/(‖Σ̂w*‖ − λ') it has passed λ'."""
        high = max(float(self.eigenvalues.max()) * decay / (pull - decay), first)
        # Close to ‖Σ̂w*‖ the difference has few digits; where rounding hides the root, w is 0 to it.
        for _ in range(60):
            high *= 1 + 1e-9
            if self.strength(np.array([high]))[0] >= decay:
                return self._refine((first * (1 - 1e-9), high), decay)
            high *= 2
        return high

    def _cost(self, mu: float, decay: float) -> float:
        """F(w(μ)) − F(0)."""
        at = np.array([mu])
        penalty = decay * self.depth * self.norms(at) ** (2 / self.depth)
        return float((penalty - self.gains(at))[0])


def _rising_root(function: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> float:
    """Where a function of μ grows through zero; an end where it is zero up to rounding."""

    def at(log_mu: float) -> float:
        return float(function(np.exp([log_mu]))[0])

    ends = float(np.log(low)), float(np.log(high))
    if at(ends[0]) >= 0:
        return low
    return high if at(ends[1]) <= 0 else float(np.exp(root(at, *ends)))
