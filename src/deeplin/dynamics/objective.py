"""Objectives of the dynamics: a value and its gradient, as pure functions of data and weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from deeplin.dynamics.minibatches import Draws
from deeplin.errors import InputError
from deeplin.networks import Network, batch_last
from deeplin.networks.network import (
    Layout,
    Loss,
    affine_columns,
    as_seen,
    gap_and_gradient,
    linear_risk,
    risk_and_data,
)
from deeplin.problems import Problem
from deeplin.problems.generalized_linear import GeneralizedLinear
from deeplin.problems.problem import LeastSquares, Risk, as_columns

Weights = tuple[Float[Array, " ..."], ...]
Rows = Int[Array, " size"] | None
"""Indices of the rows in a mini-batch; None for all rows."""
RowsOfMany = Int[Array, "size b"] | None
"""The same for each of several networks, with the batch axis last."""

UNKNOWN_WORK = 100
"""Assumed number of uses of each weight by a user-defined loss, until its steps have been timed."""


class Gradient(Protocol):
    """Evaluation of an objective by pure functions of arrays, hashable for `jax.jit`.

    The value is R − floor. The data are arguments, so compiled code does not depend on the problem.
    """

    def __call__(
        self, data: Any, weights: tuple[Any, ...], fixed: tuple, rows: Any = None
    ) -> tuple[Array, Weights]:
        """Return the value and the gradient, on these rows if some are given."""
        ...

    def value(self, data: Any, weights: tuple[Any, ...], fixed: tuple) -> Array:
        """Return the value on all rows."""
        ...


class Objective(NamedTuple):
    """A risk R with its gradient.

    For a linear network on a problem the value is the gap R − R_min, taken about the optimum so
    that it stays accurate down to rounding; otherwise it is the risk itself and the floor is 0. A
    hidden layer narrower than the rank of Θ* cannot reach R_min: the floor is then the smallest
    risk of its rank (X-34).
    """

    gradient: Gradient
    """Value and gradient of one network."""
    data: Any
    layout: Layout
    """How weights and fixed arrays form a network, or another trained pytree."""
    floor: float = 0.0
    """The smallest risk that the network can reach, where `has_gap`; else 0."""
    has_gap: bool = False
    """Whether R − floor is meaningful: a linear network on a problem."""
    zero_risk: float | None = None
    """R of the zero map, where it is known."""
    optimum: Float[np.ndarray, "d q"] | None = None
    """A product of the smallest risk that a linear network can reach, where there is one."""
    bottleneck: Bottleneck | None = None
    """Where hidden layers are too narrow for Θ*: what they can reach instead (X-34)."""
    batch_last: Gradient | None = None
    """Value and gradient of many networks with the batch axis last, if available."""
    work: int = 1
    """Number of uses of each weight in a step: the number of samples, unless moments suffice."""

    biased: bool = False
    """Whether the linear network has biases, so that the data have a constant input."""

    @property
    def is_least_squares(self) -> bool:
        """Whether it is the squared loss of a linear network without biases."""
        return self.has_gap and not self.biased and isinstance(self.data.risk, LeastSquares)

    def values(self, trees: PyTree) -> np.ndarray:
        """Return R − floor of trees with a batch axis; linear networks may have any leading axes.

        Linear networks are evaluated in NumPy, which needs no compilation for new shapes.
        """
        if not self.has_gap:
            return np.asarray(_values(self.gradient, self.data, *self.layout.split(trees)))
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging run may get there
            theta = affine_columns(jax.tree.map(np.asarray, trees))
            return self._on_host.value_and_gradient(theta)[0]

    @property
    def _on_host(self) -> LinearData:
        """The data of a linear network in NumPy, for any leading axes of Θ."""
        return jax.tree.map(np.asarray, self.data._replace(samples=None))

    def gradient_norms(self, trees: PyTree) -> np.ndarray:
        """Return ‖∇R‖ of trees with axes of records and runs."""
        weights, fixed = self.layout.split(trees)
        if not self.has_gap:
            return np.asarray(_norms(self.gradient, self.data, weights, fixed))
        with np.errstate(over="ignore", invalid="ignore"):
            network = jax.tree.map(np.asarray, trees)
            slopes = gap_and_gradient(self._on_host, network)[1]
            axes = network.weights[0].shape[:-2]
            return np.sqrt(sum(np.sum(slope.reshape(*axes, -1) ** 2, axis=-1) for slope in slopes))

    def on_draws(self, problem: Any, draws: Draws | None, has_target: bool) -> Objective:
        """Return the same objective for steps that draw rows or keys."""
        if draws is None or (draws.size is None and not isinstance(problem, RandomLoss)):
            return self
        if not self.has_gap:
            assert isinstance(self.gradient, Autodiff)
            return self._replace(gradient=replace(self.gradient, whole=has_target))
        floor = self.data.risk.minimal_risk
        problem = problem.with_constant if self.biased else problem  # pyright: ignore
        rows = problem.require_data("descent on mini-batches")
        inputs, targets = (jnp.asarray(matrix, floor.dtype) for matrix in rows)
        samples = GeneralizedLinear(inputs, targets, None, floor, problem.convex_loss)
        return self._replace(data=self.data._replace(samples=samples))

    def evidence(self, trees: PyTree, values: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return the risk, and the gap where it is defined, of trees with a batch axis.

        Without a gap, `values` may be passed if they are known.
        """
        if values is None or self.has_gap:
            values = self.values(trees)
        return {"risk": values + self.floor} | ({"gap": values} if self.has_gap else {})


@partial(jax.jit, static_argnums=0)
def _values(gradient: Gradient, data: Any, weights: Weights, fixed: tuple) -> Array:
    return jax.vmap(partial(gradient.value, data))(weights, fixed)


@partial(jax.jit, static_argnums=0)
def _norms(gradient: Gradient, data: Any, weights: Weights, fixed: tuple) -> Array:
    def one(weights: Weights, fixed: tuple) -> Array:
        slopes = gradient(data, weights, fixed)[1]
        return jnp.sqrt(sum(jnp.sum(slope**2) for slope in slopes))

    return jax.vmap(jax.vmap(one))(weights, fixed)


class Bottleneck(NamedTuple):
    """Hidden layers that are narrower than the rank of Θ*."""

    rank: int
    """r, their smallest width."""
    excess: float
    """The smallest risk of a product of rank r, minus R_min."""
    product: Float[np.ndarray, "d q"]
    """A product of rank r with that risk."""


def bottleneck_of(problem: Problem, network: Network) -> Bottleneck | None:
    """Return what the hidden layers can reach, or None where they can reach R_min (X-34)."""
    hidden = network.widths[1:-1]
    if network.outputs == 1 or not hidden or min(hidden) >= min(problem.dimension, problem.outputs):
        return None
    if not problem.has_minimizer:
        return None
    if network.biases is not None and network.biases[-1] is not None and problem.loss == "squared":
        return _bottleneck_beside_offset(problem, min(hidden))
    best = problem.best_of_rank(min(hidden))
    if best.excess <= 0:
        return None
    return Bottleneck(min(hidden), best.excess, as_columns(best.product, problem.outputs))


def _bottleneck_beside_offset(problem: Problem, rank: int) -> Bottleneck | None:
    """Return the same where the last bias is free: reduced-rank regression of centered data.

    `problem` has the constant as its last input.
    """
    sigma, cross = problem.covariance, problem.cross_columns
    mean, offset = sigma[:-1, -1], cross[-1]
    moments = np.atleast_2d(problem.target_second_moments) - np.outer(offset, offset)
    centered = Problem.from_moments(
        sigma[:-1, :-1] - np.outer(mean, mean),
        cross[:-1] - np.outer(mean, offset),
        moments,
        problem.samples,
    )
    best = centered.best_of_rank(rank)
    if best.excess <= 0:
        return None
    columns = as_columns(best.product, problem.outputs)
    return Bottleneck(rank, best.excess, np.vstack([columns, offset - mean @ columns]))


@dataclass(frozen=True)
class RandomLoss:
    """A user-defined `loss(parameters, key)`, at one fixed key where no step gives its own."""

    loss: Callable[[PyTree, Array], Array]

    def __call__(self, tree: PyTree, key: Array | None = None) -> Array:
        """Return the loss."""
        return self.loss(tree, jax.random.key(0) if key is None else key)


def with_fixed_key(problem: Any) -> Any:
    """Return a loss that requires (parameters, key) as a `RandomLoss`, anything else as it is."""
    if isinstance(problem, Problem) or not callable(problem):
        return problem
    try:
        taken = inspect.signature(problem).parameters.values()
    except (TypeError, ValueError):  # a function written in C
        return problem
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in taken if p.kind in kinds and p.default is p.empty]
    return RandomLoss(problem) if len(required) == 2 else problem  # pyright: ignore[reportArgumentType]


def is_batch(loss: Any, tree: PyTree, wanted: bool | None = None) -> bool:
    """Return whether a user-defined loss takes each entry of the leading axis of this pytree.

    Unless the caller says so, that is if it takes no whole tree, but one entry after the other.
    """
    if isinstance(loss, Problem) or isinstance(tree, Network):
        if wanted is not None and wanted != (getattr(tree, "batch", None) is not None):
            raise InputError(
                f"batched is {wanted}; a Network is a batch if its weights have a leading batch "
                "axis, so leave it out."
            )
        return False
    arrays, rest = eqx.partition(tree, _is_array)
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in jax.tree.leaves(arrays)}
    common = len(lengths) == 1 and None not in lengths
    if wanted and not common:
        raise InputError(
            "batched=True needs arrays with one common leading axis, as jax.vmap makes them; "
            f"these have the leading lengths {sorted(map(str, lengths))}."
        )
    if wanted is not None or not common:
        return bool(wanted)

    def returned(function: Callable, *arguments: Any) -> tuple[int, ...] | None:
        try:
            return jax.eval_shape(function, *arguments).shape
        except Exception:  # a user-defined function may raise anything
            return None

    def one(arrays: PyTree) -> Array:
        return loss(eqx.combine(arrays, rest))

    return returned(one, arrays) != () and returned(jax.vmap(one), arrays) == tuple(lengths)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) or eqx.is_array(leaf)


@dataclass(frozen=True)
class Autodiff:
    """Value and gradient of any risk by reverse-mode differentiation."""

    risk: Callable[..., Array]
    """`risk(data, tree)` of one tree, or `risk(tree)` if there are no data."""
    layout: Layout
    whole: bool = False
    """With mini-batches: whether the value is the risk on all rows, as a target requires."""
    random: bool = False
    """Whether the risk is a `RandomLoss`, and `rows` the key of a step."""

    def __call__(self, data: Any, weights: Weights, fixed: tuple, rows: Any = None):
        """Return R and its gradient."""
        risk = partial(self._risk, data, fixed)
        if self.random:
            risk = lambda weights: self.risk(self.layout.tree(weights, fixed), rows)  # noqa: E731
        elif rows is not None:
            part = jax.tree.map(lambda matrix: matrix[rows], data)
            risk = partial(self._risk, part, fixed)
        value, gradient = jax.value_and_grad(risk)(weights)
        if self.whole and rows is not None:
            value = self._risk(data, fixed, weights)
        return value, gradient

    def value(self, data: Any, weights: Weights, fixed: tuple) -> Array:
        """Return R."""
        return self._risk(data, fixed, weights)

    def _risk(self, data: Any, fixed: tuple, weights: Weights) -> Array:
        tree = self.layout.tree(weights, fixed)
        return self.risk(tree) if data is None else self.risk(data, tree)


class LinearData(NamedTuple):
    """Training data of a linear network."""

    risk: Risk
    samples: GeneralizedLinear | None = None
    """The rows, for mini-batches."""
    rows: Rows = None
    """The rows of a mini-batch."""
    excess: Any = None
    """What hidden layers narrower than the rank of Θ* add to R_min; None for nothing."""

    def value_and_gradient(self, theta: Any) -> tuple[Any, Any]:
        """Return R − floor of a product Θ on all rows, and ∇R on the mini-batch if there is one."""
        gap, slope = self.risk.value_and_gradient(theta)
        if self.excess is not None:
            gap = gap - self.excess
        if self.rows is not None:
            assert self.samples is not None
            batch = replace(
                self.samples,
                inputs=self.samples.inputs[self.rows],
                targets=self.samples.targets[self.rows],
            )
            slope = batch.value_and_gradient(theta)[1]
        return gap, slope


@dataclass(frozen=True)
class LinearGradient:
    """R − R_min of a linear network and its gradient, from products of layers (FM-L8, FM-grad)."""

    layout: Layout

    def __call__(self, data: LinearData, weights: Weights, fixed: tuple, rows: Rows = None):
        """Return the gap on all rows and the gradient of the risk."""
        return gap_and_gradient(data._replace(rows=rows), self.layout.tree(weights, fixed))

    def value(self, data: LinearData, weights: Weights, fixed: tuple) -> Array:
        """Return the gap."""
        return data.value_and_gradient(affine_columns(self.layout.tree(weights, fixed)))[0]


@dataclass(frozen=True)
class BatchLastGradient:
    """`LinearGradient` for many networks with the batch axis last."""

    def __call__(
        self,
        data: LinearData,
        weights: Weights,
        fixed: tuple,
        rows: RowsOfMany = None,
        scale: Float[Array, " b"] | None = None,
    ):
        """Return gaps and gradients, the latter times `scale` if that is given.

        `rows` (size, b) holds a mini-batch for each network. Scaling ∇R(Θ) scales all layers, at
        the cost of one product with a vector instead of one with each matrix.
        """
        backward = batch_last.backward_rows(weights, *fixed or (None,))

        def on_rows(theta: Array, rows: Rows) -> tuple[Array, Array]:
            return data._replace(rows=rows).value_and_gradient(theta)

        axes = (2, None if rows is None else 1)
        gaps, slopes = jax.vmap(on_rows, axes, (0, 2))(backward[0].swapaxes(0, 1), rows)
        slopes = slopes if scale is None else slopes * scale
        forward = batch_last.forward_columns(weights, slopes.swapaxes(0, 1))
        return gaps, batch_last.layer_gradients(backward, forward)

    def value(self, data: LinearData, weights: Weights, fixed: tuple) -> Array:
        """Return the gaps."""
        theta = batch_last.backward_rows(weights, *fixed or (None,))[0].swapaxes(0, 1)
        return jax.vmap(data.value_and_gradient, 2)(theta)[0]


def objective_of(problem: Problem | Loss, tree: PyTree, layout: Layout | None = None) -> Objective:
    """Return the objective of a problem at a network, or of any `loss(tree) -> scalar`.

    `tree` may have leading axes: only its layout and the precision of its arrays are used.
    """
    if layout is None:
        layout = Layout.of(tree.stacked if hasattr(tree, "stacked") else tree)
    if not isinstance(problem, Problem):
        if not callable(problem):
            raise InputError(
                f"problem is a {type(problem).__name__}; pass a deeplin.Problem or a function "
                "loss(network) that returns a scalar."
            )
        gradient = Autodiff(problem, layout, random=isinstance(problem, RandomLoss))
        return Objective(gradient, None, layout, work=UNKNOWN_WORK)
    risk, data = risk_and_data(problem, tree)
    if risk is linear_risk:
        problem = as_seen(problem, tree)
        gradient, last = LinearGradient(layout), BatchLastGradient()
        optimum = problem.optimum_columns if problem.has_minimizer else None
        floor, excess, narrow = problem.minimal_risk, None, bottleneck_of(problem, tree)
        if narrow is not None:
            floor, optimum = floor + narrow.excess, narrow.product
            excess = np.asarray(narrow.excess, tree.weights[0].dtype)
        return Objective(
            gradient,
            LinearData(data, excess=excess),
            layout,
            floor=floor,
            has_gap=True,
            zero_risk=problem.zero_risk,
            optimum=optimum,
            bottleneck=narrow,
            batch_last=last if tree.biases is None else None,
            work=1 if isinstance(data, LeastSquares) else problem.samples,
            biased=tree.biases is not None,
        )
    return Objective(
        Autodiff(risk, layout), data, layout, zero_risk=problem.zero_risk, work=problem.samples
    )


class Ensemble(NamedTuple):
    """The trained pytrees, all of one layout, as arrays with a leading batch axis.

    On a CPU they are NumPy arrays: slicing and joining JAX arrays costs more than many steps.
    """

    layout: Layout
    weights: tuple[Float[Array | np.ndarray, " ..."], ...]
    """Trained arrays at the start."""
    fixed: tuple[Any, ...]
    """Arrays that are not trained."""
    single: bool
    """Whether the caller passed a single tree, so that results are plain values."""
    source: PyTree = None
    """The tree that the caller passed, unless copies of it are trained."""

    @classmethod
    def of(cls, tree: PyTree, copies: int | None = None, *, batched: bool = False) -> Ensemble:
        """Return the ensemble of a network, a batch or another pytree (or of `copies` of it).

        `batched` says that a pytree other than a network is a batch.
        """
        if isinstance(tree, Network):
            batched = tree.batch is not None
            tree = tree.with_batch() if batched else tree
        layout = Layout.of(tree)
        trained, fixed = layout.split(tree)
        weights, fixed = (tuple(map(_near, arrays)) for arrays in (trained, fixed))
        if not batched:
            weights, fixed = (
                tuple(a[None] if copies is None else a[None].repeat(copies, axis=0) for a in arrays)
                for arrays in (weights, fixed)
            )
        single = not batched and copies is None
        return cls(layout, weights, fixed, single, tree if single or batched else None)

    @property
    def initial(self) -> PyTree:
        """The initial trees, in the form returned to the caller."""
        return self.result(self.weights) if self.source is None else self.source

    @property
    def size(self) -> int:
        """Number of runs."""
        return len(self.weights[0])

    @property
    def numbers(self) -> int:
        """Number of trained parameters of all runs together."""
        return sum(weight.size for weight in self.weights)

    @property
    def widest(self) -> int:
        """The largest dimension of a trained array."""
        return max(max(weight.shape[1:], default=1) for weight in self.weights)

    @property
    def on_cpu(self) -> bool:
        """Whether it is trained on a CPU."""
        return all(isinstance(weight, np.ndarray) for weight in self.weights)

    def tree(self, weights: tuple[Any, ...]) -> PyTree:
        """Return the batch with these weights."""
        return self.layout.tree(weights, self.fixed)

    def result(self, weights: tuple[Any, ...]) -> PyTree:
        """Return the trees on the device, as the caller gets them: without batch axis if single."""
        if not self.single:
            return self.layout.tree(tuple(map(_own, weights)), tuple(map(_own, self.fixed)))
        # Wait for the copy, which reads memory that belongs to the caller.
        return self.layout.tree(*jax.block_until_ready(_first((weights, self.fixed))))

    def members(self, values: Any) -> Any:
        """Return one value for each run; a plain value if single."""
        return np.asarray(values)[0].item() if self.single else np.asarray(values)


def _own(leaf: Any) -> Any:
    """Return a JAX array that shares no memory with a NumPy array."""
    return jnp.asarray(leaf.copy()) if isinstance(leaf, np.ndarray) else leaf


@jax.jit
def _first(arrays: Any) -> Any:
    """Return the first entry of each batch as JAX arrays with their own memory, in one program.

    Used for single networks, whose calls are short and frequent: it takes a fifth of the time of
    `_own`.
    """
    return jax.tree.map(lambda leaf: leaf[0], arrays)


def _near(leaf: Any) -> Any:
    """Return a NumPy view of the array if it can share memory, as JAX allows on a CPU."""
    if isinstance(leaf, np.ndarray):
        return leaf
    plain = isinstance(leaf.dtype, np.dtype)  # keys are not
    on_cpu = plain and all(device.platform == "cpu" for device in leaf.sharding.device_set)
    return np.asarray(leaf) if on_cpu else leaf
