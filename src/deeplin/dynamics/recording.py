"""Records along a dynamics: which steps, which quantities, the weights there, and the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from deeplin.dynamics.engine import State, Status
from deeplin.dynamics.measure import measure
from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.dynamics.run import CONVERGED, STATUS_NAMES, STOPPED, Records, Run
from deeplin.errors import whole_number
from deeplin.networks import Trajectory

Measure = Callable[[tuple[np.ndarray, ...], np.ndarray | None], Mapping[str, np.ndarray]]
"""The quantities of some records from weights and values (R − floor), records and runs first."""
Watch = Callable[[float, Mapping[str, np.ndarray]], None]
"""Called with every record: its step or time, and its quantities."""
CLOSE = 1e-8
"""Without a goal, a run that has shrunk its initial gap by this factor is called converged."""
TOGETHER, HELD = 256, 2**26
"""Records measured together, unless someone watches, and the most numbers they may hold."""


class Recorder:
    """Collects the quantities of a batch of runs, whatever their dynamics, and their weights."""

    def __init__(
        self,
        ensemble: Ensemble,
        measure: Measure | None,
        *,
        keep_weights: bool = True,
        watch: Watch | None = None,
        unit: str = "step",
    ):
        self.ensemble, self.measure, self.unit = ensemble, measure, unit
        self.keep_weights, self.watch = keep_weights, watch
        self.when: list[float] = []
        self.parts: list[Mapping[str, np.ndarray]] = []
        self.kept: list[tuple[np.ndarray, ...]] = []
        self.values: np.ndarray | None = None
        """R − floor of every run at the last record, if the dynamics knows it."""

    @property
    def together(self) -> int:
        """Records measured at a time."""
        if self.watch is not None:
            return 1
        return max(1, min(TOGETHER, HELD // self.ensemble.numbers))

    def add(
        self, when: np.ndarray, weights: tuple[np.ndarray, ...], values: np.ndarray | None
    ) -> None:
        """Take several records."""
        self.values = None if values is None else values[-1].copy()
        if self.measure is None:
            return
        self.when.extend(when.tolist())
        self.parts.append(self.measure(weights, values))
        if self.keep_weights:
            self.kept.append(weights)
        if self.watch is not None:
            self.watch(self.when[-1], {name: part[-1] for name, part in self.parts[-1].items()})

    def records(self) -> Records:
        """All records as columns, without the batch axis for a single run."""
        if self.measure is None:
            return Records()
        member = 0 if self.ensemble.single else slice(None)
        columns = {
            name: np.concatenate([part[name][:, member] for part in self.parts])
            for name in self.parts[0]
        }
        return Records({self.unit: np.array(self.when)} | columns)

    def weights(self) -> tuple[np.ndarray, ...]:
        """The trained arrays at each record, (records, batch, …)."""
        one = len(self.kept) == 1
        return self.kept[0] if one else tuple(map(np.concatenate, zip(*self.kept, strict=True)))

    def trajectory(self) -> Trajectory | None:
        """The networks at each record."""
        if self.measure is None or not self.keep_weights:
            return None
        ensemble, count = self.ensemble, len(self.when)
        member = 0 if ensemble.single else slice(None)
        moving = [layer[:, member] for layer in self.weights()]
        still = [
            np.broadcast_to(np.asarray(leaf)[member], (count, *np.shape(leaf[member])))
            for leaf in ensemble.fixed
        ]
        arrays = tuple(jax.device_put(array) for array in (*moving, *still))
        return Trajectory(arrays, ensemble.layout, not ensemble.single)


def steps_to_record(every: int | None, steps: int) -> list[int]:
    """Return the steps 0, k, 2k, … and the last one; only the last one without `every`."""
    if every is None:
        return [steps]
    return [*range(0, steps, whole_number("record_every", every)), steps]


# --- at the end -------------------------------------------------------------------------------


def end_evidence(
    objective: Objective,
    ensemble: Ensemble,
    weights: tuple[Any, ...],
    values: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Risk, and gap where it has a meaning, of every run; without a gap, R − floor may be known."""
    tree = ensemble.tree(weights)
    if not objective.has_gap:
        if values is not None:
            return {"risk": values + objective.floor}
        return measure(objective, tree, tree, ("risk",))
    gap = measure(objective, tree, tree, ("gap",))["gap"]
    return {"risk": gap + objective.floor, "gap": gap}


def finish(
    objective: Objective,
    recorder: Recorder,
    state: State,
    close: np.ndarray | None = None,
    evidence: Mapping[str, Any] | None = None,
    **rule: Any,
) -> Run:
    """Put together the run; plain values for a single network.

    A run that stopped is converged if its gap is at most `close`.
    """
    ensemble = recorder.ensemble
    after = end_evidence(objective, ensemble, state.weights, recorder.values)
    status = np.array([STATUS_NAMES[Status(code)] for code in state.status])
    if close is not None:
        status = np.where((status == STOPPED) & (after["gap"] <= close), CONVERGED, status)
    if rule.get("weight_decay"):
        squares = [np.sum(np.square(np.asarray(w)).reshape(len(w), -1), 1) for w in state.weights]
        after["objective"] = after["risk"] + rule["weight_decay"] * sum(squares)
    after |= evidence or {}
    return Run(
        network=ensemble.result(state.weights),
        initial=ensemble.initial,
        status=ensemble.members(status),
        steps=ensemble.members(state.steps),
        records=recorder.records(),
        trajectory=recorder.trajectory(),
        evidence={name: ensemble.members(values) for name, values in after.items()},
        **rule,
    )
