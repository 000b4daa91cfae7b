"""What the simulation of a wide network returns: the trained map with its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from deeplin.dynamics.reduction import in_coordinates
from deeplin.dynamics.run import CONVERGED, DIVERGED, Records, Run
from deeplin.dynamics.width_free import ReducedStart
from deeplin.networks import Network
from deeplin.networks.products import product, squared_distance
from deeplin.problems.population import Population
from deeplin.sharpness import sharpness


class UnstableStep(UserWarning):
    """A simulated descent diverged; the text gives the stability number and a step that works."""


class Moment(NamedTuple):
    """One run at one time: its reduced layers and what its dynamics has added up so far."""

    when: float
    """Step of descent, or time of the flow dW/dt = −∇R."""
    layers: tuple[np.ndarray, ...]
    risk: float
    """R = ‖Y − XΘ‖²/n."""
    path: float
    """∫√ℒ dt along dW/dt = −∇ℒ, ℒ = ‖Y − XΘ‖² (BO); for descent the sum over its steps."""


class Outcome(NamedTuple):
    """One run from its start to its end."""

    start: ReducedStart
    learning_rate: float
    population: Population | None
    moments: Sequence[Moment]
    """The start, what was recorded on the way, and the end."""
    status: str
    steps: int

    @property
    def end(self) -> Moment:
        """Where the run stopped."""
        return self.moments[-1]


@dataclass(frozen=True, eq=False)
class WideRun:
    """Trained wide networks: plain values for one run, arrays with a leading axis for a batch."""

    outcomes: tuple[Outcome, ...]
    single: bool
    dynamics: str
    momentum: float = 0.0

    # --- the trained map ---------------------------------------------------------------------

    @cached_property
    def theta_perp(self) -> np.ndarray:
        """Θ_⊥ = (I − P_X)Θ, (d, q) (BO-L5.3)."""
        return self._each(
            lambda run: run.start.perpendicular(product(run.end.layers[1:])).reshape(
                run.start.problem.optimum.shape
            )
        )

    @cached_property
    def theta(self) -> np.ndarray:
        """Θ = (W_L … W_1)ᵀ of the full network, (d, q), or (d,) for a vector of targets."""
        return self._each(_inside) + self.theta_perp

    @cached_property
    def interpolant(self) -> np.ndarray:
        """Θ_min, the minimum-norm interpolant (BO-D2.5)."""
        return self._each(lambda run: run.start.problem.optimum)

    @cached_property
    def distance(self) -> Any:
        """‖Θ − Θ_min‖_F², squared."""
        axes = None if self.single else tuple(range(1, self.theta.ndim))
        return np.sum((self.theta - self.interpolant) ** 2, axis=axes)

    @cached_property
    def risk(self) -> Any:
        """Tr((Θ−Θ*)ᵀΣ(Θ−Θ*)), exact (BO-risk); None unless a population was passed."""
        if self.outcomes[0].population is None:
            return None
        thetas = [self.theta] if self.single else self.theta
        pairs = zip(self.outcomes, thetas, strict=True)
        risks = np.array([run.population.risk(theta) for run, theta in pairs])  # pyright: ignore
        return float(risks[0]) if self.single else risks

    # --- how it got there --------------------------------------------------------------------

    @property
    def loss(self) -> Any:
        """Mean squared error over the n·q entries at the end, as the BO authors count it."""
        return self._each(lambda run: run.end.risk / run.start.problem.outputs)

    @property
    def steps(self) -> Any:
        """Steps taken; for a diverged run the step at which it diverged."""
        return self._each(lambda run: run.steps)

    @property
    def status(self) -> Any:
        """`converged`, `diverged` or `stopped`."""
        return self._each(lambda run: run.status)

    @property
    def learning_rate(self) -> Any:
        """Step on the mean loss; meaningless for flow."""
        return self._each(lambda run: run.learning_rate)

    @property
    def path(self) -> Any:
        """∫√ℒ dt in the time of BO (BO-L4.5, BO-L5.5)."""
        return self._each(lambda run: run.end.path)

    @cached_property
    def stability(self) -> Any:
        """η·λ_max(∇²) of the mean loss at the start; descent is stable there below 2 + 2β.

        λ_max is over the directions in which the network can move, computed on first use.
        """
        return self._each(_stability)

    @property
    def message(self) -> str:
        """What to change where not every run converged; empty if all did."""
        status = np.atleast_1d(self.status)
        parts = []
        lost = [run for run in self.outcomes if run.status == DIVERGED]
        if lost:
            parts.append(f"{len(lost)} of {len(status)} run(s) diverged: {self._instability(lost)}")
        unfinished = ~np.isin(status, (CONVERGED, DIVERGED))
        if np.any(unfinished):
            loss = float(np.max(np.atleast_1d(self.loss)[unfinished]))
            parts.append(
                f"{np.sum(unfinished)} of {len(status)} run(s) stopped at a loss of up to "
                f"{loss:.3g}; raise max_steps or loss_target."
            )
        return " ".join(parts)

    def _instability(self, lost: Sequence[Outcome]) -> str:
        """The stability number of diverged runs, and what to pass instead."""
        sharpest = max(run.start.curvature() / run.start.problem.outputs for run in lost)
        rate, limit = max(run.learning_rate for run in lost), 2 + 2 * self.momentum
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
        kinds, counts = np.unique(np.atleast_1d(self.status), return_counts=True)
        outcome = ", ".join(f"{count} {kind}" for kind, count in zip(kinds, counts, strict=True))
        widths = sorted({run.start.width for run in self.outcomes})
        note = f"; {self.message}" if self.message else ""
        return f"WideRun({outcome} by {self.dynamics}; reduced width {widths}{note})"

    # --- along the run -----------------------------------------------------------------------

    @cached_property
    def records(self) -> Records:
        """Quantities at each record, (records,) or (records, runs).

        `step` or `time`, `loss`, `path` (∫√ℒ), `perpendicular` (‖Θ_⊥‖), `distance`, and the
        operator norms of the layers that carry the product, `layer_norms` (…, L), with
        `bound` = Π_k max(1, ‖W_k‖_2) (BO-D2.4). A run that stopped earlier repeats its end.
        """
        length = max(len(run.moments) for run in self.outcomes)
        longest = max(self.outcomes, key=lambda run: len(run.moments))
        columns = [_measured(run, length) for run in self.outcomes]
        when = np.array([moment.when for moment in longest.moments])
        name = "time" if self.dynamics == "flow" else "step"
        stacked = {key: np.stack([c[key] for c in columns], axis=1) for key in columns[0]}
        if self.single:
            stacked = {key: values[:, 0] for key, values in stacked.items()}
        return Records({name: when} | stacked)

    def as_run(self, index: int = 0) -> Run:
        """One run as a network of reduced width with the original inputs, for `certify`.

        It has the product Θ(t) of the wide network at all times, and is itself trained by the same
        dynamics: every statement about deep linear networks applies to it.
        """
        run = self.outcomes[index]
        basis, outside = run.start.problem.spectrum.vectors, run.start.outside()
        networks = [
            (moment.layers[0] @ basis.T + outside, *moment.layers[1:]) for moment in run.moments
        ]
        q = run.start.problem.outputs
        flow = self.dynamics == "flow"
        when = np.array([moment.when for moment in run.moments])
        risk = np.array([moment.risk for moment in run.moments])
        path = np.array([moment.path for moment in run.moments])
        return Run(
            Network(networks[-1]),
            Network(networks[0]),
            run.status,
            run.steps,
            Records({"time" if flow else "step": when, "risk": risk, "path": path}),
            Network([np.stack(layers) for layers in zip(*networks, strict=True)]),
            None if flow else run.learning_rate / q,
            self.momentum,
            {"risk": float(risk[-1]), "path": float(path[-1])}
            | {"width": run.start.full_width, "alpha": run.start.alpha, "beta": run.start.beta}
            | ({"time": when[-1]} if flow else {}),
        )

    def _each(self, quantity) -> Any:
        values = [quantity(run) for run in self.outcomes]
        return values[0] if self.single else np.array(values)


def _inside(run: Outcome) -> np.ndarray:
    """P_XΘ = Q A_1ᵀV_1."""
    inside = run.start.problem.spectrum.vectors @ product(run.end.layers)
    return inside.reshape(run.start.problem.optimum.shape)


def _stability(run: Outcome) -> float:
    problem = in_coordinates(run.start.problem, run.start.problem.spectrum.vectors)
    largest = sharpness(problem, Network(run.start.layers), method="lanczos").value
    return float(run.learning_rate / problem.outputs * largest)


def _measured(run: Outcome, length: int) -> dict[str, np.ndarray]:
    """The recorded quantities of one run, its end repeated up to `length`."""
    problem, q = run.start.problem, run.start.problem.outputs
    outside = run.start.outside()
    gram = outside @ outside.T
    rows = []
    for moment in run.moments:
        backward = product(moment.layers[1:])
        difference = moment.layers[0].T @ backward - problem.spectrum.coordinates
        perpendicular = np.sum(backward * (gram @ backward))
        first = np.linalg.norm(moment.layers[0] @ moment.layers[0].T + gram, 2) ** 0.5
        norms = [first, *(np.linalg.norm(layer, 2) for layer in moment.layers[1:])]
        rows.append(
            {
                "loss": moment.risk / q,
                "path": moment.path,
                "perpendicular": np.sqrt(max(perpendicular, 0.0)),
                "distance": squared_distance(difference) + max(perpendicular, 0.0),
                "layer_norms": np.array(norms),
                "bound": np.prod(np.maximum(norms, 1.0)),
            }
        )
    rows += rows[-1:] * (length - len(rows))
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
