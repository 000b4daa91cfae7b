"""One lane of networks in training: packing, stopping, snapshots, around a compiled kernel."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from threading import Lock
from typing import Any

import numpy as np

from deeplin.dynamics.state import LOST, REACHED, Observer, Rules, State
from deeplin.kernels.lanes import LANES, aligned_zeros
from deeplin.kernels.moving import Lanes
from deeplin.kernels.snapshots import Snapshots
from deeplin.networks import Network

Columns = tuple[np.ndarray, np.ndarray]
"""Weights and velocities (no rows without momentum), one column for each network."""


class Path:
    """The runs at each of several stops, and what has become of them since the first."""

    def __init__(self, state: State, stops: np.ndarray, dtype: Any):
        sizes = [len(stops) * layer.size for layer in state.weights]
        memory = aligned_zeros((sum(sizes),), dtype)  # which JAX takes over without a copy
        self.values = np.empty((len(stops), len(state.steps)), dtype)
        self.snapshots = Snapshots(stops, memory, self.values)
        parts = zip(accumulate(sizes), sizes, state.weights, strict=True)
        self.layers = [
            memory[end - size : end].reshape(len(stops), *layer.shape) for end, size, layer in parts
        ]
        self.dtypes = [layer.dtype for layer in state.weights]
        self.outcome, self.steps = np.array(state.outcome), np.array(state.steps)
        still = ~state.running
        self.values[:, still] = state.memory[still]
        for layer, before in zip(self.layers, state.weights, strict=True):
            layer[:, still] = before[still]

    def leave(self, members: np.ndarray, rows: np.ndarray, values: np.ndarray, clock: int) -> None:
        """Runs that stop at a step keep their weights, given in lanes, and values from there on."""
        self.steps[members] = clock
        first, start = np.searchsorted(self.snapshots.steps, clock), 0
        self.values[first:, members] = values
        for layer in self.layers:
            _, _, m, n = layer.shape
            layer[first:, members] = rows[start : start + m * n].reshape(n, m, -1).T
            start += m * n

    def tell(self, observer: Observer, whole: bool) -> State:
        """Tell of each stop, up to the one at which no run is on its way; the state at the end.

        The values are told if they are those of the `whole` data.
        """
        stops, last = self.snapshots.steps, np.max(self.steps)
        pairs = zip(self.layers, self.dtypes, strict=True)
        layers = [layer.astype(own, copy=False) for layer, own in pairs]
        end = State(
            tuple(layer[-1].copy() for layer in layers),
            self.values[-1].copy(),
            self.outcome,
            self.steps,
        )
        count = len(stops) if np.any(end.running) else np.searchsorted(stops, last) + 1
        weights = tuple(layer[:count] for layer in layers)
        values = self.values[:count] if whole else None
        observer.note_all(np.minimum(stops[:count], last), weights, values)
        return end


class Group:
    """Up to `LANES` networks of a batch, the last axis of every array.

    Layers follow one another; entry (i, j) of a layer of shape m×n is row j·m + i of it.
    """

    def __init__(self, network: Network, members: np.ndarray, columns: Columns, rules: Rules):
        count, dtype = len(members), columns[0].dtype
        self.members = np.full(LANES, -1)
        self.members[:count] = members
        self.widths = np.array(network.widths)
        self.now, self.velocity = map(in_lanes, columns)
        self.was = in_lanes(columns[0])
        self.readout = _readout(network, members)
        self.rules = np.full((4, LANES), np.inf, dtype)
        self.rules[0] = -np.inf
        self.rules[:2, :count] = [np.asarray(values)[members] for values in rules]
        self.rates = np.zeros((network.depth, LANES), dtype)
        self.seeds = np.zeros(LANES, np.uint64)
        self.clock, self.lock = 0, Lock()

    @property
    def running(self) -> np.ndarray:
        """Which lanes hold a network on its way."""
        return self.members >= 0

    def give(self, rates: np.ndarray, seeds: np.ndarray | None) -> None:
        """The learning rate of each layer, (batch, layers), and the seeds of mini-batches."""
        members = self.members[self.running]
        self.rates[:, : len(members)] = -rates[members].T
        if seeds is not None:
            self.seeds[: len(members)] = seeds[members]

    def lanes(self) -> Lanes:
        """The networks as the kernels read them."""
        arrays = (self.now, self.was, self.velocity, self.readout, self.rates, self.rules)
        return Lanes(*arrays, self.seeds, self.members, self.widths)

    def train(self, descend: Callable[..., int], path: Path, until: int) -> None:
        """Call `descend` until every network has stopped or is at step `until`.

        The kernel returns where a value leaves (goal, ceiling]; the networks it concerns then
        leave their lanes and the others go on. One thread at a time does this, in any order:
        a step that lies behind asks for nothing.
        """
        with self.lock:
            inside = until < self.clock
            while not inside and self.running.any():
                began, self.clock = self.clock, descend(self, path.snapshots, self.clock, until)
                if (self.clock - began) % 2:  # the kernel swaps the two copies at every step
                    self.now, self.was = self.was, self.now
                inside = not self._let_go(path)
                path.steps[self.members[self.running]] = self.clock

    def _let_go(self, path: Path) -> bool:
        """Take out networks that have reached their goal or diverged; whether there were any."""
        goal, ceiling, value, before = self.rules
        diverged = self.running & ~(abs(value) <= ceiling)  # overflow may come out as −∞
        reached = self.running & ~diverged & (value <= goal)
        some = bool((diverged | reached).any())
        if some:
            path.outcome[self.members[reached]] = REACHED
            path.outcome[self.members[diverged]] = LOST
            self._leave(reached, (self.now, value), path)
            self._leave(diverged, (self.was, before), path)
        return some

    def _leave(self, lanes, kept: tuple[np.ndarray, np.ndarray], path: Path) -> None:
        """Take networks out, with the weights and values they keep, and leave their lanes idle.

        An idle lane (zero weights, zero rate) stays zero and no value stops it.
        """
        path.leave(self.members[lanes], kept[0][:, lanes], kept[1][lanes], self.clock)
        self.members[lanes] = -1
        for array in (self.now, self.was, self.velocity):
            array[:, lanes] = 0
        self.rules[:2, lanes] = [[-np.inf], [np.inf]]
        self.rates[:, lanes] = 0


def packed(layers: tuple[Any, ...]) -> np.ndarray:
    """Layers (batch, m, n) as rows j·m + i, layer after layer, and columns for the batch."""
    rows = [np.asarray(layer).T.reshape(-1, len(layer)) for layer in layers]
    return np.concatenate(rows, dtype=rows[0].dtype, casting="same_kind")


def in_lanes(columns: np.ndarray) -> np.ndarray:
    """Up to `LANES` columns, filled up with zeros."""
    array = aligned_zeros((len(columns), LANES), columns.dtype)
    array[:, : columns.shape[1]] = columns
    return array


def _readout(network: Network, members: np.ndarray) -> np.ndarray:
    """Rows c·d_L + i: p, or the columns of the identity without a read-out."""
    if network.readout is None:
        identity = np.eye(network.outputs, dtype=network.weights[0].dtype).reshape(-1, 1)
        return np.repeat(identity, LANES, axis=1)
    return in_lanes(packed((np.asarray(network.readout)[members],)))
