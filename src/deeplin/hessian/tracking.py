"""Sharpness along a trajectory: each record starts from the eigenvectors of the record before.

Networks are tracked in chunks, all records of a chunk by one compiled loop (see `lobpcg`), and
chunks are distributed over threads. At every 16th record a larger eigenvalue is sought; where one
is found, or where the vector turns, it is tracked backwards through the earlier records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from deeplin.errors import InputError, positive_number, shown
from deeplin.execution import map_in_threads
from deeplin.hessian.lobpcg import TrackingState, begin, follow, rounding
from deeplin.hessian.operators import (
    autodiff_hessian,
    check_subject,
    extent,
    is_linear,
    narrow_hessian,
    parameters,
    surface,
)
from deeplin.networks import Network, batch_last
from deeplin.networks.network import Loss, explain_loss_errors
from deeplin.problems import Problem

CHUNK = 16
"""Number of networks tracked together; smaller chunks are padded, so that results do not depend on
the batch."""
SEARCH_EVERY = 16
"""Number of records between two searches for a larger eigenvalue."""
FRESH_SEARCH_EVERY = 64
"""Number of records between two searches in a fresh random direction."""
SHORT_CALL = 8
"""Number of records below which a call, except the first, does not search at its end."""


class Tracked(NamedTuple):
    """Sharpness with its error, for each network (and each record, along a trajectory)."""

    value: np.ndarray
    """Rayleigh quotient: never above the largest eigenvalue."""
    error: np.ndarray
    """There is an eigenvalue within this distance (the residual ‖Hv − θv‖, and rounding)."""
    products: np.ndarray
    """Hessian-vector products used."""


class SharpnessTracker:
    """Tracker of the sharpness of a batch of networks through the pieces of a trajectory."""

    def __init__(self, problem: Problem | Loss, *, tolerance: float = 1e-6):
        self.problem = problem
        self.tolerance = positive_number("tolerance", tolerance)
        self.chunks: list[_Chunk] = []
        self.clock = 0

    def along(self, records: PyTree) -> Tracked:
        """Return the sharpness at each of the next records, (records, batch)."""
        count, batch = np.shape(parameters(records)[0][0])[:2]
        if not self.chunks:
            narrow = is_linear(self.problem, records) and records.biases is None
            narrow = narrow and max(records.widths) <= batch_last.NARROW
            layout = _Narrow if narrow else _General
            size = CHUNK if narrow else -(-batch // -(-batch // CHUNK))
            for first in range(0, batch, size):
                members = np.minimum(np.arange(first, first + size), batch - 1)
                chunk = layout(self.problem, members, min(size, batch - first), self.tolerance)
                self.chunks.append(chunk)
        dtype = extent(_arrays(records, lambda leaf: leaf[0]))[1]
        value, error = np.zeros((2, count, batch), dtype)
        found = Tracked(value, error, np.zeros((count, batch), np.int64))
        map_in_threads(lambda chunk: chunk.along(records, found, self.clock), self.chunks)
        self.clock += count
        return found


def sharpness_along(
    problem: Problem | Loss,
    trajectory: PyTree,
    *,
    tolerance: float = 1e-6,
) -> Tracked:
    """Return the sharpness at each record of a trajectory.

    Each record starts from the eigenvectors of the record before. A second eigenvector is kept, in
    case its eigenvalue becomes the largest, and one that rises from far below both is sought at
    every 16th record and at the last one; earlier records are then corrected.

    Args:
        problem: A `Problem` or a loss, as for `sharpness`.
        trajectory: `run.trajectory`, or for a user-defined loss a pytree whose arrays have a
            leading record axis.
        tolerance: Relative accuracy of the value, down to 1e-12 in double precision. The residual
            ‖Hv − θv‖ allowed for it is √(tolerance · (λ_1 − λ_2)/λ_1), relative to λ_1.

    Returns:
        `Tracked`: values, errors and numbers of products, with the record axis first.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    run = dl.gradient_descent(problem, net, learning_rate=0.02, steps=100, record_every=10)
    dl.sharpness_along(problem, run.trajectory).value
    ```
    """
    records, batched = records_of(problem, trajectory)
    tracker = SharpnessTracker(problem, tolerance=tolerance)
    example = None
    if not isinstance(problem, Problem):
        example = _arrays(records, lambda leaf: jnp.asarray(leaf[0, 0]))
    with explain_loss_errors(problem, example):
        found = tracker.along(records)
    return found if batched else Tracked(*(column[:, 0] for column in found))


def records_of(problem: Any, trajectory: Any) -> tuple[Any, bool]:
    """Return the trajectory with axes for records and batch, and whether it had a batch axis."""
    batched = getattr(trajectory, "batched", False)
    trajectory = getattr(trajectory, "stacked", trajectory)
    leaf, *_ = parameters(trajectory)[0]
    if leaf.ndim == 0 or len(leaf) == 0:
        raise InputError(
            f"trajectory is {shown(trajectory)}; pass run.trajectory, or a pytree of arrays with a "
            "leading record axis."
        )
    if isinstance(trajectory, Network) and leaf.ndim not in (3, 4):
        raise InputError(
            f"the trajectory's weights have {leaf.ndim} dimensions; pass run.trajectory, "
            "with a leading record axis."
        )
    check_subject(problem, trajectory)
    if not isinstance(trajectory, Network):
        return trajectory if batched else _arrays(trajectory, lambda leaf: leaf[:, None]), batched
    batched, readout = leaf.ndim == 4, trajectory.readout
    if readout is not None:  # one for all, or one for each record, or for each network as well
        axes = leaf.shape[: leaf.ndim - 2]
        readout = np.broadcast_to(readout, (*axes, readout.shape[-1]))
    networks = eqx.tree_at(lambda n: n.readout, trajectory, readout, is_leaf=lambda x: x is None)
    networks = jax.tree.map(np.asarray, networks)  # views; a JAX slice takes half a millisecond
    return networks if batched else jax.tree.map(lambda leaf: leaf[:, None], networks), batched


def _arrays(tree: PyTree, function: Callable[[Any], Any]) -> PyTree:
    """Apply `function` to each array of a tree and leave everything else as it is."""
    known = isinstance(tree, Network)  # its arrays may be NumPy arrays
    return jax.tree.map(lambda leaf: function(leaf) if known or eqx.is_array(leaf) else leaf, tree)


@dataclass
class _Chunk(ABC):
    """Tracker of some networks of a batch through their records."""

    problem: Any
    members: np.ndarray
    """Their indices in the batch; the last one is repeated to fill the chunk."""
    count: int
    """Number of networks without the repetitions."""
    tolerance: float
    state: TrackingState | None = None
    compiled: ClassVar[Callable]
    """`follow`, compiled."""
    earlier: list[tuple[PyTree, Tracked]] = field(default_factory=list)
    """The records of the previous call with their results."""

    def along(self, records: PyTree, found: Tracked, clock: int) -> None:
        """Write the results of each record; earlier results may be corrected."""
        count = len(found.value)
        pieces = [*self.earlier, (records, found)]
        start = 0
        while start < count:
            end = min(count, start + SEARCH_EVERY - (clock + start - 1) % SEARCH_EVERY)
            last, places = clock + end - 1, np.arange(start, end)
            due, fresh = last % SEARCH_EVERY == 0, last if last % FRESH_SEARCH_EVERY == 0 else None
            result, late = self._run(records, places, due, fresh)
            self._write(found, places, result, np.ones_like(late))
            self._correct(pieces, start, end, late)
            start = end
        if not due and (clock == 0 or count >= SHORT_CALL):
            self._search_at_end(pieces, clock)
        self.earlier = [(records, found)]

    def _run(
        self, records: PyTree, places: np.ndarray, search: bool, fresh: int | None
    ) -> tuple[Tracked, np.ndarray]:
        """Track the records at `places` in turn, from the current state to the next.

        Also where the records before them may have missed a larger eigenvalue.
        """
        operator, data, size, dtype = self._operator(records)
        if self.state is None:
            draws = np.random.default_rng(0).standard_normal((2, size)).astype(dtype)
            self.state = begin(jnp.asarray(draws), len(self.members))
        direction = np.zeros(size, dtype)
        if fresh is not None:
            draw = np.random.default_rng([1, fresh]).standard_normal(size)
            direction[:] = draw / np.linalg.norm(draw)
        piece = self._piece(records, places, SEARCH_EVERY)
        self.state, found, higher = self.compiled(
            operator, data, piece, np.int32(len(places)), self.state, direction,
            np.int32(search), np.asarray(self.tolerance, dtype),
        )  # fmt: skip
        value, residual, scale, products = (np.asarray(c)[: len(places)] for c in found)
        error = residual + rounding(dtype, size) * scale
        error = np.where(np.isfinite(value), error, np.nan)
        return Tracked(value, error, products.astype(np.int64)), np.asarray(higher)

    def _write(self, found: Tracked, places: np.ndarray, result: Tracked, chosen: np.ndarray):
        """Store results; `chosen` marks which networks (at which record)."""
        own = np.ix_(places, self.members[: self.count])
        chosen = np.broadcast_to(chosen, result.value.shape)[:, : self.count]
        for column, new in zip(found[:2], result[:2], strict=True):
            column[own] = np.where(chosen, new[:, : self.count], column[own])
        found.products[own] += result.products[:, : self.count]

    def _correct(
        self, pieces: list[tuple[PyTree, Tracked]], start: int, end: int, late: np.ndarray
    ) -> None:
        """Track an eigenvalue that overtook before the record `end` back to that record.

        A Rayleigh quotient never exceeds the largest eigenvalue, so the larger of two is the better
        one. The piece is processed back to its start and one record beyond, then as long as values
        improve.
        """
        if not late.any():
            return
        kept, piece, first = self.state, len(pieces) - 1, True
        place = end - 1
        while late.any():
            if place == 0:
                piece, place = piece - 1, len(pieces[piece - 1][1].value)
            if piece < 0:
                break
            records, found = pieces[piece]
            stop = max(start - 1, 0) if first else max(place - SEARCH_EVERY, 0)
            stop = min(stop, place - 1)
            places = np.arange(place - 1, max(stop, place - SEARCH_EVERY) - 1, -1)
            result, _ = self._run(records, places, False, None)
            known = found.value[np.ix_(places, self.members)]
            better = late & (result.value > known + self.tolerance * np.abs(known))
            self._write(found, places, result, better)
            place, first = int(places[-1]), False
            late = better[-1]
        self.state = kept

    def _search_at_end(self, pieces: list[tuple[PyTree, Tracked]], clock: int) -> None:
        """Search at the last record, since there may be no later one, and keep what is found."""
        records, found = pieces[-1]
        kept, last = self.state, np.array([len(found.value) - 1])
        result, higher = self._run(records, last, True, 1 + clock + int(last[0]))
        known = found.value[last[0], self.members] + found.error[last[0], self.members]
        higher = higher & (result.value[0] > known)
        self._write(found, last, result, higher)
        new = self.state
        self.state = jax.tree.map(lambda a, b: jnp.where(higher, a, b), new, kept)
        self._correct(pieces, int(last[0]), int(last[0]) + 1, higher)

    @abstractmethod
    def _operator(self, records: PyTree) -> tuple[Callable, Any, int, np.dtype]:
        """Return the function and data for `follow`, the size of a vector and its precision."""

    @abstractmethod
    def _piece(self, records: PyTree, places: np.ndarray, capacity: int) -> PyTree:
        """Return the records at `places` with the networks of this chunk, padded to `capacity`."""


class _Narrow(_Chunk):
    """Linear networks of small width: all layers in one array, the batch axis last."""

    compiled = staticmethod(jax.jit(follow, static_argnums=0))

    def _operator(self, records: Network) -> tuple[Callable, Any, int, np.dtype]:
        width, dtype = max(records.widths), np.result_type(*(w.dtype for w in records.weights))
        d, outputs = self.problem.dimension, self.problem.outputs
        curvature, optimum = np.zeros((width, width), dtype), np.zeros((outputs, width), dtype)
        curvature[:d, :d] = 2 * self.problem.covariance
        optimum[:, :d] = self.problem.optimum_columns.T
        data = curvature, optimum
        return narrow_hessian, data, len(records.weights) * width**2, dtype

    def _piece(self, records: Network, places: np.ndarray, capacity: int) -> PyTree:
        dtype, width = np.result_type(*(w.dtype for w in records.weights)), max(records.widths)
        head, count, depth = (capacity, len(self.members)), len(places), len(records.weights)
        own = slice(self.members[0], self.members[0] + self.count)
        low, high = sorted((int(places[0]), int(places[-1])))

        def put(target: np.ndarray, array: np.ndarray) -> None:  # slices are faster
            part = array[low : high + 1, own]
            target[:count, : self.count] = part if places[0] == low else part[::-1]
            target[:count, self.count :] = target[:count, self.count - 1 : self.count]

        layers = np.zeros((*head, depth, width, width), dtype)
        for k, weight in enumerate(records.weights):
            put(layers[:, :, k, : weight.shape[2], : weight.shape[3]], np.asarray(weight))
        last = records.weights[-1].shape[2]
        readout = np.zeros((*head, last if records.readout is None else 1, width), dtype)
        if records.readout is None:
            readout[..., :last] = np.eye(last)
        else:
            put(readout[:, :, 0, :last], np.asarray(records.readout))
        return layers, readout


@dataclass
class _General(_Chunk):
    """Any network or loss, by automatic differentiation."""

    compiled = staticmethod(eqx.filter_jit(follow))

    known: tuple[Callable, Any, int, np.dtype] | None = None

    def _operator(self, records: PyTree) -> tuple[Callable, Any, int, np.dtype]:
        if self.known is None:
            tree = _arrays(records, lambda leaf: jnp.asarray(leaf[0]))
            (_, size), dtype = extent(tree)
            data = (*surface(self.problem, tree), eqx.partition(tree, eqx.is_array)[1])
            self.known = autodiff_hessian, data, size, dtype
        return self.known

    def _piece(self, records: PyTree, places: np.ndarray, capacity: int) -> PyTree:
        own = np.ix_(np.resize(places, capacity), self.members)
        return eqx.filter(_arrays(records, lambda leaf: jnp.asarray(leaf[own])), eqx.is_array)
