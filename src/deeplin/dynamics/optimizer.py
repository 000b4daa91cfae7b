"""Update rules: learning rates, momentum, weight decay, schedules, optax."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, UInt32

from deeplin.dynamics.objective import Ensemble
from deeplin.errors import InputError, finite_array, positive_number, shown
from deeplin.networks.network import Layout


class Numbers(NamedTuple):
    """Coefficients shared by all runs; None where a term is absent."""

    momentum: Any = None
    weight_decay: Any = None
    schedule: Float[Array | np.ndarray, " steps"] | None = None
    """Factor of the learning rate at each step."""


@dataclass(frozen=True)
class Method:
    """The step W ← W + U of one run, with U from the gradient G = ∇R + 2λW.

    Or of many runs whose arrays have the batch axis last.

    Plain: U = −ηG. Heavy ball: V ← βV − ηG, U = V. Nesterov, as common optimizers define it: V ← βV
    − ηG, U = βV − ηG. Otherwise U is the update of an optax transformation.
    """

    layout: Layout
    nesterov: bool = False
    optimizer: Any = None

    def begin(
        self,
        weights: tuple[Array | np.ndarray, ...],
        momentum: float,
        keys: UInt32[np.ndarray, "runs 2"] | None = None,
    ) -> PyTree:
        """Return the memory of every run before the first step.

        Keys of an optimizer are stored as words, which NumPy can slice, after folding in the words
        of the run's own key, so that every run has noise of its own.
        """
        if self.optimizer is None:
            return tuple(map(jnp.zeros_like, weights)) if momentum else ()
        init = self._transformation(1.0).init

        def one(weights, words) -> PyTree:
            def stored(leaf):
                if not _is_key(leaf):
                    return leaf
                own = leaf if words is None else reduce(jax.random.fold_in, words, leaf)
                return jax.random.key_data(own)

            return jax.tree.map(stored, init(self.layout.parameters(weights)))

        return jax.vmap(one)(weights, keys)

    def draws(self, weights: tuple[Array | np.ndarray, ...]) -> bool:
        """Return whether the optimizer has a random state, such as `optax.add_noise`."""
        return self.optimizer is not None and any(
            map(_is_key, jax.tree.leaves(self._state(weights)))
        )

    def _state(self, weights: tuple[Array | np.ndarray, ...]) -> PyTree:
        """Return shapes and types of the optimizer's state for one run."""
        return jax.eval_shape(self._transformation(1.0).init, self.layout.parameters(weights))

    def __call__(self, numbers: Numbers, rates, moving, weights, memory, descent, scaled=False):
        """Return weights and memory after one step; runs that are not `moving` stay as they are.

        `descent` holds the value of R, its gradient and R as a function of the weights. If it is
        `scaled`, the gradient is that of ηR, where η is the first of the rates.
        """
        value, gradient, risk = descent
        if numbers.weight_decay is not None:
            twice = 2 * numbers.weight_decay * (rates[0] if scaled else 1)
            gradient = tuple(g + twice * w for g, w in zip(gradient, weights, strict=True))
        if self.optimizer is not None:
            steps, after = self._transform(rates[0], weights, memory, (value, gradient, risk))
        else:
            if not scaled:
                gradient = tuple(rate * g for rate, g in zip(rates, gradient, strict=True))
            push = tuple(-g for g in gradient)
            after = _accelerated(numbers.momentum, memory, push) if memory else ()
            steps = after or push
            if self.nesterov:
                steps = _accelerated(numbers.momentum, after, push)
        memory = jax.tree.map(partial(jnp.where, moving), after, memory)
        return tuple(
            jnp.where(moving, w + u, w) for w, u in zip(weights, steps, strict=True)
        ), memory

    def _transform(self, rate, weights, memory, descent):
        """Return the update of optax, with the extra arguments that line searches and SAM need."""
        value, gradient, risk = descent
        slopes, parameters = map(self.layout.parameters, (gradient, weights))

        def of_tree(tree, grad_fn=None):  # line searches require this signature
            return risk(tuple(jax.tree.leaves(tree)))

        update = self._transformation(rate).update
        memory = jax.tree.map(
            lambda kind, leaf: jax.random.wrap_key_data(leaf) if _is_key(kind) else leaf,
            self._state(weights),
            memory,
        )
        extra = {"value": value, "grad": slopes, "value_fn": of_tree}
        extra["grad_fn"] = lambda tree, _step=None: jax.grad(of_tree)(tree)
        taken = inspect.signature(update).parameters
        if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in taken.values()):
            extra = {name: entry for name, entry in extra.items() if name in taken}
        steps, memory = update(slopes, memory, parameters, **extra)
        memory = jax.tree.map(lambda a: jax.random.key_data(a) if _is_key(a) else a, memory)
        return jax.tree.leaves(steps), memory

    def _transformation(self, rate):
        import optax  # takes a third of a second

        made = hasattr(self.optimizer, "update")
        return optax.with_extra_args_support(self.optimizer if made else self.optimizer(rate))


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _accelerated(momentum, velocity, push):
    """Return βV − ηG."""
    return tuple(momentum * v + u for v, u in zip(velocity, push, strict=True))


@dataclass(frozen=True, eq=False)
class Rates:
    """The learning rates as a caller passes them."""

    each: Any
    """A number, one for each run, a tuple of these with one for each layer; None if scheduled."""
    schedule: Float[np.ndarray, " steps"] | None
    runs: int | None
    """Number of runs they are for; None for any."""

    @classmethod
    def of(cls, learning_rate: Any, steps: int, optimizer: Any) -> Rates:
        """Return the checked rates, which may be None with a complete optax transformation."""
        if learning_rate is None and optimizer is not None:
            return cls(None, None, None)
        if callable(learning_rate):
            return cls(None, _table(learning_rate, steps), None)
        layers = learning_rate if isinstance(learning_rate, tuple) else (learning_rate,)
        if not layers:
            raise InputError("learning_rate is an empty tuple; pass one number for each layer.")
        vectors = [_rate(entry) for entry in layers]
        runs = {len(vector) for vector in vectors if vector.ndim}
        if len(runs) > 1:
            raise InputError(
                f"learning_rate holds vectors of lengths {sorted(runs)}; pass one rate for each "
                "run, or a tuple with one entry for each layer."
            )
        each = tuple(vectors) if isinstance(learning_rate, tuple) else vectors[0]
        return cls(each, None, next(iter(runs), None))

    def matrix(self, ensemble: Ensemble) -> np.ndarray:
        """Return η of each run and trained array; ones where a schedule sets the rate.

        A bias has the rate of its layer.
        """
        layers = ensemble.layout.layers
        matrix = np.ones((ensemble.size, len(layers)), ensemble.weights[0].dtype)
        if isinstance(self.each, tuple):
            count = max(layers) + 1
            if len(self.each) != count:
                raise InputError(
                    f"learning_rate is a tuple of {len(self.each)} for {count} layers or trained "
                    "arrays; pass one for each (or a list, with one for each run)."
                )
            for column, layer in zip(matrix.T, layers, strict=True):
                column[:] = self.each[layer]
        elif self.each is not None:
            matrix.T[:] = self.each
        return matrix

    def given(self, matrix: np.ndarray, single: bool) -> Any:
        """Return the value of `run.learning_rate` for these rates of each run and layer."""
        if self.each is None:
            return self.schedule
        count = len(self.each) if isinstance(self.each, tuple) else 1  # biases follow
        rates = matrix[:, :count] if np.any(matrix != matrix[:, :1]) else matrix[:, 0]
        member = rates[0] if single else rates
        return member.item() if member.ndim == 0 else member


def _rate(value: Any) -> np.ndarray:
    if isinstance(value, str):
        raise InputError(f"learning_rate is {shown(value)}, a text; pass a number above 0.")
    if value is None or isinstance(value, numbers.Real):
        return np.asarray(positive_number("learning_rate", value))
    rates = finite_array("learning_rate", value, (0, 1))
    for rate in rates.ravel().tolist():
        positive_number("learning_rate", rate)
    return rates


def _table(schedule: Callable[[Any], Any], steps: int) -> np.ndarray:
    """Return η at each step, in one call if the schedule can be traced, else step by step."""
    try:
        values = np.asarray(jax.jit(jax.vmap(schedule))(jnp.arange(steps)))
    except (TypeError, ValueError, jax.errors.JAXTypeError):
        try:
            values = np.asarray([schedule(step) for step in range(steps)])
        except Exception as error:  # a user-defined function may raise anything
            raise InputError(
                f"learning_rate is {shown(schedule)}, which raised {type(error).__name__} for a "
                "step; pass a number, or a function of the step that returns one."
            ) from error
    if values.shape != (steps,):
        raise InputError(
            f"the schedule returns shape {values.shape[1:]}; pass a function of the step that "
            "returns one number."
        )
    values = np.asarray(values, np.float64)
    good = np.isfinite(values) & (values >= 0)
    if not good.all():
        step = int(np.argmin(good))
        raise InputError(
            f"the schedule gives {values[step]:g} at step {step}; pass one with finite rates of "
            "at least 0."
        )
    return values


@dataclass(frozen=True, eq=False)
class Update:
    """The rule of a descent: one `Method` with its numbers, for every run of a batch."""

    method: Method
    learning_rate: Float[np.ndarray, "batch layers"]
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: Float[np.ndarray, " steps"] | None = None

    @cached_property
    def variant(self) -> str:
        """The options beyond plain descent with momentum, named for messages."""
        named = {
            "optimizer": self.method.optimizer is not None,
            "nesterov": self.method.nesterov,
            "schedule": self.schedule is not None,
            "layers": not self.has_one_rate,
        }
        return " ".join(name for name, there in named.items() if there) or "plain"

    @cached_property
    def has_one_rate(self) -> bool:
        """Whether the layers of each run have the same learning rate."""
        return bool(np.all(self.learning_rate == self.learning_rate[:, :1]))

    def numbers(self, dtype: Any) -> Numbers:
        """Return the coefficients in the precision of the weights."""
        return Numbers(
            np.asarray(self.momentum, dtype) if self.momentum else None,
            np.asarray(self.weight_decay, dtype) if self.weight_decay else None,
            None if self.schedule is None else np.asarray(self.schedule, dtype),
        )


def update_of(
    rates: Rates,
    ensemble: Ensemble,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
    optimizer: Any,
) -> Update:
    """Return the update that a caller requests."""
    beta = check_momentum(momentum)
    decay = positive_number("weight_decay", weight_decay, zero_allowed=True)
    if nesterov and not beta:
        raise InputError("nesterov=True needs momentum; pass momentum between 0 and 1 with it.")
    if optimizer is not None and beta:
        raise InputError("an optimizer has its own momentum; pass momentum=0, or no optimizer.")
    method = Method(ensemble.layout, bool(nesterov), _checked(optimizer, rates))
    return Update(method, rates.matrix(ensemble), beta, decay, rates.schedule)


def check_momentum(momentum: float) -> float:
    """Return β, or raise InputError unless 0 ≤ β < 1."""
    beta = positive_number("momentum", momentum, zero_allowed=True)
    if beta >= 1:
        raise InputError(f"momentum is {beta:g}; pass a number from 0 up to but below 1.")
    return beta


def _checked(optimizer: Any, rates: Rates) -> Any:
    """Return the optax transformation, or the function that makes one for each learning rate."""
    if optimizer is None or (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        return optimizer
    if not callable(optimizer):
        raise InputError(
            f"optimizer is a {type(optimizer).__name__}; pass an optax transformation such as "
            "optax.adam(1e-3), or optax.adam itself with learning_rate."
        )
    if rates.each is None and rates.schedule is None:
        raise InputError("this optimizer is made from a learning rate; pass learning_rate with it.")
    if isinstance(rates.each, tuple):
        raise InputError(
            "an optimizer takes one learning rate; pass a number or a vector, not a tuple."
        )
    return optimizer


def stability_limit(momentum: float = 0.0, *, nesterov: bool = False) -> float:
    """Return the largest ηS at which descent is stable at a minimum of sharpness S.

    2 for gradient descent. Heavy ball, x ← x − η∇ + β(x − x₋): z² − (1+β−ηS)z + β has its roots in
    the unit disk exactly for ηS ≤ 2+2β. Nesterov, ∇ taken at x + β(x − x₋): with c = 1−ηS the
    polynomial z² − (1+β)cz + βc requires c ≥ −1/(1+2β), so ηS ≤ (2+2β)/(1+2β).

    ```python
    from deeplin.theory import stability_limit
    assert stability_limit(0.9) == 3.8 and stability_limit(0.9, nesterov=True) < 1.36
    ```
    """
    beta = check_momentum(momentum)
    return (2 + 2 * beta) / (1 + 2 * beta) if nesterov else 2 + 2 * beta
