"""Extreme singular values of many small matrices at once, by one-sided Jacobi rotations.

LAPACK spends most of its time on overhead for the 5×5 layers of the papers; rotating many matrices
side by side takes a small part of it. Large matrices go to LAPACK.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

SMALL = 16
"""Shorter side up to which rotations are faster than LAPACK."""
SWEEPS = 60
"""Far more than the five to ten that double precision needs."""
LANES = 16
"""Matrices rotated side by side."""
ROUNDING = 1e-15
"""Rows whose cosine is below this are orthogonal."""
TINY = 1e-290
"""Inner products below this are lost to underflow."""


class Extremes(NamedTuple):
    """Largest and smallest singular value, and the vectors u, v of the largest."""

    largest: np.ndarray
    smallest: np.ndarray
    left: np.ndarray
    right: np.ndarray


def extreme_singular(matrices: np.ndarray) -> Extremes:
    """Extremes of a stack of matrices (…, m, n); the smallest is over min(m, n) values."""
    *stack, m, n = matrices.shape
    if min(m, n) > SMALL:
        u, s, v = np.linalg.svd(matrices, full_matrices=False)
        return Extremes(s[..., 0], s[..., -1], u[..., :, 0], v[..., 0, :])
    if m > n:
        largest, smallest, right, left = extreme_singular(np.swapaxes(matrices, -1, -2))
        return Extremes(largest, smallest, left, right)
    flat = matrices.reshape(-1, m, n)
    size = np.max(np.abs(flat), axis=(1, 2))  # squares of entries of size one cannot underflow
    flat = flat / np.where(size > 0, size, 1)[:, None, None]
    groups = -(-len(flat) // LANES)
    lanes = np.zeros((groups * LANES, m, n))
    lanes[: len(flat)] = flat
    lanes = np.ascontiguousarray(np.moveaxis(lanes.reshape(groups, LANES, m, n), 1, -1))
    values, right = (
        np.moveaxis(part, -1, 1).reshape(-1, part.shape[1])[: len(flat)] for part in _rotate(lanes)
    )
    largest = values[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.einsum("bij,bj->bi", flat, right) / largest[:, None]
    left[largest == 0] = np.eye(m)[0]
    return Extremes(
        (size * largest).reshape(stack),
        (size * values[:, 1]).reshape(stack),
        left.reshape(*stack, m),
        right.reshape(*stack, n),
    )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _rotate(stack):
    """Rotate the rows of each matrix until they are orthogonal: their norms are its values.

    `stack` is (groups, m, n, LANES); the matrices of a group go through the same rotations side by
    side, which the compiler turns into vector instructions.
    """
    groups, m, n, _ = stack.shape
    values = np.empty((groups, 2, LANES))
    right = np.zeros((groups, n, LANES))
    squares = np.empty((m, LANES))
    for group in range(groups):
        rows = stack[group].copy()
        for _ in range(SWEEPS):
            if _sweep(rows, squares):
                break
        for lane in range(LANES):
            top = np.argmax(squares[:, lane])
            norm = np.sqrt(squares[top, lane])
            values[group, 0, lane] = norm
            values[group, 1, lane] = np.sqrt(np.min(squares[:, lane]))
            for j in range(n):
                if norm > 0:
                    right[group, j, lane] = rows[top, j, lane] / norm
            if norm == 0:
                right[group, 0, lane] = 1.0
    return values, right


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _sweep(rows, squares):
    """One round of rotations over all pairs of rows; whether nothing was left to rotate."""
    m, n, _ = rows.shape
    inner, cosine, sine = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    squares[:] = 0.0
    for i in range(m):
        for j in range(n):
            for lane in range(LANES):
                squares[i, lane] += rows[i, j, lane] ** 2
    active = np.zeros(LANES)
    for p in range(m - 1):
        for q in range(p + 1, m):
            inner[:] = 0.0
            for j in range(n):
                for lane in range(LANES):
                    inner[lane] += rows[p, j, lane] * rows[q, j, lane]
            for lane in range(LANES):
                size = np.sqrt(squares[p, lane] * squares[q, lane])
                turn = 1.0 if abs(inner[lane]) > ROUNDING * size + TINY else 0.0
                active[lane] = max(active[lane], turn)
                zeta = (squares[q, lane] - squares[p, lane]) / (2 * inner[lane])
                tangent = 1 / (abs(zeta) + np.sqrt(1 + zeta * zeta))
                tangent = tangent if zeta >= 0 else -tangent
                tangent = tangent if turn > 0 else 0.0
                cosine[lane] = 1 / np.sqrt(1 + tangent * tangent)
                sine[lane] = cosine[lane] * tangent
                squares[p, lane] -= tangent * inner[lane]
                squares[q, lane] += tangent * inner[lane]
            for j in range(n):
                for lane in range(LANES):
                    x, y = rows[p, j, lane], rows[q, j, lane]
                    rows[p, j, lane] = cosine[lane] * x - sine[lane] * y
                    rows[q, j, lane] = sine[lane] * x + cosine[lane] * y
    return active.max() == 0
