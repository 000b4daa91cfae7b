"""Compiled code for linear networks with one output, the same for every depth and width.

The library's descent and sharpness are compiled for a shape, which takes seconds; a slider that
changes the shape cannot wait for that. This code is slower for each step and never compiled again.
Weights of a network are one flat vector, layer after layer.
"""

from __future__ import annotations

import numba
import numpy as np

LIMIT = 40
"""Most Hessian-vector products for one network."""
SECOND, FRESH = 0.5, 0.2
"""Shares of the second Ritz vector and of a random one in every start, so that an eigenvalue that
overtakes the first is found."""


@numba.njit(nogil=True, cache=True)
def descend(
    widths, start, readout, twice_covariance, optimum, learning_rate, steps, every, ceiling
):
    """Gradient descent of one network: weights at steps 0, k, 2k, … and the last, and those steps.

    The last value is the step at which R − R_min was above the ceiling, or −1; the weights before
    that step then end the record.
    """
    size = start.size
    snapshots = np.empty((steps // every + 2, size))
    moments = np.zeros(len(snapshots), np.int64)
    weights, before = start.copy(), start.copy()
    backward, forward = np.empty(widths.sum()), np.empty(widths.sum())
    d, count = widths[0], 0
    for step in range(steps + 1):
        _sweep(widths, weights, readout, twice_covariance, optimum, backward, forward)
        gap = 0.5 * np.dot(backward[:d] - optimum, forward[:d])
        lost = not gap <= ceiling
        if lost or step % every == 0 or step == steps:
            snapshots[count] = before if lost else weights
            moments[count] = step
            count += 1
        if lost or step == steps:
            return snapshots[:count], moments[:count], step if lost else -1
        before[:] = weights
        _step(widths, weights, backward, forward, learning_rate)
    return snapshots[:0], moments[:0], -1  # not reached: the loop returns at its last step


@numba.njit(nogil=True, cache=True)
def _step(widths, weights, backward, forward, learning_rate):
    """W_k ← W_k − η v_k u_kᵀ for every layer (FM-grad)."""
    place, node = 0, 0
    for k in range(1, widths.size):
        rows, columns = widths[k], widths[k - 1]
        for i in range(rows):
            push = learning_rate * backward[node + columns + i]
            for j in range(columns):
                weights[place + i * columns + j] -= push * forward[node + j]
        place, node = place + rows * columns, node + columns


@numba.njit(nogil=True, cache=True)
def follow(widths, twice_covariance, optimum, random, tolerance, networks, readouts):
    """The largest eigenvalue at each record of one run, with residual and products used."""
    records, size = networks.shape
    values, errors = np.full(records, np.nan), np.full(records, np.nan)
    products = np.zeros(records, np.int64)
    basis = np.empty((LIMIT + 1, size))
    fresh = random / np.linalg.norm(random)
    start = fresh.copy()
    backward, forward = np.empty(widths.sum()), np.empty(widths.sum())
    for record in range(records):
        if not np.all(np.isfinite(networks[record])):
            continue
        _sweep(
            widths, networks[record], readouts[record], twice_covariance, optimum, backward, forward
        )
        basis[0] = start + FRESH * fresh
        basis[0] /= np.linalg.norm(basis[0])
        value, error, used, following = _lanczos(
            widths, networks[record], twice_covariance, backward, forward, basis, tolerance
        )
        values[record], errors[record], products[record] = value, error, used
        if np.isfinite(value):
            start = following
    return values, errors, products


@numba.njit(nogil=True, cache=True)
def _sweep(widths, weights, readout, twice_covariance, optimum, backward, forward):
    """All v_k = W_{k+1}ᵀ…W_Lᵀp into `backward`, u_k = W_{k−1}…W_1 g into `forward` (FM-grad)."""
    last = widths.size - 1
    place, node = weights.size, backward.size - widths[last]
    backward[node:] = readout
    for k in range(last, 0, -1):
        rows, columns = widths[k], widths[k - 1]
        place -= rows * columns
        for j in range(columns):
            total = 0.0
            for i in range(rows):
                total += weights[place + i * columns + j] * backward[node + i]
            backward[node - columns + j] = total
        node -= columns
    d = widths[0]
    forward[:d] = twice_covariance @ (backward[:d] - optimum)
    place, node = 0, 0
    for k in range(1, last):
        rows, columns = widths[k], widths[k - 1]
        for i in range(rows):
            total = 0.0
            for j in range(columns):
                total += weights[place + i * columns + j] * forward[node + j]
            forward[node + columns + i] = total
        place, node = place + rows * columns, node + columns


@numba.njit(nogil=True, cache=True)
def _multiply(widths, weights, twice_covariance, backward, forward, vector, image):
    """Hδ: the derivative of ∇_k = v_k u_kᵀ along δ, that is δv_k u_kᵀ + v_k δu_kᵀ."""
    last, d = widths.size - 1, widths[0]
    moved = np.zeros(backward.size)  # δv_k: how the backward products move
    place, node = weights.size, backward.size - widths[last]
    for k in range(last, 0, -1):
        rows, columns = widths[k], widths[k - 1]
        place -= rows * columns
        for i in range(rows):
            v, dv = backward[node + i], moved[node + i]
            for j in range(columns):
                at = place + i * columns + j
                moved[node - columns + j] += vector[at] * v + weights[at] * dv
        node -= columns
    change = twice_covariance @ moved[:d]  # δu_k, from δg = 2Σ̂ δw on
    place, node = 0, 0
    for k in range(1, last + 1):
        rows, columns = widths[k], widths[k - 1]
        following = np.zeros(rows)
        for i in range(rows):
            v, dv = backward[node + columns + i], moved[node + columns + i]
            for j in range(columns):
                at = place + i * columns + j
                image[at] = dv * forward[node + j] + v * change[j]
                following[i] += vector[at] * forward[node + j] + weights[at] * change[j]
        change = following
        place, node = place + rows * columns, node + columns


@numba.njit(nogil=True, cache=True)
def _lanczos(widths, weights, twice_covariance, backward, forward, basis, tolerance):
    """Lanczos with full reorthogonalisation: θ, its residual, products, the next start."""
    limit = min(LIMIT, weights.size)
    table = np.zeros((limit, limit))
    image = np.empty(weights.size)
    steps, check = 0, 5
    while True:
        known = basis[: steps + 1]
        _multiply(widths, weights, twice_covariance, backward, forward, basis[steps], image)
        inner = known @ image
        image -= inner @ known
        again = known @ image  # once more: rounding would let the basis lose orthogonality
        image -= again @ known
        table[steps, steps] = inner[steps] + again[steps]
        rest = np.linalg.norm(image)
        steps += 1
        exhausted = not rest > 1e-13 * np.abs(table).max()
        if steps >= check or steps == limit or exhausted:
            if not np.isfinite(rest):
                return np.nan, np.nan, steps, basis[0].copy()
            values, vectors = np.linalg.eigh(table[:steps, :steps])
            error = rest * abs(vectors[-1, -1])
            if steps == limit or exhausted or error <= tolerance * abs(values[-1]):
                mixture = vectors[:, -1].copy()
                if steps > 1:
                    mixture += SECOND * vectors[:, -2]
                return values[-1], error, steps, mixture @ basis[:steps]
            check = steps + 2 + steps // 3
        table[steps, steps - 1] = table[steps - 1, steps] = rest
        basis[steps] = image / rest
