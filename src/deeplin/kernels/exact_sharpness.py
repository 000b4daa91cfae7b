"""The formula of `exact` for narrow networks with one output, `LANES` of them at once.

Every array below is a sequence of rows, each a lane with one entry for each network: entry (i, j)
of an m×n matrix that starts at row s is row s + i·n + j. The letters are those of `exact`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from deeplin.kernels.compiling import compiled
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

SQUARINGS = 16
CLEAR = 1e-9
"""A matrix of trace one counts as of rank one when the trace of its square is this near to one."""


class _Work(NamedTuple):
    """The matrices of `exact`, and what is left over for it to work in."""

    V: np.ndarray
    B: np.ndarray
    M: np.ndarray
    G: np.ndarray
    H: np.ndarray
    norms: np.ndarray
    """‖V_k‖, ‖W_k‖, ‖B_k‖ of each layer in turn (one more is free), then Cᵀ(w − w*)."""


@compiled
def largest_eigenvalues(flat, widths, root, goal, unit, results):
    """Largest eigenvalue, error and clearness (see `_largest`) of each row of `flat`.

    A row holds the weights of one network, layer after layer, then its read-out.
    """
    batch, size = flat.shape
    r = root.shape[1]
    depth, width = len(widths) - 1, np.max(widths)
    weights, found = np.empty((size, LANES)), np.empty((3, LANES))
    T, S = np.empty((r * r, LANES)), np.empty((r * r, LANES))
    work = _Work(
        np.empty((np.sum(widths), LANES)), np.empty((depth * width * r, LANES)),
        np.empty((r * r, LANES)), np.empty((width * width, LANES)),
        np.empty((width * width, LANES)), np.empty((4 * depth + r, LANES)),
    )  # fmt: skip
    for first in range(0, batch, LANES):
        for lane in range(LANES):
            member = min(first + lane, batch - 1)
            for row in range(size):
                weights[row, lane] = flat[member, row]
        _backward(weights, widths, work.V, work.norms)
        _forward(weights, widths, root, work)
        _error(weights, widths, root, goal, unit, work, found)
        _largest(work.M, T, S, found, r)
        for lane in range(min(LANES, batch - first)):
            for row in range(3):
                results[first + lane, row] = found[row, lane]


@njit(nogil=True, forceinline=True)
def _backward(weights, widths, V, norms):
    """V_{k−1} = W_kᵀ V_k from the read-out down to the product w, and ‖V_k‖², ‖W_k‖²."""
    depth = len(widths) - 1
    start, above = len(weights) - widths[depth], len(V) - widths[depth]
    for i in range(widths[depth]):
        store(V, above + i, load(weights, start + i))
    for k in range(depth, 0, -1):
        m, n = widths[k], widths[k - 1]
        start -= m * n
        for j in range(n):
            total = fill(V, 0.0)
            for i in range(m):
                total = multiply_add(load(weights, start + i * n + j), load(V, above + i), total)
            store(V, above - n + j, total)
        store(norms, 4 * k - 4, _squares(V, above, m))
        store(norms, 4 * k - 3, _squares(weights, start, m * n))
        above -= n


@njit(nogil=True, forceinline=True)
def _forward(weights, widths, root, work):
    """B_{k+1} = W_k B_k from B_1 = C, ‖B_k‖², and M = 2 Σ_k ‖V_k‖² B_kᵀB_k."""
    _, B, M, _, _, norms = work
    depth, start, r, width = len(widths) - 1, 0, root.shape[1], np.max(widths)
    for i in range(widths[0]):
        for j in range(r):
            store(B, i * r + j, fill(B, root[i, j]))
    for row in range(r * r):
        store(M, row, fill(M, 0.0))
    for k in range(depth):
        m, n, here = widths[k + 1], widths[k], k * width * r
        store(norms, 4 * k + 2, _squares(B, here, n * r))
        twice = fill(M, 2.0) * load(norms, 4 * k)
        for i in range(r):
            for j in range(i + 1):
                total = fill(M, 0.0)
                for a in range(n):
                    total = multiply_add(
                        load(B, here + a * r + i), load(B, here + a * r + j), total
                    )
                total = multiply_add(twice, total, load(M, i * r + j))
                store(M, i * r + j, total)
                store(M, j * r + i, total)
        if k + 1 < depth:
            _multiply(weights, start, B, here, B, here + width * r, (m, n, r))
        start += m * n


@njit(nogil=True, forceinline=True)
def _error(weights, widths, root, goal, unit, work, found):
    """The bound of `exact`: √(4 Σ_k ‖V_k‖² tr G_k) and rounding, into found[1]."""
    V, B, _, G, H, norms = work
    depth, r, width = len(widths) - 1, root.shape[1], np.max(widths)
    left, two = 4 * depth, fill(G, 2.0)
    length, miss, weight_of_slip = fill(G, 0.0), fill(G, 0.0), fill(G, 0.0)
    for j in range(r):  # Cᵀ(w − w*)
        total = fill(G, -goal[j])
        for i in range(widths[0]):
            total = multiply_add(fill(G, root[i, j]), load(V, i), total)
        store(norms, left + j, total)
        length = multiply_add(fill(G, goal[j]), fill(G, goal[j]), length)
    for k in range(depth):
        for entry in range(3):
            store(norms, 4 * k + entry, square_root(load(norms, 4 * k + entry)))
        v, layer, b = load(norms, 4 * k), load(norms, 4 * k + 1), load(norms, 4 * k + 2)
        miss = multiply_add(layer * b, v, miss)
        weight_of_slip = choose_less(weight_of_slip, b * v, b * v, weight_of_slip)
    miss = fill(G, unit) * (miss + square_root(length))
    weight_of_slip = fill(G, 4.0 * depth * unit) * weight_of_slip
    total, trace, own, start = fill(G, 0.0), fill(G, 0.0), fill(G, 0.0), 0
    for k in range(depth):
        m, n = widths[k + 1], widths[k]
        v, layer, b = load(norms, 4 * k), load(norms, 4 * k + 1), load(norms, 4 * k + 2)
        total = multiply_add(v * v, trace, total)
        slip = layer * b * weight_of_slip
        own = choose_less(own, slip, slip, own)
        if k + 1 < depth:
            slope = _slope(B, k * width * r, norms, left, n, r)
            slope = two * (slope + b * miss)
            fresh = multiply_add(slope, slope, slip * slip)
            trace = _congruence(weights, start, G, H, fresh, k, m, n)
        start += m * n
    store(found, 1, two * square_root(total) + own)


@njit(nogil=True, forceinline=True)
def _slope(B, here, norms, left, n, r):
    """‖B_k Cᵀ(w − w*)‖."""
    square = fill(B, 0.0)
    for i in range(n):
        total = fill(B, 0.0)
        for j in range(r):
            total = multiply_add(load(B, here + i * r + j), load(norms, left + j), total)
        square = multiply_add(total, total, square)
    return square_root(square)


@njit(nogil=True, forceinline=True)
def _congruence(weights, start, G, H, fresh, k, m, n):
    """G ← W G Wᵀ + fresh·I (from G = 0 at the first layer); returns the trace."""
    if k == 0:
        for row in range(m * m):
            store(G, row, fill(G, 0.0))
    else:
        _multiply(weights, start, G, 0, H, 0, (m, n, n))
        for i in range(m):
            for j in range(i + 1):
                total = fill(G, 0.0)
                for a in range(n):
                    total = multiply_add(
                        load(H, i * n + a), load(weights, start + j * n + a), total
                    )
                store(G, i * m + j, total)
                store(G, j * m + i, total)
    trace = fill(G, 0.0)
    for i in range(m):
        entry = load(G, i * m + i) + fresh
        store(G, i * m + i, entry)
        trace = trace + entry
    return trace


@njit(nogil=True, forceinline=True)
def _largest(M, T, S, found, r):
    """Rayleigh quotient of M with a column of M^(2^k), and tr T² for T = M^(2^(k−1))/trace.

    T has eigenvalues t_1 ≥ t_2 ≥ … ≥ 0 of sum one, so t_2 ≤ 1 − tr T². The largest diagonal entry
    of its square marks a column whose tangent to the eigenvector is of the order of t_2²; the
    quotient is then exact to rounding as soon as tr T² is within CLEAR of one.
    """
    _normalise(M, T, r)
    clear, enough, limit = fill(M, 0.0), fill(M, 1.0 - CLEAR), fill(M, 2.0)
    for _ in range(SQUARINGS):
        _square(T, S, r)
        clear = _normalise(S, T, r)
        if not any_outside(clear, enough, limit):
            break
    best = load(T, 0)
    for j in range(r):
        store(S, j, load(T, j))
    for i in range(1, r):
        entry = load(T, i * r + i)
        for j in range(r):
            store(S, j, choose_less(best, entry, load(T, i * r + j), load(S, j)))
        best = choose_less(best, entry, entry, best)
    above, below = fill(M, 0.0), fill(M, 0.0)
    for i in range(r):
        total = fill(M, 0.0)
        for j in range(r):
            total = multiply_add(load(M, i * r + j), load(S, j), total)
        above = multiply_add(load(S, i), total, above)
        below = multiply_add(load(S, i), load(S, i), below)
    store(found, 0, above / below)
    store(found, 2, clear)


@njit(nogil=True, forceinline=True)
def _normalise(source, target, r):
    """target = source/trace; returns the trace."""
    trace = fill(source, 0.0)
    for i in range(r):
        trace = trace + load(source, i * r + i)
    inverse = fill(source, 1.0) / trace
    for row in range(r * r):
        store(target, row, load(source, row) * inverse)
    return trace


@njit(nogil=True, forceinline=True)
def _square(T, S, r):
    """S = T² of a symmetric matrix."""
    for i in range(r):
        for j in range(i + 1):
            total = fill(T, 0.0)
            for a in range(r):
                total = multiply_add(load(T, i * r + a), load(T, j * r + a), total)
            store(S, i * r + j, total)
            store(S, j * r + i, total)


@njit(nogil=True, forceinline=True)
def _multiply(A, a, B, b, C, c, shape):
    """C = A B for A (m×n) from row a, B (n×p) from row b, C from row c."""
    m, n, p = shape
    for i in range(m):
        for j in range(p):
            total = fill(A, 0.0)
            for k in range(n):
                total = multiply_add(load(A, a + i * n + k), load(B, b + k * p + j), total)
            store(C, c + i * p + j, total)


@njit(nogil=True, forceinline=True)
def _squares(A, start, count):
    """Σ a² over some rows."""
    total = fill(A, 0.0)
    for row in range(start, start + count):
        total = multiply_add(load(A, row), load(A, row), total)
    return total
