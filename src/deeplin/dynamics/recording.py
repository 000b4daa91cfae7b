"""Records along a dynamics: which steps, which quantities, and the weights there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from deeplin.checks import whole_number
from deeplin.dynamics.measure import check_quantities, measure
from deeplin.dynamics.objective import Objective
from deeplin.dynamics.run import Records
from deeplin.networks import Network
from deeplin.sharpness import SharpnessTracker

Watch = Callable[[int, Mapping[str, np.ndarray]], None]
"""Told of every record: its step, and each quantity with one value for each network."""


class Recorder:
    """Collects the quantities of a batch at steps 0, k, 2k, … and the last one."""

    def __init__(
        self,
        problem: Any,
        objective: Objective,
        initial: Network,
        every: int | None,
        names: Iterable[str] | None,
        keep_weights: bool,
        watch: Watch | None = None,
    ):
        self.objective, self.initial = objective, initial
        self.track_sharpness = SharpnessTracker(problem)
        self.every = None if every is None else whole_number("record_every", every)
        self.names = check_quantities(names, objective, initial)
        self.keep_weights, self.watch = keep_weights, watch
        self.moments: list[int] = []
        self.rows: list[dict[str, np.ndarray]] = []
        self.snapshots: list[Network] = []

    def schedule(self, steps: int) -> Iterator[int]:
        """The steps to pause at: those to record, and the last one."""
        if self.every is not None:
            yield from range(0, steps, self.every)
        yield steps

    def note(self, step: int, network: Network) -> None:
        """Take one record."""
        if self.every is None:
            return
        row = measure(self.objective, network, self.initial, self.names)
        if "sharpness" in self.names:
            found = self.track_sharpness(network)
            row |= {"sharpness": found.value, "sharpness_error": found.error}
        self.moments.append(step)
        self.rows.append(row)
        if self.keep_weights:
            self.snapshots.append(network)
        if self.watch is not None:
            self.watch(step, row)

    def records(self, single: bool) -> Records:
        """All records as columns, without the batch axis for a single network."""
        if self.every is None:
            return Records()
        member = 0 if single else slice(None)
        columns = {n: np.stack([row[n][member] for row in self.rows]) for n in self.rows[0]}
        return Records({"step": np.array(self.moments)} | columns)

    def trajectory(self, single: bool) -> Network | None:
        """The weights at each record: leading record axis, then the batch axis if there is one."""
        if not self.snapshots:
            return None
        member = 0 if single else slice(None)
        return jax.tree.map(
            lambda *leaves: jax.device_put(np.stack([np.asarray(leaf)[member] for leaf in leaves])),
            *self.snapshots,
        )
