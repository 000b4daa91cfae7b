"""What the statements of BO need: Θ in and beside the span of the data, norms, ∫√ℒ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, value
from deeplin.dynamics.run import Run
from deeplin.errors import InputError, positive_number
from deeplin.networks import Network
from deeplin.problems import Population, Problem
from deeplin.theory.effective_rank import Tail, flat_tail, spike

INTERPOLATES = 1e-3
"""A map interpolates when ‖Y − XΘ‖ is at most this, relative to ‖Y‖ (a mean loss of 1e-7 is).

Statements about interpolators are then judged on the nearest one, Θ_min + Θ_⊥."""


@dataclass(frozen=True)
class Constants:
    """The free constants of BO.

    Without `c` the statements report the smallest c with which they hold; with it they are judged.
    """

    c: float | None = None
    b: float = 1.0
    """Threshold of the effective rank: k = min{j : r_j ≥ bn} (BO-D2.2)."""
    delta: float = 0.1
    """Probability of failure in the bounds that hold with high probability."""
    normalisation: str = "operator"
    """What α and β measure: `operator` (RMS singular value) or `entry` (RMS entry) (errata E-6)."""

    def __post_init__(self):
        if self.c is not None:
            positive_number("c", self.c)
        positive_number("b", self.b)
        if positive_number("delta", self.delta) >= 0.5:
            raise InputError(f"delta is {self.delta:g}; pass a probability below 1/2.")
        if self.normalisation not in ("operator", "entry"):
            raise InputError(
                f"normalisation is {self.normalisation!r}; pass 'operator' or 'entry'."
            )


class CertificateContext(Context):
    """A context with the population, the free constants and the quantities of BO.

    BO's loss is the sum ℒ = ‖Y − XΘ‖² = nR and its flow dW/dt = −∇ℒ; a flow of R runs n times
    slower, so BO's time is that of R divided by n.
    """

    def __init__(
        self,
        problem: Problem,
        run: Run | Network,
        *,
        flow_tolerance: float = 1e-6,
        population: Population | None = None,
        constants: Constants | None = None,
    ):
        if population is not None:
            population.require_fit(problem)
        super().__init__(problem, run, flow_tolerance=flow_tolerance)
        self.population = population
        self.constants = constants or Constants()

    # --- preconditions -----------------------------------------------------------------------

    def require_population(self) -> Population:
        """The population, where a statement speaks about it."""
        if self.population is None:
            raise NotApplicable("about the population; pass population=Population(Θ*, Σ)")
        return self.population

    def require_wide_data(self) -> None:
        """BO's setting: more inputs than samples, XXᵀ invertible."""
        problem = self.problem
        if problem.dimension <= problem.samples or problem.rank < problem.samples:
            raise NotApplicable(
                f"for d > n and XXᵀ invertible; n = {problem.samples}, d = {problem.dimension}, "
                f"rank {problem.rank}"
            )

    def require_identity_middle(self) -> None:
        """The initializations of BO: at least two layers, identity in between."""
        self.require_wide_data()
        self.require_depth()
        for layer in self.initial[1:-1]:
            if layer.shape[-1] != layer.shape[-2] or np.any(layer != np.eye(layer.shape[-1])):
                raise NotApplicable("for middle layers that start at the identity")

    def require_tail(self) -> Tail:
        """Where the tail of the population begins, where it is finite (BO-D2.2)."""
        b = self.constants.b
        tail = flat_tail(self.require_population().spectrum, self.problem.samples, b)
        if np.isinf(tail.k):
            raise NotApplicable(f"no effective rank r_j reaches bn (b = {b:g}): k is infinite")
        return tail

    def require_spike(self) -> tuple[int, float]:
        """(k, ε), where the population is a spike."""
        found = spike(self.require_population().spectrum)
        if found is None:
            raise NotApplicable("for a (k, ε)-spike: k eigenvalues 1, all others ε < 1")
        return found

    def interpolates(self) -> dict[str, Any]:
        """The hypothesis Y = XΘ at the end."""
        with np.errstate(divide="ignore", invalid="ignore"):
            missing = np.sqrt(self.loss[-1]) / self.target_norm
        missing = np.where(self.bounded, np.nan_to_num(missing, nan=0.0), np.inf)
        return {"the trained map interpolates": Hypothesis(missing, "≤", INTERPOLATES)}

    def under_flow(self) -> dict[str, Any]:
        """The hypothesis of BO's dynamics."""
        return {"gradient flow": self.flow} | self.stays_finite()

    def with_constant(self, left: Any, right: Any, part: str = "", **details: Any) -> Check:
        """left ≤ c·right: judged with the caller's c; without one the smallest c is measured."""
        c = self.constants.c
        if c is not None:
            return Check(left, c * np.asarray(right), f"{part} with c = {c:g}".lstrip(), **details)
        left, right = np.asarray(left, float), np.asarray(right, float)
        with np.errstate(divide="ignore", invalid="ignore"):
            smallest = np.where(left == 0, 0.0, left / right)
        return value(smallest, f"{part}: smallest c" if part else "smallest c", **details)

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
        return self.problem.spectrum.beside(self.backward[0])

    @cached_property
    def perpendicular_norm(self) -> np.ndarray:
        """‖Θ_⊥‖_F, (records, batch)."""
        return np.linalg.norm(self.perpendicular, axis=(-1, -2))

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

    @property
    def later(self) -> np.ndarray:
        """After the start, where bounds on growth are more than equalities, (records, 1)."""
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

        Taken from the run where it recorded it. Else the sum over the left ends of the record
        intervals, an upper bound for a flow (ℒ falls), tight for close records.
        """
        records = self.run.records
        if "path" in records:
            path = np.asarray(records["path"], dtype=np.float64)
            return np.broadcast_to(path.reshape(len(path), -1), (len(path), self.batch))
        pieces = np.sqrt(self.loss[:-1]) * np.diff(self.time, axis=0)
        return np.concatenate([np.zeros_like(self.loss[:1]), np.cumsum(pieces, axis=0)])

    # --- the initialization ------------------------------------------------------------------

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """W_1(0) and W_L(0), each (batch, …)."""
        return self.initial[0], self.initial[-1]

    @property
    def width(self) -> int:
        """m; for a simulated wide network that of the network it stands for."""
        return int(self.run.evidence.get("width", self.widths[1]))

    @cached_property
    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """α and β measured on the initial first and last layer, each (batch,) (errata E-6).

        RMS singular value of W_1 (‖W_1‖_F/√d) and W_L (‖W_L‖_F/√q), or RMS entry. A simulated wide
        network, of which only a part was formed, brings the scales of its entries with it.
        """
        evidence = self.run.evidence
        if "width" in evidence:
            factor = np.sqrt(self.width) if self.constants.normalisation == "operator" else 1.0
            alpha, beta = (np.full(self.batch, evidence[n]) for n in ("alpha", "beta"))
            return alpha * factor, beta * factor
        first, last = self.ends
        sizes = [np.linalg.norm(layer, axis=(-1, -2)) for layer in (first, last)]
        if self.constants.normalisation == "entry":
            counts = [layer.shape[-1] * layer.shape[-2] for layer in (first, last)]
        else:
            counts = [first.shape[-1], last.shape[-2]]
        return sizes[0] / np.sqrt(counts[0]), sizes[1] / np.sqrt(counts[1])
