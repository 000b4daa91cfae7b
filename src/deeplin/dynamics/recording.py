"""Records along a dynamics: which steps, which quantities, and the weights there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np

from deeplin.checks import whole_number
from deeplin.dynamics.objective import Ensemble
from deeplin.dynamics.run import Records
from deeplin.dynamics.state import State
from deeplin.networks import Trajectory

Measure = Callable[[Sequence[State]], Mapping[str, np.ndarray]]
"""The quantities of several states, each with axes for states and runs first."""
Watch = Callable[[float, Mapping[str, np.ndarray]], None]
"""Told of every record: its step or time, and its quantities."""
TOGETHER = 256
"""Records measured together, unless someone watches."""


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
        self.waiting: list[State] = []
        self.snapshots: list[tuple] = []

    def note(self, when: float, state: State) -> None:
        """Take one record."""
        if self.measure is None:
            return
        self.when.append(when)
        self.waiting.append(state)
        if self.keep_weights:
            self.snapshots.append(state.weights)
        if self.watch is not None or len(self.waiting) == TOGETHER:
            self._measure()
        if self.watch is not None:
            self.watch(when, {name: column[-1] for name, column in self.parts[-1].items()})

    def _measure(self) -> None:
        """Measure the states that are waiting, all at once."""
        if self.waiting and self.measure is not None:
            self.parts.append(self.measure(self.waiting))
        self.waiting = []

    def records(self) -> Records:
        """All records as columns, without the batch axis for a single run."""
        if self.measure is None:
            return Records()
        self._measure()
        member = 0 if self.ensemble.single else slice(None)
        columns = {
            name: np.concatenate([part[name][:, member] for part in self.parts])
            for name in self.parts[0]
        }
        return Records({self.unit: np.array(self.when)} | columns)

    def trajectory(self) -> Trajectory | None:
        """The weights at each record."""
        if not self.snapshots:
            return None
        ensemble, count = self.ensemble, len(self.snapshots)
        member = 0 if ensemble.single else slice(None)
        columns = zip(*self.snapshots, strict=True)
        moving = [np.stack([np.asarray(leaf)[member] for leaf in leaves]) for leaves in columns]
        still = [
            np.broadcast_to(np.asarray(leaf)[member], (count, *np.shape(leaf[member])))
            for leaf in ensemble.fixed
        ]
        arrays = tuple(jax.device_put(array) for array in (*moving, *still))
        return Trajectory(arrays, ensemble.layout, not ensemble.single)


def steps_to_record(every: int | None, steps: int) -> Iterator[int]:
    """The steps to pause at: 0, k, 2k, … and the last one; only the last one without `every`."""
    if every is not None:
        yield from range(0, steps, whole_number("record_every", every))
    yield steps
