"""Gradient descent in compiled kernels: the same states and blocks of steps as in JAX, faster.

Networks are taken in groups of `LANES`, each group by one thread, without Python's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import jax
import numpy as np

from deeplin.dynamics.lane_group import Group, unpack
from deeplin.dynamics.objective import Objective
from deeplin.dynamics.stepping import RUNNING, Rules, State
from deeplin.kernels.compiling import call, digest, thread_count
from deeplin.kernels.lanes import LANES
from deeplin.kernels.linear import linear_kernel
from deeplin.kernels.rows import BLOCK, rows_kernel
from deeplin.networks import Network

UNROLLED = 8
"""Square layers up to this width get a kernel with the width as a constant, 1.5 times faster."""

Descend = Callable[[Group, int, int], int]


class Advance:
    """Takes the running members of a batch to a later step, or to where they stop before it.

    Called as `advance(state, until)` with the state of the last call: the networks stay packed in
    their groups. `unroll` allows a kernel with the width as a constant, compiled for each width.
    """

    def __init__(self, objective: Objective, rules: Rules, unroll: bool = True):
        self.objective, self.rules, self.unroll = objective, rules, unroll
        self.groups: list[Group] = []

    def __call__(self, state: State, until: int) -> State:
        """The state at step `until`."""
        running = np.flatnonzero(np.asarray(state.outcome) == RUNNING)
        clock = int(np.max(np.asarray(state.steps)[running], initial=0))
        starts = range(0, len(running), LANES)
        if len(starts) != len(self.groups):  # at first, and when networks that stopped left room
            self.groups = [Group(self.rules, state, running[at : at + LANES]) for at in starts]
            square = _square(state.network) if self.unroll else 0
            kind = _linear if self.objective.has_gap else _rows
            self.descend = kind(self.objective, self.rules, state, square)
        spread = _threads().map if len(self.groups) > 1 else map
        list(spread(lambda group: group.train(self.descend, clock, until), self.groups))
        return _collect(state, self.groups)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_count(), "descent")


def _linear(objective: Objective, rules: Rules, state: State, square: int) -> Descend:
    """The kernel for linear networks with its data."""
    network, quadratic = state.network, objective.data[0]
    outputs, size = network.outputs, sum(network.widths)
    kernel = linear_kernel(square, outputs == 1, bool(state.velocity), digest())
    covariance, optimum = np.asarray(quadratic.covariance), np.asarray(quadratic.optimum)
    momentum = covariance.dtype.type(rules.momentum)

    def descend(group: Group, clock: int, until: int) -> int:
        V, push, U = np.zeros((3, outputs * size, LANES), covariance.dtype)
        V.reshape(outputs, size, LANES)[:, -network.widths[-1] :] = group.readout.reshape(
            outputs, -1, LANES
        )
        difference = np.zeros((len(covariance), LANES), covariance.dtype)
        return call(
            kernel, group.now, group.was, group.velocity, V, push, U, difference, group.rules,
            covariance, optimum, momentum, group.widths, clock, until,
        )  # fmt: skip

    return descend


def _rows(objective: Objective, rules: Rules, state: State, square: int) -> Descend:
    """The kernel for GELU and ReLU networks with its data."""
    network, data = state.network, objective.data[0]
    smooth = network.activation == "gelu"
    kernel = rows_kernel(square, smooth, bool(state.velocity), digest())
    inputs, targets = np.asarray(data.inputs), np.asarray(data.targets)
    momentum = inputs.dtype.type(rules.momentum)

    def descend(group: Group, clock: int, until: int) -> int:
        A, slopes = np.zeros((2, BLOCK * sum(network.widths), LANES), inputs.dtype)
        D = np.zeros((2 * BLOCK * max(network.widths), LANES), inputs.dtype)
        gradient = np.zeros_like(group.now)
        return call(
            kernel, group.now, group.was, group.velocity, gradient, A, slopes, D, group.rules,
            group.readout, inputs, targets, momentum, group.widths, clock, until,
        )  # fmt: skip

    return descend


def _square(network: Network) -> int:
    """The width that is a constant of the kernel: that of most layers, or 0 if it is large."""
    widths = network.widths[1:-1] or network.widths[:1]
    common = max(set(widths), key=widths.count)
    return common if common <= UNROLLED else 0


def _collect(state: State, groups: list[Group]) -> State:
    """A new state with what the groups have become."""
    outcome, steps = np.array(state.outcome), np.array(state.steps)
    weights = [np.array(layer) for layer in state.network.weights]
    velocity = [np.array(layer) for layer in state.velocity]
    for group in groups:
        count = len(group.members)
        outcome[group.members] = group.outcome[:count]
        steps[group.members] = group.steps[:count]
        unpack(group.weights, group.members, weights)
        unpack(group.velocity, group.members, velocity)
    leaves, structure = jax.tree.flatten(state.network)
    leaves[: len(weights)] = weights  # as they are: a new Network would move them to the device
    return State(jax.tree.unflatten(structure, leaves), tuple(velocity), outcome, steps)
