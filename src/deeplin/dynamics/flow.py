"""Gradient flow dW/dt = −∇R(W), integrated with error control, to a time or to a gap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from deeplin.dynamics.engine import State, Status, Stepper, Visited
from deeplin.dynamics.flow_limit import (
    EXPLICIT,
    HIGH_ORDER,
    HORIZON,
    IMPLICIT,
    NEWTON_ITERATIONS,
    Flows,
    Solver,
    integrate,
)
from deeplin.dynamics.objective import Ensemble, Objective, objective_of
from deeplin.dynamics.quantities import Quantities
from deeplin.dynamics.run import CLOSE, Recorder, Run, drive, finish
from deeplin.errors import (
    InputError,
    finite_array,
    positive_number,
    require_float64,
    validated,
    whole_number,
)
from deeplin.execution import check_interrupt, interruptible
from deeplin.hessian import sharpness
from deeplin.networks import Loss, Network, explain_loss_errors
from deeplin.networks.products import drift
from deeplin.problems import Problem

NEARLY_LINEAR = 1e-4
"""Fraction of the initial gap below which the flow is nearly linear: stability then limits the
steps, and order 5 is more efficient than order 8."""
SOLVERS = ("auto", "explicit", "implicit", "high-order")
CHUNK = 1000
"""Maximum number of steps in one compiled call, so that Ctrl-C works."""
MAX_IMPLICIT_PARAMETERS = 1000
"""Number of parameters up to which implicit steps are used: they solve linear systems."""
STAGES = {HIGH_ORDER: 13, EXPLICIT: 6, IMPLICIT: 6}
"""Number of new stages of a step (the first stage is the last one of the step before)."""
TOLERANCE_FACTOR = {HIGH_ORDER: 100, EXPLICIT: 1, IMPLICIT: 1}
"""Factors of the tolerances. The high-order pair continues from the more accurate of its two
results and estimates the error of the other: with 100 times the tolerance its true error is still
below that of the pair of order 5 (tests/dynamics/test_flow.py)."""
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
    """`until=Gap(1e-12)`: until R − R_min is at most this."""

    value: float


@validated
@interruptible
def gradient_flow(
    problem: Problem | Loss,
    network: Any,
    until: Any = None,
    *,
    time: float | None = None,
    gap: float | None = None,
    record_every: float | None = None,
    at: Iterable[float] | None = None,
    record: Iterable[Any] | None = None,
    keep_weights: bool = True,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    solver: str = "auto",
    max_steps: int = 50_000,
) -> Run:
    """Integrate the gradient flow dW/dt = −∇R(W) of a network or a batch (FM-grad, FM-L1).

    Arguments:

    - `problem`, `network`: a `Problem` and a network (or a batch); or any differentiable
      `loss(parameters) -> scalar` and any pytree, whose floating arrays move.
    - `until`: a number is a time; `Gap(1e-12)` is a gap R − R_min (linear networks). `time=` and
      `gap=` are the same by name; pass one of the three.
    - `record_every`, `at`: times to record at, evenly spaced or given. Steps end exactly at these
      times, without interpolation. The quantities are those of descent, with `time` in place of
      `step`.
    - `record`, `keep_weights`: which quantities, and whether `run.trajectory` keeps the weights.
    - `rtol`, `atol`: local error allowed in each step, relative and absolute.
    - `solver`: `"explicit"` (Tsitouras 5(4)), `"implicit"` (Kværnø 5(4), for stiff ends of
      training), `"auto"` (explicit, then implicit once stability alone limits the steps), or
      `"high-order"` (Dormand–Prince 8(7) until the gap has shrunk 10⁴ times, then Tsitouras 5(4)):
      the fewest gradients, at the cost of compiling two solvers.
    - `max_steps`: maximum number of steps, including rejected ones.

    The run's evidence: `gap` (or `risk`) at the end, `time`, `evaluations` of the gradient (for
    implicit steps an upper bound), `rejected` steps, `drift` and `relative_drift` of the conserved
    matrices of FM-L1 (networks), and a `message` with advice if the goal was not reached (status
    `stopped`). A run to a time is `converged` if it ends with R − R_min ≤ 1e-8 (R(0) − R_min).

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    run = dl.gradient_flow(problem, net, until=dl.Gap(1e-6))
    run.evidence["time"], run.evidence["evaluations"], run.evidence["drift"]
    ```
    """
    if isinstance(problem, Problem) and not isinstance(network, Network):
        raise InputError(
            f"network is a {type(network).__name__}; pass a deeplin.Network "
            "(deeplin.from_torch makes one of a PyTorch module)."
        )
    ensemble = Ensemble.of(network)
    require_float64("gradient flow", ensemble.weights)
    objective = objective_of(problem, ensemble.tree(ensemble.weights), ensemble.layout)
    with explain_loss_errors(problem, network):
        abs(objective.evidence(ensemble.tree(ensemble.weights))["risk"])  # it must be a number
    end, goal = _until(until, time, gap, objective)
    stops = _stops(record_every, at, end)
    if solver not in SOLVERS:
        raise InputError(f"solver is {solver!r}; pass one of {', '.join(SOLVERS)}.")
    tolerances = (positive_number("rtol", rtol), positive_number("atol", atol, zero_allowed=True))
    limit = whole_number("max_steps", max_steps)
    measured = Quantities(problem, objective, ensemble, record)
    measured = None if record_every is None and at is None else measured
    recorder = Recorder(ensemble, measured, keep_weights=keep_weights, unit="time")
    flow = FlowStepper(problem, objective, ensemble, goal, Solver(solver, *tolerances, limit))
    state = drive(flow, flow.start(), stops, recorder)
    return _finish(flow, recorder, state, end)


class FlowStepper(Stepper):
    """Gradient flow of a batch as a `Stepper`, with its current solver."""

    def __init__(self, problem, objective, ensemble: Ensemble, goal: float, solver: Solver):
        self.problem, self.objective, self.ensemble = problem, objective, ensemble
        self.goal, self.limit = goal, solver.limit
        self.may_switch = solver.method == "auto"
        self.near = None
        if solver.method == "high-order":
            self.near = np.maximum(
                NEARLY_LINEAR * _gaps(objective, ensemble, ensemble.weights), goal
            )
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
                check_interrupt()
                if not np.any(state.running & (self.clock(state) < stop)):
                    break
            visited.append(tuple(map(np.asarray, state.weights)))
            if not state.running.any():
                break
        weights = tuple(map(np.stack, zip(*visited, strict=True)))
        return state, Visited(len(visited), weights, None)

    def _towards(self, state: State, until: float) -> State:
        """Advance every running flow towards the time `until`, by at most CHUNK steps."""
        if self.near is not None:
            gaps = _gaps(self.objective, self.ensemble, state.weights)
            if np.any(state.running & ~(gaps <= self.near) & (self.clock(state) < until)):
                return self._far(state, until)
        after = self._move(self.solver, state, until, self.goal)
        if self.may_switch and self._stiff(state, after):
            self.solver = self.solver._replace(method=IMPLICIT)
            self.may_switch = False
        return after

    def _move(self, solver: Solver, state: State, until: float, goal: Any) -> State:
        """Advance each run towards the time `until`, stopping at its goal, and count the work."""
        rtol, atol = (TOLERANCE_FACTOR[solver.method] * item for item in (solver.rtol, solver.atol))
        goals = np.broadcast_to(goal, state.steps.shape)
        nothing = np.zeros_like(state.steps)
        flows = Flows(state.weights, state.memory.time, nothing, nothing, state.status)
        rule, data, fixed = self.objective.gradient, self.objective.data, self.ensemble.fixed
        each = STAGES[solver.method]
        if solver.method == IMPLICIT:
            # A step forms the Hessian by one product for each parameter, and iterates its stages.
            each = each * NEWTON_ITERATIONS + self.ensemble.numbers // self.ensemble.size
        piece = Solver(solver.method, rtol, atol, CHUNK)
        found = integrate(rule, data, piece, flows, fixed, goals, until)
        before, steps = state.memory, state.steps + found.taken
        evaluations = np.where(found.taken > 0, OPENING_GRADIENTS + each * found.taken, 0)
        memory = Times(
            found.time, before.rejected + found.rejected, before.evaluations + evaluations
        )
        spent = (found.status == Status.RUNNING) & (steps >= solver.limit)
        status = np.where(spent, Status.EXHAUSTED, found.status)
        return State(found.weights, memory, status, steps)

    def _far(self, state: State, until: float) -> State:
        """Integrate with the high-order pair each run that is not yet near its end."""
        solver = self.solver._replace(method=HIGH_ORDER)
        after = self._move(solver, state, until, self.near)
        gaps = _gaps(self.objective, self.ensemble, after.weights)
        early = (after.status == Status.CONVERGED) & (gaps > self.goal)
        return after._replace(status=np.where(early, Status.RUNNING, after.status))

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


def _gaps(objective: Objective, ensemble: Ensemble, weights: tuple) -> np.ndarray:
    """Return R − R_min of each run, or −∞ where it is unknown."""
    if not objective.has_gap:
        return np.full(ensemble.size, -np.inf)
    return objective.values(ensemble.tree(weights))


def _until(until: Any, time, gap, objective: Objective) -> tuple[float, float]:
    """Return the time and the gap at which to stop; the unused one is out of reach."""
    if isinstance(until, dict) and set(until) in ({"time"}, {"gap"}):
        until = Gap(until["gap"]) if "gap" in until else until["time"]
    given = [item for item in (until, time, gap) if item is not None]
    if len(given) != 1:
        raise InputError(
            f"received {len(given)} of until, time and gap; pass exactly one, for example "
            "until=10.0 (a time) or gap=1e-12."
        )
    if isinstance(until, Gap):
        gap = until.value
    if gap is None:
        return positive_number("the time to flow", given[0]), -np.inf
    if not objective.has_gap:
        raise InputError(
            "a gap is R − R_min, known for linear networks on a Problem; pass a time here."
        )
    return HORIZON, positive_number("gap", gap)


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


def _finish(flow: FlowStepper, recorder: Recorder, state: State, end: float) -> Run:
    """Return the run with its evidence."""
    ensemble, objective = flow.ensemble, flow.objective
    arrived = state.status == Status.CONVERGED if end == HORIZON else flow.clock(state) >= end
    messages = ["" if ok else _message(flow, state, end, run) for run, ok in enumerate(arrived)]
    evidence = {
        "time": state.memory.time,
        "evaluations": state.memory.evaluations,
        "rejected": state.memory.rejected,
        "message": np.array(messages),
    }
    if ensemble.layout.network:
        weights, initial = (list(map(np.asarray, w)) for w in (state.weights, ensemble.weights))
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging run may overflow
            moved = drift(weights, initial)
            size = np.max([np.sum(weight**2, axis=(-2, -1)) for weight in weights], axis=0)
        evidence |= {"drift": moved, "relative_drift": moved / np.where(size > 0, size, 1)}
    close = None
    if end < HORIZON and objective.has_gap:
        close = np.where(arrived, CLOSE * _gaps(objective, ensemble, ensemble.weights), -np.inf)
    lost = ~np.isfinite(objective.values(ensemble.tree(state.weights)))
    state = state._replace(status=np.where(lost, Status.DIVERGED, state.status))
    return finish(objective, recorder, state, close, evidence, dynamics="flow")


def _message(flow: FlowStepper, state: State, end: float, index: int) -> str:
    """Return advice for a run that did not reach its goal."""
    time, steps = state.memory.time[index], state.steps[index]
    where = f"stopped at time {time:.6g} after {steps} steps"
    if state.status[index] == Status.EXHAUSTED and steps < flow.limit:
        return f"{where}: a step failed at the smallest size; raise atol or pass finite weights."
    if end == HORIZON and time >= HORIZON:
        return f"{where}: the gradient has vanished away from a minimizer; start elsewhere."
    implicit = flow.solver.method == IMPLICIT
    goal = f"a gap of {flow.goal:g}" if end == HORIZON else f"the time {end:g}"
    stiff = "" if implicit else " if the end is stiff pass solver='implicit';"
    return (
        f"{where} ({'implicit' if implicit else 'explicit'}), before {goal}: raise max_steps (now "
        f"{flow.limit});{stiff} a gap below rounding needs a smaller rtol (now "
        f"{flow.solver.rtol:g}) or cannot be reached."
    )
