"""The critical learning rate measured at several depths (FM-2) and scales (FM-1a, FM-4a)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.papers.figures import Table, grid_experiment
from deeplin.papers.question import Question, each, extent, number
from deeplin.papers.setting import AUTHORS, Setting
from deeplin.papers.statistics import power_interval
from deeplin.papers.style import INK, QUIET, legend_below, look
from deeplin.sweep import run_key
from deeplin.training import empirical_critical_rate

STARTS = {
    "residual": "from residual initializations",
    "flattest": "from next to the flattest minimizer",
}


@dataclass(frozen=True)
class CriticalRates:
    """A search for the largest rate that settles, at every depth and from both kinds of start."""

    setting: Setting
    """Its own depth and data set are not used."""
    depths: tuple[int, ...]
    starts: int
    steps: tuple[int, ...]
    """From few to many: how far the search gets depends on them."""
    data_seeds: tuple[int, ...] = (AUTHORS,)
    """The first is drawn in full."""
    seed: int = 0


def run_depth(
    config: CriticalRates, depth: int, start: str, steps: int, data_seed: int
) -> pd.DataFrame:
    """One row: the measured rate with its confidence interval, the exact and the printed one."""
    setting = replace(config.setting, depth=depth, data_seed=data_seed)
    measured = empirical_critical_rate(
        setting.data.problem,
        depth,
        initialization=start,
        seeds=config.starts,
        steps=steps,
        key=run_key(config.seed, depth=depth, start=start),
    )
    low, high = measured.interval
    flattest = setting.flattest
    row = {
        "depth": depth,
        "start": start,
        "data_seed": data_seed,
        "steps": steps,
        "measured": measured.value,
        "low": low,
        "high": high,
        "exact": flattest.critical_learning_rate(),
        "printed": flattest.printed_critical_learning_rate,
    }
    return pd.DataFrame([row])


CRITICAL_RATES = grid_experiment(
    "critical-rates",
    CriticalRates,
    run_depth,
    {"depth": "depths", "start": tuple(STARTS), "steps": "steps", "data_seed": "data_seeds"},
    runs="starts",
    bucket="depth",
    grid=("depths", "data_seeds"),
)


def plot_thresholds(config: CriticalRates, table: Table, ax: Axes) -> None:
    """Measured and printed critical rates relative to the exact 2/S_min."""
    most = max(config.steps)
    drawn = table["data_seed"] == config.data_seeds[0]
    table, others = table[drawn], table[~drawn & (table["steps"] == most)]
    for index, (start, label) in enumerate(STARTS.items()):
        for steps in config.steps:
            rows = table[(table["start"] == start) & (table["steps"] == steps)]
            ratio, low, high = (
                (rows[name] / rows["exact"]).to_numpy() for name in ("measured", "low", "high")
            )
            style = look(index) | {"label": label, "linestyle": "", "capsize": 3}
            if steps < most:
                style |= {"label": None, "markerfacecolor": "none", "elinewidth": 0.8}
            shift = (0.97 if index else 1.03) * (1 if steps == most else 0.94)
            ax.errorbar(rows["depth"] * shift, ratio, [ratio - low, high - ratio], **style)
        rows = others[others["start"] == start]
        light = look(index, linestyle="", alpha=0.35, markersize=3, markeredgewidth=0, zorder=1)
        place = rows["depth"] * (0.9 if index else 1.1)
        ax.plot(place, rows["measured"] / rows["exact"], **light)
    if len(others):
        light = {"color": QUIET, "alpha": 0.35, "markersize": 3, "linestyle": ""}
        ax.plot([], [], marker="o", label="other data sets", **light)
    printed = table.drop_duplicates("depth")
    ratio = printed["printed"] / printed["exact"]
    ax.plot(printed["depth"], ratio, ":", label="printed, $1/(La)$", **look(2))
    ax.axhline(1, color=INK, linestyle="--", linewidth=1, label=r"exact, $2/S_{\min}$")
    ax.set_xscale("log")
    ax.set_xticks(config.depths, [str(depth) for depth in config.depths])
    ax.minorticks_off()
    ax.set(xlabel="Depth", ylabel="Critical rate relative to the exact one")
    legend_below(ax, ncols=2)


def threshold_questions(config: CriticalRates, table: Table) -> list[Question]:
    """How the measured threshold of every depth and data set compares with 2/S_min."""
    few, many = min(config.steps), max(config.steps)
    ratio = (table["measured"] / table["exact"]).groupby(
        [table["steps"], table["start"], table["depth"]]
    )
    means = ratio.mean()
    slope, half = power_interval(table, "depth", "measured", "data_seed")
    sets = table["data_seed"].nunique()
    printed = (table["printed"] / table["exact"]).groupby(table["depth"]).max() - 1
    return [
        Question(
            "flattest start",
            "Up to which rate does descent settle from next to the flattest minimizer?",
            f"Up to {extent(ratio.min()[many, 'flattest'])} of 2/S_min or more at every depth, and "
            f"nowhere above {number(ratio.max()[many, 'flattest'].max())} (bisection to 1%; {sets} "
            "data sets).",
        ),
        Question(
            "residual start",
            "And from residual initializations?",
            f"On average {each('depth {}', means[many, 'residual'])} of 2/S_min after {many} steps "
            f"and {each('depth {}', means[few, 'residual'])} after {few}: close to the edge "
            "descent settles ever more slowly, so the measured rate rises with the steps.",
        ),
        Question(
            "like 1/L",
            "How does the critical rate fall with depth?",
            f"Like L to the power {number(slope)} ± {number(half)}.",
        ),
        Question(
            "printed approximation",
            "How far is the printed 1/(La) above the exact 2/S_min?",
            f"By {each('depth {}', 100 * printed)} percent at most.",
        ),
    ]


@dataclass(frozen=True)
class ScaleCritical:
    """A search for the largest rate that settles, from every scale."""

    setting: Setting
    scales: tuple[float, ...]
    starts: int
    steps: int
    seed: int = 0


def run_scale(config: ScaleCritical, scale: float) -> pd.DataFrame:
    """One row: the measured rate with its 95% interval over the starts, over the exact one."""
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
    row = {"scale": scale, "ratio": measured.value / exact, "low": low / exact}
    settled = int(np.count_nonzero(np.isfinite(np.atleast_1d(measured.rates))))  # at some rate
    return pd.DataFrame([row | {"high": high / exact, "settled": settled}])


SCALE_CRITICAL = grid_experiment(
    "scale-critical", ScaleCritical, run_scale, {"scale": "scales"}, runs="starts"
)


def critical_questions(config: ScaleCritical, table: Table) -> list[Question]:
    """Whether the scale moves the critical rate."""
    rows = table.set_index("scale")
    counts = ", ".join(f"{int(row.settled)} of {config.starts}" for row in table.itertuples())
    return [
        Question(
            "scale",
            "Does the scale move the largest rate at which a start settles?",
            f"Measured over 2/S_min: {each('scale {}', rows['ratio'])}, after {config.steps} "
            f"steps. Starts that settle at some rate: {counts}. What is missing to 1 is the steps "
            "(it settles ever more slowly there) and starts that are thrown too far.",
        )
    ]


def plot_critical(config: ScaleCritical, table: Table, ax: Axes) -> None:
    """Measured critical rate over the exact one, with its 95% interval over the starts."""
    spread = [table["ratio"] - table["low"], table["high"] - table["ratio"]]
    ax.errorbar(table["scale"], table["ratio"], spread, capsize=3, **look(0))
    ax.axhline(1, color=INK, linestyle="--", linewidth=1, label=r"exact, $2/S_{\min}$")
    ax.set(xlabel="Scale of initialization", ylim=(0, 1.1))
    ax.set_ylabel("Critical rate over the exact one")
    ax.legend(loc="lower left")
