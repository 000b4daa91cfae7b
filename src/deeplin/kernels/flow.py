"""Gradient flow of linear networks, each with steps of its own, through the moments alone.

An explicit Runge-Kutta pair given by its table takes every network of a batch to a time or to a
goal. Nothing here depends on the shape, so that no shape is ever compiled for.

Weights of a network are one flat vector, layer after layer. With V_k = W_{k+1}ᵀ…W_Lᵀp,
g = 2Σ̂(Θ − Θ*) and U_k = W_k…W_1 g the flow of layer k is −Σ_c V_k U_{k−1}ᵀ over the outputs c
(FM-grad); v and u hold V and U of one output in a row, node after node.
"""

from typing import NamedTuple

import numba
import numpy as np

from deeplin.kernels.compiling import SUMS

RUNNING, REACHED, _LOST, GAVE_UP = range(4)
"""As in `deeplin.dynamics.state`, which tests compare."""
SAFETY, SHRINK, GROW = 0.8, 0.2, 10.0
"""The next step is this share of the one that the error allows, and within these factors."""
SMALLEST = 1e-14
"""A step that has shrunk to this share of the time (or to this) has failed."""


class Pair(NamedTuple):
    """An explicit Runge-Kutta pair whose last stage is the first one of the next step."""

    stages: np.ndarray
    """a_ij, (s, s); the last row gives the new point."""
    error: np.ndarray
    """Weights of the error."""
    order: float


class Integration(NamedTuple):
    """How a flow is integrated and how far."""

    pair: Pair
    rtol: float
    atol: float
    most: int
    """Steps at the most."""
    until: float


@numba.njit(nogil=True, cache=True, fastmath=SUMS)
def gradient_field(widths, weights, readout, covariance, optimum, v, u, field):
    """The field −∇R into `field`; returns R − R_min."""
    outputs, last, d, value = len(readout), widths.size - 1, widths[0], 0.0
    field[:] = 0
    for c in range(outputs):
        place, node = weights.size, v.shape[1] - widths[last]
        v[c, node:] = readout[c]
        for k in range(last, 0, -1):
            rows, columns = widths[k], widths[k - 1]
            place, below = place - rows * columns, node - columns
            v[c, below:node] = 0
            for i in range(rows):
                for j in range(columns):
                    v[c, below + j] += weights[place + i * columns + j] * v[c, node + i]
            node = below
        for i in range(d):
            total = 0.0
            for j in range(d):
                total += covariance[i, j] * (v[c, j] - optimum[j, c])
            u[c, i] = 2 * total
            value += (v[c, i] - optimum[i, c]) * total
        for k in range(1, last + 1):
            rows, columns = widths[k], widths[k - 1]
            above = node + columns
            for i in range(rows):
                total = 0.0
                for j in range(columns):
                    field[place + i * columns + j] -= v[c, above + i] * u[c, node + j]
                    total += weights[place + i * columns + j] * u[c, node + j]
                u[c, above + i] = total
            place, node = place + rows * columns, above
    return value


@numba.njit(nogil=True, cache=True, fastmath=SUMS)
def _combined(start, stages, shares, count, step, point):
    """point = start + h Σ_j a_j k_j over the first `count` stages."""
    point[:] = start
    for j in range(count):
        share = step * shares[j]
        if share != 0:
            for i in range(point.size):
                point[i] += share * stages[j, i]


@numba.njit(nogil=True, cache=True, fastmath=SUMS)
def _size(change, one, two, rtol, atol):
    """Root mean square of a change against what is allowed between two points."""
    total = 0.0
    for i in range(change.size):
        total += (change[i] / (atol + rtol * max(abs(one[i]), abs(two[i])))) ** 2
    return np.sqrt(total / change.size)


@numba.njit(nogil=True, cache=True)
def _first_step(network, moments, weights, integration, scratch):
    """A step whose error is about a hundredth of what is allowed (Hairer, Nørsett, Wanner II.4)."""
    stages, point, change, v, u = scratch
    widths, readout = network
    covariance, optimum = moments
    pair, rtol, atol, _, _ = integration
    near = _size(weights, weights, weights, rtol, atol)
    slope = _size(stages[0], weights, weights, rtol, atol)
    trial = 1e-6 if min(near, slope) < 1e-5 else 0.01 * near / slope
    point[:] = weights + trial * stages[0]
    gradient_field(widths, point, readout, covariance, optimum, v, u, stages[1])
    change[:] = stages[1] - stages[0]
    bend = _size(change, weights, weights, rtol, atol) / trial
    steepest = max(slope, bend)
    if not steepest > 1e-15:
        return max(1e-6, 1e-3 * trial)
    return min(100 * trial, (0.01 / steepest) ** (1 / (pair.order + 1)))


@numba.njit(nogil=True, cache=True)
def _flow(network, moments, weights, integration, clock, goal, scratch):
    """Take one network towards `until`, its weights in place: time, steps, rejected, outcome."""
    pair, rtol, atol, most, until = integration
    stages, point, change, v, u = scratch
    widths, readout = network
    covariance, optimum = moments
    value = gradient_field(widths, weights, readout, covariance, optimum, v, u, stages[0])
    if value <= goal:
        return clock, 0, 0, REACHED
    if not np.isfinite(value):
        return clock, 0, 0, GAVE_UP
    taken, rejected, last = 0, 0, len(pair.error) - 1
    step = _first_step(network, moments, weights, integration, scratch)
    while taken < most and clock < until:
        final = clock + step >= until
        if final:
            step = until - clock
        for s in range(1, last + 1):
            _combined(weights, stages, pair.stages[s], s, step, point)
            value = gradient_field(widths, point, readout, covariance, optimum, v, u, stages[s])
        change[:] = 0
        _combined(change, stages, pair.error, last + 1, step, change)
        error = _size(change, weights, point, rtol, atol)
        taken += 1
        factor = GROW if error == 0 else SAFETY * error ** (-1 / pair.order)
        if error <= 1:
            clock = until if final else clock + step
            weights[:] = point
            stages[0] = stages[last]
            if value <= goal:
                return clock, taken, rejected, REACHED
            step *= min(max(factor, SHRINK), GROW)
        else:  # as well if it is not a number
            rejected += 1
            step *= min(max(factor, SHRINK), 1.0) if np.isfinite(error) else SHRINK
            if step < SMALLEST * max(clock, SMALLEST):
                return clock, taken, rejected, GAVE_UP
    return clock, taken, rejected, RUNNING


@numba.njit(nogil=True, cache=True)
def flow_members(networks, moments, integration, goals, times, counts, members):
    """Take the networks of a range of the batch, weights and times in place.

    `counts` holds for each the steps taken, those rejected, and the outcome: only those that are
    RUNNING move.
    """
    widths, weights, readouts = networks
    size, nodes = weights.shape[1], np.sum(widths)
    scratch = (
        np.empty((len(integration.pair.error), size)), np.empty(size), np.empty(size),
        np.empty((readouts.shape[1], nodes)), np.empty((readouts.shape[1], nodes)),
    )  # fmt: skip
    for b in range(members[0], members[1]):
        if counts[b, 2] == RUNNING:
            times[b], counts[b, 0], counts[b, 1], counts[b, 2] = _flow(
                (widths, readouts[b]), moments, weights[b], integration, times[b], goals[b], scratch
            )
