"""A batch of runs as the statements see it: arrays of (records, batch, …), kinds and shapes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from deeplin.certificates.registry import NotApplicable
from deeplin.dynamics.run import DIVERGED, Run
from deeplin.networks import Network


class RunView:
    """What a run is, apart from its problem. A single run is a batch of one."""

    def __init__(self, run: Run):
        self.run = run
        self.depth = run.network.depth
        self.widths = run.network.widths
        self.batch = run.network.batch or 1

    @property
    def times(self) -> np.ndarray:
        """Time (flow) or step (descent) of each record, (records,)."""
        return self._path[0]

    @property
    def weights(self) -> tuple[np.ndarray, ...]:
        """W_k along the run, each (records, batch, d_k, d_{k−1})."""
        return self._path[1]

    @cached_property
    def _path(self) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """The records, with the start before and the end after them where those are missing."""
        end = float(np.max(self.run.evidence.get("time", self.run.steps)))
        times, states = self._recorded()
        if times.size == 0 or times[0] > 0:
            times = np.insert(times, 0, 0.0)
            states = [
                np.concatenate([w[None], s]) for w, s in zip(self.initial, states, strict=True)
            ]
        if times[-1] < end or len(times) == 1:
            times = np.append(times, end)
            pairs = zip(states, self.final, strict=True)
            states = [np.concatenate([before, last[None]]) for before, last in pairs]
        return times, tuple(states)

    def _recorded(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Times and weights that the run kept."""
        if self.run.trajectory is None:
            return np.zeros(0), [np.zeros((0, *weight.shape)) for weight in self.initial]
        names = [name for name in ("time", "step") if name in self.run.records]
        times = np.asarray(self.run.records[names[0]], dtype=np.float64)
        layers = map(self._array, self.run.trajectory.weights)
        return times, [w.reshape(len(times), self.batch, *w.shape[-2:]) for w in layers]

    @cached_property
    def initial(self) -> tuple[np.ndarray, ...]:
        """W_k(0), each (batch, d_k, d_{k−1})."""
        return tuple(map(self._array, self.run.initial.with_batch().weights))

    @cached_property
    def final(self) -> tuple[np.ndarray, ...]:
        """W_k at the end, each (batch, d_k, d_{k−1})."""
        return tuple(map(self._array, self.run.network.with_batch().weights))

    @cached_property
    def final_network(self) -> Network:
        """The trained networks as a batch."""
        return self.run.network.with_batch()

    @cached_property
    def readout(self) -> np.ndarray | None:
        """p, (batch, d_L)."""
        readout = self.final_network.readout
        return None if readout is None else self._array(readout)

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
        return self.run.dynamics == "flow" and self.has_path

    @property
    def has_path(self) -> bool:
        """Whether anything was trained (a bare network has only one state)."""
        return bool(np.any(np.asarray(self.run.steps) > 0))

    @cached_property
    def flow(self) -> np.ndarray:
        """The hypothesis "gradient flow", (batch,)."""
        return np.full(self.batch, self.is_flow)

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

        Statements about the state hold at any record; those about the passing of time only here.
        """
        end = self.run.evidence.get("time") if self.is_flow else self.run.steps
        end = np.inf if end is None else np.broadcast_to(np.asarray(end, float), (self.batch,))
        return self.times[:, None] <= end

    def stays_finite(self) -> dict[str, Any]:
        """The hypothesis of statements about any network."""
        return {"the run did not diverge": self.bounded}

    # --- shapes ------------------------------------------------------------------------------

    def require_perceptron(self) -> None:
        """FM Section 4: d_L = 1 and p = 1."""
        unit = self.readout is None or np.all(self.readout == 1)
        if self.widths[-1] != 1 or not unit:
            raise NotApplicable("for networks with one output and no read-out (d_L = 1, p = 1)")

    def require_square(self) -> int:
        """FM Section 5: every layer is d×d. Returns d."""
        if len(set(self.widths)) != 1:
            raise NotApplicable(f"for square layers; the widths are {self.widths}")
        return self.widths[0]

    def require_depth(self, least: int = 2) -> None:
        """Statements that compare layers."""
        if self.depth < least:
            raise NotApplicable(f"for depth of at least {least}; the depth is {self.depth}")

    def _array(self, leaf: Any) -> np.ndarray:
        return np.asarray(leaf, dtype=np.float64)
