"""What a caller of `simulate_wide` may pass, spread over the runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from deeplin.checks import InputError, positive_number, whole_number
from deeplin.dynamics.reduced_start import ReducedStart
from deeplin.dynamics.wide_run import Simulation
from deeplin.problems import Problem
from deeplin.problems.population import Population


class Cases(NamedTuple):
    """The runs to be simulated, one entry for each."""

    starts: tuple[ReducedStart, ...]
    rates: np.ndarray
    """Steps on the mean loss."""
    populations: tuple[Population | None, ...]
    single: bool

    def simulation(self, when, layers, risk, path) -> Simulation:
        """What they became."""
        return Simulation(self.starts, self.populations, self.single, when, layers, risk, path)


class Orders(NamedTuple):
    """What every run is told."""

    loss_target: float
    max_steps: int
    momentum: float
    record_every: int | None


def orders_of(dynamics: str, loss_target, max_steps, momentum, record_every) -> Orders:
    """What every run is told, after checking it."""
    orders = Orders(
        positive_number("loss_target", loss_target, zero_allowed=True),
        whole_number("max_steps", max_steps),
        positive_number("momentum", momentum, zero_allowed=True),
        None if record_every is None else whole_number("record_every", record_every),
    )
    if orders.momentum >= 1:
        raise InputError(f"momentum is {momentum:g}; pass a number from 0 up to but below 1.")
    if dynamics == "flow" and orders.momentum:
        raise InputError("a flow has no momentum; pass momentum=0, or dynamics='descent'.")
    return orders


def cases_of(problem, words, population, depth, **values) -> Cases:
    """One case for each run, after checking what was passed."""
    problems = [problem] if isinstance(problem, Problem) else list(problem)
    single = words.ndim == 1 and isinstance(problem, Problem)
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
    starts = tuple(
        ReducedStart.draw(p, k, width=m, depth=L, alpha=a, beta=b)
        for p, k, m, a, b in zip(problems, keys, widths, alphas, betas, strict=True)
    )
    return Cases(starts, np.array(rates), tuple(populations), single)


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
