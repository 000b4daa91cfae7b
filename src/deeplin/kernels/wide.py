"""Descent of one linear network with wide layers: each step a rank-q update of every layer.

The covariance is diagonal (any problem, in the eigenbasis of Σ̂): O(L r² q) operations for width r
and two passes over the weights, because the update of this step and the backward products of the
next share one. Sizes are multiples of `ROWS`, the rows handled at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

RUNNING, REACHED, LOST = 0, 1, 2
ROWS = 4
# Sums may be reordered and fused, but NaN and infinity keep their meaning: divergence must show.
FLAGS = {"reassoc", "contract", "nsz", "arcp"}


class Moving(NamedTuple):
    """Layers one after another, and the velocity of the heavy ball likewise (empty without)."""

    weights: np.ndarray
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


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def _subtract(layer, j, left, right):
    """Rows j … j+3 of W −= left ᵀright, a rank-q update."""
    w0, w1, w2, w3 = layer[j], layer[j + 1], layer[j + 2], layer[j + 3]
    for s in range(left.shape[0]):
        c0, c1, c2, c3 = left[s, j], left[s, j + 1], left[s, j + 2], left[s, j + 3]
        u = right[s]
        for i in range(layer.shape[1]):
            x = u[i]
            w0[i] -= c0 * x
            w1[i] -= c1 * x
            w2[i] -= c2 * x
            w3[i] -= c3 * x


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def _pull_back(layer, j, upper, lower):
    """Add what rows j … j+3 contribute to V_{k−1} = W_kᵀV_k."""
    w0, w1, w2, w3 = layer[j], layer[j + 1], layer[j + 2], layer[j + 3]
    for s in range(upper.shape[0]):
        c0, c1, c2, c3 = upper[s, j], upper[s, j + 1], upper[s, j + 2], upper[s, j + 3]
        v = lower[s]
        for i in range(layer.shape[1]):
            v[i] += c0 * w0[i] + c1 * w1[i] + c2 * w2[i] + c3 * w3[i]


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def _push_forward(layer, lower, upper):
    """U_k = W_k U_{k−1}."""
    for j in range(0, layer.shape[0], ROWS):
        w0, w1, w2, w3 = layer[j], layer[j + 1], layer[j + 2], layer[j + 3]
        for s in range(lower.shape[0]):
            u = lower[s]
            t0 = t1 = t2 = t3 = 0.0
            for i in range(layer.shape[1]):
                x = u[i]
                t0 += x * w0[i]
                t1 += x * w1[i]
                t2 += x * w2[i]
                t3 += x * w3[i]
            upper[s, j], upper[s, j + 1], upper[s, j + 2], upper[s, j + 3] = t0, t1, t2, t3


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def _slope(target, product, slope):
    """R = floor + Σλ(Θ−Θ*)² and its gradient 2λ(Θ−Θ*) in Θ (FM-grad)."""
    eigenvalues, optimum, risk = target.eigenvalues, target.optimum, target.floor
    for s in range(optimum.shape[0]):
        for i in range(len(eigenvalues)):
            difference = product[s, i] - optimum[s, i]
            slope[s, i] = 2 * eigenvalues[i] * difference
            risk += eigenvalues[i] * difference * difference
    return risk


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def _sweep_down(network, step, momentum, forward, old, new):
    """Update every layer from the last to the first; leave its backward products in `new`.

    With step 0 and no momentum the weights stay as they are.
    """
    weights, velocity, widths = network
    moving = step != 0.0 or momentum != 0.0
    end = len(weights)
    for k in range(len(widths) - 1, 0, -1):
        rows, columns = widths[k], widths[k - 1]
        start = end - rows * columns
        layer = weights[start:end].reshape(rows, columns)
        new[k - 1][:, :columns] = 0.0
        left = step * old[k]
        for j in range(0, rows, ROWS):
            if momentum != 0.0:
                speed = velocity[start:end].reshape(rows, columns)
                speed[j : j + ROWS] *= momentum
                _subtract(speed, j, left, forward[k - 1])
                layer[j : j + ROWS] += speed[j : j + ROWS]
            elif moving:
                _subtract(layer, j, left, forward[k - 1])
            _pull_back(layer, j, new[k], new[k - 1])
        end = start


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def descend(network, target, motion, steps, path):
    """Up to `steps` steps; returns (outcome, steps taken, R at the end, path + Σ√R)."""
    weights, widths, outer = network.weights, network.widths, target.outer
    depth, q = len(widths) - 1, outer.shape[0]
    backward = np.zeros((2, depth + 1, q, widths.max()))
    forward = np.zeros((depth, q, widths.max()))
    for side in range(2):
        backward[side, depth, :, : outer.shape[1]] = outer
    _sweep_down(network, 0.0, 0.0, forward, backward[1], backward[0])
    now = 0
    for taken in range(steps + 1):
        risk = _slope(target, backward[now, 0], forward[0])
        if risk <= motion.goal:
            return REACHED, taken, risk, path
        if not risk <= motion.ceiling:
            return LOST, taken, risk, path
        if taken == steps:
            break
        path += np.sqrt(risk)
        start = 0
        for k in range(1, depth):
            rows, columns = widths[k], widths[k - 1]
            layer = weights[start : start + rows * columns].reshape(rows, columns)
            _push_forward(layer, forward[k - 1], forward[k])
            start += rows * columns
        _sweep_down(
            network, motion.learning_rate, motion.momentum, forward, backward[now],
            backward[1 - now],
        )  # fmt: skip
        now = 1 - now
    return RUNNING, steps, risk, path
