"""Context of the statements: a problem, a batch of runs, and shared quantities.

Quantities are computed once, by NumPy on (records, batch, …) arrays: certifying needs no
compilation, and a batch costs little more than one run.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from deeplin.certificates.curvature import Eigenpair, LinearHessian
from deeplin.certificates.registry import (
    ROUNDINGS,
    Check,
    Hypothesis,
    NotApplicable,
    ratio,
    tolerance,
    value,
)
from deeplin.dynamics.run import DIVERGED, STOPPED, Run
from deeplin.errors import InputError
from deeplin.hessian import sharpness
from deeplin.hessian.exact import exact
from deeplin.networks import Network, products
from deeplin.networks.network import check_fits, host_arrays
from deeplin.networks.products import Extremes, extreme_singular, values_of_layers
from deeplin.problems import Population, Problem
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.problems.problem import as_columns, as_map
from deeplin.theory.benign_overfitting import Constants, Tail, flat_tail, spike
from deeplin.theory.minimizers import MinimalSharpness, minimal_sharpness
from deeplin.theory.residual_initialization import prefix_singular_values, suffix_singular_values
from deeplin.theory.small_initialization import scale_of_layers

AT_MINIMIZER = 1e-3
"""Relative distance of a network's map from w* on the data up to which it is a minimizer."""
FLOW_TOLERANCE = 1e-6
"""Relative error of an integrated flow, for equalities along it."""
INTERPOLATES = 1e-3
"""Largest ‖Y − XΘ‖/‖Y‖ of a map that counts as interpolating (a mean loss of 1e-7 does).

Statements about interpolators are then judged on the nearest one, Θ_min + Θ_⊥."""


class Context:
    """A problem and a batch of runs on which statements are evaluated.

    The statements of BO also need the `population` and the free `constants`. Their loss is the sum
    ℒ = ‖Y − XΘ‖² = nR and their flow dW/dt = −∇ℒ; a flow of R runs n times slower, so BO's time is
    that of R divided by n.
    """

    def __init__(
        self,
        problem: Problem,
        run: Run | Network,
        *,
        tolerance: float = 1e-9,
        population: Population | None = None,
        constants: Constants = Constants(),  # noqa: B008 - frozen
    ):
        if population is not None:
            population.require_fit(problem)
        if isinstance(run, Network):
            run = Run(run, run, status=STOPPED, steps=0)
        if run.network.activation != "linear":
            raise InputError(
                f"certificates are about linear networks; this run has {run.network.activation} "
                "activation. Pass a run of a linear network."
            )
        if run.network.biases is not None:
            raise InputError(
                "certificates are about networks without biases, and this run has some; train "
                "without them (deeplin train --no-bias)."
            )
        check_fits(problem, run.network)
        if (precision := run.network.weights[0].dtype) != np.float64:
            raise InputError(
                f"this run has {precision} weights, which satisfy no identity beyond their own "
                "digits; pass a run in float64, the default of deeplin.initialize."
            )
        self.problem, self.run = problem, run
        self.tolerance, self.population = tolerance, population
        self.constants = constants
        self.depth, self.widths = run.network.depth, run.network.widths
        self.batch = run.network.batch or 1
        self.times, self.weights = self._states()

    # --- what a statement assumes ----------------------------------------------------------

    def one_target(self) -> None:
        """Raise NotApplicable unless there is one target and w* ≠ 0."""
        if self.problem.outputs != 1:
            raise NotApplicable(f"for one target; the problem has {self.problem.outputs}")
        if self.problem.rank == 0 or self.problem.optimum_norm == 0:
            raise NotApplicable("for w* ≠ 0; the least-squares solution is zero")

    @property
    def has_one_unit(self) -> bool:
        """Whether the last layer is the only output (d_L = 1, p = 1)."""
        unit = self.readout is None or bool(np.all(self.readout == 1))
        return self.widths[-1] == 1 and unit

    def one_unit(self) -> None:
        """Raise NotApplicable unless d_L = 1 and p = 1 (FM Section 4)."""
        if not self.has_one_unit:
            raise NotApplicable("for networks with one output and no read-out (d_L = 1, p = 1)")

    @property
    def narrowest(self) -> int:
        """The smallest hidden width; with one layer, the number of outputs."""
        return min(self.widths[1:-1] or (self.widths[-1],))

    @cached_property
    def optimum_rank(self) -> int:
        """The rank of Θ*."""
        return int(np.linalg.matrix_rank(self.problem.optimum_columns))

    def full_width(self) -> None:
        """Raise NotApplicable if a hidden layer is too narrow for Θ* (X-34)."""
        if self.narrowest < self.optimum_rank:
            raise NotApplicable(
                f"for hidden layers at least as wide as the rank of Θ*, {self.optimum_rank}; "
                f"the narrowest has width {self.narrowest}"
            )

    def square_layers(self) -> None:
        """Raise NotApplicable unless every layer is d×d (FM Section 5)."""
        if len(set(self.widths)) != 1:
            raise NotApplicable(f"for square layers; the widths are {self.widths}")

    def several_layers(self) -> None:
        """Raise NotApplicable unless there are at least two layers."""
        if self.depth < 2:
            raise NotApplicable(f"for depth of at least 2; the depth is {self.depth}")

    def require_population(self) -> Population:
        """Return the population, or raise NotApplicable if there is none."""
        if self.population is None:
            raise NotApplicable("about the population; pass population=Population(Θ*, Σ)")
        return self.population

    def wide_data(self) -> None:
        """Raise NotApplicable unless d > n and XXᵀ is invertible, the setting of BO."""
        problem = self.problem
        if problem.dimension <= problem.samples or problem.rank < problem.samples:
            raise NotApplicable(
                f"for d > n and XXᵀ invertible; n = {problem.samples}, d = {problem.dimension}, "
                f"rank {problem.rank}"
            )

    def identity_middle(self) -> None:
        """Raise NotApplicable unless all middle layers start as the identity (BO)."""
        self.wide_data()
        self.several_layers()
        for layer in self.initial[1:-1]:
            if layer.shape[-1] != layer.shape[-2] or np.any(layer != np.eye(layer.shape[-1])):
                raise NotApplicable("for middle layers that start at the identity")

    def require_tail(self) -> Tail:
        """Return the tail of the population, or raise NotApplicable if k is infinite (BO-D2.2)."""
        b = self.constants.b
        tail = flat_tail(self.require_population().spectrum, self.problem.samples, b)
        if np.isinf(tail.k):
            raise NotApplicable(f"no effective rank r_j reaches bn (b = {b:g}): k is infinite")
        return tail

    def require_spike(self) -> tuple[int, float]:
        """Return (k, ε) of a spiked population, or raise NotApplicable."""
        found = spike(self.require_population().spectrum)
        if found is None:
            raise NotApplicable("for a (k, ε)-spike: k eigenvalues 1, all others ε < 1")
        return found

    def interpolates(self) -> dict[str, Any]:
        """Return the hypothesis Y = XΘ at the end."""
        missing = np.sqrt(self.loss[-1]) / self.target_norm
        missing = np.where(self.bounded, np.nan_to_num(missing, nan=0.0), np.inf)
        return {"the trained map interpolates": Hypothesis(missing, "≤", INTERPOLATES)}

    def flow(self) -> dict[str, Any]:
        """Return the hypothesis of statements about gradient flow."""
        return {"gradient flow": self.is_flow}

    def under_flow(self) -> dict[str, Any]:
        """Return the hypotheses of BO about the dynamics."""
        return self.flow() | self.stays_finite()

    def by_gradients(self) -> None:
        """Raise NotApplicable unless every change of a layer is a multiple of gradients of R."""
        run = self.run
        if run.weight_decay or {"optimizer", "central"} & set(run.variant.split()):
            raise NotApplicable("for training by gradients of the risk alone")

    @cached_property
    def amplification(self) -> np.ndarray:
        """How much rounding in directions that training does not use may have grown, (batch,).

        There the Hessian has only the part with the residual, of norm at most
        (L−1)‖∇R¹‖Π_{l≠j,k}‖W_l‖_2; between two records ‖∇R¹‖ is interpolated exponentially.
        """
        if self.is_flow or not self.has_path:
            rate: Any = float(self.is_flow)
        else:
            try:
                rate = np.max(np.asarray(self.run.learning_rate, float)) / (1 - self.run.momentum)
            except (TypeError, ValueError):
                raise NotApplicable("for a known learning rate") from None
        sizes = np.sort(self.singular_values, axis=-1)[..., 2:]
        bend = (
            (self.depth - 1) * np.linalg.norm(self.slope, axis=(-1, -2)) * np.prod(sizes, axis=-1)
        )
        before, after = bend[:-1], bend[1:]
        between = (before - after) / np.log(before / after)
        between = np.where(np.isfinite(between), between, np.maximum(before, after))
        total = 2 * rate * np.sum(np.diff(self.times)[:, None] * between, axis=0)
        return np.exp(np.minimum(np.nan_to_num(total, nan=np.inf), 500))

    def stays_finite(self) -> dict[str, Any]:
        """Return the hypothesis of statements about any network."""
        return {"the run did not diverge": self.bounded}

    def ends_in_minimizer(self) -> dict[str, Any]:
        """Return the hypothesis of statements about minimizers."""
        away = np.where(self.bounded, self.slack, np.inf)
        return {"the run ended in a minimizer": Hypothesis(away, "≤", AT_MINIMIZER)}

    def with_constant(
        self, left: Any, right: Any, part: str = "", *, subtracted: Any = 0.0, **details: Any
    ) -> Check:
        """Judge left ≤ c·right with the caller's c, or measure the smallest c that suffices.

        A left side within the rounding of what was `subtracted` is zero, and needs no constant.
        """
        c, known = self.constants.c, {"subtracted": subtracted, "condition": self.condition}
        if c is not None:
            part = f"{part} with c = {c:g}".lstrip()
            return Check(left, c * np.asarray(right), part, **known, **details)
        left = np.asarray(left, float)
        left = np.where(left <= tolerance(0.0, **known), 0.0, left)
        return value(ratio(left, right), f"{part}: smallest c".removeprefix(": "), **details)

    @cached_property
    def condition(self) -> float:
        """How much the data and the layers amplify rounding (see `tolerance`).

        Products of L layers amplify it L times; w* is known to ε times the condition number of X,
        or of Σ̂ if only moments are known.
        """
        problem = self.problem
        if problem.rank == 0:
            return float(self.depth)
        number = problem.condition_number
        return self.depth * float(number if problem.inputs is None else np.sqrt(number))

    # --- the run ---------------------------------------------------------------------------

    def _states(self) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return the time or step of each record, and the weights W_k there, (records, batch, …).

        The start and the end are added where they were not recorded.
        """
        run, end = self.run, float(np.max(self.run.evidence.get("time", self.run.steps)))
        times, parts = np.zeros(0), []
        if run.trajectory is not None:
            recorded = run.records["time" if "time" in run.records else "step"]
            times = np.asarray(recorded, dtype=np.float64)
            states = (np.asarray(w, dtype=np.float64) for w in run.trajectory.weights)
            parts = [[w.reshape(len(times), self.batch, *w.shape[-2:]) for w in states]]
        if times.size == 0 or times[0] > 0:
            times, parts = np.insert(times, 0, 0.0), [[w[None] for w in self.initial], *parts]
        if times[-1] < end or len(times) == 1:
            times, parts = np.append(times, end), [*parts, [w[None] for w in self.final]]
        return times, tuple(np.concatenate(layer) for layer in zip(*parts, strict=True))

    @cached_property
    def initial(self) -> list[np.ndarray]:
        """W_k(0), each (batch, d_k, d_{k−1})."""
        return host_arrays(self.run.initial.with_batch())[0]

    @cached_property
    def final(self) -> list[np.ndarray]:
        """W_k at the end, each (batch, d_k, d_{k−1})."""
        return host_arrays(self.final_network)[0]

    @cached_property
    def final_network(self) -> Network:
        """The trained networks as a batch."""
        return self.run.network.with_batch()

    @cached_property
    def readout(self) -> np.ndarray | None:
        """p, (batch, d_L)."""
        return host_arrays(self.final_network)[1]

    @cached_property
    def readout_norm(self) -> np.ndarray:
        """‖p‖, (batch,)."""
        return np.ones(self.batch) if self.readout is None else np.linalg.norm(self.readout, axis=1)

    @cached_property
    def learning_rate(self) -> np.ndarray:
        """η of each run, (batch,)."""
        run = self.run
        if run.variant != "plain" or run.weight_decay or run.batch_size:
            raise NotApplicable("for full-batch descent on R with one constant learning rate")
        return np.broadcast_to(np.asarray(self.run.learning_rate, dtype=np.float64), (self.batch,))

    @property
    def is_flow(self) -> bool:
        """Whether the run is gradient flow (it then has no learning rate)."""
        return self.run.dynamics == "flow" and self.run.plain and self.has_path

    @property
    def has_path(self) -> bool:
        """Whether anything was trained (a bare network has only one state)."""
        return bool(np.any(np.asarray(self.run.steps) > 0))

    @cached_property
    def bounded(self) -> np.ndarray:
        """The hypothesis that the run did not diverge, (batch,)."""
        return np.broadcast_to(np.asarray(self.run.status) != DIVERGED, (self.batch,))

    @cached_property
    def consecutive(self) -> np.ndarray:
        """Where a record is one plain descent step after the one before it, (records, batch)."""
        plain = self.run.plain and self.run.dynamics == "descent"
        next_step = np.diff(self.times, prepend=self.times[0]) == 1
        return plain & next_step[:, None] & self.moving

    @cached_property
    def moving(self) -> np.ndarray:
        """Where a run had not stopped yet (later records repeat its last state), (records, batch).

        Statements about the state hold at every record; those about its evolution only here.
        """
        end = self.run.evidence.get("time") if self.is_flow else self.run.steps
        end = np.inf if end is None else np.broadcast_to(np.asarray(end, float), (self.batch,))
        return self.times[:, None] <= end

    @property
    def flow_slack(self) -> float:
        """The relative error of equalities along an integrated flow, else 0."""
        return FLOW_TOLERANCE if self.is_flow else 0.0

    # --- along the run -----------------------------------------------------------------------

    @cached_property
    def backward(self) -> list[np.ndarray]:
        """V_k = W_{k+1}ᵀ…W_Lᵀp, k = 0 … L, each (records, batch, d_k, q)."""
        return products.backward_products(self.weights, self.readout)

    @cached_property
    def slope(self) -> np.ndarray:
        """g = ∇R¹(Θ), which is 2Σ̂(Θ − Θ*) for squared loss, (records, batch, d, q) (FM-grad)."""
        theta = as_map(self.backward[0])
        return as_columns(self.problem.value_and_gradient(theta)[1], self.problem.outputs)

    @cached_property
    def gap(self) -> np.ndarray:
        """R − R_min, (records, batch) (FM-L8)."""
        return self.problem.gap(as_map(self.backward[0]))

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

    def gradient_scale(self, least: float = 0.0) -> np.ndarray:
        """Return 2Λ(‖Θ‖ + ‖Θ*‖)‖p‖Π_{j≠k}‖W_j‖_2, to which rounding is relative.

        For other losses a bound of ‖g‖ replaces the first factors; layers count as at least as
        large as `least`. At the start and at the end: (2, batch, L), so the indices 0 and −1 mean
        the same as along the records.
        """
        ends = [np.stack(pair) for pair in zip(self.initial, self.final, strict=True)]
        sizes = np.maximum(values_of_layers(ends)[..., 0], least)
        others = [np.prod(np.delete(sizes, k, axis=-1), axis=-1) for k in range(self.depth)]
        slopes = self.slope_bound(self.backward[0][[0, -1]])
        scale = slopes * self.readout_norm
        return scale[..., None] * np.stack(others, axis=-1)

    def slope_bound(self, product: np.ndarray) -> np.ndarray:
        """Return a bound of ‖∇R¹(Θ)‖, and of the terms that are subtracted to obtain it."""
        if isinstance(self.problem, GeneralizedLinearProblem):
            return np.asarray(self.problem.slope_bound(as_map(product)))
        reach = np.linalg.norm(product, axis=(-1, -2)) + self.problem.optimum_norm
        largest = self.problem.largest_eigenvalue if self.problem.rank else 0.0
        return 2 * largest * reach

    def gradients_at(self, record: int) -> list[np.ndarray]:
        """Return ∇_k R at one record, k = 1 … L, each (batch, d_k, d_{k−1})."""
        pairs = zip(self.backward[1:], self.forward, strict=True)
        return [above[record] @ below[record].mT for above, below in pairs]

    @cached_property
    def layer_norms(self) -> np.ndarray:
        """‖W_k‖_F, (records, batch, L)."""
        return np.stack([np.linalg.norm(w, axis=(-1, -2)) for w in self.weights], axis=-1)

    @cached_property
    def extremes(self) -> list[Extremes]:
        """σ_k with its vectors u_k and v_k, for each layer."""
        return [extreme_singular(weight) for weight in self.weights]

    @cached_property
    def singular_values(self) -> np.ndarray:
        """σ_k, (records, batch, L)."""
        if self.has_one_unit:  # FM-L2 needs their vectors as well
            return np.stack([layer.largest for layer in self.extremes], axis=-1)
        return values_of_layers(self.weights)[..., 0]

    @cached_property
    def epsilon(self) -> np.ndarray:
        """ε of the start of each run (FM-ε), (batch,)."""
        return scale_of_layers(self.initial)

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
    def final_sharpness(self) -> np.ndarray:
        """S at the end by its value at minimizers (X-1), (batch,)."""
        return self._sharpness[0]

    @property
    def sharpness_error(self) -> np.ndarray:
        """How far from its value at minimizers the largest Hessian eigenvalue may be, (batch,)."""
        return self._sharpness[1]

    @cached_property
    def _sharpness(self) -> tuple[np.ndarray, np.ndarray]:
        if self.problem.loss == "squared":
            return exact(self.problem, self.final_network, "largest")
        found = sharpness(self.problem, self.final_network)
        return np.asarray(found.value), np.asarray(found.error)

    @cached_property
    def hessian(self) -> LinearHessian:
        """Hessian-vector products at the end."""
        return LinearHessian(self.problem, self.final, self.readout)

    @cached_property
    def certified_sharpness(self) -> Eigenpair:
        """The largest Hessian eigenvalue at the end by certified Lanczos, with its vector."""
        return self.hessian.extreme()

    @cached_property
    def minimal(self) -> MinimalSharpness:
        """The minimal sharpness for a read-out of norm one (see `minimal_scale`)."""
        return minimal_sharpness(self.problem, self.depth)

    @cached_property
    def minimal_scale(self) -> np.ndarray:
        """‖p‖^{2/L}, by which every bound and S_min scale, (batch,)."""
        return self.readout_norm ** (2 / self.depth)

    def minimal_bracket(self, scale: Any = 1.0) -> list[Check]:
        """Return bounds of S_min that need no search, for a read-out with ‖p‖^{2/L} = `scale`."""
        lower, exact, upper = (
            bound * scale for bound in (self.minimal.lower, self.minimal.exact, self.minimal.upper)
        )
        return [Check(lower, exact, "lower bound"), Check(exact, upper, "upper bound")]

    def at_minimizer(self, left: Any, right: Any, part: str = "") -> Check:
        """Check left ≤ right at the end of the run, allowing for its distance from a minimizer."""
        met = self.ends_in_minimizer()
        return Check(left, right, part, slack=4 * self.slack, hypotheses=met)

    # --- the data ----------------------------------------------------------------------------

    @cached_property
    def input_norm(self) -> float:
        """‖X‖_2."""
        return float(np.sqrt(self.problem.samples * self.problem.largest_eigenvalue))

    @cached_property
    def input_frobenius(self) -> float:
        """‖X‖_F."""
        return float(np.sqrt(self.problem.samples * np.sum(self.problem.spectrum.eigenvalues)))

    @cached_property
    def smallest_singular(self) -> float:
        """σ_min(X), the smallest nonzero one."""
        return float(np.sqrt(self.problem.samples * self.problem.smallest_eigenvalue))

    @cached_property
    def target_norm(self) -> float:
        """‖Y‖_F."""
        return float(np.sqrt(self.problem.samples * self.problem.target_moment))

    # --- along the run -----------------------------------------------------------------------

    @cached_property
    def loss(self) -> np.ndarray:
        """ℒ = ‖Y − XΘ‖², (records, batch)."""
        problem = self.problem
        floor = 0.0 if problem.rank == problem.samples else problem.minimal_risk
        return problem.samples * (self.gap + floor)

    @cached_property
    def perpendicular(self) -> np.ndarray:
        """Θ_⊥ = (I − P_X)Θ, (records, batch, d, q)."""
        return self.problem.spectrum.orthogonal_part(self.backward[0])

    @cached_property
    def perpendicular_norm(self) -> np.ndarray:
        """‖Θ_⊥‖_F, (records, batch)."""
        return np.linalg.norm(self.perpendicular, axis=(-1, -2))

    @cached_property
    def map_size(self) -> np.ndarray:
        """‖Θ‖ + ‖Θ*‖, (records, batch)."""
        return np.linalg.norm(self.backward[0], axis=(-1, -2)) + self.problem.optimum_norm

    @property
    def map_rounding(self) -> np.ndarray:
        """How far from 0 rounding may leave ‖Θ_⊥‖ at the end, (batch,)."""
        return tolerance(0.0, subtracted=self.map_size[-1], condition=self.condition)

    @property
    def risk_rounding(self) -> np.ndarray:
        """Size of λ_1‖Θ_⊥‖² if Θ_⊥ is rounding, as a part of what was subtracted, (batch,)."""
        return self.require_population().spectrum[0] * self.map_rounding * self.map_size[-1]

    @cached_property
    def bound(self) -> np.ndarray:
        """B up to each record: sup_{s≤t} Π_j max(1, ‖W_j(s)‖_2), (records, batch) (BO-D2.4)."""
        sizes = np.prod(np.maximum(self.singular_values, 1.0), axis=-1)
        return np.maximum.accumulate(sizes, axis=0)

    @cached_property
    def bound_with_first(self) -> np.ndarray:
        """B over the subsets of layers that contain the first, (records, batch) (errata E-19)."""
        norms = self.singular_values
        sizes = norms[..., 0] * np.prod(np.maximum(norms[..., 1:], 1.0), axis=-1)
        return np.maximum.accumulate(sizes, axis=0)

    @cached_property
    def lazy_distance(self) -> np.ndarray:
        """‖W_j(t) − W_j(0)‖_2, (records, batch, L) (BO-LB.3)."""
        pairs = zip(self.weights, self.initial, strict=True)
        norms = [np.linalg.norm(weight - start, 2, axis=(-2, -1)) for weight, start in pairs]
        return np.stack(norms, axis=-1)

    @property
    def lazy(self) -> np.ndarray:
        """Where every layer is within 1/(2L) of its start, (records, batch) (BO-LB.3)."""
        return np.max(self.lazy_distance, axis=-1) < 1 / (2 * self.depth)

    def loss_below(self, factor: Any, part: str, **details: Any) -> Check:
        """Check ℒ(t) ≤ ℒ(0)·factor after the start."""
        known = self.known_loss(self.problem.samples)
        usual = {"where": self.later, "slack": self.flow_slack} | known
        return Check(self.loss, self.loss[:1] * factor, part, **(usual | details))

    def known_loss(self, samples: float = 1.0) -> dict[str, Any]:
        """Return what was subtracted to obtain a gap (or n times one), and its condition.

        This is the larger of the gaps of the start and of the zero map. An integrated flow knows
        the map to its own tolerance τ, so of a gap g it knows (√g ± τ√size)².
        """
        size = np.maximum(self.gap[:1], self.problem.zero_gap)
        known = {"subtracted": samples * size, "condition": self.condition}
        if not self.is_flow:
            return known
        left = np.sqrt(np.maximum(ratio(self.gap, size), 0.0))
        solver = self.flow_slack * (2 * left + self.flow_slack) / (ROUNDINGS * np.finfo(float).eps)
        return known | {"condition": np.maximum(self.condition, solver)}

    @property
    def later(self) -> np.ndarray:
        """Records after the start, where bounds on growth are not trivial, (records, 1)."""
        return (self.times > 0)[:, None]

    @cached_property
    def time(self) -> np.ndarray:
        """BO's time of each record, (records, batch)."""
        trained = self.run.learning_rate is not None and not self.is_flow
        scale = self.learning_rate if trained else np.full(self.batch, float(self.is_flow))
        return self.times[:, None] * scale / self.problem.samples

    @cached_property
    def path(self) -> np.ndarray:
        """∫_0^t √ℒ ds in BO's time, (records, batch).

        It is taken from the run if recorded. Otherwise it is the sum over the left ends of the
        record intervals, an upper bound for a flow (ℒ decreases) that is tight for close records.
        """
        records = self.run.records
        if "path" in records:
            path = np.asarray(records["path"], dtype=np.float64)
            return np.broadcast_to(path.reshape(len(path), -1), (len(path), self.batch))
        pieces = np.sqrt(self.loss[:-1]) * np.diff(self.time, axis=0)
        return np.concatenate([np.zeros_like(self.loss[:1]), np.cumsum(pieces, axis=0)])

    # --- the initialization ------------------------------------------------------------------

    @cached_property
    def unseen_first(self) -> np.ndarray:
        """(W_1(0)(I − P_X))ᵀ, the first layer on directions orthogonal to the data."""
        return self.problem.spectrum.orthogonal_part(self.initial[0].mT)

    @property
    def width(self) -> int:
        """m; for a simulated wide network that of the full network."""
        return int(self.run.evidence.get("width", self.widths[1]))

    @cached_property
    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """α and β measured on the initial first and last layer, each (batch,) (errata E-6).

        They are the RMS singular values ‖W_1‖_F/√d and ‖W_L‖_F/√q. A simulated wide network, of
        which only a part is formed, provides the scales of its entries.
        """
        evidence = self.run.evidence
        if "width" in evidence:
            alpha, beta = (np.full(self.batch, evidence[n]) for n in ("alpha", "beta"))
            return alpha * np.sqrt(self.width), beta * np.sqrt(self.width)
        first, last = (np.linalg.norm(self.initial[k], axis=(-1, -2)) for k in (0, -1))
        return first / np.sqrt(self.widths[0]), last / np.sqrt(self.widths[-1])
