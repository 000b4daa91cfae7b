"""The learning rate for the user's own start: a few starts are drawn and trained, not assumed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import jax
import numpy as np

from deeplin.dynamics import gradient_descent
from deeplin.errors import InputError, seed_number, whole_number
from deeplin.networks import Network
from deeplin.networks.initialize import FRAMEWORK_STARTS, default_width, framework_layers
from deeplin.problems import Problem
from deeplin.training.advice import Advice, advise
from deeplin.training.spec import TrainingSpec

TRIED_STARTS = (*FRAMEWORK_STARTS, "small")
RATES = 8
"""Rates tried at once, from each start."""
MOST_STARTS, FEWEST_STARTS = 16, 4
MOST_STEPS, FEWEST_STEPS = 300, 60
"""Steps after which a rate that is too large has shown itself."""
LONGEST = 20_000
"""Steps of the run that counts how many are needed."""
LONGEST_ON_BATCHES = 3_000
"""The same on batches that leave noise: what is not learned by then is lost in it."""
BUDGET = 1e9
"""Weights times networks times steps of one call, which limits starts and steps: about a second."""
LOWERED, LOWERINGS = 0.85, 18
"""By how much the rate is lowered because one of the new starts diverged, and how often."""
LADDERS = 4
"""Calls that look for a rate, each from where the last one ended: down to 2^-32 of the critical."""
HIGHEST_ADAPTIVE = 0.2
"""The largest rate of Adam and RMSProp that is tried; it is lowered until all starts learn."""
LEARNED = 0.01
"""A network has learned when 1 % of what a linear map explains is left to learn, …"""
LEARNED_SEPARABLE = 0.1
"""… and 10 % of the log-loss where it has no minimum and tends to 0."""


@dataclass(frozen=True)
class Trials:
    """What simulated training from several starts of one kind has shown."""

    initialization: str
    depth: int
    width: int
    learning_rate: float
    """The rate to use: none of the starts diverges at it."""
    steps: int | None
    """Steps after which the slowest of those that learned had; None: none of them has."""
    starts: int
    learned: int
    """How many of the starts learned 99 % of what there is to explain within `most_steps`."""
    most_steps: int


def try_starts(
    problem: Problem,
    depth: int,
    initialization: str = "torch",
    optimizer: TrainingSpec | None = None,
    *,
    width: int | None = None,
    seed: int = 0,
    advice: Advice | None = None,
) -> Trials:
    """Find a learning rate that works from starts of this kind, by training some of them.

    All starts are trained at several rates at once, from the critical one (above it nothing
    settles) downwards; the search ends at the largest rate at which all stay bounded, or at half
    of the critical one. It is lowered until none of eight times as many new starts diverges (Adam's
    and RMSProp's until all of them learn), and their longer runs count the steps. Starts: `torch`,
    `xavier`, `he`, `orthogonal` (see `initialize.framework_layers`), or `small` (Gaussian, half of
    the solution's size in each layer).

    ```python
    import deeplin as dl, jax, numpy as np
    from deeplin.training import try_starts
    jax.config.update("jax_enable_x64", True)
    X = np.random.default_rng(0).normal(size=(50, 3))
    trials = try_starts(dl.Problem.from_data(X, X @ np.ones(3)), depth=3, initialization="xavier")
    assert trials.learned == trials.starts
    ```
    """
    spec = optimizer or TrainingSpec()
    known = advice or advise(problem, depth, spec)
    rows = problem.samples * problem.dimension if problem.loss != "squared" else 0
    m = default_width(problem) if width is None else whole_number("width", width)
    widths = (problem.dimension, *[m] * (known.depth - 1), problem.outputs)
    size = rows + sum(o * i for i, o in pairwise(widths))
    count = int(np.clip(BUDGET / (size * RATES * MOST_STEPS), FEWEST_STARTS, MOST_STARTS))
    steps = int(np.clip(BUDGET / (size * RATES * count), FEWEST_STEPS, MOST_STEPS))
    rng = np.random.default_rng(seed_number(seed))

    def drawn(number: int) -> list[np.ndarray]:
        """So many starts, stacked layer by layer."""
        layers = [_layers(initialization, problem, rng, widths) for _ in range(number)]
        return [np.stack(layer) for layer in zip(*layers, strict=True)]

    starts = drawn(count)
    settings = spec.settings(problem, jax.random.key(seed))
    factor = spec.rate_factor(problem)

    def bounded(rates: np.ndarray) -> np.ndarray:
        """Which rates keep every start from growing beyond where it began."""
        nets = Network([np.repeat(layer, len(rates), axis=0) for layer in starts])
        run = gradient_descent(problem, nets, np.tile(rates, count) * factor, steps, **settings)
        gap = np.asarray(run.evidence["gap"]).reshape(count, len(rates))
        start_gap = problem.zero_gap + _gaps(problem, starts)
        return np.all((gap <= start_gap[:, None]) & np.isfinite(gap), axis=0)

    top = known.critical_learning_rate
    if spec.adaptive:
        top = HIGHEST_ADAPTIVE
    elif not np.isfinite(top):
        top = 16 * known.learning_rate if not problem.has_minimizer else 4 * known.learning_rate
    rate = min(_largest_bounded(bounded, top), top / 2)
    # As many new starts as networks before: the program is compiled already.
    starts = drawn(count * RATES)
    limit = LONGEST if known.certain or known.settles else LONGEST_ON_BATCHES
    longest = int(np.clip(BUDGET / (size * count * RATES), MOST_STEPS, limit))
    part = LEARNED if problem.has_minimizer or known.excess else LEARNED_SEPARABLE
    goal = known.excess + part * (problem.zero_gap - known.excess)
    run, status = None, np.zeros(0, str)
    for _ in range(LOWERINGS):
        rates = np.full(count * RATES, rate * factor)
        run = gradient_descent(problem, Network(starts), rates, longest, gap=goal, **settings)
        status = np.asarray(run.status)
        enough = np.all(status == "converged") if spec.adaptive else np.all(status != "diverged")
        if enough:
            break
        rate *= LOWERED
    assert run is not None
    done = np.equal(status, "converged")
    taken = int(np.asarray(run.steps)[done].max()) if done.any() else None
    learned = int(done.sum())
    return Trials(initialization, known.depth, m, rate, taken, count * RATES, learned, longest)


def _layers(
    kind: str, problem: Problem, rng: np.random.Generator, widths: tuple[int, ...]
) -> list[np.ndarray]:
    if kind == "small":
        size = problem.optimum_norm if problem.has_minimizer else 1.0
        scale = 0.5 * size ** (1 / (len(widths) - 1)) / np.sqrt(widths[-2])
        return [scale * rng.normal(size=(o, i)) for i, o in pairwise(widths)]
    if kind not in FRAMEWORK_STARTS:
        raise InputError(f"init is {kind!r}; pass one of {', '.join(TRIED_STARTS)}.")
    return framework_layers(kind, rng, widths)


def _gaps(problem: Problem, starts: list[np.ndarray]) -> np.ndarray:
    """R − R_min of each start."""
    product = starts[0]
    for layer in starts[1:]:
        product = layer @ product
    return problem.gap(np.swapaxes(product, 1, 2))


def _largest_bounded(bounded, top: float) -> float:
    """The largest rate up to which `bounded` holds: a ladder of factors 2, then a finer one."""
    for _ in range(LADDERS):
        rates = top * 2.0 ** -np.arange(RATES)
        kept = _from_below(bounded(rates))
        if kept == RATES:
            return float(rates[0])
        if kept:
            low = float(rates[RATES - kept])
            finer = low * 2.0 ** (np.arange(RATES, 0, -1) / (RATES + 1))
            more = _from_below(bounded(finer))
            return float(finer[RATES - more]) if more else low
        top = float(rates[-1]) / 2
    return top


def _from_below(good: np.ndarray) -> int:
    """How many of the smallest rates (they come last) are good without a gap.

    What is bounded again above a rate that is not was luck.
    """
    return int(np.argmin(np.append(good[::-1], False)))
