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

import numpy as np

from deeplin.kernels import pursuit as at
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
from deeplin.kernels.ritz import (
    conjugate_step,
    judge,
    larger,
    normalize,
    residual_direction,
    rotate,
    separate,
    step,
)


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
    store(number, at.PRODUCTS, none)
    store(number, at.FOUND, none)
    store(number, at.ACTIVE, one)
    store(number, at.WANTED, one)
    first, last, before = space[at.FIRST], places[0, at.FIRST], places[1, at.FIRST]
    ahead, behind, square = load(number, at.AHEAD), load(number, at.BEHIND), none
    for n in range(len(first)):
        entry = multiply_add(ahead, load(last, n), behind * load(before, n))
        store(first, n, entry)
        square = multiply_add(entry, entry, square)
    normalize(first, square, 0)


@compiled
def advance(row, plan, places, space, mapped, number, shared):
    """Take the image asked for; the row whose image is needed next, or DONE."""
    none, half = fill(number, 0.0), fill(number, 0.5)
    products = load(number, at.PRODUCTS) + load(number, at.ACTIVE)
    store(number, at.PRODUCTS, products)
    if row == at.SLOPE:
        _improve(space, mapped, number, shared)
    alone = shared[at.STAGE] == at.ALONE
    scale = _judge(space, mapped, number, not alone)
    may = choose_less(products, fill(number, float(at.MAX_PRODUCTS)), load(number, at.WANTED), none)
    tolerance = fill(number, plan.tolerance)
    active = choose_less(_allowed(number, tolerance * scale), load(number, at.RESIDUAL), may, none)
    if any_less(half, active) and (
        shared[at.STAGE] != at.ALONE or shared[at.STEPPED] < at.ALONE_STEPS
    ):
        return _ask(at.FIRST, active, space, mapped, number, shared)
    if alone:
        active = larger(active, _needs_second(number, plan))
        if any_less(half, active):
            store(number, at.WANTED, active)
            store(number, at.ACTIVE, active)
            _bring_second(places, space, number)
            shared[at.STAGE] = at.PAIRED
            return at.SECOND
    else:
        loose = larger(tolerance, fill(number, at.LOOSE)) * scale
        active = choose_less(loose, load(number, at.SLACK), may, none)
        if not plan.examine and plan.far == 0:  # it only helped the first
            active = none
        if shared[at.STAGE] == at.LOOKING and shared[at.LOOKED] < at.LOOK_PRODUCTS:
            shared[at.LOOKED] += 1
            active = may
        if any_less(half, active):
            return _ask(at.SECOND, active, space, mapped, number, shared)
        if plan.look > 0 and shared[at.STAGE] == at.PAIRED and len(space[at.FIRST]) > at.SLOPE:
            _begin_look(plan.look, space, number)
            shared[at.STAGE] = at.LOOKING
            return at.SECOND
    _remember_second(places, space, number, shared)
    _remember_first(places, space, number)
    return at.DONE


@compiled
def _judge(space, mapped, number, paired):
    """Rayleigh quotients and residuals, of Ritz vectors where there are two; returns the scale."""
    none = square = fill(number, 0.0)
    if paired:
        pair, other = (space[at.FIRST], mapped[at.FIRST]), (space[at.SECOND], mapped[at.SECOND])
        cosine, upper, (below, slack, square) = rotate(pair, other, load(number, at.ACTIVE))
        swapped = choose_less(absolute(cosine), fill(number, 0.5), fill(number, 1.0), none)
        store(number, at.FOUND, larger(swapped, load(number, at.FOUND)))
        store(number, at.BELOW, below)
        store(number, at.SLACK, slack)
    else:
        upper = judge(space[at.FIRST], mapped[at.FIRST])
    value, residual, length = upper
    store(number, at.VALUE, value)
    store(number, at.RESIDUAL, residual)
    scale = square_root(larger(square, length))
    store(number, at.SCALE, scale)
    return scale


@compiled
def _allowed(number, limit):
    """The residual allowed: less where the second eigenvalue is close.

    A residual r in its direction leaves an error of r²/gap in the value, which shall not be above
    `CLOSE` tolerance²; but ten times as strict is strict enough.
    """
    share = square_root(fill(number, at.CLOSE) * load(number, at.GAP) / load(number, at.SCALE))
    least, most = fill(number, 0.1), fill(number, 1.0)
    return limit * choose_less(least, share, choose_less(share, most, share, most), least)


@compiled
def _ask(target, active, space, mapped, number, shared):
    """Ask for the image of the residual of a vector."""
    value, length = load(number, at.VALUE + 2 * target), load(number, at.RESIDUAL + 2 * target)
    residual_direction(space[target], mapped[target], value, length, active, space[at.SLOPE])
    store(number, at.ACTIVE, active)
    shared[at.TARGET] = target
    return at.SLOPE


@compiled
def _improve(space, mapped, number, shared):
    """A step for the vector whose residual has its image now."""
    target = shared[at.TARGET]
    value, length = load(number, at.VALUE + 2 * target), load(number, at.RESIDUAL + 2 * target)
    active, half = load(number, at.ACTIVE), fill(number, 0.5)
    pair, slope = (space[target], mapped[target]), (space[at.SLOPE], mapped[at.SLOPE])
    last, aim = (space[at.LAST_STEP], mapped[at.LAST_STEP]), fill(number, float(target))
    if shared[at.STEPPED] > 0:
        own = absolute(load(number, at.AIM) - aim)
        follows = choose_less(own, half, fill(number, 1.0), fill(number, 0.0))
        conjugate_step(pair, slope, last, value, length, active, follows)
        aim = choose_less(half, active, aim, load(number, at.AIM))
    else:
        step(pair, slope, last, value, length, active)
    store(number, at.AIM, aim)
    shared[at.STEPPED] += 1


# --- the second vector -----------------------------------------------------------------------


@compiled
def _needs_second(number, plan):
    """1 where the second vector must be examined, else 0."""
    none, one = fill(number, 0.0), fill(number, 1.0)
    value, needed = load(number, at.VALUE), none
    if plan.examine:
        needed = one
    if plan.far > 0:
        moved = absolute(value - load(number, at.BEFORE)) + load(number, at.RESIDUAL)
        reach = fill(number, plan.far) * larger(moved, load(number, at.DRIFT))
        needed = choose_less(reach, load(number, at.GAP), needed, one)
    return choose_less(absolute(value), fill(number, np.inf), needed, none)


@compiled
def _bring_second(places, space, number):
    """The second vector from its last place, or the one before where the first went back."""
    second, last, before = space[at.SECOND], places[0, at.SECOND], places[1, at.SECOND]
    half, square = fill(number, 0.5), fill(number, 0.0)
    ahead = choose_less(load(number, at.SINCE), half, load(number, at.AHEAD), fill(number, 1.0))
    for n in range(len(second)):
        entry = choose_less(ahead, half, load(before, n), load(last, n))
        store(second, n, entry)
        square = multiply_add(entry, entry, square)
    normalize(second, square, 1)
    separate(space[at.FIRST], second)


@compiled
def _begin_look(seed, space, number):
    """Put the second vector aside and let a fresh direction climb in its place."""
    second, aside, none = space[at.SECOND], space[at.ASIDE], fill(number, 0.0)
    for n in range(len(second)):
        store(aside, n, load(second, n))
    store(number, at.OLD_BELOW, load(number, at.BELOW))
    store(number, at.OLD_SLACK, load(number, at.SLACK))
    store(number, at.ACTIVE, load(number, at.WANTED))
    normalize(second, none, 1 + seed)
    separate(space[at.FIRST], second)


@compiled
def _remember_second(places, space, number, shared):
    """Keep what was examined: the second vector, how far below the first it is, how it moves."""
    since = load(number, at.SINCE) + fill(number, 1.0)
    store(number, at.SINCE, since)
    if shared[at.STAGE] == at.ALONE:
        return
    value, below, slack = load(number, at.VALUE), load(number, at.BELOW), load(number, at.SLACK)
    none, half, seen = fill(number, 0.0), fill(number, 0.5), load(number, at.WANTED)
    older = none
    if shared[at.STAGE] == at.LOOKING:  # what it found may be lower, unless it changed places
        lower = fill(number, 1.0) - load(number, at.FOUND)
        older = choose_less(below, load(number, at.OLD_BELOW), lower, none)
        below = choose_less(half, older, load(number, at.OLD_BELOW), below)
        slack = choose_less(half, older, load(number, at.OLD_SLACK), slack)
    drift = absolute(below - load(number, at.KNOWN)) / since
    _keep(number, at.KNOWN, seen, below)
    _keep(number, at.GAP, seen, value - below - slack)
    _keep(number, at.DRIFT, seen, drift)
    _keep(number, at.SINCE, seen, none)
    second, aside = space[at.SECOND], space[at.ASIDE]
    last, before = places[0, at.SECOND], places[1, at.SECOND]
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

    To stay, along a line, or back to where it was two calls ago. A cosine below one half predicts
    nothing: a vector that has just been found shall not give way to the one it replaced.
    """
    vector, last, before = space[at.FIRST], places[0, at.FIRST], places[1, at.FIRST]
    none, one, two = fill(number, 0.0), fill(number, 1.0), fill(number, 2.0)
    here = there = a = b = c = none
    for n in range(len(vector)):
        x, p, q = load(vector, n), load(last, n), load(before, n)
        here, there = multiply_add(x, p, here), multiply_add(x, q, there)
        a, b, c = multiply_add(p, p, a), multiply_add(p, q, b), multiply_add(q, q, c)
    sign = choose_less(here, none, none - one, one)
    here, there = here * sign, there * sign
    stay, back = larger(_cosine(here, a), fill(number, 0.5)), _cosine(there, c)
    line = _cosine(two * here - there, two * (two * a - two * b) + c)
    ahead, behind = choose_less(stay, line, two, one), choose_less(stay, line, none - one, none)
    best = larger(stay, line)
    ahead, behind = choose_less(best, back, none, ahead), choose_less(best, back, one, behind)
    value, half = load(number, at.VALUE), fill(number, 0.5)
    seen = choose_less(absolute(value), fill(number, np.inf), one, none)  # else stay there
    _keep(number, at.AHEAD, seen, ahead)
    _keep(number, at.BEHIND, seen, behind)
    _keep(number, at.BEFORE, seen, value)
    for n in range(len(vector)):
        p = load(last, n)
        store(before, n, choose_less(half, seen, p, load(before, n)))
        store(last, n, choose_less(half, seen, sign * load(vector, n), p))


@compiled
def _cosine(inner, square):
    return inner / square_root(larger(square, fill(square, 1e-30)))
