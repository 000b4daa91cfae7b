"""Risk and gradient of a network on a problem: closed form for linear networks, else autodiff."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from deeplin.errors import InputError
from deeplin.networks import products
from deeplin.networks.network import TORCH, Network, host_arrays
from deeplin.problems.generalized_linear import Objective
from deeplin.problems.losses import ConvexLoss
from deeplin.problems.problem import Problem

Loss = Callable[[PyTree], Array]
"""A loss of one's own: from the parameters to a number."""


class Data(NamedTuple):
    """What a nonlinear network needs: the rows themselves."""

    inputs: Float[Array, "n d"]
    targets: Float[Array, "n q"]


class LossData(eqx.Module):
    """The same for another loss than the squared one."""

    inputs: Float[Array, "n d"]
    targets: Float[Array, "n q"]
    loss: ConvexLoss = eqx.field(static=True)


def linear_risk(objective: Objective, network: Network) -> Array:
    """R(W) of a linear network, as a function of the product of its layers."""
    theta = products.product(network.weights, network.readout)
    return objective.minimal_risk + objective.value_and_gradient(theta)[0]


def gap_and_gradient(objective: Any, network: Network) -> tuple[Array, tuple[Array, ...]]:
    """R − R_min and ∇_k R = (W_{k+1}ᵀ…W_Lᵀp)(W_{k−1}…W_1 g)ᵀ for every layer (FM-L8, FM-grad).

    `objective` has `value_and_gradient(Θ)`.
    """
    backward = products.backward_products(network.weights, network.readout)
    gap, slope = objective.value_and_gradient(backward[0])
    forward = products.forward_products(network.weights, slope)
    return gap, tuple(products.layer_gradients(backward, forward))


def linear_gradient(objective: Objective, network: Network) -> tuple[Array, ...]:
    """∇_k R for every layer of a linear network (FM-grad)."""
    return gap_and_gradient(objective, network)[1]


def distance_to_optimum(problem: Problem, networks: Network) -> np.ndarray:
    """‖Θ − Θ*‖_F², squared, of each network; NaN for nonlinear ones, for which it means nothing."""
    batch = networks.with_batch()
    if batch.activation != "linear":
        return np.full(len(batch.weights[0]), np.nan)
    theta = products.product(*host_arrays(batch))
    return products.squared_distance(theta - problem.optimum.reshape(problem.dimension, -1))


def data_risk(data: Data, network: Network) -> Array:
    """R(W) = (1/n)‖Y − f(X)‖² on the rows, for any activation."""
    residual = network(data.inputs) - data.targets
    return jnp.sum(residual**2) / len(data.inputs)


def loss_risk(data: LossData, network: Network) -> Array:
    """R(W) = (1/n)Σφ(f(x_i), y_i) on the rows, for any activation."""
    return jnp.mean(data.loss.value(network(data.inputs), data.targets))


def risk_and_data(
    problem: Problem, network: Network
) -> tuple[Callable[[Any, Network], Array], Any]:
    """Return the pair (risk function, its data) for this kind of network.

    `risk(data, network)` is a pure function of arrays: linear networks get the moments, others the
    rows. Keeping the data an argument keeps compiled code independent of the problem.
    """
    check_fits(problem, network)
    dtype = network.weights[0].dtype
    if network.activation == "linear":
        objective = problem.objective
        if objective.minimal_risk.dtype != dtype:
            objective = jax.tree.map(lambda leaf: leaf.astype(dtype), objective)
        return linear_risk, objective
    rows = problem.require_data(f"a network with {network.activation} activation")
    data = Data(*(jnp.asarray(matrix, dtype) for matrix in rows))
    if problem.loss == "squared":
        return data_risk, data
    return loss_risk, LossData(*data, problem.convex_loss)


def check_loss(loss: Loss, tree: PyTree) -> None:
    """Raise unless JAX can trace a caller's loss at `tree` and it returns one real number.

    Of a batch of networks the first is tried.
    """
    if isinstance(tree, Network) and tree.batch is not None:
        tree = jax.tree.map(lambda leaf: leaf[0], tree.with_batch())
    try:
        value = eqx.filter_eval_shape(loss, tree)
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        raise InputError(
            "the loss turns its parameters into NumPy arrays, PyTorch tensors or plain numbers, "
            "through which JAX cannot differentiate; write it with jax.numpy."
        ) from error
    except Exception as error:  # the caller's own function: whatever it raises
        if _from_torch(error):
            raise InputError(f"the loss is {TORCH}") from error
        reason = next(iter(str(error).splitlines()), "")[:200]
        raise InputError(
            f"the loss raised {type(error).__name__} on these parameters: {reason}; pass "
            "parameters that it takes (one pytree, not a list of them)."
        ) from error
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape != () or dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        came = type(value).__name__ if shape is None else f"an array {shape} of {dtype}"
        raise InputError(f"the loss returns {came}; it must return one real number (a JAX scalar).")


def _from_torch(error: BaseException) -> bool:
    """Whether PyTorch raised this: in a frame of its own, or in its compiled code."""
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "torch":
            return True
        frame = frame.tb_next
    return "must be Tensor" in str(error) or "'Tensor'" in str(error)


@contextmanager
def explain_loss_errors(problem: Problem | Loss, tree: PyTree) -> Iterator[None]:
    """Turn an error inside this context into an InputError if the caller's loss is the cause."""
    try:
        yield
    except InputError:
        raise
    except Exception:
        if not isinstance(problem, Problem):
            check_loss(problem, tree)
        raise


def check_fits(problem: Problem, network: Network) -> None:
    """Raise unless the network takes the problem's inputs and returns its targets."""
    if network.widths[0] != problem.dimension:
        more = network.widths[0] == problem.dimension + 1
        ones = ", or append a column of ones to the data if the last is for biases" if more else ""
        raise InputError(
            f"the network takes {network.widths[0]} inputs and the problem has "
            f"{problem.dimension}; make the first layer {problem.dimension} columns wide{ones}."
        )
    if network.outputs != problem.outputs:
        raise InputError(
            f"the network returns {network.outputs} value(s) and the problem has "
            f"{problem.outputs} target(s); change the last layer or pass a read-out."
        )
