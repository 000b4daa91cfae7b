"""The smallest trace of the Hessian at any minimiser, and who attains it (X-8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.door import door
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.theory.architecture import aligned_network, architecture, numerical_rank


@dataclass(frozen=True)
class MinimalTrace:
    """The smallest trace of ∇²R at any minimiser, and the network that has it."""

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

    @cached_property
    def minimizer(self) -> Network:
        """A minimiser with this trace, as wide as its inputs in every layer."""
        return self.attaining()

    def attaining(self, hidden: int | None = None) -> Network:
        """W_1 = a S^{-1/2}UᵀΘ*, W_L = b U S^{1/2}, and c times the identity between them.

        With T = exact/2L the scales a² = ν tr Σ̂/T, b² = qν/T and c² = ν²/T make all L terms equal.
        """
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


@door
def minimal_trace(problem: Problem, depth: int, readout: ArrayLike | None = None) -> MinimalTrace:
    """min tr ∇²R over all minimisers = 2L (q tr Σ̂)^{1/L} ‖Θ*Σ̂^{1/2}‖_*^{2(L−1)/L} (X-8).

    Any number of outputs q and any data; hidden layers at least as wide as the rank of Θ*. Training
    with label noise and sharpness-aware training look for this minimiser.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, :2])
    assert dl.theory.minimal_trace(problem, depth=3).minimizer.depth == 3
    ```
    """
    net = architecture(problem, depth, readout, "the minimal trace")
    L = net.depth
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
