"""Activations on lanes, each with its derivative from the same intermediate values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit

from deeplin.kernels.lanes import (
    LANES,
    by_precision,
    choose_less,
    fill,
    intrinsic,
    load,
    multiply_add,
    stay_apart,
    store,
)

_SLOPE = 2 * math.sqrt(2 / math.pi)
_CUBE = 0.044715 * _SLOPE
_LN_2 = math.log(2)
UNIT = (_CUBE / _LN_2) ** (1 / 3)
"""Of pre-activations and activations in `gelu`: so that h³ has coefficient 1 in the exponent."""
_LINEAR = _SLOPE / (_LN_2 * UNIT)
_P = (874.8001404202922, 65555.96262442159)  # and 1
_Q = (43.30251068623498, 10097.461425708074, 189154.52435791053)


@njit(nogil=True, forceinline=True)
def gelu(values, slopes, first, last):
    """GELU, tanh approximation, h·½(1 + tanh z) with 2z = 2√(2/π)(h + 0.044715 h³), and its slope.

    Values are in units: u = ch stands for h, and the result cφ(h) for φ(h), with c = `UNIT`; then
    2z/ln 2 = u(u² + a) has one product less. Since ½(1 + tanh z) = 1/(1 + e^{−2z}) =: s, no tanh is
    needed, and both s and 1 − s come without cancellation: e^{2z} = 2^{u(u² + a)} = A/B, so
    s = A/(A + B), with one division. The slope is s + h·s·(1 − s)(2z)'. With machine precision ε
    the value is within 2ε|h| of the formula and the slope within 4ε. Its cost is that of 13
    products, a division, and little else.

    Each lane is begun five rows before it is finished. Taken one by one they would wait: from the
    first to the last of its operations a GELU takes longer than the machine looks ahead. What is
    begun has few registers to wait in, so u is read twice, and (2z)' waits in the slope's place.
    """
    end = last - 1
    divided = _divide(*power(_begin(values, slopes, first)))
    joined = power(_begin(values, slopes, min(first + 1, end)))
    terms = _expand(*_split(_begin(values, slopes, min(first + 2, end))))
    parts = _split(_begin(values, slopes, min(first + 3, end)))
    begun = _begin(values, slopes, min(first + 4, end))
    for row in range(first, last):
        ready, divided, joined = divided, _divide(*joined), _join(*terms)
        terms, parts = _expand(*parts), _split(begun)
        begun = _begin(values, slopes, min(row + 5, end))
        value, slope = _finish(load(values, row), load(slopes, row), *ready)
        store(values, row, value)
        store(slopes, row, slope)


@njit(nogil=True, forceinline=True)
def _begin(values, slopes, row):
    """2z/ln 2; its derivative (2z)'/c is put where the slope will be."""
    u = load(values, row)
    square = u * u
    store(slopes, row, multiply_add(fill(u, 3 * _LN_2), square, fill(u, _LINEAR * _LN_2)))
    return u * (square + fill(u, _LINEAR))


@njit(nogil=True, forceinline=True)
def _divide(above, below):
    return above, below, fill(above, 1.0) / (below + above)


@njit(nogil=True, forceinline=True)
def _finish(u, turn, above, below, inverse):
    """The value and the slope, with `turn` = (2z)'/c."""
    s, complement = above * inverse, below * inverse
    value = u * s
    return value, multiply_add(value, turn * complement, s)


@njit(nogil=True, forceinline=True)
def power(x):
    """Positive lanes A, B with 2^x = A/B, for |x| up to 1000 (100 in float32), the ends beyond.

    x = k + f with a whole number k and |f| ≤ ½, both exact, and 2^f = (Q + fP)/(Q − fP), that is
    tanh(½f ln 2) = fP/Q, with polynomials P, Q in f² that make this exact at the zeros of the
    Chebyshev polynomial T₁₁(2f); in between it is accurate to 6·10⁻¹⁸.
    """
    return _join(*_expand(*_split(x)))


@njit(nogil=True, forceinline=True)
def _split(x):
    """f, and k in the lowest bits."""
    end = fill(x, by_precision(x, 1000.0, 100.0))
    start = fill(x, by_precision(x, -1000.0, -100.0))
    x = choose_less(x, end, x, end)
    x = choose_less(x, start, start, x)
    k, marked = nearest_whole(x)
    return x - k, marked


@njit(nogil=True, forceinline=True)
def _expand(f, marked):
    """fP, and what Q lacks."""
    square = f * f
    P = multiply_add(square + fill(f, _P[0]), square, fill(f, _P[1]))
    Q = multiply_add(fill(f, _Q[0]), square, fill(f, _Q[1]))
    return f * P, square, Q, marked


@njit(nogil=True, forceinline=True)
def _join(P, square, Q, marked):
    Q = multiply_add(Q, square, fill(P, _Q[2]))
    return times_power(Q + P, marked), Q - P


@njit(nogil=True, forceinline=True)
def relu(values, slopes, first, last):
    """max(h, 0) and its slope, 0 at h = 0; NaN stays NaN."""
    zero, one = fill(values, 0.0), fill(values, 1.0)
    for row in range(first, last):
        h = load(values, row)
        store(values, row, choose_less(h, zero, zero, h))
        store(slopes, row, choose_less(zero, h, one, zero))


@njit(nogil=True, forceinline=False)
def activate(smooth, values, slopes, first, last):
    """GELU (if `smooth`) or ReLU of the lanes first … last − 1, in place, and its slopes."""
    stay_apart()
    if smooth:
        gelu(values, slopes, first, last)
    else:
        relu(values, slopes, first, last)


@njit(nogil=True, forceinline=True)
def nearest_whole(x):
    """The whole number k nearest to x, and x + 1.5·2^m, with m the bits of a mantissa.

    The sum has no room for a fraction, and k stands in its lowest bits.
    """
    shift = fill(x, by_precision(x, 1.5 * 2.0**52, 1.5 * 2.0**23))
    marked = x + shift
    return marked - shift, marked


@intrinsic
def times_power(typing_context, a, marked) -> Any:
    """a·2^k, with k in the lowest bits of `marked`; a and the result must be normal numbers.

    These bits are added to the exponent of a.
    """
    bits = a.dtype.bitwidth
    mantissa = np.finfo(f"float{bits}").nmant

    def build(context, builder, signature, arguments):
        integers = ir.VectorType(ir.IntType(bits), LANES)
        number, power = (builder.bitcast(argument, integers) for argument in arguments)
        power = builder.shl(power, ir.Constant(integers, [mantissa] * LANES))
        return builder.bitcast(builder.add(number, power), arguments[0].type)

    return a(a, marked), build
