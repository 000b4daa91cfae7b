"""Descent of ReLU networks one by one, the units of a layer in lanes, as a dynamics."""

from __future__ import annotations

from typing import Any

import numpy as np

from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.dynamics.rank_steps import OneByOne
from deeplin.dynamics.state import LOST, REACHED, RUNNING, Pace, Rules, State
from deeplin.dynamics.update import Update
from deeplin.kernels.compiling import call, kernel_digest
from deeplin.kernels.lanes import LANES
from deeplin.kernels.rectified import BLOCK, Layers, Room, rectified_kernel, write_columns
from deeplin.networks import Network


class ReluSteps(OneByOne):
    """Descent of each run of a batch on all rows of the data."""

    def __init__(self, objective: Objective, ensemble: Ensemble, rules: Rules, update: Update):
        self.ensemble, self.rules = ensemble, rules
        network: Network = ensemble.tree(ensemble.weights)
        self.widths = network.widths
        self.hidden = max(self.widths[1:-1])
        inputs, targets = (np.asarray(matrix) for matrix in objective.data[0][:2])
        self.dtype = ensemble.weights[0].dtype
        self.inputs, self.targets = np.ascontiguousarray(inputs), np.ascontiguousarray(targets)
        self.rates = (-2 / len(inputs) * update.learning_rate).astype(self.dtype)
        self.kernel = rectified_kernel(_lanes(self.hidden), kernel_digest())
        self.packed: dict[int, tuple[Layers, Layers]] = {}
        self.pace = Pace(ensemble.numbers * max(1, len(inputs) // 8))

    def start(self) -> State:
        """The state before the first step."""
        return State.start(tuple(map(np.asarray, self.ensemble.weights)))

    def take(self, run: int, state: State, after: State, until: int) -> None:
        """One run to step `until`."""
        now, before = self._layers(run, state)
        after.steps[run], value = self._descend(run, int(state.steps[run]), until)
        if not abs(value) <= self.rules.ceiling[run]:
            after.outcome[run] = LOST
        else:
            after.outcome[run] = REACHED if value <= self.rules.goal[run] else RUNNING
        self._unpack(before if after.outcome[run] == LOST else now, run, after.weights)

    def _descend(self, run: int, clock: int, until: int) -> tuple[int, float]:
        """The step reached by a call of the kernel, and R there."""
        count, lanes = len(self.widths) - 2, _lanes(self.hidden)
        block = (count, BLOCK, lanes, LANES)
        room = Room(
            np.zeros(block, self.dtype),
            np.zeros(block, self.dtype),
            np.zeros((count, BLOCK), np.uint64),
            np.zeros((count, BLOCK), np.uint64),
            np.zeros((BLOCK, self.widths[-1]), self.dtype),
        )
        now, before = self.packed[run]
        slopes = Layers(*map(np.zeros_like, now))
        limits = np.array([self.rules.goal[run], self.rules.ceiling[run]], np.float64)
        rows, span = (self.inputs, self.targets), (clock, until)
        return call(self.kernel, now, before, slopes, room, rows, self.rates[run], limits, span)

    def _layers(self, run: int, state: State) -> tuple[Layers, Layers]:
        """A run as the kernel sees it, and the same for the step before."""
        if run not in self.packed:
            first, *middle, last = (np.asarray(layer)[run] for layer in state.weights)
            m, lanes = self.hidden, _lanes(self.hidden)
            square = (len(middle), m, lanes, LANES)
            blocks = [_in_lanes(layer, m, lanes) for layer in middle]
            now = Layers(
                _in_lanes(first.T, self.widths[0], lanes),
                np.array(blocks, self.dtype).reshape(square),
                np.zeros(square, self.dtype),
                _in_lanes(last, self.widths[-1], lanes),
            )
            for rows, columns in zip(now.middle, now.middle_columns, strict=True):
                call(write_columns, rows, columns)
            self.packed[run] = now, Layers(*map(np.copy, now))
        return self.packed[run]

    def _unpack(self, layers: Layers, run: int, weights: tuple[Any, ...]) -> None:
        rows = (*layers.middle, layers.last)
        for packed, layer in zip(rows, weights[1:], strict=True):
            _, m, n = layer.shape
            layer[run] = packed.reshape(len(packed), -1)[:m, :n]
        weights[0][run] = layers.first.reshape(len(layers.first), -1)[:, : self.widths[1]].T


def _lanes(units: int) -> int:
    return -(-units // LANES)


def _in_lanes(matrix: np.ndarray, rows: int, lanes: int) -> np.ndarray:
    """A matrix with `rows` rows, its columns in lanes, filled up with zeros."""
    padded = np.zeros((rows, lanes * LANES), matrix.dtype)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded.reshape(rows, lanes, LANES)
