"""What statements are evaluated on: a problem, a batch of runs, shared quantities computed once.

Everything is NumPy on (records, batch, …) arrays: certifying needs no compilation, and a batch
costs little more than one run.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from deeplin.certificates.registry import Check, Hypothesis, NotApplicable
from deeplin.certificates.run_view import RunView
from deeplin.dynamics.run import STOPPED, Run
from deeplin.errors import InputError, require_float64
from deeplin.hessian import Sharpness, sharpness
from deeplin.networks import Network, check_fits, products
from deeplin.networks.singular_values import Extremes, extremes_of_layers, values_of_layers
from deeplin.problems import Problem
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.theory.minimizers import MinimalSharpness, minimal_sharpness
from deeplin.theory.residual_initialization import prefix_singular_values, suffix_singular_values

NEAR = 1e-3
"""A network counts as a minimizer when its map is this close to w*, relatively, on the data."""


class Context(RunView):
    """A problem and a run (or a batch of runs), seen by the statements."""

    def __init__(self, problem: Problem, run: Run | Network, *, flow_tolerance: float = 1e-6):
        if isinstance(run, Network):
            run = Run(run, run, status=STOPPED, steps=0)
        if run.network.activation != "linear":
            raise InputError(
                f"certificates are about linear networks; this run has {run.network.activation} "
                "activation. Pass a run of a linear network."
            )
        check_fits(problem, run.network)
        require_float64("a certificate", run.network)
        self.problem = problem
        self.flow_tolerance = flow_tolerance
        super().__init__(run)

    def require_vector(self) -> None:
        """One target, w* ≠ 0."""
        if self.problem.outputs != 1:
            raise NotApplicable(f"for one target; the problem has {self.problem.outputs}")
        if self.problem.rank == 0 or self.problem.optimum_norm == 0:
            raise NotApplicable("for w* ≠ 0; the least-squares solution is zero")

    @property
    def flow_slack(self) -> float:
        """The relative error of equalities along an integrated flow, else 0."""
        return self.flow_tolerance if self.is_flow else 0.0

    @property
    def gap_error(self) -> float:
        """How well a gap along an integrated flow is known: relative errors in Θ, squared."""
        return self.flow_slack**2 * self.problem.zero_gap

    # --- along the run -----------------------------------------------------------------------

    @cached_property
    def backward(self) -> list[np.ndarray]:
        """V_k = W_{k+1}ᵀ…W_Lᵀp, k = 0 … L, each (records, batch, d_k, q)."""
        return products.backward_products(self.weights, self.readout)

    @cached_property
    def slope(self) -> np.ndarray:
        """g = ∇R¹(Θ), which is 2Σ̂(Θ − Θ*) for squared loss, (records, batch, d, q) (FM-grad)."""
        return self.problem.value_and_gradient(self.backward[0])[1]

    @cached_property
    def slope_squares(self) -> np.ndarray:
        """‖g‖², (records, batch)."""
        return np.sum(self.slope**2, axis=(-1, -2))

    @cached_property
    def gap(self) -> np.ndarray:
        """R − R_min, (records, batch) (FM-L8)."""
        return self.problem.gap(self.backward[0])

    @cached_property
    def forward(self) -> list[np.ndarray]:
        """W_{k−1}…W_1 g, k = 1 … L, each (records, batch, d_{k−1}, q)."""
        return products.forward_products(self.weights, self.slope)

    @cached_property
    def gradient_squares(self) -> np.ndarray:
        """‖∇_k R‖_F², (records, batch, L)."""
        squares = []
        for left, right in zip(self.backward[1:], self.forward, strict=True):
            outer, inner = (matrix.mT @ matrix for matrix in (left, right))
            squares.append(np.sum(outer * inner.mT, axis=(-1, -2)))
        return np.stack(squares, axis=-1)

    @cached_property
    def gradient_scale(self) -> np.ndarray:
        """2Λ(‖Θ‖ + ‖Θ*‖)‖p‖Π_{j≠k}‖W_j‖_2, to which rounding is relative.

        For other losses a bound of ‖g‖ takes the place of the first factors.

        At the start and at the end: (2, batch, L), so the indices 0 and −1 mean the same as along
        the records.
        """
        ends = [np.stack(pair) for pair in zip(self.initial, self.final, strict=True)]
        sizes = values_of_layers(ends)[..., 0]
        others = [np.prod(np.delete(sizes, k, axis=-1), axis=-1) for k in range(self.depth)]
        ends = self.backward[0][[0, -1]]
        if isinstance(self.problem, GeneralizedLinearProblem):
            slopes = self.problem.slope_bound(ends)
        else:
            reach = np.linalg.norm(ends, axis=(-1, -2)) + self.problem.optimum_norm
            slopes = 2 * self.problem.largest_eigenvalue * reach
        scale = slopes * self.readout_norm
        return scale[..., None] * np.stack(others, axis=-1)

    @cached_property
    def layer_norms(self) -> np.ndarray:
        """‖W_k‖_F, (records, batch, L)."""
        return np.stack([np.linalg.norm(w, axis=(-1, -2)) for w in self.weights], axis=-1)

    @cached_property
    def extremes(self) -> list[Extremes]:
        """σ_k with its vectors u_k and v_k, for each layer."""
        return extremes_of_layers(self.weights)

    @cached_property
    def singular_values(self) -> np.ndarray:
        """σ_k, (records, batch, L)."""
        return np.stack([layer.largest for layer in self.extremes], axis=-1)

    # --- products of square layers -----------------------------------------------------------

    @cached_property
    def product_values(self) -> np.ndarray:
        """‖Π_{k:1}‖_2 and σ_min(Π_{k:1}) for k = 1 … L, (records, batch, L, 2)."""
        return prefix_singular_values(self.weights)

    @cached_property
    def prefix_values(self) -> np.ndarray:
        """‖Π_{k−1:1}‖_2 and σ_min(Π_{k−1:1}) for k = 1 … L, (records, batch, L, 2)."""
        values = self.product_values
        return np.concatenate([np.ones_like(values[..., :1, :]), values[..., :-1, :]], axis=-2)

    @cached_property
    def suffix_values(self) -> np.ndarray:
        """‖Π_{L:k+1}‖_2 and σ_min(Π_{L:k+1}) for k = 1 … L, (records, batch, L, 2)."""
        empty = np.ones((*self.weights[0].shape[:2], 1, 2))
        if self.depth == 1:
            return empty
        return np.concatenate([suffix_singular_values(self.weights[1:]), empty], axis=-2)

    @cached_property
    def displacement_norms(self) -> np.ndarray:
        """‖θ_k‖_F of θ_k = L(W_k − W_k(0)), (records, batch, L)."""
        pairs = zip(self.weights, self.initial, strict=True)
        norms = [np.linalg.norm(weight - start, axis=(-1, -2)) for weight, start in pairs]
        return self.depth * np.stack(norms, axis=-1)

    # --- the end -----------------------------------------------------------------------------

    @cached_property
    def slack(self) -> np.ndarray:
        """‖Σ̂^{1/2}(w − w*)‖/‖Σ̂^{1/2}w*‖ at the end, (batch,): how far from a minimizer."""
        gap = np.maximum(self.gap[-1], 0.0)  # at a minimizer rounding may leave it below zero
        return np.sqrt(gap / max(self.problem.zero_gap, np.finfo(float).tiny))

    @cached_property
    def exact_sharpness(self) -> Sharpness:
        """S at the end by its value at minimizers, and how far from one it is (X-1).

        For other losses than the squared one by `auto`.
        """
        method = "exact" if self.problem.loss == "squared" else "auto"
        return sharpness(self.problem, self.final_network, method=method)

    @property
    def final_sharpness(self) -> np.ndarray:
        """S at the end, (batch,)."""
        return np.asarray(self.exact_sharpness.value)

    @cached_property
    def certified_sharpness(self) -> Sharpness:
        """The largest Hessian eigenvalue at the end by certified Lanczos, with its vector."""
        return sharpness(self.problem, self.final_network, method="lanczos", tolerance=1e-8)

    @cached_property
    def minimal(self) -> MinimalSharpness:
        """The minimal sharpness for a read-out of norm one (see `minimal_scale`)."""
        return minimal_sharpness(self.problem, self.depth)

    @cached_property
    def minimal_scale(self) -> np.ndarray:
        """‖p‖^{2/L}, by which every bound and S_min scale, (batch,)."""
        return self.readout_norm ** (2 / self.depth)

    def minimizer_hypotheses(self) -> dict[str, Any]:
        """The hypothesis of statements about minimizers."""
        away = np.where(self.bounded, self.slack, np.inf)
        return {"the run ended in a minimizer": Hypothesis(away, "≤", NEAR)}

    def at_minimizer(self, left: Any, right: Any, part: str = "") -> Check:
        """left ≤ right where the run ended, up to what is missing there to a minimizer."""
        met = self.minimizer_hypotheses()
        return Check(left, right, part, slack=4 * self.slack, hypotheses=met)
