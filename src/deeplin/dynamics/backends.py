"""Which code takes the steps of a descent: compiled kernels, or JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from deeplin.checks import InputError
from deeplin.dynamics.jax_steps import JaxSteps
from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.dynamics.state import Rules
from deeplin.dynamics.update import Update
from deeplin.networks import Network
from deeplin.problems import Problem

BACKENDS = ("auto", "kernel", "shape-free", "wide", "units", "jax")
WIDEST = {"linear": 24, "gelu": 8, "relu": 8}
"""Widest layer for which lanes are chosen for a batch of networks; without an entry, no lanes.

The choice looks at the shape of the networks only: were it to depend on the size of the batch,
results would change in their last digits with the way runs are grouped.
"""
MOST_UNITS = 64
"""Units of a layer as the bits of a word (`deeplin.kernels.rectified`)."""
WIDEST_ALONE = 8
"""The same for one linear network, which leaves the other places of a lane empty.

Measured, L = 10, µs a step in lanes and by rank-q updates: width 2: 0.16 and 0.29; 5: 0.64 and
0.40; 8: 1.39 and 0.39. Lanes are kept up to 8 all the same: there a network alone takes the steps
it takes in a batch, to the last bit. Of 16 networks: width 20: 1.14 and 1.65; 24: 1.84 and 1.98;
32: 3.51 and 3.03.
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
    compiled = isinstance(problem, Problem) and ensemble.layout.network and ensemble.on_cpu
    network = ensemble.tree(ensemble.weights)
    lanes = compiled and network.activation in WIDEST and update.method.optimizer is None
    rank = compiled and _fits_rank(problem, network, update)
    if backend in ("kernel", "shape-free") and not lanes:
        raise InputError(
            f'backend is "{backend}", which trains networks (linear, GELU, ReLU) on a Problem '
            'on a CPU, without an optimizer; pass "auto".'
        )
    if backend == "wide" and not rank:
        raise InputError(
            'backend is "wide", which trains linear networks in float64 on all rows of a Problem, '
            'with one constant learning rate and no weight decay; pass "auto".'
        )
    units = lanes and network.activation == "relu" and _fits_units(network, update)
    if backend == "units" and not units:
        raise InputError(
            'backend is "units", which trains ReLU networks of at most 64 hidden units a layer, '
            'without read-out, by plain descent on all rows of a Problem; pass "auto".'
        )
    if backend == "auto":
        backend = _cheapest(network, ensemble.single, lanes, rank, units)
    if backend == "units":
        from deeplin.dynamics.relu_steps import ReluSteps

        return ReluSteps(objective, ensemble, rules, update)
    if backend == "wide":
        from deeplin.dynamics.rank_steps import EigenSteps  # numba is slow to import

        return EigenSteps(problem, ensemble, rules, update)
    if backend == "jax":
        return JaxSteps(objective, ensemble, rules, update)
    from deeplin.dynamics.lane_steps import LaneSteps

    return LaneSteps(objective, ensemble, rules, update, unroll=backend != "shape-free")


def _cheapest(network: Network, single: bool, lanes: bool, rank: bool, units: bool) -> str:
    """The backend with the lowest measured cost for this shape."""
    if not lanes:
        return "jax"
    widest = max(network.widths)
    if widest <= (WIDEST_ALONE if rank and single else WIDEST[network.activation]):
        return "kernel"
    return "wide" if rank else "units" if units else "jax"


def _fits_units(network: Network, update: Update) -> bool:
    """Whether the units of a ReLU network can be lanes: up to 64 of them, plain descent."""
    plain = update.variant in ("plain", "layers") and update.batches is None
    plain = plain and not (update.momentum or update.weight_decay)
    fits = network.readout is None and network.depth > 1
    return plain and fits and max(network.widths[1:-1]) <= MOST_UNITS


def _fits_rank(problem: Problem, network: Network, update: Update) -> bool:
    """Whether every step is a rank-q update with one rate for all layers."""
    plain = update.variant == "plain" and not update.weight_decay and update.batches is None
    linear = network.activation == "linear" and network.weights[0].dtype == np.float64
    return plain and linear and problem.rank > 0
