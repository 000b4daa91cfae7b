"""How flat a minimizer can be (FM Section 3, X-1 to X-3, X-7, X-8).

The balanced minimizer, where small initializations end (X-3), and that of the smallest trace (X-8);
the flattest one is in `minimal_sharpness`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.errors import whole_number
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.theory.architecture import aligned_network, architecture, numerical_rank
from deeplin.theory.flattest_minimizer import (
    MinimalSharpness,
    minimal_sharpness,
    minimizer_lower_bound,
)
from deeplin.theory.secular import largest_eigenvalue_of_update
from deeplin.theory.softmax import Program, Solution, balanced_curvature, minimizer_of
from deeplin.validation import validated

__all__ = [
    "MinimalSharpness",
    "MinimalTrace",
    "balanced_factors",
    "balanced_network",
    "balanced_sharpness",
    "minimal_sharpness",
    "minimal_trace",
    "minimizer_lower_bound",
]


@validated
def balanced_network(problem: Problem, depth: int, width: int | None = None) -> Network:
    """The balanced minimizer: Θ*ᵀ = U S Vᵀ shared equally, W_k = S^{1/L} between aligned bases.

    W_{k+1}ᵀW_{k+1} = W_kW_kᵀ for every k, and its product is the solution of minimal norm. For one
    target this is the rank-one aligned network of X-3.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.theory.minimizers import balanced_network
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, :2])
    assert balanced_network(problem, depth=3).widths == (5, 5, 5, 2)
    ```
    """
    return balanced_factors(problem.optimum.reshape(problem.dimension, -1), depth, width)


def balanced_factors(
    product: Float[np.ndarray, "d q"],
    depth: int,
    width: int | None = None,
    readout: Float[np.ndarray, " m"] | None = None,
) -> Network:
    """L layers of equal singular values with this product: they have the least Σ‖W_k‖_F² (X-9)."""
    L = whole_number("depth", depth)
    size = 1.0 if readout is None else float(np.linalg.norm(readout))
    right, values, left = np.linalg.svd(product / size, full_matrices=False)
    rank = numerical_rank(values, max(product.shape))
    hidden = max(product.shape) if width is None else width
    share = values[:rank] ** (1 / L)
    first, last = share[:, None] * right[:, :rank].T, left[:rank].T
    return aligned_network(first, share, last * share if L > 1 else last, L, hidden, readout)


@validated
def balanced_sharpness(problem: Problem, depth: int, readout: ArrayLike | None = None) -> float:
    """S_bal, the sharpness where the flow from a vanishing initialization ends (X-3).

    One target: λ_max(2‖w*‖^{2−2/L}‖p‖^{2/L}(Σ̂ + (L−1)Σ̂^{1/2}ŵŵᵀΣ̂^{1/2})), ŵ = w*/‖w*‖. For several
    the Hessian at balanced weights acts on D (d×q) as D ↦ 2 Σ_k (ΘΘᵀ)^{(k−1)/L} Σ̂ D (ΘᵀΘ)^{(L−k)/L}
    (X-1), which falls apart along the right singular vectors of Θ: for each singular value s_j,
    λ_max(2 Σ̂^{1/2} [Σ_k s_j^{2(L−k)/L} (ΘΘᵀ)^{(k−1)/L}] Σ̂^{1/2}). Other convex losses have H/2 in
    the place of Σ̂ (X-14, X-17), at the minimizer of least norm.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    assert dl.theory.balanced_sharpness(problem, 3) >= dl.theory.minimal_sharpness(problem, 3).exact
    ```
    """
    net = architecture(problem, depth, readout, "the balanced sharpness")
    if isinstance(problem, GeneralizedLinearProblem) and problem.outputs > 1:
        curvature = balanced_curvature(Program.of(problem), net.depth)
        return float(np.linalg.eigvalsh(curvature)[-1])
    eigenvalues, _, coordinates = problem.spectrum
    if problem.outputs > 1:
        return max(_of_singular_values(eigenvalues, coordinates, net.depth))
    size = problem.optimum_norm
    direction = coordinates[:, 0] / size
    top = largest_eigenvalue_of_update(eigenvalues, (net.depth - 1) * eigenvalues * direction**2)
    return 2 * size ** (2 - 2 / net.depth) * net.norm ** (2 / net.depth) * top


def _of_singular_values(
    eigenvalues: Float[np.ndarray, " r"], coordinates: Float[np.ndarray, "r q"], L: int
) -> list[float]:
    """The largest eigenvalue that belongs to each singular value of Θ*, zero included."""
    left, values, _ = np.linalg.svd(coordinates, full_matrices=False)
    columns = np.zeros(coordinates.shape[1])
    columns[: len(values)] = values
    root = np.sqrt(eigenvalues)[:, None] * left
    tops = []
    for s in np.unique(columns):
        # k = 1 has the identity of all inputs; k ≥ 2 lives on the left singular vectors.
        weights = sum(s ** (2 * (L - k) / L) * values ** (2 * (k - 1) / L) for k in range(2, L + 1))
        matrix = (root * weights) @ root.T + np.diag(s ** (2 * (L - 1) / L) * eigenvalues)
        tops.append(2 * float(np.linalg.eigvalsh(matrix)[-1]))
    return tops


@dataclass(frozen=True)
class MinimalTrace:
    """The smallest trace of ∇²R at any minimizer, and the network that has it."""

    exact: float
    """2L(q‖p‖² tr Σ̂)^{1/L} ν^{2(L−1)/L} with ν = ‖Θ*Σ̂^{1/2}‖_* (q = 1 with a read-out p)."""
    nuclear_norm: float
    """ν, the sum of the singular values of Θ*Σ̂^{1/2}."""
    depth: int
    input_power: float
    """tr Σ̂."""
    optimum: Float[np.ndarray, "d q"] = field(repr=False)
    left: Float[np.ndarray, "q k"] = field(repr=False)
    """The left singular vectors U of Θ*Σ̂^{1/2} = U S Vᵀ …"""
    values: Float[np.ndarray, " k"] = field(repr=False)
    """… and its singular values S > 0."""
    readout: Float[np.ndarray, " m"] | None = field(repr=False)
    program: tuple[Program, Solution] | None = field(default=None, repr=False)
    """Softmax (X-17): the program of the trace and its solution, in the place of ν, U and S."""

    @cached_property
    def minimizer(self) -> Network:
        """A minimizer with this trace, as wide as its inputs in every layer."""
        return self.attaining()

    def attaining(self, hidden: int | None = None) -> Network:
        """W_1 = a S^{-1/2}UᵀΘ*, W_L = b U S^{1/2}, and c times the identity between them.

        With T = exact/2L the scales a² = ν tr Σ̂/T, b² = qν/T and c² = ν²/T make all L terms equal.
        """
        if self.program is not None:
            return minimizer_of(self.program[0], self.program[1].factors, hidden)
        L, nu, share = self.depth, self.nuclear_norm, self.exact / (2 * self.depth)
        width, roots = hidden or len(self.optimum), np.sqrt(self.values)
        rows = self.left.T @ self.optimum.T
        norm = 1.0 if self.readout is None else float(np.linalg.norm(self.readout))
        if L == 1:
            return aligned_network(rows / norm, 1.0, self.left, L, width, self.readout)
        outputs = len(self.left) * norm**2
        a, b, c = np.sqrt([nu * self.input_power / share, nu * outputs / share, nu**2 / share])
        first, last = a * rows / roots[:, None], b / norm * self.left * roots
        return aligned_network(first, c, last, L, width, self.readout)


@validated
def minimal_trace(problem: Problem, depth: int, readout: ArrayLike | None = None) -> MinimalTrace:
    """min tr ∇²R over all minimizers = 2L (q tr Σ̂)^{1/L} ‖Θ*Σ̂^{1/2}‖_*^{2(L−1)/L} (X-8).

    Any number of outputs q and any data; hidden layers at least as wide as the rank of Θ*. Training
    with label noise and sharpness-aware training look for this minimizer. Other convex losses of
    one output have H/2 in the place of Σ̂ (X-14); softmax by the program of X-17.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, :2])
    assert dl.theory.minimal_trace(problem, depth=3).minimizer.depth == 3
    ```
    """
    net = architecture(problem, depth, readout, "the minimal trace")
    L = net.depth
    if isinstance(problem, GeneralizedLinearProblem) and problem.outputs > 1:
        program = Program.of(problem)
        solution = program.solve(L, powers=(1.0,))
        return MinimalTrace(
            exact=float(np.sum(solution.values)),
            nuclear_norm=float("nan"),
            depth=L,
            input_power=float("nan"),
            optimum=problem.optimum,
            left=program.outputs,
            values=np.full(len(program.outputs.T), np.nan),
            readout=None,
            program=(program, solution),
        )
    eigenvalues, _, coordinates = problem.spectrum
    _, values, left = np.linalg.svd(
        np.sqrt(eigenvalues)[:, None] * coordinates, full_matrices=False
    )
    rank = numerical_rank(values, max(coordinates.shape))
    nu, power = float(np.sum(values)), float(np.sum(eigenvalues))
    ends = problem.outputs * net.norm**2 * power
    return MinimalTrace(
        exact=2 * L * ends ** (1 / L) * nu ** (2 - 2 / L),
        nuclear_norm=nu,
        depth=L,
        input_power=power,
        optimum=problem.optimum.reshape(problem.dimension, -1),
        left=left[:rank].T,
        values=values[:rank],
        readout=net.readout,
    )
