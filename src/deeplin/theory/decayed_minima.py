"""Where the global minimizers with weight decay are found (X-9).

*One output.* For a given product w the least Σ‖W_k‖_F² is L(‖w‖/‖p‖)^{2/L} (balanced, rank one,
aligned), so F = R + λΣ‖W_k‖_F² becomes R(w) + λ'L‖w‖^{2/L}, λ' = λ‖p‖^{−2/L}. Among all w of one
norm the risk is least on the path w(μ) = (Σ̂ + μI)^{-1}Σ̂w*, where dR = −2μN dN with N = ‖w(μ)‖.

*Several outputs, any data.* With Θ = Σ_i σ_i u_iv_iᵀ the objective is the sum over rank-one parts

    R(Θ) − R(0) + λLΣσ_i^{2/L} = Σ_i [σ_i² v_iᵀΣ̂v_i − 2σ_i u_iᵀΘ*Σ̂v_i + λLσ_i^{2/L}],

because the u_i are orthogonal. So zero is the global minimizer exactly if no single part gains more
than it costs, which makes λ_c a search over one number. The minimizer itself has no closed form: it
is stationary where (Θ*−Θ)Σ̂ = MΘ with M = λ(ΘΘᵀ)^{1/L−1}, a ridge with a matrix that chooses itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplin.theory.secular import root

SPACING = 0.02
"""Of the grid in log μ. The slope of log(μN^{2−2/L}) changes by at most one for each unit of log μ,
so a pair of roots between two points would differ by less than 1e-7 in the objective. For several
outputs of that in log τ: the logarithm searched there has slopes of at most one."""
STEPS, SETTLED, GONE = 20_000, 1e-14, 1e-9
"""Most steps of the ridge iteration, relative change at its end, and where a part counts as 0."""

Matrix = Float[np.ndarray, "q r"]
Levels = Float[np.ndarray, " r"]


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
        """μ of the global minimizer for λ' > 0, or None where that is w = 0.

        As dF/dN = 2N^{2/L−1}(λ' − μN^{2−2/L}), minima are where μN^{2−2/L} passes λ' upwards.
        """
        L, size = self.depth, float(np.linalg.norm(self.coordinates))
        first = decay * size ** (2 / L - 2)  # μ = λ'‖w‖^{2/L−2} and ‖w‖ ≤ ‖w*‖
        if L == 1:
            return decay
        if L == 2:
            pull = float(np.linalg.norm(self.eigenvalues * self.coordinates))
            return self._only_root(decay, first, pull) if decay < pull else None
        found = self._rising_roots(lambda mu: self.strength(mu) / decay - 1, first)
        costs = [self._cost(mu, decay) for mu in found]
        return found[int(np.argmin(costs))] if costs and min(costs) < 0 else None

    def collapse(self) -> tuple[float, float]:
        """λ' from which on w = 0 is the global minimizer, and ‖w‖ just below it.

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
        points = np.array(self._rising_roots(self._surplus, first))
        norms = self.norms(points)
        ratios = self.gains(points) / (L * norms ** (2 / L))
        best = int(np.argmax(ratios))
        return float(ratios[best]), float(norms[best])

    def _surplus(self, mu: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """LμN² − (R(0) − R(w(μ))): the ratio of `collapse` is largest where it grows through 0."""
        return self.depth * mu * self.norms(mu) ** 2 - self.gains(mu)

    def _rising_roots(self, function: Callable, first: float) -> list[float]:
        """All μ between `first` and `last` where a function of μ grows through zero."""
        if first >= self.last:
            return []
        # a little beyond both ends, which may themselves be the roots looked for
        low, high = np.log(first) - SPACING, np.log(self.last) + SPACING
        mu = np.exp(np.linspace(low, high, 2 + max(0, int((high - low) / SPACING))))
        above = function(mu) >= 0
        cells = np.flatnonzero(~above[:-1] & above[1:])
        return [_rising_root(function, mu[k], mu[k + 1]) for k in cells]

    def _only_root(self, decay: float, first: float, pull: float) -> float:
        """L = 2: μN grows from 0 to ‖Σ̂w*‖, at μ ≤ Λλ'/(‖Σ̂w*‖ − λ') it has passed λ'."""
        high = max(float(self.eigenvalues.max()) * decay / (pull - decay), first)
        # Close to ‖Σ̂w*‖ the difference has few digits; where rounding hides the root, w is 0 to it.
        for _ in range(60):
            high *= 1 + 1e-9
            if self.strength(np.array([high]))[0] >= decay:
                low = first * (1 - 1e-9)
                return _rising_root(lambda mu: self.strength(mu) / decay - 1, low, high)
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


def collapse_of_several(levels: Levels, target: Matrix, depth: int) -> tuple[float, float]:
    """λ_c and the norm of Θ just below it, from the eigenvalues ℓ of Σ̂ and Θ* in its eigenbasis.

    The best σ of one part uvᵀ leaves λ_c = C max over unit v of ‖Θ*Σ̂v‖^{2−2/L}(vᵀΣ̂v)^{2/L−1},
    C = ((L−2)/(L−1))^{1−2/L}/(L−1). By the weighted mean inequality (vᵀΣ̂v)^θ = min over τ of vᵀD_τv
    with D_τ = θτ^{θ−1}Σ̂ + (1−θ)τ^θI, θ = (L−2)/(L−1), so the maximum over v is an eigenvalue, and
    one search over τ between the ends of the spectrum is left.
    """
    L = depth
    if L == 1:
        return np.inf, 0.0
    if L == 2:
        return float(np.linalg.norm(target * levels, ord=2)), 0.0
    theta = (L - 2) / (L - 1)
    pulled = target * levels

    def top(log_tau: float) -> float:
        tau = np.exp(log_tau)
        weights = theta * tau ** (theta - 1) * levels + (1 - theta) * tau**theta
        return float(np.linalg.norm(pulled / np.sqrt(weights), ord=2)) ** 2

    best, at = _largest(top, np.log(levels.min()), np.log(levels.max()))
    constant = theta ** (1 - 2 / L) / (L - 1)
    # there τ = B = vᵀΣ̂v and best = A²/B^θ with A = ‖Θ*Σ̂v‖; the part has σ = θA/B
    size = theta * np.sqrt(best) * np.exp(at * (theta / 2 - 1))
    return constant * best ** ((L - 1) / L), float(size)


def decayed_several(
    levels: Levels, target: Matrix, depth: int, decay: float
) -> tuple[Matrix, bool]:
    """Θ (q×r, in the eigenbasis of Σ̂) of least objective, and whether that is certain.

    One layer is a ridge. Two: the penalty is 2λ times the nuclear norm, so the problem is convex
    and ‖(Θ*−Θ)Σ̂‖ ≤ λ certifies the minimum. Deeper: the best of descents that start from Θ* and
    from each of its truncations, certified where `_unique` holds.
    """
    if depth == 1:
        return target * levels / (levels + decay), True
    if decay >= collapse_of_several(levels, target, depth)[0]:
        return np.zeros_like(target), True
    left, values, right = np.linalg.svd(target, full_matrices=False)
    kept = range(len(values), 0, -1) if depth > 2 else [len(values)]
    found = [
        _settle(levels, target, (left[:, :k] * values[:k]) @ right[:k], depth, decay) for k in kept
    ]
    costs = [_cost(levels, target, theta, depth, decay) for theta in found]
    best = found[int(np.argmin(costs))]
    if depth == 2:
        slack = np.linalg.norm((target - best) * levels, ord=2) / decay - 1
        return best, bool(slack <= 1e-6)
    return best, _unique(levels, values, min(costs), depth, decay)


def _settle(levels: Levels, target: Matrix, start: Matrix, L: int, decay: float) -> Matrix:
    """Ridges on the columns and on the rows of Θ in turn, until neither changes it.

    Σσ^{2/L} is concave in ΘΘᵀ and in ΘᵀΘ, so each minimizes an objective that lies above F and
    touches it at Θ: F never grows. The first keeps the column space, the second the row space.
    """
    theta = start
    for _ in range(STEPS):
        before = theta
        left, _, ridge = _parts(theta, L, decay)
        theta = left @ ((left.T @ target) * (levels / (levels + ridge[:, None])))
        _, right, ridge = _parts(theta, L, decay)
        inner = (right * levels) @ right.T + np.diag(ridge)
        theta = (target * levels) @ right.T @ np.linalg.solve(inner, right)
        if np.linalg.norm(theta - before) <= SETTLED * np.linalg.norm(theta):
            break
    return theta


def _parts(theta: Matrix, L: int, decay: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left and right singular vectors of the parts that are not gone, and μ_i = λσ_i^{2/L−2}."""
    left, values, right = np.linalg.svd(theta, full_matrices=False)
    alive = values > GONE * values[0]
    return left[:, alive], right[alive], decay * values[alive] ** (2 / L - 2)


def _cost(levels: Levels, target: Matrix, theta: Matrix, L: int, decay: float) -> float:
    """F − R_min."""
    _, _, ridge = _parts(theta, L, decay)
    penalty = decay * np.sum((ridge / decay) ** (1 / (1 - L)))  # Σσ^{2/L}
    return float(np.sum((theta - target) ** 2 * levels) + L * penalty)


def _unique(levels: Levels, values: np.ndarray, cost: float, L: int, decay: float) -> bool:
    """Whether F has only one stationary point among all Θ whose objective is at most this one's.

    Such Θ have the range of Θ* (projecting on it lowers F), and a gap g with
    g + λLΣσ_i(Θ)^{2/L} ≤ F − R_min, σ_i(Θ) ≥ σ_i(Θ*) − √(g/ℓ_min) (Weyl): iterate the two. On that
    convex set the curvature of the risk, 2ℓ_min, must exceed the most negative one of the
    penalty, 2λ(1−2/L)s^{2/L−2} at the smallest singular value s.
    """
    present = values[values > GONE * values[0]]
    gap = cost
    for _ in range(100):
        least = np.maximum(present - np.sqrt(gap / levels.min()), 0.0)
        gap = min(gap, max(cost - decay * L * float(np.sum(least ** (2 / L))), 0.0))
    smallest = float(present.min() - np.sqrt(gap / levels.min()))
    if smallest <= 0:
        return False
    return decay * (1 - 2 / L) * smallest ** (2 / L - 2) < float(levels.min())


def _largest(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """The largest value of a function on an interval, and where: a grid, then its best cell."""
    from scipy.optimize import minimize_scalar  # as in `secular.root`

    grid = np.linspace(low, high, 2 + int((high - low) / SPACING))
    heights = [function(point) for point in grid]
    k = int(np.argmax(heights))
    best = heights[k], float(grid[k])
    ends = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
    if ends[0] < ends[1]:
        found: Any = minimize_scalar(
            lambda x: -function(x), bounds=ends, method="bounded", options={"xatol": 1e-10}
        )
        best = max(best, (-float(found.fun), float(found.x)))
    return best
