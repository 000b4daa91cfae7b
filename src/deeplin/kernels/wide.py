"""Descent of one linear network with wide layers: each step a rank-q update of every layer.

The covariance is diagonal (any problem, in the eigenbasis of Σ̂): O(L r² q) operations for width r
and two passes over the weights, because the update of this step and the backward products of the
next share one. `ROWS` rows of a layer are handled at a time, and their lanes lie side by side: so
memory is read from front to back. What fills a layer up are zeros, which descent keeps.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numba.extending import register_jitable

from deeplin.kernels.compiling import SUMS, compiled
from deeplin.kernels.lanes import LANES, fill, load, multiply_add, store, sum_entries

RUNNING, REACHED, LOST = 0, 1, 2
ROWS = 4

inlined = numba.njit(nogil=True, forceinline=True, fastmath=SUMS)


class Moving(NamedTuple):
    """Layers one after another, and the velocity of the heavy ball likewise (empty without)."""

    weights: np.ndarray
    """Lanes; the layer from d to m units has `rows_of(m)` rows of `blocks_of(d)` lanes, and lane b
    of row j is at (j // ROWS · blocks + b) · ROWS + j % ROWS."""
    velocity: np.ndarray
    widths: np.ndarray


class Diagonal(NamedTuple):
    """The risk floor + Σλ(Θ−Θ*)² in the eigenbasis of Σ̂, and the seeds of backward products."""

    outer: np.ndarray
    """q × d_L: the read-out, or the identity."""
    eigenvalues: np.ndarray
    optimum: np.ndarray
    """Θ* transposed, q × d_0."""
    floor: float


class Motion(NamedTuple):
    """How a network moves and when it stops."""

    learning_rate: float
    momentum: float
    goal: float
    ceiling: float


class _Thin(NamedTuple):
    """The q backward or forward products at every layer."""

    lanes: np.ndarray
    numbers: np.ndarray
    """The same memory, (layers, q, width)."""


@register_jitable
def rows_of(width):
    """Rows of a layer with this many outputs."""
    return -(-width // ROWS) * ROWS


@register_jitable
def blocks_of(width):
    """Lanes of a row of a layer with this many inputs."""
    return -(-width // LANES)


@inlined
def _thin(layers, q, widths):
    lanes = np.zeros((layers * q * blocks_of(widths.max()), LANES))
    return _Thin(lanes, lanes.reshape(layers, q, -1))


@inlined
def _start(thin, k, s):
    """Where vector s of layer k begins, in lanes."""
    return (k * thin.numbers.shape[1] + s) * thin.numbers.shape[2] // LANES


@inlined
def _load_rows(array, at):
    """A lane of each of `ROWS` rows."""
    return load(array, at), load(array, at + 1), load(array, at + 2), load(array, at + 3)


@inlined
def _store_rows(array, at, rows):
    """Write a lane to each of `ROWS` rows."""
    for r in range(ROWS):
        store(array, at + r, rows[r])


@inlined
def _multiplied(rows, factors, added):
    """A lane times a factor plus another lane, row by row."""
    return (
        multiply_add(factors[0], rows[0], added[0]), multiply_add(factors[1], rows[1], added[1]),
        multiply_add(factors[2], rows[2], added[2]), multiply_add(factors[3], rows[3], added[3]),
    )  # fmt: skip


@inlined
def _factors(thin, k, s, j):
    """Entries j … j+3 of a vector, each in all entries of a lane."""
    numbers, like = thin.numbers, thin.lanes
    first, second = fill(like, numbers[k, s, j]), fill(like, numbers[k, s, j + 1])
    return first, second, fill(like, numbers[k, s, j + 2]), fill(like, numbers[k, s, j + 3])


@inlined
def _push_forward(weights, start, rows, blocks, forward, k, q):
    """U_k = W_k U_{k−1}."""
    nothing = fill(weights, 0.0)
    for j in range(0, rows, ROWS):
        for s in range(q):
            lower, totals = _start(forward, k - 1, s), (nothing, nothing, nothing, nothing)
            for b in range(blocks):
                u = load(forward.lanes, lower + b)
                layer = _load_rows(weights, start + j * blocks + b * ROWS)
                totals = _multiplied(layer, (u, u, u, u), totals)
            for r in range(ROWS):
                forward.numbers[k, s, j + r] = sum_entries(totals[r])


@inlined
def _slope(target, product, slope, step):
    """R = floor + Σλ(Θ−Θ*)², and −η times its gradient 2λ(Θ−Θ*) in Θ (FM-grad)."""
    eigenvalues, optimum, risk = target.eigenvalues, target.optimum, target.floor
    for s in range(optimum.shape[0]):
        for i in range(len(eigenvalues)):
            difference = product[s, i] - optimum[s, i]
            slope[s, i] = -2 * step * eigenvalues[i] * difference
            risk += eigenvalues[i] * difference * difference
    return risk


@inlined
def _sweep_down(network, momentum, moving, forward, old, new, q):
    """Add V_kU_{k−1}ᵀ (U with the factor −η) to every layer from the last to the first.

    The backward products V of the moved layers are left in `new`.
    """
    weights, widths = network.weights, network.widths
    start = len(weights)
    for k in range(len(widths) - 1, 0, -1):
        rows, blocks = rows_of(widths[k]), blocks_of(widths[k - 1])
        start -= rows * blocks
        for s in range(q):
            for b in range(blocks):
                store(new.lanes, _start(new, k - 1, s) + b, fill(weights, 0.0))
        for j in range(0, rows, ROWS):
            for b in range(blocks):
                at = start + j * blocks + b * ROWS
                layer = _load_rows(weights, at)
                if moving:
                    layer = _moved(network, at, layer, momentum, forward, old, (k, j, b), q)
                for s in range(q):
                    below = _start(new, k - 1, s) + b
                    upper = _factors(new, k, s, j)
                    total = multiply_add(upper[0], layer[0], load(new.lanes, below))
                    total = multiply_add(upper[1], layer[1], total)
                    total = multiply_add(upper[2], layer[2], total)
                    store(new.lanes, below, multiply_add(upper[3], layer[3], total))


@inlined
def _moved(network, at, layer, momentum, forward, old, place, q):
    """A lane of `ROWS` rows: W += V_kU_{k−1}ᵀ, or the velocity likewise and then W."""
    (k, j, b), rows = place, layer
    if momentum != 0.0:
        beta, nothing = fill(network.weights, momentum), fill(network.weights, 0.0)
        speed = _load_rows(network.velocity, at)
        rows = _multiplied(speed, (beta, beta, beta, beta), (nothing, nothing, nothing, nothing))
    for s in range(q):
        u = load(forward.lanes, _start(forward, k - 1, s) + b)
        rows = _multiplied((u, u, u, u), _factors(old, k, s, j), rows)
    if momentum != 0.0:
        _store_rows(network.velocity, at, rows)
        one = fill(network.weights, 1.0)
        rows = _multiplied(rows, (one, one, one, one), layer)
    _store_rows(network.weights, at, rows)
    return rows


@compiled
def descend(network, target, motion, steps, path):
    """Up to `steps` steps; returns (outcome, steps taken, R at the end, path + Σ√R)."""
    if len(target.outer) == 1:  # most often, and a constant makes its loops vanish
        return _descend(network, target, motion, steps, path, 1)
    return _descend(network, target, motion, steps, path, len(target.outer))


@inlined
def _descend(network, target, motion, steps, path, q):
    widths, outer = network.widths, target.outer
    depth = len(widths) - 1
    now, then = _thin(depth + 1, q, widths), _thin(depth + 1, q, widths)
    forward = _thin(depth, q, widths)
    for products in (now, then):
        products.numbers[depth, :, : outer.shape[1]] = outer
    _sweep_down(network, 0.0, False, forward, then, now, q)
    for taken in range(steps + 1):
        risk = _slope(target, now.numbers[0], forward.numbers[0], motion.learning_rate)
        if risk <= motion.goal:
            return REACHED, taken, risk, path
        if not risk <= motion.ceiling:
            return LOST, taken, risk, path
        if taken == steps:
            break
        path += np.sqrt(risk)
        start = 0
        for k in range(1, depth):
            rows, blocks = rows_of(widths[k]), blocks_of(widths[k - 1])
            _push_forward(network.weights, start, rows, blocks, forward, k, q)
            start += rows * blocks
        _sweep_down(network, motion.momentum, True, forward, now, then, q)
        now, then = then, now
    return RUNNING, steps, risk, path
