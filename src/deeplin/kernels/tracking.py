"""Two eigenvectors followed by locally optimal conjugate gradients, a product at a time.

The state machine asks for products and does not know where they come from: `advance` is given the
image of a row of `space` and says of which row it needs the image next, or that it is done. Its
numbers are `lanes` (or plain ones): operators that are followed together ask for the same row, and
those that do not need it stay as they are, to the last bit.

The first vector is followed from call to call. The second is examined at every eighth call, or
whenever its eigenvalue may have caught up: then both are improved in turn and rotated to the Ritz
vectors of their plane. They would never meet a third one that rises from far below both: so at
every 64th call there is a look, in which a fresh direction climbs from the bottom and takes the
second's place if it gets higher.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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
from deeplin.kernels.ritz import (
    compiled,
    conjugate_step,
    judge,
    larger,
    normalize,
    residual_direction,
    rotate,
    separate,
    step,
)

MAX_PRODUCTS = 400
FAR, EXAMINE_EVERY = 8.0, 8
"""The second eigenvalue may rest until it is examined again, while it is `FAR` times farther below
the first than either of them moves from call to call: it can not have caught up before."""
ALONE_STEPS = 1
"""Steps after which a first vector that is still not close is helped by the second: an eigenvalue
nearby would take many of them, but their plane only one."""
LOOSE = 0.03
"""Residual of the second pair, relative to ‖H‖, above which it is improved when examined: a vector
that is not near an eigenvector would not see another eigenvalue come up."""
CLOSE = 10.0
"""Error of a value over the square of the tolerance, relative to ‖H‖, that is aimed at."""
LOOK_EVERY, LOOK_PRODUCTS = 64, 12
"""Calls from one look to the next, and the products of one."""
FIRST, SECOND, SLOPE, LAST_STEP, ASIDE, DONE = 0, 1, 2, 3, 4, -1
"""Rows of the space: the two vectors, the residual of the one that is being improved, its last
step, and the second vector while there is a look."""
ROWS = ASIDE + 1
VALUE, RESIDUAL, BELOW, SLACK, SCALE = range(5)
"""Numbers kept for each operator: Rayleigh quotient and residual of the first vector and of the
second, and a lower bound of ‖H‖; …"""
BEFORE, KNOWN, GAP, DRIFT, SINCE = range(5, 10)
"""the value of the call before; the second eigenvalue when it was last examined, how far it was
below the first, how much it moved from call to call, and how many calls ago that was; …"""
AHEAD, BEHIND = range(10, 12)
"""where the first vector is predicted, from its last place and the one before; …"""
PRODUCTS, ACTIVE, WANTED, AIM, FOUND, OLD_BELOW, OLD_SLACK = range(12, 19)
"""products of this call; whether it takes part in the next step, and whether it needs one at all;
which vector its last step improved; whether another vector has just become the first; the second
pair while there is a look."""
NUMBERS = OLD_SLACK + 1
STAGE, TARGET, STEPPED, LOOKED = range(4)
"""What operators that are followed together share: the stage, which vector is improved, how many
steps were taken, products of this look."""
SHARED = LOOKED + 1
ALONE, PAIRED, LOOKING = range(3)


class Plan(NamedTuple):
    """What is asked for at a call."""

    tolerance: float
    far: float
    """`FAR`, or 0 where what is found late can still be put right."""
    examine: bool
    look: int
    """Number of the look that is due, or 0."""


def plan_of(clock, tolerance, far):
    """What is due at the call of this number."""
    look = 1 + clock // LOOK_EVERY if clock % LOOK_EVERY == 0 else 0
    return Plan(tolerance, far, clock % EXAMINE_EVERY == 0, look)


@compiled
def begin_members(places, space, mapped, numbers, shared):
    """`begin` for each operator of a batch."""
    for b in range(len(space)):
        begin(places[b], space[b], mapped[b], numbers[b], shared[b])


@compiled
def advance_members(members, rows, plan, places, space, mapped, numbers, shared):
    """`advance` for each of the members; what is asked for next goes into `rows`."""
    for b in members:
        rows[b] = advance(rows[b], plan, places[b], space[b], mapped[b], numbers[b], shared[b])


@compiled
def begin(places, space, mapped, number, shared):
    """Predict the first vector; the second waits until it is needed."""
    shared[:] = 0
    none, one = fill(number, 0.0), fill(number, 1.0)
    store(number, PRODUCTS, none)
    store(number, FOUND, none)
    store(number, ACTIVE, one)
    store(number, WANTED, one)
    first, last, before = space[FIRST], places[0, FIRST], places[1, FIRST]
    ahead, behind, square = load(number, AHEAD), load(number, BEHIND), none
    for n in range(len(first)):
        entry = multiply_add(ahead, load(last, n), behind * load(before, n))
        store(first, n, entry)
        square = multiply_add(entry, entry, square)
    normalize(first, square, 0)


@compiled
def advance(row, plan, places, space, mapped, number, shared):
    """Take the image asked for; the row whose image is needed next, or DONE."""
    none, half = fill(number, 0.0), fill(number, 0.5)
    products = load(number, PRODUCTS) + load(number, ACTIVE)
    store(number, PRODUCTS, products)
    if row == SLOPE:
        _improve(space, mapped, number, shared)
    scale = _judge(space, mapped, number, shared[STAGE] != ALONE)
    may = choose_less(products, fill(number, float(MAX_PRODUCTS)), load(number, WANTED), none)
    tolerance = fill(number, plan.tolerance)
    active = choose_less(_allowed(number, tolerance * scale), load(number, RESIDUAL), may, none)
    if any_less(half, active) and (shared[STAGE] != ALONE or shared[STEPPED] < ALONE_STEPS):
        return _ask(FIRST, active, space, mapped, number, shared)
    if shared[STAGE] == ALONE:
        active = larger(active, _needs_second(number, plan))
        if any_less(half, active):
            store(number, WANTED, active)
            store(number, ACTIVE, active)
            _bring_second(places, space, number)
            shared[STAGE] = PAIRED
            return SECOND
    else:
        loose = larger(tolerance, fill(number, LOOSE)) * scale
        active = choose_less(loose, load(number, SLACK), may, none)
        if shared[STAGE] == LOOKING and shared[LOOKED] < LOOK_PRODUCTS:
            shared[LOOKED] += 1
            active = may
        if any_less(half, active):
            return _ask(SECOND, active, space, mapped, number, shared)
        if plan.look > 0 and shared[STAGE] == PAIRED and len(space[FIRST]) > SLOPE:
            _begin_look(plan.look, space, number)
            shared[STAGE] = LOOKING
            return SECOND
    _remember_second(places, space, number, shared)
    _remember_first(places, space, number)
    return DONE


@compiled
def _judge(space, mapped, number, paired):
    """Rayleigh quotients and residuals, of Ritz vectors where there are two; returns the scale."""
    square = fill(number, 0.0)
    if paired:
        pair, other = (space[FIRST], mapped[FIRST]), (space[SECOND], mapped[SECOND])
        cosine = rotate(pair, other, load(number, ACTIVE))
        swapped = choose_less(absolute(cosine), fill(number, 0.5), fill(number, 1.0), square)
        store(number, FOUND, larger(swapped, load(number, FOUND)))
        below, slack, square = judge(space[SECOND], mapped[SECOND])
        store(number, BELOW, below)
        store(number, SLACK, slack)
    value, residual, length = judge(space[FIRST], mapped[FIRST])
    store(number, VALUE, value)
    store(number, RESIDUAL, residual)
    scale = square_root(larger(square, length))
    store(number, SCALE, scale)
    return scale


@compiled
def _allowed(number, limit):
    """The residual allowed: less where the second eigenvalue is close.

    A residual r in its direction leaves an error of r²/gap in the value, which shall not be above
    `CLOSE` tolerance²; but ten times as strict is strict enough.
    """
    share = square_root(fill(number, CLOSE) * load(number, GAP) / load(number, SCALE))
    least, most = fill(number, 0.1), fill(number, 1.0)
    return limit * choose_less(least, share, choose_less(share, most, share, most), least)


@compiled
def _ask(target, active, space, mapped, number, shared):
    """Ask for the image of the residual of a vector."""
    value, length = load(number, VALUE + 2 * target), load(number, RESIDUAL + 2 * target)
    residual_direction(space[target], mapped[target], value, length, active, space[SLOPE])
    store(number, ACTIVE, active)
    shared[TARGET] = target
    return SLOPE


@compiled
def _improve(space, mapped, number, shared):
    """A step for the vector whose residual has its image now."""
    target = shared[TARGET]
    value, length = load(number, VALUE + 2 * target), load(number, RESIDUAL + 2 * target)
    active, half = load(number, ACTIVE), fill(number, 0.5)
    pair, slope = (space[target], mapped[target]), (space[SLOPE], mapped[SLOPE])
    last, aim = (space[LAST_STEP], mapped[LAST_STEP]), fill(number, float(target))
    if shared[STEPPED] > 0:
        own = absolute(load(number, AIM) - aim)
        follows = choose_less(own, half, fill(number, 1.0), fill(number, 0.0))
        conjugate_step(pair, slope, last, value, length, active, follows)
        aim = choose_less(half, active, aim, load(number, AIM))
    else:
        step(pair, slope, last, value, length, active)
    store(number, AIM, aim)
    shared[STEPPED] += 1


# --- the second vector -----------------------------------------------------------------------


@compiled
def _needs_second(number, plan):
    """1 where the second vector must be examined, else 0."""
    none, one = fill(number, 0.0), fill(number, 1.0)
    value, needed = load(number, VALUE), none
    if plan.examine:
        needed = one
    if plan.far > 0:
        moved = absolute(value - load(number, BEFORE)) + load(number, RESIDUAL)
        reach = fill(number, plan.far) * larger(moved, load(number, DRIFT))
        needed = choose_less(reach, load(number, GAP), needed, one)
    return choose_less(absolute(value), fill(number, np.inf), needed, none)


@compiled
def _bring_second(places, space, number):
    """The second vector from its last place, or the one before where the first went back."""
    second, last, before = space[SECOND], places[0, SECOND], places[1, SECOND]
    half, square = fill(number, 0.5), fill(number, 0.0)
    ahead = choose_less(load(number, SINCE), half, load(number, AHEAD), fill(number, 1.0))
    for n in range(len(second)):
        entry = choose_less(ahead, half, load(before, n), load(last, n))
        store(second, n, entry)
        square = multiply_add(entry, entry, square)
    normalize(second, square, 1)
    separate(space[FIRST], second)


@compiled
def _begin_look(seed, space, number):
    """Put the second vector aside and let a fresh direction climb in its place."""
    second, aside, none = space[SECOND], space[ASIDE], fill(number, 0.0)
    for n in range(len(second)):
        store(aside, n, load(second, n))
    store(number, OLD_BELOW, load(number, BELOW))
    store(number, OLD_SLACK, load(number, SLACK))
    store(number, ACTIVE, load(number, WANTED))
    normalize(second, none, 1 + seed)
    separate(space[FIRST], second)


@compiled
def _remember_second(places, space, number, shared):
    """Keep what was examined: the second vector, how far below the first it is, how it moves."""
    since = load(number, SINCE) + fill(number, 1.0)
    store(number, SINCE, since)
    if shared[STAGE] == ALONE:
        return
    value, below, slack = load(number, VALUE), load(number, BELOW), load(number, SLACK)
    none, half, seen = fill(number, 0.0), fill(number, 0.5), load(number, WANTED)
    older = none
    if shared[STAGE] == LOOKING:  # what it found may be lower, unless it changed places
        lower = fill(number, 1.0) - load(number, FOUND)
        older = choose_less(below, load(number, OLD_BELOW), lower, none)
        below = choose_less(half, older, load(number, OLD_BELOW), below)
        slack = choose_less(half, older, load(number, OLD_SLACK), slack)
    drift = absolute(below - load(number, KNOWN)) / since
    _keep(number, KNOWN, seen, below)
    _keep(number, GAP, seen, value - below - slack)
    _keep(number, DRIFT, seen, drift)
    _keep(number, SINCE, seen, none)
    second, aside, last, before = space[SECOND], space[ASIDE], places[0, SECOND], places[1, SECOND]
    for n in range(len(second)):
        p = load(last, n)
        entry = choose_less(half, older, load(aside, n), load(second, n))
        store(before, n, choose_less(half, seen, p, load(before, n)))
        store(last, n, choose_less(half, seen, entry, p))


@compiled
def _keep(number, row, seen, new):
    """Replace a number where `seen` is 1."""
    store(number, row, choose_less(fill(number, 0.5), seen, new, load(number, row)))


# --- the first vector ------------------------------------------------------------------------


@compiled
def _remember_first(places, space, number):
    """Keep the first vector, and what would have predicted it best: the largest cosine.

    To stay, along a line, or back to where it was two calls ago.
    """
    vector, last, before = space[FIRST], places[0, FIRST], places[1, FIRST]
    none, one, two = fill(number, 0.0), fill(number, 1.0), fill(number, 2.0)
    here = there = a = b = c = none
    for n in range(len(vector)):
        x, p, q = load(vector, n), load(last, n), load(before, n)
        here, there = multiply_add(x, p, here), multiply_add(x, q, there)
        a, b, c = multiply_add(p, p, a), multiply_add(p, q, b), multiply_add(q, q, c)
    sign = choose_less(here, none, none - one, one)
    here, there = here * sign, there * sign
    stay, back = _cosine(here, a), _cosine(there, c)
    line = _cosine(two * here - there, two * (two * a - two * b) + c)
    ahead, behind = choose_less(stay, line, two, one), choose_less(stay, line, none - one, none)
    best = larger(stay, line)
    ahead, behind = choose_less(best, back, none, ahead), choose_less(best, back, one, behind)
    value, half = load(number, VALUE), fill(number, 0.5)
    seen = choose_less(absolute(value), fill(number, np.inf), one, none)  # else stay there
    _keep(number, AHEAD, seen, ahead)
    _keep(number, BEHIND, seen, behind)
    _keep(number, BEFORE, seen, value)
    for n in range(len(vector)):
        p = load(last, n)
        store(before, n, choose_less(half, seen, p, load(before, n)))
        store(last, n, choose_less(half, seen, sign * load(vector, n), p))


@compiled
def _cosine(inner, square):
    return inner / square_root(larger(square, fill(square, 1e-30)))
