"""The Hessian of anything over its flattened parameters, and the one place that chooses its form.

`hessian_of` gives the reduced Hessian of a linear network with one output (compiled once for every
shape, in the coordinates of its range, see `kernels.hessian`), else automatic differentiation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from deeplin.errors import InputError
from deeplin.kernels import hessian as kernel
from deeplin.kernels.compiling import call
from deeplin.networks import Loss, Network, check_fits, landscape, linear_gradient, linear_risk
from deeplin.networks.trees import no_parameters
from deeplin.problems import Problem


@dataclass(frozen=True)
class PlainLoss:
    """A loss of one pytree as a risk function; equal for equal losses, so compiled code is kept."""

    loss: Loss

    def __call__(self, _data: None, tree: PyTree) -> Array:
        """The loss itself."""
        return self.loss(tree)


def check_subject(problem: Problem | Loss, tree: PyTree) -> None:
    """Raise unless there is a Hessian of this problem (or loss) at this network (or pytree)."""
    if isinstance(problem, Problem):
        if not isinstance(tree, Network):
            raise InputError(
                f"the sharpness of a Problem needs a Network; received {type(tree).__name__}. Pass "
                "a Network (deeplin.from_torch makes one of a PyTorch module), or a loss function "
                "with its own parameters."
            )
        check_fits(problem, tree)
    elif not callable(problem):
        raise InputError(
            f"received {type(problem).__name__}; pass a Problem, or a function from the "
            "parameters to a scalar loss."
        )


def surface(problem: Problem | Loss, tree: PyTree) -> tuple[Callable, Any]:
    """The pair (risk function, its data) whose Hessian at `tree` is asked for."""
    return landscape(problem, tree) if isinstance(problem, Problem) else (PlainLoss(problem), None)


def parameters(tree: PyTree) -> tuple[Any, Callable[[Any], Any]]:
    """What is trained in a pytree, and the function that puts it back.

    Of a Network the weights are trained and the read-out is fixed; of any other pytree every
    floating array is trained.
    """
    if isinstance(tree, Network):
        return tree.weights, lambda weights: Network(weights, tree.readout, tree.activation)
    trained, fixed = eqx.partition(tree, eqx.is_inexact_array)
    return trained, lambda arrays: eqx.combine(arrays, fixed)


def as_batch(tree: PyTree) -> PyTree:
    """The pytree with a leading batch axis (a Network may have one already)."""
    if isinstance(tree, Network):
        return Network.with_batch(tree)  # through the class: bound methods of modules are slow
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None] if eqx.is_array(leaf) else leaf, tree)


def extent(trees: PyTree) -> tuple[tuple[int, int], np.dtype]:
    """Trees in a batch and parameters of each, and the precision of their vectors."""
    leaves = jax.tree.leaves(parameters(trees)[0])
    if not leaves:
        raise no_parameters(trees)
    batch = len(leaves[0])
    size = sum(leaf.size for leaf in leaves) // batch
    return (batch, size), np.result_type(*{leaf.dtype for leaf in leaves})


def gradient(risk: Callable, data: Any, tree: PyTree) -> tuple[Callable[[Array], Array], Array]:
    """∇R as a function of the flattened parameters, and those of `tree`."""
    trained, rebuild = parameters(tree)
    vector, unravel = ravel_pytree(trained)
    if risk is linear_risk:  # the closed form is cheaper than reverse mode
        return lambda x: ravel_pytree(linear_gradient(data, rebuild(unravel(x))))[0], vector
    return jax.grad(lambda x: risk(data, rebuild(unravel(x)))), vector


def linear_operator(risk: Callable, data: Any, tree: PyTree) -> Callable[[Array], Array]:
    """The map v ↦ Hv at `tree`.

    The gradient is linearised once, so that each product costs about as much as one gradient.
    """
    return jax.linearize(*gradient(risk, data, tree))[1]


class AutodiffHessian:
    """The Hessian of any loss at each network (or pytree) of a batch, (batch, parameters).

    `hessian(members, vectors)` multiplies those with the numbers `members`, each by its vector.
    """

    def __init__(self, problem: Problem | Loss, trees: PyTree):
        self.risk, self.data = surface(problem, trees)
        self.trees = trees
        self.shape, self.dtype = extent(trees)

    def __call__(self, members: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Hv, a row for each of the members."""
        everyone = np.zeros(self.shape, self.dtype)
        everyone[members] = vectors  # the others are multiplied too: one compiled shape
        images = products(self.risk, self.data, self.trees, jnp.asarray(everyone))
        return np.asarray(images)[members]

    def expand(self, _members: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Flat vectors of parameters: the coordinates themselves."""
        return coordinates

    project = expand


class ReducedHessian:
    """The Hessians of linear networks with one output in the coordinates of their range.

    Coordinates that stand for no direction (see `kernels.hessian`) count as directions of
    eigenvalue zero. All other eigenvalues are those of the full Hessians.
    """

    def __init__(self, problem: Problem, networks: Network):
        weights, readouts = map(np.atleast_2d, flat_weights(networks))
        self.dtype = weights.dtype
        widths = np.array(networks.widths)
        curvature, optimum = curvature_and_optimum(problem, self.dtype)
        self.networks = kernel.FlatNetwork(widths, weights, curvature)
        left, right = np.empty((2, len(weights), widths.sum()), self.dtype)
        lengths = np.empty((len(weights), 2, len(widths)), self.dtype)
        self.frame = kernel.Frame(left, right, lengths)
        self.shape = (len(weights), int(np.sum(widths[1:] + widths[:-1])))
        call(kernel.frames, self.networks, readouts, optimum, self.frame)

    def __call__(self, members: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Hx, a row for each of the members."""
        images = np.empty(coordinates.shape, self.dtype)
        rows = np.ascontiguousarray(coordinates)
        call(kernel.multiply_members, self.networks, self.frame, members, rows, images)
        return images

    def expand(self, members: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Flat vectors of weights from coordinates, a row for each of the members."""
        vectors = np.empty((len(members), self.networks.weights.shape[1]), self.dtype)
        frame = self.networks.widths, self.frame.left, self.frame.right
        call(kernel.expand, *frame, members, np.ascontiguousarray(coordinates), vectors)
        return vectors

    def project(self, members: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Coordinates of that part of flat vectors that lies in the range."""
        coordinates = np.empty((len(members), self.shape[1]), self.dtype)
        frame = self.networks.widths, self.frame.left, self.frame.right
        call(kernel.project, *frame, members, np.ascontiguousarray(vectors), coordinates)
        return coordinates


Hessian = AutodiffHessian | ReducedHessian


def hessian_of(problem: Problem | Loss, trees: PyTree) -> Hessian:
    """The Hessian of each tree of a batch (leading axes), in the form that is cheapest to apply."""
    if has_reduced_hessian(problem, trees):
        return ReducedHessian(problem, trees)
    return AutodiffHessian(problem, trees)


def is_linear(problem: Problem | Loss, tree: PyTree) -> TypeGuard[Problem]:
    """Whether these are linear networks on a Problem, where closed forms apply."""
    known = isinstance(problem, Problem) and isinstance(tree, Network)
    return known and tree.activation == "linear"


def has_reduced_hessian(problem: Problem | Loss, networks: PyTree) -> TypeGuard[Problem]:
    """Whether these are linear networks with one output on a Problem, and zero is an eigenvalue.

    The Hessian has a kernel as soon as a layer has more than one row and more than one column; then
    the directions of eigenvalue zero that reduced coordinates add change nothing.
    """
    one_output = is_linear(problem, networks) and networks.outputs == 1
    return one_output and any(min(weight.shape[-2:]) > 1 for weight in networks.weights)


def flat_weights(networks: Network) -> tuple[np.ndarray, np.ndarray]:
    """Weights (…, N) and read-outs (…, d_L) as vectors, for any leading axes."""
    layers = [np.asarray(weight) for weight in networks.weights]
    weights = np.concatenate([layer.reshape(*layer.shape[:-2], -1) for layer in layers], axis=-1)
    readout = np.ones(1) if networks.readout is None else np.asarray(networks.readout)
    readouts = np.empty((*weights.shape[:-1], readout.shape[-1]), weights.dtype)
    readouts[:] = readout
    return weights, readouts


def curvature_and_optimum(problem: Problem, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """2Σ̂ and w*, as the kernels take them."""
    return 2 * problem.covariance.astype(dtype), problem.optimum.reshape(-1).astype(dtype)


@eqx.filter_jit
def products(risk: Callable, data: Any, trees: PyTree, vectors: Array) -> Array:
    """Hv for each tree of a batch and its vector, (batch, parameters)."""
    return over_batch(lambda tree, v: linear_operator(risk, data, tree)(v))(trees, vectors)


@eqx.filter_jit
def gradients(risk: Callable, data: Any, trees: PyTree) -> Array:
    """∇R as a flat vector for each tree of a batch, (batch, parameters)."""

    def one(tree):
        function, vector = gradient(risk, data, tree)
        return function(vector)

    return over_batch(one)(trees)


@eqx.filter_jit
def dense(risk: Callable, data: Any, trees: PyTree) -> Array:
    """The Hessian matrices of a batch of trees by automatic differentiation (the oracle)."""

    def matrix(tree):
        trained, rebuild = parameters(tree)
        vector, unravel = ravel_pytree(trained)
        return jax.hessian(lambda x: risk(data, rebuild(unravel(x))))(vector)

    return over_batch(matrix)(trees)


def over_batch(function: Callable) -> Callable:
    """`function` mapped over the leading axis of every array in its arguments."""
    return eqx.filter_vmap(function, in_axes=eqx.if_array(0))
