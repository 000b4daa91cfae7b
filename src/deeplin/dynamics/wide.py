"""Networks of any width, trained exactly at the cost of a network of width rank(X) + q (X-4)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.dynamics.descent import BLOW_UP
from deeplin.dynamics.flow import gradient_flow
from deeplin.dynamics.reduction import in_coordinates
from deeplin.dynamics.run import CONVERGED, DIVERGED, STOPPED, Run, steps_to_record
from deeplin.dynamics.update import check_momentum, key_words
from deeplin.dynamics.wide_run import (
    Cases,
    Course,
    ReducedStart,
    UnstableStep,
    WideRun,
    cases_of,
    spread,
)
from deeplin.errors import InputError, positive_number, validated, whole_number
from deeplin.execution import check_interrupt, interruptible, map_in_threads
from deeplin.networks import Network
from deeplin.networks.products import (
    backward_products,
    forward_products,
    layer_gradients,
    product,
)
from deeplin.problems import Problem
from deeplin.problems.population import Population

GROWTH, OBSERVATIONS = 1.25, 150
"""Ratio and number of the times at which a flow is observed; they span fourteen decades."""


@validated
@interruptible
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

    Arguments:

    - `problem`: data X (n×d, d > n, independent rows) and Y, from `Problem.from_data`; or one for
      each run.
    - `width`, `alpha`, `beta`, `learning_rate`: one for all runs or one for each.
    - `stable_share`: instead of `learning_rate`: each run gets this share of the largest rate that
      is stable at its start, (2 + 2·momentum)/λ_max (X-31). Above the limit there is a warning.
    - `key`: one key, or a batch of keys for a batch of runs.
    - `dynamics`: `"descent"` with `learning_rate` on the mean squared error over the n·q entries,
      or `"flow"`; both until that mean is at most `loss_target`, or for `max_steps` steps.
    - `population`: where the data come from; `wide.risk` is then the exact excess risk, and
      `wide.added_risk` and `wide.cross_term` are the two parts that Θ_⊥ adds to it.
    - `record_every`: steps between records; for flow, keep one in this many of the observation
      times (each 1.25 times the one before). See `WideRun.records`.

    A batch of runs uses all cores; each run depends on its own key alone. Flow needs float64.

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


class DescentTask(NamedTuple):
    """Objective, step and stopping criteria of a run; R = Σ_i λ_i‖Θ_i − Θ*_i‖² (FM-L8)."""

    eigenvalues: Float[np.ndarray, " rank"]
    optimum: Float[np.ndarray, "rank q"]
    learning_rate: float
    momentum: float
    goal: float
    """Converged when R is at or below this."""
    ceiling: float
    """Diverged when R is above this or not a number."""

    def value_and_gradient(
        self, theta: Float[np.ndarray, "rank q"]
    ) -> tuple[float, Float[np.ndarray, "rank q"]]:
        """Return R(Θ) and ∇R(Θ) = 2ΛΔ with Δ = Θ − Θ*, in the eigenbasis (FM-grad)."""
        difference = theta - self.optimum
        slope = 2 * self.eigenvalues[:, None] * difference
        return 0.5 * float((difference * slope).sum()), slope


class DescentState(NamedTuple):
    """State of a network between two steps."""

    weights: tuple[np.ndarray, ...]
    risk: float
    path: float
    """Σ√R over the steps taken."""
    steps: int
    status: str = STOPPED


def descend(
    weights: tuple[np.ndarray, ...], task: DescentTask, stops: Sequence[int]
) -> list[DescentState]:
    """Train until the goal, the ceiling or the last stop; the states at the stops and the end.

    Full-batch descent of one linear network in the eigenbasis of Σ̂: a step needs q backward
    products, q forward products and one update of rank q for each layer. NumPy is as fast as
    compiled code at these sizes (widths near 100), and computes in float64 whatever JAX is set to.
    A diverged run keeps the weights of the step before.
    """
    states: list[DescentState] = []
    kept, path, velocity = set(stops), 0.0, [0.0] * len(weights)
    before = None
    for step in range(stops[-1] + 1):
        with np.errstate(over="ignore", invalid="ignore"):
            backward = backward_products(weights)
            risk, slope = task.value_and_gradient(backward[0])
        now = DescentState(weights, risk, path, step)
        if not risk <= task.ceiling:
            return [*states, (before or now)._replace(steps=step, status=DIVERGED)]
        if risk <= task.goal:
            return [*states, now._replace(status=CONVERGED)]
        if step in kept:
            states.append(now)
        if step == stops[-1]:
            break
        check_interrupt()
        before = now
        with np.errstate(over="ignore", invalid="ignore"):
            pushed = forward_products(weights, slope * -task.learning_rate)
            moves = layer_gradients(backward, pushed)
            if task.momentum:
                moves = [m + task.momentum * v for m, v in zip(moves, velocity, strict=True)]
                velocity = [move.copy() for move in moves]
            for weight, move in zip(weights, moves, strict=True):
                move += weight  # in place: memory access dominates the cost
        weights, path = tuple(moves), path + float(np.sqrt(risk))
    return states


def _descend(cases: Cases, options: _Options) -> WideRun:
    """Train by full-batch gradient descent on the mean loss R/q, that is with step η/q on R."""
    rates = cases.rates / cases.starts[0].problem.outputs
    stops = steps_to_record(options.record_every or options.max_steps, options.max_steps)

    def train(run: int) -> list[DescentState]:
        start, problem = cases.starts[run], cases.starts[run].problem
        eigenvalues, _, optimum = problem.spectrum
        goal, rate = problem.outputs * options.loss_target, float(rates[run])
        task = DescentTask(eigenvalues, optimum, rate, options.momentum, goal, ceiling=np.inf)
        risk, _ = task.value_and_gradient(product(start.layers))
        ceiling = BLOW_UP * max(risk, problem.target_moment)
        return descend(start.layers, task._replace(ceiling=ceiling), stops)

    found = map_in_threads(train, range(len(rates)))
    length = max(map(len, found))
    courses = []
    for rate, start, states in zip(rates, cases.starts, found, strict=True):
        states += [states[-1]] * (length - len(states))
        weights, risk, path, steps, status = zip(*states, strict=True)
        # In BO's time a step on the mean loss lasts η/(nq), and √ℒ = √(nR).
        path = np.array(path) * rate / np.sqrt(start.problem.samples)
        course = Course(np.array(steps), weights, np.array(risk), path, status[-1], steps[-1])
        courses.append(course)
    each = {"learning_rate": rates.tolist()}
    return WideRun(cases, courses, each, momentum=options.momentum)


# --- flow --------------------------------------------------------------------------------------


def _flow(cases: Cases, options: _Options) -> WideRun:
    """Integrate the gradient flow dW/dt = −∇R to the same loss, at geometrically spaced times."""
    sharpest = max(start.curvature() for start in cases.starts)
    first = 0.01 / sharpest if sharpest > 0 else 1.0
    times = [0.0, *(first * GROWTH**k for k in range(OBSERVATIONS))]
    runs = map_in_threads(lambda start: _flow_of(start, options, times), cases.starts)
    length = max(len(run.records["time"]) for run in runs)
    kept = np.array(sorted({*range(0, length, options.record_every or length), length - 1}))
    courses = [_course(run, start, kept) for run, start in zip(runs, cases.starts, strict=True)]
    each = {"time": [float(course.when[-1]) for course in courses]}
    return WideRun(cases, courses, each, dynamics="flow")


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
