"""Sharpness of linear networks with one output along their records, in one compiled pass.

Networks are taken in lanes, or one by one where the arrays of the state have no axis for lanes.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from deeplin.kernels.hessian import FlatNetwork, Frame, find_frame, multiply, transport, turns
from deeplin.kernels.lanes import LANES, any_less, choose_less, fill, load, number_at, store
from deeplin.kernels.ritz import LEAST, compiled
from deeplin.kernels.tracking import (
    DONE,
    EXAMINE_EVERY,
    FIRST,
    FOUND,
    LOOK_EVERY,
    NUMBERS,
    PRODUCTS,
    RESIDUAL,
    ROWS,
    SCALE,
    SHARED,
    VALUE,
    Plan,
    advance,
    begin,
)

JUMP = 1.25
"""A value that grows by this from one record to the next may be one that was missed before."""


class Layers(NamedTuple):
    """Weights of all records and networks where they are, (records, batch, m, n) in memory."""

    addresses: np.ndarray
    """Of each layer, and of the read-outs."""
    widths: np.ndarray
    batch: int


class Pursuit(NamedTuple):
    """What is known of each group of networks from the record before: a row for each group."""

    places: np.ndarray
    """Where the two vectors were at the last two records, in the coordinates of the frame."""
    left: np.ndarray
    right: np.ndarray
    numbers: np.ndarray


def pursuit(batch: int, widths: np.ndarray, dtype, lanes: bool) -> Pursuit:
    """Before the first record: no vectors yet."""
    size, nodes = int(np.sum(widths[1:] + widths[:-1])), int(np.sum(widths))
    groups, inner = (-(-batch // LANES), (LANES,)) if lanes else (batch, ())
    return Pursuit(
        np.zeros((groups, 2, 2, size, *inner), dtype),
        np.zeros((groups, nodes, *inner), dtype),
        np.zeros((groups, nodes, *inner), dtype),
        np.zeros((groups, NUMBERS, *inner), dtype),
    )


@cache
def along_kernel(sources: str):
    """The compiled function; `sources` is in its closure, hence in the key of the cache on disk."""

    @compiled
    def take(layers, record, first, buffers):
        """Copy the weights and read-outs of a group; what is beyond the last network repeats it."""
        assert sources
        widths, (weights, readout) = layers.widths, buffers
        start = 0
        for k in range(1, widths.size + 1):
            if k < widths.size:
                count, target = widths[k] * widths[k - 1], weights[start:]
            else:
                count, target = widths[k - 1], readout
            lanes = target.reshape(len(target), -1)
            for lane in range(lanes.shape[1]):
                network = record * layers.batch + min(first + lane, layers.batch - 1)
                address, place = layers.addresses[k - 1], network * count
                for n in range(count):
                    lanes[n, lane] = number_at(weights, address, place + n)
            start += count

    @compiled
    def follow(network, readout, optimum, plan, one, scratch):
        """Take one group to its next weights; where those are not finite it stays."""
        assert sources
        widths = network.widths
        places, left, right, number = one
        new_left, new_right, lengths, cosines, dv, du, space, mapped, shared = scratch
        find_frame(network, readout, optimum, Frame(new_left, new_right, lengths))
        finite, total = fill(number, np.inf), fill(number, 0.0)
        for k in range(widths.size):
            total = total + load(lengths[0], k) + load(lengths[1], k)
        total = choose_less(total, finite, fill(number, 0.0), fill(number, 1.0))
        if any_less(fill(number, 0.0), total):
            for n in range(len(left)):
                lost = fill(number, 0.5)
                store(new_left, n, choose_less(lost, total, load(left, n), load(new_left, n)))
                store(new_right, n, choose_less(lost, total, load(right, n), load(new_right, n)))
        turns(widths, left, right, new_left, new_right, cosines)
        for age in range(2):
            for row in range(2):
                x = places[age, row]
                transport(widths, left, right, new_left, new_right, cosines, x)
        for n in range(len(left)):
            store(left, n, load(new_left, n))
            store(right, n, load(new_right, n))
        begin(places, space, mapped, number, shared)
        row, frame = FIRST, Frame(left, right, lengths)
        while row != DONE:
            multiply(network, frame, space[row], mapped[row], (dv, du))
            row = advance(row, plan, places, space, mapped, number, shared)

    @compiled
    def along(layers, curvature, optimum, plan, clock, state, groups, found):
        """Follow the groups (first, one past the last) through all records."""
        assert sources
        value, error, products = found
        widths, dtype = layers.widths, state[0].dtype
        like, node = state[0][0, 0, 0], state[1][0]
        buffers = (
            np.zeros((np.sum(widths[1:] * widths[:-1]), *like.shape[1:]), dtype),
            np.zeros((widths[-1], *like.shape[1:]), dtype),
        )
        scratch = (
            np.zeros_like(node), np.zeros_like(node),
            np.zeros((2, len(widths), *like.shape[1:]), dtype),
            np.zeros((2, len(widths), *like.shape[1:]), dtype),
            np.zeros_like(node), np.zeros_like(node),
            np.zeros((ROWS, *like.shape), dtype), np.zeros((ROWS, *like.shape), dtype),
            np.zeros(SHARED, np.int64),
        )  # fmt: skip
        network = FlatNetwork(widths, buffers[0], curvature)
        rounding = 8 * np.finfo(dtype).eps * np.sqrt(len(like)) / LEAST
        for group in range(groups[0], groups[1]):
            one = (state[0][group], state[1][group], state[2][group], state[3][group])
            numbers = one[3].reshape(NUMBERS, -1)
            lanes = numbers.shape[1]
            first = group * lanes
            count = min(lanes, layers.batch - first)
            late = np.zeros(count, np.bool_)
            for t in range(len(value)):
                due = clock + t
                look = 1 + due // LOOK_EVERY if due % LOOK_EVERY == 0 else 0
                asked = Plan(plan.tolerance, plan.far, due % EXAMINE_EVERY == 0, look)
                take(layers, t, first, buffers)
                follow(network, buffers[1], optimum, asked, one, scratch)
                for lane in range(count):
                    b = first + lane
                    value[t, b] = numbers[VALUE, lane]
                    error[t, b] = numbers[RESIDUAL, lane] + rounding * numbers[SCALE, lane]
                    products[t, b] = numbers[PRODUCTS, lane]
                    jumped = t > 0 and value[t, b] > JUMP * value[t - 1, b]
                    late[lane] = numbers[FOUND, lane] > 0 or jumped
                if not np.any(late):
                    continue
                # It overtook before this record: go back with it to where it did.
                back = (one[0].copy(), one[1].copy(), one[2].copy(), one[3].copy())
                earlier = back[3].reshape(NUMBERS, -1)
                asked = Plan(plan.tolerance, 0.0, False, 0)
                for before in range(t - 1, max(t - 2 * LOOK_EVERY, -1), -1):
                    take(layers, before, first, buffers)
                    follow(network, buffers[1], optimum, asked, back, scratch)
                    for lane in range(count):
                        b = first + lane
                        if not late[lane]:
                            continue
                        products[before, b] += earlier[PRODUCTS, lane]
                        late[lane] = earlier[VALUE, lane] > value[before, b]
                        if late[lane]:
                            value[before, b] = earlier[VALUE, lane]
                            residual = earlier[RESIDUAL, lane]
                            error[before, b] = residual + rounding * earlier[SCALE, lane]
                    if not np.any(late):
                        break

    return along
