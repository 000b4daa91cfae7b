"""Training and sharpness of linear networks of any shape at once, without compiling for it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import equinox as eqx
import numpy as np

from deeplin.dynamics.descent import BLOW_UP, CLOSE
from deeplin.dynamics.run import CONVERGED, DIVERGED, STOPPED, Records, Run
from deeplin.explorer.linear_kernel import descend, follow
from deeplin.explorer.measures import against_optimum
from deeplin.networks import Network
from deeplin.problems import Problem


def linear_descent(
    problem: Problem, nets: Network, rates: np.ndarray, steps: int, every: int
) -> Run:
    """What `gradient_descent(…, record_every=every)` returns for a batch, by the same rules.

    ```python
    run = linear_descent(problem, nets, np.full(5, 0.02), steps=500, every=5)
    run.status, run.trajectory
    ```
    """
    start, readout = _flat(nets), _readouts(nets)
    begin = against_optimum(problem, nets)
    level = np.maximum(begin["risk"], problem.target_moment)
    ceiling = BLOW_UP * level - problem.minimal_risk
    shared = (np.array(nets.widths), 2 * problem.covariance, problem.optimum.reshape(-1))

    def train(i: int):
        widths, covariance, optimum = shared
        return descend(
            widths, start[i], readout[i], covariance, optimum,
            rates[i], steps, every, ceiling[i],
        )  # fmt: skip

    parts = list(_threads().map(train, range(len(start))))
    moments = max((part[1] for part in parts), key=len)
    flat = np.stack([_padded(part[0], len(moments)) for part in parts], axis=1)
    lost = np.array([part[2] for part in parts])
    trajectory = _networks(flat, nets)
    records = against_optimum(problem, trajectory)
    status = np.full(len(start), STOPPED, dtype="<U9")
    status[records["gap"][-1] <= CLOSE * begin["gap"]] = CONVERGED
    status[lost >= 0] = DIVERGED
    return Run(
        network=_networks(flat[-1], nets),
        initial=nets,
        status=status,
        steps=np.where(lost >= 0, lost, steps),
        records=Records({"step": moments} | records),
        trajectory=trajectory,
        learning_rate=rates,
        evidence={name: records[name][-1] for name in ("risk", "gap")},
    )


def linear_sharpness(problem: Problem, trajectory: Network, tolerance: float = 1e-3) -> np.ndarray:
    """Sharpness along a trajectory (records, then batch), by Lanczos with warm starts.

    The residual ‖Hv − θv‖ is at most `tolerance` relative to θ, the value about its square more
    accurate; not a number where the weights are not.
    """
    flat, readouts = _flat(trajectory), _readouts(trajectory)
    fresh = np.random.default_rng(0).standard_normal(flat.shape[-1])
    widths, covariance = np.array(trajectory.widths), 2 * problem.covariance
    optimum = problem.optimum.reshape(-1)

    def track(i: int):
        runs, outer = np.ascontiguousarray(flat[:, i]), np.ascontiguousarray(readouts[:, i])
        return follow(widths, covariance, optimum, fresh, tolerance, runs, outer)[0]

    return np.stack(list(_threads().map(track, range(flat.shape[1]))), axis=1)


@cache
def _threads() -> ThreadPoolExecutor:
    """One thread for each core, shared by all visitors."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="linear")


def _flat(networks: Network) -> np.ndarray:
    """Weights as vectors, (…, size)."""
    layers = [np.asarray(weight, np.float64) for weight in networks.weights]
    return np.concatenate([layer.reshape(*layer.shape[:-2], -1) for layer in layers], axis=-1)


def _networks(flat: np.ndarray, like: Network) -> Network:
    """The inverse of `_flat`, with the read-out of `like` for every network."""
    weights, place = [], 0
    for layer in like.weights:
        m, n = layer.shape[-2:]
        weights.append(flat[..., place : place + m * n].reshape(*flat.shape[:-1], m, n))
        place += m * n
    readout = like.readout
    if readout is not None:
        readout = np.broadcast_to(readout, (*flat.shape[:-1], readout.shape[-1]))
    return _unchecked(weights, readout)


def _unchecked(weights: list[np.ndarray], readout: Any) -> Network:
    """A network whose weights may have a record axis before the batch axis."""
    single = Network([weight.reshape(-1, *weight.shape[-2:])[:1] for weight in weights])
    leaves = (tuple(weights), readout)
    return eqx.tree_at(
        lambda net: (net.weights, net.readout), single, leaves, is_leaf=lambda leaf: leaf is None
    )


def _readouts(networks: Network) -> np.ndarray:
    """The read-out of every network, (…, d_L)."""
    shape = networks.weights[0].shape[:-2]
    readout = np.ones(1) if networks.readout is None else np.asarray(networks.readout)
    return np.ascontiguousarray(np.broadcast_to(readout, (*shape, readout.shape[-1])))


def _padded(rows: np.ndarray, length: int) -> np.ndarray:
    """Repeat the last row: a run that has stopped stays where it is."""
    return np.concatenate([rows, np.repeat(rows[-1:], length - len(rows), axis=0)])
