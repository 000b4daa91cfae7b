"""Which code takes the steps of a descent: compiled lanes, the compiled rank kernel, or JAX."""

from __future__ import annotations

from typing import Any

from deeplin.checks import InputError
from deeplin.dynamics.jax_steps import JaxSteps
from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.dynamics.state import Rules
from deeplin.dynamics.update import Update
from deeplin.networks import Network
from deeplin.problems import Problem

BACKENDS = ("auto", "kernel", "shape-free", "jax")
WIDEST = {"linear": 32, "gelu": 8, "relu": 8}
"""Widest layer for which the kernel is chosen, between what batches gain and single networks lose.

A kernel works on a full lane even for one network. The choice looks at the shape of the networks
only: were it to depend on the size of the batch, results would change in their last digits with
the way runs are grouped.
"""


def choose(
    backend: str,
    problem: Any,
    objective: Objective,
    ensemble: Ensemble,
    rules: Rules,
    update: Update,
) -> Any:
    """The dynamics that trains this ensemble."""
    if backend not in BACKENDS:
        raise InputError(f"backend is {backend!r}; pass one of {', '.join(BACKENDS)}.")
    kernel = backend in ("kernel", "shape-free")
    fits = _kernel_fits(problem, ensemble) and update.in_kernels
    if kernel and not fits:
        raise InputError(
            f'backend is "{backend}", which trains networks on a Problem on a CPU, without an '
            'optimizer; pass "auto".'
        )
    if kernel or (backend == "auto" and fits and _narrow(ensemble)):
        from deeplin.dynamics.lane_steps import LaneSteps  # numba is slow to import

        return LaneSteps(objective, ensemble, rules, update, unroll=backend != "shape-free")
    return JaxSteps(objective, ensemble, rules, update)


def _kernel_fits(problem: Any, ensemble: Ensemble) -> bool:
    """Whether there is a compiled kernel for this problem, network and machine."""
    on_cpu = all(device.platform == "cpu" for device in ensemble.weights[0].devices())
    return isinstance(problem, Problem) and ensemble.layout.network and on_cpu


def _narrow(ensemble: Ensemble) -> bool:
    network: Network = ensemble.tree(ensemble.weights)
    return max(network.widths) <= WIDEST[network.activation]
