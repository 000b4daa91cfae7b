"""Critical learning rates: of every depth (FM-2), of several scales (FM-1a, FM-4a), and Talk-log.

Talk-log: no critical learning rate for logistic regression on separable data.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network, distance_to_optimum
from deeplin.papers.figures import Answers, Study, Table, define_study
from deeplin.papers.setting import (
    ALL_DATA,
    AUTHORS,
    DEPTHS,
    FEW_DATA,
    FLOOR,
    FM_2_RATES,
    LEARNED,
    SWEEPS,
    Config,
    InSetting,
    OnDataSets,
    Setting,
    sweep_starts,
)
from deeplin.papers.statistics import curve, power_interval
from deeplin.plot_style import INK, QUARTILES, QUIET, band, bars, series, ticks_at
from deeplin.problems.synthetic import separable
from deeplin.sweep import run_key
from deeplin.theory.critical_rate import logistic_descent
from deeplin.training import empirical_critical_rate


@dataclass(frozen=True)
class DepthSweep(InSetting):
    """Every learning rate at every depth, on several data sets."""

    depths: tuple[int, ...]
    learning_rates: tuple[float, ...]
    steps: int
    repetitions: int
    scale: float

    def critical(self, table: Table) -> Table:
        """Return the exact 2/S_min of each row's depth and data set."""
        exact = {
            (depth, seed): self.at(seed, depth=depth).flattest.critical_learning_rate()
            for depth, seed in product(self.depths, self.data_seeds)
        }
        rows = zip(table["depth"], table["data_seed"], strict=True)
        return np.array([exact[row] for row in rows])


def run_depth_sweep(config: DepthSweep, depth: int, data_seed: int) -> pd.DataFrame:
    """Return one row for each run, from the authors' starts or from one start for every rate."""
    setting = config.at(data_seed, depth=depth)
    rates = np.repeat(config.learning_rates, config.repetitions)
    repetitions = [*range(config.repetitions)] * len(config.learning_rates)
    runs = [{"depth": depth, "repetition": repetition} for repetition in repetitions]
    problem = setting.data.problem
    if data_seed == AUTHORS and config.seed == 0:
        drawn = [
            sweep_starts(f"FM-2-{depth}", rate, config.repetitions)
            for rate in config.learning_rates
        ]
        layers = zip(*(network.weights for network in drawn), strict=True)
        initial = Network([np.concatenate(layer) for layer in layers], drawn[0].readout)
    else:
        initial = setting.networks(config.seed, runs, config.scale)
    trained = gradient_descent(problem, initial, rates, config.steps)
    distance = distance_to_optimum(problem, trained.network)
    settled = np.asarray(trained.status) != "diverged"
    return pd.DataFrame(runs).assign(
        data_seed=data_seed,
        learning_rate=rates,
        status=trained.status,
        steps=trained.steps,
        distance=np.where(settled, distance, np.nan),
    )


RESIDUAL = Setting(initialization="residual")
LEARNING_RATES = tuple(rate for rate, *_ in FM_2_RATES)
SWEEP = define_study(
    "fm-2-rates",
    run_depth_sweep,
    {"depth": "depths", "data_seed": "data_seeds"},
    paper=DepthSweep(RESIDUAL, DEPTHS, LEARNING_RATES, 1_000, 50, 0.25, data_seeds=ALL_DATA),
    quick={"repetitions": 8, "data_seeds": FEW_DATA},
    runs=lambda config: len(config.learning_rates) * config.repetitions,
    steps="steps",
)
STARTS = {
    "residual": "from residual initializations",
    "flattest": "from next to the flattest minimizer",
}


@dataclass(frozen=True)
class CriticalRates(InSetting):
    """A search for the largest rate that settles, at every depth and from both kinds of start."""

    depths: tuple[int, ...]
    starts: int
    steps: tuple[int, ...]
    """Numbers of steps, increasing: the result of the search depends on them."""


def _rates(setting: Setting) -> tuple[float, float]:
    """Return the exact critical rate 2/S_min and its printed approximation."""
    flattest = setting.flattest
    return flattest.critical_learning_rate(), flattest.printed_critical_learning_rate


def run_depth(
    config: CriticalRates, depth: int, start: str, steps: int, data_seed: int
) -> list[dict[str, float]]:
    """Return one row: the measured rate with its interval, the exact and the printed rate."""
    setting = config.at(data_seed, depth=depth)
    measured = empirical_critical_rate(
        setting.data.problem,
        depth,
        initialization=start,
        seeds=config.starts,
        steps=steps,
        key=run_key(config.seed, depth=depth, start=start),
    )
    low, high = measured.interval
    exact, printed = _rates(setting)
    rates = {"measured": measured.value, "low": low, "high": high}
    return [rates | {"exact": exact, "printed": printed}]


THRESHOLDS = define_study(
    "fm-2-thresholds",
    run_depth,
    {"depth": "depths", "start": tuple(STARTS), "steps": "steps", "data_seed": "data_seeds"},
    paper=CriticalRates(RESIDUAL, DEPTHS, starts=50, steps=(5_000, 20_000), data_seeds=ALL_DATA),
    quick={"starts": 8, "steps": (1_000, 4_000), "data_seeds": FEW_DATA},
    runs="starts",
)


def plot_rates(config: DepthSweep, table: Table, ax: Axes) -> None:
    """Plot median squared distance against η, with the exact and the printed critical rate."""
    table, _ = config.split(table)
    for index, depth in enumerate(config.depths):
        points = curve(table[table["depth"] == depth], "learning_rate", "distance")
        style = series(index, label=f"depth {depth}")
        band(ax, points, "learning_rate", QUARTILES, FLOOR, **style)
        for rate, line in zip(_rates(config.at(depth=depth)), ("--", ":"), strict=True):
            ax.axvline(rate, color=style["color"], linestyle=line, linewidth=1)
    ax.plot([], [], color=INK, linestyle="--", linewidth=1, label=r"$2/S_{\min}$, exact")
    ax.plot([], [], color=QUIET, linestyle=":", linewidth=1, label=r"$1/(La)$, printed")


def plot_collapse(config: DepthSweep, table: Table, ax: Axes) -> None:
    """Plot median squared distance on every data set against η over its exact critical rate."""
    runs = table.assign(relative=table["learning_rate"] / config.critical(table))
    for index, depth in enumerate(config.depths):
        for seed in reversed(config.data_seeds):  # the first on top
            chosen = runs[(runs["depth"] == depth) & (runs["data_seed"] == seed)]
            points = curve(chosen, "relative", "distance")
            style = series(index, markersize=3, label=f"depth {depth}")
            if seed != config.data_seeds[0]:
                style |= {"alpha": 0.35, "linewidth": 0.8, "marker": None, "label": None}
            ax.plot(points["relative"], points["median"].clip(lower=FLOOR), **style)
    ax.plot([], [], color=QUIET, linewidth=0.8, label="other data sets")
    ax.axvline(1, color=INK, linestyle="--", linewidth=1, label=r"$2/S_{\min}$, exact")


def collapse_answers(config: DepthSweep, table: Table) -> Answers:
    """Answer where the threshold is on every data set."""
    relative = table["learning_rate"] / config.critical(table)
    learned = (table["status"] != "diverged") & (table["distance"] < LEARNED)
    by = table["depth"]
    below, above = (learned[part].groupby(by).mean() for part in (relative < 0.9, relative > 1.1))
    return {"other data sets": {"below": below.min(), "above": above}}


def plot_thresholds(config: CriticalRates, table: Table, ax: Axes) -> None:
    """Plot measured and printed critical rates relative to the exact 2/S_min."""
    most = max(config.steps)
    table, others = config.split(table)
    others = others[others["steps"] == most]
    light = {"linestyle": "", "alpha": 0.35, "markersize": 3}
    for index, (start, label) in enumerate(STARTS.items()):
        for steps in config.steps:
            rows = table[(table["start"] == start) & (table["steps"] == steps)]
            points = rows[["measured", "low", "high"]].div(rows["exact"], axis=0)
            style = series(index, label=label, linestyle="", capsize=3)
            if steps < most:
                style |= {"label": None, "markerfacecolor": "none", "elinewidth": 0.8}
            shift = (0.97 if index else 1.03) * (1 if steps == most else 0.94)
            points = points.assign(depth=rows["depth"] * shift)
            bars(ax, points.rename(columns={"measured": "mean"}), "depth", **style)
        rows = others[others["start"] == start]
        place = rows["depth"] * (0.9 if index else 1.1)
        style = series(index, markeredgewidth=0, zorder=1, **light)
        ax.plot(place, rows["measured"] / rows["exact"], **style)
    if len(others):
        ax.plot([], [], marker="o", color=QUIET, label="other data sets", **light)
    printed = table.drop_duplicates("depth")
    ratio = printed["printed"] / printed["exact"]
    ax.plot(printed["depth"], ratio, ":", label="printed, $1/(La)$", **series(2))
    ax.axhline(1, color=INK, linestyle="--", linewidth=1, label=r"exact, $2/S_{\min}$")
    ticks_at(ax, config.depths)


def threshold_answers(config: CriticalRates, table: Table) -> Answers:
    """Answer how the measured threshold of every depth and data set compares with 2/S_min."""
    few, many = min(config.steps), max(config.steps)
    ratio = (table["measured"] / table["exact"]).groupby(
        [table["steps"], table["start"], table["depth"]]
    )
    flattest, residual = ratio.agg(["min", "max"]).loc[many, "flattest"], ratio.mean()
    printed = (table["printed"] / table["exact"]).groupby(table["depth"]).max()
    return {
        "flattest start": {
            "least": flattest["min"],
            "most": flattest["max"].max(),
            "sets": table["data_seed"].nunique(),
        },
        "residual start": {
            "few": few,
            "many": many,
            "early": residual[few, "residual"],
            "late": residual[many, "residual"],
        },
        "like 1/L": {"power": power_interval(table, "depth", "measured", "data_seed")},
        "printed approximation": {"percent": 100 * (printed - 1)},
    }


@dataclass(frozen=True)
class ScaleCritical(Config):
    """A search for the largest rate that settles, from every scale."""

    setting: Setting
    scales: tuple[float, ...]
    starts: int
    steps: int


def run_scale(config: ScaleCritical, scale: float) -> list[dict[str, float]]:
    """Return one row: the measured rate over the exact one, with its 95% interval over starts."""
    setting = config.setting
    measured = empirical_critical_rate(
        setting.data.problem,
        setting.depth,
        initialization=setting.initialization,
        scale=scale,
        seeds=config.starts,
        steps=config.steps,
        key=run_key(config.seed, scale=scale, part="critical"),
    )
    exact = setting.flattest.critical_learning_rate()
    low, high = measured.interval
    settled = int(np.count_nonzero(np.isfinite(np.atleast_1d(measured.rates))))  # at some rate
    ratios = {"ratio": measured.value / exact, "low": low / exact, "high": high / exact}
    return [ratios | {"settled": settled}]


def _study(figure: str, setting: Setting, scales: slice) -> Study:
    """Return the critical rates from some scales of a figure's sweep."""
    paper = ScaleCritical(setting, SWEEPS[figure].scales[scales], starts=12, steps=20_000)
    name, fewer = f"{figure.lower()}-critical", {"starts": 4, "steps": 4_000}
    over = {"scale": "scales"}
    return define_study(name, run_scale, over, paper=paper, quick=fewer, runs="starts")


CRITICAL = _study("FM-1", Setting(), slice(0, 7, 3))
RESIDUAL_CRITICAL = _study("FM-4", RESIDUAL, slice(1, 8, 3))


def critical_answers(config: ScaleCritical, table: Table) -> Answers:
    """Answer whether the scale moves the critical rate."""
    counts = ", ".join(f"{int(settled)} of {config.starts}" for settled in table["settled"])
    return {"scale": {"ratio": table.set_index("scale")["ratio"], "counts": counts}}


def plot_critical(config: ScaleCritical, table: Table, ax: Axes) -> None:
    """Plot measured critical rate over the exact one, with its 95% interval over the starts."""
    bars(ax, table.rename(columns={"ratio": "mean"}), "scale", **series(0))
    ax.axhline(1, color=INK, linestyle="--", linewidth=1, label=r"exact, $2/S_{\min}$")


LABELS = {
    "logistic": "logistic loss, separable data",
    "linear": "squared loss, linear regression",
    "deep": "squared loss, depth 10",
}


@dataclass(frozen=True)
class Contrast(OnDataSets):
    """Learning rates relative to the threshold of each problem, all with the same steps."""

    relative_rates: tuple[float, ...]
    steps: int
    scale: float = 0.25


def run_contrast(config: Contrast, problem: str, data_seed: int) -> dict[str, np.ndarray]:
    """Return the final loss over the initial one.

    Rates are in units of 2/smoothness, or of 2/S_min for depth 10.
    """
    if problem == "logistic":
        inputs, labels = separable(abs(data_seed)).problem.require_data("logistic regression")
        loss = logistic_descent(inputs, labels[:, 0], config.relative_rates, config.steps)
        final, status = loss / np.log(2), np.full(len(loss), "stopped")
    else:
        final, status = _regression(config, data_seed, 1 if problem == "linear" else 10)
    return {"relative_rate": np.array(config.relative_rates), "status": status, "loss": final}


def _regression(config: Contrast, seed: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the gap R − R_min at the end over that of the zero map, NaN where descent diverged."""
    setting = Setting("residual" if depth > 1 else "gaussian", depth=depth, data_seed=seed)
    problem = setting.data.problem
    rates = np.array(config.relative_rates) * 2 / setting.flattest.exact
    if depth == 1:
        network = Network([np.zeros((1, setting.dimension))])
    else:
        network = setting.networks(config.seed, [{"depth": depth}] * len(rates), config.scale)
    trained = gradient_descent(problem, network, rates, config.steps)
    status = np.asarray(trained.status)
    gap = np.asarray(trained.evidence["gap"]) / problem.zero_gap
    return np.where(status != "diverged", gap, np.nan), status


def plot_contrast(config: Contrast, table: Table, ax: Axes) -> None:
    """Plot the final loss against the learning rate, with crosses above the axes for divergence."""
    table, _ = config.split(table)
    for index, (name, label) in enumerate(LABELS.items()):
        runs = table[table["problem"] == name]
        style = series(index, label=label)
        ax.plot(runs["relative_rate"], runs["loss"].clip(lower=1e-16), **style)
        gone = runs.loc[runs["status"] == "diverged", "relative_rate"]
        # in a separate strip: a diverged run has no final loss
        strip = {"transform": ax.get_xaxis_transform(), "clip_on": False}
        ax.plot(gone, np.full_like(gone, 1.03 + 0.035 * index), "x", color=style["color"], **strip)
    ax.axvline(1, color=INK, linestyle="--", linewidth=1)


def contrast_answers(config: Contrast, table: Table) -> Answers:
    """Answer for logistic loss at every rate, and squared loss below and above its threshold."""
    table = table.assign(loss=table["loss"].fillna(np.inf))
    kind, rate = table["problem"] == "logistic", table["relative_rate"]
    above = table[~kind & (rate > 1)]
    return {
        "critical rate": {
            "rate": max(config.relative_rates),
            "best": table[kind & (rate > 1)].groupby("relative_rate")["loss"].max(),
            "below": table[~kind & (rate < 0.9)]["loss"].max(),
            "settled": (above["status"] == "converged").mean(),
            "above": len(above),
        }
    }


CONTRAST = define_study(
    "talk-log",
    run_contrast,
    {"problem": tuple(LABELS), "data_seed": "data_seeds"},
    paper=Contrast(tuple(np.logspace(-1, 3, 33).tolist()), 20_000, data_seeds=ALL_DATA),
    quick={"steps": 2_000, "data_seeds": FEW_DATA},
    runs="relative_rates",
    steps="steps",
)
