"""Networks of any width, trained exactly at the cost of a network of width rank(X) + q (X-4)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from deeplin.dynamics.descent import BLOW_UP
from deeplin.dynamics.flow import gradient_flow
from deeplin.dynamics.recording import steps_to_record
from deeplin.dynamics.reduced_start import Cases, ReducedStart, cases_of
from deeplin.dynamics.reduction import in_coordinates
from deeplin.dynamics.run import DIVERGED, Run
from deeplin.dynamics.update import check_momentum, key_words
from deeplin.dynamics.wide_descent import Descent, Task, descend
from deeplin.dynamics.wide_run import Layers, Observed, UnstableStep, WideRun
from deeplin.errors import InputError, positive_number, validated, whole_number
from deeplin.execution import interruptible, map_in_threads
from deeplin.networks import Network
from deeplin.networks.products import product
from deeplin.problems import Problem
from deeplin.problems.population import Population

GROWTH, OBSERVATIONS = 1.25, 150
"""A flow is observed at times that grow by this factor: they span fourteen decades."""


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
    """The cases with the rates asked for, and a warning where those are above the stable limit."""
    curvatures = [start.curvature() / start.problem.outputs for start in cases.starts]
    limits = (2 + 2 * momentum) / np.maximum(curvatures, np.finfo(float).tiny)
    if share is not None:
        shares = cases.spread("stable_share", share)
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


def _descend(cases: Cases, options: _Options) -> WideRun:
    """Full-batch gradient descent on the mean loss R/q, that is with step η/q on R."""
    problems = [start.problem for start in cases.starts]
    q, n, rates = problems[0].outputs, problems[0].samples, cases.rates / problems[0].outputs
    stops = list(steps_to_record(options.record_every or options.max_steps, options.max_steps))

    def train(run: int) -> list[Descent]:
        start, problem = cases.starts[run], problems[run]
        eigenvalues, _, optimum = problem.spectrum
        goal, rate = q * options.loss_target, float(rates[run])
        task = Task(eigenvalues, optimum, rate, options.momentum, goal, ceiling=np.inf)
        risk, _ = task.value_and_gradient(product(start.layers))
        ceiling = BLOW_UP * max(risk, problem.target_moment)
        return descend(start.layers, task._replace(ceiling=ceiling), stops)

    runs = map_in_threads(train, range(len(problems)))
    length, last = max(map(len, runs)), max(states[-1].steps for states in runs)
    when = np.minimum(stops[:length], last)
    records = [[states[min(k, len(states) - 1)] for states in runs] for k in range(length)]
    risk, path = (
        np.array([[getattr(state, name) for state in record] for record in records])
        for name in ("risk", "path")
    )
    # In BO's time a step on the mean loss lasts η/(nq), and √ℒ = √(nR).
    path = path * rates / n * np.sqrt(n)
    layers = [_together([state.weights for state in record]) for record in records]
    each = {
        "status": [states[-1].status for states in runs],
        "steps": [states[-1].steps for states in runs],
        "learning_rate": rates.tolist(),
    }
    return WideRun(cases, Observed(when, layers, risk, path), each, momentum=options.momentum)


def _together(members: Sequence[tuple[np.ndarray, ...]]) -> Layers:
    """The reduced layers of all runs; zeros, which training keeps, pad those of smaller width."""
    stacked = []
    for layers in zip(*members, strict=True):
        whole = np.zeros((len(layers), *np.max([layer.shape for layer in layers], axis=0)))
        for run, layer in enumerate(layers):
            whole[run, : len(layer), : layer.shape[1]] = layer
        stacked.append(whole)
    return tuple(stacked)


def _flow(cases: Cases, options: _Options) -> WideRun:
    """Gradient flow dW/dt = −∇R to the same loss, observed at geometrically spaced times."""
    sharpest = max(start.curvature() for start in cases.starts)
    first = 0.01 / sharpest if sharpest > 0 else 1.0
    times = [0.0, *(first * GROWTH**k for k in range(OBSERVATIONS))]
    runs = map_in_threads(lambda start: _flow_of(start, options, times), cases.starts)
    length = max(len(run.records["time"]) for run in runs)
    kept = np.array(sorted({*range(0, length, options.record_every or length), length - 1}))
    pairs = zip(runs, cases.starts, strict=True)
    columns = zip(*(_observed(run, start.layers, kept) for run, start in pairs), strict=True)
    members, *others = columns
    when, risk, path = (np.stack(column, 1) for column in others)
    layers = [_together(at_one_record) for at_one_record in zip(*members, strict=True)]
    # In the time of dW/dt = −∇ℒ, n times faster, with √ℒ = √(nR), ∫√ℒ is 1/√n of ∫√R dt.
    path = path / np.sqrt(cases.starts[0].problem.samples)
    each = {
        "status": [run.status for run in runs],
        "steps": [run.steps for run in runs],
        "time": when[-1].tolist(),
    }
    observed = Observed(when.max(axis=1), layers, risk, path)
    return WideRun(cases, observed, each, dynamics="flow")


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


def _observed(run: Run, start: tuple[np.ndarray, ...], kept: np.ndarray) -> tuple:
    """Layers, time, R and ∫√R dt of a flow at the records that are kept.

    A flow that stopped earlier repeats its end.
    """
    times, risks = run.records["time"], np.maximum(run.records["gap"], 0.0)
    path = _log_linear_integral(times, np.sqrt(risks))
    at = np.minimum(kept, len(times) - 1)
    layers = [start, tuple(map(np.asarray, run.network.weights))]
    if run.trajectory is not None:
        layers = [tuple(np.asarray(w[k]) for w in run.trajectory.weights) for k in at]
    return layers, times[at], risks[at], path[at]


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
