"""What a dynamics goes down: a value and its gradient, as pure functions of data and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from deeplin.errors import InputError
from deeplin.networks import (
    Layout,
    Loss,
    Network,
    data_risk,
    gap_and_gradient,
    landscape,
    linear_risk,
    products,
)
from deeplin.networks.risk import Data
from deeplin.problems import Problem

Weights = tuple[Float[Array, " ..."], ...]
Rows = Int[Array, " size"] | None
"""Numbers of the rows in a mini-batch; None for all of them."""


class Objective(NamedTuple):
    """A risk R and how to descend it: `value_and_gradient(data, weights, fixed, rows)`.

    The value is R − floor. For a linear network on a problem it is the gap R − R_min, taken about
    the optimum so that it stays accurate down to rounding; otherwise it is the risk itself and the
    floor is 0. The data are arguments of the functions, so compiled code does not depend on the
    problem.
    """

    value_and_gradient: Callable[..., tuple[Array, Weights]]
    risk: Callable[..., Array]
    """`risk(*data, tree)` of one tree."""
    data: tuple[Any, ...]
    layout: Layout
    """How weights and fixed arrays make a network, or whatever else is trained."""
    floor: float
    """R_min, a lower bound of the risk, where `has_gap`; else 0."""
    has_gap: bool
    """Whether R − R_min is meaningful: a linear network on a problem."""


@dataclass(frozen=True)
class Autodiff:
    """Value and gradient of any risk by reverse-mode differentiation."""

    risk: Callable[..., Array]
    layout: Layout
    whole: bool = False
    """With mini-batches: whether the value is the risk on all rows (a goal needs that)."""

    def __call__(self, data: tuple, weights: Weights, fixed: tuple, rows: Rows = None):
        """R and its gradient, on these rows if some are given."""
        taken = data if rows is None else (Data(*(matrix[rows] for matrix in data[0])),)
        value, gradient = jax.value_and_grad(partial(self._risk, taken, fixed))(weights)
        if self.whole and rows is not None:
            value = self._risk(data, fixed, weights)
        return value, gradient

    def _risk(self, data: tuple, fixed: tuple, weights: Weights) -> Array:
        return self.risk(*data, self.layout.tree(weights, fixed))


@dataclass(frozen=True)
class ClosedForm:
    """R − R_min of a linear network and its gradient (FM-L8, FM-grad)."""

    layout: Layout

    def __call__(self, data: tuple, weights: Weights, fixed: tuple, rows: Rows = None):
        """The gap on all rows; the gradient of the risk on `rows`, if some are given."""
        network: Network = self.layout.tree(weights, fixed)
        value, gradient = gap_and_gradient(data[0], network)
        if rows is None:
            return value, gradient
        inputs, targets = (matrix[rows] for matrix in data[1:])
        backward = products.backward_products(network.weights, network.readout)
        slope = 2 / len(rows) * inputs.T @ (inputs @ backward[0] - targets)
        forward = products.forward_products(network.weights, slope)
        return value, tuple(products.layer_gradients(backward, forward))


def objective_of(problem: Problem | Loss, tree: PyTree, layout: Layout | None = None) -> Objective:
    """The objective of a problem at a network, or of any `loss(tree) -> scalar`.

    `tree` may carry leading axes: its layout counts, and the precision of its arrays.
    """
    if layout is None:
        layout = Layout.of(tree.stacked if hasattr(tree, "stacked") else tree)
    if not isinstance(problem, Problem):
        if not callable(problem):
            raise InputError(
                f"problem is a {type(problem).__name__}; pass a deeplin.Problem or a function "
                "loss(network) that returns a scalar."
            )
        return Objective(Autodiff(problem, layout), problem, (), layout, 0.0, False)
    risk, data = landscape(problem, tree)
    if risk is linear_risk:
        floor = problem.minimal_risk
        return Objective(ClosedForm(layout), linear_risk, (data,), layout, floor, True)
    return Objective(Autodiff(data_risk, layout), data_risk, (data,), layout, 0.0, False)


def with_rows(objective: Objective, problem: Problem, has_goal: bool) -> Objective:
    """The same objective with the rows at hand, for mini-batches."""
    if not objective.has_gap:
        whole = Autodiff(objective.risk, objective.layout, has_goal)
        return objective._replace(value_and_gradient=whole)
    dtype = objective.data[0].optimum.dtype
    rows = problem.require_data("descent on mini-batches")
    return objective._replace(data=(objective.data[0], *(jnp.asarray(m, dtype) for m in rows)))


class Ensemble(NamedTuple):
    """What is trained: trees of one layout as arrays with a leading batch axis.

    On a CPU they are NumPy's: cutting and joining JAX arrays costs more than many steps.
    """

    layout: Layout
    weights: tuple[Float[Array | np.ndarray, " ..."], ...]
    """Trained arrays at the start."""
    fixed: tuple[Any, ...]
    """Arrays that stay as they are."""
    single: bool
    """Whether the caller passed one tree and gets plain values."""
    source: PyTree = None
    """What the caller passed, unless copies of it are trained."""

    @classmethod
    def of(cls, tree: PyTree, copies: int | None = None) -> Ensemble:
        """A network, a batch of networks, or any other pytree; `copies` of it if that is given."""
        batched = isinstance(tree, Network) and tree.batch is not None
        if batched:
            tree = tree.with_batch()
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
        """What the runs started from, as the caller gets it back."""
        return self.result(self.weights) if self.source is None else self.source

    @property
    def size(self) -> int:
        """Number of runs."""
        return len(self.weights[0])

    @property
    def numbers(self) -> int:
        """Trained numbers in all runs together."""
        return sum(weight.size for weight in self.weights)

    @property
    def on_cpu(self) -> bool:
        """Whether a CPU trains it."""
        return all(isinstance(weight, np.ndarray) for weight in self.weights)

    def tree(self, weights: tuple[Any, ...]) -> PyTree:
        """The batch with these weights."""
        return self.layout.tree(weights, self.fixed)

    def result(self, weights: tuple[Any, ...]) -> PyTree:
        """What the caller gets back: trees on the device, without batch axis if single."""
        if not self.single:
            return self.layout.tree(tuple(map(_own, weights)), tuple(map(_own, self.fixed)))
        # Waited for: until then it may read memory that belongs to the caller.
        return self.layout.tree(*jax.block_until_ready(_first((weights, self.fixed))))

    def members(self, values: Any) -> Any:
        """One value for each run; a plain one if single."""
        return np.asarray(values)[0].item() if self.single else np.asarray(values)


def _own(leaf: Any) -> Any:
    """A JAX array that shares no memory with one of NumPy's."""
    return jnp.asarray(leaf.copy()) if isinstance(leaf, np.ndarray) else leaf


@jax.jit
def _first(arrays: Any) -> Any:
    """The first of each batch as JAX arrays of their own: one program for all of them.

    For single networks, whose calls are short and often repeated: a fifth of the time of `_own`.
    """
    return jax.tree.map(lambda leaf: leaf[0], arrays)


def _near(leaf: Any) -> Any:
    """The array as NumPy's if that shares its memory, which JAX allows on a CPU."""
    if isinstance(leaf, np.ndarray):
        return leaf
    plain = isinstance(leaf.dtype, np.dtype)  # keys are not
    on_cpu = plain and all(device.platform == "cpu" for device in leaf.sharding.device_set)
    return np.asarray(leaf) if on_cpu else leaf
