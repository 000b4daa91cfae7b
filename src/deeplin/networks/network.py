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
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree, Shaped
from numpy.typing import ArrayLike

from deeplin.errors import InputError, shown
from deeplin.networks import products
from deeplin.problems.losses import ConvexLoss
from deeplin.problems.problem import Problem, Risk, as_map, require_problem

Loss = Callable[[PyTree], Array]
"""A user-defined loss, a function from the parameters to a number."""
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda h: h,
    "gelu": lambda h: jax.nn.gelu(h, approximate=True),  # tanh approximation, as FM-7 was run
    "gelu_exact": lambda h: jax.nn.gelu(h, approximate=False),
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
}


class Network(eqx.Module):
    """f(x) = pᵀ(W_L(…(W_1x + b_1)…) + b_L), with an activation after every layer but the last.

    A pytree: `jax.grad`, `jax.vmap` and `jax.tree.map` work on it. Without `readout` the last layer
    is the output. Arrays may have one leading batch axis, weights `(batch, d_k, d_{k−1})` and
    biases `(batch, d_k)`; the read-out may then be shared, `(d_L,)`, or one for each network,
    `(batch, d_L)`. A batch has a length, and `nets[i]` is one of its networks.

    Args:
        weights: One matrix W_k, (d_k, d_{k−1}), for each layer.
        biases: One vector b_k, (d_k,), or None for each layer; None for a network without biases.
            Weights and biases are trained.
        readout: A fixed vector p, (d_L,), or None.
        activation: One of `deeplin.networks.ACTIVATIONS`.

    ```python
    import deeplin as dl, numpy as np
    W1, W2 = np.ones((4, 5)), np.ones((3, 4))
    net = dl.Network(weights=(W1, W2), biases=(np.ones(4), None), readout=np.ones(3))
    assert net.product.shape == (5,) and net(np.zeros((2, 5))).tolist() == [[12.0], [12.0]]
    ```
    """

    weights: tuple[Array, ...]
    biases: tuple[Array | None, ...] | None = None
    readout: Array | None = None
    activation: str = eqx.field(static=True, default="linear")

    def __init__(
        self,
        weights: Sequence[Any],
        biases: Sequence[Any] | None = None,
        readout: ArrayLike | None = None,
        activation: str = "linear",
    ):
        if not isinstance(weights, Iterable) or getattr(weights, "ndim", 1) == 0:
            came = shown(weights)
            raise InputError(f"weights is {came}; pass one matrix for each layer, in a list.")
        self.weights = tuple(map(_on_device, weights))
        self.biases = _biases(biases, self.weights)
        self.readout = None if readout is None else _on_device(readout)
        self.activation = activation

    def __check_init__(self):
        _check_shapes(self.weights, self.biases, self.readout)
        check_activation(self.activation)

    @property
    def parameters(self) -> tuple[Array, ...]:
        """The trained arrays: the weights and, after them, the biases."""
        return (*self.weights, *(bias for bias in self.biases or () if bias is not None))

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
        """W_L … W_1, (q, d), or (d,) for one output; with a read-out pᵀW_L … W_1, (d,).

        For a nonlinear network this is the product of its weights, not its input-output map.
        """
        return eagerly(lambda net: as_map(products.product(net.weights, net.readout)), self)

    @property
    def intercept(self) -> Array:
        """f(0) of a linear network, (q,), or a number for one output; 0 without biases."""

        def last(net: Network) -> Any:
            columns = affine_columns(net)
            row = columns[..., -1, :] if net.biases is not None else 0 * columns[..., 0, :]
            return row[..., 0] if net.outputs == 1 else row

        return eagerly(last, self)

    def __call__(self, inputs: ArrayLike) -> Float[Array, "*batch n q"]:
        """Return the outputs on the rows of `inputs`, (n, q), or (batch, n, q) of a batch."""
        hidden, d = jnp.asarray(inputs), self.widths[0]
        if hidden.ndim != 2 or hidden.shape[1] != d:
            raise InputError(
                f"inputs has shape {hidden.shape}; pass rows of {d} numbers, (n, {d})."
            )
        activation = ACTIVATIONS[self.activation]
        biases = self.biases or (None,) * self.depth
        for k, (weight, bias) in enumerate(zip(self.weights, biases, strict=True)):
            hidden = (activation(hidden) if k else hidden) @ weight.mT
            hidden = hidden if bias is None else hidden + bias[..., None, :]
        return hidden if self.readout is None else hidden @ self.readout[..., None]

    def __len__(self) -> int:
        """Return the number of networks of a batch."""
        if self.batch is None:
            raise TypeError("a single network has no length; dl.stack makes a batch of several.")
        return self.batch

    def __bool__(self) -> bool:
        """Return True, for single networks as well, which have no length."""
        return True

    def __getitem__(self, index: Any) -> Network:
        """Return one network of a batch, or some of them as a batch."""
        size = len(self)
        if isinstance(index, (int, np.integer)) and not -size <= index < size:
            raise IndexError(f"index {index} of a batch of {size} networks")
        return eagerly(lambda net: jax.tree.map(lambda leaf: leaf[index], net), self.with_batch())

    def __iter__(self) -> Iterator[Network]:
        """Iterate over the networks of a batch."""
        return (self[k] for k in range(len(self)))

    def with_batch(self) -> Network:
        """Return the network as a batch (of one if it was single), with one read-out for each."""
        if self.batch is None:
            return eagerly(lambda net: jax.tree.map(lambda leaf: leaf[None], net), self)
        if self.readout is None or self.readout.ndim == 2:
            return self
        shared = jnp.broadcast_to(self.readout, (self.batch, *self.readout.shape))
        return Network(self.weights, self.biases, shared, self.activation)


def eagerly(function: Callable[[PyTree], PyTree], tree: PyTree) -> PyTree:
    """Apply a function of arrays by NumPy if they are concrete: JAX compiles for each new shape."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree)):
        return function(tree)
    found = function(jax.tree.map(np.asarray, tree))
    return jax.tree.map(lambda leaf: jax.device_put(np.array(leaf)), found)


def affine_columns(network: Network) -> Any:
    """Return the map of a linear network as columns: Θ, (…, d, q), with biases [Θ; f(0)]."""
    if network.biases is None:
        return products.product(network.weights, network.readout)
    backward = products.backward_products(network.weights, network.readout)
    return products.with_offset(backward, network.biases)


def as_seen(problem: Problem, network: Network) -> Problem:
    """Return the problem of which `affine_columns` is a linear map: with biases one input is 1."""
    return problem if network.biases is None else problem.with_constant


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


def in_float64(tree: PyTree) -> PyTree:
    """Return a network or another pytree with its float32 arrays converted to float64."""

    def single(leaf: Any) -> bool:
        return getattr(leaf, "dtype", None) == np.float32

    if not any(map(single, jax.tree.leaves(tree))):
        return tree
    return jax.tree.map(lambda leaf: leaf.astype(float) if single(leaf) else leaf, tree)


def host_arrays(networks: Network) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Return the weights and the read-out in double precision on the host.

    Used by what is known for networks without biases, so it raises for a network with some.
    """
    if networks.biases is not None:
        raise InputError(
            "this is known for networks without biases; pass deeplin.Network(network.weights), or "
            "measure with sharpness and hessian_spectrum, which take biases."
        )
    readout = None if networks.readout is None else np.asarray(networks.readout, np.float64)
    return [np.asarray(weight, np.float64) for weight in networks.weights], readout


def stack(networks: Sequence[Network]) -> Network:
    """Return single networks of the same shape as one batch.

    ```python
    import deeplin as dl, numpy as np
    nets = dl.stack([dl.Network([np.ones((1, 3))]), dl.Network([np.zeros((1, 3))])])
    assert len(nets) == 2 and nets(np.ones((4, 3))).shape == (2, 4, 1)
    ```
    """
    members = list(networks)
    if not members or not all(isinstance(net, Network) for net in members):
        raise InputError(f"networks is {shown(networks)}; pass a list of deeplin.Network.")
    shapes = {(net.widths, jax.tree.structure(net), net.batch) for net in members}
    if len(shapes) != 1 or members[0].batch is not None:
        raise InputError(
            f"a batch needs single networks of one shape; received {len(shapes)} different "
            f"ones: {sorted(str(shape[0]) for shape in shapes)}. Train each shape in its own call."
        )
    traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(members))
    join = jnp.stack if traced else np.stack
    return eagerly(lambda nets: jax.tree.map(lambda *leaves: join(leaves), *nets), members)


def _biases(given: Any, weights: Sequence[Array]) -> tuple[Array | None, ...] | None:
    """Return one bias or None for each layer; None if no layer has one."""
    if given is None:
        return None
    if not isinstance(given, (list, tuple)) or len(given) != len(weights):
        size = f" of {len(given)}" if isinstance(given, (list, tuple)) else f", {shown(given)}"
        raise InputError(
            f"biases is a {type(given).__name__}{size}, for {len(weights)} layers; pass a list of "
            "one vector or None for each layer (and a read-out as readout=)."
        )
    found = tuple(None if bias is None else _on_device(bias) for bias in given)
    return None if all(bias is None for bias in found) else found


def _check_shapes(
    weights: tuple[Array, ...],
    biases: tuple[Array | None, ...] | None,
    readout: Array | None,
) -> None:
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
    for k, (weight, bias) in enumerate(zip(weights, biases or (), strict=False), start=1):
        if bias is not None and bias.shape != weight.shape[:-1]:
            raise InputError(
                f"the bias of layer {k} has shape {bias.shape}; pass {weight.shape[:-1]}, one "
                "number for each output of the layer."
            )
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

    In a `Network` weights and biases are trained and the read-out is fixed; in any other pytree
    every floating-point array is trained. Layouts are hashable, so that compiled code is reused for
    equal ones.
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
        count = len(tree.parameters) if isinstance(tree, Network) else len(leaves)
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

    @property
    def layers(self) -> tuple[int, ...]:
        """The number of the layer of each trained array; of other pytrees each array is one."""
        count = self.kinds.count(TRAINED)
        if not self.network:
            return tuple(range(count))
        biases = jax.tree.unflatten(self.structure, range(len(self.kinds))).biases or ()
        owners = [k for k, bias in enumerate(biases) if bias is not None]
        return (*range(count - len(owners)), *owners)

    def parameters(self, trained: Sequence[Any]) -> PyTree:
        """Return the trained arrays: a tuple of a network's, or the tree with None elsewhere."""
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

    def __repr__(self) -> str:
        of = f", widths {self.widths}" if self.layout.network else ""
        runs = f" of {self.arrays[0].shape[1]} runs" if self.batched else ""
        return f"Trajectory({len(self)} records{runs}{of})"

    def __getitem__(self, index: Any) -> Any:
        """Return one record as a tree, or several as a trajectory."""
        part = Trajectory(tuple(a[index] for a in self.arrays), self.layout, self.batched)
        if not isinstance(index, (int, np.integer)):
            return part
        tree = part.stacked
        return jax.tree.map(_on_device, tree) if isinstance(tree, Network) else tree

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the records."""
        return (self[k] for k in range(len(self)))

    weights = _of_networks("weights", "W_1 … W_L at every record.")
    readout = _of_networks("readout", "The read-out at every record (it is never trained).")
    activation = _of_networks("activation", "Name of the activation.")
    biases = _of_networks("biases", "b_1 … b_L at every record, or None.")
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


def linear_risk(risk: Risk, network: Network) -> Array:
    """Return R(W) of a linear network, as a function of the product of its layers."""
    return risk.minimal_risk + risk.value_and_gradient(affine_columns(network))[0]


def gap_and_gradient(risk: Any, network: Network) -> tuple[Array, tuple[Array, ...]]:
    """Return R − R_min and ∇_k R = (W_{k+1}ᵀ…W_Lᵀp)(W_{k−1}…W_1 g)ᵀ for every layer (FM-grad).

    `risk` has `value_and_gradient(Θ)`. With biases, and a constant input as the last row of g, the
    same product is the gradient of [W_k b_k].
    """
    weights, biases = network.weights, network.biases
    backward = products.backward_products(weights, network.readout)
    theta = backward[0] if biases is None else products.with_offset(backward, biases)
    gap, slope = risk.value_and_gradient(theta)
    forward = products.forward_products(weights, slope, biases)
    return gap, products.split_layers(products.layer_gradients(backward, forward), biases)


def linear_gradient(risk: Risk, network: Network) -> tuple[Array, ...]:
    """Return ∇_k R for every layer of a linear network (FM-grad)."""
    return gap_and_gradient(risk, network)[1]


def distance_to_optimum(problem: Problem, networks: Network) -> np.ndarray:
    """Return ‖Θ − Θ*‖_F², squared, of each network; NaN for nonlinear networks."""
    batch = networks.with_batch()
    if batch.activation != "linear":
        return np.full(len(batch.weights[0]), np.nan)
    theta = affine_columns(jax.tree.map(lambda leaf: np.asarray(leaf, float), batch))
    return products.squared_distance(theta - as_seen(problem, batch).optimum_columns)


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
        risk = as_seen(problem, network).device_risk
        if risk.minimal_risk.dtype != dtype:
            risk = jax.tree.map(lambda leaf: leaf.astype(dtype), risk)
        return linear_risk, risk
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
        if tree is not None and not isinstance(problem, Problem):
            check_loss(problem, tree)
        raise


def check_pair(problem: Problem | Loss, tree: PyTree) -> None:
    """Raise unless this is a problem with a network, or a loss with its parameters."""
    if isinstance(problem, Network) and isinstance(tree, Problem):
        raise InputError("the network came before the problem; pass the problem first.")
    if isinstance(problem, Problem):
        if not isinstance(tree, Network):
            raise InputError(
                f"network is a {type(tree).__name__}; pass a deeplin.Network "
                "(deeplin.networks.stack makes a batch of a list, deeplin.from_torch one of a "
                "PyTorch module), or a loss function with its own parameters (for the sharpness of "
                "a PyTorch module a deeplin.TorchLoss)."
            )
        check_fits(problem, tree)
    elif not callable(problem) or isinstance(problem, Network):
        raise InputError(
            f"problem is {shown(problem)}; pass a deeplin.Problem, or a function from the "
            "parameters to a scalar loss."
        )


def check_fits(problem: Problem, network: Network) -> None:
    """Raise unless the network takes the problem's inputs and returns its targets."""
    require_problem(problem)
    if not isinstance(network, Network):
        raise InputError(
            f"network is {shown(network)}; pass a deeplin.Network (deeplin.from_torch makes one of "
            "a PyTorch module)."
        )
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
