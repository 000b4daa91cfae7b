"""Gradient descent of a network, or of a batch of networks, in one call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from deeplin.dynamics.engine import Descent, State, StoppingCriteria
from deeplin.dynamics.minibatches import Draws, minibatches_of
from deeplin.dynamics.objective import (
    Ensemble,
    Objective,
    RandomLoss,
    is_batch,
    objective_of,
    with_fixed_key,
)
from deeplin.dynamics.optimizer import Rates, Update, update_of
from deeplin.dynamics.quantities import Quantities
from deeplin.dynamics.run import CLOSE, Recorder, Run, Watch, drive, finish, steps_to_record
from deeplin.errors import InputError, positive_number, whole_number
from deeplin.networks.network import Loss, check_pair, explain_loss_errors
from deeplin.problems import Problem

BLOW_UP = 1e10
"""A run has diverged when its risk exceeds its initial risk (or that of the zero map) this many
times."""
RECORDS = 200
"""Number of records, about, where quantities are requested without `record_every`."""
ALTERNATES = 1e-3
"""Relative change of the risk in one step, reversed by the next, that counts as an orbit."""


def gradient_descent(
    problem: Problem | Loss,
    network: Any,
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
    gradient_norm: float | None = None,
    batched: bool | None = None,
) -> Run:
    """Train a network, or a batch of them, by gradient descent (FM-grad).

    W ← W − η∇R(W); with momentum β the heavy ball V ← βV − η∇R, W ← W + V, which is stable up to
    sharpness (2 + 2β)/η.

    A run ends as `converged`, `diverged` or `stopped`; `Run.status` says what these words mean.

    Args:
        problem: A `Problem`, or any differentiable `loss(parameters)` that returns a scalar, or
            `loss(parameters, key)`, which gets a fresh key at every step (label noise). Where no
            step is taken (records, `evidence`, `loss_target`), the loss is evaluated at the fixed
            `jax.random.key(0)`.
        network: One `Network`, or a batch (leading axis of its weights). With a loss of your own
            any pytree (a dict of arrays, an Equinox module), whose floating arrays are trained, or
            a batch of pytrees, as `jax.vmap` makes it: every array has the same leading axis.
        learning_rate: η, one for all or one for each run (with a single network an array of them
            makes a batch); a tuple with one for each layer (X-11); or a schedule, a function of
            the step.
        steps: Maximum number of steps.
        momentum: β.
        nesterov: Whether the step is V ← βV − η∇R, W ← W + βV − η∇R.
        weight_decay: λ in the objective R + λΣ_k‖W_k‖_F² (X-9): every step also subtracts 2ηλW.
            `risk`, `gap`, `sharpness` and the stopping criteria refer to R.
        batch_size: B for stochastic descent: every step uses the gradient of the risk on B of the n
            rows, drawn without replacement from `jax.random.fold_in(key, step)` (X-10). Divergence
            of a network with an activation is then judged by the risk on its mini-batch.
        key: For mini-batches, a loss that takes a key, or an optimizer that draws noise
            (`optax.add_noise`). Pass one key for each network, or a single key, which is replaced
            by `jax.random.fold_in(key, i)` for run i; a run depends on its own key only.
        optimizer: Any optax transformation, which has its own rates: `learning_rate` is then only
            stored in `run.learning_rate`, and may be omitted. Or a function of the learning rate
            that returns a transformation, such as `optax.adam`, called with the rate of each run.
        record_every: Measure at steps 0, k, 2k, … and the last one.
        record: Which quantities to measure; by default all that are cheap and apply. Also
            `eigenvalues` (the five largest of the Hessian), `product_singular_values`,
            `gradient_norm` (‖∇R‖), for linear networks `flow_sharpness` (the sharpness at which
            the gradient flow from here would end), and your own as `{"name": function of the
            network}`, alone or among the names. Without `record_every` there are about 200
            records, an odd number of steps apart, which shows both points of an oscillation of
            period two.
        keep_weights: Whether `run.trajectory` keeps the weights at each record.
        watch: Called as `watch(step, quantities)` at each record, to show progress.
        gap: Stop as `converged` once R is at most this above the smallest risk that the network can
            reach (linear networks); hidden layers narrower than the rank of the optimum cannot
            reach R_min (X-34).
        loss_target: Stop as `converged` once R is at most this.
        gradient_norm: Stop as `converged` once ‖∇R‖ is at most this.
        batched: Whether parameters of your own are a batch of pytrees. By default they are if the
            loss takes one entry of them, but not all together.

    Returns:
        A `Run`. A run whose risk is no longer finite, or 1e10 times the larger of its initial risk
        and the risk of the zero map, is `diverged`: `run.steps` is the step at which this happened,
        and the run keeps the weights before it.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    networks = dl.initialize.gaussian(
        jax.random.split(jax.random.key(0), 8), (5, 5, 5, 1), scale=0.35
    )
    run = dl.gradient_descent(problem, networks, learning_rate=0.02, steps=1000)
    run.status, run.steps, run.evidence["gap"]
    ```
    """
    steps = whole_number("steps", steps)
    rates = Rates.of(learning_rate, steps, optimizer)
    problem = with_fixed_key(problem)
    ensemble = _ensemble(problem, network, rates, batched)
    objective = objective_of(problem, ensemble.tree(ensemble.weights), ensemble.layout)
    with explain_loss_errors(problem, network):
        before = objective.evidence(ensemble.tree(ensemble.weights))
        ceiling = _ceiling(objective, ensemble, before["risk"])
    goal = _goal(objective, gap, loss_target)
    update = update_of(rates, ensemble, momentum, nesterov, weight_decay, optimizer)
    draws = _draws(problem, ensemble, update, batch_size, key)
    objective = objective.on_draws(problem, draws, goal is not None)
    slope = _slope(gradient_norm, draws, before["risk"])
    quantities = None
    if record_every is not None or record is not None:
        quantities = Quantities(problem, objective, ensemble, record)
        every = max(1, round(steps / RECORDS)) | 1 if record_every is None else record_every
    recorder = Recorder(ensemble, quantities, keep_weights=keep_weights, watch=watch)
    stops = [steps] if quantities is None else steps_to_record(every, steps)
    target = np.full_like(before["risk"], -np.inf if goal is None else goal)
    criteria = StoppingCriteria(target, ceiling, slope)
    stops_per_call = min(len(stops), recorder.records_per_call)
    descent = Descent(objective, ensemble, criteria, update, draws, stops_per_call)
    state = drive(descent, descent.start(), stops, recorder)
    if record_every is not None and record_every % 2 == 0 and draws is None:
        rounding = np.finfo(float).eps * before["risk"]
        _warn_of_alternation(descent, state, record_every, rounding)
    no_goal = goal is None and slope is None
    close = CLOSE * before["gap"] if no_goal and objective.has_gap else None
    return finish(
        objective,
        recorder,
        state,
        close,
        learning_rate=rates.given(update.learning_rate, ensemble.single),
        momentum=update.momentum,
        variant=update.variant,
        weight_decay=update.weight_decay,
        batch_size=None if draws is None else draws.size,
    )


class HiddenAlternation(UserWarning):
    """Runs alternate between two points, of which their records show only one."""


def _warn_of_alternation(
    descent: Descent, state: State, record_every: int, rounding: np.ndarray
) -> None:
    """Warn where records an even number of steps apart hide an orbit of period two.

    The test takes two more steps from the end, which are not part of the run. The last bits of a
    converged run alternate, too: changes below `rounding` do not count.
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
        moved = np.abs(second - first) > ALTERNATES * np.abs(first) + rounding
        returned = np.abs(third - first) < 0.1 * np.abs(second - first)
    count = int(np.sum(moved & returned & state.running))
    if count:
        warnings.warn(
            f"{count} of {len(first)} run(s) alternate between two points, and records every "
            f"{record_every} steps show only one of them; pass an odd record_every.",
            HiddenAlternation,
            stacklevel=5,
        )


def _ensemble(problem: Any, network: Any, rates: Rates, batched: bool | None) -> Ensemble:
    """Return the networks as a batch with a learning rate for each of them."""
    check_pair(problem, network)
    ensemble = Ensemble.of(network, rates.runs, batched=is_batch(problem, network, batched))
    if rates.runs is not None and rates.runs != ensemble.size:
        raise InputError(
            f"learning_rate holds {rates.runs} values for {ensemble.size} networks; pass one "
            "number, or one for each network."
        )
    return ensemble


def _draws(
    problem: Any, ensemble: Ensemble, update: Update, batch_size: Any, key: Any
) -> Draws | None:
    """Return what every step draws: rows, a key for the loss, or nothing."""
    runs = None if ensemble.single else ensemble.size
    if batch_size is not None:
        return minibatches_of(problem, batch_size, key, runs)
    if isinstance(problem, RandomLoss):
        return Draws.of_loss(key, runs)
    if key is None:
        return None
    if not update.method.draws(ensemble.weights):
        raise InputError(
            "key is not used here: it draws mini-batches, the key of a loss(parameters, key), or "
            "the noise of an optimizer; pass batch_size with it, or no key."
        )
    return Draws.of_loss(key, runs)


def _slope(gradient_norm: Any, draws: Draws | None, risk: np.ndarray) -> np.ndarray | None:
    """Return ‖∇R‖² at which a run stops as converged, or None without this criterion."""
    if gradient_norm is None:
        return None
    if draws is not None:
        raise InputError(
            "gradient_norm is no criterion for steps that draw rows or noise, whose gradients do "
            "not vanish; pass gap or loss_target."
        )
    return np.full_like(risk, positive_number("gradient_norm", gradient_norm) ** 2)


def _goal(objective: Objective, gap: Any, loss_target: Any) -> float | None:
    """Return the value R − floor at which a run stops as converged, or None without a goal."""
    goals = []
    if gap is not None:
        if not objective.has_gap:
            raise InputError(
                "gap is R − R_min, known for linear networks on a Problem; pass loss_target here, "
                "or gradient_norm."
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
