"""Where the global minimizers with weight decay are found for several outputs (X-9).

With Θ = Σ_i σ_i u_iv_iᵀ the objective is the sum over rank-one parts

    R(Θ) − R(0) + λLΣσ_i^{2/L} = Σ_i [σ_i² v_iᵀΣ̂v_i − 2σ_i u_iᵀΘ*Σ̂v_i + λLσ_i^{2/L}],

because the u_i are orthogonal. So zero is the global minimizer exactly if no single part gains more
than it costs, which makes λ_c a search over one number. The minimizer itself has no closed form: it
is stationary where (Θ*−Θ)Σ̂ = MΘ with M = λ(ΘΘᵀ)^{1/L−1}, a ridge with a matrix that chooses itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

SPACING = 0.02
"""Of the grid in log τ: the logarithm searched there has slopes of at most one."""
STEPS, SETTLED, GONE = 20_000, 1e-14, 1e-9
"""Most steps of the ridge iteration, relative change at its end, and where a part counts as 0."""

Matrix = Float[np.ndarray, "q r"]
Levels = Float[np.ndarray, " r"]


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
