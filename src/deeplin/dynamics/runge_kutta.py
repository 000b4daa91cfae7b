"""Explicit Runge-Kutta pairs with error control, for many gradient flows at once.

Every flow takes steps of its own length. The stages are a loop over the table of the pair, so the
gradient is compiled once and not for every stage.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from deeplin.dynamics.engine import Status
from deeplin.dynamics.objective import Gradient
from deeplin.execution import map_in_threads, thread_count

SAFETY, SHRINK, GROW = 0.8, 0.2, 10.0
"""The next step is this share of the one that the error allows, and within these factors."""
SMALLEST = 1e-14
"""A step that has shrunk to this share of the time (or to this) has failed."""
CHUNK = 64
"""Flows in one program: they wait for the slowest of them."""


class Pair(NamedTuple):
    """An explicit pair whose last stage is the first one of the next step."""

    stages: Float[np.ndarray, "s s"]
    """a_ij; the last row gives the new point."""
    error: Float[np.ndarray, " s"]
    """Weights of the error."""
    order: float


class Integration(NamedTuple):
    """How flows are integrated, and how far."""

    pair: Pair
    rtol: float
    atol: float
    most: int
    """Steps at the most."""
    until: float


class Flows(NamedTuple):
    """Gradient flows on their way; every array has a leading batch axis."""

    weights: tuple[Any, ...]
    time: Any
    taken: Any
    """Steps, rejected ones included."""
    rejected: Any
    status: Any


@cache
def pair_of(method: str) -> Pair:
    """Return the table of a pair, by the name diffrax has for it."""
    import diffrax  # half a second, which `import deeplin` need not wait for

    solver = getattr(diffrax, method)
    table = solver.tableau
    stages = np.zeros((table.num_stages, table.num_stages))
    for row, entries in enumerate(table.a_lower, start=1):
        stages[row, : len(entries)] = entries
    return Pair(stages, np.array(table.b_error, float), float(solver().order(None)))


def integrate(
    gradient: Gradient, data: Any, integration: Integration, flows: Flows, fixed: tuple, goals: Any
) -> Flows:
    """Take each running flow dW/dt = −∇R to `integration.until`, or until R − floor ≤ its goal."""
    batch = len(flows.time)
    size = min(CHUNK, 1 << (-(-batch // thread_count()) - 1).bit_length())
    integration = jax.tree.map(np.float64, integration)

    def run(first: int) -> Flows:
        members = np.minimum(np.arange(first, first + size), batch - 1)
        part = jax.tree.map(lambda leaf: np.asarray(leaf)[members], (flows, fixed, goals))
        return jax.device_get(_integrate(gradient, data, integration, *part))

    parts = map_in_threads(run, range(0, batch, size))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:batch], *parts)


@partial(jax.jit, static_argnums=0)
def _integrate(gradient: Gradient, data, integration: Integration, flows, fixed, goals) -> Flows:
    return jax.vmap(partial(_flow, gradient, data, integration))(flows, fixed, goals)


def _flow(gradient: Gradient, data, integration: Integration, flow: Flows, fixed, goal) -> Flows:
    """Integrate one flow."""
    pair, rtol, atol, most, until = integration
    last = len(pair.error) - 1
    start, unravel = ravel_pytree(flow.weights)

    def field(point):
        value, slope = gradient(data, unravel(point), fixed)
        return value, -ravel_pytree(slope)[0]

    def size(change, one, two):
        """Root mean square of a change against what is allowed between two points."""
        allowed = atol + rtol * jnp.maximum(abs(one), abs(two))
        return jnp.sqrt(jnp.mean((change / allowed) ** 2))

    def step_of(carry):
        """Take one step, which is kept if its error is small enough."""
        now, point, slope, step = carry
        final = now.time + step >= until
        step = jnp.where(final, until - now.time, step)

        def stage(s, values):
            slopes, _, _ = values
            ahead = point + step * (jnp.asarray(pair.stages)[s] @ slopes)
            value, new = field(ahead)
            return slopes.at[s].set(new), ahead, value

        slopes = jnp.zeros((last + 1, len(point)), point.dtype).at[0].set(slope)
        begin = (slopes, point, jnp.zeros((), point.dtype))
        slopes, ahead, value = jax.lax.fori_loop(1, last + 1, stage, begin)
        error = size(step * (pair.error @ slopes), point, ahead)
        kept = error <= 1  # not, as well, if it is not a number
        factor = jnp.where(error == 0, GROW, SAFETY * error ** (-1 / pair.order))
        factor = jnp.where(jnp.isfinite(error), jnp.clip(factor, SHRINK, GROW), SHRINK)
        factor = jnp.where(kept, factor, jnp.minimum(factor, 1.0))
        time = jnp.where(kept, jnp.where(final, until, now.time + step), now.time)
        failed = ~kept & (step * factor < SMALLEST * jnp.maximum(time, SMALLEST))
        status = jnp.where(kept & (value <= goal), Status.CONVERGED, now.status)
        status = jnp.where(failed, Status.EXHAUSTED, status).astype(now.status.dtype)
        now = Flows((), time, now.taken + 1, now.rejected + ~kept, status)
        point, slope = jnp.where(kept, ahead, point), jnp.where(kept, slopes[-1], slope)
        return now, point, slope, step * factor

    def busy(carry):
        now = carry[0]
        more = (now.taken < most) & (now.time < until)
        return (now.status == Status.RUNNING) & more

    value, slope = field(start)
    status = jnp.where(value <= goal, Status.CONVERGED, Status.RUNNING)
    status = jnp.where(jnp.isfinite(value), status, Status.EXHAUSTED)
    running = flow.status == Status.RUNNING
    status = jnp.where(running, status, flow.status).astype(flow.status.dtype)
    zero = jnp.zeros_like(flow.taken)
    begin = Flows((), flow.time, zero, zero, status)
    first = _first_step(field, size, start, slope, pair.order)
    now, point, _, _ = jax.lax.while_loop(busy, step_of, (begin, start, slope, first))
    return now._replace(weights=unravel(point))


def _first_step(field, size, start, slope, order) -> Array:
    """A step whose error is about a hundredth of what is allowed (Hairer, Nørsett, Wanner II.4)."""
    near, steep = size(start, start, start), size(slope, start, start)
    trial = jnp.where(jnp.minimum(near, steep) < 1e-5, 1e-6, 0.01 * near / steep)
    bend = size(field(start + trial * slope)[1] - slope, start, start) / trial
    steepest = jnp.maximum(steep, bend)
    usual = jnp.minimum(100 * trial, (0.01 / steepest) ** (1 / (order + 1)))
    return jnp.where(steepest > 1e-15, usual, jnp.maximum(1e-6, 1e-3 * trial))
