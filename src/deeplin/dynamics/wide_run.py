"""What the simulation of wide networks returns: a run, and the map that was trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Num

from deeplin.dynamics.reduced_start import Cases, ReducedStart
from deeplin.dynamics.reduction import in_coordinates
from deeplin.dynamics.run import CONVERGED, DIVERGED, Evidence, Records, Run
from deeplin.hessian import sharpness
from deeplin.networks import Network, Trajectory
from deeplin.networks.products import product, squared_distance
from deeplin.problems import Population

Layers = tuple[Float[np.ndarray, "runs _ _"], ...]


class UnstableStep(UserWarning):
    """A simulated descent diverged; the text gives the stability number and a step that works."""


class Observed(NamedTuple):
    """Wide networks in reduced coordinates at each record, from the start to the end."""

    when: Num[np.ndarray, " records"]
    """Step of descent, or time of the flow dW/dt = −∇R."""
    layers: Sequence[Layers]
    """Reduced layers at each record; runs of smaller width are padded with zeros."""
    risk: Float[np.ndarray, "records runs"]
    """R = ‖Y − XΘ‖²/n."""
    path: Float[np.ndarray, "records runs"]
    """∫√ℒ dt along dW/dt = −∇ℒ, ℒ = ‖Y − XΘ‖² (BO); for descent the sum over its steps."""


class WideRun(Run):
    """Trained wide networks: a `Run` of the reduced networks, and Θ of the full ones.

    `network`, `initial` and `trajectory` have the original inputs and the reduced width. They have
    the product Θ(t) of the wide network at all times and are trained by the same dynamics, so every
    statement about deep linear networks applies to them: `certify(problem, wide)`.
    """

    cases: Cases
    observed: Observed
    time: float | Float[np.ndarray, " runs"] | None = None
    """Where a flow ended; None for descent."""

    def __init__(self, cases: Cases, observed: Observed, each: Mapping[str, list], **values: Any):
        """`each` has an entry for every run; what is left out has the default of a `Run`."""
        own = {name: cases.one_or_all(entries) for name, entries in each.items()}
        vars(self).update(values, cases=cases, observed=observed, **own)

    # --- the trained map ---------------------------------------------------------------------

    @cached_property
    def theta_perp(self) -> Float[np.ndarray, "*runs d q"] | Float[np.ndarray, "*runs d"]:
        """Θ_⊥ = (I − P_X)Θ, (d, q) (BO-L5.3)."""
        return self._at_the_end(lambda start, ends: start.perpendicular(product(ends[1:])))

    @cached_property
    def theta(self) -> Float[np.ndarray, "*runs d q"] | Float[np.ndarray, "*runs d"]:
        """Θ = (W_L … W_1)ᵀ of the full network, (d, q), or (d,) for a vector of targets."""

        def inside(start: ReducedStart, ends) -> np.ndarray:
            """P_XΘ = Q A_1ᵀV_1."""
            return start.problem.spectrum.vectors @ product(ends)

        return self._at_the_end(inside) + self.theta_perp

    @cached_property
    def interpolant(self) -> Float[np.ndarray, "*runs d q"] | Float[np.ndarray, "*runs d"]:
        """Θ_min, the minimum-norm interpolant (BO-D2.5)."""
        return self._each(lambda start: start.problem.optimum)

    @cached_property
    def distance(self) -> float | Float[np.ndarray, " runs"]:
        """‖Θ − Θ_min‖_F², squared."""
        axes = None if self.single else tuple(range(1, self.theta.ndim))
        return np.sum((self.theta - self.interpolant) ** 2, axis=axes)

    @cached_property
    def expected_distance(self) -> float | Float[np.ndarray, " runs"]:
        """α²(d−n)‖U‖², the mean of ‖Θ_⊥‖² given the trained U = W_2ᵀ…W_Lᵀ (X-25).

        Its mean over runs is that of `distance` at interpolation, without the random directions
        beside the data.
        """
        squares = []
        for run, start in enumerate(self.starts):
            backward = product(self._member(run, self.observed.layers[-1])[1:])
            free = start.problem.dimension - start.problem.rank
            squares.append(start.alpha**2 * free * float(np.sum(backward**2)))
        return self.cases.one_or_all(squares)

    @cached_property
    def risk(self) -> float | Float[np.ndarray, " runs"] | None:
        """Tr((Θ−Θ*)ᵀΣ(Θ−Θ*)), exact (BO-risk); None unless a population was passed."""
        return self._risks(lambda source, theta, _: float(source.risk(theta)))

    @cached_property
    def added_risk(self) -> float | Float[np.ndarray, " runs"] | None:
        """Tr(Θ_⊥ᵀΣΘ_⊥), what Θ_⊥ always adds to the risk; None unless a population was passed."""

        def added(source: Population, theta: np.ndarray, beside: np.ndarray) -> float:
            return float(np.sum(beside * source.apply(beside)))

        return self._risks(added)

    @cached_property
    def cross_term(self) -> float | Float[np.ndarray, " runs"] | None:
        """2Tr((P_XΘ−Θ*)ᵀΣΘ_⊥): mean 0 over the start (X-25), negative where Θ_⊥ helps (X-33).

        Risk(Θ) = Risk(P_XΘ) + `added_risk` + `cross_term`, and P_XΘ = Θ_min at interpolation. None
        unless a population was passed.
        """

        def cross(source: Population, theta: np.ndarray, beside: np.ndarray) -> float:
            return 2 * float(np.sum((theta - beside - source.optimum) * source.apply(beside)))

        return self._risks(cross)

    def _risks(self, quantity: Callable[[Population, np.ndarray, np.ndarray], float]) -> Any:
        """A quantity of the population, Θ and Θ_⊥ (d×q) of each run."""
        values = []
        for run, source in enumerate(self.cases.populations):
            if source is None:
                return None
            theta, beside = (
                np.reshape(columns if self.single else columns[run], source.optimum.shape)
                for columns in (self.theta, self.theta_perp)
            )
            values.append(quantity(source, theta, beside))
        return self.cases.one_or_all(values)

    @property
    def starts(self) -> tuple[ReducedStart, ...]:
        """The reduced initial state of each run."""
        return self.cases.starts

    # --- how it got there --------------------------------------------------------------------

    @property
    def loss(self) -> float | Float[np.ndarray, " runs"]:
        """Mean squared error over the n·q entries at the end, as the BO authors count it."""
        return self.cases.one_or_all(self.observed.risk[-1] / self._outputs)

    @property
    def path(self) -> float | Float[np.ndarray, " runs"]:
        """∫√ℒ dt in the time of BO (BO-L4.5, BO-L5.5)."""
        return self.cases.one_or_all(self.observed.path[-1])

    @cached_property
    def stability(self) -> float | Float[np.ndarray, " runs"]:
        """η·λ_max(∇²R) at the start; descent is stable there below 2 + 2β.

        λ_max is over the directions in which the network can move, computed on first use.
        """
        rates = np.atleast_1d(np.asarray(self.learning_rate, float))
        values = []
        for rate, start in zip(rates, self.starts, strict=True):
            problem = in_coordinates(start.problem, start.problem.spectrum.vectors)
            largest = sharpness(problem, Network(start.layers), method="lanczos").value
            values.append(float(rate * largest))
        return self.cases.one_or_all(values)

    @property
    def message(self) -> str:
        """What to change where not every run converged; empty if all did."""
        status = np.atleast_1d(np.asarray(self.status))
        parts = []
        lost = np.flatnonzero(status == DIVERGED)
        if len(lost):
            parts.append(f"{len(lost)} of {len(status)} run(s) diverged: {self._instability(lost)}")
        unfinished = ~np.isin(status, (CONVERGED, DIVERGED))
        if np.any(unfinished):
            loss = float(np.max(np.atleast_1d(self.loss)[unfinished]))
            parts.append(
                f"{np.sum(unfinished)} of {len(status)} run(s) stopped at a loss of up to "
                f"{loss:.3g}; raise max_steps or loss_target."
            )
        return " ".join(parts)

    def _instability(self, lost: np.ndarray) -> str:
        """The stability number of diverged runs, and what to pass instead (on the mean loss)."""
        sharpest = max(self.starts[run].curvature() for run in lost) / self._outputs
        rate = self._outputs * np.max(np.atleast_1d(np.asarray(self.learning_rate))[lost])
        limit = 2 + 2 * self.momentum
        number = f"η·λ_max is about {rate * sharpest:.3g} at the start"
        if rate * sharpest < limit:
            return (
                f"{number}, stable there (below {limit:.3g}), but the sharpness grew in training; "
                f"pass learning_rate below {rate / 2:.2g}."
            )
        return (
            f"{number} and descent is stable below {limit:.3g}; pass learning_rate below "
            f"{limit / sharpest:.2g}."
        )

    def __repr__(self) -> str:
        widths = sorted({start.width for start in self.starts})
        note = f"; {self.message}" if self.message else ""
        return f"WideRun({self._outcome} by {self.dynamics}; reduced width {widths}{note})"

    # --- as a run of networks ----------------------------------------------------------------

    @cached_property
    def network(self) -> Network:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The trained networks, at reduced width."""
        return self._networks(self.observed.layers[-1])

    @cached_property
    def initial(self) -> Network:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The networks they started from."""
        return self._networks(self.observed.layers[0])

    @cached_property
    def trajectory(self) -> Trajectory:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The networks at each record."""
        records = [self._networks(layers) for layers in self.observed.layers]
        return Trajectory.of(records, batched=not self.single)

    @cached_property
    def evidence(self) -> Evidence:  # pyright: ignore[reportIncompatibleVariableOverride]
        """`risk` and `path` at the end, and what the wide network was: `width`, `alpha`, `beta`."""
        widths = {start.full_width for start in self.starts}
        return {
            "risk": self.cases.one_or_all(self.observed.risk[-1].tolist()),
            "path": self.cases.one_or_all(self.observed.path[-1].tolist()),
            "width": widths.pop() if len(widths) == 1 else self._each(lambda s: s.full_width),
            "alpha": self._each(lambda start: start.alpha),
            "beta": self._each(lambda start: start.beta),
        } | ({} if self.time is None else {"time": self.time})

    @cached_property
    def records(self) -> Records:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Quantities at each record, (records,) or (records, runs).

        `step` or `time`, `risk` (R), `loss` (R/q), `path` (∫√ℒ), `perpendicular` (‖Θ_⊥‖),
        `distance`, and the operator norms of the layers that carry the product, `layer_norms`
        (…, L), with `bound` = Π_k max(1, ‖W_k‖_2) (BO-D2.4). A run that stopped earlier repeats
        its end.
        """
        when, along, risk, path = self.observed
        runs = [
            _measured(start, [self._member(run, layers) for layers in along])
            for run, start in enumerate(self.starts)
        ]
        columns = {"risk": risk, "loss": risk / self._outputs, "path": path}
        columns |= {name: np.stack([r[name] for r in runs], axis=1) for name in runs[0]}
        if self.single:
            columns = {name: values[:, 0] for name, values in columns.items()}
        return Records({"time" if self.dynamics == "flow" else "step": when} | columns)

    def as_run(self, index: int = 0) -> Run:
        """One run as a plain `Run`."""
        if self.single:
            return Run(**{field.name: getattr(self, field.name) for field in fields(Run)})
        return self[index]

    # --- inside ------------------------------------------------------------------------------

    @property
    def _outputs(self) -> int:
        return self.starts[0].problem.outputs

    def _each(self, quantity: Callable[[ReducedStart], Any]) -> Any:
        return self.cases.one_or_all([quantity(start) for start in self.starts])

    def _at_the_end(self, quantity: Callable[[ReducedStart, Any], np.ndarray]) -> np.ndarray:
        """A d×q matrix of each run, in the shape of its targets."""
        ends = [self._member(run, self.observed.layers[-1]) for run in range(len(self.starts))]
        pairs = zip(self.starts, ends, strict=True)
        return self.cases.one_or_all(
            [quantity(start, end).reshape(start.problem.optimum.shape) for start, end in pairs]
        )

    def _member(self, run: int, layers: Layers) -> tuple[np.ndarray, ...]:
        """The layers of one run at its own width."""
        pairs = zip(layers, self.starts[run].layers, strict=True)
        return tuple(layer[run][: len(own), : own.shape[1]] for layer, own in pairs)

    def _networks(self, layers: Layers) -> Network:
        """Reduced layers with the original inputs: first W̃_1 = A_1Qᵀ + N, then as they are."""
        first = np.zeros((*layers[0].shape[:2], self.starts[0].problem.dimension))
        for run, (start, outside) in enumerate(zip(self.starts, self._outside, strict=True)):
            first[run] = layers[0][run] @ start.problem.spectrum.vectors.T
            first[run, : len(outside)] += outside
        network = (first, *layers[1:])
        return Network([layer[0] for layer in network] if self.single else network)

    @cached_property
    def _outside(self) -> list[np.ndarray]:
        return [start.outside() for start in self.starts]


def _measured(start: ReducedStart, records: list[tuple[np.ndarray, ...]]) -> dict[str, np.ndarray]:
    """The quantities of one run at each record that need its layers."""
    outside = start.outside()
    gram = outside @ outside.T
    rows = []
    for layers in records:
        backward = product(layers[1:])
        difference = layers[0].T @ backward - start.problem.spectrum.coordinates
        perpendicular = max(np.sum(backward * (gram @ backward)), 0.0)
        first = np.linalg.norm(layers[0] @ layers[0].T + gram, 2) ** 0.5
        norms = [first, *(np.linalg.norm(layer, 2) for layer in layers[1:])]
        rows.append(
            {
                "perpendicular": np.sqrt(perpendicular),
                "distance": squared_distance(difference) + perpendicular,
                "layer_norms": np.array(norms),
                "bound": np.prod(np.maximum(norms, 1.0)),
            }
        )
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
