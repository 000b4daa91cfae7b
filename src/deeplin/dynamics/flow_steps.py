"""Steps of the gradient flow: a diffrax solver over a batch, with an event at the goal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from deeplin.dynamics.objective import Objective
from deeplin.networks import Network

if TYPE_CHECKING:
    import diffrax

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
NEWTON = 10
"""Most iterations for each implicit stage."""


class Progress(NamedTuple):
    """Where each run of a batch is."""

    network: Network
    time: Any
    steps: Any
    """Steps tried, rejected ones included."""
    rejected: Any
    reached: Any
    """Whether the value R − floor is at or below the goal."""
    failed: Any
    """Whether the solver gave up."""

    @classmethod
    def start(cls, batch: Network) -> Progress:
        """The beginning, for a batch of networks."""
        size = batch.weights[0].shape[0]
        none, no = np.zeros(size, int), np.zeros(size, bool)
        return cls(batch, np.zeros(size), none, none, no, no)


def move(
    method: str,
    objective: Objective,
    progress: Progress,
    until: float,
    goal: Any,
    limit: int,
    tolerances: tuple[float, float],
) -> Progress:
    """Take each run towards the time `until`, by at most CHUNK steps, stopping at its goal."""
    rtol, atol = tolerances
    allowed = (ALLOWANCE[method] * rtol, ALLOWANCE[method] * atol)
    arrays = (objective.data, progress, until, goal, limit, allowed)
    moved = _move(method, objective.value_and_gradient, *jax.tree.map(jnp.asarray, arrays))
    return Progress(moved.network, *(np.asarray(item) for item in moved[1:]))


def evaluations(method: str, network: Network, steps: np.ndarray) -> np.ndarray:
    """Gradients evaluated in one call; for implicit steps the most it can have been.

    An implicit step forms the Hessian, one product for each parameter, and iterates its stages.
    """
    size = sum(weight[0].size for weight in network.weights)
    each = STAGES[method] if method != IMPLICIT else STAGES[method] * NEWTON + size
    return np.where(steps > 0, OPENING + each * steps, 0)


@partial(jax.jit, static_argnums=(0, 1))
def _move(method, value_and_gradient, data, progress: Progress, until, goal, limit, tolerances):
    import diffrax  # half a second, which `import deeplin` need not wait for

    def one(now: Progress, goal) -> Progress:
        # One flat vector: ten layers as ten arrays would take ten times as long to compile.
        start, unravel = ravel_pytree(now.network.weights)

        def network(vector) -> Network:
            return Network(unravel(vector), now.network.readout, now.network.activation)

        def value(vector) -> Array:
            return value_and_gradient(*data, network(vector))[0]

        def field(_time, vector, _):
            return -ravel_pytree(value_and_gradient(*data, network(vector))[1])[0]

        already = now.reached | (value(start) <= goal)
        resting = already | now.failed | (now.steps >= limit)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),  # pyright: ignore[reportArgumentType]
            _solver(method, tolerances),
            t0=now.time,
            t1=jnp.where(resting, now.time, jnp.maximum(until, now.time)),
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
        final = solution.ys[0]
        usable = jnp.isfinite(final).all() & ~resting
        vector = jnp.where(usable, final, start)
        return Progress(
            network(vector),
            jnp.where(usable, solution.ts[0], now.time),
            now.steps + jnp.where(resting, 0, solution.stats["num_steps"]),
            now.rejected + jnp.where(resting, 0, solution.stats["num_rejected_steps"]),
            already | (value(vector) <= goal),
            now.failed | ~(resting | usable & _fine(solution.result)),
        )

    return jax.vmap(one)(progress, jnp.broadcast_to(goal, progress.time.shape))


def _fine(result: diffrax.RESULTS) -> Array:
    import diffrax

    kinds = diffrax.RESULTS
    good = (kinds.successful, kinds.event_occurred, kinds.max_steps_reached)
    return jnp.any(jnp.stack([result == kind for kind in good]))


def _solver(method: str, tolerances) -> diffrax.AbstractSolver:
    import diffrax

    if method == HIGH_ORDER:
        return diffrax.Dopri8()
    if method == EXPLICIT:
        return diffrax.Tsit5()
    rtol, atol = tolerances
    newton = diffrax.VeryChord(rtol=rtol, atol=atol)
    return diffrax.Kvaerno5(root_finder=newton, root_find_max_steps=NEWTON)
