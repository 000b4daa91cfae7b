"""The loop of gradient descent: two memory layouts, one state, one set of stopping criteria.

A batch of runs is cut into chunks, independent calls of one compiled program that a pool of threads
spreads over all cores. Inside a program the networks lie in one of two layouts:

- *batch last* for narrow linear networks: weights are (out, in, networks), products with vectors
  are sums over a leading axis that XLA vectorizes over networks, gradients are outer products of
  backward and forward products (FM-grad);
- *batch first* for everything else: `vmap` of the step of one network.

Both take the same step, check the same criteria and record in the same `scan`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache, partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Real, Shaped

from deeplin.dynamics.minibatches import Draws, draw_rows, key_of_step
from deeplin.dynamics.objective import Ensemble, Gradient, Objective
from deeplin.dynamics.optimizer import Method, Numbers, Update
from deeplin.execution import map_in_threads, thread_count
from deeplin.networks import batch_last

CHUNK_BYTES = 28_000
"""Size of the largest layer of a chunk, batch last. Smaller chunks have more overhead for each
small operation; above about 32 kB XLA starts its own threads inside every operation, and the same
program is several times slower. At width 12 this is 24 networks: compiled loops over 8 or 16
networks take twice as long for each."""
VECTOR = 8
"""Chunks are padded to a multiple of this, so that no operation has a remainder loop."""
PIECE_SECONDS = 0.2
"""Duration of a piece of compiled work; Python reacts to Ctrl-C between two pieces."""
FIRST_WORK = 10**8
"""Number of weight updates in the first piece."""
GROWTH = 8
"""Largest ratio of the lengths of consecutive pieces of work."""


class Status(IntEnum):
    """State of a run."""

    RUNNING = 0
    CONVERGED = 1
    DIVERGED = 2
    EXHAUSTED = 3
    """The run has used all its steps, or cannot take another."""


class State(NamedTuple):
    """State of a batch of runs; stopped runs keep the weights and the step at which they
    stopped."""

    weights: tuple[Float[Array | np.ndarray, " ..."], ...]
    """The trained arrays of every run."""
    memory: PyTree[Shaped[Array | np.ndarray, " ..."]]
    """Other state of the dynamics: velocities, the state of an optimizer, times."""
    status: Int[np.ndarray, " batch"]
    """A `Status` for each run."""
    steps: Int[np.ndarray, " batch"]
    """Steps taken."""

    @property
    def running(self) -> np.ndarray:
        """Which runs are still running."""
        return np.asarray(self.status) == Status.RUNNING

    @classmethod
    def start(cls, weights: tuple[Any, ...], memory: PyTree = ()) -> State:
        """Return the state before the first step."""
        zeros = np.zeros(len(weights[0]), np.int32)
        return cls(weights, memory, zeros, zeros)


class StoppingCriteria(NamedTuple):
    """Criteria that stop a run before its last step; values are R − floor (see `Objective`)."""

    target: Float[np.ndarray, " batch"]
    """Converged when the value is at or below this."""
    ceiling: Float[np.ndarray, " batch"]
    """Diverged when the value is above this or not a number."""
    slope: Float[np.ndarray, " batch"] | None = None
    """Converged when ‖∇R‖² is at or below this; None where the gradient is no criterion."""

    def check(
        self, value: Array, status: Array | np.ndarray, squares: Array | None = None
    ) -> Array:
        """Return the new status of each run, given R − floor and, as a criterion, ‖∇R‖²."""
        diverged = ~(abs(value) <= self.ceiling)  # overflow may come out as −∞
        reached = value <= self.target
        if squares is not None:
            reached = reached | (squares <= self.slope)  # pyright: ignore[reportOperatorIssue]
        found = jnp.where(reached, Status.CONVERGED, Status.RUNNING)
        found = jnp.where(diverged, Status.DIVERGED, found)
        return jnp.where(status == Status.RUNNING, found, status).astype(jnp.int32)


class Visited(NamedTuple):
    """The stops that a call of `Stepper.advance` reached, the first ones of those it was given."""

    count: int
    weights: tuple[np.ndarray, ...]
    """The trained arrays there, (stops, batch, …)."""
    values: np.ndarray | None
    """R − floor there, (stops, batch), if the dynamics knows it."""


class Stepper(ABC):
    """A dynamics that takes a `State` through given steps or times."""

    @abstractmethod
    def advance(self, state: State, stops: Sequence[Any]) -> tuple[State, Visited]:
        """Advance the runs through the stops, or by one piece of work."""

    def clock(self, state: State) -> Real[np.ndarray, " batch"]:
        """Return the step or time each run has reached; here steps."""
        return np.asarray(state.steps)


IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}
"""XLA option for loops to write the new state in place instead of copying the old one first. On a
CPU these copies take a fifth of the time of a step, and XLA distributes them over several threads,
which costs as much as the step itself."""


@cache
def _in_place() -> dict[str, bool] | None:
    """Return the option, or None where this version of XLA has none of that name."""
    try:
        jax.jit(lambda x: x, compiler_options=IN_PLACE)(0.0)
    except jax.errors.JaxRuntimeError:
        return None
    return IN_PLACE


def compiled_in_place(function: Callable, **options: Any) -> Callable:
    """Return `jax.jit(function)` for a program whose time is spent in loops over small arrays."""

    @cache
    def program() -> Any:
        return jax.jit(function, compiler_options=_in_place(), **options)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return program()(*arguments)

    return call


# --- one compiled program for a chunk ---------------------------------------------------------


class _Chunk(NamedTuple):
    """Arguments of a program for each run; the position of the batch axis depends on the layout."""

    state: State
    fixed: tuple[Array, ...]
    criteria: StoppingCriteria
    rates: Any
    limit: Any
    """The step at which the run stops."""
    key: Any
    """Two words that determine its mini-batches or its noise, or None."""


class _Kind(NamedTuple):
    """Static arguments for which a program is compiled, besides shapes."""

    gradient: Gradient
    method: Method
    batch_last: bool
    scaled: bool = False
    """Whether one learning rate of all layers multiplies ∇R(Θ) rather than each gradient."""
    rows: tuple[int, int] | None = None
    """Number of samples, and of rows in each mini-batch; None for all rows."""
    random: bool = False
    """Whether the loss takes the key of the step in place of the rows of a mini-batch."""


class _Shared(NamedTuple):
    """Arguments of a program that all runs share."""

    data: Any
    numbers: Numbers


@partial(compiled_in_place, static_argnums=0)
def _program(kind: _Kind, shared: _Shared, chunk: _Chunk, clock, stops):
    """Advance a chunk through the stops; return its state, and weights and values at each stop.

    A step evaluates value and gradient at W_t, checks the criteria and moves to W_{t+1}. At a stop
    the criteria are checked once more, so every returned state has passed them. Arguments and
    results have the batch axis first.
    """
    chunk = _moved(kind, chunk, 0, -1)

    def mapped(function: Callable) -> Callable:
        return function if kind.batch_last else jax.vmap(function)

    def minibatch(key, clock) -> Array | None:
        """Return the rows of a mini-batch, or the key of a step for a loss that takes one."""
        if kind.random:
            return key_of_step(key, clock)
        if kind.rows is None:
            return None
        draw = partial(draw_rows, step=clock, samples=kind.rows[0], size=kind.rows[1])
        return jax.vmap(draw, 1, 1)(key) if kind.batch_last else draw(key)

    def squares(member: _Chunk, gradient) -> Array | None:
        """Return ‖∇R‖² of each network, where it is a criterion."""
        if member.criteria.slope is None:
            return None
        axes = [tuple(range(g.ndim - kind.batch_last)) for g in gradient]
        return sum(jnp.sum(g**2, axis) for g, axis in zip(gradient, axes, strict=True))  # pyright: ignore

    def step(clock, member: _Chunk) -> State:
        state, fixed = member.state, member.fixed
        rows = minibatch(member.key, clock)
        rates: Any = member.rates
        if shared.numbers.schedule is not None:
            rates = rates * shared.numbers.schedule[clock]
        scale = (rates[0],) if kind.scaled else ()
        value, gradient = kind.gradient(shared.data, state.weights, fixed, rows, *scale)
        status = member.criteria.check(value, state.status, squares(member, gradient))
        moving = (status == Status.RUNNING) & (clock < member.limit)

        def risk(weights) -> Array:
            """Return R − floor, for optimizers that evaluate it themselves."""
            return kind.gradient(shared.data, weights, fixed, rows)[0]

        descent = (value, gradient, risk)
        weights, memory = kind.method(
            shared.numbers, rates, moving, state.weights, state.memory, descent, kind.scaled
        )
        return State(weights, memory, status, state.steps + moving)  # pyright: ignore

    def check(member: _Chunk) -> tuple[State, Array]:
        state = member.state
        if member.criteria.slope is None:
            value, size = kind.gradient.value(shared.data, state.weights, member.fixed), None
        else:
            value, gradient = kind.gradient(shared.data, state.weights, member.fixed)
            size = squares(member, gradient)
        status: Any = member.criteria.check(value, state.status, size)
        return state._replace(status=status), value

    def to_stop(carry, stop):
        def busy(carry):
            clock, state = carry
            return (clock < stop) & jnp.any(state.status == Status.RUNNING)

        def body(carry):
            clock, state = carry
            return clock + 1, mapped(partial(step, clock))(chunk._replace(state=state))

        clock, state = jax.lax.while_loop(busy, body, carry)
        state, value = mapped(check)(chunk._replace(state=state))
        return (clock, state), (_moved(kind, state.weights, -1, 0), value)

    (_, state), visited = jax.lax.scan(to_stop, (clock, chunk.state), stops)
    return (_moved(kind, state.memory, -1, 0), state.status, state.steps), visited


def _moved(kind: _Kind, tree: PyTree, source: int, target: int) -> PyTree:
    """Move the batch axis of every array, in the layout that has it last."""
    if not kind.batch_last:
        return tree
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, source, target), tree)


# --- a batch in chunks ------------------------------------------------------------------------


class Descent(Stepper):
    """Gradient descent of a batch by any `Update`."""

    def __init__(
        self,
        objective: Objective,
        ensemble: Ensemble,
        criteria: StoppingCriteria,
        update: Update,
        draws: Draws | None = None,
        stops: int = 1,
    ):
        """`stops` is the largest number of stops passed to `advance`, for which programs are
        compiled."""
        self.objective, self.ensemble = objective, ensemble
        self.criteria, self.update = criteria, update
        self.data, self.slots = objective.data, 1 << (stops - 1).bit_length()
        narrow = objective.batch_last is not None and ensemble.widest <= batch_last.NARROW
        narrow = narrow and update.method.optimizer is None
        gradient = objective.batch_last if narrow else objective.gradient
        scaled = narrow and update.has_one_rate and criteria.slope is None
        self.keys = None if draws is None else draws.keys
        rows = None if draws is None or draws.size is None else (draws.samples, draws.size)
        random = getattr(gradient, "random", False)
        self.kind = _Kind(gradient, update.method, narrow, scaled, rows, random)  # pyright: ignore
        self.numbers = update.numbers(ensemble.weights[0].dtype)
        self.pace = Pace(ensemble.numbers * objective.work)
        self.size = self._chunk_size()

    def start(self) -> State:
        """Return the state before the first step."""
        weights = self.ensemble.weights
        method, momentum = self.update.method, self.update.momentum
        return State.start(weights, method.begin(weights, momentum, self.keys))

    def advance(self, state: State, stops: Sequence[int]) -> tuple[State, Visited]:
        """Advance the runs through the stops, or by the steps of one piece of work.

        A run that exceeds its ceiling returns to the step before, whose weights are still finite.
        The steps up to there are repeated, which is possible because they are deterministic,
        instead of keeping a second copy of the weights at every step.
        """
        clock = int(np.max(state.steps, where=state.running, initial=0))
        until = self.pace.next(clock, stops[-1])
        count = int(np.searchsorted(stops, until, side="right"))
        targets = np.full(self.slots, until, np.int32)
        targets[:count] = stops[:count]
        limit = np.full(len(state.steps), until, np.int32)
        after, visited = self._take(state, self.criteria, limit, clock, targets)
        diverged = (after.status == Status.DIVERGED) & state.running
        if diverged.any():
            limit = np.where(diverged, after.steps - 1, clock).astype(np.int32)
            nothing, slope = np.full_like(self.criteria.target, np.inf), self.criteria.slope
            unchecked = StoppingCriteria(-nothing, nothing, None if slope is None else -nothing)
            until = np.minimum(targets, limit.max())  # nothing moves after that
            again = self._take(state, unchecked, limit, clock, until)[1]
            visited = jax.tree.map(partial(_replaced, diverged), visited, again)
        weights, values = visited
        # A view of the last of many stops would keep all others in memory.
        last = tuple(w[-1] if len(w) == 1 else w[-1].copy() for w in weights)
        after = after._replace(weights=last)
        return after, Visited(count, tuple(w[:count] for w in weights), values[:count])

    def _take(self, state, criteria, limit, clock: int, stops) -> tuple[State, Any]:
        """Run the program on all chunks and join the results in NumPy."""
        rates = self.update.learning_rate
        whole = _Chunk(state, self.ensemble.fixed, criteria, rates, limit, self.keys)
        shared = _Shared(self.data, self.numbers)
        batch, size = self.ensemble.size, self.size

        def run(first: int) -> Any:
            part: Any = slice(first, first + size)
            if first + size > batch and self.kind.batch_last:  # pad with copies of the last network
                part = np.minimum(np.arange(first, first + size), batch - 1)
            chunk = whole if size == batch else jax.tree.map(lambda leaf: leaf[part], whole)
            found = _program(self.kind, shared, chunk, np.int32(clock), stops)
            return jax.device_get(found)

        parts = [run(0)] if batch <= size else map_in_threads(run, range(0, batch, size))
        if len(parts) > 1:
            ends, visited = zip(*parts, strict=True)
            ends = jax.tree.map(lambda *a: np.concatenate(a), *ends)
            visited = jax.tree.map(lambda *a: np.concatenate(a, axis=1), *visited)
        else:  # another copy would take as long as a step of a wide network
            ((ends, visited),) = parts
        memory, status, steps = jax.tree.map(lambda a: a[:batch], ends)
        visited = jax.tree.map(lambda a: a[:, :batch], visited)
        return State(state.weights, memory, status, steps), visited

    def _chunk_size(self) -> int:
        """Return the size of chunks whose number is that of the threads, or a multiple."""
        batch = self.ensemble.size
        if not self.ensemble.on_cpu:
            return batch
        if self.kind.batch_last and batch <= VECTOR:
            return VECTOR
        threads = thread_count()
        if not self.kind.batch_last:
            return -(-batch // min(batch, threads))
        layer = max(weight[0].nbytes for weight in self.ensemble.weights)
        most = max(VECTOR, CHUNK_BYTES // layer // VECTOR * VECTOR)
        chunks = -(-batch // most)
        if batch >= threads * VECTOR:
            chunks = -(-chunks // threads) * threads
        return -(-batch // (chunks * VECTOR)) * VECTOR


def _replaced(runs: np.ndarray, visited: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return (stops, batch, …) with some of the runs from another array."""
    visited = visited.copy()
    visited[:, runs] = others[:, runs]
    return visited


class Pace:
    """Number of steps in a piece of compiled work, which lasts about `PIECE_SECONDS`."""

    def __init__(self, work: int):
        """`work` is about the number of weights a step updates."""
        self.piece = max(1, FIRST_WORK // max(1, work))
        self.began: float | None = None

    def next(self, clock: int, until: int) -> int:
        """Return the step to go to; a piece that was quick makes the next one longer."""
        now = time.perf_counter()
        if self.began is not None:
            longer = PIECE_SECONDS / max(now - self.began, PIECE_SECONDS / GROWTH)
            self.piece = max(self.piece, int(self.piece * longer))
        whole = until - clock >= self.piece
        self.began = now if whole else None
        return clock + self.piece if whole else until
