"""Gradient descent in JAX: works for every objective, optimiser and device.

`deeplin.dynamics.lane_steps` and `rank_steps` do the same faster on a CPU for linear networks and
those of the papers.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array

from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.dynamics.state import LOST, REACHED, RUNNING, Pace, Rules, State, StopByStop
from deeplin.dynamics.update import Numbers, Update

_ONE_AT_A_TIME = threading.Lock()


class _Members(NamedTuple):
    """What a block of steps knows of each run; every array has a leading batch axis."""

    state: State
    fixed: tuple[Array, ...]
    rules: Rules
    rates: Any
    limit: Any
    """The step at which the run stands still."""
    rows: Any
    """Rows of its mini-batches from step `origin` on, or None."""


class _Shared(NamedTuple):
    """What is the same for all runs."""

    data: tuple[Any, ...]
    numbers: Numbers
    origin: int
    """The step of the first mini-batch at hand."""


class JaxSteps(StopByStop):
    """Descent of a batch by any `Update`, as a dynamics."""

    def __init__(self, objective: Objective, ensemble: Ensemble, rules: Rules, update: Update):
        self.objective, self.ensemble, self.rules, self.update = objective, ensemble, rules, update
        self.numbers = update.numbers(ensemble.weights[0].dtype)
        self.pace = Pace(ensemble.numbers, None if update.batches is None else update.batches.ahead)

    def start(self) -> State:
        """The state before the first step."""
        weights = self.ensemble.weights
        return State.start(weights, self.update.method.begin(weights, self.update.momentum))

    def advance(self, state: State, until: int) -> State:
        """Take the running members to step `until`, or a piece of the way.

        A run that breaks the ceiling goes back to the step before, whose weights are still finite:
        by replaying the piece, since steps are deterministic, rather than by keeping a second copy
        of the weights at every step.
        """
        clock = int(np.max(state.steps, where=state.running, initial=0))
        until = self.pace.next(clock, until)
        batches = self.update.batches
        rows = None if batches is None else batches.rows(clock, batches.ahead)
        members = _Members(
            state,
            self.ensemble.fixed,
            self.rules,
            self.update.learning_rate,
            np.full(len(state.steps), until, np.int32),
            rows,
        )
        after = self._block(members, clock, until)
        lost, gone = (after.outcome == LOST) & state.running, np.asarray(state.outcome) == LOST
        weights = after.weights
        if lost.any():
            limit = np.where(lost, after.steps - 1, clock)
            infinite = np.full_like(self.rules.goal, np.inf)
            again = members._replace(rules=Rules(-infinite, infinite), limit=limit.astype(np.int32))
            weights = _choose(lost, self._block(again, clock, int(limit.max())).weights, weights)
            gone = gone | (lost & (limit < clock))
        if gone.any():  # before this piece, or at its beginning: nothing of it touches them
            weights = _choose(gone, state.weights, weights)
        return after._replace(weights=weights)

    def _block(self, members: _Members, clock: int, until: int) -> State:
        kind = (self.objective.value_and_gradient, self.update.method)
        shared = _Shared(self.objective.data, self.numbers, clock)
        alone = len(jax.devices()) == 1 or len(members.limit) == 1
        move = _advance if alone else _on_all_devices
        moved = move(kind, shared, members, clock, until)
        return moved._replace(outcome=np.asarray(moved.outcome), steps=np.asarray(moved.steps))


def _loop(kind, shared: _Shared, members: _Members, clock, until) -> State:
    """Value and gradient at W_t, stopping rules, then the step to W_{t+1}, for every member.

    At `until` the rules are applied but no step is taken, so every state that leaves here has
    passed them. A member that does not move gets its update times zero; if it has diverged that
    may be no number, and its weights count for nothing.
    """
    value_and_gradient, method = kind

    def one(clock, members: _Members) -> State:
        state, fixed, rules = members[:3]
        rows = None if members.rows is None else members.rows[clock - shared.origin]
        risk = partial(_value, value_and_gradient, shared.data, fixed, rows)
        value, gradient = value_and_gradient(shared.data, state.weights, fixed, rows)
        running = state.outcome == RUNNING
        diverged = running & ~(abs(value) <= rules.ceiling)  # overflow may come out as −∞
        reached = running & ~diverged & (value <= rules.goal)
        moving = running & ~reached & ~diverged & (clock < members.limit)
        rates = members.rates
        if shared.numbers.schedule is not None:
            rates = rates * shared.numbers.schedule[clock]
        weights, memory = method(
            shared.numbers, rates, moving, state.weights, state.memory, (value, gradient, risk)
        )
        found = jnp.where(reached, REACHED, jnp.where(diverged, LOST, state.outcome))
        outcome: Any = found.astype(jnp.int32)  # inside the loop a JAX array
        return State(weights, memory, outcome, state.steps + moving)

    def body(carry):
        clock, state = carry
        mapped = jax.vmap(partial(one, clock))
        return clock + 1, mapped(members._replace(state=state))

    def busy(carry):
        clock, state = carry
        return (clock <= until) & jnp.any(state.outcome == RUNNING)

    return jax.lax.while_loop(busy, body, (clock, members.state))[1]


def _value(value_and_gradient, data, fixed, rows, weights) -> Array:
    """R − floor as a function of the weights, for optimisers that evaluate it themselves."""
    return value_and_gradient(data, weights, fixed, rows)[0]


def _choose(members: np.ndarray, yes, no):
    """Arrays of `yes` for the members, of `no` for the others."""

    def one(a, b):
        return jnp.where(members.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(one, yes, no)


_advance = jax.jit(_loop, static_argnums=0)


def _on_all_devices(kind, shared: _Shared, members: _Members, clock: int, until: int) -> State:
    """The same with the batch spread over all devices."""
    batch, devices = len(members.limit), len(jax.devices())
    padding = -batch % devices
    padded = jax.tree.map(
        lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[-1:], padding, axis=0)]), members
    )
    # Programs on several devices that two threads start at once can wait for each other for ever.
    with _ONE_AT_A_TIME:
        moved = jax.device_get(_advance_sharded(kind, shared, padded, clock, until))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[:batch]), moved)


@partial(jax.jit, static_argnums=0)
def _advance_sharded(kind, shared, members, clock, until) -> State:
    """Each device loops until its own share is done."""
    everywhere, spread = PartitionSpec(), PartitionSpec("batch")
    share = jax.shard_map(
        partial(_loop, kind),
        mesh=Mesh(np.array(jax.devices()), ("batch",)),
        in_specs=(everywhere, spread, everywhere, everywhere),
        out_specs=spread,
        check_vma=False,
    )
    return share(shared, members, clock, until)
