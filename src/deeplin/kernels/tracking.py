"""Two eigenvectors followed by locally optimal conjugate gradients, a product at a time.

The state machine asks for products and does not know where they come from: `advance` is given the
image of a row of `space` and says of which row it needs the image next, or that it is done.

Two vectors that are close to eigenvectors, and stay so, would never meet a third one that rises
from far below. So from time to time there is a look: the Krylov space of a fresh direction,
orthogonal to both, joins the two in one Rayleigh-Ritz step. What it finds takes their place.
"""

import numba
import numpy as np

from deeplin.kernels.hessian import SUMS, dot

MAX_PRODUCTS = 400
PREDICTIONS = np.array([[1.0, 0, 0], [2, -1, 0], [3, -3, 1], [0, 1, 0]])
"""Where vectors go, from their last three places: stay, along a line, along a parabola, back."""
BACK = 3
FAR, REST = 8, 7
"""The second eigenvalue may rest, for `REST` calls, while it is `FAR` times farther below the first
than either of them moves from call to call: it can not have caught up before the next look."""
LOOSE = 0.03
"""Residual of the second pair, relative to ‖H‖, above which it is improved too when looked at: a
vector that is not near an eigenvector would not see another eigenvalue come up."""
LEAST = 1e-3
"""Length that must be left of a unit vector for it to be a direction of its own."""
LOOK_EVERY = 64
"""Calls from one look to the next."""
LOOK_PRODUCTS = 12
"""Dimension of the Krylov space of a look."""
FIRST, SECOND, SLOPE, DIRECTION, DONE = 0, 1, 2, 3, -1
"""Rows of the space: the two Ritz vectors, the residual of the first, its last step."""
ROWS = SLOPE + LOOK_PRODUCTS
VALUE, RESIDUAL, SCALE, LAST, BELOW, GAP, DRIFT = range(7)
"""Numbers kept for each operator: the scale is a lower bound of ‖H‖, the last value that of the
call before; the second eigenvalue when it was looked at, how far it was below the first, and how
much it moved from call to call."""
RESTED, PREDICTION, PRODUCTS, AGE, LOOKS, LOOKING, FOUND = range(7)
"""Counts kept for each operator: calls since the second vector was looked at, the best prediction,
products of this call, calls since the last look, looks so far, whether one is going on, and whether
it has just found another first eigenvector."""


@numba.njit(nogil=True, cache=True)
def begin_members(places, space, mapped, counts):
    """`begin` for each operator of a batch."""
    for b in range(len(space)):
        begin(places[b], space[b], mapped[b], counts[b])


@numba.njit(nogil=True, cache=True)
def advance_members(members, rows, tolerance, places, space, mapped, numbers, counts):
    """`advance` for each of the members; what is asked for next goes into `rows`."""
    for b in members:
        rows[b] = advance(rows[b], tolerance, places[b], space[b], mapped[b], numbers[b], counts[b])


@numba.njit(nogil=True, cache=True)
def begin(places, space, mapped, count):
    """Predict the first vector of an operator; the second waits until it is needed."""
    mapped[SECOND] = 0
    space[DIRECTION] = mapped[DIRECTION] = 0
    count[PRODUCTS] = count[LOOKING] = count[FOUND] = 0
    _predict(places, count[PREDICTION], space[FIRST])
    if dot(space[FIRST], space[FIRST]) == 0:
        fresh_direction(0, space[FIRST])
    _scale(space[FIRST], 1 / np.sqrt(dot(space[FIRST], space[FIRST])))


@numba.njit(nogil=True, cache=True)
def advance(row, tolerance, places, space, mapped, number, count):
    """Take the image asked for; the row whose image is needed next, or DONE."""
    count[PRODUCTS] += 1
    if not np.isfinite(np.sum(mapped[row])):
        number[VALUE] = number[RESIDUAL] = np.nan  # the vectors stay where they were
        return DONE
    if count[LOOKING] == 1:
        if _goes_on(row, space, mapped):
            return row + 1
        _end_look(row, space, mapped, count)
    elif row != FIRST:
        _orthonormalize(space, mapped, DIRECTION)
        _project(space, mapped, DIRECTION + 1)
    _judge(space, mapped, number)
    close = number[RESIDUAL] <= tolerance * number[SCALE]
    if row == FIRST:
        moved = abs(number[VALUE] - number[LAST]) + number[RESIDUAL]
        still = FAR * max(moved, number[DRIFT]) < number[GAP]
        calm = close and still and count[RESTED] < REST and count[AGE] < LOOK_EVERY
        if not calm:
            space[SECOND] = places[1 if count[PREDICTION] == BACK else 0, SECOND]
            space[SLOPE] = 0
            _orthonormalize(space, mapped, SECOND)
            return SECOND
        count[RESTED] += 1
        count[AGE] += 1
        places[1, SECOND] = places[0, SECOND]  # not looked at: as it was
        _remember(places, space, number, count)
        return DONE
    below = dot(space[SECOND], mapped[SECOND])
    slack = _residual(space[SECOND], mapped[SECOND], below)
    known = slack <= max(tolerance, LOOSE) * number[SCALE]
    if (close and known) or count[PRODUCTS] >= MAX_PRODUCTS:
        if count[AGE] >= LOOK_EVERY and len(places[0, 0]) > SLOPE:
            return _begin_look(space, mapped, count)
        number[DRIFT] = abs(below - number[BELOW]) / (count[RESTED] + 1)
        number[BELOW], number[GAP] = below, number[VALUE] - below - slack
        count[RESTED] = 0
        count[AGE] += 1
        places[1, SECOND] = places[0, SECOND]
        places[0, SECOND] = space[SECOND]
        _remember(places, space, number, count)
        return DONE
    worse, its_value = (SECOND, below) if close else (FIRST, number[VALUE])
    space[SLOPE] = mapped[worse]
    _add(space[SLOPE], -its_value, space[worse])
    _orthonormalize(space, mapped, SLOPE)
    return SLOPE


# --- the look --------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def _begin_look(space, mapped, count):
    count[LOOKING] = 1
    count[LOOKS] += 1
    space[SLOPE:] = 0
    mapped[SLOPE:] = 0
    fresh_direction(count[LOOKS], space[SLOPE])
    _orthonormalize(space, mapped, SLOPE)
    return SLOPE


@numba.njit(nogil=True, cache=True)
def _goes_on(row, space, mapped):
    """Whether the Krylov space has another dimension; its vector goes into the next row."""
    if row + 1 == len(space) or not np.any(space[row]):
        return False
    space[row + 1] = mapped[row]
    _orthonormalize(space, mapped, row + 1)
    return np.any(space[row + 1])


@numba.njit(nogil=True, cache=True)
def _end_look(row, space, mapped, count):
    """Rayleigh-Ritz in everything; the steps of conjugate gradients begin anew."""
    before = space[FIRST].copy()
    _project(space, mapped, row + 1)
    space[SLOPE:] = 0
    mapped[SLOPE:] = 0
    count[LOOKING] = count[AGE] = 0
    count[FOUND] = 1 if abs(dot(before, space[FIRST])) < 0.5 else 0


@numba.njit(nogil=True, cache=True)
def fresh_direction(number, vector):
    """Entries between −1 and 1 that look random, the same for the same number."""
    state = np.uint64(2 * number + 1)
    for n in range(-4, len(vector)):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        if n >= 0:
            vector[n] = 2 * ((state >> np.uint64(11)) / 9007199254740992.0) - 1


# --- Rayleigh-Ritz ---------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def _judge(space, mapped, number):
    """Rayleigh quotient and residual of the first vector, and a lower bound of ‖H‖."""
    number[VALUE] = dot(space[FIRST], mapped[FIRST])
    number[RESIDUAL] = _residual(space[FIRST], mapped[FIRST], number[VALUE])
    lengths = dot(mapped[FIRST], mapped[FIRST]), dot(mapped[SECOND], mapped[SECOND])
    number[SCALE] = np.sqrt(max(lengths))


@numba.njit(nogil=True, cache=True)
def _project(space, mapped, rows):
    """The two largest Ritz pairs in the first rows of the space."""
    used = np.empty(rows, np.int64)
    count = 0
    for row in range(rows):
        if np.any(space[row]):
            used[count] = row
            count += 1
    matrix, vectors = np.empty((count, count)), np.eye(count)
    for i in range(count):
        for j in range(i + 1):
            matrix[i, j] = matrix[j, i] = dot(space[used[i]], mapped[used[j]])
    _diagonalize(matrix, vectors)
    first = 0
    for i in range(1, count):
        first = i if matrix[i, i] > matrix[first, first] else first
    second = 1 if first == 0 else 0
    for i in range(count):
        if i != first and matrix[i, i] > matrix[second, second]:
            second = i
    mixing = np.zeros((3, count))
    mixing[FIRST] = vectors[first]
    if count > 1:
        mixing[SECOND] = vectors[second]
    for i in range(count):
        if used[i] >= SLOPE:  # what the step adds to the old Ritz vectors
            mixing[2, i] = vectors[first, i]
    _mix(mixing, used, count, space)
    _mix(mixing, used, count, mapped)


@numba.njit(nogil=True, cache=True)
def _diagonalize(matrix, vectors):
    """Jacobi rotations until the matrix is diagonal; its eigenvectors become rows of `vectors`."""
    count = len(matrix)
    for _ in range(30):
        outside, scale = 0.0, 0.0
        for i in range(count):
            scale = max(scale, abs(matrix[i, i]))
            for j in range(i):
                outside = max(outside, abs(matrix[i, j]))
        if outside <= 1e-16 * scale:
            break
        for p in range(count - 1):
            for q in range(p + 1, count):
                if matrix[p, q] == 0:
                    continue
                apart = (matrix[q, q] - matrix[p, p]) / (2 * matrix[p, q])
                tangent = 1 / (abs(apart) + np.sqrt(1 + apart * apart))
                tangent = tangent if apart >= 0 else -tangent
                cosine = 1 / np.sqrt(1 + tangent * tangent)
                sine = cosine * tangent
                for k in range(count):
                    x, y = matrix[k, p], matrix[k, q]
                    matrix[k, p], matrix[k, q] = cosine * x - sine * y, sine * x + cosine * y
                for k in range(count):
                    x, y = matrix[p, k], matrix[q, k]
                    matrix[p, k], matrix[q, k] = cosine * x - sine * y, sine * x + cosine * y
                    x, y = vectors[p, k], vectors[q, k]
                    vectors[p, k], vectors[q, k] = cosine * x - sine * y, sine * x + cosine * y


@numba.njit(nogil=True, cache=True)
def _mix(mixing, used, count, rows):
    """Replace the two Ritz vectors and the direction by combinations of the rows in use."""
    for n in range(rows.shape[1]):
        first = second = third = 0.0
        for i in range(count):
            entry = rows[used[i], n]
            first += mixing[0, i] * entry
            second += mixing[1, i] * entry
            third += mixing[2, i] * entry
        rows[FIRST, n], rows[SECOND, n], rows[DIRECTION, n] = first, second, third


@numba.njit(nogil=True, cache=True)
def _orthonormalize(space, mapped, row):
    """Make a row orthogonal to those before it and of length one, or zero if too little is left."""
    for attempt in range(3):  # to length one, then twice against the others: rounding
        length = np.sqrt(dot(space[row], space[row]))
        if length == 0:
            mapped[row] = 0
            return
        factor = 1 / length if length > LEAST * attempt else 0.0
        _scale(space[row], factor)
        _scale(mapped[row], factor)
        if attempt == 2:
            return
        for known in range(row):
            overlap = dot(space[known], space[row])
            _add(space[row], -overlap, space[known])
            _add(mapped[row], -overlap, mapped[known])


# --- from call to call -----------------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def _remember(places, space, number, count):
    """Keep the first vector, and what would have predicted it best: the largest cosine."""
    last = len(places)
    inner, gram = np.empty(last), np.empty((last, last))
    if dot(space[FIRST], places[0, FIRST]) < 0:
        _scale(space[FIRST], -1.0)
    for h in range(last):
        inner[h] = dot(places[h, FIRST], space[FIRST])
        for g in range(h + 1):
            gram[h, g] = gram[g, h] = dot(places[h, FIRST], places[g, FIRST])
    closest = -2.0
    for prediction in range(len(PREDICTIONS)):
        above, below = 0.0, 0.0
        for h in range(last):
            above += PREDICTIONS[prediction, h] * inner[h]
            for g in range(last):
                below += PREDICTIONS[prediction, h] * PREDICTIONS[prediction, g] * gram[h, g]
        cosine = above / np.sqrt(max(below, 1e-300))
        if cosine > closest:
            closest, count[PREDICTION] = cosine, prediction
    for h in range(last - 1, 0, -1):
        places[h, FIRST] = places[h - 1, FIRST]
    places[0, FIRST] = space[FIRST]
    number[LAST] = number[VALUE]


@numba.njit(nogil=True, cache=True)
def _predict(places, prediction, vector):
    a, b, c = PREDICTIONS[prediction]
    for n in range(len(vector)):
        vector[n] = a * places[0, FIRST, n] + b * places[1, FIRST, n] + c * places[2, FIRST, n]


@numba.njit(nogil=True, cache=True, fastmath=SUMS)
def _residual(vector, image, value):
    total = 0.0
    for n in range(len(vector)):
        total += (image[n] - value * vector[n]) ** 2
    return np.sqrt(total)


@numba.njit(nogil=True, cache=True)
def _scale(target, factor):
    """target ← factor · target."""
    for n in range(len(target)):
        target[n] *= factor


@numba.njit(nogil=True, cache=True)
def _add(target, factor, vector):
    """target ← target + factor · vector."""
    for n in range(len(target)):
        target[n] += factor * vector[n]
