"""Gradient flow dW/dt = −∇R(W), integrated with error control, to a time or to a gap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from deeplin.dynamics.engine import State, Status, Stepper, Visited
from deeplin.dynamics.integration import (
    EXPLICIT,
    HORIZON,
    IMPLICIT,
    NEWTON_ITERATIONS,
    Flows,
    Solver,
    integrate,
)
from deeplin.dynamics.objective import (
    Ensemble,
    Objective,
    RandomLoss,
    is_batch,
    objective_of,
    with_fixed_key,
)
from deeplin.dynamics.quantities import Quantities
from deeplin.dynamics.run import CLOSE, Recorder, Run, drive, finish
from deeplin.errors import (
    InputError,
    finite_array,
    positive_number,
    whole_number,
)
from deeplin.hessian import sharpness
from deeplin.networks.network import Loss, check_pair, explain_loss_errors, in_float64
from deeplin.networks.products import drift
from deeplin.problems import Problem

SOLVERS = ("auto", "explicit", "implicit")
CHUNK = 1000
"""Maximum number of steps in one compiled call, so that Ctrl-C works."""
MAX_IMPLICIT_PARAMETERS = 1000
"""Number of parameters up to which implicit steps are used: they solve linear systems."""
STAGES = 6
"""Number of new stages of a step (the first stage is the last one of the step before)."""
RECORDS, GROWTH = 200, 1.25
"""Intervals between records, or ratio of their times, where nobody stated the times."""
OPENING_GRADIENTS = 3
"""Number of gradients at the start of a call: the first stage, and two to choose the first step."""


class Times(NamedTuple):
    """State of a flow besides its weights, one entry for each run."""

    time: Float[np.ndarray, " batch"]
    rejected: Int[np.ndarray, " batch"]
    evaluations: Int[np.ndarray, " batch"]
    """Number of gradient evaluations; for implicit steps an upper bound."""


@dataclass(frozen=True)
class Gap:
    """`until=Gap(1e-12)`: until R is at most this above the smallest risk that is in reach."""

    value: float


@dataclass(frozen=True)
class GradientNorm:
    """`until=GradientNorm(1e-8)`: until ‖∇R‖ is at most this."""

    value: float


class Goal(NamedTuple):
    """Where a flow ends: at a time, a gap or a gradient norm; the unused ones are out of reach."""

    time: float = HORIZON
    gap: float = -np.inf
    slope: float | None = None

    @property
    def value(self) -> float:
        """The goal of the integration besides the time."""
        return self.gap if self.slope is None else self.slope


def gradient_flow(
    problem: Problem | Loss,
    network: Any,
    until: Any = None,
    *,
    time: float | None = None,
    gap: float | None = None,
    gradient_norm: float | None = None,
    record_every: float | None = None,
    at: Iterable[float] | None = None,
    record: Iterable[Any] | None = None,
    keep_weights: bool = True,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    solver: str = "auto",
    max_steps: int = 50_000,
    batched: bool | None = None,
) -> Run:
    """Integrate the gradient flow dW/dt = −∇R(W) of a network or a batch (FM-grad, FM-L1).

    Args:
        problem: A `Problem`, or any differentiable `loss(parameters)` that returns a scalar.
        network: A network or a batch; with a loss of your own any pytree or a batch of them, whose
            floating arrays move, in float64.
        until: A number is a time; `Gap(1e-12)` is a distance of R from the smallest risk that the
            hidden widths allow (linear networks, X-34); `GradientNorm(1e-8)` is a value of ‖∇R‖.
        time: The same as a number; pass one of the four.
        gap: The same as `Gap`.
        gradient_norm: The same as `GradientNorm`.
        record_every: Time between records. Steps end exactly at these times, without interpolation.
        at: Times to record at.
        record: Which quantities: those of descent, with `time` in place of `step`. Without
            `record_every` and `at` there are 201 evenly spaced records up to a time, or, up to a
            gap or a gradient norm, records at times that grow by a quarter.
        keep_weights: Whether `run.trajectory` keeps the weights at each record.
        rtol: Relative local error allowed in each step.
        atol: The same, absolute.
        solver: `"explicit"` (Tsitouras 5(4)), `"implicit"` (Kværnø 5(4), for stiff ends of
            training), or `"auto"` (explicit, then implicit once stability alone limits the steps).
        max_steps: Maximum number of steps, including rejected ones.
        batched: Whether parameters of your own are a batch of pytrees, as for `gradient_descent`.

    Returns:
        A `Run`. Its evidence: `gap` (or `risk`) at the end, `time`, `evaluations` of the gradient
        (for implicit steps an upper bound), `rejected` steps, `drift` and `relative_drift` of the
        conserved matrices of FM-L1 (networks), and a `message` with advice if the goal was not
        reached (status `stopped`). A run to a time is `converged` if its gap ends at most 1e-8 of
        where it began.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    network = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    run = dl.gradient_flow(problem, network, until=dl.Gap(1e-6))
    run.evidence["time"], run.evidence["evaluations"], run.evidence["drift"]
    ```
    """
    check_pair(problem, network)
    if isinstance(with_fixed_key(problem), RandomLoss):
        raise InputError("a flow has no steps that draw a key; pass a loss(parameters).")
    batch = is_batch(problem, network, batched)
    ensemble = Ensemble.of(in_float64(network), batched=batch)
    objective = objective_of(problem, ensemble.tree(ensemble.weights), ensemble.layout)
    with explain_loss_errors(problem, network):
        abs(objective.evidence(ensemble.tree(ensemble.weights))["risk"])  # it must be a number
    goal = _goal(until, time, gap, gradient_norm, objective)
    stops = _stops(record_every, at, goal.time)
    if solver not in SOLVERS:
        raise InputError(f"solver is {solver!r}; pass one of {', '.join(SOLVERS)}.")
    tolerances = (positive_number("rtol", rtol), positive_number("atol", atol, zero_allowed=True))
    limit = whole_number("max_steps", max_steps)
    quantities = None
    if not (record is None and record_every is None and at is None):
        quantities = Quantities(problem, objective, ensemble, record)
    if quantities is not None and record_every is None and at is None:
        stops = _usual_stops(goal, problem, ensemble)
    recorder = Recorder(ensemble, quantities, keep_weights=keep_weights, unit="time")
    method = Solver(solver, *tolerances, limit, goal.slope is not None)
    flow = FlowStepper(problem, objective, ensemble, goal, method)
    state = drive(flow, flow.start(), stops, recorder)
    return _finish(flow, recorder, state)


class FlowStepper(Stepper):
    """Gradient flow of a batch as a `Stepper`, with its current solver."""

    def __init__(self, problem, objective, ensemble: Ensemble, goal: Goal, solver: Solver):
        self.problem, self.objective, self.ensemble = problem, objective, ensemble
        self.goal, self.limit = goal, solver.limit
        self.may_switch = solver.method == "auto"
        method = IMPLICIT if solver.method == "implicit" else EXPLICIT
        self.solver = solver._replace(method=method)

    def start(self) -> State:
        """Return the state at time zero."""
        nothing = np.zeros(self.ensemble.size)
        times = Times(nothing, nothing.astype(int), nothing.astype(int))
        return State.start(self.ensemble.weights, times)

    def clock(self, state: State) -> np.ndarray:
        """Return the time each run has reached."""
        return state.memory.time

    def advance(self, state: State, stops: Sequence[float]) -> tuple[State, Visited]:
        """Advance every run to each of these times, until all have stopped."""
        visited = []
        for stop in stops:
            while True:  # at least once: the goal is checked here
                state = self._towards(state, stop)
                if not np.any(state.running & (self.clock(state) < stop)):
                    break
            visited.append(tuple(map(np.asarray, state.weights)))
            if not state.running.any():
                break
        weights = tuple(map(np.stack, zip(*visited, strict=True)))
        return state, Visited(len(visited), weights, None)

    def _towards(self, state: State, until: float) -> State:
        """Advance every running flow towards the time `until`, by at most CHUNK steps."""
        after = self._move(state, until)
        if self.may_switch and self._stiff(state, after):
            self.solver = self.solver._replace(method=IMPLICIT)
            self.may_switch = False
        return after

    def _move(self, state: State, until: float) -> State:
        """Advance each run towards the time `until`, stopping at its goal, and count the work."""
        solver = self.solver
        goals = np.full(state.steps.shape, self.goal.value)
        nothing = np.zeros(len(state.steps), np.int32)  # a program for each type is compiled
        status = np.asarray(state.status, np.int32)
        flows = Flows(state.weights, state.memory.time, nothing, nothing, status)
        rule, data, fixed = self.objective.gradient, self.objective.data, self.ensemble.fixed
        each = STAGES
        if solver.method == IMPLICIT:
            # A step forms the Hessian by one product for each parameter, and iterates its stages.
            each = each * NEWTON_ITERATIONS + self.ensemble.numbers // self.ensemble.size
        found = integrate(rule, data, solver._replace(limit=CHUNK), flows, fixed, goals, until)
        before, steps = state.memory, state.steps + found.taken
        evaluations = np.where(found.taken > 0, OPENING_GRADIENTS + each * found.taken, 0)
        memory = Times(
            found.time, before.rejected + found.rejected, before.evaluations + evaluations
        )
        spent = (found.status == Status.RUNNING) & (steps >= solver.limit)
        status = np.where(spent, Status.EXHAUSTED, found.status)
        return State(found.weights, memory, status, steps)

    def _stiff(self, before: State, after: State) -> bool:
        """Return whether stability limits the steps: mean step × sharpness above one.

        Accuracy alone needs only steps that are short compared with the time scale of the flow.
        """
        taken = after.steps - before.steps
        slow = (taken >= CHUNK) & after.running
        if not slow.any() or self.ensemble.numbers > MAX_IMPLICIT_PARAMETERS * self.ensemble.size:
            return False
        step = (self.clock(after) - self.clock(before)) / np.maximum(taken, 1)
        networks = self.ensemble.result(after.weights)
        stiffness = np.atleast_1d(sharpness(self.problem, networks, tolerance=1e-2).value)
        return bool(np.any(slow & (step * stiffness > 1)))


def _goal(until: Any, time: Any, gap: Any, slope: Any, objective: Objective) -> Goal:
    """Return where the flow ends."""
    given = [item for item in (until, time, gap, slope) if item is not None]
    if len(given) != 1:
        raise InputError(
            f"received {len(given)} of until, time, gap and gradient_norm; pass exactly one, for "
            "example until=10.0 (a time) or gap=1e-12."
        )
    if isinstance(given[0], str):
        raise InputError(f"until is the text {given[0]!r}; pass a number, or Gap(1e-12).")
    if isinstance(until, Gap):
        gap = until.value
    if isinstance(until, GradientNorm):
        slope = until.value
    if slope is not None:
        return Goal(slope=positive_number("gradient_norm", slope))
    if gap is None:
        return Goal(time=positive_number("the time to flow", given[0]))
    if not objective.has_gap:
        raise InputError(
            "a gap is R − R_min, known for linear networks on a Problem; pass a time or "
            "gradient_norm here."
        )
    return Goal(gap=positive_number("gap", gap))


def _usual_stops(goal: Goal, problem: Any, ensemble: Ensemble) -> Iterator[float]:
    """Yield the times of records that nobody stated, and the end."""
    if goal.time < HORIZON:
        return iter(np.linspace(0, goal.time, RECORDS + 1).tolist())
    found = sharpness(problem, ensemble.result(ensemble.weights), tolerance=1e-2)
    times = growing_times(float(np.max(found.value)))
    return chain(takewhile(lambda time: time < goal.time, times), [goal.time])


def growing_times(curvature: float) -> Iterator[float]:
    """Yield 0 and times from 0.01/λ_max on, each 1.25 times the one before."""
    first = 0.01 / curvature if curvature > 0 else 1.0
    return chain([0.0], (first * GROWTH**k for k in count()))


def _stops(every, at, end: float) -> Iterator[float]:
    """Yield the times at which to stop: those to record at, then `end`."""
    if every is not None and at is not None:
        raise InputError("received both record_every and at; pass one of them.")
    if every is not None:
        interval = positive_number("record_every", every)
        times = (interval * index for index in count())
        return chain(takewhile(lambda time: time < end, times), [end])
    if at is None:
        return iter([end])
    times = finite_array("at", list(at), (1,))
    if times[0] < 0 or np.any(np.diff(times) <= 0):
        raise InputError(f"at is {times.tolist()}; pass increasing times from 0 on.")
    if times[-1] > end:
        raise InputError(f"at goes to {times[-1]:g}, beyond the end of the flow at {end:g}.")
    return iter([*times.tolist(), *([end] if times[-1] < end else [])])


def _finish(flow: FlowStepper, recorder: Recorder, state: State) -> Run:
    """Return the run with its evidence."""
    end = flow.goal.time
    ensemble, objective = flow.ensemble, flow.objective
    arrived = state.status == Status.CONVERGED if end == HORIZON else flow.clock(state) >= end
    messages = ["" if ok else _message(flow, state, run) for run, ok in enumerate(arrived)]
    evidence = {
        "time": state.memory.time,
        "evaluations": state.memory.evaluations,
        "rejected": state.memory.rejected,
        "message": np.array(messages),
    }
    if ensemble.layout.network:
        network, initial = (ensemble.tree(w) for w in (state.weights, ensemble.weights))
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging run may overflow
            moved = drift(network, initial)
            weights = map(np.asarray, network.weights)
            size = np.max([np.sum(weight**2, axis=(-2, -1)) for weight in weights], axis=0)
        evidence |= {"drift": moved, "relative_drift": moved / np.where(size > 0, size, 1)}
    close = None
    if end < HORIZON and objective.has_gap:
        first = objective.values(ensemble.tree(ensemble.weights))
        close = np.where(arrived, CLOSE * first, -np.inf)
    lost = ~np.isfinite(objective.values(ensemble.tree(state.weights)))
    state = state._replace(status=np.where(lost, Status.DIVERGED, state.status))
    return finish(objective, recorder, state, close, evidence, dynamics="flow")


def _message(flow: FlowStepper, state: State, index: int) -> str:
    """Return advice for a run that did not reach its goal."""
    end = flow.goal.time
    time, steps = state.memory.time[index], state.steps[index]
    where = f"stopped at time {time:.6g} after {steps} steps"
    if state.status[index] == Status.EXHAUSTED and steps < flow.limit:
        return f"{where}: a step failed at the smallest size; raise atol or pass finite weights."
    if time >= HORIZON:
        return f"{where}: the gradient has vanished away from a minimizer; start elsewhere."
    implicit = flow.solver.method == IMPLICIT
    goal = f"the time {end:g}" if end < HORIZON else f"a gap of {flow.goal.gap:g}"
    if flow.goal.slope is not None:
        goal = f"a gradient norm of {flow.goal.slope:g}"
    elif end == HORIZON and (narrow := flow.objective.bottleneck) is not None:
        goal += f" to the smallest risk of hidden layers of width {narrow.rank}"
    stiff = "" if implicit else " if the end is stiff pass solver='implicit';"
    return (
        f"{where} ({'implicit' if implicit else 'explicit'}), before {goal}: raise max_steps (now "
        f"{flow.limit});{stiff} a gap below rounding needs a smaller rtol (now "
        f"{flow.solver.rtol:g}) or cannot be reached."
    )
