"""Measurement of the largest learning rate at which descent settles, predicted as 2/S_min."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import stdtrit

from deeplin.dynamics import gradient_descent
from deeplin.errors import InputError, positive_number, whole_number
from deeplin.networks import Network, initialize
from deeplin.networks.initialize import start_by_name
from deeplin.problems import Problem
from deeplin.theory import critical_learning_rate

SETTLED = 1e-8
"""A run has settled when R − R_min is at most this fraction of R_0 − R_min at its end."""
CONFIDENCE = 0.95
SECTIONS = 8
"""Number of rates tried at once inside each interval: one call shrinks it ninefold."""
LOWEST_RATIO, HIGHEST_RATIO = 1 / 64, 2.0
"""Ends of the initial search interval, relative to the predicted rate."""

Draw = Callable[[Array], Network]


@dataclass(frozen=True)
class CriticalRate:
    """The measured critical learning rate of each start, and the predicted one."""

    rates: np.ndarray
    """One measured rate per seed; NaN if descent settled at none of the rates tried."""
    predicted: float
    """(2+2β)/S_min (X-2)."""
    resolution: float
    """Relative width of the interval that contains each rate."""
    steps: int

    @property
    def value(self) -> float:
        """Geometric mean over the seeds that settled."""
        return float(np.exp(np.mean(np.log(self._known))))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the geometric mean (Student's t on logarithms)."""
        logs = np.log(self._known)
        spread = np.std(logs, ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else 0.0
        quantile = stdtrit(max(len(logs) - 1, 1), (1 + CONFIDENCE) / 2)
        half = quantile * spread + self.resolution / 2
        return self.value * float(np.exp(-half)), self.value * float(np.exp(half))

    @property
    def ratio(self) -> float:
        """Measured rate divided by the predicted rate."""
        return self.value / self.predicted

    @property
    def _known(self) -> np.ndarray:
        known = self.rates[np.isfinite(self.rates)]
        if len(known) == 0:
            raise InputError(
                f"no run settled within {self.steps} steps at any learning rate tried; pass more "
                "steps or another initialization."
            )
        return known

    def __repr__(self) -> str:
        low, high = self.interval
        return (
            f"CriticalRate({self.value:.4g} in [{low:.4g}, {high:.4g}], {len(self.rates)} seeds; "
            f"predicted {self.predicted:.4g})"
        )


def empirical_critical_rate(
    problem: Problem,
    depth: int,
    *,
    initialization: str | Draw = "residual",
    scale: float | None = None,
    seeds: int = 8,
    steps: int = 10_000,
    momentum: float = 0.0,
    resolution: float = 0.01,
    key: Array | None = None,
) -> CriticalRate:
    """Measure the largest learning rate at which descent settles in a minimizer, for several seeds.

    FM-crit predicts 2/S_min as its upper limit; edge-of-stability training comes close to it. The
    search narrows an interval for every seed at once: each call of descent trains all seeds at
    several rates. `initialization` is `residual` (as in FM-2, with a random unit read-out),
    `gaussian`, or a function from keys to a batch of networks whose read-out, if any, has norm one.

    ```python
    import jax
    import deeplin as dl
    jax.config.update("jax_enable_x64", True)
    problem = dl.problems.synthetic.flat_minima(seed=0).problem
    measured = dl.training.empirical_critical_rate(problem, depth=3, seeds=4, steps=2000)
    assert measured.ratio < 1.02
    ```
    """
    whole_number("seeds", seeds)
    width = positive_number("resolution", resolution)
    predicted = critical_learning_rate(problem, depth, momentum=momentum)
    keys = jax.random.split(jax.random.key(0) if key is None else key, seeds)
    starts = _starts(problem, depth, initialization, scale)(keys)
    goal = SETTLED * problem.zero_gap
    batch = jax.tree.map(lambda leaf: jnp.repeat(leaf, SECTIONS, axis=0), starts.with_batch())

    def settles(rates: np.ndarray) -> np.ndarray:
        run = gradient_descent(problem, batch, rates.ravel(), steps, momentum=momentum)
        return np.asarray(run.evidence["gap"]).reshape(rates.shape) <= goal

    low, high = np.full(seeds, LOWEST_RATIO * predicted), np.full(seeds, HIGHEST_RATIO * predicted)
    low, high, found = largest_settling(settles, low, high, width)
    return CriticalRate(np.where(found, np.sqrt(low * high), np.nan), predicted, width, steps)


def largest_settling(
    settles: Callable[[np.ndarray], np.ndarray], low: Any, high: Any, resolution: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return intervals of relative width `resolution` around the largest rates that settle.

    `settles` maps rates of shape (starts, SECTIONS) to booleans: whether descent settles. `low` and
    `high` hold the ends of one interval per start. The last array returned tells for which starts
    at least one rate settled.
    """
    low, high = np.array(low, np.float64), np.array(high, np.float64)
    found = np.zeros(len(low), bool)
    shares = np.arange(1, SECTIONS + 1) / (SECTIONS + 1)
    while np.max(np.log(high / low)) > resolution:
        rates = low[:, None] * (high / low)[:, None] ** shares
        ladder = np.concatenate([low[:, None], rates, high[:, None]], axis=1)
        # the largest rate that settled, and the next one above it
        last = np.where(settles(rates), np.arange(1, SECTIONS + 1), 0).max(axis=1)
        found |= last > 0
        low, high = (np.take_along_axis(ladder, i[:, None], 1)[:, 0] for i in (last, last + 1))
    return low, high, found


def _starts(problem: Problem, depth: int, kind: str | Draw, scale: float | None) -> Draw:
    """Return the function from keys to starting networks."""
    if callable(kind):
        return kind
    if kind in ("residual", "gaussian"):
        d = problem.dimension
        readout = initialize.unit_readout(jax.random.key(1), d)
        return lambda keys: start_by_name(
            kind, problem, keys, depth=depth, width=d, scale=scale, readout=readout
        )
    raise InputError(f"initialization is {kind!r}; pass residual, gaussian or a function of keys.")
