"""Update rules: learning rates, momentum, weight decay, schedules, optax, mini-batches."""

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
from jaxtyping import Array, Float, Int, PyTree, UInt64

from deeplin.dynamics.objective import Ensemble
from deeplin.errors import InputError, finite_array, positive_number, shown, whole_number
from deeplin.networks import Layout
from deeplin.problems import Problem

MOST_ROWS = 2**21
"""Maximum number of row indices drawn in advance for a batch of runs."""


@dataclass(frozen=True, eq=False)
class Batches:
    """Mini-batches: B of the n rows at every step, without replacement, independent between steps.

    The rows of a run depend on its key and the step only.
    """

    seeds: UInt64[np.ndarray, " batch"]
    samples: int
    size: int
    steps: int | None = None
    """Number of steps for which batches are drawn; None if unknown."""

    @classmethod
    def of(
        cls, problem: Any, size: Any, key: Any, runs: int | None, steps: int | None = None
    ) -> Batches | None:
        """Return the requested batches, or None; `runs` is None for a single network."""
        if size is None:
            if key is not None:
                raise InputError("key draws mini-batches; pass batch_size with it, or no key.")
            return None
        size = whole_number("batch_size", size)
        if not isinstance(problem, Problem):
            raise InputError(
                "mini-batches are rows of a Problem; with a loss of your own leave batch_size out."
            )
        problem.require_data("descent on mini-batches")
        if size > problem.samples:
            raise InputError(
                f"batch_size is {size} and there are {problem.samples} samples; pass at most that."
            )
        if key is None:
            raise InputError("mini-batches are random; pass key=jax.random.key(seed).")
        return cls(seeds_of(key, runs), problem.samples, size, steps)

    @property
    def ahead(self) -> int:
        """Number of steps drawn at a time."""
        most = np.clip(MOST_ROWS // (len(self.seeds) * self.size), 1, 4096)
        return int(most if self.steps is None else min(most, max(1, self.steps)))

    def rows(self, first: int, count: int) -> Int[np.ndarray, "batch steps size"]:
        """Return the rows of `count` steps from `first` on."""
        return draw(self.seeds, np.arange(first, first + count), self.samples, self.size)


def draw(
    seeds: UInt64[np.ndarray, " batch"], steps: Int[np.ndarray, " steps"], samples: int, size: int
) -> Int[np.ndarray, "batch steps size"]:
    """Return the first `size` entries of a random permutation of the rows, for each seed and step.

    A partial Fisher-Yates shuffle whose r-th swap is with r + ⌊(n − r)u⌋, where u are the first 53
    bits of a hash of (seed, step, r). So batches depend neither on how runs are grouped nor on
    where a run was resumed. In NumPy, because the hash needs 64-bit integers.
    """
    words = _mix(seeds[:, None] ^ _mix(steps.astype(np.uint64) + _GOLDEN))
    swaps = np.empty((size, *words.shape), np.int32)
    for r in range(size):
        words = words + _GOLDEN
        uniform = (_mix(words) >> np.uint64(11)) * 2.0**-53
        swaps[r] = r + ((samples - r) * uniform).astype(np.int64)
    rows = (_shuffled if samples <= 64 * size else _traced)(swaps.reshape(size, -1), samples)
    return np.ascontiguousarray(np.moveaxis(rows.reshape(swaps.shape), 0, -1))


def _shuffled(swaps: Int[np.ndarray, "size batches"], samples: int) -> np.ndarray:
    """Apply the swaps to a permutation of all rows for each batch, some batches at a time."""
    rows, block = np.empty_like(swaps), max(1, MOST_ROWS // samples)
    for begin in range(0, swaps.shape[1], block):
        part = swaps[:, begin : begin + block]
        order = np.tile(np.arange(samples, dtype=np.int32)[:, None], part.shape[1])
        each = np.arange(part.shape[1])
        for r, other in enumerate(part):
            chosen = order[other, each]
            order[other, each] = order[r]
            rows[r, begin : begin + block] = chosen
    return rows


def _traced(swaps: Int[np.ndarray, "size batches"], _samples: int) -> np.ndarray:
    """Return the result of `_shuffled` for few of many rows, storing only the swapped entries."""
    rows, moved = swaps.copy(), np.empty_like(swaps)
    for r in range(len(swaps)):
        moved[r] = r  # the entry at place r before swap r
        for s in range(r):
            np.copyto(moved[r], moved[s], where=swaps[s] == r)
            np.copyto(rows[r], moved[s], where=swaps[s] == swaps[r])
    return rows


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(words: UInt64[np.ndarray, " ..."]) -> UInt64[np.ndarray, " ..."]:
    """Scatter the bits of each word: the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def seeds_of(key: Any, runs: int | None) -> np.ndarray:
    """Return one seed for each run, from its own key or from `fold_in(key, i)`.

    `runs` is None for a single run.
    """
    words = key_words(key)
    if words.ndim == 1 and runs is not None:
        each = [jax.random.fold_in(key, run) for run in range(runs)]
        words = np.stack([key_words(own) for own in each])
    words = np.atleast_2d(words)
    if len(words) != (runs or 1):
        raise InputError(
            f"key holds {len(words)} keys for {runs or 1} network(s); pass one, or one for each."
        )
    return (words[:, 0].astype(np.uint64) << np.uint64(32)) | words[:, -1].astype(np.uint64)


def key_words(key: Any) -> np.ndarray:
    """Return the words of a key, (words,), or of a batch of keys, (runs, words)."""
    try:
        keys = jnp.asarray(key)
        typed = jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
        words = np.asarray(jax.random.key_data(keys) if typed else keys)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"key is {shown(key)}; pass jax.random.key(seed).") from error
    if words.dtype != np.uint32 or words.ndim not in (1, 2):
        raise InputError(
            f"key has shape {words.shape} and type {words.dtype}; pass jax.random.key(seed), or "
            "jax.random.split(key, runs) for a batch."
        )
    return words


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

    def begin(self, weights: tuple[Array | np.ndarray, ...], momentum: float) -> PyTree:
        """Return the memory of every run before the first step."""
        if self.optimizer is not None:
            init = self._transformation(1.0).init
            return jax.vmap(lambda w: init(self.layout.parameters(w)))(weights)
        return tuple(map(jnp.zeros_like, weights)) if momentum else ()

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
        extra = {"value": value, "grad": slopes, "value_fn": of_tree}
        extra["grad_fn"] = lambda tree, _step=None: jax.grad(of_tree)(tree)
        taken = inspect.signature(update).parameters
        if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in taken.values()):
            extra = {name: entry for name, entry in extra.items() if name in taken}
        steps, memory = update(slopes, memory, parameters, **extra)
        return jax.tree.leaves(steps), memory

    def _transformation(self, rate):
        import optax  # takes a third of a second

        made = hasattr(self.optimizer, "update")
        return optax.with_extra_args_support(self.optimizer if made else self.optimizer(rate))


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
        """Return η of each run and layer, (batch, layers); ones where a schedule sets the rate."""
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
        """Return the value of `run.learning_rate` for these rates of each run and layer."""
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
    batches: Batches | None = None

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
    batches: Batches | None,
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
    return Update(method, rates.matrix(ensemble), beta, decay, rates.schedule, batches)


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
