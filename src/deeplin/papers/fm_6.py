"""FM-6: underdetermined regression, sharpness and generalization."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from deeplin.errors import InputError
from deeplin.papers.figures import Answers, Table, define_figure, define_panel
from deeplin.papers.scale_sweep import ScaleSweep, scale_study, sharpness_panel
from deeplin.papers.setting import Setting
from deeplin.plot_style import COLORS, INK

SETTING = Setting(samples=15, dimension=20, depth=5)
SWEEP = scale_study(
    "fm-6-scales",
    SETTING,
    "FM-6",
    [(0.001, 10_000, 6), (0.004, 2_500, 6), (0.01, 2_000, 6)],
)
PUBLISHED = {"slope": (0.42, 0.01), "intercept": (-0.96, 0.03)}
"""The authors' fit with its standard errors, on their data set."""


def fit(runs: Table) -> tuple[Table, Any]:
    """Return log10 of the generalization gap and of the sharpness, with their regression line."""
    points = pd.DataFrame({"sharpness": runs["sharpness"], "gap": runs["test_risk"] - runs["risk"]})
    points = np.log10(points[(points > 0).all(axis=1)])
    if len(points) < 3:
        raise InputError("FM-6b draws a line through at least three runs; pass more repetitions.")
    return points, stats.linregress(points["sharpness"], points["gap"])


def slowest(table: Table) -> Table:
    """Return the runs of panel b: those at the smallest rate that do not diverge."""
    runs = table[table["learning_rate"] == table["learning_rate"].min()]
    return runs[runs["status"] != "diverged"]


def plot_generalization(config: ScaleSweep, table: Table, ax: Axes) -> None:
    """Plot one dot for each run in the color of its scale, the regression line, and X-35's law.

    The law has one point for each scale: the mean over its runs of what the start adds.
    """
    runs = slowest(table)
    points, line = fit(runs)
    color = {"c": runs["scale"].loc[points.index], "cmap": "viridis"}
    dots = ax.scatter(points["sharpness"], points["gap"], s=8, alpha=0.6, linewidth=0, **color)
    figure: Any = ax.figure
    figure.colorbar(dots, ax=ax, label="Scale of initialization")
    ends = np.array([points["sharpness"].min(), points["sharpness"].max()])
    label = f"slope {line.slope:.2f} ± {line.stderr:.2f}, intercept {line.intercept:.2f}"
    ax.plot(ends, line.intercept + line.slope * ends, color=INK, label=label.replace("-", "−"))
    (slope, error), (intercept, _) = PUBLISHED.values()
    label = f"published: {slope} ± {error}, {intercept}".replace("-", "−")
    ax.plot(ends, intercept + slope * ends, "--", color=COLORS[1], label=label)
    if "added_by_start" not in runs:  # the data leave no direction free
        return
    law = added(config, runs).groupby("scale").mean(numeric_only=True)
    ax.plot(
        np.log10(law["sharpness"]), np.log10(law["optimum"] + law["added_by_start"] - law["risk"]),
        "D", markersize=5, color=COLORS[3], markeredgecolor=INK, label="law of each scale (X-35)",
    )  # fmt: skip


def added(config: ScaleSweep, runs: Table) -> Table:
    """Return the runs with the test risk of w* (`optimum`) and what they add to it (`measured`)."""
    problem, test = config.setting.data.problem, config.setting.data.test
    away = np.asarray(problem.optimum - test.optimum).reshape(-1)
    optimum = float(test.minimal_risk + away @ np.asarray(test.covariance) @ away)
    return runs.assign(optimum=optimum, measured=runs["test_risk"] - optimum)


def scale_answers(config: ScaleSweep, table: Table) -> Answers:
    """Answer what the correlation is within a scale, and how the law of X-35 fits."""
    runs = added(config, slowest(table))
    points, _ = fit(runs)
    scales = runs["scale"].loc[points.index]
    within = points.groupby(scales).apply(lambda rows: rows["sharpness"].corr(rows["gap"]))
    means = runs.groupby("scale")[["measured", "added_by_start"]].mean()
    return {
        "within a scale": {
            "pooled": points["sharpness"].corr(points["gap"]),
            "within": within,
            "ratio": means["measured"] / means["added_by_start"],
        }
    }


FIGURE = define_figure(
    "FM-6",
    sharpness_panel("FM-6a", SWEEP),
    define_panel(
        "FM-6b",
        SWEEP,
        plot_generalization,
        scale_answers,
        axes={
            "xlabel": r"$\log_{10}$ sharpness after training",
            "ylabel": r"$\log_{10}$ generalization gap (test − train risk)",
        },
        size=(4.8, 4.4),
        legend={"ncols": 1},
    ),
)
