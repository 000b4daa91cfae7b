"""The global minimizer with weight decay, its sharpness and its collapse (X-9, X-15).

For one output see `ridge_path`. For several, with Θ = Σ_i σ_i u_iv_iᵀ, the objective is the sum
over rank-one parts

    R(Θ) − R(0) + λLΣσ_i^{2/L} = Σ_i [σ_i² v_iᵀΣ̂v_i − 2σ_i u_iᵀΘ*Σ̂v_i + λLσ_i^{2/L}],

because the u_i are orthogonal. So zero is the global minimizer exactly if no single part gains more
than it costs, which makes λ_c a search over one number. The minimizer itself has no closed form: it
is stationary where (Θ*−Θ)Σ̂ = MΘ with M = λ(ΘΘᵀ)^{1/L−1}, a ridge whose matrix depends on the
solution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from deeplin.dynamics.optimizer import stability_limit
from deeplin.errors import InputError, positive_number
from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.problems.factorizations import numerical_rank
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.problems.problem import as_map
from deeplin.theory.architecture import Architecture, architecture, is_white
from deeplin.theory.balanced import balanced_factors
from deeplin.theory.ridge_path import LossPath, RidgePath, SquaredPath


@dataclass(frozen=True)
class DecayedMinimum:
    """The global minimizer of F = R + λΣ‖W_k‖_F²; all others are rotations of its hidden layers."""

    weight_decay: float
    depth: int
    objective: float
    """F at the minimizer."""
    risk: float
    """R at the minimizer."""
    sharpness: float
    """S_λ = λ_max(∇²F), the same at every global minimizer."""
    collapsed: bool
    """Whether the minimizer is the zero network."""
    product: Float[np.ndarray, "*q d"] = field(repr=False)
    """The map of the minimizer, in the shape of `Problem.optimum`."""
    readout: Float[np.ndarray, " m"] | None = field(repr=False)
    certified: bool = True
    """Whether no network has a smaller objective for certain. This is always so for one output,
    white data, one or two layers, rank-one Θ* and a collapsed network, and for several outputs on
    other data if the weight decay is weak enough. Otherwise this is the best minimum found."""

    def critical_learning_rate(self, momentum: float = 0.0, *, nesterov: bool = False) -> float:
        """Return 2/S_λ (more with momentum), above which no global minimizer of F is stable."""
        return stability_limit(momentum, nesterov=nesterov) / self.sharpness

    @cached_property
    def network(self) -> Network:
        """The minimizer, with hidden layers as wide as the larger of inputs and outputs."""
        return self.attaining()

    def attaining(self, hidden: int | None = None) -> Network:
        """Return the minimizer with hidden layers of this width and equal singular values."""
        columns = np.atleast_2d(self.product).T
        return balanced_factors(columns, self.depth, hidden, self.readout)


def decayed_minimum(
    problem: Problem, depth: int, weight_decay: float, readout: ArrayLike | None = None
) -> DecayedMinimum:
    """Return the global minimizer of R + λΣ_k‖W_k‖_F² and its sharpness (X-9).

    One output: w = (Σ̂ + μI)^{-1}Σ̂w* with μ = λ‖p‖^{−2/L}‖w‖^{2/L−2}, the best root of that scalar
    equation, or 0. Several outputs, white data (Σ̂ = cI on its range): each singular value of Θ*
    solves min_s c(s−σ_i)² + λLs^{2/L}. Several outputs, other data: the problem is convex up to two
    layers; for deeper networks there is no closed form, and `certified` says whether the best
    minimum found is certain to be global. The penalty is λ‖W‖², so its gradient is 2λW.

    Other convex losses, one output: the same with the ridge path of the loss (X-15). There is a
    minimizer even for separable data.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    z = dl.theory.decayed_minimum(problem, depth=3, weight_decay=0.01)
    assert z.objective > z.risk > 0 and not z.collapsed
    ```
    """
    decay = positive_number("weight_decay", weight_decay)
    net = _architecture(problem, depth, readout, "the minimizer with weight decay")
    L, scaled = net.depth, decay * net.norm ** (-2 / net.depth)
    if isinstance(problem, GeneralizedLinearProblem):
        found = _shrunk(LossPath(problem, L), scaled, problem.dimension)
        return _assemble(problem, net, decay, found[:, None], True)
    eigenvalues, vectors, coordinates = problem.spectrum
    left, values, right = np.linalg.svd(coordinates, full_matrices=False)
    rank = numerical_rank(values, max(coordinates.shape))
    certified = True
    if rank == 1:
        path = SquaredPath(eigenvalues, values[0] * left[:, 0], L)
        found = np.outer(_shrunk(path, scaled, len(eigenvalues)), right[0])
    elif is_white(problem):
        level = np.array([np.mean(eigenvalues)])
        paths = [SquaredPath(level, values[i : i + 1], L) for i in range(rank)]
        sizes = np.concatenate([_shrunk(path, scaled, 1) for path in paths])
        found = (left[:, :rank] * sizes) @ right[:rank]
    else:
        # outputs outside the range of Θ* only increase the cost
        target = values[:rank, None] * left[:, :rank].T
        turned, certified = decayed_several(eigenvalues, target, L, decay)
        found = turned.T @ right[:rank]
    return _assemble(problem, net, decay, vectors @ found, certified)


@dataclass(frozen=True)
class CriticalWeightDecay:
    """The weight decay at which the global minimizer becomes the zero network."""

    value: float
    """λ_c: for λ > λ_c the zero network is the only global minimizer (∞ for depth 1)."""
    jump: float
    """Norm of the product just below λ_c: 0 up to depth 2 (continuous), above 0 from depth 3 on."""


def critical_weight_decay(
    problem: Problem, depth: int, readout: ArrayLike | None = None
) -> CriticalWeightDecay:
    """Return λ_c = sup over w of (R(0) − R(w))/(L(‖w‖/‖p‖)^{2/L}), and the jump there (X-9, X-15).

    L = 2: λ_c = ‖p‖‖Σ̂w*‖. Several outputs: λ_c is that of the rank-one part that vanishes last,
    which is exact for any data.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    critical = dl.theory.critical_weight_decay(problem, depth=3)
    assert dl.theory.decayed_minimum(problem, 3, 1.01 * critical.value).collapsed
    ```
    """
    net = _architecture(problem, depth, readout, "the critical weight decay")
    if isinstance(problem, GeneralizedLinearProblem):
        value, jump = LossPath(problem, net.depth).collapse()
    elif problem.outputs == 1:
        eigenvalues, _, coordinates = problem.spectrum
        value, jump = SquaredPath(eigenvalues, coordinates[:, 0], net.depth).collapse()
    else:
        eigenvalues, _, coordinates = problem.spectrum
        value, jump = collapse_of_several(eigenvalues, coordinates.T, net.depth)
    return CriticalWeightDecay(value * net.norm ** (2 / net.depth), jump)


def _architecture(
    problem: Problem, depth: int, readout: ArrayLike | None, quantity: str
) -> Architecture:
    other = isinstance(problem, GeneralizedLinearProblem)
    if other and problem.outputs > 1:
        raise InputError(
            f"{quantity} of a loss that is not squared is known for one output (X-15); this "
            f"problem has {problem.outputs}. Pass two classes with loss='logistic', or train with "
            "gradient_descent(weight_decay=...)."
        )
    # with weight decay there is a minimizer even of separable data
    return architecture(problem, depth, readout, quantity, signal=not other)


def _shrunk(path: RidgePath, decay: float, size: int) -> np.ndarray:
    """Return the coordinates of the minimizer of ℓ(w) + λ'L‖w‖^{2/L}."""
    best = path.best(decay)
    return np.zeros(size) if best is None else best.product


def _assemble(
    problem: Problem, net: Architecture, decay: float, product: np.ndarray, certified: bool
) -> DecayedMinimum:
    L = net.depth
    risk = float(problem.risk(as_map(product)))
    singular = np.linalg.svd(product / net.norm, compute_uv=False)
    # remove parts that are zero up to rounding: (1e-17)^{2/L} is not small
    singular = singular[: numerical_rank(singular, max(product.shape))]
    return DecayedMinimum(
        weight_decay=decay,
        depth=L,
        objective=risk + decay * L * float(np.sum(singular ** (2 / L))),
        risk=risk,
        sharpness=_sharpness(problem, net, decay, product),
        collapsed=not np.any(product),
        product=as_map(product),
        readout=net.readout,
        certified=certified,
    )


def _sharpness(problem: Problem, net: Architecture, decay: float, product: np.ndarray) -> float:
    """Return S_λ = λ_max(∇²F) at the minimizer with this map.

    At the zero network it is 2λ, and ‖p‖‖∇ℓ(0)‖ more for L = 2. One output (X-15):
    S_λ = max{4λ, λ_max(c²DHD + 2λ(I − (L−1)ŵŵᵀ))}, D = I + (√L − 1)ŵŵᵀ, c² = ‖p‖^{2/L}‖w‖^{2−2/L}.
    """
    L, norm = net.depth, net.norm
    if not np.any(product):
        slope = np.atleast_2d(problem.value_and_gradient(as_map(product))[1])
        pull = float(np.linalg.norm(slope, ord=2))
        return 2 * decay + (norm * pull if L == 2 else 0.0)
    if problem.outputs > 1:
        # unused hidden units add blocks with the eigenvalues 0 and 4λ
        width = int(np.linalg.matrix_rank(product))
        top = float(sharpness(problem, balanced_factors(product, L, width)).value) + 2 * decay
        return top if L == 1 else max(top, 4 * decay)
    if isinstance(problem, GeneralizedLinearProblem):
        H, w = problem.curvature_at(product[:, 0]), product[:, 0]
    else:
        H = np.diag(2 * problem.spectrum.eigenvalues)
        w = problem.spectrum.vectors.T @ product[:, 0]
    size = float(np.linalg.norm(w))
    eye, along = np.eye(len(w)), np.outer(w, w) / size**2
    D, c2 = eye + (np.sqrt(L) - 1) * along, norm ** (2 / L) * size ** (2 - 2 / L)
    top = float(np.linalg.eigvalsh(c2 * D @ H @ D + 2 * decay * (eye - (L - 1) * along))[-1])
    return top if L == 1 else max(4 * decay, top)


GRID_SPACING = 0.02
"""Spacing of the grid in log τ; the logarithm searched there has slopes of at most one."""
RIDGE_STEPS, RIDGE_TOLERANCE, ZERO_TOLERANCE = 20_000, 1e-14, 1e-9
"""Maximum number of ridge steps, change at which they stop, and size of a part that counts as 0."""

Matrix = Float[np.ndarray, "q r"]
Levels = Float[np.ndarray, " r"]


def collapse_of_several(levels: Levels, target: Matrix, depth: int) -> tuple[float, float]:
    """Return λ_c and the norm of Θ just below it, from the eigenvalues ℓ and Θ* in their basis.

    The best σ of one part uvᵀ leaves λ_c = C max over unit v of ‖Θ*Σ̂v‖^{2−2/L}(vᵀΣ̂v)^{2/L−1},
    C = ((L−2)/(L−1))^{1−2/L}/(L−1). By the weighted mean inequality (vᵀΣ̂v)^θ = min over τ of vᵀD_τv
    with D_τ = θτ^{θ−1}Σ̂ + (1−θ)τ^θI, θ = (L−2)/(L−1), so the maximum over v is an eigenvalue,
    which leaves a search over τ between the ends of the spectrum.
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
    """Return Θ (q×r, in the eigenbasis of Σ̂) of least objective, and whether that is certain.

    One layer is a ridge. For two layers the penalty is 2λ times the nuclear norm, so the problem is
    convex and ‖(Θ*−Θ)Σ̂‖ ≤ λ certifies the minimum. Deeper networks: the best of descents that
    start from Θ* and from each of its truncations, certified if `_unique` holds.
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
    """Apply ridges to the columns and the rows of Θ in turn until neither changes it.

    Σσ^{2/L} is concave in ΘΘᵀ and in ΘᵀΘ, so each minimizes an objective that lies above F and
    touches it at Θ: F never grows. The first keeps the column space, the second the row space.
    """
    theta = start
    for _ in range(RIDGE_STEPS):
        before = theta
        left, _, ridge = _parts(theta, L, decay)
        theta = left @ ((left.T @ target) * (levels / (levels + ridge[:, None])))
        _, right, ridge = _parts(theta, L, decay)
        inner = (right * levels) @ right.T + np.diag(ridge)
        theta = (target * levels) @ right.T @ np.linalg.solve(inner, right)
        if np.linalg.norm(theta - before) <= RIDGE_TOLERANCE * np.linalg.norm(theta):
            break
    return theta


def _parts(theta: Matrix, L: int, decay: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the singular vectors of the parts that remain, and μ_i = λσ_i^{2/L−2}."""
    left, values, right = np.linalg.svd(theta, full_matrices=False)
    alive = values > ZERO_TOLERANCE * values[0]
    return left[:, alive], right[alive], decay * values[alive] ** (2 / L - 2)


def _cost(levels: Levels, target: Matrix, theta: Matrix, L: int, decay: float) -> float:
    """Return F − R_min."""
    _, _, ridge = _parts(theta, L, decay)
    penalty = decay * np.sum((ridge / decay) ** (1 / (1 - L)))  # Σσ^{2/L}
    return float(np.sum((theta - target) ** 2 * levels) + L * penalty)


def _unique(levels: Levels, values: np.ndarray, cost: float, L: int, decay: float) -> bool:
    """Return whether F has one stationary point among the Θ with at most this objective.

    Such Θ have the range of Θ* (projecting on it lowers F), and a gap g with
    g + λLΣσ_i(Θ)^{2/L} ≤ F − R_min, σ_i(Θ) ≥ σ_i(Θ*) − √(g/ℓ_min) (Weyl): iterate the two. On that
    convex set the curvature of the risk, 2ℓ_min, must exceed the most negative one of the
    penalty, 2λ(1−2/L)s^{2/L−2} at the smallest singular value s.
    """
    present = values[values > ZERO_TOLERANCE * values[0]]
    gap = cost
    for _ in range(100):
        least = np.maximum(present - np.sqrt(gap / levels.min()), 0.0)
        gap = min(gap, max(cost - decay * L * float(np.sum(least ** (2 / L))), 0.0))
    smallest = float(present.min() - np.sqrt(gap / levels.min()))
    if smallest <= 0:
        return False
    return decay * (1 - 2 / L) * smallest ** (2 / L - 2) < float(levels.min())


def _largest(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return the largest value of a function on an interval and its place, by a refined grid."""
    grid = np.linspace(low, high, 2 + int((high - low) / GRID_SPACING))
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
