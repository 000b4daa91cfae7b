"""Risk and gradient of a network on a problem: closed form for linear networks, else autodiff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from deeplin.checks import InputError
from deeplin.networks.network import Network, backward_products, forward_products
from deeplin.problems.problem import Problem, Quadratic


class Data(NamedTuple):
    """What a nonlinear network needs: the rows themselves, and R_min for gaps."""

    inputs: Float[Array, "n d"]
    targets: Float[Array, "n q"]
    minimal_risk: Float[Array, ""]


def gap(quadratic: Quadratic, product: Float[Array, "d q"]) -> Array:
    """R − R_min = Tr((Θ−Θ*)ᵀ Σ̂ (Θ−Θ*)) (FM-L8)."""
    difference = product - quadratic.optimum
    return jnp.sum(difference * (quadratic.covariance @ difference))


def gradient_of_product(quadratic: Quadratic, product: Float[Array, "d q"]) -> Float[Array, "d q"]:
    """g = ∇R¹(w) = 2Σ̂(w − w*) (FM-grad)."""
    return 2 * quadratic.covariance @ (product - quadratic.optimum)


def linear_risk(quadratic: Quadratic, network: Network) -> Array:
    """R(W) of a linear network, from the moments alone."""
    return quadratic.minimal_risk + gap(quadratic, backward_products(network)[0])


def linear_gradient(quadratic: Quadratic, network: Network) -> tuple[Array, ...]:
    """∇_k R = (W_{k+1}ᵀ…W_Lᵀp)(W_{k−1}…W_1 g)ᵀ for every layer (FM-grad)."""
    backward = backward_products(network)
    slope = gradient_of_product(quadratic, backward[0])
    forward = forward_products(network, slope)
    return tuple(v @ u.T for v, u in zip(backward[1:], forward, strict=True))


def data_risk(data: Data, network: Network) -> Array:
    """R(W) = (1/n)‖Y − f(X)‖² on the rows, for any activation."""
    residual = network(data.inputs) - data.targets
    return jnp.sum(residual**2) / len(data.inputs)


def landscape(problem: Problem, network: Network) -> tuple[Callable[[Any, Network], Array], Any]:
    """The pair (risk function, its data) for this kind of network.

    `risk(data, network)` is a pure function of arrays: linear networks get the moments, others the
    rows. Keeping the data an argument keeps compiled code independent of the problem.
    """
    check_fits(problem, network)
    dtype = network.weights[0].dtype
    if network.activation == "linear":
        return linear_risk, jax.tree.map(lambda leaf: leaf.astype(dtype), problem.quadratic)
    inputs, targets = problem.require_data(f"a network with {network.activation} activation")
    rows = Data(inputs, targets, problem.minimal_risk)  # pyright: ignore[reportArgumentType]
    return data_risk, jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), rows)


def check_fits(problem: Problem, network: Network) -> None:
    """Raise unless the network takes the problem's inputs and returns its targets."""
    if network.widths[0] != problem.dimension:
        raise InputError(
            f"the network takes {network.widths[0]} inputs and the problem has "
            f"{problem.dimension}; make the first layer {problem.dimension} columns wide."
        )
    if network.outputs != problem.outputs:
        raise InputError(
            f"the network returns {network.outputs} value(s) and the problem has "
            f"{problem.outputs} target(s); change the last layer or pass a read-out."
        )
