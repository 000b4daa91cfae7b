"""The largest eigenvalue of operators that move a little from call to call.

Two vectors are followed, so that a second eigenvalue that overtakes the first is noticed. Where
they start is predicted from where they have been. If they arrive close enough, one product with
each gives the answer (a Rayleigh quotient is accurate to the square of the angle); while nothing
moves much and the second eigenvalue is far below, one with the first alone. Otherwise locally
optimal conjugate gradients (LOBPCG, Knyazev 2001) improve them, a product at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from deeplin.kernels.compiling import call
from deeplin.kernels.tracking import (
    DIRECTION,
    DONE,
    DRIFT,
    FIRST,
    LEAST,
    PREDICTIONS,
    PRODUCTS,
    SCALE,
    advance,
    begin,
)

Multiply = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""`multiply(members, vectors)`: the images of one vector for each of the numbered operators."""


class Tracked(NamedTuple):
    """Sharpness with its evidence, for each network (and each record, along a trajectory)."""

    value: np.ndarray
    """Rayleigh quotient: never above the largest eigenvalue."""
    error: np.ndarray
    """There is an eigenvalue within this distance (the residual ‖Hv − θv‖, and rounding)."""
    products: np.ndarray
    """Hessian-vector products used."""


class Follower:
    """Follows the largest eigenvalue of each operator of a batch, from a block (batch, 2, N)."""

    def __init__(self, block: np.ndarray, tolerance: float):
        batch, _, size = block.shape
        self.tolerance = tolerance
        self.places = np.stack([block] * PREDICTIONS.shape[1], axis=1)  # the latest first
        self.space, self.mapped = np.zeros((2, batch, DIRECTION + 1, size), block.dtype)
        self.numbers = np.zeros((batch, DRIFT + 1), block.dtype)
        self.counts = np.zeros((batch, PRODUCTS + 1), int)

    def __call__(self, multiply: Multiply) -> Tracked:
        """The largest eigenvalue of each operator as they are now."""
        mine = (self.places, self.space, self.mapped, self.numbers, self.counts)
        rows = np.full(len(self.counts), FIRST)
        call(begin, self.places, self.space, self.mapped, self.counts)
        while len(members := np.flatnonzero(rows != DONE)):
            asked = rows[members]
            self.mapped[members, asked] = multiply(members, self.space[members, asked])
            call(advance, members, rows, self.tolerance, *mine)
        value, residual, scale = self.numbers[:, : SCALE + 1].T.copy()
        rounding = 8 * np.finfo(scale.dtype).eps * np.sqrt(self.space.shape[2]) / LEAST
        return Tracked(value, residual + rounding * scale, self.counts[:, PRODUCTS].copy())
