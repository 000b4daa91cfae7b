"""Sharpness along a trajectory: each point starts from the eigenvectors of the point before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

from deeplin.checks import InputError, positive_number, shown
from deeplin.door import door
from deeplin.networks import Network, explained
from deeplin.sharpness.following import Follower, Tracked
from deeplin.sharpness.hessian import AutodiffHessian, as_batch, check_subject, parameters
from deeplin.sharpness.linear_hessian import LinearHessian, flat_weights, is_scalar_linear


class SharpnessTracker:
    """Sharpness of a batch of networks, called again and again as they move.

    Arguments:
        problem: a `Problem` or a loss, as for `sharpness`.
        tolerance: the residual ‖Hv − θv‖ allowed, relative to ‖Hv‖. The value itself is far more
            accurate, about tolerance².

    Two eigenvectors are followed. An eigenvalue that rises from far below both, and whose vector
    hardly meets theirs, can go unnoticed for some calls; `sharpness`, which starts afresh at each
    point, has no such limit.

    ```python
    import deeplin as dl, jax, numpy as np
    from deeplin.sharpness import SharpnessTracker
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    nets = dl.initialize.gaussian(jax.random.split(jax.random.key(0), 8), (5, 5, 1), scale=0.35)
    tracker = SharpnessTracker(problem)
    tracker(nets).value  # later, for networks nearby: one or two products each
    ```
    """

    def __init__(self, problem: Any, *, tolerance: float = 1e-3):
        self.problem = problem
        self.tolerance = positive_number("tolerance", tolerance)
        self.follower: Follower | None = None

    def __call__(self, networks: Any) -> Tracked:
        """Sharpness of each network, from the eigenvectors found at the last call."""
        return self.follow(_hessians(self.problem, networks))

    def follow(self, hessians: LinearHessian | AutodiffHessian) -> Tracked:
        """The largest eigenvalues of Hessians near those of the last call."""
        if self.follower is None:
            blocks = _random_blocks(hessians.shape, hessians.dtype)
            self.follower = Follower(blocks, self.tolerance)
        return self.follower(hessians)


@door
def sharpness_along(problem: Any, trajectory: Any, *, tolerance: float = 1e-3) -> Tracked:
    """Sharpness at each record of a trajectory (a leading record axis, then perhaps a batch axis).

    `trajectory` is a `Network` such as `run.trajectory`, or for a loss of your own a pytree whose
    arrays have a leading record axis. Arguments and accuracy as for `SharpnessTracker`.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    run = dl.gradient_descent(problem, net, learning_rate=0.02, steps=100, record_every=10)
    dl.sharpness_along(problem, run.trajectory).value
    ```
    """
    leaf, *_ = jax.tree.leaves(parameters(trajectory)[0]) or [None]
    if leaf is None or leaf.ndim == 0 or len(leaf) == 0:
        raise InputError(
            f"trajectory is {shown(trajectory)}; pass run.trajectory, or a pytree of arrays with a "
            "leading record axis."
        )
    batched = isinstance(trajectory, Network) and leaf.ndim == 4
    if isinstance(trajectory, Network) and leaf.ndim not in (3, 4):
        raise InputError(
            f"the trajectory's weights have {leaf.ndim} dimensions; pass run.trajectory, "
            "with a leading record axis."
        )
    check_subject(problem, trajectory)
    tracker = SharpnessTracker(problem, tolerance=tolerance)
    with explained(problem, next(_records(trajectory))):
        found = [tracker.follow(hessians) for hessians in _along(problem, trajectory)]
    columns = (np.stack(column) for column in zip(*found, strict=True))
    return Tracked(*(column if batched else column[:, 0] for column in columns))


def _hessians(problem: Any, networks: Any) -> LinearHessian | AutodiffHessian:
    """Products with the Hessian of each network of a batch."""
    check_subject(problem, networks)
    if not is_scalar_linear(problem, networks):
        return AutodiffHessian(problem, as_batch(networks))
    weights, readouts = map(np.atleast_2d, flat_weights(networks))
    return LinearHessian(problem, networks.widths, weights, readouts)


def _along(problem: Any, trajectory: Any) -> Iterator[LinearHessian | AutodiffHessian]:
    """The Hessians at each record of a trajectory."""
    if not is_scalar_linear(problem, trajectory):
        return (AutodiffHessian(problem, as_batch(record)) for record in _records(trajectory))
    rows = (array.reshape(len(array), -1, array.shape[-1]) for array in flat_weights(trajectory))
    widths = trajectory.widths
    return (LinearHessian(problem, widths, *record) for record in zip(*rows, strict=True))


def _random_blocks(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Two random orthonormal vectors (one, for one parameter), the same for each of a batch."""
    batch, size = shape
    count = min(2, size)
    block = np.zeros((2, size), dtype)
    block[:count] = np.linalg.qr(np.random.default_rng(0).standard_normal((size, count)))[0].T
    return np.repeat(block[None], batch, axis=0)


def _records(trajectory: Any) -> Iterator[Any]:
    """The records of a trajectory one by one; a read-out shared by all of them stays as it is."""
    for index in range(len(jax.tree.leaves(parameters(trajectory)[0])[0])):
        if not isinstance(trajectory, Network):
            yield jax.tree.map(
                lambda leaf, at=index: leaf[at] if eqx.is_array(leaf) else leaf, trajectory
            )
            continue
        readout = trajectory.readout
        if readout is not None and readout.ndim == trajectory.weights[0].ndim - 1:
            readout = readout[index]
        yield Network([w[index] for w in trajectory.weights], readout, trajectory.activation)
