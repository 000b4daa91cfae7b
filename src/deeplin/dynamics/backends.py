"""Which code takes the steps of a descent: compiled kernels, or JAX, which is here.

JAX works for every objective, optimiser and device. `lane_steps`, `relu_steps` and `rank_steps` do
the same faster on a CPU for linear networks and those of the papers.
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
from deeplin.dynamics.update import Update
from deeplin.errors import InputError
from deeplin.networks import Network
from deeplin.problems import Problem

BACKENDS = ("auto", "kernel", "shape-free", "wide", "units", "jax")
IN_LANES = "networks (linear, GELU, ReLU) on a Problem on a CPU, without an optimizer"
TRAINS = {
    "kernel": IN_LANES,
    "shape-free": IN_LANES,
    "wide": "linear networks in float64 on all rows of a Problem, with one constant learning rate "
    "and no weight decay",
    "units": "ReLU networks of at most 64 hidden units a layer, without read-out, by plain descent "
    "on all rows of a Problem",
}
"""What the compiled ones are for."""
WIDEST = {"linear": 24, "gelu": 8, "relu": 8}
"""Widest layer for which lanes are chosen rather than JAX; without an entry, no lanes."""
MOST_UNITS = 64
"""Units of a layer as the bits of a word (`deeplin.kernels.rectified`)."""
WIDEST_ALONE, WIDEST_TOGETHER = 8, 16
"""The same rather than rank-q updates, for one linear network and for several.

Measured, L = 10, µs a step in lanes and by rank-q updates: width 2: 0.16 and 0.29; 5: 0.64 and
0.40; 8: 1.39 and 0.39. Lanes are kept up to 8 all the same: there a network alone takes the steps
it takes in a batch, to the last bit. Of 16 networks: width 12: 0.41 and 0.60; 16: 0.75 and 0.70;
20: 1.0 and 1.1; 24: 1.5 and 1.5; 32: 3.2 and 2.3; of two, which leave the other places of a lane
empty: width 20: 4.4 and 1.3.

The choice looks at the shape of the networks only: were it to depend on the size of the batch,
results would change in their last digits with the way runs are grouped.
"""


def choose(
    backend: str,
    problem: Any,
    objective: Objective,
    ensemble: Ensemble,
    rules: Rules,
    update: Update,
) -> Any:
    """The dynamics that trains this ensemble."""
    if backend not in BACKENDS:
        raise InputError(f"backend is {backend!r}; pass one of {', '.join(BACKENDS)}.")
    compiled = isinstance(problem, Problem) and ensemble.layout.network and ensemble.on_cpu
    network = ensemble.tree(ensemble.weights)
    lanes = compiled and network.activation in WIDEST and update.method.optimizer is None
    rank = compiled and _fits_rank(problem, network, update)
    units = lanes and network.activation == "relu" and _fits_units(network, update)
    fits = {"kernel": lanes, "shape-free": lanes, "wide": rank, "units": units}
    if not fits.get(backend, True):
        raise InputError(f'backend is "{backend}", which trains {TRAINS[backend]}; pass "auto".')
    if backend == "auto":
        backend = _cheapest(network, ensemble.single, lanes, rank, units)
    if backend == "units":
        from deeplin.dynamics.relu_steps import ReluSteps

        return ReluSteps(objective, ensemble, rules, update)
    if backend == "wide":
        from deeplin.dynamics.rank_steps import EigenSteps  # numba is slow to import

        return EigenSteps(problem, ensemble, rules, update)
    if backend == "jax":
        return JaxSteps(objective, ensemble, rules, update)
    from deeplin.dynamics.lane_steps import LaneSteps

    return LaneSteps(objective, ensemble, rules, update, unroll=backend != "shape-free")


def _cheapest(network: Network, single: bool, lanes: bool, rank: bool, units: bool) -> str:
    """The backend with the lowest measured cost for this shape."""
    if not lanes:
        return "jax"
    widest = max(network.widths)
    if rank and widest > (WIDEST_ALONE if single else WIDEST_TOGETHER):
        return "wide"
    if widest <= WIDEST[network.activation]:
        return "kernel"
    return "units" if units else "jax"


def _fits_units(network: Network, update: Update) -> bool:
    """Whether the units of a ReLU network can be lanes: up to 64 of them, plain descent."""
    more = update.momentum or update.weight_decay or update.batches is not None
    plain = update.variant in ("plain", "layers") and not more
    hidden = network.widths[1:-1]
    return plain and network.readout is None and 0 < max(hidden, default=0) <= MOST_UNITS


def _fits_rank(problem: Problem, network: Network, update: Update) -> bool:
    """Whether every step is a rank-q update with one rate for all layers."""
    plain = update.variant == "plain" and not update.weight_decay and update.batches is None
    linear = network.activation == "linear" and network.weights[0].dtype == np.float64
    return plain and linear and problem.rank > 0


# --- in JAX ----------------------------------------------------------------------------------

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
        shared = (self.objective.data, self.numbers, clock)
        alone = len(jax.devices()) == 1 or len(members.limit) == 1
        move = _advance if alone else _on_all_devices
        moved = move(kind, shared, members, clock, until)
        return moved._replace(outcome=np.asarray(moved.outcome), steps=np.asarray(moved.steps))


def _loop(kind, shared: tuple, members: _Members, clock, until) -> State:
    """Value and gradient at W_t, stopping rules, then the step to W_{t+1}, for every member.

    At `until` the rules are applied but no step is taken, so every state that leaves here has
    passed them. A member that does not move gets its update times zero; if it has diverged that
    may be no number, and its weights count for nothing.
    """
    value_and_gradient, method = kind
    data, numbers, origin = shared  # the last is the step of the first mini-batch at hand

    def one(clock, members: _Members) -> State:
        state, fixed, rules = members[:3]
        rows = None if members.rows is None else members.rows[clock - origin]

        def risk(weights) -> Array:
            """R − floor, for optimisers that evaluate it themselves."""
            return value_and_gradient(data, weights, fixed, rows)[0]

        value, gradient = value_and_gradient(data, state.weights, fixed, rows)
        running = state.outcome == RUNNING
        diverged = running & ~(abs(value) <= rules.ceiling)  # overflow may come out as −∞
        reached = running & ~diverged & (value <= rules.goal)
        moving = running & ~reached & ~diverged & (clock < members.limit)
        rates = members.rates
        if numbers.schedule is not None:
            rates = rates * numbers.schedule[clock]
        descent = (value, gradient, risk)
        weights, memory = method(numbers, rates, moving, state.weights, state.memory, descent)
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


def _choose(members: np.ndarray, yes, no):
    """Arrays of `yes` for the members, of `no` for the others."""

    def one(a, b):
        return jnp.where(members.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(one, yes, no)


_advance = jax.jit(_loop, static_argnums=0)


def _on_all_devices(kind, shared: tuple, members: _Members, clock: int, until: int) -> State:
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
