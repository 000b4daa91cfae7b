"""Starting networks, and learning rates from simulated training of several starts of one kind."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from deeplin.dynamics import Run, gradient_descent
from deeplin.dynamics.reduction import in_coordinates
from deeplin.errors import InputError, positive_number, seed_number, whole_number
from deeplin.execution import share_compiled_code
from deeplin.networks import Network, initialize
from deeplin.networks.initialize import (
    FRAMEWORK_STARTS,
    SCALES,
    STARTS,
    default_width,
    start_by_name,
)
from deeplin.networks.network import affine_columns, as_seen
from deeplin.problems import Problem
from deeplin.problems.problem import as_map
from deeplin.theory.balanced import balanced_network
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


def starting_network(
    problem: Problem,
    key: Array,
    *,
    depth: int,
    width: int | None = None,
    initialization: str = "auto",
    biases: bool = True,
    scale: float | None = None,
) -> Network:
    """Draw an initial network for this problem; the default scale is near the solution's size.

    `auto`: a first layer of zeros, followed by orthogonal layers of norm ‖W*‖^{1/L} (1 if there is
    no solution), times `scale`. Signals neither vanish nor grow with depth in these layers. The
    first layer moves only in the span of the samples, so that training finds the solution of
    minimal norm if there are several (FM-A1, X-6).

    `balanced`: the balanced solution multiplied by `scale` (default 0.1). `torch`, `xavier`, `he`
    and `orthogonal` are the starts of `initialize.pytorch`, times `scale`. The others are those of
    `initialize.start_by_name`.

    Args:
        problem: The problem to train on. If its last input is 1 in every row, as for the intercept
            of classes, the weights of this input are drawn as the first bias.
        key: A key; except for `auto` and `balanced`, also a batch of keys for a batch of networks.
        depth: The number of layers.
        width: The hidden width; default: that of the inputs, at most 32.
        initialization: The kind of start.
        biases: Whether starts of PyTorch have its biases.
        scale: The scale of the initialization.

    Returns:
        The initial network.

    ```python
    import deeplin as dl, jax, numpy as np
    from deeplin.training import starting_network
    X = np.random.default_rng(0).normal(size=(50, 5))
    net = starting_network(dl.Problem.from_data(X, X[:, 0]), jax.random.key(0), depth=3)
    ```
    """
    require_initialization(initialization)
    L = whole_number("depth", depth)
    m = whole_number("width", default_width(problem) if width is None else width)
    widths = (problem.dimension, *[m] * (L - 1), problem.outputs)
    if initialization == "balanced":
        shrink = positive_number("scale", 0.1 if scale is None else scale) ** (1 / L)
        return jax.tree.map(lambda leaf: shrink * leaf, balanced_network(problem, L, m))
    if initialization in STARTS:
        if scale is None and initialization not in SCALES and not problem.has_minimizer:
            scale = 0.5 / m**0.5  # there is no solution whose size it could follow
        return start_by_name(initialization, problem, key, depth=L, width=m, scale=scale)
    factor = positive_number("scale", 1.0 if scale is None else scale)
    if initialization == "auto":
        drawn = initialize.pytorch(key, widths, "orthogonal", biases=False)
        first, *others = map(np.asarray, drawn.weights)
        if problem.has_minimizer:
            problem.require_signal("a scale that fits the solution")
            factor *= problem.optimum_norm ** (1 / L)
        return Network([np.zeros_like(first), *(factor * layer for layer in others)])
    constant = biases and has_constant_input(problem)
    drawn = initialize.pytorch(
        key, (widths[0] - constant, *widths[1:]), initialization, biases=biases
    )
    weights, offsets = [factor * layer for layer in map(np.asarray, drawn.weights)], drawn.biases
    if constant and offsets is not None:
        first = np.asarray(offsets[0])[..., None]
        weights[0] = np.concatenate([weights[0], first], axis=-1)
        offsets = (None, *offsets[1:])
    return Network(weights, offsets)


def advise_start(
    problem: Problem,
    depth: int,
    initialization: str | None = "torch",
    optimizer: TrainingSpec | None = None,
    *,
    width: int | None = None,
    biases: bool = True,
    scale: float | None = None,
    seed: int = 0,
) -> Advice:
    """Return the learning rate to use from this kind of start, and the critical one.

    `diagnose` and `train` both take it from here. From `torch`, `xavier`, `he`, `orthogonal` (see
    `initialize.pytorch`; with the biases of `torch.nn.Linear`, which no initialization of the
    weights changes) and `gaussian` (without biases; by default half of the solution's size in each
    layer) the rate is found by training some starts. From the others it is that of `advise`.

    The starts are trained at several rates at once, from the critical rate downward (above it
    nothing settles). The search ends at the largest rate at which all starts stay bounded, or at
    half of the critical rate. This rate is lowered until none of eight times as many new starts
    diverges (for Adam and RMSProp, until all of them learn), neither before it has learned nor
    afterwards; their longer runs measure the number of steps.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training import advise_start
    X = np.random.default_rng(0).normal(size=(50, 3))
    problem = dl.Problem.from_data(X, X @ np.ones(3))
    advice = advise_start(problem, depth=3, initialization="xavier", biases=False)
    assert advice.learning_rate < advice.critical_learning_rate
    assert advice.trials.learned == advice.trials.starts
    ```
    """
    require_initialization(initialization)
    spec = optimizer or TrainingSpec()
    biased = biases and has_biases(initialization)
    advice = advise(problem, depth, spec, width=width, biases=biased)
    if initialization not in TRIED_STARTS:
        return advice
    m = default_width(problem) if width is None else whole_number("width", width)
    how: dict[str, Any] = {"depth": advice.depth, "width": m, "initialization": initialization}
    how |= {"biases": biased, "scale": scale}
    rate, trials = _simulate(problem, advice, spec, how, seed)
    return replace(advice, learning_rate=rate, trials=trials)


def _simulate(
    problem: Problem, known: Advice, spec: TrainingSpec, how: dict[str, Any], seed: int
) -> tuple[float, Trials]:
    """Return the rate at which simulated starts work, and their results; `advise_start` says how.

    `how` holds the options of `starting_network`.
    """
    depth, m = how["depth"], how["width"]
    whole, basis = problem, None
    if problem.loss == "squared" and problem.rank < problem.dimension and not spec.adaptive:
        # Directions without data change no risk: they need not be simulated.
        basis = problem.spectrum.vectors
        problem = in_coordinates(problem, basis)
    size = sum(o * i for i, o in pairwise((problem.dimension, *[m] * (depth - 1), problem.outputs)))
    if problem.loss != "squared":  # predictions and gradients take as many products
        size += 2 * problem.samples * problem.dimension * problem.outputs
    count = int(
        np.clip(WORK_BUDGET / (size * TRIED_RATES * MAX_TRIAL_STEPS), MIN_STARTS, MAX_STARTS)
    )
    total = count * TRIED_RATES  # as many networks in each call, so that one program is compiled
    steps = int(np.clip(WORK_BUDGET / (size * total), MIN_TRIAL_STEPS, MAX_TRIAL_STEPS))
    limit = MAX_STEPS if known.certain or known.settles else MAX_STEPS_ON_BATCHES
    longest = int(np.clip(WORK_BUDGET / (size * total), MAX_TRIAL_STEPS, limit))
    keys = jax.random.split(jax.random.key(seed_number(seed)), count + total)
    settings = spec.settings(problem, seed)
    share_compiled_code()  # compilation takes longer than the trials
    factor = spec.rate_factor(problem)

    def draw(keys: Array) -> Network:
        """Return one start for each key."""
        drawn = starting_network(whole, keys, **how)
        if basis is None:
            return drawn
        first, *others = map(np.asarray, drawn.weights)
        return eqx.tree_at(lambda net: net.weights, drawn, (first @ basis, *others))

    searched = draw(keys[:count])
    seen = as_seen(problem, searched)
    start_gap = seen.zero_gap + seen.gap(as_map(np.asarray(affine_columns(searched))))
    nets = jax.tree.map(lambda leaf: np.repeat(leaf, TRIED_RATES, axis=0), searched)

    def bounded(rates: np.ndarray) -> np.ndarray:
        """Return for each rate whether the gap of no start grows by more than `zero_gap`."""
        run = gradient_descent(problem, nets, np.tile(rates, count) * factor, steps, **settings)
        gap = np.asarray(run.evidence["gap"]).reshape(count, TRIED_RATES)
        return np.all((gap <= start_gap[:, None]) & np.isfinite(gap), axis=0)

    top = known.critical_learning_rate
    if spec.adaptive:
        top = MAX_ADAPTIVE_RATE
    elif not np.isfinite(top):
        # Biases can only lower the critical rate, twice that of `advise` without them at most.
        beyond = 2 if how["biases"] else 4
        top = (16 if not problem.has_minimizer else beyond) * known.learning_rate
    rate = min(_largest_bounded(bounded, top), top / 2)
    narrow = problem.loss == "squared" and m < min(problem.rank, problem.outputs)
    allowed = seen.zero_gap - problem.best_of_rank(m).excess if narrow else seen.zero_gap
    part = LEARNED_FRACTION if problem.has_minimizer or known.excess else SEPARABLE_LEARNED_FRACTION
    goal = known.excess + part * (allowed - known.excess)
    starts, run, margin = draw(keys[count:]), None, count < ENOUGH_STARTS and not spec.adaptive
    for reductions in range(MAX_REDUCTIONS):
        rate *= RATE_REDUCTION if reductions else 1.0
        rates = np.full(total, rate * factor)

        def descent(nets: Network, most: int, rates: np.ndarray = rates, **goal: float) -> Run:
            return gradient_descent(problem, nets, rates, most, **goal, **settings)

        last = reductions == MAX_REDUCTIONS - 1
        if not spec.adaptive and not last and _some_diverge(descent(starts, steps)):
            continue
        run = descent(starts, longest, gap=goal)
        if spec.adaptive:
            good = bool(np.all(np.equal(run.status, "converged")))
        else:
            good = not _some_diverge(run) and not _some_diverge(descent(run.network, steps))
        if good and not margin:
            break
        margin = margin and not good
    assert run is not None
    done = np.equal(run.status, "converged")
    taken = int(np.asarray(run.steps)[done].max()) if done.any() else None
    learned = int(done.sum())
    return rate, Trials(taken, total, learned, longest)


def has_constant_input(problem: Problem) -> bool:
    """Return whether the last input is 1 in every row, as for the intercept of classes."""
    return problem.inputs is not None and bool(np.all(problem.inputs[:, -1] == 1))


def _some_diverge(run: Run) -> bool:
    return bool(np.any(np.asarray(run.status) == "diverged"))


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
