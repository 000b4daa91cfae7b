"""Gradient flow dW/dt = −∇R(W), integrated with error control, to a time or to a gap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplin.checks import InputError, finite_array, positive_number, require_float64, whole_number
from deeplin.door import door
from deeplin.dynamics.integrate import (
    EXPLICIT,
    HIGH_ORDER,
    IMPLICIT,
    MOST_IMPLICIT,
    Progress,
    evaluations,
    move,
)
from deeplin.dynamics.measure import measure
from deeplin.dynamics.objective import Objective, objective_of
from deeplin.dynamics.recording import Recorder
from deeplin.dynamics.run import CONVERGED, DIVERGED, STOPPED, Records, Run
from deeplin.interrupt import check_interrupt, hearing
from deeplin.networks import Network
from deeplin.networks.products import imbalance
from deeplin.problems import Problem
from deeplin.sharpness import sharpness

CLOSE = 1e-8
"""Without a gap to reach, a run that has shrunk its initial gap by this factor is converged."""
NEAR = 1e-4
"""Share of the initial gap below which the flow is nearly linear: there stability limits the steps,
and order 5 takes longer ones for its cost than order 8."""
HORIZON = 1e15
"""A flow that gets this far in time without reaching its gap has nowhere to go."""
PATIENCE = 1000
"""Explicit steps after which `auto` asks whether stability alone keeps the steps small."""
SOLVERS = ("auto", "explicit", "implicit", "high-order")


@dataclass(frozen=True)
class Gap:
    """`until=Gap(1e-12)`: until R − R_min is at most this."""

    value: float


@door
@hearing
def gradient_flow(
    problem: Problem | Any,
    network: Network,
    until: Any = None,
    *,
    time: float | None = None,
    gap: float | None = None,
    record_every: float | None = None,
    at: Iterable[float] | None = None,
    record: Iterable[str] | None = None,
    keep_weights: bool = True,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    solver: str = "auto",
    max_steps: int = 50_000,
) -> Run:
    """Follow the gradient flow dW/dt = −∇R(W) of a network, or of a batch of them (FM-grad, FM-L1).

    Arguments:

    - `problem`: a `Problem`, or any differentiable `loss(network) -> scalar`.
    - `until`: a number is a time; `Gap(1e-12)` is a gap R − R_min (linear networks). `time=` and
      `gap=` say the same in words; pass one of the three.
    - `record_every`, `at`: times to record at, evenly spaced or given. Steps end exactly there,
      nothing is interpolated. Recorded are the quantities of descent, with `time` for `step`.
    - `record`, `keep_weights`: which quantities, and whether `run.trajectory` keeps the weights.
    - `rtol`, `atol`: local error allowed in each step, relative and absolute.
    - `solver`: `"explicit"` (Tsitouras 5(4)), `"implicit"` (Kværnø 5(4), for stiff ends of
      training), `"auto"` (explicit, then implicit once stability alone limits the steps), or
      `"high-order"` (Dormand–Prince 8(7) until the gap has shrunk 10⁴ times, then Tsitouras 5(4)):
      the fewest gradients, for the price of compiling two solvers.
    - `max_steps`: the most steps, rejected ones included.

    The run's evidence: `gap` (or `risk`) at the end, `time`, `evaluations` of the gradient (for
    implicit steps an upper bound), `rejected` steps, `drift` and `relative_drift` of the conserved
    matrices of FM-L1, and a `message` that says what to change if the goal was not reached (status
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
    if not isinstance(network, Network):
        raise InputError(f"network is a {type(network).__name__}; pass a deeplin.Network.")
    require_float64("gradient flow", network.weights)
    batch = network.with_batch()
    objective = objective_of(problem, batch)
    end, goal = _until(until, time, gap, objective)
    times = _times(record_every, at, end)
    if solver not in SOLVERS:
        raise InputError(f"solver is {solver!r}; pass one of {', '.join(SOLVERS)}.")
    tolerances = (positive_number("rtol", rtol), positive_number("atol", atol, zero_allowed=True))
    limit = whole_number("max_steps", max_steps)
    every = None if times is None else 1
    recorder = Recorder(problem, objective, batch, every, record, keep_weights)
    flow = _Flow(problem, objective, goal, tolerances, solver, limit, Progress.start(batch))
    for moment in times or iter([end]):
        flow.advance(min(moment, end))
        reached = min(moment, flow.clock)
        recorder.note(reached, flow.progress.network)  # pyright: ignore[reportArgumentType]
        if flow.finished or moment >= end:
            break
    return _finish(flow, recorder, end, network.batch is None)


class _Flow:
    """A batch on its way, and the solver it is on."""

    def __init__(self, problem, objective, goal, tolerances, solver, limit, progress: Progress):
        self.problem, self.objective, self.goal = problem, objective, goal
        self.tolerances, self.limit, self.progress = tolerances, limit, progress
        self.initial = progress.network
        self.method = IMPLICIT if solver == "implicit" else EXPLICIT
        self.high_order = solver == "high-order"
        self.may_switch = solver == "auto"
        self.evaluations = np.zeros(progress.time.shape, int)

    @property
    def clock(self) -> float:
        """The latest time any run has reached."""
        return float(np.max(self.progress.time))

    @property
    def finished(self) -> bool:
        """Whether no run can go on: goals reached, steps used up, or solvers given up."""
        now = self.progress
        return bool(np.all(now.reached | now.failed | (now.steps >= self.limit)))

    def advance(self, until: float) -> None:
        """Take every run that still moves to the time `until`."""
        if self.high_order:
            near = NEAR * _gaps(self.objective, self.initial)
            self._advance(HIGH_ORDER, until, np.maximum(near, self.goal))
            self.progress = self.progress._replace(reached=np.zeros_like(self.progress.reached))
        self._advance(self.method, until, self.goal)

    def _advance(self, method: str, until: float, goal: Any) -> None:
        """Take every run that still moves to the time `until` or to `goal`."""
        while not self.finished and np.any(self._moving(until)):
            before = self.progress
            self.progress = move(
                method, self.objective, before, until, goal, self.limit, self.tolerances
            )
            check_interrupt()
            taken = self.progress.steps - before.steps
            self.evaluations += evaluations(method, self.progress.network, taken)
            if self.may_switch and self._stiff(before):
                self.method = method = IMPLICIT
                self.may_switch = False

    def _moving(self, until: float) -> np.ndarray:
        now = self.progress
        return ~now.reached & ~now.failed & (now.steps < self.limit) & (now.time < until)

    def _stiff(self, before: Progress) -> bool:
        """Whether steps are as long as stability allows: mean step × sharpness above one.

        Following the flow itself needs steps short against its own time scale only.
        """
        now = self.progress
        slow = (now.steps - before.steps >= PATIENCE) & ~now.reached
        size = sum(weight[0].size for weight in now.network.weights)
        if not slow.any() or size > MOST_IMPLICIT:
            return False
        step = (now.time - before.time) / np.maximum(now.steps - before.steps, 1)
        stiffness = np.asarray(sharpness(self.problem, now.network, tolerance=1e-2).value)
        return bool(np.any(slow & (step * stiffness > 1)))


def _gaps(objective: Objective, batch: Network) -> Any:
    """R − R_min of each run; −∞ where it is not known, so that nothing is above it."""
    return measure(objective, batch, batch, ("gap",))["gap"] if objective.has_gap else -np.inf


def _until(until: Any, time, gap, objective: Objective) -> tuple[float, float]:
    """The time to stop at and the gap to stop at (the unused one out of reach)."""
    if isinstance(until, dict) and len(until) == 1 and next(iter(until)) in ("time", "gap"):
        kind, value = next(iter(until.items()))
        until = Gap(value) if kind == "gap" else value
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


def _times(every, at, end: float) -> Iterator[float] | None:
    """The times to record at, ending at `end` or with the goal; None to record nothing."""
    if every is not None and at is not None:
        raise InputError("received both record_every and at; pass one of them.")
    if every is not None:
        interval = positive_number("record_every", every)
        return (interval * index for index in count())
    if at is None:
        return None
    moments = finite_array("at", list(at), (1,))
    if moments[0] < 0 or np.any(np.diff(moments) <= 0):
        raise InputError(f"at is {moments.tolist()}; pass increasing times from 0 on.")
    if end < HORIZON and moments[-1] > end:
        raise InputError(f"at goes to {moments[-1]:g}, beyond the end of the flow at {end:g}.")
    return iter([*moments.tolist(), *([end] if moments[-1] < end else [])])


def _finish(flow: _Flow, recorder: Recorder, end: float, single: bool) -> Run:
    """Put together the run and its evidence; plain values for a single network."""
    now, initial = flow.progress, recorder.initial
    names = ("risk", "gap") if flow.objective.has_gap else ("risk",)
    measured = measure(flow.objective, now.network, initial, names)
    lost = ~np.isfinite(measured["risk"])
    arrived = now.reached if end == HORIZON else now.time >= end
    status = np.where(lost, DIVERGED, np.where(arrived, CONVERGED, STOPPED))
    if end < HORIZON and flow.objective.has_gap:
        close = measured["gap"] <= CLOSE * _gaps(flow.objective, initial)
        status = np.where((status == CONVERGED) & ~close, STOPPED, status)
    elif end < HORIZON:
        status = np.where(status == CONVERGED, STOPPED, status)
    message = [_message(flow, end, bool(ok), index) for index, ok in enumerate(arrived)]
    drift, relative = (np.asarray(item) for item in _drift(now.network, initial))
    evidence = measured | {
        "time": now.time,
        "evaluations": flow.evaluations,
        "rejected": now.rejected,
        "drift": drift,
        "relative_drift": relative,
        "message": np.array(message),
    }

    def member(values):
        return np.asarray(values)[0].item() if single else np.asarray(values)

    def one(batch: Network) -> Network:
        return jax.tree.map(lambda leaf: leaf[0], batch) if single else batch

    columns = dict(recorder.records(single))
    if columns:
        columns = {"time": columns.pop("step")} | columns
    return Run(
        network=one(now.network),
        initial=one(initial),
        status=member(status),
        steps=member(now.steps),
        records=Records(columns),
        trajectory=recorder.trajectory(single),
        evidence={name: member(values) for name, values in evidence.items()},
    )


def _message(flow: _Flow, end: float, arrived: bool, index: int) -> str:
    """What to change when a run did not get where it should; empty if it did."""
    now = flow.progress
    if arrived:
        return ""
    where = f"stopped at time {now.time[index]:.6g} after {now.steps[index]} steps"
    if now.failed[index]:
        return f"{where}: a step failed at the smallest size; raise atol or pass finite weights."
    if end == HORIZON and now.time[index] >= HORIZON:
        return f"{where}: the gradient has vanished away from a minimiser; start elsewhere."
    implicit = flow.method == IMPLICIT
    goal = f"a gap of {flow.goal:g}" if end == HORIZON else f"the time {end:g}"
    stiff = "" if implicit else " if the end is stiff pass solver='implicit';"
    return (
        f"{where} ({'implicit' if implicit else 'explicit'}), before {goal}: raise max_steps (now "
        f"{flow.limit});{stiff} a gap below rounding needs a smaller rtol (now "
        f"{flow.tolerances[0]:g}) or cannot be reached."
    )


@jax.jit
def _drift(networks: Network, initial: Network):
    """max_k ‖D_k − D_k(0)‖_F and the same relative to max_k ‖W_k‖² (FM-L1)."""

    def one(network, start):
        pairs = zip(imbalance(network.weights), imbalance(start.weights), strict=True)
        changes = [jnp.linalg.norm(now - then) for now, then in pairs]
        drift = jnp.max(jnp.stack([jnp.zeros(()), *changes]))
        size = jnp.max(jnp.stack([jnp.sum(weight**2) for weight in network.weights]))
        return drift, drift / jnp.where(size > 0, size, 1)

    return jax.vmap(one)(networks.with_batch(), initial.with_batch())
