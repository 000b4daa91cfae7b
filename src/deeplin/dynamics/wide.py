"""Networks of any width, trained exactly at the cost of a network of width rank(X) + q (X-4)."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, NamedTuple

import numpy as np

from deeplin.checks import InputError, positive_number, whole_number
from deeplin.door import door
from deeplin.dynamics.descent import BLOW_UP
from deeplin.dynamics.flow import gradient_flow
from deeplin.dynamics.rank_kernel import Descent, steps_within
from deeplin.dynamics.reduction import in_coordinates
from deeplin.dynamics.run import CONVERGED, DIVERGED, STOPPED
from deeplin.dynamics.wide_run import Moment, Outcome, UnstableStep, WideRun
from deeplin.dynamics.width_free import ReducedStart, key_words
from deeplin.interrupt import check_interrupt, hearing
from deeplin.kernels.compiling import thread_count
from deeplin.kernels.wide import BROKEN, REACHED, RUNNING
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.problems.population import Population

GROWTH, OBSERVATIONS = 1.25, 150
"""A flow is observed at times that grow by this factor: they span fourteen decades."""
PATIENCE = 0.1
"""Seconds of compiled work between two looks at the keyboard (Ctrl-C)."""


class Case(NamedTuple):
    """One run to be simulated."""

    start: ReducedStart
    learning_rate: float
    population: Population | None


class Rules(NamedTuple):
    """What every run obeys."""

    loss_target: float
    max_steps: int
    momentum: float
    record_every: int | None


@door
@hearing
def simulate_wide(
    problem: Problem | Sequence[Problem],
    width: Any,
    depth: int,
    alpha: Any,
    beta: Any,
    key: Any,
    *,
    learning_rate: Any = 1e-4,
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
    - `key`: one key, or a batch of keys for a batch of runs.
    - `dynamics`: `"descent"` with `learning_rate` on the mean squared error over the n·q entries,
      or `"flow"`; both until that mean is at most `loss_target`, or for `max_steps` steps.
    - `population`: where the data come from; `wide.risk` is then the exact excess risk.
    - `record_every`: steps between records; for flow, keep every so many of the times at which it
      is observed (each a quarter later than the one before). See `WideRun.records`.

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
    words = key_words(key)
    single = words.ndim == 1 and isinstance(problem, Problem)
    cases = _cases(
        problem, words, population, depth, width=width, alpha=alpha, beta=beta, rate=learning_rate
    )
    rules = _rules(dynamics, loss_target, max_steps, momentum, record_every)
    outcomes = _on_all_cores(DYNAMICS[dynamics], cases, rules)
    wide = WideRun(tuple(outcomes), single, dynamics, rules.momentum)
    if np.any(np.atleast_1d(wide.status) == DIVERGED):
        warnings.warn(wide.message, UnstableStep, stacklevel=4)
    return wide


def _rules(dynamics: str, loss_target, max_steps, momentum, record_every) -> Rules:
    rules = Rules(
        positive_number("loss_target", loss_target, zero_allowed=True),
        whole_number("max_steps", max_steps),
        positive_number("momentum", momentum, zero_allowed=True),
        None if record_every is None else whole_number("record_every", record_every),
    )
    if rules.momentum >= 1:
        raise InputError(f"momentum is {momentum:g}; pass a number from 0 up to but below 1.")
    if dynamics not in DYNAMICS:
        raise InputError(f"dynamics is {dynamics!r}; pass 'descent' or 'flow'.")
    if dynamics == "flow" and rules.momentum:
        raise InputError("a flow has no momentum; pass momentum=0, or dynamics='descent'.")
    return rules


def _cases(problem, words, population, depth, **values) -> list[Case]:
    """One case for each run, after checking what was passed."""
    problems = [problem] if isinstance(problem, Problem) else list(problem)
    for given in problems:
        _check_interpolates(given)
    if len({(p.samples, p.dimension, p.outputs) for p in problems}) != 1:
        raise InputError("the problems differ in shape; pass problems of one shape in each call.")
    keys = np.atleast_2d(words)
    runs = max(len(problems), len(keys))
    L = whole_number("depth", depth, minimum=2)
    problems = _spread("problem", problems, runs)
    keys = _spread("key", list(keys), runs)
    populations = _populations(population, problems)
    widths = [whole_number("width", m) for m in _spread("width", values["width"], runs)]
    alphas, betas = (
        [positive_number(name, v, zero_allowed=True) for v in _spread(name, values[name], runs)]
        for name in ("alpha", "beta")
    )
    rates = [
        positive_number("learning_rate", v) for v in _spread("learning_rate", values["rate"], runs)
    ]
    starts = [
        ReducedStart.draw(p, k, width=m, depth=L, alpha=a, beta=b)
        for p, k, m, a, b in zip(problems, keys, widths, alphas, betas, strict=True)
    ]
    return [Case(*case) for case in zip(starts, rates, populations, strict=True)]


def _spread(name: str, values: Any, runs: int) -> list:
    """One value for each run."""
    listed = values if isinstance(values, list) else np.atleast_1d(values).tolist()
    if len(listed) not in (1, runs):
        raise InputError(
            f"{name} holds {len(listed)} values for {runs} run(s); pass one, or one for each run."
        )
    return listed if len(listed) == runs else listed * runs


def _populations(population, problems: list[Problem]) -> list[Population | None]:
    if population is None:
        return [None] * len(problems)
    given = [population] if isinstance(population, Population) else list(population)
    spread = _spread("population", given, len(problems))
    for source, problem in zip(spread, problems, strict=True):
        if source.optimum.shape != (problem.dimension, problem.outputs):
            raise InputError(
                f"the population has Θ* of shape {source.optimum.shape} and the problem "
                f"{problem.dimension} inputs and {problem.outputs} output(s); pass matching ones."
            )
    return spread


def _check_interpolates(problem: Problem) -> None:
    """d > n and XXᵀ invertible: only then is there a minimum-norm interpolant (BO-A5)."""
    n, d = problem.samples, problem.dimension
    if d <= n:
        raise InputError(
            f"the problem has {d} inputs and {n} samples; interpolation of arbitrary targets needs "
            "more inputs than samples. Pass fewer samples, or use gradient_descent."
        )
    if problem.rank < n:
        raise InputError(
            f"XXᵀ is singular: the {n} rows of X have rank {problem.rank}. Remove repeated or "
            "dependent rows."
        )


def _on_all_cores(simulate: Callable, cases: list[Case], rules: Rules) -> list[Outcome]:
    """Simulate every case, in threads (the compiled kernel lets go of the interpreter)."""
    stop = threading.Event()
    if len(cases) == 1:
        return [simulate(cases[0], rules, stop)]
    with ThreadPoolExecutor(thread_count()) as pool:
        # In a copy of the caller's context, so that `check_interrupt` hears what the caller hears.
        contexts = [copy_context() for _ in cases]
        try:
            return list(
                pool.map(lambda own, case: own.run(simulate, case, rules, stop), contexts, cases)
            )
        except BaseException:
            stop.set()  # running cases end within PATIENCE, waiting ones do not begin
            pool.shutdown(cancel_futures=True)
            raise


def _descend(case: Case, rules: Rules, stop: threading.Event) -> Outcome:
    """Full-batch gradient descent on the mean loss R/q, that is with step η/q on R."""
    start, q = case.start, case.start.problem.outputs
    problem, rate = start.problem, case.learning_rate / q
    # In BO's time a step on the mean loss lasts η/(nq), and √ℒ = √(nR).
    per_root = rate / problem.samples * np.sqrt(problem.samples)
    descent = Descent.begin(
        start.layers,
        problem.spectrum.eigenvalues,
        problem.spectrum.coordinates,
        momentum=rules.momentum,
    )

    def moment() -> Moment:
        return Moment(descent.steps, tuple(descent.layers), descent.risk, per_root * descent.path)

    descent.advance(0, rate)
    moments = [moment()]
    ceiling = BLOW_UP * max(descent.risk, problem.target_moment)
    piece = steps_within(PATIENCE, descent.weights.size, q)
    every = rules.record_every or rules.max_steps
    while True:
        pause = min(every * len(moments), rules.max_steps)
        while descent.outcome == RUNNING and descent.steps < pause and not stop.is_set():
            descent.advance(
                min(pause, descent.steps + piece),
                rate,
                momentum=rules.momentum,
                goal=q * rules.loss_target,
                ceiling=ceiling,
            )
            check_interrupt()
        moments.append(moment())
        if descent.outcome != RUNNING or pause == rules.max_steps or stop.is_set():
            break
    status = {RUNNING: STOPPED, REACHED: CONVERGED, BROKEN: DIVERGED}[descent.outcome]
    return Outcome(start, case.learning_rate, case.population, moments, status, descent.steps)


def _flow(case: Case, rules: Rules, _stop: threading.Event) -> Outcome:
    """Gradient flow dW/dt = −∇R to the same loss, observed at geometrically spaced times."""
    start, q = case.start, case.start.problem.outputs
    n = start.problem.samples
    problem = in_coordinates(start.problem, start.problem.spectrum.vectors)
    curvature = start.curvature()
    first = 0.01 / curvature if curvature > 0 else 1.0
    run = gradient_flow(
        problem,
        Network(start.layers),
        gap=max(q * rules.loss_target - problem.minimal_risk, np.finfo(float).tiny),
        at=[0.0, *(first * GROWTH**k for k in range(OBSERVATIONS))],
        record=("gap",),
        keep_weights=rules.record_every is not None,
        rtol=1e-9,
        atol=1e-12,
        max_steps=rules.max_steps,
    )
    times, gaps = run.records["time"], np.maximum(run.records["gap"], 0.0)
    # In the time of dW/dt = −∇ℒ, which is n times faster, and with √ℒ = √(nR).
    path = _log_linear_integral(times, np.sqrt(gaps)) / np.sqrt(n)
    kept = [0, len(times) - 1]
    if run.trajectory is not None:
        kept = sorted({*range(0, len(times), rules.record_every or 1), len(times) - 1})
        weights = [tuple(np.asarray(w[k]) for w in run.trajectory.weights) for k in kept]
    else:
        weights = [start.layers, tuple(map(np.asarray, run.network.weights))]
    moments = [
        Moment(times[k], layers, float(gaps[k]), path[k])
        for k, layers in zip(kept, weights, strict=True)
    ]
    return Outcome(start, np.nan, case.population, moments, run.status, run.steps)


def _log_linear_integral(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """∫_0^t f at each time for f > 0 that decays like a sum of exponentials.

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
