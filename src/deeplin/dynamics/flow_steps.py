"""Steps of the gradient flow: a compiled kernel or a diffrax solver, with an event at the goal.

And where the flow from a linear network would end, and how sharp it is there.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from deeplin.dynamics.objective import Objective
from deeplin.dynamics.state import GAVE_UP, REACHED, RUNNING, State
from deeplin.hessian.exact import Tangent, exact
from deeplin.kernels.compiling import call, in_threads, thread_count
from deeplin.kernels.flow import Integration, Pair, flow_members
from deeplin.networks import Network, host_arrays, products
from deeplin.problems import Problem

HIGH_ORDER, EXPLICIT, IMPLICIT = "Dopri8", "Tsit5", "Kvaerno5"
CHUNK = 1000
"""Most steps in one compiled call, so that an interrupt is heard."""
MOST_IMPLICIT = 1000
"""Parameters up to which the linear systems of implicit steps are worth their cost."""
STAGES = {HIGH_ORDER: 13, EXPLICIT: 6, IMPLICIT: 6}
"""New stages of a step (the first stage is the last one of the step before)."""
ALLOWANCE = {HIGH_ORDER: 100, EXPLICIT: 1, IMPLICIT: 1}
"""Tolerances are multiplied by this. The high-order pair goes on from the better of its two results
and estimates the error of the worse: 100 times what is asked leaves less true error than the pair
of order 5 does (tests/dynamics/test_flow.py)."""
OPENING = 3
"""Gradients at the start of a call: the first stage, and two to choose the first step."""
MOST = 100_000
"""Weights of a network up to which the kernel is used: larger ones gain from BLAS."""
NEWTON = 10
"""Most iterations for each implicit stage."""
TOLERANCES = (1e-10, 1e-12)
"""Relative and absolute error of a step."""
NEAR = 1e-14
"""Share of R(0) − R_min of the zero map below which the rest is one step of length 1e-7; its square
is what that leaves out."""
HORIZON, LIMIT = 1e15, 20_000
"""The most time of a flow to a minimiser: one that gets this far has nowhere to go. And its most
steps."""


class Times(NamedTuple):
    """What a flow remembers besides its weights, one entry for each run."""

    time: Float[np.ndarray, " batch"]
    rejected: Int[np.ndarray, " batch"]
    evaluations: Int[np.ndarray, " batch"]
    """Gradients evaluated; for implicit steps the most it can have been."""

    @classmethod
    def start(cls, batch: int) -> Times:
        """The beginning."""
        return cls(np.zeros(batch), np.zeros(batch, int), np.zeros(batch, int))


class Solver(NamedTuple):
    """How a flow is integrated."""

    method: str
    rtol: float
    atol: float
    limit: int
    """The most steps, rejected ones included."""


def move(
    solver: Solver, objective: Objective, fixed: tuple, state: State, until: float, goal: Any
) -> State:
    """Take each run towards the time `until`, by at most CHUNK steps, stopping at its goal."""
    allowed = tuple(ALLOWANCE[solver.method] * item for item in (solver.rtol, solver.atol))
    goals = np.broadcast_to(goal, state.steps.shape)
    if solver.method != IMPLICIT and _in_kernel(objective, state.weights):
        return _by_kernel(solver, allowed, objective, fixed, state, until, goals)
    running = (state.weights, fixed, state.memory.time, state.steps, state.outcome)
    rules = (goals, np.asarray(until, float), np.asarray(solver.limit), np.asarray(allowed))
    moved = _move(solver.method, objective.value_and_gradient, objective.data, running, *rules)
    weights, (time, taken, rejected, outcome) = moved[0], map(np.asarray, moved[1:])
    return _later(solver, state, weights, time, taken, rejected, outcome)


def _in_kernel(objective: Objective, weights: tuple) -> bool:
    """Whether compiled code without a shape can take the steps: linear networks on a CPU."""
    small = sum(weight.size for weight in weights) <= MOST * len(weights[0])
    return objective.has_gap and small and all(isinstance(w, np.ndarray) for w in weights)


def _by_kernel(solver, allowed, objective, fixed, state: State, until, goals) -> State:
    """`move` in compiled code."""
    networks = objective.layout.tree(state.weights, fixed)
    quadratic = objective.data[0]
    rtol, atol = allowed
    integration = Integration(pair_of(solver.method), rtol, atol, CHUNK, float(until))
    weights, time, counts = flow_batch(
        quadratic[:2], networks, integration, goals, state.memory.time, state.outcome
    )
    taken, rejected, outcome = counts.T
    spent = (outcome == RUNNING) & (state.steps + taken >= solver.limit)
    outcome = np.where(spent, GAVE_UP, outcome)
    return _later(solver, state, weights, time, taken, rejected, outcome)


@cache
def pair_of(method: str) -> Pair:
    """The table of a pair, by the name diffrax has for it."""
    import diffrax  # half a second, which `import deeplin` need not wait for

    solver = getattr(diffrax, method)
    table = solver.tableau
    stages = np.zeros((table.num_stages, table.num_stages))
    for row, entries in enumerate(table.a_lower, start=1):
        stages[row, : len(entries)] = entries
    return Pair(stages, np.array(table.b_error, float), float(solver().order(None)))


def flow_batch(
    moments: tuple[np.ndarray, np.ndarray],
    networks: Network,
    integration: Integration,
    goals: np.ndarray,
    times: np.ndarray,
    outcome: np.ndarray,
) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """Take each running network towards the time given or its goal, as `integration` says.

    The same pairs as diffrax in compiled code, without a shape. Each network takes steps of its own
    length, so a batch costs the sum of its members and not its slowest one times their number.
    Returns the weights, the times, and for each network steps, rejected ones and outcome.
    """
    layers, readout = host_arrays(networks)
    batch = len(layers[0])
    flat = np.concatenate([layer.reshape(batch, -1) for layer in layers], axis=1)
    times, counts = np.array(times, float), np.zeros((batch, 3), np.int64)
    counts[:, 2] = outcome
    covariance, optimum = (np.array(part, np.float64, order="C") for part in moments)
    last = products.last_columns(layers, readout).mT.copy()  # a row for each output
    own = np.array(networks.widths), flat, last
    fixed = own, (covariance, optimum), integration, np.array(goals, float), times, counts
    parts = max(1, min(thread_count(), batch))
    spans = [np.array(s) for s in pairwise(np.linspace(0, batch, parts + 1).astype(np.int64))]
    in_threads(lambda span: call(flow_members, *fixed, span), spans)
    ends = np.cumsum([layer[0].size for layer in layers])[:-1]
    pieces = np.split(flat, ends, axis=1)
    weights = (piece.reshape(layer.shape) for piece, layer in zip(pieces, layers, strict=True))
    return tuple(map(np.ascontiguousarray, weights)), times, counts


def _later(solver: Solver, state: State, weights, time, taken, rejected, outcome) -> State:
    """The state after some steps.

    An implicit step forms the Hessian, one product for each parameter, and iterates its stages: its
    gradients are counted as the most it can have been.
    """
    each = STAGES[solver.method]
    if solver.method == IMPLICIT:
        each = each * NEWTON + sum(weight.size for weight in weights) // len(time)
    evaluations = np.where(taken > 0, OPENING + each * taken, 0)
    before = state.memory
    memory = Times(time, before.rejected + rejected, before.evaluations + evaluations)
    return State(weights, memory, outcome, state.steps + taken)


@partial(jax.jit, static_argnums=(0, 1))
def _move(method, value_and_gradient, data, running, goals, until, limit, tolerances):
    import diffrax  # half a second, which `import deeplin` need not wait for

    kinds = diffrax.RESULTS
    fine = (kinds.successful, kinds.event_occurred, kinds.max_steps_reached)
    options: dict[str, Any] = {}
    if method == IMPLICIT:
        newton = diffrax.VeryChord(rtol=tolerances[0], atol=tolerances[1])
        options = {"root_finder": newton, "root_find_max_steps": NEWTON}
    solver = getattr(diffrax, method)(**options)

    def one(run, goal):
        weights, fixed, time, steps, outcome = run
        # One flat vector: ten layers as ten arrays would take ten times as long to compile.
        start, unravel = ravel_pytree(weights)

        def value(vector) -> Array:
            return value_and_gradient(data, unravel(vector), fixed)[0]

        def field(_time, vector, _):
            return -ravel_pytree(value_and_gradient(data, unravel(vector), fixed)[1])[0]

        reached = (outcome == REACHED) | (value(start) <= goal)
        resting = reached | (outcome != RUNNING)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),  # pyright: ignore[reportArgumentType]
            solver,
            t0=time,
            t1=jnp.where(resting, time, jnp.maximum(until, time)),
            dt0=None,
            y0=start,
            stepsize_controller=diffrax.PIDController(*tolerances, safety=0.8),
            saveat=diffrax.SaveAt(t1=True),
            event=diffrax.Event(lambda _time, vector, _, **__: value(vector) <= goal),
            max_steps=CHUNK,
            throw=False,
        )
        assert solution.ys is not None  # asked for by SaveAt
        assert solution.ts is not None
        usable = jnp.isfinite(solution.ys[0]).all() & ~resting
        vector = jnp.where(usable, solution.ys[0], start)
        taken = jnp.where(resting, 0, solution.stats["num_steps"])
        went_well = usable & jnp.any(jnp.stack([solution.result == kind for kind in fine]))
        failed = ~(resting | went_well) | (steps + taken >= limit)
        reached = reached | (value(vector) <= goal)
        stopped = jnp.where(failed & (outcome == RUNNING), GAVE_UP, outcome)
        return (
            unravel(vector),
            jnp.where(usable, solution.ts[0], time),
            taken,
            jnp.where(resting, 0, solution.stats["num_rejected_steps"]),
            jnp.where(reached, REACHED, stopped),
        )

    return jax.vmap(one)(running, goals)


# --- where it ends ----------------------------------------------------------------------------


class FlowLimit(NamedTuple):
    """Where flows end, each with leading axis batch."""

    network: Network
    reached: np.ndarray
    """Whether the flow came to a minimiser; else `network` is as far as it got."""
    time: np.ndarray
    """Time until the last step."""


def flow_limit(problem: Problem, networks: Network) -> FlowLimit:
    """The ends of the gradient flows from each of a batch of linear networks.

    They are integrated until Θ is close to a minimiser; the rest is one step, to the nearest one.
    """
    goal = NEAR * problem.zero_gap
    batch = len(networks.weights[0])
    covariance = np.asarray(problem.covariance)
    moments = covariance, problem.optimum.reshape(len(covariance), -1)
    integration = Integration(pair_of(HIGH_ORDER), *TOLERANCES, LIMIT, HORIZON)
    weights, time, counts = flow_batch(
        moments, networks, integration, np.full(batch, goal), np.zeros(batch), np.zeros(batch)
    )
    reached = counts[:, 2] == REACHED
    _, readout = host_arrays(networks)
    ends = [np.array(weight) for weight in weights]
    if reached.any():
        part = readout if readout is None or readout.ndim == 1 else readout[reached]
        near = Tangent.of(problem, [weight[reached] for weight in weights], part)
        for layer, moved in zip(ends, _to_minimizers(near), strict=True):
            layer[reached] = moved
    return FlowLimit(eqx.tree_at(lambda n: n.weights, networks, tuple(ends)), reached, time)


def flow_sharpness(problem: Problem, networks: Network) -> tuple[np.ndarray, np.ndarray]:
    """Sharpness at the end of the flow from each of a batch of linear networks, and its error.

    The error bounds that of the sharpness at the end found; integration itself is kept to 1e-10 a
    step. Not a number where the flow ends at no minimiser.
    """
    limit = flow_limit(problem, networks)
    value, error = exact(problem, limit.network, "largest")
    return np.where(limit.reached, value, np.nan), np.where(limit.reached, error, np.inf)


def _to_minimizers(tangent: Tangent) -> list[np.ndarray]:
    """W_k − V_k(B_kx)ᵀ with Kx = e: the step to the nearest minimiser (X-1 has the letters).

    There K = JJᵀ hardly changes, so that e = Cᵀ(Θ − Θ*) decays as ė = −2Ke and all that the flow
    still does to the weights is −Jᵀ∫2e dt = −JᵀK⁻¹e. What it leaves out is of the order of |e|².
    """
    left = tangent.left
    x = np.linalg.solve(tangent.kernel, left.reshape(len(left), -1, 1)).reshape(left.shape)
    letters = zip(tangent.weights, tangent.forward, tangent.backward[1:], strict=True)
    return [weight - v @ (b @ x).mT for weight, b, v in letters]
