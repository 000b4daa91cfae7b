"""Sharpness of linear networks with one output along their records, in one compiled pass.

Networks are taken in lanes, or one by one where the arrays of the state have no axis for lanes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deeplin.kernels import pursuit as at
from deeplin.kernels.compiling import compiled
from deeplin.kernels.hessian import FlatNetwork, Frame, find_frame, multiply, transport, turns
from deeplin.kernels.lanes import any_less, choose_less, fill, load, number_at, store
from deeplin.kernels.pursuit import Plan, plan_of
from deeplin.kernels.ritz import LEAST
from deeplin.kernels.tracking import advance, begin

JUMP = 1.25
"""A value that grows by this from one record to the next may be one that was missed before."""


class Layers(NamedTuple):
    """Weights of all records and networks where they are, (records, batch, m, n) in memory."""

    addresses: np.ndarray
    """Of each layer, and of the read-outs."""
    widths: np.ndarray
    batch: int


@compiled
def take(layers, record, first, room):
    """Copy the weights and read-outs of a group; what is beyond the last network repeats it."""
    widths, start = layers.widths, 0
    for k in range(1, widths.size + 1):
        if k < widths.size:
            count, target = widths[k] * widths[k - 1], room.weights[start:]
        else:
            count, target = widths[k - 1], room.readout
        lanes = target.reshape(len(target), -1)
        for lane in range(lanes.shape[1]):
            network = record * layers.batch + min(first + lane, layers.batch - 1)
            address, place = layers.addresses[k - 1], network * count
            for n in range(count):
                lanes[n, lane] = number_at(target, address, place + n)
        start += count


@compiled
def follow(network, optimum, plan, one, room):
    """Take one group to its next weights; where those are not finite it stays."""
    widths = network.widths
    places, left, right, number = one
    new_left, new_right, lengths, cosines = room.left, room.right, room.lengths, room.cosines
    space, mapped, shared = room.space, room.mapped, room.shared
    find_frame(network, room.readout, optimum, Frame(new_left, new_right, lengths))
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
    row, frame = at.FIRST, Frame(left, right, lengths)
    while row != at.DONE:
        multiply(network, frame, space[row], mapped[row], (room.dv, room.du))
        row = advance(row, plan, places, space, mapped, number, shared)


@compiled
def along(pieces, data, accuracy, clock, state, room, groups):
    """Follow the groups (first, one past the last) through all records of a piece.

    `pieces` is this one and the one before, which may be corrected, each with what was found in it;
    `data` is 2Σ̂ and w*, `accuracy` the tolerance and `far` of a `Plan`. Records are the outer
    loop: what is read of them lies side by side in memory.
    """
    (layers, found), (_, earlier) = pieces
    (curvature, optimum), (tolerance, far) = data, accuracy
    network = FlatNetwork(layers.widths, room.weights, curvature)
    lanes = state.numbers[0].reshape(at.NUMBERS, -1).shape[1]
    flags = np.empty(lanes, np.bool_)
    for t in range(len(found[0])):
        plan = plan_of(clock + t, tolerance, far)
        last = found[0][t - 1] if t > 0 else earlier[0][-1] if len(earlier[0]) else found[0][0]
        for group in range(groups[0], groups[1]):
            one, first = group_of(state, group), group * lanes
            late = flags[: min(lanes, layers.batch - first)]
            late[:] = True
            take(layers, t, first, room)
            follow(network, optimum, plan, one, room)
            count(found, t, first, one, late)
            write(found, t, first, one, late)
            numbers = one[3].reshape(at.NUMBERS, -1)
            for lane in range(len(late)):
                jumped = found[0][t, first + lane] > JUMP * last[first + lane]
                late[lane] = jumped or numbers[at.FOUND, lane] > 0
            if np.any(late):
                go_back(pieces, t, copied(one), late, (network, optimum, tolerance, first, room))
    if far == 0 and (clock == 0 or len(found[0]) >= at.EXAMINE_EVERY):
        for group in range(groups[0], groups[1]):
            work = (network, optimum, tolerance, group * lanes, room)
            look_at_end(pieces, clock, group_of(state, group), work)


@compiled
def group_of(state, group):
    """The state of one group."""
    return state.places[group], state.left[group], state.right[group], state.numbers[group]


@compiled
def copied(one):
    """The state of a group, to be changed without changing it."""
    return one[0].copy(), one[1].copy(), one[2].copy(), one[3].copy()


@compiled
def go_back(pieces, t, back, late, work):
    """What overtook before record t in the `late` networks is followed back to where it did."""
    network, optimum, tolerance, first, room = work
    before, least = t, max(t - 2 * at.LOOK_EVERY, -len(pieces[1][1][0]))
    while np.any(late) and before > least:
        before -= 1
        there, known = pieces[0] if before >= 0 else pieces[1]
        record = before % len(known[0])
        take(there, record, first, room)
        plan = Plan(tolerance, 0.0, False, 0)
        follow(network, optimum, plan, back, room)
        count(known, record, first, back, late)
        for lane in range(len(late)):
            higher = back[3].reshape(at.NUMBERS, -1)[at.VALUE, lane]
            late[lane] = late[lane] and higher > known[0][record, first + lane]
        write(known, record, first, back, late)


@compiled
def look_at_end(pieces, clock, one, work):
    """A look at the last record, because there may be no later one; what it finds is kept."""
    network, optimum, tolerance, first, room = work
    layers, found = pieces[0]
    t, other = len(found[0]) - 1, copied(one)
    take(layers, t, first, room)
    plan = Plan(tolerance, 0.0, True, 1 + clock + t)
    follow(network, optimum, plan, other, room)
    numbers = other[3].reshape(at.NUMBERS, -1)
    late = np.ones(min(numbers.shape[1], layers.batch - first), np.bool_)
    count(found, t, first, other, late)
    for lane in range(len(late)):
        known, error = found[0][t, first + lane], found[1][t, first + lane]
        late[lane] = numbers[at.FOUND, lane] > 0 and numbers[at.VALUE, lane] > known + error
    if np.any(late):
        write(found, t, first, other, late)
        lanes = numbers.shape[1]
        adopt(one[0], other[0], lanes, late)
        adopt(one[1], other[1], lanes, late)
        adopt(one[2], other[2], lanes, late)
        adopt(one[3], other[3], lanes, late)
        go_back(pieces, t, other, late, work)


@compiled
def adopt(mine, other, lanes, chosen):
    """Replace the lanes of the chosen networks."""
    to, new = mine.reshape(-1, lanes), other.reshape(-1, lanes)
    for lane in range(len(chosen)):
        if chosen[lane]:
            to[:, lane] = new[:, lane]


@compiled
def count(found, record, first, one, chosen):
    """The products that were needed at a record for the chosen networks of a group."""
    for lane in range(len(chosen)):
        if chosen[lane]:
            numbers = one[3].reshape(at.NUMBERS, -1)
            found[2][record, first + lane] += int(numbers[at.PRODUCTS, lane])


@compiled
def write(found, record, first, one, chosen):
    """What was found at a record, for the chosen networks of a group."""
    value, error, _ = found
    places, numbers = one[0], one[3].reshape(at.NUMBERS, -1)
    rounding = 8 * np.finfo(places.dtype).eps * np.sqrt(places.shape[2]) / LEAST
    for lane in range(len(chosen)):
        if chosen[lane]:
            b = first + lane
            value[record, b] = numbers[at.VALUE, lane]
            error[record, b] = numbers[at.RESIDUAL, lane] + rounding * numbers[at.SCALE, lane]
