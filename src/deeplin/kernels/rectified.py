"""Gradient descent of one ReLU network on the rows of the data, its units in lanes.

H_k = W_k A_{k−1}, A_k = max(H_k, 0) for k < L; D_L = f − y, D_{k−1} = W_kᵀD_k where A_{k−1} > 0,
and ∇_k R = (2/n) Σ_r D_k A_{k−1}ᵀ. A unit j at rest (A = 0) is left out of all three: between
hidden layers the columns j of W_k are added up for H, multiplied by D_k for D_{k−1}, and column j
of the gradient is summed in registers over those rows of a block on which unit j is active.

Layouts: as many rows of lanes as `size` has entries hold a hidden layer; W_L is stored by rows, all
other layers by columns.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

from deeplin.kernels.compiling import compiled
from deeplin.kernels.lanes import LANES
from deeplin.kernels.units import (
    add_scaled,
    first_of,
    four_inner,
    inner,
    keep,
    load_units,
    no_units,
    rectify,
    store_units,
)

BLOCK = 64
"""Rows of the data taken together: the bits of a word, which also limit the width."""
_ONE = np.uint64(1)


class Layers(NamedTuple):
    """One network: layers have shape (outputs or inputs, rows of lanes, LANES)."""

    first: np.ndarray
    """W_1 by columns."""
    middle: np.ndarray
    """W_2 … W_{L−1} by columns, with a leading axis."""
    last: np.ndarray
    """W_L by rows."""


class Room(NamedTuple):
    """A block of rows, for each hidden layer: (layers, BLOCK, rows of lanes, LANES)."""

    A: np.ndarray
    D: np.ndarray
    active: np.ndarray
    """Which units are active on a row, as bits: (layers, BLOCK)."""
    rows: np.ndarray
    """On which rows a unit below the last hidden layer is active, as bits: (layers − 1, 64)."""
    errors: np.ndarray
    """f − y: (BLOCK, outputs)."""


@cache
def rectified_kernel(wide: int):
    """The compiled function `descend` for hidden layers of so many rows of lanes."""
    size = (0,) * wide

    @compiled
    def descend(layers, before, slopes, room, rows, rates, limits, span):
        """Step along `span`, or until R leaves (goal, ceiling]; return the step reached and R.

        `rates` holds −2η/n of each layer, `slopes` zeros. `before` receives W_{t−1}.
        """
        (data, targets), (clock, until) = rows, span
        n, goal, ceiling = len(data), limits[0], limits[1]
        while True:
            value = 0.0
            for start in range(0, n, BLOCK):
                count = min(BLOCK, n - start)
                _forward(layers, room, data, start, count, size)
                value += _residual(layers, slopes, room, targets, start, count, size)
                _backward(layers, room, count, size)
                _turn(room, count)
                _collect(slopes, room, data, start, count, size)
            value /= n
            if clock == until or not (goal < value <= ceiling):
                return clock, value
            _move(layers, before, slopes, rates)
            clock += 1

    return descend


# Each function takes its arrays out of the tuples once for a block: numba counts references there.


@njit(nogil=True, forceinline=True)
def _forward(layers, room, data, start, count, size):
    """A_k of every row of a block, and which of its units are active."""
    wide, units = len(size), layers.middle.shape[1]
    first, middle = layers.first, layers.middle
    A, active = room.A.reshape(-1), room.active
    for r in range(count):
        h = no_units(A, size)
        for j in range(len(first)):
            h = add_scaled(h, data[start + r, j], first, j * wide)
        a, bits = rectify(h)
        store_units(A, r * wide, a)
        active[0, r] = bits
    for k in range(1, len(active)):
        for r in range(count):
            below, bits = ((k - 1) * BLOCK + r) * wide * LANES, active[k - 1, r]
            h = no_units(A, size)
            while bits:
                j = first_of(bits)
                bits &= bits - _ONE
                h = add_scaled(h, A[below + j], middle, ((k - 1) * units + j) * wide)
            a, bits = rectify(h)
            store_units(A, (k * BLOCK + r) * wide, a)
            active[k, r] = bits


@njit(nogil=True, forceinline=True)
def _residual(layers, slopes, room, targets, start, count, size):
    """D_L = f − y of every row and the last gradient; returns Σ ‖f − y‖²."""
    wide, top = len(size), len(room.active) - 1
    A, last, gradient, errors = room.A, layers.last, slopes.last, room.errors
    value = 0.0
    for c in range(targets.shape[1]):
        total = load_units(gradient, c * wide, size)
        for r in range(count):
            place = (top * BLOCK + r) * wide
            a = load_units(A, place, size)
            error = inner(a, last, c * wide) - targets[start + r, c]
            errors[r, c] = error
            value += np.float64(error) * error
            total = add_scaled(total, error, A, place)
        store_units(gradient, c * wide, total)
    return value


@njit(nogil=True, forceinline=True)
def _backward(layers, room, count, size):
    """D_k of every row, layer by layer: what was written entry by entry is read much later."""
    wide, units = len(size), layers.middle.shape[1]
    last, middle, D, active = layers.last, layers.middle, room.D.reshape(-1), room.active
    errors, top = room.errors, len(active) - 1
    for r in range(count):
        d = no_units(D, size)
        for c in range(errors.shape[1]):
            d = add_scaled(d, errors[r, c], last, c * wide)
        store_units(D, (top * BLOCK + r) * wide, keep(d, active[top, r]))
    for k in range(top, 0, -1):
        for r in range(count):
            d = load_units(D, (k * BLOCK + r) * wide, size)
            place = ((k - 1) * BLOCK + r) * wide
            store_units(D, place, no_units(D, size))
            bits = active[k - 1, r]
            while bits:
                some, bits = four_of(bits)
                found = four_inner(d, middle, (k - 1) * units * wide, some)
                for number in range(4):
                    D[place * LANES + some[number]] = found[number]


@njit(nogil=True, forceinline=True)
def four_of(bits):
    """The numbers of the four lowest bits, the last one again if there are fewer; and the rest."""
    a, bits = first_of(bits), _next(bits)
    b, bits = first_of(bits), _next(bits)
    c, bits = first_of(bits), _next(bits)
    return (a, b, c, first_of(bits)), bits & (bits - _ONE)


@njit(nogil=True, forceinline=True)
def _next(bits):
    """Without the lowest bit, unless it is the only one."""
    rest = bits & (bits - _ONE)
    return rest if rest else bits


@njit(nogil=True)
def _turn(room, count):
    """From the units active on each row the rows on which each unit is active."""
    for k in range(len(room.rows)):
        rows = room.rows[k]
        rows[:count] = room.active[k, :count]
        rows[count:] = 0
        transpose_bits(rows)


@njit(nogil=True)
def transpose_bits(words):
    """Bit b of word i becomes bit i of word b, for 64 words: halves change places, then quarters.

    Bits (i, b + j) and (i + j, b) are swapped for j = 32, 16, …, 1.
    """
    j, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    while j:
        for first in range(0, 64, 2 * j):
            for i in range(first, first + j):
                swap = ((words[i] >> j) ^ words[i + j]) & mask
                words[i + j] ^= swap
                words[i] ^= swap << j
        j >>= _ONE
        mask ^= mask << j


@njit(nogil=True, forceinline=True)
def _collect(slopes, room, data, start, count, size):
    """Add D_k A_{k−1}ᵀ of the block to the gradient of every hidden layer."""
    wide, units = len(size), slopes.middle.shape[1]
    first, middle = slopes.first, slopes.middle
    A, D, rows = room.A.reshape(-1), room.D, room.rows
    for j in range(len(first)):
        total = load_units(first, j * wide, size)
        for r in range(count):
            total = add_scaled(total, data[start + r, j], D, r * wide)
        store_units(first, j * wide, total)
    for k in range(len(rows)):
        for j in range(units):
            bits = rows[k, j]
            target = (k * units + j) * wide
            more = load_units(middle, target, size)
            while bits:
                r = first_of(bits)
                bits &= bits - _ONE
                more = add_scaled(
                    more, A[(k * BLOCK + r) * wide * LANES + j], D, ((k + 1) * BLOCK + r) * wide
                )
            store_units(middle, target, more)


@njit(nogil=True)
def _move(layers, before, slopes, rates):
    """W ← W − η∇R; W as it was goes to `before`."""
    _step(layers.first, before.first, slopes.first, rates[0])
    _step(layers.last, before.last, slopes.last, rates[-1])
    for k in range(len(layers.middle)):
        _step(layers.middle[k], before.middle[k], slopes.middle[k], rates[k + 1])


@njit(nogil=True)
def _step(layer, before, slope, rate):
    """One layer; the gradient starts again from 0."""
    weights, was, gradient = layer.reshape(-1), before.reshape(-1), slope.reshape(-1)
    for i in range(len(weights)):
        was[i] = weights[i]
        weights[i] += rate * gradient[i]
        gradient[i] = 0
