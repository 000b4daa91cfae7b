"""Means, slopes, exponents and shares with 95% intervals, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.95


def mean_interval(values: Any) -> tuple[float, float]:
    """Return the mean and the half-width of its 95% confidence interval (Student).

    The half-width is 0 for one value.
    """
    values = np.asarray(values, dtype=float)
    if values.size == 0:
        return np.nan, np.nan
    if values.size == 1:
        return float(values[0]), 0.0
    spread = values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean()), float(stats.t.ppf((1 + LEVEL) / 2, values.size - 1) * spread)


def slope_interval(x: Any, y: Any) -> tuple[float, float]:
    """Return the slope of the regression line and half-width of its 95% interval (Student)."""
    if np.ptp(y) == 0:
        return 0.0, 0.0  # SciPy has no error for a line that fits exactly
    line: Any = stats.linregress(x, y)
    return float(line.slope), float(stats.t.ppf((1 + LEVEL) / 2, len(y) - 2) * line.stderr)


def power_interval(table: Any, x: str, y: str, by: str) -> tuple[float, float]:
    """Return the exponent p of y ∝ x^p, the mean over groups of `by`, and its half-width.

    Each group has its own regression line, on logarithms.
    """
    groups = np.log(table[[x, y]]).groupby(table[by])
    return mean_interval([np.polyfit(rows[x], rows[y], 1)[0] for _, rows in groups])


def share_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return Wilson's 95% confidence interval of a probability."""
    interval = stats.binomtest(int(successes), int(trials)).proportion_ci(LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


def curve(table: Any, by: str, column: str) -> pd.DataFrame:
    """Return one row for each value of `by`: mean, interval, runs, and share that diverged.

    The lower end of the interval is at least the smallest value, which keeps it positive for
    positive quantities (most axes are logarithmic).

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


def number(value: Any) -> str:
    """Format a number with four significant digits, and powers of ten as ×10ⁿ."""
    if not math.isfinite(value):
        return "none" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"  # also for −0
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:.4g}".replace("-", "−") if abs(value) < 1e4 else f"{value:.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}×10{raised}".replace("-", "−")


def extent(values: Iterable[Any]) -> str:
    """Format the smallest and the largest of some numbers: `0.97 to 1.03`."""
    found = [float(value) for value in values if not math.isnan(value)]
    if not found:
        return "none"
    low, high = number(min(found)), number(max(found))
    return low if low == high else f"{low} to {high}"


def each(text: str, values: Mapping[Any, float] | Any) -> str:
    """Format a number for each key: `each("depth {}", means)` is `0.97 (depth 5), …`."""

    def name(key: Any) -> str:
        words = key if isinstance(key, tuple) else (key,)
        return text.format(*(word if isinstance(word, str) else number(word) for word in words))

    return ", ".join(f"{number(value)} ({name(key)})" for key, value in values.items())


def percent(share: float) -> str:
    """Format a share as a percentage, with more digits close to 0% and 100%."""
    digits = 0 if share in (0, 1) or 0.1 <= share <= 0.9 else 1
    text = f"{share:.{digits}%}"
    return {"100.0%": "almost all", "0.0%": "almost none"}.get(text, text)


def interval(value: tuple[float, float]) -> str:
    """Format a number and the half-width of its interval: `0.97 ± 0.02`."""
    return " ± ".join(map(number, value))
