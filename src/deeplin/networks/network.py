"""Feed-forward networks and their risk, layouts of trained pytrees, and trajectories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped
from numpy.typing import ArrayLike

from deeplin.errors import InputError, shown
from deeplin.networks import products
from deeplin.problems.generalized_linear import Objective
from deeplin.problems.losses import ConvexLoss
from deeplin.problems.problem import Problem

Loss = Callable[[PyTree], Array]
"""A user-defined loss, a function from the parameters to a number."""
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda h: h,
    "gelu": lambda h: jax.nn.gelu(h, approximate=True),  # tanh approximation, as FM-7 was run
    "gelu_exact": lambda h: jax.nn.gelu(h, approximate=False),
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
}
GIVES_ONE = {
    "linear": 1.0,
    "gelu": 1.1446303090227823,
    "gelu_exact": 1.1444507183528788,
    "relu": 1.0,
    "tanh": 20.0,  # saturated: 1 up to rounding, with slope 0
}
"""For each activation, a number c with activation(c) = 1, which keeps a unit constant."""


class Network(eqx.Module):
    """f(x) = pᵀ W_L … W_1 x, with an activation after every layer but the last if one is named.

    A pytree: `jax.grad`, `jax.vmap` and `jax.tree.map` work on it. Weights may have one leading
    batch axis, `(batch, d_k, d_{k−1})`; the read-out may then be shared, `(d_L,)`, or one for each
    network, `(batch, d_L)`. Without a read-out the last layer is the output.

    ```python
    import deeplin as dl, numpy as np
    W1, W2 = np.ones((4, 5)), np.ones((3, 4))
    net = dl.Network(weights=(W1, W2), readout=np.ones(3))
    assert net.product.shape == (5,)
    ```
    """

    weights: tuple[Array, ...]
    readout: Array | None = None
    activation: str = eqx.field(static=True, default="linear")
    biased: tuple[bool, ...] | None = eqx.field(static=True, default=None)
    """Which layers have biases, in a network with a constant unit (`from_arrays`); else None."""

    def __init__(
        self,
        weights: Sequence[Any],
        readout: ArrayLike | None = None,
        activation: str = "linear",
        biased: tuple[bool, ...] | None = None,
    ):
        if not isinstance(weights, Iterable) or getattr(weights, "ndim", 1) == 0:
            came = shown(weights)
            raise InputError(f"weights is {came}; pass one matrix for each layer, in a list.")
        self.weights = tuple(map(_on_device, weights))
        self.readout = None if readout is None else _on_device(readout)
        self.activation = activation
        self.biased = biased

    def __check_init__(self):
        _check_shapes(self.weights, self.readout)
        check_activation(self.activation)

    @property
    def parameters(self) -> tuple[Array, ...]:
        """The trained arrays: the weights, or W_1, b_1, W_2, … in a network with a constant unit.

        A network with biases (`from_arrays`) is x ↦ (x, 1) ↦ …, with layers [[W_k b_k], [0 c]] up
        to the last bias, whose layer has no row for the constant. There W_k and b_k are parameters.
        Entries that keep the unit constant, or stand for an absent bias, are not.
        """
        if self.biased is None:
            return self.weights
        last = _last(self.biased)
        parts = []
        for k, weight in enumerate(self.weights):
            rows = slice(None, -1 if k < last else None)
            parts.append(weight[..., rows, : -1 if k <= last else None])
            parts += [weight[..., rows, -1]] if self.biased[k] else []
        return tuple(parts)

    def with_parameters(self, parameters: Sequence[Any]) -> Network:
        """Return the same network with other `parameters`."""
        if self.biased is None:
            return Network(parameters, self.readout, self.activation)
        last, source, weights = _last(self.biased), iter(parameters), []
        for k, weight in enumerate(map(jnp.asarray, self.weights)):
            rows = slice(None, -1 if k < last else None)
            weight = weight.at[..., rows, : -1 if k <= last else None].set(next(source))
            weights.append(weight.at[..., rows, -1].set(next(source)) if self.biased[k] else weight)
        return Network(weights, self.readout, self.activation, self.biased)

    @property
    def depth(self) -> int:
        """Number of layers L."""
        return len(self.weights)

    @property
    def widths(self) -> tuple[int, ...]:
        """d_0, …, d_L."""
        weights = self.weights  # once: attribute access in Equinox takes a microsecond
        return (weights[0].shape[-1], *[weight.shape[-2] for weight in weights])

    @property
    def outputs(self) -> int:
        """Number of outputs: 1 with a read-out, d_L without."""
        return self.weights[-1].shape[-2] if self.readout is None else 1

    @property
    def batch(self) -> int | None:
        """Number of networks in the batch, or None for a single network."""
        return self.weights[0].shape[0] if self.weights[0].ndim == 3 else None

    @property
    def product(self) -> Array:
        """w = W_1ᵀ … W_Lᵀ p, (d,); without a read-out Θ = (W_L … W_1)ᵀ, (d, q), or (d,) if q = 1.

        For a nonlinear network this is the product of its weights, not its input-output map.
        """
        matrix = products.product(self.weights, self.readout)
        return matrix[..., 0] if self.outputs == 1 else matrix

    def __call__(self, inputs: Float[Array | np.ndarray, "n d"]) -> Float[Array, "n q"]:
        """Return the outputs on the rows of `inputs`, (n, q)."""
        activation = ACTIVATIONS[self.activation]
        weights = self.weights
        if self.biased is not None:  # entries that are not parameters have no gradient
            fixed = jax.tree.map(jax.lax.stop_gradient, self)
            weights = fixed.with_parameters(self.parameters).weights
        hidden = jnp.asarray(inputs) @ weights[0].T
        for weight in weights[1:]:
            hidden = activation(hidden) @ weight.T
        return hidden if self.readout is None else (hidden @ self.readout)[:, None]

    def with_batch(self) -> Network:
        """Return the network as a batch (of one if it was single), with one read-out for each."""
        if self.batch is None:
            return jax.tree.map(lambda leaf: leaf[None], self)
        if self.readout is None or self.readout.ndim == 2:
            return self
        shared = jnp.broadcast_to(self.readout, (self.batch, *self.readout.shape))
        return Network(self.weights, shared, self.activation, self.biased)


def _last(biased: tuple[bool, ...]) -> int:
    """Return the number of the last layer with a bias."""
    return max(k for k, here in enumerate(biased) if here)


def check_activation(name: Any) -> None:
    """Raise unless there is an activation of this name."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise InputError(f"activation is {shown(name)}; pass one of {', '.join(ACTIVATIONS)}.")


def _on_device(array: Any) -> Array:
    """Return `jnp.asarray(…)` without compiling a program for each new shape of a NumPy array."""
    try:
        if isinstance(array, np.ndarray):
            return jax.device_put(np.array(array))  # a copy: the device may share its memory
        return jnp.asarray(array)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"a weight or read-out is {shown(array)}; pass arrays.") from error


def host_arrays(networks: Network) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Return the weights and the read-out in double precision on the host."""
    readout = None if networks.readout is None else np.asarray(networks.readout, np.float64)
    return [np.asarray(weight, np.float64) for weight in networks.weights], readout


def stack(networks: Sequence[Network]) -> Network:
    """Return single networks of the same shape as one batch."""
    shapes = {(net.widths, net.readout is None, net.activation, net.batch) for net in networks}
    if len(shapes) != 1 or networks[0].batch is not None:
        raise InputError(
            f"a batch needs single networks of one shape; received {len(shapes)} different "
            f"ones: {sorted(str(shape[0]) for shape in shapes)}. Train each shape in its own call."
        )
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *networks)


def _check_shapes(weights: tuple[Array, ...], readout: Array | None) -> None:
    if not weights:
        raise InputError("the network has no layers (depth 0); pass at least one weight matrix.")
    dimensions = {weight.ndim for weight in weights}
    if dimensions not in ({2}, {3}):
        raise InputError(
            f"weights have {sorted(dimensions)} dimensions; pass matrices, or all of them with one "
            "leading batch axis."
        )
    if dimensions == {3} and len({weight.shape[0] for weight in weights}) != 1:
        sizes = [weight.shape[0] for weight in weights]
        raise InputError(f"batch sizes differ between layers: {sizes}; pass one batch size.")
    for k, (lower, upper) in enumerate(pairwise(weights), start=1):
        if upper.shape[-1] != lower.shape[-2]:
            raise InputError(
                f"layers {k} and {k + 1} do not chain: shapes {lower.shape} and {upper.shape}. "
                f"Layer {k + 1} needs {lower.shape[-2]} columns."
            )
    if any(0 in weight.shape for weight in weights):
        raise InputError("a layer has width 0; pass widths of at least 1.")
    shape = weights[-1].shape[:-1]  # of one read-out for each network, or shared
    if readout is not None and readout.shape not in (shape, shape[-1:]):
        raise InputError(
            f"readout has shape {readout.shape}; pass a vector of length {shape[-1]}, the width "
            "of the last layer."
        )


TRAINED, FIXED, STATIC = range(3)

TORCH_MESSAGE = (
    "of PyTorch, through which JAX cannot differentiate; pass a Problem with "
    "deeplin.from_torch(module), arrays with a loss written in jax.numpy, or for the sharpness the "
    "module itself with a deeplin.TorchLoss (docs/how-to/pytorch.md)."
)


@dataclass(frozen=True)
class Layout:
    """Decomposition of a pytree into trained arrays, fixed arrays and static leaves.

    In a `Network` the weights are trained and the read-out is fixed; in any other pytree every
    floating-point array is trained. Layouts are hashable, so that compiled code is reused for equal
    ones.
    """

    structure: Any
    kinds: tuple[int, ...]
    """TRAINED, FIXED (other arrays) or STATIC, one for each leaf."""
    rest: tuple[Any, ...]
    """The static leaves: numbers, functions, names."""
    network: bool
    """Whether it is a `Network`."""

    @classmethod
    def of(cls, tree: PyTree) -> Layout:
        """Return the layout of a pytree."""
        leaves, structure = jax.tree.flatten(tree)
        count = len(tree.weights) if isinstance(tree, Network) else len(leaves)
        kinds = tuple(_kind(leaf, k < count) for k, leaf in enumerate(leaves))
        rest = tuple(leaf for leaf, kind in zip(leaves, kinds, strict=True) if kind == STATIC)
        if TRAINED not in kinds:
            raise no_parameters(tree)
        return cls(structure, kinds, rest, isinstance(tree, Network))

    def split(self, tree: PyTree) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Return the trained and the fixed arrays of a tree of this layout."""
        pairs = list(zip(jax.tree.leaves(tree), self.kinds, strict=True))
        trained = tuple(leaf for leaf, kind in pairs if kind == TRAINED)
        return trained, tuple(leaf for leaf, kind in pairs if kind == FIXED)

    def tree(self, trained: Sequence[Any], fixed: Sequence[Any]) -> PyTree:
        """Return the tree with these arrays, without checking or moving them."""
        sources = (iter(trained), iter(fixed), iter(self.rest))
        return jax.tree.unflatten(self.structure, [next(sources[kind]) for kind in self.kinds])

    def parameters(self, trained: Sequence[Any]) -> PyTree:
        """Return the trained arrays: the weights of a network, or the tree with None elsewhere."""
        if self.network:
            return tuple(trained)
        source = iter(trained)
        leaves = [next(source) if kind == TRAINED else None for kind in self.kinds]
        return jax.tree.unflatten(self.structure, leaves)


def no_parameters(tree: PyTree) -> InputError:
    """Return the error message for a pytree without floating-point arrays."""
    kinds = {kind for leaf in jax.tree.leaves(tree) for kind in type(leaf).__mro__}
    if any(kind.__module__.partition(".")[0] == "torch" for kind in kinds):
        return InputError(f"the parameters are {TORCH_MESSAGE}")
    return InputError("there are no floating-point parameters; pass a pytree with arrays.")


def _kind(leaf: Any, trainable: bool) -> int:
    if not isinstance(leaf, np.ndarray) and not eqx.is_array(leaf):
        return STATIC
    return TRAINED if trainable and _floating(leaf.dtype) else FIXED


@cache
def _floating(dtype: Any) -> bool:
    return np.issubdtype(dtype, np.inexact)


def _of_networks(name: str, meaning: str) -> Any:
    """Return a property of a trajectory that its stacked networks have under this name."""

    def get(trajectory: Trajectory) -> Any:
        tree = trajectory.stacked
        if not isinstance(tree, Network):
            raise AttributeError(f"{name}: this is not a trajectory of networks; use trajectory[k]")
        return getattr(tree, name)

    return property(get, doc=meaning)


class Trajectory(eqx.Module):
    """The networks of a run at each record: `trajectory[k]` is a network, or a batch of them.

    A pytree whose arrays have a leading record axis, before the batch axis if there is one. For
    networks `weights`, `readout` and `activation` give those arrays by name; a slice of a
    trajectory is a trajectory.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 2))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(2, 2, 1), scale=0.5)
    run = dl.gradient_descent(problem, net, 0.05, 10, record_every=5, record=["risk"])
    run.trajectory[-1].product, len(run.trajectory), run.trajectory.weights[0].shape
    ```
    """

    arrays: tuple[Shaped[Array, " ..."], ...]
    """Trained, then fixed arrays of the trees."""
    layout: Layout = eqx.field(static=True)
    batched: bool = eqx.field(static=True)
    """Whether each record is a batch."""

    @classmethod
    def of(cls, trees: Sequence[PyTree], batched: bool) -> Trajectory:
        """Return the trajectory through trees of one layout."""
        layout = Layout.of(trees[0])
        columns = zip(*(sum(layout.split(tree), ()) for tree in trees), strict=True)
        stacked = (jax.device_put(np.stack([np.asarray(a) for a in column])) for column in columns)
        return cls(tuple(stacked), layout, batched)

    @property
    def stacked(self) -> PyTree:
        """All records in one tree whose arrays have a leading record axis (unchecked)."""
        trained = self.layout.kinds.count(TRAINED)
        return self.layout.tree(self.arrays[:trained], self.arrays[trained:])

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.arrays[0])

    def __getitem__(self, index: Any) -> Any:
        """Return one record as a tree, or several as a trajectory."""
        part = Trajectory(tuple(a[index] for a in self.arrays), self.layout, self.batched)
        if not isinstance(index, (int, np.integer)):
            return part
        tree = part.stacked
        if isinstance(tree, Network):
            return Network(tree.weights, tree.readout, tree.activation, tree.biased)
        return tree

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the records."""
        return (self[k] for k in range(len(self)))

    weights = _of_networks("weights", "W_1 … W_L at every record.")
    readout = _of_networks("readout", "The read-out at every record (it is never trained).")
    activation = _of_networks("activation", "Name of the activation.")
    biased = _of_networks("biased", "Which layers have biases, with a constant unit; else None.")
    widths = _of_networks("widths", "d_0, …, d_L.")
    depth = _of_networks("depth", "Number of layers L.")
    outputs = _of_networks("outputs", "Number of outputs.")


# --- risk and gradient on a problem: closed form for linear networks, else autodiff --------------


class Data(NamedTuple):
    """Training data of a nonlinear network: the rows."""

    inputs: Float[Array, "n d"]
    targets: Float[Array, "n q"]


class LossData(eqx.Module):
    """Training data for a loss other than the squared one."""

    inputs: Float[Array, "n d"]
    targets: Float[Array, "n q"]
    loss: ConvexLoss = eqx.field(static=True)


def linear_risk(objective: Objective, network: Network) -> Array:
    """Return R(W) of a linear network, as a function of the product of its layers."""
    theta = products.product(network.weights, network.readout)
    return objective.minimal_risk + objective.value_and_gradient(theta)[0]


def gap_and_gradient(objective: Any, network: Network) -> tuple[Array, tuple[Array, ...]]:
    """Return R − R_min and ∇_k R = (W_{k+1}ᵀ…W_Lᵀp)(W_{k−1}…W_1 g)ᵀ for every layer (FM-grad).

    `objective` has `value_and_gradient(Θ)`.
    """
    backward = products.backward_products(network.weights, network.readout)
    gap, slope = objective.value_and_gradient(backward[0])
    forward = products.forward_products(network.weights, slope)
    return gap, tuple(products.layer_gradients(backward, forward))


def linear_gradient(objective: Objective, network: Network) -> tuple[Array, ...]:
    """Return ∇_k R for every layer of a linear network (FM-grad)."""
    return gap_and_gradient(objective, network)[1]


def distance_to_optimum(problem: Problem, networks: Network) -> np.ndarray:
    """Return ‖Θ − Θ*‖_F², squared, of each network; NaN for nonlinear networks."""
    batch = networks.with_batch()
    if batch.activation != "linear":
        return np.full(len(batch.weights[0]), np.nan)
    theta = products.product(*host_arrays(batch))
    return products.squared_distance(theta - problem.optimum.reshape(problem.dimension, -1))


def data_risk(data: Data, network: Network) -> Array:
    """Return R(W) = (1/n)‖Y − f(X)‖² on the rows, for any activation."""
    residual = network(data.inputs) - data.targets
    return jnp.sum(residual**2) / len(data.inputs)


def loss_risk(data: LossData, network: Network) -> Array:
    """Return R(W) = (1/n)Σφ(f(x_i), y_i) on the rows, for any activation."""
    return jnp.mean(data.loss.value(network(data.inputs), data.targets))


def risk_and_data(
    problem: Problem, network: Network
) -> tuple[Callable[[Any, Network], Array], Any]:
    """Return the pair (risk function, its data) for this kind of network.

    `risk(data, network)` is a pure function of arrays: data are the moments for linear networks and
    the rows for others. As the data are an argument, compiled code does not depend on the problem.
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

    For a batch of networks the first one is used.
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
    except Exception as error:  # a user-defined function may raise anything
        if _from_torch(error):
            raise InputError(f"the loss is {TORCH_MESSAGE}") from error
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
    """Return whether PyTorch raised this error, in a frame of its own or in its compiled code."""
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
