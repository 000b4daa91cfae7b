"""Extreme singular values of many small matrices at once, by one-sided Jacobi rotations.

LAPACK spends most of its time on overhead for the 5×5 layers of the papers; rotating many matrices
side by side takes a small part of it. Large matrices go to LAPACK.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from deeplin.kernels.compiling import call, compiled
from deeplin.kernels.lanes import (
    LANES,
    any_outside,
    choose_less,
    fill,
    load,
    multiply_add,
    square_root,
    store,
)

SMALL = 16
"""Shorter side up to which rotations are faster than LAPACK."""
SWEEPS = 60
"""Far more than the five to ten that double precision needs."""
GROUP = 256 * LANES
"""Matrices worth a thread of their own."""
ROUNDING = 4e-15
"""Rows whose cosine is below this are orthogonal."""
SLIGHT = 1e-17
"""Squared cosine and tangent of rotations so slight that what they undo is lost to rounding."""
TINY = 1e-290
"""Squared inner products below this are lost to underflow."""


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
    values, left, right = _rotated(matrices, vectors=True)
    return Extremes(
        values[:, 0].reshape(stack),
        values[:, 1].reshape(stack),
        left.reshape(*stack, m),
        right.reshape(*stack, n),
    )


def extreme_values(matrices: np.ndarray) -> np.ndarray:
    """Largest and smallest singular value of each matrix of a stack (…, m, n), as (…, 2)."""
    *stack, m, n = matrices.shape
    if min(m, n) > SMALL:
        return np.linalg.svd(matrices, compute_uv=False)[..., [0, -1]]
    upright = matrices if m <= n else np.swapaxes(matrices, -1, -2)
    return _rotated(upright, vectors=False)[0].reshape(*stack, 2)


def extremes_of_layers(layers: Sequence[np.ndarray]) -> list[Extremes]:
    """Extremes of each layer of a batch (…, d_k, d_{k−1})."""
    found = _by_shape(layers, extreme_singular)
    return [Extremes(*(part[place] for part in together)) for together, place in found]


def values_of_layers(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Largest and smallest singular value of each of L layers of a batch, as (…, L, 2)."""
    found = _by_shape(layers, extreme_values)
    return np.stack([together[place] for together, place in found], axis=-2)


def _by_shape(layers: Sequence[np.ndarray], function: Callable) -> list[tuple[Any, int]]:
    """For each layer the result for all layers of its shape, stacked, and its place therein."""
    found: dict[int, tuple[Any, int]] = {}
    for shape in {layer.shape for layer in layers}:
        members = [k for k, layer in enumerate(layers) if layer.shape == shape]
        together = function(np.stack([layers[k] for k in members]))
        found |= {k: (together, place) for place, k in enumerate(members)}
    return [found[k] for k in range(len(layers))]


def _rotated(matrices: np.ndarray, vectors: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Extreme values, and the vectors of the largest if asked for, of m×n matrices with m ≤ n."""
    m, n = matrices.shape[-2:]
    flat = np.ascontiguousarray(matrices, dtype=np.float64).reshape(-1, m, n)
    count = len(flat)
    kept = count if vectors else 0
    found = np.empty((count, 2)), np.zeros((kept, m)), np.zeros((kept, n))
    cuts = range(0, count, max(LANES * -(-count // (2 * LANES)), GROUP))
    pieces = [slice(cut, stop) for cut, stop in pairwise([*cuts, count])]
    if len(pieces) > 1:
        with ThreadPoolExecutor(len(pieces)) as pool:
            list(pool.map(lambda part: call(rotate, flat[part], *(f[part] for f in found)), pieces))
    else:
        call(rotate, flat, *found)
    return found


@compiled
def rotate(stack, values, left, right):
    """Rotate the rows of each matrix until they are orthogonal: their norms are its values.

    The matrices of a lane go through the same rotations. Without place for vectors only values.
    """
    count, m, n = stack.shape
    rows, squares = np.zeros((m * n, LANES)), np.empty((m, LANES))
    sizes = np.ones(LANES)
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        _load(stack[first : first + lanes], rows, sizes)
        for _ in range(SWEEPS):
            if _sweep(rows, squares, m, n):
                break
        for lane in range(lanes):
            b = first + lane
            top = np.argmax(squares[:, lane])
            norm = np.sqrt(squares[top, lane])
            values[b, 0] = sizes[lane] * norm
            values[b, 1] = sizes[lane] * np.sqrt(np.min(squares[:, lane]))
            if len(left) > 0:
                row = rows[top * n : (top + 1) * n, lane]
                _vectors(stack[b], row, norm, values[b, 0], left[b], right[b])


@njit(nogil=True, error_model="numpy")
def _vectors(matrix, row, norm, value, left, right):
    """v is the largest row at length one, u = Av/σ; of a zero matrix any unit vectors will do."""
    m, n = matrix.shape
    if norm == 0:
        left[0] = right[0] = 1.0
        return
    for j in range(n):
        right[j] = row[j] / norm
    for i in range(m):
        for j in range(n):
            left[i] += matrix[i, j] * right[j]
        left[i] /= value


@njit(nogil=True, error_model="numpy")
def _load(stack, rows, sizes):
    """Lay matrices side by side, scaled to entries of size one, whose squares cannot underflow."""
    lanes, m, n = stack.shape
    for lane in range(lanes):
        largest = 0.0
        for i in range(m):
            for j in range(n):
                largest = max(largest, abs(stack[lane, i, j]))
        sizes[lane] = largest if largest > 0 else 1.0
        for i in range(m):
            for j in range(n):
                rows[i * n + j, lane] = stack[lane, i, j] / sizes[lane]


@njit(nogil=True, forceinline=True)
def _sweep(rows, squares, m, n):
    """One round of rotations over all pairs of rows; whether all of them were slight."""
    zero, greatest = fill(rows, 0.0), fill(rows, 0.0)
    for i in range(m):
        total = zero
        for j in range(i * n, (i + 1) * n):
            total = multiply_add(load(rows, j), load(rows, j), total)
        store(squares, i, total)
    for p in range(m - 1):
        for q in range(p + 1, m):
            inner = zero
            for j in range(n):
                inner = multiply_add(load(rows, p * n + j), load(rows, q * n + j), inner)
            tangent, slope = _rotation(inner, load(squares, p), load(squares, q))
            greatest = choose_less(greatest, slope, slope, greatest)
            store(squares, p, load(squares, p) - tangent * inner)
            store(squares, q, multiply_add(tangent, inner, load(squares, q)))
            one = fill(rows, 1.0)
            cosine = one / square_root(multiply_add(tangent, tangent, one))
            sine = cosine * tangent
            for j in range(n):
                x, y = load(rows, p * n + j), load(rows, q * n + j)
                store(rows, p * n + j, cosine * x - sine * y)
                store(rows, q * n + j, multiply_add(sine, x, cosine * y))
    return not any_outside(greatest, fill(rows, -1.0), fill(rows, SLIGHT))


@njit(nogil=True, forceinline=True)
def _rotation(inner, p, q):
    """Tangent of the angle that makes two rows orthogonal, zero where they are; and how great.

    The second is the larger of tangent² and squared cosine, zero where nothing is turned.
    """
    zero, twice, apart = fill(inner, 0.0), inner + inner, q - p
    both, square = p * q, inner * inner
    distance = choose_less(apart, zero, zero - apart, apart)
    root = square_root(multiply_add(apart, apart, twice * twice))
    tangent = twice / (distance + root)
    tangent = choose_less(apart, zero, zero - tangent, tangent)
    limit = multiply_add(fill(inner, ROUNDING**2), both, fill(inner, TINY))
    tangent = choose_less(limit, square, tangent, zero)
    slope, cosine = tangent * tangent, square / both
    slope = choose_less(slope, cosine, cosine, slope)
    return tangent, choose_less(limit, square, slope, zero)
