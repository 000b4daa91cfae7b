"""Where the gradient flow from a network would end, and how sharp it is there.

The flow Φ_t of a linear network is integrated until Θ is close to a minimiser; there the kernel
K = JJᵀ of the tangent space hardly changes, so that e = Cᵀ(Θ − Θ*), Σ̂ = CCᵀ, decays as ė = −2Ke and
all that the flow still does to the weights is −Jᵀ∫2e dt = −JᵀK⁻¹e: the step to the nearest
minimiser, in layer k −V_k(B_kx)ᵀ with Kx = e (X-1 has the letters). What it leaves out is of the
order of |e|². The sharpness there is that of a minimiser (X-1), exact.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import numpy as np

from deeplin.dynamics.flow_steps import HIGH_ORDER, flow_batch, pair_of
from deeplin.dynamics.state import REACHED
from deeplin.kernels.flow import Integration
from deeplin.networks import Network, host_arrays, products
from deeplin.problems import Problem
from deeplin.sharpness.exact import Factors, exact

TOLERANCES = (1e-10, 1e-12)
"""Relative and absolute error of a step."""
NEAR = 1e-14
"""Share of R(0) − R_min of the zero map below which the rest is one step of length 1e-7; its square
is what that leaves out."""
HORIZON, LIMIT = 1e15, 20_000
"""The longest time and the most steps of a flow."""


class FlowLimit(NamedTuple):
    """Where flows end, each with leading axis batch."""

    network: Network
    reached: np.ndarray
    """Whether the flow came to a minimiser; else `network` is as far as it got."""
    time: np.ndarray
    """Time until the last step."""


def flow_limit(problem: Problem, networks: Network) -> FlowLimit:
    """The ends of the gradient flows from each of a batch of linear networks."""
    factors = Factors.of(problem)
    goal = NEAR * problem.zero_gap
    batch = len(networks.weights[0])
    covariance = np.asarray(problem.covariance)
    moments = covariance, problem.optimum.reshape(len(covariance), -1)
    weights, time, counts = flow_batch(
        moments, networks, Integration(pair_of(HIGH_ORDER), *TOLERANCES, LIMIT, HORIZON),
        np.full(batch, goal), np.zeros(batch), np.zeros(batch, np.int64),
    )  # fmt: skip
    reached = counts[:, 2] == REACHED
    _, readout = host_arrays(networks)
    ends = [np.array(weight) for weight in weights]
    if reached.any():
        part = readout if readout is None or readout.ndim == 1 else readout[reached]
        near = [weight[reached] for weight in weights]
        for layer, moved in zip(ends, _to_minimizers(factors, near, part), strict=True):
            layer[reached] = moved
    return FlowLimit(eqx.tree_at(lambda n: n.weights, networks, tuple(ends)), reached, time)


def flow_sharpness(problem: Problem, networks: Network) -> tuple[np.ndarray, np.ndarray]:
    """Sharpness at the end of the flow from each of a batch of linear networks, and its error.

    The error bounds that of the sharpness at the end found; integration itself is kept to 1e-10 a
    step. Not a number where the flow ends at no minimiser.
    """
    limit = flow_limit(problem, networks)
    value, error = exact(problem, limit.network, "largest")
    return np.where(limit.reached, value, np.nan), np.where(limit.reached, error, np.inf)


def _to_minimizers(
    factors: Factors, weights: list[np.ndarray], readout: np.ndarray | None
) -> list[np.ndarray]:
    """W_k − V_k(B_kx)ᵀ with Kx = e."""
    root, goal = factors
    batch = len(weights[0])
    forward = products.forward_products(weights, np.broadcast_to(root, (batch, *root.shape)))
    backward = products.backward_products(weights, readout)
    left = root.T @ backward[0] - goal
    kernel = products.tangent_kernel(backward, forward)
    x = np.linalg.solve(kernel, left.reshape(batch, -1, 1)).reshape(left.shape)
    pairs = zip(weights, forward, backward[1:], strict=True)
    return [weight - v @ (b @ x).mT for weight, b, v in pairs]
