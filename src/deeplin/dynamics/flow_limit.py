"""Gradient flows of many networks, their limits, and the sharpness at the limits."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from deeplin.dynamics.engine import Status
from deeplin.dynamics.objective import Gradient, objective_of
from deeplin.execution import map_in_threads, thread_count
from deeplin.hessian.exact import Tangent, exact
from deeplin.networks import Network, host_arrays
from deeplin.problems import Problem

HIGH_ORDER, EXPLICIT, IMPLICIT = "Dopri8", "Tsit5", "Kvaerno5"
"""Names of diffrax solvers."""
NEWTON_ITERATIONS = 10
"""Maximum number of Newton iterations for each implicit stage."""
CHUNK = 64
"""Number of flows in one program, which takes as long as the slowest of them."""
SMALLEST_STEP = 1e-14
"""Smallest step relative to the time (at time 0, its square); a smaller step has failed."""
COMPLETION_GAP = 1e-14
"""Fraction of R(0) − R_min of the zero map below which the flow is completed by one step. The step
has length 1e-7, and its error is of the order of its square."""
HORIZON = 1e15
"""Maximum time of a flow to a minimizer; a flow that gets this far does not converge."""


class Solver(NamedTuple):
    """Solver of a flow and its tolerances."""

    method: str
    rtol: float
    atol: float
    limit: int
    """Maximum number of steps, including rejected ones."""


LIMIT_SOLVER = Solver(HIGH_ORDER, 1e-10, 1e-12, 20_000)
"""Solver of flows to a minimizer."""


class Flows(NamedTuple):
    """State of gradient flows; every array has a leading batch axis."""

    weights: tuple[Any, ...]
    time: Any
    taken: Any
    """Number of steps, including rejected ones."""
    rejected: Any
    status: Any


def integrate(
    gradient: Gradient, data: Any, solver: Solver, flows: Flows, fixed: tuple, goals, until: float
) -> Flows:
    """Integrate each running flow dW/dt = −∇R to the time `until`, or until R − floor ≤ its
    goal."""
    batch = len(flows.time)
    size = min(CHUNK, 1 << (-(-batch // thread_count()) - 1).bit_length())
    method, *tolerances, limit = solver
    numbers = np.array([until, *tolerances])

    def run(first: int) -> Flows:
        members = np.minimum(np.arange(first, first + size), batch - 1)
        part = jax.tree.map(lambda leaf: np.asarray(leaf)[members], (flows, fixed, goals))
        return jax.device_get(_integrate(gradient, method, limit, data, numbers, *part))

    parts = map_in_threads(run, range(0, batch, size))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:batch], *parts)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _integrate(gradient: Gradient, method: str, limit: int, data, numbers, flows, fixed, goals):
    import diffrax  # takes half a second, so not at `import deeplin`

    until, *tolerances = numbers
    solver = getattr(diffrax, method)()
    if method == IMPLICIT:
        newton = diffrax.VeryChord(*tolerances)
        solver = diffrax.Kvaerno5(root_finder=newton, root_find_max_steps=NEWTON_ITERATIONS)
    kinds = diffrax.RESULTS
    fine = (kinds.successful, kinds.event_occurred, kinds.max_steps_reached)

    def one(flow: Flows, fixed, goal) -> Flows:
        # One flat vector: ten layers as ten arrays would take ten times as long to compile.
        start, unravel = ravel_pytree(flow.weights)

        def value(vector) -> Array:
            return gradient(data, unravel(vector), fixed)[0]

        def field(_time, vector, _):
            return -ravel_pytree(gradient(data, unravel(vector), fixed)[1])[0]

        reached = (flow.status == Status.CONVERGED) | (value(start) <= goal)
        resting = reached | (flow.status != Status.RUNNING)
        shortest = SMALLEST_STEP * jnp.maximum(flow.time, SMALLEST_STEP)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),  # pyright: ignore[reportArgumentType]
            solver,
            t0=flow.time,
            t1=jnp.where(resting, flow.time, jnp.maximum(until, flow.time)),
            dt0=None,
            y0=start,
            stepsize_controller=diffrax.PIDController(
                *tolerances, safety=0.8, dtmin=shortest, force_dtmin=False
            ),
            saveat=diffrax.SaveAt(t1=True),
            event=diffrax.Event(lambda _time, vector, _, **__: value(vector) <= goal),
            max_steps=limit,
            throw=False,
        )
        assert solution.ys is not None  # SaveAt requests them
        assert solution.ts is not None
        usable = jnp.isfinite(solution.ys[0]).all() & ~resting
        vector = jnp.where(usable, solution.ys[0], start)
        went_well = usable & jnp.any(jnp.stack([solution.result == kind for kind in fine]))
        status = jnp.where(resting | went_well, flow.status, Status.EXHAUSTED)
        status = jnp.where(reached | (value(vector) <= goal), Status.CONVERGED, status)
        return Flows(
            unravel(vector),
            jnp.where(usable, solution.ts[0], flow.time),
            jnp.where(resting, 0, solution.stats["num_steps"]),
            jnp.where(resting, 0, solution.stats["num_rejected_steps"]),
            status.astype(flow.status.dtype),
        )

    return jax.vmap(one)(flows, fixed, goals)


def flow_limit(problem: Problem, networks: Network) -> tuple[Network, np.ndarray]:
    """Return the limits of the gradient flows of linear networks, and which were reached.

    Flows are integrated until Θ is close to a minimizer and completed by one step to the nearest
    minimizer. A flow that does not converge to a minimizer is returned at its last time.
    """
    networks = networks.with_batch()
    objective = objective_of(problem, networks)
    nothing = np.zeros(len(networks.weights[0]))
    weights, fixed = objective.layout.split(networks)
    starts = Flows(weights, nothing, *(nothing.astype(np.int32) for _ in range(3)))
    goals = np.full_like(nothing, COMPLETION_GAP * problem.zero_gap)
    found = integrate(
        objective.gradient, objective.data, LIMIT_SOLVER, starts, fixed, goals, HORIZON
    )
    weights, reached = found.weights, found.status == Status.CONVERGED
    _, readout = host_arrays(networks)
    ends = [np.array(weight) for weight in weights]
    if reached.any():
        part = readout if readout is None or readout.ndim == 1 else readout[reached]
        near = Tangent.of(problem, [weight[reached] for weight in weights], part)
        for layer, moved in zip(ends, _to_minimizers(near), strict=True):
            layer[reached] = moved
    return eqx.tree_at(lambda n: n.weights, networks, tuple(ends)), reached


def flow_sharpness(problem: Problem, networks: Network) -> tuple[np.ndarray, np.ndarray]:
    """Return the sharpness at the limit of the flow from each linear network, and its error bound.

    The error bounds that of the sharpness at the end found; integration itself is kept to 1e-10 a
    step. Both are NaN where the flow does not converge to a minimizer.
    """
    ends, reached = flow_limit(problem, networks)
    value, error = exact(problem, ends, "largest")
    return np.where(reached, value, np.nan), np.where(reached, error, np.inf)


def _to_minimizers(tangent: Tangent) -> list[np.ndarray]:
    """Return W_k − V_k(B_kx)ᵀ with Kx = e, the step to the nearest minimizer (notation of X-1).

    Near a minimizer K = JJᵀ is nearly constant, so e = Cᵀ(Θ − Θ*) decays as ė = −2Ke, and the
    remaining change of the weights is −Jᵀ∫2e dt = −JᵀK⁻¹e. The error is of the order of |e|².
    """
    left = tangent.left
    x = np.linalg.solve(tangent.kernel, left.reshape(len(left), -1, 1)).reshape(left.shape)
    letters = zip(tangent.weights, tangent.forward, tangent.backward[1:], strict=True)
    return [weight - v @ (b @ x).mT for weight, b, v in letters]
