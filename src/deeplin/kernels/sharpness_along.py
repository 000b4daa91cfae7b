"""Sharpness of linear networks with one output along their records, in one compiled pass."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

from deeplin.kernels.hessian import FlatNetwork, Frame, find_frame, multiply, transport, turns
from deeplin.kernels.tracking import (
    AGE,
    DONE,
    FIRST,
    FOUND,
    LEAST,
    LOOK_EVERY,
    PREDICTIONS,
    PRODUCTS,
    RESIDUAL,
    ROWS,
    SCALE,
    SECOND,
    VALUE,
    advance,
    begin,
    fresh_direction,
)

JUMP = 1.25
"""A value that grows by this from one record to the next may be one that was missed before."""


class Pursuit(NamedTuple):
    """What is known of each network from the record before: a row for each."""

    places: np.ndarray
    """Where the two vectors were at the last three records, in the coordinates of the frame."""
    left: np.ndarray
    right: np.ndarray
    numbers: np.ndarray
    counts: np.ndarray


def pursuit(batch: int, widths: np.ndarray, dtype) -> Pursuit:
    """Before the first record: no vectors yet, and a look is due."""
    size, nodes = int(np.sum(widths[1:] + widths[:-1])), int(np.sum(widths))
    counts = np.zeros((batch, FOUND + 1), np.int64)
    counts[:, AGE] = LOOK_EVERY
    return Pursuit(
        np.zeros((batch, PREDICTIONS.shape[1], 2, size), dtype),
        np.zeros((batch, nodes), dtype),
        np.zeros((batch, nodes), dtype),
        np.zeros((batch, 7), dtype),
        counts,
    )


@cache
def along_kernel(sources: str):
    """The compiled function; `sources` is in its closure, hence in the key of the cache on disk."""

    @njit(nogil=True, cache=True)
    def record(network, readout, optimum, tolerance, one, scratch):
        """Take one network to its next weights; where those are not finite it stays."""
        widths = network.widths
        places, left, right, number, count = one
        new_left, new_right, lengths, cosines, dv, du, space, mapped = scratch
        find_frame(network, readout, optimum, Frame(new_left, new_right, lengths))
        if not np.isfinite(np.sum(lengths)):
            number[VALUE] = number[RESIDUAL] = np.nan
            count[PRODUCTS] = 0
            return
        turns(widths, left, right, new_left, new_right, cosines)
        for h in range(len(places)):
            transport(widths, left, right, new_left, new_right, cosines, places[h, FIRST])
        for h in range(2):
            transport(widths, left, right, new_left, new_right, cosines, places[h, SECOND])
        if not np.any(places[0]):
            for row in (FIRST, SECOND):
                fresh_direction(row, places[0, row])
                places[1, row] = places[2, row] = places[0, row]
        left[:], right[:] = new_left, new_right
        begin(places, space, mapped, count)
        row, frame = FIRST, Frame(left, right, lengths)
        while row != DONE:
            multiply(network, frame, space[row], mapped[row], (dv, du))
            row = advance(row, tolerance, places, space, mapped, number, count)

    @njit(nogil=True, cache=True)
    def along(networks, readouts, optimum, tolerance, state, members, found):
        """Follow the networks `members` (first, one past the last) through all records."""
        assert sources
        widths, weights, curvature = networks
        value, error, products = found
        size, nodes = state[0].shape[3], state[1].shape[1]
        dtype = weights.dtype
        scratch = (
            np.zeros(nodes, dtype), np.zeros(nodes, dtype),
            np.zeros((2, len(widths)), dtype), np.zeros((2, len(widths)), dtype),
            np.zeros(nodes, dtype), np.zeros(nodes, dtype),
            np.zeros((ROWS, size), dtype), np.zeros((ROWS, size), dtype),
        )  # fmt: skip
        rounding = 8 * np.finfo(dtype).eps * np.sqrt(size) / LEAST
        for b in range(members[0], members[1]):
            one = (state[0][b], state[1][b], state[2][b], state[3][b], state[4][b])
            for t in range(len(weights)):
                network = FlatNetwork(widths, weights[t, b], curvature)
                record(network, readouts[t, b], optimum, tolerance, one, scratch)
                number, count = one[3], one[4]
                value[t, b] = number[VALUE]
                error[t, b] = number[RESIDUAL] + rounding * number[SCALE]
                products[t, b] = count[PRODUCTS]
                jumped = t > 0 and value[t, b] > JUMP * value[t - 1, b]
                if count[FOUND] == 0 and not jumped:
                    continue
                # It overtook before this record: go back with it to where it did.
                back = (one[0].copy(), one[1].copy(), one[2].copy(), one[3].copy(), one[4].copy())
                for before in range(t - 1, max(t - 2 * LOOK_EVERY, -1), -1):
                    back[4][AGE] = 0
                    network = FlatNetwork(widths, weights[before, b], curvature)
                    record(network, readouts[before, b], optimum, tolerance, back, scratch)
                    products[before, b] += back[4][PRODUCTS]
                    if not back[3][VALUE] > value[before, b]:
                        break
                    value[before, b] = back[3][VALUE]
                    error[before, b] = back[3][RESIDUAL] + rounding * back[3][SCALE]

    return along
