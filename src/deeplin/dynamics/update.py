"""How a gradient becomes a step: rates, momentum, weight decay, schedules, optax."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from deeplin.dynamics.batches import Batches
from deeplin.dynamics.objective import Ensemble
from deeplin.errors import InputError, finite_array, positive_number, shown
from deeplin.networks import Layout


class Numbers(NamedTuple):
    """Coefficients shared by all runs; None where a term is absent."""

    momentum: Any = None
    weight_decay: Any = None
    schedule: Float[Array | np.ndarray, " steps"] | None = None
    """What the learning rate is multiplied by at each step."""


@dataclass(frozen=True)
class Method:
    """The step W ← W + U of one run, with U from the gradient G = ∇R + 2λW.

    Or of many runs whose arrays have the batch axis last.

    Plain U = −ηG. Heavy ball V ← βV − ηG, U = V. Nesterov, as optimizers in use define it,
    V ← βV − ηG, U = βV − ηG. Or what an optax transformation makes of G.
    """

    layout: Layout
    nesterov: bool = False
    optimizer: Any = None

    def begin(self, weights: tuple[Array | np.ndarray, ...], momentum: float) -> PyTree:
        """The memory of every run before the first step."""
        if self.optimizer is not None:
            init = self._transformation(1.0).init
            return jax.vmap(lambda w: init(self.layout.parameters(w)))(weights)
        return tuple(map(jnp.zeros_like, weights)) if momentum else ()

    def __call__(self, numbers: Numbers, rates, moving, weights, memory, descent):
        """Return weights and memory after one step; runs that are not `moving` stay as they are.

        `descent` holds the value of R, its gradient and R as a function of the weights.
        """
        value, gradient, risk = descent
        if numbers.weight_decay is not None:
            twice = 2 * numbers.weight_decay
            gradient = tuple(g + twice * w for g, w in zip(gradient, weights, strict=True))
        if not memory and self.optimizer is None:
            moves = zip(weights, rates, gradient, strict=True)
            return tuple(jnp.where(moving, w - rate * g, w) for w, rate, g in moves), memory
        if self.optimizer is not None:
            steps, after = self._transform(rates[0], weights, memory, (value, gradient, risk))
        else:
            push = tuple(-rate * g for rate, g in zip(rates, gradient, strict=True))
            steps = after = _accelerated(numbers.momentum, memory, push)
            if self.nesterov:
                steps = _accelerated(numbers.momentum, after, push)
        memory = jax.tree.map(partial(jnp.where, moving), after, memory)
        return tuple(
            jnp.where(moving, w + u, w) for w, u in zip(weights, steps, strict=True)
        ), memory

    def _transform(self, rate, weights, memory, descent):
        """The update of optax, with the extra arguments that line searches and SAM ask for."""
        value, gradient, risk = descent
        slopes, parameters = map(self.layout.parameters, (gradient, weights))

        def of_tree(tree, grad_fn=None):  # line searches refuse what this does not take
            return risk(tuple(jax.tree.leaves(tree)))

        update = self._transformation(rate).update
        extra = {"value": value, "grad": slopes, "value_fn": of_tree}
        extra["grad_fn"] = lambda tree, _step=None: jax.grad(of_tree)(tree)
        taken = inspect.signature(update).parameters
        if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in taken.values()):
            extra = {name: entry for name, entry in extra.items() if name in taken}
        steps, memory = update(slopes, memory, parameters, **extra)
        return jax.tree.leaves(steps), memory

    def _transformation(self, rate):
        import optax  # a third of a second, for those who use it

        made = hasattr(self.optimizer, "update")
        return optax.with_extra_args_support(self.optimizer if made else self.optimizer(rate))


def _accelerated(momentum, velocity, push):
    """βV − ηG."""
    return tuple(momentum * v + u for v, u in zip(velocity, push, strict=True))


@dataclass(frozen=True, eq=False)
class Rates:
    """The learning rates as a caller gives them."""

    each: Any
    """A number, one for each run, a tuple of these with one for each layer; None if scheduled."""
    schedule: Float[np.ndarray, " steps"] | None
    runs: int | None
    """Number of runs they are for; None for any."""

    @classmethod
    def of(cls, learning_rate: Any, steps: int, optimizer: Any) -> Rates:
        """Check them; with a finished transformation there may be none."""
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
        """η of each run and layer, (batch, layers); ones where a schedule says it all."""
        layers = len(ensemble.weights)
        matrix = np.ones((ensemble.size, layers), ensemble.weights[0].dtype)
        if isinstance(self.each, tuple):
            if len(self.each) != layers:
                raise InputError(
                    f"learning_rate is a tuple of {len(self.each)} for {layers} trained arrays; "
                    "pass one for each layer (or a list, with one for each run)."
                )
            for column, rate in zip(matrix.T, self.each, strict=True):
                column[:] = rate
        elif self.each is not None:
            matrix.T[:] = self.each
        return matrix

    def given(self, matrix: np.ndarray, single: bool) -> Any:
        """What `run.learning_rate` says, of these rates of each run and layer."""
        if self.each is None:
            return self.schedule
        rates = matrix if np.any(matrix != matrix[:, :1]) else matrix[:, 0]
        member = rates[0] if single else rates
        return member.item() if member.ndim == 0 else member


def _rate(value: Any) -> np.ndarray:
    if value is None or isinstance(value, (numbers.Real, str)):
        return np.asarray(positive_number("learning_rate", value))
    rates = finite_array("learning_rate", value, (0, 1))
    for rate in rates.ravel().tolist():
        positive_number("learning_rate", rate)
    return rates


def _table(schedule: Callable[[Any], Any], steps: int) -> np.ndarray:
    """η at each step: all at once if the schedule can be traced, else one by one."""
    try:
        values = np.asarray(jax.jit(jax.vmap(schedule))(jnp.arange(steps)))
    except (TypeError, ValueError, jax.errors.JAXTypeError):
        try:
            values = np.asarray([schedule(step) for step in range(steps)])
        except Exception as error:  # the caller's own function: whatever it raises
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
    batches: Batches | None = None

    @cached_property
    def variant(self) -> str:
        """The options beyond plain descent with momentum, named for messages."""
        named = {
            "optimizer": self.method.optimizer is not None,
            "nesterov": self.method.nesterov,
            "schedule": self.schedule is not None,
            "layers": bool(np.any(self.learning_rate != self.learning_rate[:, :1])),
        }
        return " ".join(name for name, there in named.items() if there) or "plain"

    def numbers(self, dtype: Any) -> Numbers:
        """The coefficients in the precision of the weights."""
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
    batches: Batches | None,
    optimizer: Any,
) -> Update:
    """The update a caller asks for."""
    beta = check_momentum(momentum)
    decay = positive_number("weight_decay", weight_decay, zero_allowed=True)
    if nesterov and not beta:
        raise InputError("nesterov=True needs momentum; pass momentum between 0 and 1 with it.")
    if optimizer is not None and beta:
        raise InputError("an optimizer has its own momentum; pass momentum=0, or no optimizer.")
    method = Method(ensemble.layout, bool(nesterov), _checked(optimizer, rates))
    return Update(method, rates.matrix(ensemble), beta, decay, rates.schedule, batches)


def check_momentum(momentum: float) -> float:
    """β, from 0 to below 1."""
    beta = positive_number("momentum", momentum, zero_allowed=True)
    if beta >= 1:
        raise InputError(f"momentum is {beta:g}; pass a number from 0 up to but below 1.")
    return beta


def _checked(optimizer: Any, rates: Rates) -> Any:
    """The optax transformation, or the function that makes one for each learning rate."""
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
