"""Weights and values of a lane of networks at some steps, written where records are kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from deeplin.kernels.lanes import LANES, any_outside, load, store


class Snapshots(NamedTuple):
    """Room for the weights of a batch at some steps."""

    steps: np.ndarray
    """In ascending order."""
    memory: np.ndarray
    """The layers one after another, each (steps, batch, m, n)."""
    values: np.ndarray
    """(steps, batch)."""


@njit(nogil=True, forceinline=True)
def look(weights, value, lanes, snapshots, clock, due):
    """Keep the values of a step, and its snapshot if it is the one that is due.

    Returns whether some value is outside (goal, ceiling], where there is no snapshot yet, and the
    number of the snapshot that is due next.
    """
    store(lanes.rules, 3, load(lanes.rules, 2))
    store(lanes.rules, 2, value)
    outside = any_outside(value, load(lanes.rules, 0), load(lanes.rules, 1))
    if not outside and due < len(snapshots.steps) and clock == snapshots.steps[due]:
        _take(weights, lanes, snapshots, due)
        due += 1
    return outside, due


@njit(nogil=True, forceinline=True)
def _take(weights, lanes, snapshots, number):
    """Write weights and values of the networks that are not idle as snapshot `number`."""
    (_, memory, values), flat = snapshots, weights.reshape(-1)
    start, (steps, batch) = 0, values.shape
    for lane in range(LANES):
        if lanes.members[lane] >= 0:
            values[number, lanes.members[lane]] = lanes.rules[2, lane]
    for k in range(1, len(lanes.widths)):
        m, n = lanes.widths[k], lanes.widths[k - 1]
        for lane in range(LANES):
            member = lanes.members[lane]
            if member < 0:
                continue
            place = steps * batch * start + (number * batch + member) * m * n
            for j in range(n):
                for i in range(m):
                    entry = load(flat, (start + j * m + i) * LANES + lane)
                    store(memory, place + i * n + j, entry)
        start += m * n
