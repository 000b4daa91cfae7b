"""Gradient descent in compiled kernels: the same steps as in JAX, faster.

Networks are taken in groups of `LANES`, each group by one thread, without Python's lock, through
many stops in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import local
from typing import NamedTuple

import numpy as np

from deeplin.dynamics.lane_group import Columns, Group, Path, packed
from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.dynamics.state import RUNNING, Observer, Pace, Rules, State
from deeplin.dynamics.update import Update
from deeplin.interrupt import check_interrupt
from deeplin.kernels.compiling import call, in_threads, thread_count
from deeplin.kernels.lanes import LANES, aligned_zeros
from deeplin.kernels.linear import Quadratic, linear_kernel
from deeplin.kernels.moving import Motion, Options
from deeplin.kernels.rows import Rows, Scratch, rows_kernel, rows_together, unit
from deeplin.kernels.snapshots import Snapshots
from deeplin.networks import Network

UNROLLED = 8
"""Square layers up to this width get a kernel with the width as a constant, 1.5 times faster."""

THREAD = 10**5
"""Multiplications of a group that are worth waking threads."""

AT_FIRST = 10**5
"""The most steps before the first look at the keyboard: of the smallest networks, 10 ms."""

Descend = Callable[[Group, Snapshots, int, int], int]


class LaneSteps:
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
        weights = packed(ensemble.weights)
        columns = weights, np.zeros_like(weights if update.momentum else weights[:0])
        self.groups = self._grouped(np.arange(ensemble.size), columns)
        rows = 1 if objective.has_gap else len(objective.data[0][0])
        self.numbers = rows * LANES * sum(layer[0].size for layer in ensemble.weights)
        self.pace = Pace(self.numbers * len(self.groups) // LANES, first=AT_FIRST)
        self.whole = objective.has_gap or update.batches is None

    def start(self) -> State:
        """The state before the first step."""
        values = np.full_like(self.rules.goal, np.nan)
        return State.start(tuple(map(np.asarray, self.ensemble.weights)), values)

    def travel(self, state: State, stops: Sequence[int], observer: Observer) -> State:
        """Take the runs through the stops, until the last one or until all have stopped."""
        path = Path(state, np.array(stops), self.groups[0].now.dtype)
        clock = int(np.max(state.steps, where=state.running, initial=0))
        while True:
            began, clock = clock, self.pace.next(clock, stops[-1])
            self._train(path, began, clock)
            check_interrupt()
            if clock == stops[-1] or not np.any(path.outcome == RUNNING):
                return path.tell(observer, self.whole)

    def _train(self, path: Path, clock: int, until: int) -> None:
        """All groups from one step to another; first they close up where networks have left.

        If there are more of them than threads, each pauses before the last quarter: threads then
        end together, whatever the time a group takes.
        """
        members = np.concatenate([group.members for group in self.groups])
        running = members >= 0
        if np.sum(running) <= LANES * (len(self.groups) - 1):
            arrays = zip(*((group.now, group.velocity) for group in self.groups), strict=True)
            weights, velocity = (np.hstack(parts)[:, running] for parts in arrays)
            self.groups = self._grouped(members[running], (weights, velocity))
        spread, stops = map, [until]
        if (until - clock) * self.numbers > THREAD:
            spread = in_threads
            if len(self.groups) > thread_count():
                stops.insert(0, until - (until - clock) // 4)
        for group in self.groups:
            group.clock = clock
        spans = [(group, stop) for stop in stops for group in self.groups]
        list(spread(lambda span: span[0].train(self.descend, path, span[1]), spans))

    def _grouped(self, members: np.ndarray, columns: Columns) -> list[Group]:
        """Networks in groups of `LANES`."""
        groups, batches = [], self.update.batches
        for first in range(0, len(members), LANES):
            some = slice(first, first + LANES)
            own = columns[0][:, some], columns[1][:, some]
            group = Group(self.network, members[some], own, self.rules)
            group.give(self.update.learning_rate, None if batches is None else batches.seeds)
            groups.append(group)
        return groups


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
    kernel = linear_kernel(square, outputs == 1, orders.options)
    arrays = [np.asarray(a) for a in (*objective.data[0][:2], *objective.data[1:])]
    dtype = arrays[0].dtype
    top = network.widths[-1]
    nothing = [np.zeros((0, 0), dtype)] * (4 - len(arrays))
    data = Quadratic(*arrays, *nothing)

    def descend(group: Group, snapshots: Snapshots, clock: int, until: int) -> int:
        vectors = aligned_zeros((3 * outputs * size, LANES), dtype)
        first = vectors.reshape(3, outputs, size, LANES)[0]
        first[:, -top:] = group.readout.reshape(outputs, -1, LANES)
        lanes, motion = group.lanes(), orders.motion
        return call(kernel, lanes, data, motion, vectors, snapshots, clock, until)

    return descend


def _rows(objective: Objective, orders: _Orders, network: Network, square: int) -> Descend:
    """The kernel for GELU and ReLU networks with its data."""
    smooth = network.activation == "gelu"
    kernel = rows_kernel(square, smooth, orders.options)
    inputs, targets = (unit(smooth) * np.asarray(matrix) for matrix in objective.data[0][:2])
    data = Rows(inputs, targets, bool(objective.value_and_gradient.whole))
    b = rows_together(orders.motion.batch_size or len(inputs), network.widths, inputs.dtype)
    total = b * sum(network.widths)
    own = local()  # room for a block of rows, made once in each thread

    def descend(group: Group, snapshots: Snapshots, clock: int, until: int) -> int:
        if not hasattr(own, "scratch"):
            counts = (total, total, b * targets.shape[1], len(group.now))
            own.scratch = Scratch(
                b, *(aligned_zeros((count, LANES), inputs.dtype) for count in counts)
            )
        lanes, motion = group.lanes(), orders.motion
        return call(kernel, lanes, data, motion, own.scratch, snapshots, clock, until)

    return descend


def _square(network: Network) -> int:
    """The width that is a constant of the kernel: that of most layers, or 0 if it is large."""
    widths = network.widths[1:-1] or network.widths[:1]
    common = max(set(widths), key=widths.count)
    return common if common <= UNROLLED else 0
