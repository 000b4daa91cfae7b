"""Gradient descent in JAX: the state of a batch, one step, and blocks of steps.

Works for every objective and device; `deeplin.dynamics.lane_stepping` does the same faster on a
CPU for the networks of the papers.
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

from deeplin.dynamics.objective import Objective
from deeplin.networks import Network

RUNNING, REACHED, DIVERGED = 0, 1, 2
_ONE_AT_A_TIME = threading.Lock()


class State(NamedTuple):
    """A batch in training. Stopped runs keep the weights and the step at which they stopped."""

    network: Network
    velocity: tuple[Any, ...]
    """Last displacement of every layer (heavy ball); empty without momentum."""
    outcome: Any
    """RUNNING, REACHED (value at or below the goal) or DIVERGED, one for each run."""
    steps: Any
    """Steps taken, one for each run."""


class Rules(NamedTuple):
    """What every run obeys; one entry for each run, but one momentum for all."""

    learning_rate: Any
    goal: Any
    """A run stops with REACHED when its value is at or below this."""
    ceiling: Any
    """A run stops with DIVERGED when its value is above this or not a number."""
    momentum: Any


def start(network: Network, momentum: float) -> State:
    """The state of a batch before its first step."""
    batch = network.weights[0].shape[0]
    velocity = tuple(map(jnp.zeros_like, network.weights)) if momentum else ()
    zeros = np.zeros(batch, np.int32)
    return State(network, velocity, zeros, zeros)


def advance(objective: Objective, rules: Rules, state: State, until: int) -> State:
    """Take the running members of the batch to step `until`, or to where they stop before it."""
    clock = int(np.max(state.steps, where=state.outcome == RUNNING, initial=0))
    devices = len(jax.devices())
    batch = len(state.outcome)
    if devices == 1 or batch == 1:
        return _advance(objective.value_and_gradient, objective.data, rules, state, clock, until)
    padding = -batch % devices
    padded = _pad(padding, (rules._replace(momentum=None), state))
    rules = padded[0]._replace(momentum=rules.momentum)
    # Programs on several devices that two threads start at once can wait for each other for ever.
    with _ONE_AT_A_TIME:
        moved = jax.device_get(
            _advance_sharded(
                objective.value_and_gradient, objective.data, rules, padded[1], clock, until
            )
        )
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[:batch]), moved)


def _block(value_and_gradient, data, rules: Rules, state: State, clock, until) -> State:
    """The loop: value and gradient at W_t, stopping rules, then the step to W_{t+1}.

    At `until` the rules are applied but no step is taken, so every state that leaves here has
    passed them; a run that breaks the ceiling falls back to the weights of the step before.
    """

    def one(clock, learning_rate, goal, ceiling, state: State, previous):
        network = state.network
        value, gradient = value_and_gradient(*data, network)
        running = state.outcome == RUNNING
        diverged = running & ~(abs(value) <= ceiling)  # overflow may come out as −∞
        reached = running & ~diverged & (value <= goal)
        moving = running & ~reached & ~diverged & (clock < until)
        velocity = tuple(-learning_rate * slope for slope in gradient)
        if state.velocity:
            old = zip(state.velocity, velocity, strict=True)
            velocity = tuple(rules.momentum * v + push for v, push in old)
        kept = _choose(diverged, previous, network.weights)
        weights = tuple(w + v for w, v in zip(network.weights, velocity, strict=True))
        weights = _choose(moving, weights, kept)
        if state.velocity:
            velocity = _choose(moving, velocity, state.velocity)
        outcome = jnp.where(reached, REACHED, jnp.where(diverged, DIVERGED, state.outcome))
        network = Network(weights, network.readout, network.activation)
        after = State(
            network,
            velocity if state.velocity else (),
            outcome.astype(jnp.int32),
            state.steps + moving,
        )
        return after, kept

    def body(carry):
        clock, state, previous = carry
        mapped = jax.vmap(partial(one, clock))
        state, previous = mapped(rules.learning_rate, rules.goal, rules.ceiling, state, previous)
        return clock + 1, state, previous

    def busy(carry):
        clock, state, _ = carry
        return (clock <= until) & jnp.any(state.outcome == RUNNING)

    return jax.lax.while_loop(busy, body, (clock, state, state.network.weights))[1]


def _choose(condition: Array, yes, no):
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


_advance = jax.jit(_block, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _advance_sharded(value_and_gradient, data, rules, state, clock, until) -> State:
    """The same with the batch spread over all devices, each looping until its own share is done."""
    everywhere, spread = PartitionSpec(), PartitionSpec("batch")
    share = jax.shard_map(
        partial(_block, value_and_gradient),
        mesh=Mesh(np.array(jax.devices()), ("batch",)),
        in_specs=(
            everywhere,
            Rules(spread, spread, spread, everywhere),
            spread,
            everywhere,
            everywhere,
        ),
        out_specs=spread,
        check_vma=False,
    )
    return share(data, rules, state, clock, until)


def _pad(count: int, tree):
    """Repeat the last member of the batch until it divides among the devices."""
    return jax.tree.map(
        lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[-1:], count, axis=0)]), tree
    )
