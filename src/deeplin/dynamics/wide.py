"""Networks of any width, trained exactly at the cost of a network of width rank(X) + q (X-4)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from deeplin.dynamics.descent import BLOW_UP
from deeplin.dynamics.engine import Descent, Status, StoppingCriteria
from deeplin.dynamics.flow import gradient_flow, growing_times
from deeplin.dynamics.minibatches import key_words
from deeplin.dynamics.objective import Ensemble, LinearData, LinearGradient, Objective
from deeplin.dynamics.optimizer import Method, Update, check_momentum
from deeplin.dynamics.reduction import in_coordinates
from deeplin.dynamics.run import DIVERGED, STATUS_NAMES, Run, steps_to_record
from deeplin.dynamics.wide_run import (
    Cases,
    Course,
    ReducedStart,
    UnstableStep,
    WideRun,
    cases_of,
    spread,
)
from deeplin.errors import InputError, positive_number, whole_number
from deeplin.execution import map_in_threads
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.problems.population import Population
from deeplin.problems.problem import LeastSquares

OBSERVATIONS = 150
"""Number of the times at which a flow is observed; they span fourteen decades."""


def simulate_wide(
    problem: Problem | Sequence[Problem],
    width: Any,
    depth: int,
    alpha: ArrayLike,
    beta: ArrayLike,
    key: Any,
    *,
    learning_rate: Any = 1e-4,
    stable_share: ArrayLike | None = None,
    loss_target: float = 1e-7,
    max_steps: int = 100_000,
    dynamics: str = "descent",
    momentum: float = 0.0,
    population: Population | Sequence[Population] | None = None,
    record_every: int | None = None,
) -> WideRun:
    """Train a network of any width from BO-D2.3, exactly, at a cost that does not depend on it.

    W_1 ~ N(0, α²) (m×d), identity in between, W_L ~ N(0, β²) (q×m); the reduced initial state is
    drawn exactly in distribution (X-5) and trained as a network of width rank(X) + q (X-4).

    A batch of runs uses all cores; each run depends on its own key alone.

    Args:
        problem: Data X (n×d, d > n, independent rows) and Y, from `Problem.from_data`; or one for
            each run.
        width: m, one for all runs or one for each; also `alpha`, `beta` and `learning_rate`.
        depth: L.
        alpha: Standard deviation of the entries of W_1.
        beta: Standard deviation of the entries of W_L.
        key: One key, or a batch of keys for a batch of runs.
        learning_rate: Step on the mean squared error over the n·q entries.
        stable_share: Instead of `learning_rate`: each run gets this share of the largest rate that
            is stable at its start, (2 + 2·momentum)/λ_max (X-31). Above the limit there is a
            warning.
        loss_target: Mean squared error over the n·q entries at which a run stops.
        max_steps: Largest number of steps.
        dynamics: `"descent"`, or `"flow"`.
        momentum: β.
        population: Where the data come from; `wide.risk` is then the exact excess risk, and
            `wide.added_risk` and `wide.cross_term` are the two parts that Θ_⊥ adds to it.
        record_every: Steps between records; for flow, keep one in this many of the observation
            times (each 1.25 times the one before).

    Returns:
        A `WideRun`.

    ```python
    import deeplin as dl, jax
    data = dl.problems.synthetic.spiked(seed=0, dimension=500)
    wide = dl.simulate_wide(
        data.problem, 5030, depth=3, alpha=1e-3, beta=1.0, key=jax.random.key(0), max_steps=100
    )
    wide.theta, wide.distance, wide.loss, wide.steps, wide.status, wide.stability
    ```
    """
    own = {"width": width, "alpha": alpha, "beta": beta, "learning_rate": learning_rate}
    cases = cases_of(problem, key_words(key), population, depth, **own)
    if dynamics not in DYNAMICS:
        raise InputError(f"dynamics is {dynamics!r}; pass 'descent' or 'flow'.")
    options = _Options(
        positive_number("loss_target", loss_target, zero_allowed=True),
        whole_number("max_steps", max_steps),
        check_momentum(momentum),
        None if record_every is None else whole_number("record_every", record_every),
    )
    if dynamics == "flow" and options.momentum:
        raise InputError("a flow has no momentum; pass momentum=0, or dynamics='descent'.")
    if dynamics == "descent":
        cases = _with_rates(cases, stable_share, options.momentum)
    elif stable_share is not None:
        raise InputError("a flow has no learning rate; pass dynamics='descent' with stable_share.")
    wide = DYNAMICS[dynamics](cases, options)
    if np.any(np.atleast_1d(np.asarray(wide.status)) == DIVERGED):
        warnings.warn(wide.message, UnstableStep, stacklevel=4)
    return wide


def _with_rates(cases: Cases, share: Any, momentum: float) -> Cases:
    """Return the cases with the requested rates; warn where these are above the stable limit."""
    curvatures = [start.curvature() / start.problem.outputs for start in cases.starts]
    limits = (2 + 2 * momentum) / np.maximum(curvatures, np.finfo(float).tiny)
    if share is not None:
        shares = spread("stable_share", share, len(limits))
        cases = cases._replace(
            rates=limits * [positive_number("stable_share", one) for one in shares]
        )
    above = cases.rates > limits
    if np.any(above):
        largest = np.max(cases.rates / limits)
        warnings.warn(
            f"{np.sum(above)} of {len(above)} run(s) have a learning rate above the stable limit "
            f"of their start, up to {largest:.3g} times (the limit is {np.min(limits):.3g} at the "
            "least): descent then leaves what gradient flow does, or diverges; pass "
            "stable_share=0.5.",
            UnstableStep,
            stacklevel=5,
        )
    return cases


class _Options(NamedTuple):
    """The options that all runs of a call share."""

    loss_target: float
    max_steps: int
    momentum: float
    record_every: int | None


# --- descent -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class WithPath(Method):
    """The step of a `Method`, with Σ√R over the steps taken beside its memory."""

    def begin(self, weights, momentum, keys=None):
        """Return the memory of every run before the first step."""
        return super().begin(weights, momentum, keys), np.zeros(len(weights[0]))

    def __call__(self, numbers, rates, moving, weights, memory, descent, scaled=False):
        """Return weights and memory after one step."""
        inner, path = memory
        weights, inner = super().__call__(numbers, rates, moving, weights, inner, descent, scaled)
        root = jnp.sqrt(jnp.maximum(descent[0], 0))
        return weights, (inner, path + jnp.where(moving, root, 0))


def _descend(cases: Cases, options: _Options) -> WideRun:
    """Train by full-batch gradient descent on the mean loss R/q, that is with step η/q on R."""
    rates = cases.rates / cases.starts[0].problem.outputs
    stops = steps_to_record(options.record_every or options.max_steps, options.max_steps)

    def train(run: int) -> list[tuple]:
        return _states(_descent_of(cases.starts[run], float(rates[run]), options), stops)

    found = map_in_threads(train, range(len(rates)))
    length = max(map(len, found))
    courses = []
    for rate, start, states in zip(rates, cases.starts, found, strict=True):
        states += [states[-1]] * (length - len(states))
        steps, weights, risk, path, status = zip(*states, strict=True)
        # In BO's time a step on the mean loss lasts η/(nq), and √ℒ = √(nR).
        path = np.array(path) * rate / np.sqrt(start.problem.samples)
        course = Course(np.array(steps), weights, np.array(risk), path, status[-1], steps[-1])
        courses.append(course)
    given = cases.one_or_all(rates.tolist())
    return WideRun(cases, courses, learning_rate=given, momentum=options.momentum)


def _descent_of(start: ReducedStart, rate: float, options: _Options) -> Descent:
    """Return the descent of one network, with R = Σ_i λ_i‖Θ_i − Θ*_i‖² in the eigenbasis of Σ̂."""
    problem = start.problem
    eigenvalues, _, coordinates = problem.spectrum
    ensemble = Ensemble.of(Network(start.layers))
    layout = ensemble.layout
    risk = LeastSquares(np.diag(eigenvalues), coordinates, np.zeros(()))
    objective = Objective(LinearGradient(layout), LinearData(risk), layout, has_gap=True)
    first = objective.values(ensemble.tree(ensemble.weights))
    goal = np.full_like(first, problem.outputs * options.loss_target)
    criteria = StoppingCriteria(goal, BLOW_UP * np.maximum(first, problem.target_moment))
    each = np.full((1, len(start.layers)), rate)
    return Descent(objective, ensemble, criteria, Update(WithPath(layout), each, options.momentum))


def _states(descent: Descent, stops: Sequence[int]) -> list[tuple]:
    """Return steps, weights, R, Σ√R and status at each stop, until the run has stopped."""
    state, states = descent.start(), []
    for stop in stops:
        reached = False
        while not reached:  # a call may end before the stop, so that Ctrl-C works
            state, visited = descent.advance(state, [stop])
            reached = visited.count > 0 or not state.running.any()
        weights = tuple(np.array(weight[0]) for weight in state.weights)
        risk = descent.objective.values(descent.ensemble.tree(state.weights))[0]
        status = STATUS_NAMES[Status(int(state.status[0]))]
        states.append((int(state.steps[0]), weights, risk, float(state.memory[1][0]), status))
        if not state.running.any():
            break
    return states


# --- flow --------------------------------------------------------------------------------------


def _flow(cases: Cases, options: _Options) -> WideRun:
    """Integrate the gradient flow dW/dt = −∇R to the same loss, at geometrically spaced times."""
    sharpest = max(start.curvature() for start in cases.starts)
    times = list(islice(growing_times(sharpest), OBSERVATIONS + 1))
    runs = map_in_threads(lambda start: _flow_of(start, options, times), cases.starts)
    length = max(len(run.records["time"]) for run in runs)
    kept = np.array(sorted({*range(0, length, options.record_every or length), length - 1}))
    courses = [_course(run, start, kept) for run, start in zip(runs, cases.starts, strict=True)]
    return WideRun(cases, courses, dynamics="flow")


def _flow_of(start: ReducedStart, options: _Options, times: list[float]) -> Run:
    problem = in_coordinates(start.problem, start.problem.spectrum.vectors)
    goal = problem.outputs * options.loss_target - problem.minimal_risk
    return gradient_flow(
        problem,
        Network(start.layers),
        gap=max(goal, np.finfo(float).tiny),
        at=times,
        record=("gap",),
        keep_weights=options.record_every is not None,
        rtol=1e-9,
        atol=1e-12,
        max_steps=options.max_steps,
    )


def _course(run: Run, start: ReducedStart, kept: np.ndarray) -> Course:
    """Return a flow at the records that are kept; one that stopped earlier repeats its end."""
    times, risks = run.records["time"], np.maximum(run.records["gap"], 0.0)
    # In the time of dW/dt = −∇ℒ, n times faster, with √ℒ = √(nR), ∫√ℒ is 1/√n of ∫√R dt.
    path = _log_linear_integral(times, np.sqrt(risks)) / np.sqrt(start.problem.samples)
    at = np.minimum(kept, len(times) - 1)
    layers = [start.layers, tuple(map(np.asarray, run.network.weights))]
    if run.trajectory is not None:
        layers = [tuple(np.asarray(w[k]) for w in run.trajectory.weights) for k in at]
    return Course(times[at], layers, risks[at], path[at], str(run.status), int(run.steps))


def _log_linear_integral(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return ∫_0^t f at each time for f > 0 that decays like a sum of exponentials.

    Between two times f is taken as one exponential, which is exact for one and above a sum of
    several, since a sum of exponentials is log-convex.
    """
    left, right = values[:-1], values[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(left / right)
        mean = np.where(np.abs(ratio) > 1e-8, (left - right) / ratio, (left + right) / 2)
    pieces = np.diff(times) * np.nan_to_num(mean)
    return np.concatenate([[0.0], np.cumsum(pieces)])


DYNAMICS = {"descent": _descend, "flow": _flow}
