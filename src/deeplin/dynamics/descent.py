"""Gradient descent of a network, or of a batch of networks, in one call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from deeplin.dynamics.engine import Descent, State, StoppingCriteria
from deeplin.dynamics.objective import Ensemble, Objective, objective_of, with_samples
from deeplin.dynamics.quantities import Quantities
from deeplin.dynamics.run import CLOSE, Recorder, Run, Watch, drive, finish, steps_to_record
from deeplin.dynamics.update import Batches, Rates, update_of
from deeplin.errors import InputError, positive_number, validated, whole_number
from deeplin.execution import interruptible
from deeplin.networks import Loss, Network, explain_loss_errors
from deeplin.problems import Problem

BLOW_UP = 1e10
"""A run has diverged when its risk exceeds its initial risk (or that of the zero map) this many
times."""
ALTERNATES = 1e-3
"""Relative change of the risk in one step, reversed by the next, that counts as an orbit."""


@validated
@interruptible
def gradient_descent(
    problem: Problem | Loss,
    nets: Any,
    learning_rate: Any = None,
    steps: int | None = None,
    *,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    batch_size: int | None = None,
    key: Any = None,
    optimizer: Any = None,
    record_every: int | None = None,
    record: Iterable[Any] | None = None,
    keep_weights: bool = True,
    watch: Watch | None = None,
    gap: float | None = None,
    loss_target: float | None = None,
    backend: str = "auto",
) -> Run:
    """Train a network, or a batch of them, by gradient descent (FM-grad).

    W ← W − η∇R(W); with momentum β the heavy ball V ← βV − η∇R, W ← W + V, which is stable up to
    sharpness (2 + 2β)/η.

    Arguments:

    - `problem`: a `Problem`, or any differentiable `loss(parameters) -> scalar`.
    - `nets`: one `Network`, or a batch (leading axis of its weights); with a loss of your own any
      pytree (a dict of arrays, an Equinox module), whose floating arrays are trained.
    - `learning_rate`: η, one for all or one for each run (with a single network an array of them
      makes a batch); a tuple with one for each layer (X-11); or a schedule, a function of the step.
    - `steps`: maximum number of steps.
    - `momentum`, `nesterov`: β, and whether the step is V ← βV − η∇R, W ← W + βV − η∇R.
    - `weight_decay`: λ in the objective R + λΣ_k‖W_k‖_F² (X-9): every step also subtracts 2ηλW.
      `risk`, `gap`, `sharpness` and the stopping criteria refer to R.
    - `batch_size`, `key`: for stochastic descent. Every step uses the gradient of the risk on B of
      the n rows, drawn without replacement and independently of other steps (X-10). Pass one key
      for each network, or a single key, which is replaced by `jax.random.fold_in(key, i)` for run
      i; a run's batches depend on its own key only. Divergence of a network with an activation is
      then judged by the risk on its mini-batch.
    - `optimizer`: any optax transformation, which has its own rates: `learning_rate` is then only
      stored in `run.learning_rate`, and may be omitted. Or a function of the learning rate that
      returns a transformation, such as `optax.adam`, called with the rate of each run.
    - `gap`, `loss_target`: stop a run with status `converged` once R − R_min ≤ gap (linear
      networks), or R ≤ loss_target. With neither, all steps are taken and a linear network counts
      as converged when it ends with R − R_min ≤ 1e-8 (R(0) − R_min).
    - `record_every`, `record`, `keep_weights`: measure at steps 0, k, 2k, … and the last one; which
      quantities (default: all that are cheap and apply; also `eigenvalues`, the five largest of
      the Hessian, `product_singular_values`, for linear networks `flow_sharpness`, the sharpness
      at which the gradient flow from here would end, and your own as `{"name": function of the
      network}`, alone or among the names); whether `run.trajectory` keeps the weights there.
    - `watch`: called as `watch(step, quantities)` at each record, to show progress.
    - `backend`: only `"auto"` is supported; the argument will be removed in the next version.

    A run whose risk is no longer finite, or 1e10 times the larger of its initial risk and the risk
    of the zero map, is `diverged`: `run.steps` is the step at which this happened, and the run
    keeps the weights before it.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    nets = dl.initialize.gaussian(jax.random.split(jax.random.key(0), 8), (5, 5, 5, 1), scale=0.35)
    run = dl.gradient_descent(problem, nets, learning_rate=0.02, steps=1000)
    run.status, run.steps, run.evidence["gap"]
    ```
    """
    if backend != "auto":
        raise InputError(f"backend is {backend!r}; only 'auto' is supported: omit it.")
    steps = whole_number("steps", steps)
    rates = Rates.of(learning_rate, steps, optimizer)
    ensemble = _ensemble(problem, nets, rates)
    if weight_decay and getattr(nets, "biased", None) is not None:
        raise InputError(
            "weight_decay would shrink the weights that keep the unit for later biases constant; "
            "pass 0, or train with a loss of your own."
        )
    objective = objective_of(problem, ensemble.tree(ensemble.weights), ensemble.layout)
    with explain_loss_errors(problem, nets):
        before = objective.evidence(ensemble.tree(ensemble.weights))
        ceiling = _ceiling(objective, ensemble, before["risk"])
    goal = _goal(objective, gap, loss_target)
    target = np.full_like(before["risk"], -np.inf if goal is None else goal)
    runs = None if ensemble.single else ensemble.size
    batches = Batches.of(problem, batch_size, key, runs, steps)
    if batches is not None and isinstance(problem, Problem):
        objective = with_samples(objective, problem, goal is not None)
    update = update_of(rates, ensemble, momentum, nesterov, weight_decay, batches, optimizer)
    quantities = None
    if record_every is not None or record is not None:  # names are checked in any case
        quantities = Quantities(problem, objective, ensemble, record)
    measured = None if record_every is None else quantities
    recorder = Recorder(ensemble, measured, keep_weights=keep_weights, watch=watch)
    stops = steps_to_record(record_every, steps)
    criteria = StoppingCriteria(target, ceiling)
    stops_per_call = min(len(stops), recorder.records_per_call)
    descent = Descent(objective, ensemble, criteria, update, stops_per_call)
    state = drive(descent, descent.start(), stops, recorder)
    if record_every is not None and record_every % 2 == 0 and batches is None:
        _warn_of_alternation(descent, state, record_every)
    close = CLOSE * before["gap"] if goal is None and objective.has_gap else None
    return finish(
        objective,
        recorder,
        state,
        close,
        learning_rate=rates.given(update.learning_rate, ensemble.single),
        momentum=update.momentum,
        variant=update.variant,
        weight_decay=update.weight_decay,
        batch_size=None if batches is None else batches.size,
    )


class HiddenAlternation(UserWarning):
    """Runs alternate between two points, of which their records show only one."""


def _warn_of_alternation(descent: Descent, state: State, record_every: int) -> None:
    """Warn where records an even number of steps apart hide an orbit of period two.

    The test takes two more steps from the end, which are not part of the run.
    """
    if not state.running.any():
        return
    now = int(np.max(state.steps))
    values = []
    for step in (now, now + 1, now + 2):
        state, visited = descent.advance(state, [step])
        assert visited.values is not None  # descent computes them
        values.append(visited.values[-1])
    first, second, third = values
    with np.errstate(invalid="ignore"):
        moved = np.abs(second - first) > ALTERNATES * np.abs(first)
        returned = np.abs(third - first) < 0.1 * np.abs(second - first)
    count = int(np.sum(moved & returned & state.running))
    if count:
        warnings.warn(
            f"{count} of {len(first)} run(s) alternate between two points, and records every "
            f"{record_every} steps show only one of them; pass an odd record_every.",
            HiddenAlternation,
            stacklevel=5,
        )


def _ensemble(problem: Any, nets: Any, rates: Rates) -> Ensemble:
    """Return the networks as a batch with a learning rate for each of them."""
    if isinstance(problem, Problem) and not isinstance(nets, Network):
        raise InputError(
            f"nets is a {type(nets).__name__}; pass a deeplin.Network "
            "(deeplin.networks.stack makes a batch of a list, deeplin.from_torch one of a PyTorch "
            "module), or a loss of your own."
        )
    ensemble = Ensemble.of(nets, rates.runs)
    if rates.runs is not None and rates.runs != ensemble.size:
        raise InputError(
            f"learning_rate holds {rates.runs} values for {ensemble.size} networks; pass one "
            "number, or one for each network."
        )
    return ensemble


def _goal(objective: Objective, gap: Any, loss_target: Any) -> float | None:
    """Return the value R − floor at which a run stops as converged, or None without a goal."""
    goals = []
    if gap is not None:
        if not objective.has_gap:
            raise InputError(
                "gap is R − R_min, known for linear networks on a Problem; pass loss_target here."
            )
        goals.append(positive_number("gap", gap, zero_allowed=True))
    if loss_target is not None:
        target = positive_number("loss_target", loss_target, zero_allowed=True)
        goals.append(target - objective.floor)
    return max(goals, default=None)


def _ceiling(objective: Objective, ensemble: Ensemble, risk: np.ndarray) -> np.ndarray:
    """Return the value R − floor above which a run has diverged."""
    at_zero = objective.zero_risk
    if at_zero is None:
        zero = jax.tree.map(np.zeros_like, ensemble.weights)
        at_zero = objective.evidence(ensemble.tree(zero))["risk"]
    level = np.fmax(abs(risk), abs(np.asarray(at_zero)))
    limit = np.finfo(level.dtype).max
    with np.errstate(over="ignore"):
        ceiling = np.where(level > 0, BLOW_UP * level - objective.floor, limit)
    return np.fmin(ceiling, limit).astype(level.dtype)
