"""Activations on lanes, each with its derivative from the same intermediate values."""

from __future__ import annotations

import math

from numba import njit

from deeplin.kernels.lanes import (
    by_precision,
    choose_less,
    fill,
    load,
    multiply_add,
    nearest_power,
    store,
)

_SLOPE = 2 * math.sqrt(2 / math.pi)
_CUBE = 0.044715 * _SLOPE
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.4286068203094172e-06  # high: 16 bits, so k·high is exact
_P = (1.2617719307481059e-4, 3.0299440770744196e-2)  # and 1
_Q = (3.0019850513866446e-6, 2.5244834034968410e-3, 2.2726554820815503e-1, 2.0)


@njit(nogil=True, forceinline=True)
def gelu(h):
    """GELU, tanh approximation, h·½(1 + tanh z) with 2z = 2√(2/π)(h + 0.044715 h³), and its slope.

    Since ½(1 + tanh z) = 1/(1 + e^{−2z}) =: s, no tanh is needed, and both s and 1 − s come
    without cancellation: e^{−2z} = 2^k N(r)/D(r), so s = D/(D + 2^k N), with one division. With
    machine precision ε the value is within 2ε|h| of the formula and the slope within 4ε; faster
    would be less accurate: the vector unit does a multiplication in every cycle.
    """
    square = h * h
    inner = multiply_add(fill(h, -_CUBE), square, fill(h, -_SLOPE))  # −2z/h
    above, below = exponential_parts(h * inner)
    inverse = fill(h, 1.0) / (below + above)
    s, complement = below * inverse, above * inverse
    turn = multiply_add(fill(h, 3 * _CUBE), square, fill(h, _SLOPE))  # the derivative of 2z
    return h * s, multiply_add(h * turn, s * complement, s)


@njit(nogil=True, forceinline=True)
def exponential_parts(x):
    """Positive lanes A, B with e^x = A/B, for |x| up to 700 (80 in float32), the ends beyond.

    x = k ln 2 + r with |r| ≤ ½ ln 2, and e^r = (Q + rP)/(Q − rP) with polynomials P, Q in r² (the
    rational approximation of the Cephes library, accurate to 2·10⁻¹⁶).
    """
    end = fill(x, by_precision(x, 700.0, 80.0))
    start = fill(x, by_precision(x, -700.0, -80.0))
    x = choose_less(x, end, x, end)
    x = choose_less(x, start, start, x)
    k, power = nearest_power(x, fill(x, _LOG2_E))
    r = multiply_add(k, fill(x, -_LN2_HIGH), x)
    r = multiply_add(k, fill(x, -_LN2_LOW), r)
    square = r * r
    P = multiply_add(fill(x, _P[0]), square, fill(x, _P[1]))
    P = multiply_add(P, r * square, r)
    Q = multiply_add(fill(x, _Q[0]), square, fill(x, _Q[1]))
    Q = multiply_add(Q, square, fill(x, _Q[2]))
    Q = multiply_add(Q, square, fill(x, _Q[3]))
    return (Q + P) * power, Q - P


@njit(nogil=True, forceinline=True)
def relu(h):
    """max(h, 0) and its slope, 0 at h = 0; NaN stays NaN."""
    zero, one = fill(h, 0.0), fill(h, 1.0)
    slope = choose_less(zero, h, one, zero)
    return choose_less(h, zero, zero, h), slope


@njit(nogil=True, forceinline=True)
def apply_activation(smooth, h, values, slopes, row):
    """Store value and slope of GELU (if `smooth`) or ReLU at `row`."""
    value, slope = gelu(h) if smooth else relu(h)
    store(values, row, value)
    store(slopes, row, slope)


@njit(nogil=True, forceinline=True)
def activate(smooth, inputs, values, slopes):
    """GELU or ReLU of every lane of an array, with slopes: the activation as the kernels see it."""
    for row in range(len(inputs)):
        apply_activation(smooth, load(inputs, row), values, slopes, row)
