"""The minimizer whose Hessian has the smallest trace (X-8, X-14, X-17)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.problems.factorizations import numerical_rank
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.theory.architecture import aligned_network, architecture, padded, readout_norm
from deeplin.theory.gauge import Reduced
from deeplin.theory.interior_point import least


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
    """The left singular vectors U of Θ*Σ̂^{1/2} = U S Vᵀ."""
    values: Float[np.ndarray, " k"] = field(repr=False)
    """The singular values S > 0 of Θ*Σ̂^{1/2}."""
    readout: Float[np.ndarray, " m"] | None = field(repr=False)
    layers: tuple[np.ndarray, ...] | None = field(default=None, repr=False)
    """Softmax (X-17): the layers that the program found, which replace ν, U and S."""

    @cached_property
    def minimizer(self) -> Network:
        """A minimizer with this trace, as wide as its inputs in every layer."""
        return self.attaining()

    def attaining(self, hidden: int | None = None) -> Network:
        """Return W_1 = a S^{-1/2}UᵀΘ*, W_L = b U S^{1/2}, and c times the identity between them.

        With T = exact/2L the scales a² = ν tr Σ̂/T, b² = qν/T and c² = ν²/T make all L terms equal.
        """
        if self.layers is not None:
            return padded(Network(self.layers), hidden)
        L, nu, share = self.depth, self.nuclear_norm, self.exact / (2 * self.depth)
        roots = np.sqrt(self.values)
        rows = self.left.T @ self.optimum.T
        norm = readout_norm(self.readout)
        if L == 1:
            return aligned_network(rows / norm, 1.0, self.left, L, self.readout)
        outputs = len(self.left) * norm**2
        a, b, c = np.sqrt([nu * self.input_power / share, nu * outputs / share, nu**2 / share])
        first, last = a * rows / roots[:, None], b / norm * self.left * roots
        return padded(aligned_network(first, c, last, L, self.readout), hidden)


def minimal_trace(problem: Problem, depth: int, readout: ArrayLike | None = None) -> MinimalTrace:
    """Return min tr ∇²R over minimizers = 2L (q tr Σ̂)^{1/L} ‖Θ*Σ̂^{1/2}‖_*^{2(L−1)/L} (X-8).

    It holds for any number of outputs q and any data, with hidden layers at least as wide as the
    rank of Θ*. Training with label noise and sharpness-aware training tend to this minimizer. Other
    convex losses of one output have H/2 in the place of Σ̂ (X-14); softmax by the program of X-17.

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
        return _trace_of_softmax(problem, L)
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
        optimum=problem.optimum_columns,
        left=left[:rank].T,
        values=values[:rank],
        readout=net.readout,
    )


def _trace_of_softmax(problem: GeneralizedLinearProblem, depth: int) -> MinimalTrace:
    """Return the least tr QD(P), the program of X-17 with the trace in the place of λ_max."""
    reduced = Reduced.of(problem, problem.optimum_columns)
    if depth == 1:
        exact, layers = float(np.trace(reduced.hessian)), [reduced.theta]
    else:
        form = reduced.form(depth)
        exact, factors = least(form.moments(np.eye(form.size)), form.identities())
        layers = form.weights(factors)
    layers[0] = layers[0] @ reduced.inputs.T
    layers[-1] = reduced.outputs @ layers[-1]
    return MinimalTrace(
        exact=exact,
        nuclear_norm=float("nan"),
        depth=depth,
        input_power=float("nan"),
        optimum=problem.optimum_columns,
        left=reduced.outputs,
        values=np.full(reduced.outputs.shape[1], np.nan),
        readout=None,
        layers=tuple(layers),
    )
