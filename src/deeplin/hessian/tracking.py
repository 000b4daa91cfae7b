"""Sharpness along a trajectory: each point starts from the eigenvectors of the point before.

Where the first vector starts is predicted from where it has been. If it arrives close enough, one
product gives the answer (a Rayleigh quotient is accurate to the square of the angle); otherwise
locally optimal conjugate gradients (as in LOBPCG, Knyazev 2001) improve it, a product at a time. A
second vector is kept for an eigenvalue that overtakes, and from time to time a look in a fresh
direction finds one that has come from far below (see `kernels.tracking`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from deeplin.errors import InputError, positive_number, shown, whole_number
from deeplin.hessian.follower import Operators, one_by_one
from deeplin.hessian.operators import (
    as_batch,
    check_subject,
    curvature_and_optimum,
    has_reduced_hessian,
    parameters,
)
from deeplin.hessian.result import HessianSpectrum, Tracked
from deeplin.hessian.spectrum import spectra
from deeplin.kernels.compiling import call, in_threads, thread_count
from deeplin.kernels.pursuit import FAR, Pursuit, pursuit, room
from deeplin.kernels.sharpness_along import Layers, along
from deeplin.networks import Network, explained
from deeplin.problems import Problem
from deeplin.validation import validated

IN_LANES = 16
"""Networks up to this width are followed in lanes, wider ones one by one."""
THREAD = 500
"""Records of networks that are worth a thread of their own (about a millisecond)."""
PARTS = 4
"""Pieces of work for each thread: one that the machine holds up leaves the next to the others."""


class SharpnessTracker:
    """Sharpness of a batch of networks, called again and again as they move.

    Arguments:
        problem: a `Problem` or a loss, as for `sharpness`.
        tolerance: the residual ‖Hv − θv‖ allowed, relative to ‖Hv‖. The value itself is far more
            accurate, about tolerance².

    Two eigenvectors are kept. The second is examined at every eighth call, and at once when it may
    have caught up. An eigenvalue that rises from far below both, and whose vector
    hardly meets theirs, is found by a look in a fresh direction at every 64th call: late by so many
    calls at most. `sharpness_along`, which has all records at hand, looks at the last one as well,
    and then goes back and corrects them, as it does wherever the value jumps.

    ```python
    import deeplin as dl, jax, numpy as np
    from deeplin.hessian import SharpnessTracker
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    tracker = SharpnessTracker(problem)
    tracker(net).value  # later, for networks nearby: one or two products each
    ```
    """

    def __init__(self, problem: Any, *, tolerance: float = 1e-3):
        self.problem = problem
        self.tolerance = positive_number("tolerance", tolerance)
        self.follow: _Networks | Operators | None = None

    def __call__(self, networks: Any) -> Tracked:
        """Sharpness of each network, from the eigenvectors found at the last call."""
        check_subject(self.problem, networks)
        batch = as_batch(networks)
        found = self._along(
            jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, batch)
            if not isinstance(batch, Network)
            else jax.tree.map(lambda leaf: np.asarray(leaf)[None], batch),
            live=True,
        )
        return Tracked(*(column[0] for column in found))

    def along(self, records: Any) -> Tracked:
        """Sharpness at each of several records, (records, batch)."""
        return self._along(records, live=False)

    def _along(self, records: Any, live: bool) -> Tracked:
        """The same; `live` if what is found late can not be put right later."""
        if self.follow is None:
            linear = has_reduced_hessian(self.problem, records)
            self.follow = (_Networks if linear else Operators)(self.problem, self.tolerance)
        return self.follow(records, live)


@validated
def sharpness_along(
    problem: Any,
    trajectory: Any,
    *,
    tolerance: float = 1e-3,
    count: int = 1,
    vectors: bool = False,
) -> Any:
    """Sharpness at each record of a trajectory (a leading record axis, then perhaps a batch axis).

    `trajectory` is `run.trajectory`, or for a loss of your own a pytree whose arrays have a leading
    record axis. Arguments and accuracy as for `SharpnessTracker`. With `count` above one, or with
    `vectors=True`, the spectrum at each record instead (see `hessian_spectrum`), whose arrays have
    the record axis first.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    run = dl.gradient_descent(problem, net, learning_rate=0.02, steps=100, record_every=10)
    dl.sharpness_along(problem, run.trajectory).value
    dl.sharpness_along(problem, run.trajectory, count=3).values
    ```
    """
    records, batched = records_of(problem, trajectory)
    tracker = SharpnessTracker(problem, tolerance=tolerance)
    example = None if isinstance(problem, Problem) else _alone(next(one_by_one(records)))
    with explained(problem, example):
        if whole_number("count", count) > 1 or vectors:
            found = spectrum_along(problem, records, count=count)
            return found if batched else found.member((slice(None), 0))
        found = tracker.along(records)
    return found if batched else Tracked(*(column[:, 0] for column in found))


def records_of(problem: Any, trajectory: Any) -> tuple[Any, bool]:
    """The trajectory as a tree with axes for records and batch, and whether it had the latter."""
    batched = getattr(trajectory, "batched", False)
    trajectory = getattr(trajectory, "stacked", trajectory)
    leaf, *_ = jax.tree.leaves(parameters(trajectory)[0]) or [None]
    if leaf is None or leaf.ndim == 0 or len(leaf) == 0:
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
        return trajectory if batched else _with_second_axis(trajectory), batched
    batched, readout = leaf.ndim == 4, trajectory.readout
    if readout is not None:  # one for all, or one for each record, or for each network as well
        axes = leaf.shape[: leaf.ndim - 2]
        readout = np.broadcast_to(readout, (*axes, readout.shape[-1]))
    networks = eqx.tree_at(lambda n: n.readout, trajectory, readout, is_leaf=lambda x: x is None)
    networks = jax.tree.map(np.asarray, networks)  # views: a slice by JAX takes half a millisecond
    return networks if batched else jax.tree.map(lambda leaf: leaf[:, None], networks), batched


def _alone(batch: Any) -> Any:
    """The first of a batch of trees."""
    return jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, batch)


def spectrum_along(problem: Any, records: Any, *, count: int) -> HessianSpectrum:
    """The spectrum at each of several records, (records, batch, …): all as one batch."""
    axes = np.shape(jax.tree.leaves(parameters(records)[0])[0])[:2]
    arrays = isinstance(records, Network)  # those of NumPy as well

    def flat(leaf):
        return jnp.reshape(leaf, (-1, *leaf.shape[2:])) if arrays or eqx.is_array(leaf) else leaf

    return spectra(problem, jax.tree.map(flat, records), count=count).reshaped(*axes)


def _with_second_axis(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[:, None] if eqx.is_array(leaf) else leaf, tree)


class _Networks:
    """Follows linear networks with one output through their records, in compiled code alone.

    The piece of records before the last call is kept, with what was found there: an eigenvalue
    that is found late is followed back into it, and its arrays are corrected where they are.
    """

    def __init__(self, problem: Problem, tolerance: float):
        self.problem, self.tolerance = problem, tolerance
        self.state: Pursuit | None = None
        self.clock = 0
        self.arrays: list[np.ndarray] = []
        self.found: tuple[np.ndarray, ...] = ()

    def __call__(self, records: Network, live: bool) -> Tracked:
        """The largest eigenvalue of each network at each record."""
        dtype = np.result_type(*(weight.dtype for weight in records.weights))
        arrays = [np.ascontiguousarray(weight, dtype) for weight in records.weights]
        shape, widths = arrays[0].shape[:2], np.array(records.widths)
        readout = np.ones(1) if records.readout is None else np.asarray(records.readout)
        arrays.append(np.empty((*shape, readout.shape[-1]), dtype))
        arrays[-1][:] = readout
        found = np.empty(shape, dtype), np.empty(shape, dtype), np.zeros(shape, np.int64)
        lanes = bool(widths.max() <= IN_LANES)
        if self.state is None:
            self.state = pursuit(shape[1], widths, dtype, lanes)
        if live or not self.found:
            self.arrays, self.found = arrays, tuple(column[:0] for column in found)
        pieces = tuple(
            (Layers(np.array([array.ctypes.data for array in own]), widths, shape[1]), columns)
            for own, columns in ((arrays, found), (self.arrays, self.found))
        )
        accuracy = self.tolerance, FAR if live else 0.0
        data = curvature_and_optimum(self.problem, dtype)
        data = pieces, data, accuracy, self.clock, self.state
        groups = len(self.state.places)
        threads = min(thread_count(), groups, shape[0] * shape[1] // THREAD)
        parts = min(PARTS * threads, groups) if threads > 1 else 1
        cuts = np.linspace(0, groups, parts + 1).astype(np.int64)
        spans = [np.array(span) for span in pairwise(cuts)]

        def follow(span: np.ndarray) -> None:
            call(along, *data, room(widths, dtype, lanes), span)

        in_threads(follow, spans)
        self.clock += shape[0]
        self.arrays, self.found = arrays, found
        return Tracked(*found)
