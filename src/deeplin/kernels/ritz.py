"""Rayleigh-Ritz steps of a few vectors with known images, in lanes or for a single operator.

A vector and its image Hx are two arrays; `active` is 1 where a step shall be taken, else 0: what is
not active stays as it is, to the last bit.
"""

from __future__ import annotations

import numpy as np

from deeplin.kernels.compiling import compiled
from deeplin.kernels.lanes import (
    absolute,
    any_less,
    choose_less,
    fill,
    load,
    multiply_add,
    square_root,
    store,
)

LEAST = 1e-3
"""Length that must be left of a unit vector for it to be a direction of its own."""


@compiled
def judge(vector, image):
    """Rayleigh quotient, residual ‖Hx − θx‖ and ‖Hx‖² of a vector of length one, to rounding.

    The quotient has its denominator: a residual that is not orthogonal to x would add to the error
    of its length at every step.
    """
    length = value = square = fill(vector, 0.0)
    for n in range(len(vector)):
        x, y = load(vector, n), load(image, n)
        length = multiply_add(x, x, length)
        value = multiply_add(x, y, value)
        square = multiply_add(y, y, square)
    value = quotient(value, length)
    return value, residual(vector, image, value), square


@compiled
def quotient(value, length):
    """⟨x, Hx⟩/⟨x, x⟩, zero for a vector of zeros."""
    none = fill(value, 0.0)
    return choose_less(none, length, value / length, none)


@compiled
def residual(vector, image, value):
    """‖Hx − θx‖."""
    total = fill(vector, 0.0)
    for n in range(len(vector)):
        difference = load(image, n) - value * load(vector, n)
        total = multiply_add(difference, difference, total)
    return square_root(total)


@compiled
def residual_direction(vector, image, value, length, active, slope):
    """(Hx − θx)/‖Hx − θx‖ where active, else zero."""
    none = fill(vector, 0.0)
    factor = choose_less(none, length * active, fill(vector, 1.0) / length, none)
    for n in range(len(vector)):
        store(slope, n, (load(image, n) - value * load(vector, n)) * factor)


@compiled
def step(pair, slope, last, value, r, active):
    """Improve a Ritz vector by its residual, of length r, alone; the step goes into `last`."""
    (vector, image), (direction, q) = pair, slope
    a = fill(vector, 0.0)
    for n in range(len(vector)):
        a = multiply_add(load(direction, n), load(q, n), a)
    none, one = fill(vector, 0.0), fill(vector, 1.0)
    y = choose_less(none, active * r, _larger_root(a - value, r) / r, none)
    norm = one / square_root(multiply_add(y, y, one))
    d, e = last
    for n in range(len(vector)):
        move, image_move = y * load(direction, n), y * load(q, n)
        store(d, n, move)
        store(e, n, image_move)
        store(vector, n, norm * (load(vector, n) + move))
        store(image, n, norm * (load(image, n) + image_move))


@compiled
def conjugate_step(pair, slope, last, value, r, active, follows):
    """Rayleigh-Ritz in a Ritz vector, its residual (length r) and, where `follows`, its last step.

    Made orthonormal, H is tridiagonal there: ((0, r, 0), (r, a, b), (0, b, c)) from θ up.
    """
    (vector, image), (direction, q), (d, e) = pair, slope, last
    none, one, half = fill(vector, 0.0), fill(vector, 1.0), fill(vector, 0.5)
    a = along = across = size = none
    for n in range(len(vector)):
        old, s = load(d, n), load(direction, n)
        a = multiply_add(s, load(q, n), a)
        along = multiply_add(old, load(vector, n), along)
        across = multiply_add(old, s, across)
        size = multiply_add(old, old, size)
    left = b = c = none
    for n in range(len(vector)):
        s = load(direction, n)
        old = load(d, n) - along * load(vector, n) - across * s
        h = load(e, n) - along * load(image, n) - across * load(q, n)
        left = multiply_add(old, old, left)
        c = multiply_add(old, h, c)
        b = multiply_add(s, h, b)
    usable = choose_less(fill(vector, LEAST**2) * size, left, follows, none)
    usable = choose_less(c, value * left, usable, none)  # below the vector, as `_largest` asks
    inverse = choose_less(half, usable, one / square_root(left), none)
    b = choose_less(half, usable, b * inverse, none)
    c = choose_less(half, usable, c * inverse * inverse - value, none - r)
    y, z = _largest(a - value, c, b, r)
    y, z = choose_less(none, active * r, y, none), choose_less(none, active * r, z, none)
    norm = one / square_root(one + y * y + z * z)
    z = z * inverse
    y, back = y - z * across, z * along
    for n in range(len(vector)):
        x, h, old, old_image = load(vector, n), load(image, n), load(d, n), load(e, n)
        move = multiply_add(y, load(direction, n), multiply_add(z, old, none - back * x))
        image_move = multiply_add(y, load(q, n), multiply_add(z, old_image, none - back * h))
        store(d, n, choose_less(half, active, move, old))
        store(e, n, choose_less(half, active, image_move, old_image))
        store(vector, n, norm * (x + move))
        store(image, n, norm * (h + image_move))


@compiled
def _largest(a, c, b, r):
    """The vector (1, y, z) of the largest eigenvalue of ((0, r, 0), (r, a, b), (0, b, c)), c < 0.

    Eigenvalues of the two 2×2 blocks are below it; from there Newton's method climbs, since
    m − a − b²/(m − c) − r²/m grows and is concave.
    """
    none, one, half = fill(a, 0.0), fill(a, 1.0), fill(a, 0.5)
    m, apart = _larger_root(a, r), half * (a - c)
    m = larger(m, half * (a + c) + square_root(multiply_add(apart, apart, b * b)))
    w = none
    for _ in range(6):
        u = one / m
        w = choose_less(none, m - c, one / (m - c), none)
        above = m - a - b * b * w - r * r * u
        m = m - above / (one + b * b * w * w + r * r * u * u)
    y = m / r
    return y, b * y * w


@compiled
def _larger_root(a, r):
    """The larger eigenvalue of ((0, r), (r, a))."""
    none, half = fill(a, 0.0), fill(a, 0.5)
    root = square_root(multiply_add(a, a, fill(a, 4.0) * r * r))
    return choose_less(a, none, (r + r) * r / (root - a), half * (a + root))


@compiled
def rotate(pair, other, active):
    """Two vectors become the Ritz vectors of their plane, the larger first.

    The second need not be orthogonal nor of length one before. Returns the cosine between the first
    and what it was, and for each vector its value, residual and ‖Hx‖² as `judge` does.
    """
    (first, image), (second, second_image) = pair, other
    none, one, half = fill(first, 0.0), fill(first, 1.0), fill(first, 0.5)
    overlap = value = none
    for n in range(len(first)):
        x = load(first, n)
        overlap = multiply_add(x, load(second, n), overlap)
        value = multiply_add(x, load(image, n), value)
    overlap = choose_less(half, active, overlap, none)
    square = below = across = none
    for n in range(len(first)):
        x, s = load(first, n), load(second, n) - overlap * load(first, n)
        z = load(second_image, n) - overlap * load(image, n)
        store(second, n, s)
        store(second_image, n, z)
        square = multiply_add(s, s, square)
        below = multiply_add(s, z, below)
        across = multiply_add(x, z, across)
    moving = choose_less(fill(first, LEAST**2), square, active, none)
    factor = choose_less(half, moving, one / square_root(square), one)
    apart, across = half * (value - below * factor * factor), across * factor
    root = square_root(multiply_add(apart, apart, across * across))
    long = absolute(apart) + root
    norm = square_root(multiply_add(long, long, across * across))
    long, short = long / norm, across / norm
    cosine, sine = choose_less(apart, none, short, long), choose_less(apart, none, long, short)
    moving = choose_less(none, norm, moving, none)
    cosine, sine = choose_less(half, moving, cosine, one), choose_less(half, moving, sine, none)
    near, far = cosine * factor, sine * factor
    lengths, values, squares = (none, none), (none, none), (none, none)
    for n in range(len(first)):
        x, y, s, z = load(first, n), load(image, n), load(second, n), load(second_image, n)
        x, s = multiply_add(cosine, x, far * s), near * s - sine * x
        y, z = multiply_add(cosine, y, far * z), near * z - sine * y
        store(first, n, x)
        store(image, n, y)
        store(second, n, s)
        store(second_image, n, z)
        lengths = multiply_add(x, x, lengths[0]), multiply_add(s, s, lengths[1])
        values = multiply_add(x, y, values[0]), multiply_add(s, z, values[1])
        squares = multiply_add(y, y, squares[0]), multiply_add(z, z, squares[1])
    value, below = quotient(values[0], lengths[0]), quotient(values[1], lengths[1])
    upper = value, residual(first, image, value), squares[0]
    return cosine, upper, (below, residual(second, second_image, below), squares[1])


@compiled
def separate(first, second):
    """Make `second` orthogonal to `first`, both of length one; zero if too little is left."""
    overlap = again = square = none = fill(first, 0.0)
    for n in range(len(first)):
        overlap = multiply_add(load(first, n), load(second, n), overlap)
    for n in range(len(first)):
        entry = load(second, n) - overlap * load(first, n)
        store(second, n, entry)
        square = multiply_add(entry, entry, square)
        again = multiply_add(entry, load(first, n), again)
    square = square - again * again
    factor = fill(first, 1.0) / square_root(square)
    factor = choose_less(fill(first, LEAST**2), square, factor, none)
    for n in range(len(first)):
        store(second, n, factor * (load(second, n) - again * load(first, n)))


@compiled
def normalize(vector, square, seed):
    """To length one; where there is no length, or none that is finite, a fresh direction."""
    none, one = fill(vector, 0.0), fill(vector, 1.0)
    usable = choose_less(none, square, choose_less(square, fill(vector, np.inf), one, none), none)
    factor = one / square_root(square)
    if not any_less(usable, one):
        for n in range(len(vector)):
            store(vector, n, factor * load(vector, n))
        return
    fresh = fresh_direction(seed, len(vector))
    for n in range(len(vector)):
        entry = choose_less(none, usable, factor * load(vector, n), fill(vector, fresh[n]))
        store(vector, n, entry)


@compiled
def fresh_direction(seed, size):
    """A direction that looks random, the same for the same seed."""
    vector = np.empty(size)
    state = np.uint64(2 * seed + 1)
    for n in range(-4, size):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        if n >= 0:
            vector[n] = 2 * ((state >> np.uint64(11)) / 9007199254740992.0) - 1
    return vector / np.sqrt(np.sum(vector**2))


@compiled
def larger(a, b):
    """The larger of two numbers."""
    return choose_less(a, b, b, a)
