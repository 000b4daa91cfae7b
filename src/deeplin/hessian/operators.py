"""The Hessian over flattened parameters in its various forms, and the choice between them.

`hessian_of` returns the reduced Hessian of a linear network with one output (in NumPy, in
coordinates of its range), and otherwise one by automatic differentiation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from deeplin.errors import InputError, shown
from deeplin.hessian.torch_loss import TorchHessian, TorchLoss
from deeplin.networks import Network, batch_last
from deeplin.networks.network import (
    Layout,
    Loss,
    check_pair,
    linear_gradient,
    linear_risk,
    risk_and_data,
)
from deeplin.networks.products import backward_products, forward_products
from deeplin.problems import Problem
from deeplin.problems.problem import as_columns, as_map


def is_module(value: Any) -> bool:
    """Return whether this is a `torch.nn.Module`."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_operator(value: Any) -> TypeGuard[LinearOperator]:
    """Return whether this is a SciPy operator, or a PyTorch one that can become one."""
    return isinstance(value, LinearOperator) or hasattr(value, "to_scipy")


def own_risk(loss: Loss, tree: PyTree) -> Array:
    """Return a user-defined loss as a risk function whose data is the loss."""
    return loss(tree)


def check_subject(problem: Problem | Loss, tree: PyTree) -> None:
    """Raise unless this is a problem with a network, or a loss with its parameters."""
    if is_operator(problem):
        if tree is not None:
            raise InputError(
                f"network is {shown(tree)}; an operator is passed alone (it holds its parameters)."
            )
    elif isinstance(problem, TorchLoss) and not is_module(tree):
        raise InputError(f"a TorchLoss needs a torch.nn.Module; received {type(tree).__name__}.")
    else:
        check_pair(problem, tree)


def surface(problem: Problem | Loss, tree: PyTree) -> tuple[Callable, Any]:
    """Return the pair (risk function, its data) whose Hessian at `tree` is wanted."""
    return risk_and_data(problem, tree) if isinstance(problem, Problem) else (own_risk, problem)


def parameters(tree: PyTree) -> tuple[tuple[Any, ...], Callable[[Any], Any]]:
    """Return the trained arrays of a pytree, and the function that puts them back."""
    layout = Layout.of(tree)
    trained, fixed = layout.split(tree)
    return trained, lambda arrays: layout.tree(arrays, fixed)


def subject(problem: Any, tree: PyTree) -> PyTree:
    """Return what has a Hessian: a batch of pytrees, or the Hessian of a module or an operator."""
    check_subject(problem, tree)
    if is_operator(problem):
        return OperatorHessian(problem)
    if is_module(tree):
        return OperatorHessian(TorchHessian(problem, tree))
    return as_batch(tree)


def as_batch(tree: PyTree) -> PyTree:
    """Return the pytree with a leading batch axis (a Network may already have one)."""
    if isinstance(tree, Network):
        return Network.with_batch(tree)  # through the class: bound methods of modules are slow
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None] if eqx.is_array(leaf) else leaf, tree)


def extent(trees: PyTree) -> tuple[tuple[int, int], np.dtype]:
    """Return the number of trees in a batch, of parameters of each, and their precision."""
    if isinstance(trees, OperatorHessian):
        return trees.shape, trees.precision
    leaves, _ = parameters(trees)
    batch = len(leaves[0])
    size = sum(leaf.size for leaf in leaves) // batch
    return (batch, size), np.result_type(*{leaf.dtype for leaf in leaves})


def unflatten(
    network: PyTree, vectors: ArrayLike, *, include: str | Sequence[str] | None = None
) -> Any:
    """Return vectors over the flattened parameters in the shape of the parameters.

    Args:
        network: One `Network` (the result is a tuple like its `parameters`: the weights, then the
            biases), a PyTorch module (a dictionary of tensors by name) or any other pytree (one
            like it).
        vectors: One vector, such as `sharpness(...).vector`, or several with leading axes, such as
            `hessian_spectrum(...).vectors`: the arrays then have these axes first.
        include: Names of the module's parameters, as in `TorchLoss`.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 4, 1), scale=0.35)
    first, last = dl.unflatten(net, dl.hessian_spectrum(problem, net, count=2).vectors)
    assert first.shape == (2, 4, 5)
    ```
    """
    rows = np.asarray(vectors)
    module = TorchHessian(None, network, include) if is_module(network) else None
    size = extent(as_batch(network))[0][1] if module is None else module.shape[1]
    if rows.ndim == 0 or rows.shape[-1] != size:
        raise InputError(f"vectors has shape {rows.shape}; pass {size} numbers in the last axis.")
    if module is not None:
        return module.named(rows)
    arrays, _ = parameters(network)
    cuts = np.cumsum([np.size(array) for array in arrays])[:-1]
    parts = zip(np.split(rows, cuts, axis=-1), arrays, strict=True)
    shaped = [part.reshape(*rows.shape[:-1], *np.shape(array)) for part, array in parts]
    return Layout.of(network).parameters(shaped)


def gradient(risk: Callable, data: Any, tree: PyTree) -> tuple[Callable[[Array], Array], Array]:
    """Return ∇R as a function of the flat parameters, and the flat parameters of `tree`."""
    trained, rebuild = parameters(tree)
    vector, unravel = ravel_pytree(trained)
    if risk is linear_risk:  # cheaper than reverse mode
        return lambda x: ravel_pytree(linear_gradient(data, rebuild(unravel(x))))[0], vector
    return jax.grad(lambda x: risk(data, rebuild(unravel(x)))), vector


def as_start(start: Any, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray | None:
    """Broadcast a guess of the eigenvectors to the networks of a batch; `shape` is (batch, N)."""
    if start is None:
        return None
    vectors = np.asarray(start, dtype).reshape(-1, np.shape(start)[-1] if np.ndim(start) else 1)
    if vectors.shape[1] != shape[1] or len(vectors) not in (1, shape[0]):
        raise InputError(
            f"start has shape {np.shape(start)}; pass a vector of the {shape[1]} flattened "
            f"parameters, or one for each of the {shape[0]} network(s)."
        )
    return np.broadcast_to(vectors, shape)


class AutodiffHessian:
    """The Hessian of any loss at each network (or pytree) of a batch, (batch, parameters).

    `hessian(members, vectors)` multiplies the Hessians with indices `members`, each by its vector.
    """

    def __init__(self, problem: Problem | Loss, trees: PyTree):
        self.risk, self.data = surface(problem, trees)
        self.trees = trees
        self.shape, self.dtype = extent(trees)

    def __call__(self, members: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return Hv, a row for each of the members."""
        everyone = np.zeros(self.shape, self.dtype)
        everyone[members] = vectors  # all are multiplied, to compile one shape only
        images = products(self.risk, self.data, self.trees, jnp.asarray(everyone))
        return np.asarray(images)[members]

    def expand(self, _members: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Return flat vectors of parameters, which here are the coordinates themselves."""
        return coordinates

    project = expand

    def matrices(self) -> np.ndarray:
        """Return the matrices themselves, (batch, N, N)."""
        return np.asarray(dense(self.risk, self.data, self.trees))

    def gradients(self) -> np.ndarray:
        """Return ∇R as a flat vector for each tree, (batch, N)."""
        return np.asarray(gradients(self.risk, self.data, self.trees))

    @property
    def sizes(self) -> list[int]:
        """Number of parameters of each array."""
        return [leaf[0].size for leaf in parameters(self.trees)[0]]


class OperatorHessian:
    """A symmetric SciPy `LinearOperator` as a Hessian, for a batch of one.

    Vectors are in double precision, so that only the rounding of the operator matters.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, operator: Any):
        operator = operator.to_scipy() if hasattr(operator, "to_scipy") else operator
        rows, columns = operator.shape
        if rows != columns:
            raise InputError(f"the operator has shape {operator.shape}; pass a symmetric one.")
        given = np.dtype(np.float64 if operator.dtype is None else operator.dtype)
        if given.kind not in "biuf":
            raise InputError(f"the operator has dtype {given}; pass one of real numbers.")
        self.operator, self.shape = operator, (1, rows)
        self.sizes = getattr(operator, "sizes", [rows])
        self.precision = np.dtype(np.float32 if given.itemsize < 8 else np.float64)

    def __call__(self, members: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return Av, a row for each of the members (all of which are the one operator)."""
        images = [self.operator.matvec(vector) for vector in vectors]
        return np.stack(images).astype(self.dtype).reshape(len(members), -1)

    def expand(self, _members: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Return flat vectors of parameters, which here are the coordinates themselves."""
        return coordinates

    project = expand

    def matrices(self) -> np.ndarray:
        """Return the matrix, (1, N, N), by one product for each row."""
        rows = self(np.zeros(self.shape[1], int), np.eye(self.shape[1]))
        return rows[None].astype(self.precision)


class ReducedHessian:
    """The Hessians of linear networks with one output in the coordinates of their range.

    The gradient of layer k is v_k u_kᵀ (FM-grad). Along δ it changes by δv_k u_kᵀ + v_k δu_kᵀ: so
    the range of the Hessian has in layer k no more than the d_k + d_{k−1} dimensions of
    a ûᵀ + v̂ bᵀ, û and v̂ of length one. Where b has no part along û these are orthonormal
    coordinates, (a_1, b_1, …, a_L, b_L), and a product needs no matrix but the weights themselves:
    δv_{k−1} = ⟨a, v_k⟩ û + |v_k| b + W_kᵀδv_k and δu_{k+1} = |u_k| a + W_k δu_k.

    Redundant coordinates (b along û) count as directions with eigenvalue zero. All other
    eigenvalues are those of the full Hessians.
    """

    def __init__(self, problem: Problem, networks: Network):
        weights = [np.asarray(weight) for weight in networks.with_batch().weights]
        self.dtype = np.result_type(*weights)
        self.weights = [weight.astype(self.dtype, copy=False) for weight in weights]
        readout = networks.readout
        readout = None if readout is None else np.asarray(readout, self.dtype)
        backward = backward_products(self.weights, readout)
        self.curvature = (2 * problem.covariance).astype(self.dtype)
        slope = problem.value_and_gradient(as_map(backward[0]))[1]
        start = as_columns(slope, problem.outputs).astype(self.dtype)
        self.left = [_normalized(v[..., 0]) for v in backward[1:]]
        self.right = [_normalized(u[..., 0]) for u in forward_products(self.weights, start)]
        sizes = [size for weight in weights for size in weight.shape[-2:]]
        self.shape = (len(weights[0]), sum(sizes))
        self.cuts = np.cumsum(sizes)[:-1]

    def _frame(self, members: np.ndarray) -> list[tuple[np.ndarray, ...]]:
        """Return W, v̂, |v|, û, |u| of each layer."""
        pairs = zip(self.weights, self.left, self.right, strict=True)
        return [(w[members], *(n[members] for n in (*v, *u))) for w, v, u in pairs]

    def _split(self, coordinates: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return a and b of each layer."""
        parts = np.split(coordinates, self.cuts, axis=1)
        return list(zip(parts[::2], parts[1::2], strict=True))

    def __call__(self, members: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Return Hx, a row for each of the members."""
        frame, parts = self._frame(members), self._split(coordinates)
        row_moves = [np.zeros_like(parts[-1][0])]
        for (weight, v, size, u, _), (a, b) in zip(frame[::-1], parts[::-1], strict=True):
            along = _inner(a, v) - _inner(b, u)
            row_moves.append(size * (along * u + b) + _times(weight.mT, row_moves[-1]))
        column_move = row_moves.pop() @ self.curvature
        images = []
        for (weight, v, size, u, length), (a, _) in zip(frame, parts, strict=True):
            along = _inner(u, column_move)
            images.append(length * row_moves.pop() + size * along * v)
            images.append(size * (column_move - along * u))
            column_move = length * a + _times(weight, column_move)
        return np.concatenate(images, axis=1)

    def expand(self, members: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Return flat vectors of weights from coordinates, a row for each member."""
        layers = []
        for (_, v, _, u, _), (a, b) in zip(
            self._frame(members), self._split(coordinates), strict=True
        ):
            b = b - _inner(b, u) * u
            layer = a[:, :, None] * u[:, None] + v[:, :, None] * b[:, None]
            layers.append(layer.reshape(len(layer), -1))
        return np.concatenate(layers, axis=1)

    def project(self, members: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the coordinates of the part of flat vectors that lies in the range."""
        sizes = np.cumsum([weight[0].size for weight in self.weights])[:-1]
        coordinates = []
        for (weight, v, _, u, _), part in zip(
            self._frame(members), np.split(vectors, sizes, axis=1), strict=True
        ):
            layer = part.reshape(len(part), *weight.shape[1:])
            across = _times(layer.mT, v)
            coordinates += [_times(layer, u), across - _inner(across, u) * u]
        return np.concatenate(coordinates, axis=1)


def _normalized(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors scaled to length one (zero stays zero), and their lengths."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1), lengths


def _inner(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.sum(left * right, axis=1, keepdims=True)


def _times(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return (matrices @ vectors[:, :, None])[:, :, 0]


FullHessian = AutodiffHessian | OperatorHessian
Hessian = FullHessian | ReducedHessian


def full_hessian(problem: Problem | Loss, trees: PyTree) -> FullHessian:
    """Return the Hessian over all parameters of what `subject` returned."""
    if isinstance(trees, OperatorHessian):
        return trees
    return AutodiffHessian(problem, trees)


def hessian_of(problem: Problem | Loss, trees: PyTree) -> Hessian:
    """Return the Hessian in the form that is cheapest to apply."""
    if has_reduced_hessian(problem, trees):
        return ReducedHessian(problem, trees)
    return full_hessian(problem, trees)


def narrow_hessian(
    data: tuple[Array, Array], record: tuple[Array, Array]
) -> Callable[[Array], Array]:
    """Return v ↦ Hv for linear networks of small width, (N, b).

    `data` is 2Σ̂ (D, D) and Θ*ᵀ (q, D), a record the layers (b, L, D, D) and the read-outs
    (b, q, D), all filled up with zeros to one width D.
    """
    curvature, optimum = data
    layers, readout = (jnp.moveaxis(array, 0, -1) for array in record)

    def curved(direction: Array) -> Array:
        return (curvature[:, :, None] * direction[..., None, :, :]).sum(-2)

    def derivatives(theta: Array) -> tuple[Array, Callable[[Array], Array]]:
        return curved(theta - optimum[:, :, None]), curved

    product = batch_last.hessian_product(layers, readout, derivatives)
    return lambda vector: product(vector[None])[0]


def autodiff_hessian(data: tuple[Callable, Any, PyTree], arrays: PyTree) -> Callable:
    """Return v ↦ Hv for the trees of a batch, (N, b); `data` is a surface and its static part."""
    risk, given, rest = data

    def slope_at(own: PyTree, x: Array | None) -> Array:
        function, vector = gradient(risk, given, eqx.combine(own, rest))
        return vector if x is None else function(x)

    vectors = jax.vmap(lambda own: slope_at(own, None))(arrays)
    product = jax.linearize(lambda x: jax.vmap(slope_at)(arrays, x), vectors)[1]
    return lambda vector: product(vector.T).T


def is_linear(problem: Problem | Loss, tree: PyTree) -> TypeGuard[Problem]:
    """Return whether these are linear networks with squared loss, for which closed forms apply."""
    known = isinstance(problem, Problem) and isinstance(tree, Network)
    return known and tree.activation == "linear" and problem.loss == "squared"


def has_reduced_hessian(problem: Problem | Loss, networks: PyTree) -> TypeGuard[Problem]:
    """Return whether these are linear networks, with one output and no biases, of singular Hessian.

    The Hessian has a kernel as soon as a layer has more than one row and more than one column; then
    the directions of eigenvalue zero that reduced coordinates add change nothing.
    """
    one_output = is_linear(problem, networks) and networks.outputs == 1
    return (
        one_output
        and networks.biases is None
        and any(min(weight.shape[-2:]) > 1 for weight in networks.weights)
    )


@eqx.filter_jit
def products(risk: Callable, data: Any, trees: PyTree, vectors: Array) -> Array:
    """Return Hv for each tree of a batch and its vector, (batch, parameters)."""
    return over_batch(lambda tree, v: jax.linearize(*gradient(risk, data, tree))[1](v))(
        trees, vectors
    )


@eqx.filter_jit
def gradients(risk: Callable, data: Any, trees: PyTree) -> Array:
    """Return ∇R as a flat vector for each tree of a batch, (batch, parameters)."""

    def one(tree):
        function, vector = gradient(risk, data, tree)
        return function(vector)

    return over_batch(one)(trees)


@eqx.filter_jit
def dense(risk: Callable, data: Any, trees: PyTree) -> Array:
    """Return the Hessian matrices of a batch of trees by automatic differentiation (the oracle)."""

    def matrix(tree):
        trained, rebuild = parameters(tree)
        vector, unravel = ravel_pytree(trained)
        return jax.hessian(lambda x: risk(data, rebuild(unravel(x))))(vector)

    return over_batch(matrix)(trees)


def over_batch(function: Callable) -> Callable:
    """Return `function` mapped over the leading axis of every array in its arguments."""
    return eqx.filter_vmap(function, in_axes=eqx.if_array(0))


def eigen(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ascending eigenvalues, eigenvectors (columns) and error bounds of symmetric matrices.

    The results are NaN, with an infinite error, for a matrix that is not finite.
    """
    lost = np.asarray(~np.isfinite(matrices).all(axis=(1, 2), keepdims=True))
    matrices = np.where(lost, 0, matrices)
    asymmetry = np.linalg.norm(matrices - matrices.mT, axis=(1, 2))
    values, vectors = np.linalg.eigh((matrices + matrices.mT) / 2)
    rounding = matrices.shape[1] * np.finfo(matrices.dtype).eps * np.abs(values).max(axis=1)
    error = np.where(lost[:, 0, 0], np.inf, asymmetry + rounding)
    return np.where(lost[:, 0], np.nan, values), np.where(lost, np.nan, vectors), error
