"""Gradient descent of linear networks, `LANES` of them at once, through the moments alone.

With V_k = W_{k+1}ᵀ…W_Lᵀp, g = 2Σ̂(V_0 − w*) and U_k = W_k…W_1 g the gradient of layer k is the
outer product V_k U_{k−1}ᵀ (FM-grad), so a step needs products of matrices with vectors only. The
update of a layer and its next product Wᵀ V share one pass over the weights. On a mini-batch g is
(2/B) Σ x_i (x_iᵀV_0 − y_i) over its rows, and all else stays as it is.

Layouts (every row is a lane): entry (i, j) of layer k, m×n, is row start_k + j·m + i; entry i of
V_k or U_k for output c is row c·size + d_0 + … + d_{k−1} + i, with size = d_0 + … + d_L. The array
`vectors` holds V, then −ηV, then U.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

from deeplin.kernels.batches import draw
from deeplin.kernels.compiling import compiled
from deeplin.kernels.lanes import LANES, fill, load, multiply_add, store
from deeplin.kernels.moving import Options, coefficients, moved, shrunk
from deeplin.kernels.snapshots import look


class Quadratic(NamedTuple):
    """The risk as a function of Θ, and the rows themselves for mini-batches (else empty)."""

    covariance: np.ndarray
    optimum: np.ndarray
    inputs: np.ndarray
    targets: np.ndarray


class Shape(NamedTuple):
    """Sizes that the loops need."""

    size: int
    outputs: int
    square: int
    """Width of the layers whose loops are unrolled (0: none)."""


class Place(NamedTuple):
    """Where a layer and its vectors are."""

    start: int
    above: int
    """Row of V_k; V_{k−1} and U_{k−1} are n rows before."""
    m: int
    n: int


@cache
def linear_kernel(square: int, single: bool, options: Options):
    """The compiled function `descend` for square layers of one width (0: any)."""
    inertia, nesterov, decayed, stochastic = options

    def descend(lanes, data, motion, vectors, snapshots, clock, until):
        """Step until `until`, or until some value leaves (goal, ceiling]; return the step reached.

        `lanes.rules` holds the rows goal, ceiling and receives the values R − R_min, `snapshots`
        what is due on the way. The weights W_t and W_{t−1} change places between `now` and `was`
        at every step.
        """
        now, was, velocity, widths = lanes.now, lanes.was, lanes.velocity, lanes.widths
        outputs = 1 if single else data.optimum.shape[1]
        shape = Shape(len(vectors) // (3 * outputs), outputs, square)
        difference = np.empty((len(data.covariance) + outputs, LANES), vectors.dtype)
        flags = (inertia, nesterov, decayed)
        if stochastic:
            batch = np.empty((LANES, motion.batch_size), np.int64)
            order, swaps = np.arange(len(data.inputs)), np.empty(motion.batch_size, np.int64)
        due = np.searchsorted(snapshots.steps, clock)
        _pull_all(now, vectors, widths, shape)
        while True:
            value = _slope(vectors, difference, data, shape)
            outside, due = look(now, value, lanes, snapshots, clock, due)
            if clock == until or outside:
                return clock
            if stochastic:
                for lane in range(LANES):
                    draw(lanes.seeds[lane], clock, order, swaps, batch[lane])
                _slope_on_rows(vectors, difference, data, batch, shape)
            factor = motion.schedule[clock] if len(motion.schedule) else 1.0
            _push(vectors, lanes.rates, factor, widths, shape)
            _forward(now, vectors, widths, shape)
            now, was = was, now
            start, above = len(now), shape.size - widths[-1]
            for k in range(len(widths) - 1, 0, -1):
                m, n = widths[k], widths[k - 1]
                start -= m * n
                kept = coefficients(lanes.rates, k - 1, factor, motion, flags)
                if m == square and n == square:  # constants, so that the loops unroll
                    place = Place(start, above, square, square)
                    _step_layer(now, was, velocity, vectors, kept, place, shape, flags)
                else:
                    place = Place(start, above, m, n)
                    _step_layer(now, was, velocity, vectors, kept, place, shape, flags)
                for c in range(1, outputs):
                    _pull(now, start, vectors, c * shape.size + above, m, n)
                above -= n
            clock += 1

    return compiled(descend, sums=False)


@njit(nogil=True, forceinline=True)
def _pull_all(weights, vectors, widths, shape):
    """V_{k−1} = W_kᵀ V_k from the last layer to the first; V_L = p is given."""
    start, above = len(weights), shape.size - widths[-1]
    for k in range(len(widths) - 1, 0, -1):
        m, n = widths[k], widths[k - 1]
        start -= m * n
        for c in range(shape.outputs):
            _pull(weights, start, vectors, c * shape.size + above, m, n)
        above -= n


@njit(nogil=True, forceinline=True)
def _pull(weights, start, vectors, above, m, n):
    """One output of V_{k−1} = W_kᵀ V_k."""
    for j in range(n):
        total = fill(weights, 0.0)
        for i in range(m):
            total = multiply_add(load(weights, start + j * m + i), load(vectors, above + i), total)
        store(vectors, above - n + j, total)


@njit(nogil=True, forceinline=True)
def _slope(vectors, difference, data, shape):
    """U_0 = g = 2Σ̂(Θ − Θ*); returns R − R_min = ½⟨Θ − Θ*, g⟩ (FM-L8)."""
    covariance, optimum = data.covariance, data.optimum
    d = len(covariance)
    value = fill(vectors, 0.0)
    for c in range(shape.outputs):
        product, slope = c * shape.size, (2 * shape.outputs + c) * shape.size
        for i in range(d):
            entry = load(vectors, product + i) - fill(vectors, optimum[i, c])
            store(difference, i, entry)
        for i in range(d):
            total = fill(vectors, 0.0)
            for j in range(d):
                total = multiply_add(fill(vectors, covariance[i, j]), load(difference, j), total)
            value = multiply_add(load(difference, i), total, value)
            store(vectors, slope + i, total + total)
    return value


@njit(nogil=True, forceinline=True)
def _slope_on_rows(vectors, row, data, batch, shape):
    """U_0 = g = (2/B) Σ x_i (x_iᵀΘ − y_i) over the rows of each network's own mini-batch."""
    inputs, targets = data.inputs, data.targets
    d, size = inputs.shape[1], batch.shape[1]
    scale = fill(vectors, 2.0 / size)
    for c in range(shape.outputs):
        for i in range(d):
            store(vectors, (2 * shape.outputs + c) * shape.size + i, fill(vectors, 0.0))
    for r in range(size):
        for lane in range(LANES):
            for i in range(d):
                row[i, lane] = inputs[batch[lane, r], i]
            for c in range(shape.outputs):
                row[d + c, lane] = targets[batch[lane, r], c]
        for c in range(shape.outputs):
            product, slope = c * shape.size, (2 * shape.outputs + c) * shape.size
            error = fill(vectors, 0.0) - load(row, d + c)
            for i in range(d):
                error = multiply_add(load(row, i), load(vectors, product + i), error)
            error = error * scale
            for i in range(d):
                entry = multiply_add(load(row, i), error, load(vectors, slope + i))
                store(vectors, slope + i, entry)


@njit(nogil=True, forceinline=True)
def _push(vectors, rates, factor, widths, shape):
    """−η_k V_k for every layer."""
    total = shape.outputs * shape.size
    for c in range(shape.outputs):
        above = c * shape.size + widths[0]
        for k in range(1, len(widths)):
            rate = load(rates, k - 1) * fill(vectors, factor)
            for i in range(widths[k]):
                store(vectors, total + above + i, rate * load(vectors, above + i))
            above += widths[k]


@njit(nogil=True, forceinline=True)
def _forward(weights, vectors, widths, shape):
    """U_k = W_k U_{k−1} for k < L."""
    start, below = 0, 2 * shape.outputs * shape.size
    square = shape.square
    for k in range(1, len(widths) - 1):
        m, n = widths[k], widths[k - 1]
        for c in range(shape.outputs):
            if m == square and n == square:
                _apply(weights, start, vectors, c * shape.size + below, square, square)
            else:
                _apply(weights, start, vectors, c * shape.size + below, m, n)
        start += m * n
        below += n


@njit(nogil=True, forceinline=True)
def _apply(weights, start, vectors, below, m, n):
    """One output of U_k = W_k U_{k−1}."""
    for i in range(m):
        total = fill(weights, 0.0)
        for j in range(n):
            total = multiply_add(load(weights, start + j * m + i), load(vectors, below + j), total)
        store(vectors, below + n + i, total)


@njit(nogil=True, forceinline=True)
def _step_layer(now, was, velocity, vectors, kept, place, shape, flags):
    """The update of one layer and, in the same pass, the first output of its V_{k−1} = W_kᵀ V_k."""
    start, above, m, n = place
    total_rows = shape.outputs * shape.size
    inertia = flags[0]
    for j in range(n):
        total = fill(now, 0.0)
        for i in range(m):
            row = start + j * m + i
            weight = load(was, row)
            change = shrunk(weight, kept, flags)
            for c in range(shape.outputs):
                left = total_rows + c * shape.size + above + i
                right = 2 * total_rows + c * shape.size + above - n + j
                change = multiply_add(load(vectors, left), load(vectors, right), change)
            if inertia:
                change = moved(velocity, row, weight, change, kept, flags)
            store(now, row, change)
            total = multiply_add(change, load(vectors, above + i), total)
        store(vectors, above - n + j, total)
