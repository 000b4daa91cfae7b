"""Two eigenvectors followed by locally optimal conjugate gradients, a product at a time.

The compiled code asks for products and does not know where they come from: `advance` is given the
image of a row of `space` and says of which row it needs the image next, or that it is done.
"""

import numba
import numpy as np

MAX_PRODUCTS = 400
PREDICTIONS = np.array([[1.0, 0, 0], [2, -1, 0], [3, -3, 1], [0, 1, 0]])
"""Where vectors go, from their last three places: stay, along a line, along a parabola, back."""
FAR, REST = 8, 7
"""The second eigenvalue may rest, for `REST` calls, while it is `FAR` times farther below the first
than either of them moves from call to call: it can not have caught up before the next look."""
LOOSE = 0.03
"""Residual of the second pair, relative to ‖H‖, above which it is improved too when looked at: a
vector that is not near an eigenvector would not see another eigenvalue come up."""
LEAST = 1e-3
"""Length that must be left of a unit vector for it to be a direction of its own."""
FIRST, SECOND, SLOPE, DIRECTION, DONE = 0, 1, 2, 3, -1
"""Rows of the space: the two Ritz vectors, the residual of the first, its last step."""
VALUE, RESIDUAL, SCALE, LAST, BELOW, GAP, DRIFT = range(7)
"""Numbers kept for each operator: the scale is a lower bound of ‖H‖, the last value that of the
call before; the second eigenvalue when it was looked at, how far it was below the first, and how
much it moved from call to call."""
SUMS = {"reassoc", "contract"}
"""What the compiler may do to sums: take several terms at a time. NaN stays NaN."""
RESTED, PREDICTION, PRODUCTS = range(3)


@numba.njit(nogil=True, cache=True)
def begin(places, space, mapped, counts):
    """Predict the two vectors of each operator and make them orthonormal."""
    space[:] = 0
    mapped[:] = 0
    for b in range(len(space)):
        counts[b, PRODUCTS] = 0
        for row in (FIRST, SECOND):
            _predict(places[b], row, counts[b, PREDICTION], space[b, row])
            _orthonormalise(space[b], mapped[b], row)


@numba.njit(nogil=True, cache=True)
def advance(members, rows, tolerance, places, space, mapped, numbers, counts):
    """Take the images asked for, and write into `rows` what is asked for next, or DONE."""
    for b in members:
        number, count = numbers[b], counts[b]
        count[PRODUCTS] += 1
        if not np.isfinite(np.sum(mapped[b, rows[b]])):
            number[VALUE] = number[RESIDUAL] = np.nan  # the vectors stay where they were
            rows[b] = DONE
            continue
        if rows[b] != FIRST:
            _project(space[b], mapped[b])
        _judge(space[b], mapped[b], number)
        close = number[RESIDUAL] <= tolerance * number[SCALE]
        if rows[b] == FIRST:
            moved = abs(number[VALUE] - number[LAST]) + number[RESIDUAL]
            still = FAR * max(moved, number[DRIFT]) < number[GAP]
            calm = close and still and count[RESTED] < REST
            rows[b] = DONE if calm else SECOND
            if calm:
                count[RESTED] += 1
                _remember(places[b], space[b], number, count)
                places[b, 0, SECOND] = places[b, 1, SECOND]  # not looked at: as it was
            continue
        below = _dot(space[b, SECOND], mapped[b, SECOND])
        slack = _residual(space[b, SECOND], mapped[b, SECOND], below)
        known = slack <= max(tolerance, LOOSE) * number[SCALE]
        if (close and known) or count[PRODUCTS] >= MAX_PRODUCTS:
            rows[b] = DONE
            number[DRIFT] = abs(below - number[BELOW]) / (count[RESTED] + 1)
            number[BELOW], number[GAP] = below, number[VALUE] - below - slack
            count[RESTED] = 0
            _remember(places[b], space[b], number, count)
        else:
            rows[b] = SLOPE
            worse, its_value = (SECOND, below) if close else (FIRST, number[VALUE])
            space[b, SLOPE] = mapped[b, worse]
            _add(space[b, SLOPE], -its_value, space[b, worse])
            _orthonormalise(space[b], mapped[b], SLOPE)


@numba.njit(nogil=True, cache=True)
def _judge(space, mapped, number):
    """Rayleigh quotient and residual of the first vector, and a lower bound of ‖H‖."""
    number[VALUE] = _dot(space[FIRST], mapped[FIRST])
    number[RESIDUAL] = _residual(space[FIRST], mapped[FIRST], number[VALUE])
    lengths = _dot(mapped[FIRST], mapped[FIRST]), _dot(mapped[SECOND], mapped[SECOND])
    number[SCALE] = np.sqrt(max(lengths))


@numba.njit(nogil=True, cache=True)
def _project(space, mapped):
    """The two largest Ritz pairs in the space."""
    _orthonormalise(space, mapped, DIRECTION)
    count = len(space)
    matrix = np.empty((count, count))
    for row in range(count):
        for column in range(row + 1):
            matrix[row, column] = matrix[column, row] = _dot(space[row], mapped[column])
    lowest = -1 - 2 * np.abs(matrix).sum()
    for row in range(count):
        if not np.any(space[row]):
            matrix[row, row] = lowest  # keeps empty rows out of the way
    vectors = np.linalg.eigh(matrix)[1]
    mixing = np.zeros((count, count))
    mixing[FIRST], mixing[SECOND] = vectors[:, -1], vectors[:, -2]
    mixing[DIRECTION, SLOPE:] = vectors[SLOPE:, -1]  # what the step adds to the old Ritz vectors
    _mix(mixing, space)
    _mix(mixing, mapped)


@numba.njit(nogil=True, cache=True)
def _mix(mixing, rows):
    """Replace the rows by their combinations."""
    old = np.empty(len(rows))
    for n in range(rows.shape[1]):
        for row in range(len(rows)):
            old[row] = rows[row, n]
        for row in range(len(rows)):
            rows[row, n] = _dot(mixing[row], old)


@numba.njit(nogil=True, cache=True)
def _orthonormalise(space, mapped, row):
    """Make a row orthogonal to those before it and of length one, or zero if too little is left."""
    for attempt in range(3):  # to length one, then twice against the others: rounding
        length = np.sqrt(_dot(space[row], space[row]))
        factor = 1 / length if length > LEAST * attempt else 0.0
        _add(space[row], factor - 1, space[row])
        _add(mapped[row], factor - 1, mapped[row])
        for known in range(row):
            overlap = _dot(space[known], space[row])
            _add(space[row], -overlap, space[known])
            _add(mapped[row], -overlap, mapped[known])


@numba.njit(nogil=True, cache=True)
def _remember(places, space, number, count):
    """Keep the vectors found, and what would have predicted the first of them best."""
    for row in (FIRST, SECOND):
        if _dot(space[row], places[0, row]) < 0:
            _add(space[row], -2.0, space[row])
    closest, guess = -2.0, np.empty_like(space[FIRST])
    for prediction in range(len(PREDICTIONS)):
        _predict(places, FIRST, prediction, guess)
        cosine = _dot(guess, space[FIRST]) / np.sqrt(_dot(guess, guess))
        if cosine > closest:
            closest, count[PREDICTION] = cosine, prediction
    for h in range(len(places) - 1, 0, -1):
        places[h] = places[h - 1]
    places[0] = space[:SLOPE]
    number[LAST] = number[VALUE]


@numba.njit(nogil=True, cache=True)
def _predict(places, row, prediction, vector):
    vector[:] = 0
    for h in range(len(places)):
        _add(vector, PREDICTIONS[prediction, h], places[h, row])


@numba.njit(nogil=True, cache=True, fastmath=SUMS)
def _residual(vector, image, value):
    total = 0.0
    for n in range(len(vector)):
        total += (image[n] - value * vector[n]) ** 2
    return np.sqrt(total)


@numba.njit(nogil=True, cache=True, fastmath=SUMS)
def _dot(left, right):
    total = 0.0
    for n in range(len(left)):
        total += left[n] * right[n]
    return total


@numba.njit(nogil=True, cache=True)
def _add(target, factor, vector):
    """target ← target + factor · vector."""
    for n in range(len(target)):
        target[n] += factor * vector[n]
