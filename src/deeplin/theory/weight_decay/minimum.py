"""The global minimiser with weight decay, its unique sharpness, and where it collapses (X-9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplin.checks import InputError, positive_number
from deeplin.door import door
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.sharpness import sharpness
from deeplin.theory.architecture import Architecture, architecture
from deeplin.theory.minimizers.balanced import balanced_factors
from deeplin.theory.secular import largest_eigenvalue_of_arrow
from deeplin.theory.thresholds import stability_limit
from deeplin.theory.weight_decay.path import RidgePath

WHITE = 1e-9
"""Relative spread of the nonzero eigenvalues up to which data count as white."""


@dataclass(frozen=True)
class DecayedMinimum:
    """The global minimiser of F = R + λΣ‖W_k‖_F²; all others are rotations of its hidden layers."""

    weight_decay: float
    depth: int
    objective: float
    """F at the minimiser."""
    risk: float
    """R at the minimiser."""
    sharpness: float
    """S_λ = λ_max(∇²F), the same at every global minimiser."""
    collapsed: bool
    """The minimiser is the zero network."""
    product: Float[np.ndarray, "d q"] = field(repr=False)
    """Θ, the map of the minimiser (transposed, as `Problem.optimum`)."""
    readout: Float[np.ndarray, " m"] | None = field(repr=False)

    def critical_learning_rate(self, momentum: float = 0.0, *, nesterov: bool = False) -> float:
        """2/S_λ, or as momentum has it: above it descent on F leaves every global minimiser."""
        return stability_limit(momentum, nesterov=nesterov) / self.sharpness

    @cached_property
    def network(self) -> Network:
        """The minimiser, with hidden layers as wide as the larger of inputs and outputs."""
        return self.attaining()

    def attaining(self, hidden: int | None = None) -> Network:
        """The minimiser with hidden layers of this width: all layers share the singular values."""
        return balanced_factors(self.product, self.depth, hidden, self.readout)


@door
def decayed_minimum(
    problem: Problem, depth: int, weight_decay: float, readout: Any = None
) -> DecayedMinimum:
    """The global minimiser of R + λΣ_k‖W_k‖_F² and its sharpness (X-9).

    One output: w = (Σ̂ + μI)^{-1}Σ̂w* with μ = λ‖p‖^{−2/L}‖w‖^{2/L−2}, the best root of that scalar
    equation, or 0. Several outputs, white data (Σ̂ = cI on its range): each singular value of Θ*
    solves min_s c(s−σ_i)² + λLs^{2/L}. The penalty is λ‖W‖², so its gradient is 2λW.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    z = dl.theory.decayed_minimum(problem, depth=3, weight_decay=0.01)
    assert z.objective > z.risk > 0 and not z.collapsed
    ```
    """
    net = architecture(problem, depth, readout, "the minimiser with weight decay")
    decay = positive_number("weight_decay", weight_decay)
    L, scaled = net.depth, decay * net.norm ** (-2 / net.depth)
    if problem.outputs == 1:
        shrunk = _shrunk(
            problem.spectrum.eigenvalues, problem.spectrum.coordinates[:, 0], L, scaled
        )
        product = problem.spectrum.vectors @ shrunk[:, None]
    else:
        level = _white_level(problem)
        left, values, right = np.linalg.svd(problem.spectrum.coordinates, full_matrices=False)
        sizes = [
            _shrunk(np.array([level]), values[i : i + 1], L, scaled)[0] for i in range(len(values))
        ]
        product = problem.spectrum.vectors @ (left * np.array(sizes)) @ right
    return _assemble(problem, net, decay, product)


@dataclass(frozen=True)
class CriticalWeightDecay:
    """Where the global minimiser becomes the zero network."""

    value: float
    """λ_c: for λ > λ_c the zero network is the only global minimiser (∞ for depth 1)."""
    jump: float
    """Norm of the product just below λ_c: 0 up to depth 2 (continuous), above 0 from depth 3 on."""


def critical_weight_decay(problem: Problem, depth: int, readout: Any = None) -> CriticalWeightDecay:
    """λ_c = sup over w of (R(0) − R(w))/(L(‖w‖/‖p‖)^{2/L}), and the jump there (X-9).

    L = 2: λ_c = ‖p‖‖Σ̂w*‖. For several outputs (white data) it is that of the largest singular
    value: the last one to vanish.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    critical = dl.theory.critical_weight_decay(problem, depth=3)
    assert dl.theory.decayed_minimum(problem, 3, 1.01 * critical.value).collapsed
    ```
    """
    net = architecture(problem, depth, readout, "the critical weight decay")
    eigenvalues, _, coordinates = problem.spectrum
    if problem.outputs == 1:
        path = RidgePath(eigenvalues, coordinates[:, 0], net.depth)
    else:
        top = np.linalg.norm(coordinates, ord=2)
        path = RidgePath(np.array([_white_level(problem)]), np.array([top]), net.depth)
    value, jump = path.collapse()
    return CriticalWeightDecay(value * net.norm ** (2 / net.depth), jump)


def _shrunk(eigenvalues: np.ndarray, coordinates: np.ndarray, L: int, decay: float) -> np.ndarray:
    """Coordinates of the minimiser of R(w) + λ'L‖w‖^{2/L}."""
    if not np.any(coordinates):
        return np.zeros_like(coordinates)
    path = RidgePath(eigenvalues, coordinates, L)
    mu = path.best(decay)
    return np.zeros_like(coordinates) if mu is None else path.shrunk(mu)


def _assemble(
    problem: Problem, net: Architecture, decay: float, product: np.ndarray
) -> DecayedMinimum:
    L = net.depth
    eigenvalues, vectors, coordinates = problem.spectrum
    missing = vectors.T @ product - coordinates
    risk = problem.minimal_risk + float(np.sum(eigenvalues[:, None] * missing**2))
    singular = np.linalg.svd(product / net.norm, compute_uv=False)
    return DecayedMinimum(
        weight_decay=decay,
        depth=L,
        objective=risk + decay * L * float(np.sum(singular ** (2 / L))),
        risk=risk,
        sharpness=2 * decay + _curvature_of_risk(problem, net, decay, product),
        collapsed=not np.any(product),
        product=product,
        readout=net.readout,
    )


def _curvature_of_risk(
    problem: Problem, net: Architecture, decay: float, product: np.ndarray
) -> float:
    """S_λ − 2λ = λ_max(∇²R) at the minimiser.

    At the zero network only L ≤ 2 feel the risk. For one output the layers beyond the first move
    it together, so ∇²R acts on (δW_1, δs) ∈ R^{r+1} as an arrow matrix with u = w/‖w‖ and
    c = ‖p‖^{2/L}‖w‖^{2−2/L}: D_i = 2cℓ_i, b_i = √(L−1)(2cℓ_i − 2λ)u_i, and the corner
    2c(L−1)uᵀΣ̂u + 2λ(2−L). Elsewhere it has eigenvalues −2λ, 0 and 2λ; 2λ is among these too.
    """
    L, norm = net.depth, net.norm
    eigenvalues, vectors, coordinates = problem.spectrum
    if not np.any(product):
        pull = float(np.linalg.norm(eigenvalues[:, None] * coordinates, ord=2))
        return 2 * norm * pull if L == 2 else 0.0
    if L == 1:
        return 2 * norm**2 * float(eigenvalues[0])
    if problem.outputs > 1:
        return sharpness(problem, balanced_factors(product, L)).value
    w = vectors.T @ product[:, 0]
    size = float(np.linalg.norm(w))
    u, c = w / size, norm ** (2 / L) * size ** (2 - 2 / L)
    return largest_eigenvalue_of_arrow(
        2 * c * eigenvalues,
        np.sqrt(L - 1) * (2 * c * eigenvalues - 2 * decay) * u,
        2 * c * (L - 1) * float(eigenvalues @ u**2) + 2 * decay * (2 - L),
    )


def _white_level(problem: Problem) -> float:
    """The eigenvalue of white data, or the reason why the formula does not apply."""
    high, low = problem.largest_eigenvalue, problem.smallest_eigenvalue
    if high - low > WHITE * high:
        raise InputError(
            f"weight decay with {problem.outputs} targets is solved for white inputs (Σ̂ = cI); the "
            f"eigenvalues of Σ̂ run from {low:.4g} to {high:.4g}. Whiten the inputs or pass one "
            "column of Y."
        )
    return (high + low) / 2
