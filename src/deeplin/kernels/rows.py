"""Gradient descent of GELU and ReLU networks on the rows of the data, `LANES` networks at once.

Back-propagation over blocks of rows, so that the activations of a block stay in the cache:
H_k = W_k A_{k−1}, A_k = φ(H_k) for k < L; then D_L = p(f − y), D_{k−1} = W_kᵀD_k ∘ φ'(H_{k−1}), and
∇_k R = (2/n) D_k A_{k−1}ᵀ summed over the rows.

Layouts (every row is a lane): entry (i, j) of layer k, m×n, is row start_k + j·m + i; entry i of
A_k on row r of a block of at most b rows is row b·(d_0 + … + d_{k−1}) + r·d_k + i.

The last block is filled up with rows x = 0, y = 0, which add nothing: f(0) = 0 without biases.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

from deeplin.kernels.activations import UNIT, activate
from deeplin.kernels.batches import draw
from deeplin.kernels.compiling import compiled
from deeplin.kernels.lanes import LANES, fill, load, multiply_add, store
from deeplin.kernels.moving import Options, coefficients, moved, shrunk
from deeplin.kernels.products import ROWS, add_outer, apply_layer, pull_back
from deeplin.kernels.snapshots import look

CACHE = 2**19
"""Bytes for the activations of a block and their slopes: half of a usual second-level cache."""
ONE = (0,)
"""The size of a last layer with one output."""


def rows_together(n: int, widths: tuple[int, ...], dtype: np.dtype) -> int:
    """Rows of a block: all n if the cache takes them, in a multiple of `ROWS`.

    They need not fit into the first-level cache: activations are read in the order they lie in,
    and between blocks every layer's gradient is read and written again.
    """
    some = 2 * LANES * dtype.itemsize * ROWS * sum(widths)
    return ROWS * max(1, min(-(-n // ROWS), CACHE // some))


def unit(smooth: bool) -> float:
    """What inputs, targets and activations are multiplied by: `UNIT` for GELU, 1 for ReLU."""
    return UNIT if smooth else 1.0


class Rows(NamedTuple):
    """The data, in units."""

    inputs: np.ndarray
    targets: np.ndarray
    whole: bool
    """With mini-batches: whether the value is the risk on all rows (a goal needs that)."""


class Scratch(NamedTuple):
    """Room for a block of rows in every lane; b is a multiple of `ROWS`."""

    b: int

    A: np.ndarray
    D: np.ndarray
    """Where D_k will be, φ'(H_k) waits for it."""
    targets: np.ndarray
    gradient: np.ndarray


class Layer(NamedTuple):
    """Where an m×n layer, the activations below and those above it are."""

    start: int
    below: int
    above: int
    m: int
    n: int


@cache
def rows_kernel(square: int, smooth: bool, options: Options):
    """The compiled function `descend` for square layers of one width (0: any), GELU or ReLU."""
    inertia, nesterov, decayed, stochastic = options
    size = (0,) * square  # its length is part of its type
    scale = unit(smooth) ** 2  # of squares, and of products of two activations or errors

    @compiled
    def descend(lanes, data, motion, scratch, snapshots, clock, until):
        """Step until `until`, or until some value leaves (goal, ceiling]; return the step reached.

        `lanes.rules` holds the rows goal, ceiling and receives the values R, `snapshots` what is
        due on the way. The weights W_t and W_{t−1} change places between `now` and `was` at every
        step.
        """
        now, was, velocity, widths = lanes.now, lanes.was, lanes.velocity, lanes.widths
        n = motion.batch_size if stochastic else len(data.inputs)
        again = stochastic or n > scratch.b  # else the rows of the only block stay where they are
        batch = np.empty((LANES, n), np.int64)
        order, swaps = np.arange(len(data.inputs)), np.empty(n, np.int64)
        flags = (inertia, nesterov, decayed)
        due, began = np.searchsorted(snapshots.steps, clock), clock
        while True:
            scratch.gradient[:] = 0.0
            value = fill(now, 0.0)
            if stochastic:
                for lane in range(LANES):
                    draw(lanes.seeds[lane], clock, order, swaps, batch[lane])
            for first in range(0, n, scratch.b):
                count = min(scratch.b, n - first)
                rows = _in_whole_products(count)
                if again or clock == began:
                    if stochastic:
                        _enter_batch(data, scratch, batch, first, count)
                    else:
                        _enter(data, scratch, first, count)
                    _fill_up(data, scratch, count, rows)
                _forward(now, scratch, widths, rows, size, smooth)
                value = value + _residual(scratch, lanes.readout, widths, rows, True)
                _backward(now, scratch, widths, rows, size)
            if stochastic and data.whole:
                value = _risk(now, data, scratch, lanes.readout, widths, (size, smooth))
            value = value / fill(value, scale * (len(data.inputs) if data.whole else n))
            outside, due = look(now, value, lanes, snapshots, clock, due)
            if clock == until or outside:
                return clock
            factor = motion.schedule[clock] if len(motion.schedule) else 1.0
            now, was = was, now
            start = 0
            for k in range(1, len(widths)):
                kept = coefficients(lanes.rates, k - 1, factor, motion, flags)
                push = load(lanes.rates, k - 1) * fill(now, factor * 2.0 / (n * scale))
                stop = start + widths[k] * widths[k - 1]
                for row in range(start, stop):
                    weight = load(was, row)
                    change = shrunk(weight, kept, flags)
                    change = multiply_add(push, load(scratch.gradient, row), change)
                    if inertia:
                        change = moved(velocity, row, weight, change, kept, flags)
                    store(now, row, change)
                start = stop
            clock += 1

    return descend


@njit(nogil=True, forceinline=True)
def _in_whole_products(count):
    """As many rows, up to a multiple of `ROWS`."""
    return (count + ROWS - 1) // ROWS * ROWS


@njit(nogil=True, forceinline=True)
def _risk(weights, data, scratch, readout, widths, kind):
    """Σ (f − y)² over all rows."""
    value = fill(weights, 0.0)
    for first in range(0, len(data.inputs), scratch.b):
        count = min(scratch.b, len(data.inputs) - first)
        rows = _in_whole_products(count)
        _enter(data, scratch, first, count)
        _fill_up(data, scratch, count, rows)
        _forward(weights, scratch, widths, rows, kind[0], kind[1])
        value = value + _residual(scratch, readout, widths, rows, False)
    return value


@njit(nogil=True, forceinline=True)
def _enter(data, scratch, first, count):
    """A_0 and y: the same rows of the data for every network."""
    A, y = scratch.A, scratch.targets
    d, q = data.inputs.shape[1], data.targets.shape[1]
    inputs, targets = data.inputs.ravel(), data.targets.ravel()
    for entry in range(count * d):
        store(A, entry, fill(A, inputs[first * d + entry]))
    for entry in range(count * q):
        store(y, entry, fill(A, targets[first * q + entry]))


@njit(nogil=True, forceinline=True)
def _enter_batch(data, scratch, batch, first, count):
    """A_0 and y: rows of each network's own mini-batch."""
    A, y = scratch.A, scratch.targets
    d, q = data.inputs.shape[1], data.targets.shape[1]
    for r in range(count):
        for lane in range(LANES):
            row = batch[lane, first + r]
            for j in range(d):
                A[r * d + j, lane] = data.inputs[row, j]
            for c in range(q):
                y[r * q + c, lane] = data.targets[row, c]


@njit(nogil=True, forceinline=True)
def _fill_up(data, scratch, count, rows):
    """Rows of zeros after the last, up to a multiple of `ROWS`."""
    d, q = data.inputs.shape[1], data.targets.shape[1]
    scratch.A[count * d : rows * d] = 0.0
    scratch.targets[count * q : rows * q] = 0.0


@njit(nogil=True, forceinline=True)
def _forward(weights, scratch, widths, count, size, smooth):
    """A_k = φ(W_k A_{k−1}) with φ', for k < L; A_L = W_L A_{L−1}."""
    A, slopes, square = scratch.A, scratch.D, len(size)
    start = below = 0
    last = len(widths) - 1
    for k in range(1, last + 1):
        m, n = widths[k], widths[k - 1]
        above = below + scratch.b * n
        if m == square and n == square:
            for r in range(0, count, ROWS):
                apply_layer(A, above + r * m, weights, start, A, below + r * n, size, size)
        elif m == 1 and n == square:
            for r in range(0, count, ROWS):
                apply_layer(A, above + r, weights, start, A, below + r * n, ONE, size)
        else:
            _apply(weights, A, Layer(start, below, above, m, n), count)
        if k < last:
            activate(smooth, A, slopes, above, above + count * m)
        start += m * n
        below = above


@njit(nogil=True, forceinline=True)
def _apply(weights, A, layer, count):
    """H = W A on every row of the block."""
    start, below, above, m, n = layer
    for r in range(count):
        for i in range(m):
            total = fill(weights, 0.0)
            for j in range(n):
                entry = load(weights, start + j * m + i)
                total = multiply_add(entry, load(A, below + r * n + j), total)
            store(A, above + r * m + i, total)


@njit(nogil=True, forceinline=True)
def _residual(scratch, readout, widths, count, keep):
    """D_L = Σ_c p_c (f_c − y_c) with f_c = p_cᵀA_L, if asked for; returns Σ (f − y)²."""
    A, D, y = scratch.A, scratch.D, scratch.targets
    m, outputs = widths[-1], len(y) // scratch.b
    top = scratch.b * (widths.sum() - m)
    value = fill(A, 0.0)
    for r in range(count):
        for c in range(outputs):
            error = fill(A, 0.0) - load(y, r * outputs + c)
            for i in range(m):
                error = multiply_add(load(readout, c * m + i), load(A, top + r * m + i), error)
            value = multiply_add(error, error, value)
            for i in range(m if keep else 0):
                row, push = top + r * m + i, load(readout, c * m + i) * error
                store(D, row, push if c == 0 else load(D, row) + push)
    return value


@njit(nogil=True, forceinline=True)
def _backward(weights, scratch, widths, count, size):
    """Add D_k A_{k−1}ᵀ to the gradient of each layer; D_{k−1} = W_kᵀD_k ∘ φ'(H_{k−1})."""
    A, D, gradient, square = scratch.A, scratch.D, scratch.gradient, len(size)
    start, above = len(weights), scratch.b * (widths.sum() - widths[-1])
    for k in range(len(widths) - 1, 0, -1):
        m, n = widths[k], widths[k - 1]
        start -= m * n
        below = above - scratch.b * n
        further = range(0, count if k > 1 else 0, ROWS)
        if m == square and n == square:
            add_outer(gradient, start, D, above, A, below, count, size, size)
            for r in further:
                pull_back(D, below + r * n, weights, start, D, above + r * m, size, size)
        elif m == 1 and n == square:
            add_outer(gradient, start, D, above, A, below, count, ONE, size)
            for r in further:
                pull_back(D, below + r * n, weights, start, D, above + r, ONE, size)
        else:
            layer = Layer(start, below, above, m, n)
            _back(weights, scratch, layer, count, k > 1)
        above = below


@njit(nogil=True, forceinline=True)
def _back(weights, scratch, layer, count, further):
    """Add D Aᵀ, summed over the rows of the block; then D ← WᵀD ∘ φ'(H) below, if asked for."""
    A, D, gradient = scratch.A, scratch.D, scratch.gradient
    start, below, above, m, n = layer
    for j in range(n):
        for i in range(m):
            total = load(gradient, start + j * m + i)
            for r in range(count):
                error = load(D, above + r * m + i)
                total = multiply_add(error, load(A, below + r * n + j), total)
            store(gradient, start + j * m + i, total)
    for r in range(count if further else 0):
        for j in range(n):
            total = fill(weights, 0.0)
            for i in range(m):
                entry = load(weights, start + j * m + i)
                total = multiply_add(entry, load(D, above + r * m + i), total)
            row = below + r * n + j
            store(D, row, total * load(D, row))
