"""Sharpness of any loss along a trajectory: the kernels ask for products, autodiff makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from deeplin.hessian.operators import AutodiffHessian, parameters
from deeplin.hessian.result import Tracked
from deeplin.kernels import pursuit as at
from deeplin.kernels.compiling import call
from deeplin.kernels.pursuit import FAR, plan_of
from deeplin.kernels.ritz import LEAST
from deeplin.kernels.sharpness_along import JUMP
from deeplin.kernels.tracking import advance_members, begin_members
from deeplin.networks import Loss, Network
from deeplin.problems import Problem

Multiply = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""`multiply(members, vectors)`: the images of one vector for each of the numbered operators."""


class Operators:
    """Follows the Hessians of any loss, by automatic differentiation."""

    def __init__(self, problem: Problem | Loss, tolerance: float):
        self.problem, self.tolerance = problem, tolerance
        self.follower: Follower | None = None

    def __call__(self, records: PyTree, live: bool) -> Tracked:
        """The largest eigenvalue of each tree at each record."""
        trees, found = list(one_by_one(records)), []
        for index, tree in enumerate(trees):
            hessians = AutodiffHessian(self.problem, tree)
            if self.follower is None:
                blocks = _random_blocks(hessians.shape, hessians.dtype)
                self.follower = Follower(blocks, self.tolerance)
            last = index == len(trees) - 1
            found.append(self.follower(hessians, look=last and not live))
            if not live and index > 0:
                jumped = found[-1].value > JUMP * found[-2].value
                self._go_back(trees[:index], found, jumped | self.follower.found)
        return Tracked(*(np.stack(column) for column in zip(*found, strict=True)))

    def _go_back(self, trees: list[PyTree], found: list[Tracked], late: np.ndarray) -> None:
        """What overtook before the last record is followed back to where it did."""
        follower = deepcopy(self.follower) if np.any(late) else None
        for index in reversed(range(len(trees))):
            if follower is None or not np.any(late):
                return
            again, known = follower(AutodiffHessian(self.problem, trees[index])), found[index]
            late = late & (again.value > known.value)
            value = np.where(late, again.value, known.value)
            error = np.where(late, again.error, known.error)
            found[index] = Tracked(value, error, known.products + again.products)


def one_by_one(records: PyTree) -> Iterator[PyTree]:
    """The records of a tree whose arrays have a leading record axis."""
    for index in range(len(jax.tree.leaves(parameters(records)[0])[0])):
        if isinstance(records, Network):
            yield jax.tree.map(lambda leaf, at=index: jnp.asarray(leaf[at]), records)
        else:
            yield jax.tree.map(
                lambda leaf, at=index: leaf[at] if eqx.is_array(leaf) else leaf, records
            )


class Follower:
    """Follows the largest eigenvalue of each operator of a batch, from a block (batch, 2, N)."""

    def __init__(self, block: np.ndarray, tolerance: float):
        batch, _, size = block.shape
        self.tolerance, self.clock = tolerance, 0
        self.places = np.stack([block] * 2, axis=1)  # the latest first
        self.space, self.mapped = np.zeros((2, batch, at.ROWS, size), block.dtype)
        self.numbers = np.zeros((batch, at.NUMBERS), block.dtype)
        self.numbers[:, at.AHEAD] = 1
        self.shared = np.zeros((batch, at.SHARED), np.int64)

    @property
    def found(self) -> np.ndarray:
        """Where the last call found another vector to have the largest eigenvalue."""
        return self.numbers[:, at.FOUND] > 0

    def __call__(self, multiply: Multiply, *, look: bool = False) -> Tracked:
        """The largest eigenvalue of each operator as they are now; `look` asks for a look."""
        mine = (self.places, self.space, self.mapped, self.numbers, self.shared)
        plan = plan_of(self.clock, self.tolerance, FAR)
        if look:
            plan = plan._replace(examine=True, look=1 + self.clock)
        rows = np.full(len(self.numbers), at.FIRST)
        call(begin_members, *mine)
        while len(members := np.flatnonzero(rows != at.DONE)):
            asked = rows[members]
            self.mapped[members, asked] = multiply(members, self.space[members, asked])
            call(advance_members, members, rows, plan, *mine)
        self.clock += 1
        value, residual, scale = self.numbers[:, [at.VALUE, at.RESIDUAL, at.SCALE]].T.copy()
        rounding = 8 * np.finfo(scale.dtype).eps * np.sqrt(self.space.shape[2]) / LEAST
        products = self.numbers[:, at.PRODUCTS].astype(np.int64)
        return Tracked(value, residual + rounding * scale, products)


def _random_blocks(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Two random orthonormal vectors (one, for one parameter), the same for each of a batch."""
    batch, size = shape
    count = min(2, size)
    block = np.zeros((2, size), dtype)
    block[:count] = np.linalg.qr(np.random.default_rng(0).standard_normal((size, count)))[0].T
    return np.repeat(block[None], batch, axis=0)
