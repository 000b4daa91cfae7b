"""One lane of networks in training: packing, stopping, unpacking, around a compiled kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deeplin.dynamics.state import LOST, REACHED, RUNNING, Rules
from deeplin.kernels.lanes import LANES, zero_lanes
from deeplin.kernels.moving import Lanes
from deeplin.networks import Network

EMPTY = -1
"""Outcome of a lane without a network."""


class Group:
    """Up to `LANES` networks of a batch, the last axis of every array.

    Layers follow one another; entry (i, j) of a layer of shape m×n is row j·m + i of it.
    """

    def __init__(self, network: Network, velocity: tuple, members: np.ndarray, rules: Rules):
        self.members = members
        self.widths = np.array(network.widths)
        self.weights = packed(network.weights, members)
        dtype, count = self.weights.dtype, len(members)
        self.was, self.now = (zero_lanes(len(self.weights), dtype) for _ in range(2))
        self.now[:] = self.weights
        self.velocity = packed(velocity, members) if velocity else self.weights[:0].copy()
        self.readout = _readout(network, members)
        self.rules = np.zeros((3, LANES), dtype)
        self.rules[:2] = [[-np.inf], [np.inf]]
        self.rules[:2, :count] = [np.asarray(values)[members] for values in rules]
        self.rates = np.zeros((network.depth, LANES), dtype)
        self.seeds = np.zeros(LANES, np.uint64)
        self.outcome = np.full(LANES, EMPTY, np.int32)
        self.outcome[:count] = RUNNING
        self.steps = np.zeros(LANES, np.int32)

    def give(self, rates: np.ndarray, seeds: np.ndarray | None) -> None:
        """The learning rate of each layer, (batch, layers), and the seeds of mini-batches."""
        count = len(self.members)
        self.rates[:, :count] = -rates[self.members].T
        if seeds is not None:
            self.seeds[:count] = seeds[self.members]

    def lanes(self) -> Lanes:
        """The networks as the kernels read them."""
        arrays = (self.now, self.was, self.velocity, self.readout, self.rates, self.rules)
        return Lanes(*arrays, self.seeds, self.widths)

    def train(self, descend: Callable[..., int], clock: int, until: int) -> None:
        """Call `descend(clock, until)` until every network has stopped or is at step `until`.

        The kernel returns where a value leaves (goal, ceiling]; the networks it concerns then
        leave their lanes and the others go on.
        """
        while True:
            began, clock = clock, descend(self, clock, until)
            if (clock - began) % 2:  # the kernel swaps the two copies at every step
                self.now, self.was = self.was, self.now
            goal, ceiling, value = self.rules
            running = self.outcome == RUNNING
            inside = (abs(value) <= ceiling) & (value > goal)  # overflow may come out as −∞
            if not inside[running].all():
                diverged = running & ~(abs(value) <= ceiling)
                reached = running & ~diverged & (value <= goal)
                self._leave(reached, self.now, clock, REACHED)
                self._leave(diverged, self.was, clock, LOST)
            running = self.outcome == RUNNING
            if clock == until or not running.any():
                self.weights[:, running], self.steps[running] = self.now[:, running], clock
                return

    def _leave(self, lanes: np.ndarray, source: np.ndarray, clock: int, outcome: int) -> None:
        """Take networks out, with the weights of `source`, and leave their lanes idle.

        An idle lane (zero weights, zero rate) stays zero and no value stops it.
        """
        self.weights[:, lanes] = source[:, lanes]
        self.outcome[lanes], self.steps[lanes] = outcome, clock
        for array in (self.now, self.was, self.velocity):
            array[:, lanes] = 0
        self.rules[:2, lanes] = [[-np.inf], [np.inf]]
        self.rates[:, lanes] = 0


def packed(layers: tuple[Any, ...], members: np.ndarray) -> np.ndarray:
    """Layers (batch, m, n) of the members as rows j·m + i, layer after layer, and lanes."""
    rows = [np.asarray(layer)[members].T.reshape(-1, len(members)) for layer in layers]
    array = zero_lanes(sum(map(len, rows)), rows[0].dtype)
    array[:, : len(members)] = np.concatenate(rows)
    return array


def unpacked(groups: list[np.ndarray], members: np.ndarray, layers: Any) -> list[np.ndarray]:
    """The layers with the lanes of all groups written to the places of their members."""
    arrays, start = np.stack(groups), 0
    after = [np.array(layer) for layer in layers]
    for layer in after:
        _, m, n = layer.shape
        rows = arrays[:, start : start + m * n].reshape(len(groups), n, m, LANES)
        layer[members] = rows.transpose(0, 3, 2, 1).reshape(-1, m, n)[: len(members)]
        start += m * n
    return after


def _readout(network: Network, members: np.ndarray) -> np.ndarray:
    """Rows c·d_L + i: p, or the columns of the identity without a read-out."""
    if network.readout is None:
        identity = np.eye(network.outputs, dtype=network.weights[0].dtype).reshape(-1, 1)
        return np.repeat(identity, LANES, axis=1)
    return packed((network.readout,), members)
