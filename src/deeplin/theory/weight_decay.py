"""The global minimizer with weight decay, its sharpness, where it collapses (X-9, X-15)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.errors import InputError, positive_number
from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.theory.architecture import (
    Architecture,
    architecture,
    is_white,
    numerical_rank,
    stability_limit,
)
from deeplin.theory.decayed_several import collapse_of_several, decayed_several
from deeplin.theory.minimizers import balanced_factors
from deeplin.theory.ridge_path import LossPath, RidgePath, SquaredPath
from deeplin.validation import validated


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
    """The minimizer is the zero network."""
    product: Float[np.ndarray, "d q"] = field(repr=False)
    """Θ, the map of the minimizer (transposed, as `Problem.optimum`)."""
    readout: Float[np.ndarray, " m"] | None = field(repr=False)
    certified: bool = True
    """Whether it is certain that no network has a smaller objective. Always for one output, white
    data, one or two layers, rank-one Θ* and a collapsed network; for several outputs on other data
    where the weight decay is weak enough. Else it is the best minimum found."""

    def critical_learning_rate(self, momentum: float = 0.0, *, nesterov: bool = False) -> float:
        """2/S_λ, or as momentum has it: above it descent on F leaves every global minimizer."""
        return stability_limit(momentum, nesterov=nesterov) / self.sharpness

    @cached_property
    def network(self) -> Network:
        """The minimizer, with hidden layers as wide as the larger of inputs and outputs."""
        return self.attaining()

    def attaining(self, hidden: int | None = None) -> Network:
        """The minimizer with hidden layers of this width: all layers share the singular values."""
        return balanced_factors(self.product, self.depth, hidden, self.readout)


@validated
def decayed_minimum(
    problem: Problem, depth: int, weight_decay: float, readout: ArrayLike | None = None
) -> DecayedMinimum:
    """The global minimizer of R + λΣ_k‖W_k‖_F² and its sharpness (X-9).

    One output: w = (Σ̂ + μI)^{-1}Σ̂w* with μ = λ‖p‖^{−2/L}‖w‖^{2/L−2}, the best root of that scalar
    equation, or 0. Several outputs, white data (Σ̂ = cI on its range): each singular value of Θ*
    solves min_s c(s−σ_i)² + λLs^{2/L}. Several outputs, other data: convex up to two layers; deeper
    there is no closed form, and the best minimum found says whether it is `certified`. The penalty
    is λ‖W‖², so its gradient is 2λW.

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
        # the outputs outside the range of Θ* only cost
        target = values[:rank, None] * left[:, :rank].T
        turned, certified = decayed_several(eigenvalues, target, L, decay)
        found = turned.T @ right[:rank]
    return _assemble(problem, net, decay, vectors @ found, certified)


@dataclass(frozen=True)
class CriticalWeightDecay:
    """Where the global minimizer becomes the zero network."""

    value: float
    """λ_c: for λ > λ_c the zero network is the only global minimizer (∞ for depth 1)."""
    jump: float
    """Norm of the product just below λ_c: 0 up to depth 2 (continuous), above 0 from depth 3 on."""


def critical_weight_decay(
    problem: Problem, depth: int, readout: ArrayLike | None = None
) -> CriticalWeightDecay:
    """λ_c = sup over w of (R(0) − R(w))/(L(‖w‖/‖p‖)^{2/L}), and the jump there (X-9, X-15).

    L = 2: λ_c = ‖p‖‖Σ̂w*‖. Several outputs: the part of rank one that vanishes last decides, which
    is exact for any data.

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
    """Coordinates of the minimizer of ℓ(w) + λ'L‖w‖^{2/L}."""
    best = path.best(decay)
    return np.zeros(size) if best is None else best.product


def _assemble(
    problem: Problem, net: Architecture, decay: float, product: np.ndarray, certified: bool
) -> DecayedMinimum:
    L = net.depth
    risk = float(problem.risk(product))
    singular = np.linalg.svd(product / net.norm, compute_uv=False)
    # a part that is zero up to rounding would count: (1e-17)^{2/L} is not small
    singular = singular[: numerical_rank(singular, max(product.shape))]
    return DecayedMinimum(
        weight_decay=decay,
        depth=L,
        objective=risk + decay * L * float(np.sum(singular ** (2 / L))),
        risk=risk,
        sharpness=_sharpness(problem, net, decay, product),
        collapsed=not np.any(product),
        product=product,
        readout=net.readout,
        certified=certified,
    )


def _sharpness(problem: Problem, net: Architecture, decay: float, product: np.ndarray) -> float:
    """S_λ = λ_max(∇²F) at the minimizer with this map.

    At the zero network it is 2λ, and ‖p‖‖∇ℓ(0)‖ more for L = 2. One output (X-15):
    S_λ = max{4λ, λ_max(c²DHD + 2λ(I − (L−1)ŵŵᵀ))}, D = I + (√L − 1)ŵŵᵀ, c² = ‖p‖^{2/L}‖w‖^{2−2/L}.
    """
    L, norm = net.depth, net.norm
    if not np.any(product):
        pull = float(np.linalg.norm(problem.value_and_gradient(product)[1], ord=2))
        return 2 * decay + (norm * pull if L == 2 else 0.0)
    if problem.outputs > 1:
        # hidden units that are not in use add blocks with the eigenvalues 0 and 4λ
        width = int(np.linalg.matrix_rank(product))
        top = float(sharpness(problem, balanced_factors(product, L, width)).value) + 2 * decay
        return top if L == 1 else max(top, 4 * decay)
    if isinstance(problem, GeneralizedLinearProblem):
        H, w = problem.curvature_at(product), product[:, 0]
    else:
        H = np.diag(2 * problem.spectrum.eigenvalues)
        w = problem.spectrum.vectors.T @ product[:, 0]
    size = float(np.linalg.norm(w))
    eye, along = np.eye(len(w)), np.outer(w, w) / size**2
    D, c2 = eye + (np.sqrt(L) - 1) * along, norm ** (2 / L) * size ** (2 - 2 / L)
    top = float(np.linalg.eigvalsh(c2 * D @ H @ D + 2 * decay * (eye - (L - 1) * along))[-1])
    return top if L == 1 else max(4 * decay, top)
