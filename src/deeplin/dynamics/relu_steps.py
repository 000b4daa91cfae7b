"""Descent of ReLU networks one by one, the units of a layer in lanes, as a dynamics."""

from __future__ import annotations

from typing import Any

import numpy as np

from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.dynamics.rank_steps import OneByOne
from deeplin.dynamics.state import LOST, REACHED, RUNNING, Pace, Rules, State
from deeplin.dynamics.update import Update
from deeplin.kernels.compiling import call
from deeplin.kernels.lanes import LANES, aligned_zeros
from deeplin.kernels.rectified import BLOCK, Layers, Room, rectified_kernel
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
        self.kernel = rectified_kernel(_lanes(self.hidden))
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
        count = len(self.widths) - 2
        block = (count, BLOCK, _lanes(self.hidden), LANES)
        room = Room(
            aligned_zeros(block, self.dtype),
            aligned_zeros(block, self.dtype),
            np.zeros((count, BLOCK), np.uint64),
            np.zeros((count - 1, BLOCK), np.uint64),
            np.zeros((BLOCK, self.widths[-1]), self.dtype),
        )
        now, before = self.packed[run]
        slopes = Layers(*(aligned_zeros(layer.shape, self.dtype) for layer in now))
        limits = np.array([self.rules.goal[run], self.rules.ceiling[run]], np.float64)
        rows, span = (self.inputs, self.targets), (clock, until)
        return call(self.kernel, now, before, slopes, room, rows, self.rates[run], limits, span)

    def _layers(self, run: int, state: State) -> tuple[Layers, Layers]:
        """A run as the kernel sees it, and the same for the step before."""
        if run not in self.packed:
            first, *middle, last = (np.asarray(layer)[run] for layer in state.weights)
            lanes, sizes = _lanes(self.hidden), (self.widths[0], self.widths[-1])
            shapes = (sizes[0], lanes), (len(middle), self.hidden, lanes), (sizes[1], lanes)
            now, before = (
                Layers(*(aligned_zeros((*shape, LANES), self.dtype) for shape in shapes))
                for _ in "01"
            )
            for layers in (now, before):
                _enter(layers.first, first.T)
                _enter(layers.last, last)
                for target, layer in zip(layers.middle, middle, strict=True):
                    _enter(target, layer.T)
            self.packed[run] = now, before
        return self.packed[run]

    def _unpack(self, layers: Layers, run: int, weights: tuple[Any, ...]) -> None:
        first, *middle, last = weights
        for packed, layer in zip((layers.first, *layers.middle), (first, *middle), strict=True):
            _, m, n = layer.shape
            layer[run] = packed.reshape(len(packed), -1)[:n, :m].T
        last[run] = layers.last.reshape(len(layers.last), -1)[:, : last.shape[2]]


def _lanes(units: int) -> int:
    return -(-units // LANES)


def _enter(target: np.ndarray, matrix: np.ndarray) -> None:
    """Write a matrix with its columns in lanes; what it does not fill stays."""
    m, n = matrix.shape
    target.reshape(len(target), -1)[:m, :n] = matrix
