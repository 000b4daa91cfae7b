"""Gradient descent of GELU and ReLU networks on the rows of the data, `LANES` networks at once.

Back-propagation over blocks of rows, so that the activations of a block stay in the cache:
H_k = W_k A_{k−1}, A_k = φ(H_k) for k < L; then D_L = p(f − y), D_{k−1} = W_kᵀD_k ∘ φ'(H_{k−1}), and
∇_k R = (2/n) D_k A_{k−1}ᵀ summed over the rows.

Layouts (every row is a lane): entry (i, j) of layer k, m×n, is row start_k + j·m + i; entry i of
A_k on row r of a block is row BLOCK·(d_0 + … + d_{k−1}) + r·d_k + i.
"""

from __future__ import annotations

from functools import cache

from numba import njit

from deeplin.kernels.activations import apply_activation
from deeplin.kernels.lanes import any_outside, fill, load, multiply_add, store

BLOCK = 8
"""Rows of the data taken together."""


@cache
def rows_kernel(square: int, smooth: bool, heavy: bool, sources: str):
    """The compiled function `descend` for square layers of one width (0: any), GELU or ReLU."""

    @njit(nogil=True, cache=True)
    def descend(
        now, was, velocity, gradient, A, slopes, D, rules, readout, inputs, targets, momentum,
        widths, clock, until,
    ):  # fmt: skip
        """Step until `until`, or until some value leaves (goal, ceiling]; return the step reached.

        `rules` holds the rows −η, goal, ceiling and receives the values R. The weights W_t and
        W_{t−1} change places between `now` and `was` at every step.
        """
        assert sources  # in the closure, hence in the key of the cache on disk
        rate, goal, ceiling = load(rules, 0), load(rules, 1), load(rules, 2)
        push = rate * fill(rate, 2.0 / len(inputs))
        beta = fill(now, momentum)
        while True:
            gradient[:] = 0.0
            value = fill(now, 0.0)
            for first in range(0, len(inputs), BLOCK):
                count = min(BLOCK, len(inputs) - first)
                _enter(inputs, A, first, count)
                _forward(now, A, slopes, widths, count, square, smooth)
                value = value + _residual(A, D, readout, targets, widths, first, count)
                _backward(now, A, slopes, D, gradient, widths, count, square)
            value = value / fill(value, len(inputs))
            if clock == until or any_outside(value, goal, ceiling):
                store(rules, 3, value)
                return clock
            now, was = was, now
            _step(now, was, velocity, gradient, push, beta, heavy)
            clock += 1

    return descend


@njit(nogil=True, forceinline=True)
def _enter(inputs, A, first, count):
    """A_0: the same rows of the data for every network."""
    d = inputs.shape[1]
    for r in range(count):
        for j in range(d):
            store(A, r * d + j, fill(A, inputs[first + r, j]))


@njit(nogil=True, forceinline=True)
def _forward(weights, A, slopes, widths, count, square, smooth):
    """A_k = φ(W_k A_{k−1}) with φ', for k < L; A_L = W_L A_{L−1}."""
    start = below = 0
    last = len(widths) - 1
    for k in range(1, last + 1):
        m, n = widths[k], widths[k - 1]
        above = below + BLOCK * n
        if m == square and n == square:  # constants, so that the loops unroll
            _apply(weights, start, A, slopes, below, above, square, square, count, k < last, smooth)
        else:
            _apply(weights, start, A, slopes, below, above, m, n, count, k < last, smooth)
        start += m * n
        below = above


@njit(nogil=True, forceinline=True)
def _apply(weights, start, A, slopes, below, above, m, n, count, active, smooth):
    """One layer on every row of the block."""
    for r in range(count):
        for i in range(m):
            total = fill(weights, 0.0)
            for j in range(n):
                entry = load(weights, start + j * m + i)
                total = multiply_add(entry, load(A, below + r * n + j), total)
            row = above + r * m + i
            if active:
                apply_activation(smooth, total, A, slopes, row)
            else:
                store(A, row, total)


@njit(nogil=True, forceinline=True)
def _residual(A, D, readout, targets, widths, first, count):
    """D_L = Σ_c p_c (f_c − y_c) with f_c = p_cᵀA_L; returns Σ (f − y)² over the block."""
    m, outputs = widths[-1], targets.shape[1]
    top = BLOCK * (widths.sum() - m)
    value = fill(A, 0.0)
    for r in range(count):
        for i in range(m):
            store(D, r * m + i, fill(A, 0.0))
        for c in range(outputs):
            error = fill(A, -targets[first + r, c])
            for i in range(m):
                error = multiply_add(load(readout, c * m + i), load(A, top + r * m + i), error)
            value = multiply_add(error, error, value)
            for i in range(m):
                row = r * m + i
                store(D, row, multiply_add(load(readout, c * m + i), error, load(D, row)))
    return value


@njit(nogil=True, forceinline=True)
def _backward(weights, A, slopes, D, gradient, widths, count, square):
    """Add D_k A_{k−1}ᵀ to the gradient of each layer; D_{k−1} = W_kᵀD_k ∘ φ'(H_{k−1})."""
    start, below = len(weights), BLOCK * (widths.sum() - widths[-1])
    half = len(D) // 2
    here, there = 0, half
    for k in range(len(widths) - 1, 0, -1):
        m, n = widths[k], widths[k - 1]
        start -= m * n
        below -= BLOCK * n
        if m == square and n == square:
            _collect(gradient, start, D, here, A, below, square, square, count)
            if k > 1:
                _pull(weights, start, D, here, there, slopes, below, square, square, count)
        else:
            _collect(gradient, start, D, here, A, below, m, n, count)
            if k > 1:
                _pull(weights, start, D, here, there, slopes, below, m, n, count)
        here, there = there, here


@njit(nogil=True, forceinline=True)
def _collect(gradient, start, D, here, A, below, m, n, count):
    """Add D Aᵀ, summed over the rows of the block."""
    for j in range(n):
        for i in range(m):
            total = load(gradient, start + j * m + i)
            for r in range(count):
                error = load(D, here + r * m + i)
                total = multiply_add(error, load(A, below + r * n + j), total)
            store(gradient, start + j * m + i, total)


@njit(nogil=True, forceinline=True)
def _pull(weights, start, D, here, there, slopes, below, m, n, count):
    """D_{k−1} = W_kᵀD_k ∘ φ'(H_{k−1}) on every row of the block."""
    for r in range(count):
        for j in range(n):
            total = fill(weights, 0.0)
            for i in range(m):
                entry = load(weights, start + j * m + i)
                total = multiply_add(entry, load(D, here + r * m + i), total)
            store(D, there + r * n + j, total * load(slopes, below + r * n + j))


@njit(nogil=True, forceinline=True)
def _step(now, was, velocity, gradient, push, beta, heavy):
    """W ← W − η∇R, or the heavy ball."""
    for row in range(len(now)):
        weight = load(was, row)
        change = beta * load(velocity, row) if heavy else weight
        change = multiply_add(push, load(gradient, row), change)
        if heavy:  # the change is kept, and added to the weight
            store(velocity, row, change)
            change = weight + change
        store(now, row, change)
