"""Gradient flows of many networks, their limits, and the sharpness at the limits."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from deeplin.dynamics.engine import Status
from deeplin.dynamics.objective import Gradient, bottleneck_of, objective_of
from deeplin.execution import map_in_threads, thread_count
from deeplin.hessian import sharpness
from deeplin.hessian.exact import Tangent, exact
from deeplin.hessian.operators import AutodiffHessian
from deeplin.networks import Network
from deeplin.networks.network import host_arrays
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
NEWTON_STEPS, FLAT = 2, 1e-8
"""Steps that complete a flow to a minimizer with a bottleneck, and the eigenvalues, relative to the
largest, that count as zero there."""
HORIZON = 1e15
"""Maximum time of a flow to a minimizer; a flow that gets this far does not converge."""


class Solver(NamedTuple):
    """Solver of a flow and its tolerances."""

    method: str
    rtol: float
    atol: float
    limit: int
    """Maximum number of steps, including rejected ones."""
    slope: bool = False
    """Whether goals are for ‖∇R‖ instead of R − floor."""


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
    """Integrate each running flow dW/dt = −∇R to the time `until`, or to its goal."""
    batch = len(flows.time)
    size = min(CHUNK, 1 << (-(-batch // thread_count()) - 1).bit_length())
    numbers = np.array([until, solver.rtol, solver.atol])
    static = solver.method, solver.limit, solver.slope

    def run(first: int) -> Flows:
        members = np.minimum(np.arange(first, first + size), batch - 1)
        part = jax.tree.map(lambda leaf: np.asarray(leaf)[members], (flows, fixed, goals))
        return jax.device_get(_integrate(gradient, static, data, numbers, *part))

    parts = map_in_threads(run, range(0, batch, size))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:batch], *parts)


@partial(jax.jit, static_argnums=(0, 1))
def _integrate(gradient: Gradient, static: tuple, data, numbers, flows, fixed, goals):
    import diffrax  # takes half a second, so not at `import deeplin`

    method, limit, slope = static
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
            found, slopes = gradient(data, unravel(vector), fixed)
            return jnp.linalg.norm(ravel_pytree(slopes)[0]) if slope else found

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
            adjoint=diffrax.ForwardMode(),  # nobody differentiates it, and it compiles faster
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
    minimizer. A flow that does not converge to a minimizer is returned at its last time. Minimizers
    are those that the hidden widths allow (X-34).
    """
    host_arrays(networks)  # known without biases alone
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
    ends = [np.array(weight) for weight in weights]
    if reached.any():
        ended = objective.layout.tree(weights, fixed)
        part = jax.tree.map(lambda leaf: np.asarray(leaf)[reached], ended)
        if objective.bottleneck is not None:
            completed = _polished(problem, part).weights
        else:
            completed = _to_minimizers(Tangent.of(problem, part))
        for layer, moved in zip(ends, completed, strict=True):
            layer[reached] = moved
    return eqx.tree_at(lambda n: n.weights, networks, tuple(ends)), reached


def flow_sharpness(problem: Problem, networks: Network) -> tuple[np.ndarray, np.ndarray]:
    """Return the sharpness at the limit of the flow from each linear network, and its error bound.

    The error bounds that of the sharpness at the end found; integration itself is kept to 1e-10 a
    step. Both are NaN, with a warning, where the flow does not converge to a minimizer that the
    hidden widths allow.
    """
    ends, reached = flow_limit(problem, networks)
    if not reached.all():
        warnings.warn(
            f"flow_sharpness is NaN for {np.sum(~reached)} of {len(reached)} state(s), from which "
            "the gradient flow does not converge to a global minimizer: it ends in a saddle, or "
            "takes too many steps.",
            UserWarning,
            stacklevel=2,
        )
    if bottleneck_of(problem, networks) is None:
        value, error = exact(problem, ends, "largest")
    else:  # the residual does not vanish, so neither does the rest of the Hessian
        found = sharpness(problem, ends, tolerance=1e-10)
        value, error = np.asarray(found.value), np.asarray(found.error)
    return np.where(reached, value, np.nan), np.where(reached, error, np.inf)


def _polished(problem: Problem, networks: Network) -> Network:
    """Return networks after Newton steps in the directions in which the risk bends.

    At minimizers that a bottleneck allows the risk is flat only along changes of the layers that
    keep the product; the residual does not vanish, so this needs the whole Hessian.
    """
    for _ in range(NEWTON_STEPS):
        hessian = AutodiffHessian(problem, networks)
        inverse = np.linalg.pinv(hessian.matrices(), rcond=FLAT, hermitian=True)
        vectors = (inverse @ hessian.gradients()[:, :, None])[:, :, 0]
        cuts = np.cumsum(hessian.sizes)[:-1]
        weights = tuple(
            np.asarray(weight) - part.reshape(weight.shape)
            for weight, part in zip(networks.weights, np.split(vectors, cuts, axis=1), strict=True)
        )
        networks = eqx.tree_at(lambda n: n.weights, networks, weights)
    return networks


def _to_minimizers(tangent: Tangent) -> list[np.ndarray]:
    """Return W_k − V_k(B_kx)ᵀ with Kx = e, the step to the nearest minimizer (notation of X-1).

    Near a minimizer K = JJᵀ is nearly constant, so e = Cᵀ(Θ − Θ*) decays as ė = −2Ke, and the
    remaining change of the weights is −Jᵀ∫2e dt = −JᵀK⁻¹e. The error is of the order of |e|².
    """
    left = tangent.left
    x = np.linalg.solve(tangent.kernel, left.reshape(len(left), -1, 1)).reshape(left.shape)
    letters = zip(tangent.weights, tangent.forward, tangent.backward[1:], strict=True)
    return [weight - v @ (b @ x).mT for weight, b, v in letters]
