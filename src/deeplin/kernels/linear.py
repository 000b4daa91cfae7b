"""Gradient descent of linear networks, `LANES` of them at once, through the moments alone.

With V_k = W_{k+1}ᵀ…W_Lᵀp, g = 2Σ̂(V_0 − w*) and U_k = W_k…W_1 g the gradient of layer k is the
outer product V_k U_{k−1}ᵀ (FM-grad), so a step needs products of matrices with vectors only. The
update of a layer and its next product Wᵀ V share one pass over the weights.

Layouts (every row is a lane): entry (i, j) of layer k, m×n, is row start_k + j·m + i; entry i of
V_k or U_k for output c is row c·size + d_0 + … + d_{k−1} + i, with size = d_0 + … + d_L.
"""

from __future__ import annotations

from functools import cache

from numba import njit

from deeplin.kernels.lanes import any_outside, fill, load, multiply_add, store


@cache
def linear_kernel(square: int, single: bool, heavy: bool, sources: str):
    """The compiled function `descend` for square layers of one width (0: any)."""

    @njit(nogil=True, cache=True)
    def descend(
        now, was, velocity, V, push, U, difference, rules, covariance, optimum, momentum, widths,
        clock, until,
    ):  # fmt: skip
        """Step until `until`, or until some value leaves (goal, ceiling]; return the step reached.

        `rules` holds the rows −η, goal, ceiling and receives the values R − R_min. The weights
        W_t and W_{t−1} change places between `now` and `was` at every step.
        """
        assert sources  # in the closure, hence in the key of the cache on disk
        outputs = 1 if single else optimum.shape[1]
        size = len(V) // outputs
        rate, goal, ceiling = load(rules, 0), load(rules, 1), load(rules, 2)
        _pull_all(now, V, widths, size, outputs)
        while True:
            value = _slope(V, U, difference, covariance, optimum, size, outputs)
            if clock == until or any_outside(value, goal, ceiling):
                store(rules, 3, value)
                return clock
            for row in range(outputs * size):
                store(push, row, rate * load(V, row))
            _forward(now, U, widths, size, square, outputs)
            now, was = was, now
            _step(now, was, velocity, V, push, U, widths, momentum, size, square, outputs, heavy)
            clock += 1

    return descend


@njit(nogil=True, forceinline=True)
def _pull_all(weights, V, widths, size, outputs):
    """V_{k−1} = W_kᵀ V_k from the last layer to the first; V_L = p is given."""
    start, above = len(weights), size - widths[-1]
    for k in range(len(widths) - 1, 0, -1):
        m, n = widths[k], widths[k - 1]
        start -= m * n
        for c in range(outputs):
            _pull(weights, start, V, c * size + above, m, n)
        above -= n


@njit(nogil=True, forceinline=True)
def _pull(weights, start, V, above, m, n):
    """One output of V_{k−1} = W_kᵀ V_k."""
    for j in range(n):
        total = fill(weights, 0.0)
        for i in range(m):
            total = multiply_add(load(weights, start + j * m + i), load(V, above + i), total)
        store(V, above - n + j, total)


@njit(nogil=True, forceinline=True)
def _slope(V, U, difference, covariance, optimum, size, outputs):
    """U_0 = g = 2Σ̂(Θ − Θ*); returns R − R_min = ½⟨Θ − Θ*, g⟩ (FM-L8)."""
    d = len(covariance)
    value = fill(V, 0.0)
    for c in range(outputs):
        for i in range(d):
            store(difference, i, load(V, c * size + i) - fill(V, optimum[i, c]))
        for i in range(d):
            total = fill(V, 0.0)
            for j in range(d):
                total = multiply_add(fill(V, covariance[i, j]), load(difference, j), total)
            value = multiply_add(load(difference, i), total, value)
            store(U, c * size + i, total + total)
    return value


@njit(nogil=True, forceinline=True)
def _forward(weights, U, widths, size, square, outputs):
    """U_k = W_k U_{k−1} for k < L."""
    start = below = 0
    for k in range(1, len(widths) - 1):
        m, n = widths[k], widths[k - 1]
        for c in range(outputs):
            if m == square and n == square:  # constants, so that the loops unroll
                _apply(weights, start, U, c * size + below, square, square)
            else:
                _apply(weights, start, U, c * size + below, m, n)
        start += m * n
        below += n


@njit(nogil=True, forceinline=True)
def _apply(weights, start, U, below, m, n):
    """One output of U_k = W_k U_{k−1}."""
    for i in range(m):
        total = fill(weights, 0.0)
        for j in range(n):
            total = multiply_add(load(weights, start + j * m + i), load(U, below + j), total)
        store(U, below + n + i, total)


@njit(nogil=True, forceinline=True)
def _step(now, was, velocity, V, push, U, widths, momentum, size, square, outputs, heavy):
    """W ← W − η V Uᵀ in every layer, last to first, with the new V_{k−1} = W_kᵀ V_k."""
    start, above = len(now), size - widths[-1]
    beta = fill(now, momentum)
    for k in range(len(widths) - 1, 0, -1):
        m, n = widths[k], widths[k - 1]
        start -= m * n
        if m == square and n == square:
            _step_layer(
                now, was, velocity, V, push, U, start, above, size, beta, square, square, outputs,
                heavy,
            )  # fmt: skip
        else:
            _step_layer(
                now, was, velocity, V, push, U, start, above, size, beta, m, n, outputs, heavy
            )
        for c in range(1, outputs):
            _pull(now, start, V, c * size + above, m, n)
        above -= n


@njit(nogil=True, forceinline=True)
def _step_layer(
    now, was, velocity, V, push, U, start, above, size, beta, m, n, outputs, heavy
):  # fmt: skip
    """The update of one layer and, in the same pass, the first output of its V_{k−1} = W_kᵀ V_k."""
    for j in range(n):
        total = fill(now, 0.0)
        for i in range(m):
            row = start + j * m + i
            weight = load(was, row)
            change = beta * load(velocity, row) if heavy else weight
            for c in range(outputs):
                left, right = c * size + above + i, c * size + above - n + j
                change = multiply_add(load(push, left), load(U, right), change)
            if heavy:  # heavy ball: the change is kept, and added to the weight
                store(velocity, row, change)
                change = weight + change
            store(now, row, change)
            total = multiply_add(change, load(V, above + i), total)
        store(V, above - n + j, total)
