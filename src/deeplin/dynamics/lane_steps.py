"""Gradient descent in compiled kernels: the same steps as in JAX, faster.

Networks are taken in groups of `LANES`, each group by one thread, without Python's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np

from deeplin.dynamics.lane_group import Group, unpacked
from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.dynamics.state import Pace, Rules, State, Stepwise
from deeplin.dynamics.update import Update
from deeplin.kernels.compiling import call, kernel_digest, thread_count
from deeplin.kernels.lanes import LANES, zero_lanes
from deeplin.kernels.linear import Quadratic, linear_kernel
from deeplin.kernels.moving import Motion, Options
from deeplin.kernels.rows import BLOCK, Rows, Scratch, rows_kernel
from deeplin.networks import Network

UNROLLED = 8
"""Square layers up to this width get a kernel with the width as a constant, 1.5 times faster."""

THREAD = 10**5
"""Multiplications of a group that are worth a task of their own (which costs about 20 µs)."""

Descend = Callable[[Group, int, int], int]


class LaneSteps(Stepwise):
    """Descent of a batch in compiled kernels, as a dynamics.

    The networks stay packed in their groups between calls. `unroll` allows a kernel with the width
    as a constant, compiled for each width.
    """

    def __init__(
        self,
        objective: Objective,
        ensemble: Ensemble,
        rules: Rules,
        update: Update,
        unroll: bool = True,
    ):
        self.objective, self.ensemble, self.rules, self.update = objective, ensemble, rules, update
        self.network: Network = ensemble.tree(ensemble.weights)
        kind = _linear if objective.has_gap else _rows
        square = _square(self.network) if unroll else 0
        self.descend = kind(objective, _orders(update, self.network), self.network, square)
        self.groups: list[Group] = []
        rows = 1 if objective.has_gap else len(objective.data[0][0])
        self.numbers = rows * LANES * sum(layer[0].size for layer in ensemble.weights)
        self.pace = Pace(ensemble.numbers)

    def start(self) -> State:
        """The state before the first step."""
        weights = tuple(map(np.asarray, self.ensemble.weights))
        velocity = tuple(map(np.zeros_like, weights)) if self.update.momentum else ()
        return State.start(weights, velocity)

    def advance(self, state: State, until: int) -> State:
        """Take the running members to step `until`, or a piece of the way."""
        running = np.flatnonzero(state.running)
        clock = int(np.max(state.steps[running], initial=0))
        until = self.pace.next(clock, until)
        starts = range(0, len(running), LANES)
        if len(starts) != len(self.groups):  # at first, and when networks that stopped left room
            members = (running[at : at + LANES] for at in starts)
            self.groups = [self._group(state, chosen) for chosen in members]
        work = (until - clock) * self.numbers
        spread = _threads().map if len(self.groups) > 1 and work > THREAD else map
        list(spread(lambda group: group.train(self.descend, clock, until), self.groups))
        return _collect(state, self.groups)

    def _group(self, state: State, members: np.ndarray) -> Group:
        network = self.ensemble.tree(state.weights)
        group = Group(network, state.memory, members, self.rules)
        batches = self.update.batches
        group.give(self.update.learning_rate, None if batches is None else batches.seeds)
        return group


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_count(), "descent")


class _Orders(NamedTuple):
    """An `Update` as the kernels know it."""

    options: Options
    motion: Motion


def _orders(update: Update, network: Network) -> _Orders:
    number = network.weights[0].dtype.type
    options = Options(
        bool(update.momentum),
        update.method.nesterov,
        bool(update.weight_decay),
        update.batches is not None,
    )
    schedule = np.zeros(0) if update.schedule is None else update.schedule
    motion = Motion(
        number(update.momentum),
        number(update.weight_decay),
        0 if update.batches is None else update.batches.size,
        schedule.astype(number),
    )
    return _Orders(options, motion)


def _linear(objective: Objective, orders: _Orders, network: Network, square: int) -> Descend:
    """The kernel for linear networks with its data."""
    outputs, size = network.outputs, sum(network.widths)
    kernel = linear_kernel(square, outputs == 1, orders.options, kernel_digest())
    arrays = [np.asarray(a) for a in (*objective.data[0][:2], *objective.data[1:])]
    dtype = arrays[0].dtype
    top = network.widths[-1]
    nothing = [np.zeros((0, 0), dtype)] * (4 - len(arrays))
    data = Quadratic(*arrays, *nothing)

    def descend(group: Group, clock: int, until: int) -> int:
        vectors = zero_lanes(3 * outputs * size, dtype)
        first = vectors.reshape(3, outputs, size, LANES)[0]
        first[:, -top:] = group.readout.reshape(outputs, -1, LANES)
        return call(kernel, group.lanes(), data, orders.motion, vectors, clock, until)

    return descend


def _rows(objective: Objective, orders: _Orders, network: Network, square: int) -> Descend:
    """The kernel for GELU and ReLU networks with its data."""
    kernel = rows_kernel(square, network.activation == "gelu", orders.options)
    inputs, targets = (np.asarray(matrix) for matrix in objective.data[0][:2])
    data = Rows(inputs, targets, bool(objective.value_and_gradient.whole))
    total, widest = BLOCK * sum(network.widths), 2 * BLOCK * max(network.widths)

    def descend(group: Group, clock: int, until: int) -> int:
        counts = (total, total, widest, BLOCK * targets.shape[1], len(group.now))
        scratch = Scratch(*(zero_lanes(count, inputs.dtype) for count in counts))
        return call(kernel, group.lanes(), data, orders.motion, scratch, clock, until)

    return descend


def _square(network: Network) -> int:
    """The width that is a constant of the kernel: that of most layers, or 0 if it is large."""
    widths = network.widths[1:-1] or network.widths[:1]
    common = max(set(widths), key=widths.count)
    return common if common <= UNROLLED else 0


def _collect(state: State, groups: list[Group]) -> State:
    """A new state with what the groups have become; all but the last have no empty lane."""
    if not groups:
        return state
    outcome, steps = np.array(state.outcome), np.array(state.steps)
    members = np.concatenate([group.members for group in groups])
    outcome[members] = np.concatenate([group.outcome for group in groups])[: len(members)]
    steps[members] = np.concatenate([group.steps for group in groups])[: len(members)]
    weights = unpacked([group.weights for group in groups], members, state.weights)
    velocity = unpacked([group.velocity for group in groups], members, state.memory)
    return State(tuple(weights), tuple(velocity), outcome, steps)
