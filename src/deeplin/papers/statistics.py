"""Means, slopes, exponents and shares with 95% intervals; curves over the runs that settled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from deeplin.papers.figures import Table

LEVEL = 0.95


def mean_interval(values: Any) -> tuple[float, float]:
    """Mean and half-width of its 95% confidence interval (Student); half-width 0 for one value."""
    values = np.asarray(values, dtype=float)
    if values.size == 0:
        return np.nan, np.nan
    if values.size == 1:
        return float(values[0]), 0.0
    spread = values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean()), float(stats.t.ppf((1 + LEVEL) / 2, values.size - 1) * spread)


def slope_interval(x: Any, y: Any) -> tuple[float, float]:
    """Slope of the regression line and half-width of its 95% confidence interval (Student)."""
    if np.ptp(y) == 0:
        return 0.0, 0.0  # SciPy has no error for a line that fits exactly
    line: Any = stats.linregress(x, y)
    return float(line.slope), float(stats.t.ppf((1 + LEVEL) / 2, len(y) - 2) * line.stderr)


def power_interval(table: Table, x: str, y: str, by: str) -> tuple[float, float]:
    """The exponent p of y ∝ x^p: its mean over the groups of `by`, and half-width of the interval.

    Each group has a regression line of its own, on logarithms.
    """
    groups = np.log(table[[x, y]]).groupby(table[by])
    return mean_interval([np.polyfit(rows[x], rows[y], 1)[0] for _, rows in groups])


def share_interval(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95% confidence interval of a probability."""
    interval = stats.binomtest(int(successes), int(trials)).proportion_ci(LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


def curve(table: Table, by: str, column: str) -> Table:
    """One row for each value of `by`: mean, its interval, runs, and the share that diverged.

    The interval's lower end is not drawn below the smallest value seen, which keeps it positive
    for positive quantities (most axes are logarithmic).

    Diverged runs (`status`) count in `diverged` only; where all runs diverged the mean is NaN, and
    no point is drawn, as in the papers.
    """
    rows = []
    for value, runs in table.groupby(by, sort=True):
        settled = runs.loc[runs["status"] != "diverged", column].to_numpy()
        mean, half = mean_interval(settled)
        low, high = share_interval(len(runs) - len(settled), len(runs))
        quartiles = np.quantile(settled, (0.25, 0.5, 0.75)) if len(settled) else [np.nan] * 3
        rows.append(
            {by: value, "mean": mean, "high": mean + half, "runs": len(runs)}
            | {"settled": len(settled), "diverged": 1 - len(settled) / len(runs)}
            | dict(zip(("quarter", "median", "three quarters"), quartiles, strict=True))
            | {"low": max(mean - half, settled.min()) if len(settled) else np.nan}
            | {"diverged_low": low, "diverged_high": high}
        )
    return pd.DataFrame(rows)
