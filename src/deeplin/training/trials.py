"""Learning rates from simulated training: from several starts of one kind, at several rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import numpy as np
from numpy.typing import ArrayLike

from deeplin.dynamics import Run, gradient_descent
from deeplin.errors import InputError, positive_number, seed_number, whole_number
from deeplin.execution import share_compiled_code
from deeplin.networks import Network
from deeplin.networks.initialize import (
    FRAMEWORK_STARTS,
    STARTS,
    default_width,
    framework_layers,
)
from deeplin.networks.network import affine_columns, as_seen
from deeplin.problems import Problem
from deeplin.problems.problem import as_map
from deeplin.training.learning_rate import Advice, TrainingSpec, Trials, advise

TRIED_STARTS = (*FRAMEWORK_STARTS, "gaussian")
"""Kinds of starts from which training is simulated."""
INITIALIZATIONS = ("auto", *STARTS, *FRAMEWORK_STARTS, "balanced")
"""Kinds of starts from which `train` trains."""
TRIED_RATES = 8
"""Number of rates tried at once from each start."""
MAX_STARTS, MIN_STARTS = 64, 4
"""Bounds on the number of starts in the search, each at all rates; as many new starts as there were
runs then decide. If none of 512 diverges, fewer than 1 % of all do, at a confidence of 99 %."""
ENOUGH_STARTS = 48
"""Number of starts in the search below which the rate is lowered once more, as a margin."""
MAX_TRIAL_STEPS, MIN_TRIAL_STEPS = 300, 30
"""Bounds on the number of steps of a trial, enough for a rate that is too large to diverge."""
MAX_STEPS = 20_000
"""Most steps of the run that measures how many steps training takes."""
MAX_STEPS_ON_BATCHES = 3_000
"""The same on mini-batches with gradient noise at the solution, where longer runs gain little."""
WORK_BUDGET = 1e9
"""Weights times networks times steps of one call, a few seconds; limits starts and steps."""
RATE_REDUCTION, MAX_REDUCTIONS = 0.85, 18
"""Factor applied to the rate when one of the new starts diverges, and the most attempts."""
MAX_RATE_GRIDS = 4
"""Most grids of rates searched, each below the one before: down to 2^-32 of the critical rate."""
MAX_ADAPTIVE_RATE = 0.2
"""Largest rate tried for Adam and RMSProp; it is lowered until all starts learn."""
LEARNED_FRACTION = 0.01
"""A network has learned when at most this fraction of R_0 − R_min remains."""
SEPARABLE_LEARNED_FRACTION = 0.1
"""The same for separable classes, where the log-loss has no minimum."""


def require_initialization(name: str | None) -> None:
    """Raise InputError unless this is a kind of start, or None."""
    if name is not None and name not in INITIALIZATIONS:
        raise InputError(f"initialization is {name!r}; pass one of {', '.join(INITIALIZATIONS)}.")


def has_biases(initialization: str | None) -> bool:
    """Return whether PyTorch's layers have biases after this initialization."""
    return initialization in FRAMEWORK_STARTS


def advise_start(
    problem: Problem,
    depth: int,
    initialization: str | None = "torch",
    optimizer: TrainingSpec | None = None,
    *,
    width: int | None = None,
    biases: bool = True,
    scale: float | None = None,
    readout: ArrayLike | None = None,
    seed: int = 0,
) -> Advice:
    """Return the learning rate to use from this kind of start, and the critical one.

    `diagnose` and `train` both take it from here. The rate comes from `try_starts` for the kinds of
    starts that are simulated, and is that of `advise` for the others.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training import advise_start
    X = np.random.default_rng(0).normal(size=(50, 3))
    problem = dl.Problem.from_data(X, X @ np.ones(3))
    advice = advise_start(problem, depth=3, initialization="xavier", biases=False)
    assert advice.learning_rate == advice.trials.learning_rate < advice.critical_learning_rate
    ```
    """
    require_initialization(initialization)
    simulated = initialization in TRIED_STARTS and readout is None
    biased = biases and simulated and has_biases(initialization)
    advice = advise(problem, depth, optimizer, readout=readout, width=width, biases=biased)
    if not simulated:
        return advice
    assert initialization is not None
    trials = try_starts(
        problem,
        depth,
        initialization,
        optimizer,
        width=width,
        biases=biased,
        scale=scale,
        seed=seed,
        advice=advice,
    )
    return replace(advice, learning_rate=trials.learning_rate, trials=trials)


def try_starts(
    problem: Problem,
    depth: int,
    initialization: str = "torch",
    optimizer: TrainingSpec | None = None,
    *,
    width: int | None = None,
    biases: bool = True,
    scale: float | None = None,
    seed: int = 0,
    advice: Advice | None = None,
) -> Trials:
    """Find a learning rate that works from starts of this kind, by training some of them.

    All starts are trained at several rates at once, from the critical rate downward (above it
    nothing settles). The search ends at the largest rate at which all starts stay bounded, or at
    half of the critical rate. This rate is lowered until none of eight times as many new starts
    diverges (for Adam and RMSProp, until all of them learn), neither before it has learned nor
    afterwards; their longer runs measure the number of steps. `initialization` is `torch`,
    `xavier`, `he`, `orthogonal` (see `initialize.framework_layers`; with the biases of
    `torch.nn.Linear`, which no initialization of the weights changes), or `gaussian` (without
    biases; by default half of the solution's size in each layer).

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training import try_starts
    X = np.random.default_rng(0).normal(size=(50, 3))
    trials = try_starts(dl.Problem.from_data(X, X @ np.ones(3)), depth=3, initialization="xavier")
    assert trials.learned == trials.starts
    ```
    """
    spec = optimizer or TrainingSpec()
    biased = biases and has_biases(initialization)
    known = advice or advise(problem, depth, spec, width=width, biases=biased)
    m = default_width(problem) if width is None else whole_number("width", width)
    widths = (problem.dimension, *[m] * (known.depth - 1), problem.outputs)
    whole, basis = problem, None
    if problem.loss == "squared" and problem.rank < problem.dimension and not spec.adaptive:
        # Directions without data change no risk: they need not be simulated.
        basis = problem.spectrum.vectors
        problem = _in_span(problem, basis)
    rows = 0
    if problem.loss != "squared":  # predictions and gradients take as many products
        rows = 2 * problem.samples * problem.dimension * problem.outputs
    size = rows + sum(o * i for i, o in pairwise((problem.dimension, *widths[1:])))
    count = int(
        np.clip(WORK_BUDGET / (size * TRIED_RATES * MAX_TRIAL_STEPS), MIN_STARTS, MAX_STARTS)
    )
    steps = int(
        np.clip(WORK_BUDGET / (size * TRIED_RATES * count), MIN_TRIAL_STEPS, MAX_TRIAL_STEPS)
    )
    seed = seed_number(seed)
    rng = np.random.default_rng(seed)

    def draw(number: int) -> Network:
        """Return this number of starts."""
        drawn = draw_starts(initialization, whole, rng, widths, number, biases=biased, scale=scale)
        if basis is None:
            return drawn
        first, *others = map(np.asarray, drawn.weights)
        return eqx.tree_at(lambda net: net.weights, drawn, (first @ basis, *others))

    starts = draw(count)
    settings = spec.settings(problem, seed)
    share_compiled_code()  # compilation takes longer than the trials
    factor = spec.rate_factor(problem)

    def bounded(rates: np.ndarray) -> np.ndarray:
        """Return for each rate whether the gap of no start grows by more than `zero_gap`."""
        nets = jax.tree.map(lambda leaf: np.repeat(leaf, len(rates), axis=0), starts)
        run = gradient_descent(problem, nets, np.tile(rates, count) * factor, steps, **settings)
        gap = np.asarray(run.evidence["gap"]).reshape(count, len(rates))
        return np.all((gap <= start_gap[:, None]) & np.isfinite(gap), axis=0)

    seen = as_seen(problem, starts)
    narrow = problem.loss == "squared" and m < min(problem.rank, problem.outputs)
    start_gap = seen.zero_gap + gaps(seen, starts)
    top = known.critical_learning_rate
    if spec.adaptive:
        top = MAX_ADAPTIVE_RATE
    elif not np.isfinite(top):
        # Biases can only lower the critical rate, twice that of `advise` without them at most.
        beyond = 2 if biased else 4
        top = (16 if not problem.has_minimizer else beyond) * known.learning_rate
    rate = min(_largest_bounded(bounded, top), top / 2)
    # As many new starts as there were networks before, so that the compiled program is reused.
    total = count * TRIED_RATES
    starts = draw(total)
    limit = MAX_STEPS if known.certain or known.settles else MAX_STEPS_ON_BATCHES
    longest = int(np.clip(WORK_BUDGET / (size * total), MAX_TRIAL_STEPS, limit))
    allowed = seen.zero_gap - problem.best_of_rank(m).excess if narrow else seen.zero_gap
    part = LEARNED_FRACTION if problem.has_minimizer or known.excess else SEPARABLE_LEARNED_FRACTION
    goal = known.excess + part * (allowed - known.excess)
    run, status, margin = None, np.zeros(0, str), count < ENOUGH_STARTS and not spec.adaptive
    for reductions in range(MAX_REDUCTIONS):
        if reductions:
            rate *= RATE_REDUCTION
        rates = np.full(total, rate * factor)

        def descent(nets: Network, most: int, rates: np.ndarray = rates, **goal: float) -> Run:
            return gradient_descent(problem, nets, rates, most, **goal, **settings)

        last = reductions == MAX_REDUCTIONS - 1
        if not spec.adaptive and not last and _some_diverge(descent(starts, steps)):
            continue
        run = descent(starts, longest, gap=goal)
        status = np.asarray(run.status)
        if spec.adaptive:
            good = bool(np.all(status == "converged"))
        else:
            good = not _some_diverge(run) and not _some_diverge(descent(run.network, steps))
        if good and not margin:
            break
        margin = margin and not good
    assert run is not None
    done = np.equal(status, "converged")
    taken = int(np.asarray(run.steps)[done].max()) if done.any() else None
    learned = int(done.sum())
    return Trials(initialization, biased, known.depth, m, rate, taken, total, learned, longest)


def has_constant_input(problem: Problem) -> bool:
    """Return whether the last input is 1 in every row, as for the intercept of classes."""
    return problem.inputs is not None and bool(np.all(problem.inputs[:, -1] == 1))


def _some_diverge(run: Run) -> bool:
    return bool(np.any(np.asarray(run.status) == "diverged"))


def _in_span(problem: Problem, basis: np.ndarray) -> Problem:
    """Return the problem in coordinates of the span of the samples."""
    if problem.inputs is not None and problem.targets is not None:
        return Problem.from_data(problem.inputs @ basis, problem.targets)
    moments, d = np.asarray(problem.second_moments), problem.dimension
    cross, power = basis.T @ moments[:d, d:], moments[d:, d:]
    return Problem.from_moments(basis.T @ problem.covariance @ basis, cross, power, problem.samples)


def draw_starts(
    kind: str,
    problem: Problem,
    rng: np.random.Generator,
    widths: Sequence[int],
    count: int,
    *,
    biases: bool,
    scale: float | None = None,
) -> Network:
    """Return a batch of starts of one kind, with the biases that PyTorch draws or without.

    `torch.nn.Linear` draws biases U(±1/√fan_in), and initializing the weights does not change them.
    A constant input, which fits the intercept of classes, then has the first bias as its weights.
    """
    if kind not in TRIED_STARTS:
        raise InputError(f"initialization is {kind!r}; pass one of {', '.join(TRIED_STARTS)}.")
    constant = biases and has_constant_input(problem)
    if constant:
        widths = (widths[0] - 1, *widths[1:])
    if kind == "gaussian":
        norm = problem.optimum_norm if problem.has_minimizer else 1.0
        size = 0.5 * norm ** (1 / (len(widths) - 1)) / math.sqrt(widths[-2])
        size = size if scale is None else positive_number("scale", scale)
        return Network([size * rng.normal(size=(count, o, i)) for i, o in pairwise(widths)])
    factor = 1.0 if scale is None else positive_number("scale", scale)
    drawn = [framework_layers(kind, rng, widths) for _ in range(count)]
    weights = [factor * np.stack(layer) for layer in zip(*drawn, strict=True)]
    if not biases:
        return Network(weights)
    bounds = [(o, 1 / math.sqrt(i)) for i, o in pairwise(widths)]
    shifts: list[Any] = [rng.uniform(-b, b, size=(count, o)) for o, b in bounds]
    if constant:  # the weights of the constant input are the first bias
        weights[0] = np.concatenate([weights[0], shifts[0][:, :, None]], axis=2)
        shifts[0] = None
    return Network(weights, shifts)


def gaps(problem: Problem, starts: Network) -> np.ndarray:
    """Return R − R_min of each start, for inputs as `as_seen` has them."""
    return problem.gap(as_map(np.asarray(affine_columns(starts))))


def _largest_bounded(bounded, top: float) -> float:
    """Return the largest rate up to which `bounded` holds, on a grid of factors 2, then a finer."""
    for _ in range(MAX_RATE_GRIDS):
        rates = top * 2.0 ** -np.arange(TRIED_RATES)
        kept = _count_bounded_from_below(bounded(rates))
        if kept == TRIED_RATES:
            return float(rates[0])
        if kept:
            low = float(rates[TRIED_RATES - kept])
            finer = low * 2.0 ** (np.arange(TRIED_RATES, 0, -1) / (TRIED_RATES + 1))
            more = _count_bounded_from_below(bounded(finer))
            return float(finer[TRIED_RATES - more]) if more else low
        top = float(rates[-1]) / 2
    return top


def _count_bounded_from_below(good: np.ndarray) -> int:
    """Return how many rates are bounded before the first that is not, from the smallest (last) up.

    A bounded rate above an unbounded one is a coincidence and does not count.
    """
    return int(np.argmin(np.append(good[::-1], False)))
