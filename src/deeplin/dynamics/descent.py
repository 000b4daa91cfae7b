"""Gradient descent: one call trains a whole batch and returns it with its evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplin.checks import InputError, finite_array, positive_number, whole_number
from deeplin.door import door
from deeplin.dynamics import stepping
from deeplin.dynamics.measure import measure
from deeplin.dynamics.objective import Objective, objective_of
from deeplin.dynamics.recording import Recorder, Watch
from deeplin.dynamics.run import CONVERGED, DIVERGED, STOPPED, Run
from deeplin.dynamics.stepping import RUNNING, Rules, State
from deeplin.interrupt import check_interrupt, hearing
from deeplin.networks import Network
from deeplin.problems import Problem

BLOW_UP = 1e10
"""A run has diverged when its risk exceeds this many times its initial one (or the zero map's)."""
CLOSE = 1e-8
"""Without a goal, a run that has shrunk its initial gap by this factor is called converged."""
PATIENCE = 0.2
"""Seconds of compiled work between two looks at the keyboard (Ctrl-C)."""
FIRST_PIECE = 64
"""Steps before the first such look; doubled while they take less than that."""
WIDEST = {"linear": 32, "gelu": 8, "relu": 8}
"""Widest layer for which the kernel is chosen, between what batches gain and single networks lose.

A kernel works on a full lane even for one network. The choice looks at the shape of the networks
only: were it to depend on the size of the batch, results would change in their last digits with
the way runs are grouped.
"""
BACKENDS = ("auto", "kernel", "shape-free", "jax")

Loss = Callable[[Network], Any]
Advance = Callable[[State, int], State]


@door
@hearing
def gradient_descent(
    problem: Problem | Loss,
    nets: Network,
    learning_rate: Any,
    steps: int,
    *,
    momentum: float = 0.0,
    record_every: int | None = None,
    record: Iterable[str] | None = None,
    keep_weights: bool = True,
    watch: Watch | None = None,
    gap: float | None = None,
    loss_target: float | None = None,
    backend: str = "auto",
) -> Run:
    """Train a network, or a batch of them, by full-batch gradient descent (FM-grad).

    W ← W − η∇R(W); with momentum β the heavy ball V ← βV − η∇R, W ← W + V, which is stable up to
    sharpness (2 + 2β)/η.

    Arguments:

    - `problem`: a `Problem`, or any differentiable `loss(network) -> scalar`.
    - `nets`: one `Network`, or a batch (leading axis of its weights).
    - `learning_rate`: η, one for all or one for each run; with a single network an array of them
      makes a batch.
    - `steps`: the most steps to take.
    - `gap`, `loss_target`: stop a run with status `converged` once R − R_min ≤ gap (linear
      networks), or R ≤ loss_target. With neither, all steps are taken and a linear network counts
      as converged when it ends with R − R_min ≤ 1e-8 (R(0) − R_min).
    - `record_every`, `record`, `keep_weights`: measure at steps 0, k, 2k, … and the last one; which
      quantities (default: all that apply); whether `run.trajectory` keeps the weights there.
    - `watch`: called as `watch(step, quantities)` at each record, to show progress.
    - `backend`: `"kernel"` (compiled for small networks on a CPU), `"shape-free"` (the same without
      the shape as a constant: slower, and never compiled again), `"jax"`, or `"auto"`.

    A run whose risk is no longer finite, or 1e10 times the larger of its initial risk and the risk
    of the zero map, is `diverged`: `run.steps` says when, and it keeps the last weights before.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    nets = dl.initialize.gaussian(jax.random.split(jax.random.key(0), 8), (5, 5, 5, 1), scale=0.35)
    run = dl.gradient_descent(problem, nets, learning_rate=0.02, steps=1000)
    run.status, run.steps, run.evidence["gap"]
    ```
    """
    batch, rates, single = _as_batch(nets, learning_rate)
    objective = objective_of(problem, batch)
    steps = whole_number("steps", steps)
    recorder = Recorder(problem, objective, batch, record_every, record, keep_weights, watch)
    before = _evidence(objective, batch, batch)
    rules = Rules(
        rates,
        _goal(objective, before, gap, loss_target),
        _ceiling(objective, batch, before),
        _momentum(momentum),
    )
    state = stepping.start(batch, momentum)
    advance = _backend(backend, problem, objective, rules, state)
    for until in recorder.schedule(steps):
        state = _advance_patiently(advance, state, until)
        recorder.note(int(np.max(state.steps)), state.network)
        if not np.any(state.outcome == RUNNING):
            break
    goal = None if gap is None and loss_target is None else rules.goal
    return _finish(objective, recorder, state, rules, before, goal, single)


def _as_batch(nets: Network, learning_rate: Any) -> tuple[Network, np.ndarray, bool]:
    """The networks as a batch, a learning rate for each, and whether there is a single one."""
    if not isinstance(nets, Network):
        raise InputError(
            f"nets is a {type(nets).__name__}; pass a deeplin.Network "
            "(deeplin.networks.stack makes a batch of a list)."
        )
    rates = finite_array("learning_rate", learning_rate, (0, 1))
    for rate in rates.ravel().tolist():
        positive_number("learning_rate", rate)
    batch = nets.with_batch()
    size = batch.weights[0].shape[0]
    single = nets.batch is None and rates.ndim == 0
    if nets.batch is None and rates.ndim == 1:
        size = len(rates)
        batch = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[0], (size, *leaf.shape[1:])), batch)
    if rates.ndim == 1 and len(rates) != size:
        raise InputError(
            f"learning_rate holds {len(rates)} values for {size} networks; pass one number, or one "
            "for each network."
        )
    dtype = batch.weights[0].dtype
    return batch, np.broadcast_to(rates, size).astype(dtype), single


def _momentum(momentum: float) -> float:
    beta = positive_number("momentum", momentum, zero_allowed=True)
    if beta >= 1:
        raise InputError(f"momentum is {beta:g}; pass a number from 0 up to but below 1.")
    return beta


def _evidence(objective: Objective, network: Network, initial: Network) -> dict[str, np.ndarray]:
    """Risk, and gap where it has a meaning, of every run."""
    return measure(objective, network, initial, ("risk", "gap") if objective.has_gap else ("risk",))


def _goal(objective: Objective, before, gap, loss_target) -> np.ndarray:
    """The value R − floor at which a run has reached what was asked; −∞ if nothing was."""
    goal = -np.inf
    if gap is not None:
        if not objective.has_gap:
            raise InputError(
                "gap is R − R_min, known for linear networks on a Problem; pass loss_target here."
            )
        goal = positive_number("gap", gap, zero_allowed=True)
    if loss_target is not None:
        target = positive_number("loss_target", loss_target, zero_allowed=True)
        goal = max(goal, target - objective.floor)
    return np.full_like(before["risk"], goal)


def _ceiling(objective: Objective, batch: Network, before) -> np.ndarray:
    """The value R − floor above which a run has diverged."""
    zero = jax.tree.map(np.zeros_like, batch)
    level = np.maximum(abs(before["risk"]), abs(_evidence(objective, zero, zero)["risk"]))
    limit = np.finfo(level.dtype).max
    with np.errstate(over="ignore"):
        ceiling = np.where(level > 0, BLOW_UP * level - objective.floor, limit)
    return np.nan_to_num(ceiling, nan=limit, posinf=limit).clip(max=limit).astype(level.dtype)


def _backend(backend: str, problem, objective: Objective, rules: Rules, state: State) -> Advance:
    """The function that takes a state to a later step."""
    if backend not in BACKENDS:
        raise InputError(f"backend is {backend!r}; pass one of {', '.join(BACKENDS)}.")
    fits = _kernel_fits(problem, state.network)
    kernel = backend in ("kernel", "shape-free")
    if kernel and not fits:
        raise InputError(
            f'backend is "{backend}", which trains networks on a Problem on a CPU; pass "auto".'
        )
    narrow = max(state.network.widths) <= WIDEST[state.network.activation]
    if kernel or (backend == "auto" and fits and narrow):
        from deeplin.dynamics import lane_stepping  # numba is slow to import: only where it is used

        return lane_stepping.Advance(objective, rules, unroll=backend != "shape-free")
    return partial(stepping.advance, objective, rules)


def _kernel_fits(problem, network: Network) -> bool:
    """Whether there is a compiled kernel for this problem, network and machine."""
    on_cpu = all(device.platform == "cpu" for device in network.weights[0].devices())
    return isinstance(problem, Problem) and on_cpu


def _advance_patiently(advance: Advance, state: State, until: int) -> State:
    """Advance in pieces of about `PATIENCE` seconds, so that an interrupt is heard between them."""
    clock, piece = int(np.max(state.steps)), FIRST_PIECE
    while True:
        began = time.perf_counter()
        clock = min(clock + piece, until)
        state = advance(state, clock)
        check_interrupt()
        if clock == until or not np.any(state.outcome == RUNNING):
            return state
        if time.perf_counter() - began < PATIENCE / 2:
            piece *= 2


def _finish(objective, recorder: Recorder, state: State, rules: Rules, before, goal, single) -> Run:
    """Put together the run: statuses, evidence, records; plain values for a single network."""
    after = _evidence(objective, state.network, recorder.initial)
    outcome = np.asarray(state.outcome)
    status = np.full(outcome.shape, STOPPED, dtype="<U9")
    status[outcome == stepping.REACHED] = CONVERGED
    status[outcome == stepping.DIVERGED] = DIVERGED
    if goal is None and objective.has_gap:
        status[(outcome == RUNNING) & (after["gap"] <= CLOSE * before["gap"])] = CONVERGED

    def member(values):
        return np.asarray(values)[0].item() if single else np.asarray(values)

    def network(batch: Network) -> Network:
        return jax.tree.map(lambda leaf: leaf[0], batch) if single else batch

    end = state.network
    return Run(
        network=network(Network(end.weights, end.readout, end.activation)),
        initial=network(recorder.initial),
        status=member(status),
        steps=member(state.steps),
        records=recorder.records(single),
        trajectory=recorder.trajectory(single),
        learning_rate=member(rules.learning_rate),
        momentum=rules.momentum,
        evidence={name: member(values) for name, values in after.items()},
    )
