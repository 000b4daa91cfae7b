"""What is kept of operators whose largest eigenvalues are followed, and what is asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deeplin.kernels.compiling import compiled
from deeplin.kernels.lanes import LANES, aligned_zeros

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


@compiled
def plan_of(clock, tolerance, far):
    """What is due at the call of this number."""
    look = 1 + clock // LOOK_EVERY if clock % LOOK_EVERY == 0 else 0
    return Plan(tolerance, far, clock % EXAMINE_EVERY == 0, look)


class Pursuit(NamedTuple):
    """What is known of each group of networks from the record before: a row for each group."""

    places: np.ndarray
    """Where the two vectors were at the last two records, in the coordinates of the frame."""
    left: np.ndarray
    right: np.ndarray
    numbers: np.ndarray


class Room(NamedTuple):
    """The weights of one group, and room for the work on them."""

    weights: np.ndarray
    readout: np.ndarray
    left: np.ndarray
    right: np.ndarray
    lengths: np.ndarray
    cosines: np.ndarray
    dv: np.ndarray
    du: np.ndarray
    space: np.ndarray
    mapped: np.ndarray
    shared: np.ndarray


def pursuit(batch: int, widths: np.ndarray, dtype, lanes: bool) -> Pursuit:
    """Before the first record: no vectors yet."""
    size, nodes = int(np.sum(widths[1:] + widths[:-1])), int(np.sum(widths))
    groups, inner = (-(-batch // LANES), (LANES,)) if lanes else (batch, ())
    shapes = (2, 2, size), (nodes,), (nodes,), (NUMBERS,)
    return Pursuit(*(aligned_zeros((groups, *shape, *inner), dtype) for shape in shapes))


def room(widths: np.ndarray, dtype, lanes: bool) -> Room:
    """Room for the work of one thread."""
    count, size, nodes = widths[1:] @ widths[:-1], np.sum(widths[1:] + widths[:-1]), np.sum(widths)
    frame = (2, len(widths))
    shapes = (count,), (widths[-1],), (nodes,), (nodes,), frame, frame, (nodes,), (nodes,)
    shapes = *shapes, (ROWS, size), (ROWS, size)
    inner = (LANES,) if lanes else ()
    arrays = (aligned_zeros((*map(int, shape), *inner), dtype) for shape in shapes)
    return Room._make([*arrays, np.zeros(SHARED, np.int64)])
