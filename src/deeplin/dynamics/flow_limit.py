"""Where the gradient flow from a linear network ends, and how sharp it is there."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import numpy as np

from deeplin.dynamics.engine import Status
from deeplin.dynamics.objective import objective_of
from deeplin.dynamics.runge_kutta import Flows, Integration, integrate, pair_of
from deeplin.hessian.exact import Tangent, exact
from deeplin.networks import Network, host_arrays
from deeplin.problems import Problem

TOLERANCES = (1e-10, 1e-12)
"""Relative and absolute error of a step."""
NEAR = 1e-14
"""Share of R(0) − R_min of the zero map below which the rest is one step of length 1e-7; its square
is what that leaves out."""
HORIZON, LIMIT = 1e15, 20_000
"""The most time of a flow to a minimizer: one that gets this far has nowhere to go. And its most
steps."""


class FlowLimit(NamedTuple):
    """Where flows end, each with leading axis batch."""

    network: Network
    reached: np.ndarray
    """Whether the flow came to a minimizer; else `network` is as far as it got."""
    time: np.ndarray
    """Time until the last step."""


def flow_limit(problem: Problem, networks: Network) -> FlowLimit:
    """The ends of the gradient flows from each of a batch of linear networks.

    They are integrated until Θ is close to a minimizer; the rest is one step, to the nearest one.
    """
    networks = networks.with_batch()
    objective = objective_of(problem, networks)
    nothing = np.zeros(len(networks.weights[0]))
    weights, fixed = objective.layout.split(networks)
    starts = Flows(weights, nothing, *(nothing.astype(np.int32) for _ in range(3)))
    integration = Integration(pair_of("Dopri8"), *TOLERANCES, LIMIT, HORIZON)
    goals = np.full_like(nothing, NEAR * problem.zero_gap)
    found = integrate(objective.gradient, objective.data, integration, starts, fixed, goals)
    weights, time, reached = found.weights, found.time, found.status == Status.CONVERGED
    _, readout = host_arrays(networks)
    ends = [np.array(weight) for weight in weights]
    if reached.any():
        part = readout if readout is None or readout.ndim == 1 else readout[reached]
        near = Tangent.of(problem, [weight[reached] for weight in weights], part)
        for layer, moved in zip(ends, _to_minimizers(near), strict=True):
            layer[reached] = moved
    return FlowLimit(eqx.tree_at(lambda n: n.weights, networks, tuple(ends)), reached, time)


def flow_sharpness(problem: Problem, networks: Network) -> tuple[np.ndarray, np.ndarray]:
    """Sharpness at the end of the flow from each of a batch of linear networks, and its error.

    The error bounds that of the sharpness at the end found; integration itself is kept to 1e-10 a
    step. Not a number where the flow ends at no minimizer.
    """
    limit = flow_limit(problem, networks)
    value, error = exact(problem, limit.network, "largest")
    return np.where(limit.reached, value, np.nan), np.where(limit.reached, error, np.inf)


def _to_minimizers(tangent: Tangent) -> list[np.ndarray]:
    """W_k − V_k(B_kx)ᵀ with Kx = e: the step to the nearest minimizer (X-1 has the letters).

    There K = JJᵀ hardly changes, so that e = Cᵀ(Θ − Θ*) decays as ė = −2Ke and all that the flow
    still does to the weights is −Jᵀ∫2e dt = −JᵀK⁻¹e. What it leaves out is of the order of |e|².
    """
    left = tangent.left
    x = np.linalg.solve(tangent.kernel, left.reshape(len(left), -1, 1)).reshape(left.shape)
    letters = zip(tangent.weights, tangent.forward, tangent.backward[1:], strict=True)
    return [weight - v @ (b @ x).mT for weight, b, v in letters]
