"""FM-6: fewer samples than dimensions, and the link of sharpness to generalization."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from deeplin.papers.figures import Figure, Panel, Study, Table, our_panel
from deeplin.papers.marion_chizat_starts import SWEEPS
from deeplin.papers.question import Question, each
from deeplin.papers.scale_sweep import DATA_SETS, DataSets, ScaleSweep, plot_sharpness, scale_study
from deeplin.papers.setting import DATA_SEEDS, Setting
from deeplin.papers.style import COLOURS, INK, QUIET, legend_beside, look

UNDERDETERMINED = Setting(samples=15, dimension=20, depth=5)
SCALES = SWEEPS["FM-6"].scales
SLOWEST = 0.001
"""The learning rate of panel b."""

SWEEP = scale_study(
    "fm-6-scales",
    UNDERDETERMINED,
    "FM-6",
    quick=((SLOWEST, 10_000, 6), (0.004, 2_500, 6), (0.01, 2_000, 6)),
)
EVERYWHERE = Study(
    "fm-6-data-sets",
    DATA_SETS,
    paper=DataSets(UNDERDETERMINED, DATA_SEEDS, SCALES, (0.05,), 20_000, 6),
    quick=DataSets(UNDERDETERMINED, DATA_SEEDS[:3], SCALES[::2], (0.05,), 10_000, 6),
)

PUBLISHED = {"slope": (0.42, 0.01), "intercept": (-0.96, 0.03)}
"""The authors' fit with its standard errors, on their data set."""


def fit(runs: Table) -> tuple[Table, Any]:
    """log10 of the generalization gap and of the sharpness, with their regression line."""
    points = pd.DataFrame({"sharpness": runs["sharpness"], "gap": runs["test_risk"] - runs["risk"]})
    points = np.log10(points[(points > 0).all(axis=1)])
    return points, stats.linregress(points["sharpness"], points["gap"]) if len(points) > 2 else None


def slowest(table: Table) -> Table:
    """The runs of panel b."""
    return table[(table["learning_rate"] == SLOWEST) & (table["status"] != "diverged")]


def plot_generalization(config: ScaleSweep, table: Table, ax: Axes) -> None:
    """Each run one dot, and the regression line (FM-6b)."""
    points, line = fit(slowest(table))
    ax.scatter(points["sharpness"], points["gap"], s=8, color=COLOURS[0], alpha=0.5, linewidth=0)
    ends = np.array([points["sharpness"].min(), points["sharpness"].max()])
    label = f"slope {line.slope:.2f} ± {line.stderr:.2f}, intercept {line.intercept:.2f}"
    ax.plot(ends, line.intercept + line.slope * ends, color=INK, label=label.replace("-", "−"))
    (slope, error), (intercept, _) = PUBLISHED.values()
    label = f"published: {slope} ± {error}, {intercept}".replace("-", "−")
    ax.plot(ends, intercept + slope * ends, "--", color=COLOURS[1], label=label)
    ax.set(
        xlabel=r"$\log_{10}$ sharpness after training",
        ylabel=r"$\log_{10}$ generalization gap (test − train risk)",
    )
    ax.legend(loc="lower right")


def relation_questions(config: DataSets, table: Table) -> list[Question]:
    """Whether sharper minima generalize worse on other data sets, too."""
    settled = table[table["status"] != "diverged"]
    lines = {int(s): fit(runs)[1] for s, runs in settled.groupby("data_seed")}
    found = {seed: line for seed, line in lines.items() if line}
    quantile = stats.t.ppf(0.975, len(settled) / len(lines) - 2)
    clear = sum(line.slope > quantile * line.stderr for line in found.values())
    return [
        Question(
            "other data sets",
            "Is the relation the same on other data sets?",
            f"The slope is {each('data set {}', {s: f.slope for s, f in found.items()})}, the "
            f"correlation {each('data set {}', {s: f.rvalue for s, f in found.items()})}: positive "
            f"beyond its 95% interval on {clear} of {len(lines)}. Its strength depends on the "
            "data.",
        )
    ]


def plot_relation(config: DataSets, table: Table, ax: Axes) -> None:
    """The regression line of each data set over its range of sharpness, the extremes named."""
    settled = table[table["status"] != "diverged"]
    fits = [(seed, runs["sharpness"], fit(runs)[1]) for seed, runs in settled.groupby("data_seed")]
    fits = sorted((found for found in fits if found[2]), key=lambda found: found[2].slope)
    quiet: dict[str, Any] = {"color": QUIET, "alpha": 0.45, "linewidth": 1}
    for place, (seed, sharpness, line) in enumerate(fits):
        ends = np.log10(np.array([sharpness.min(), sharpness.max()]))
        style: dict[str, Any] = quiet | {"zorder": 1}
        if place in (0, len(fits) - 1):
            label = f"{int(seed)}: {line.slope:.2f} ({line.rvalue:.2f})"
            style = look(1 if place == 0 else 0, marker=None, label=label)
        ax.plot(ends, line.intercept + line.slope * ends, **style)
    ax.plot([], [], **quiet, label="the others, between")
    grid = np.array(ax.get_xlim())
    ax.plot(grid, -0.96 + 0.42 * grid, color=INK, linestyle="--", label="published: 0.42")
    ax.set(xlabel=r"$\log_{10}$ sharpness after training", ylabel=r"$\log_{10}$ generalization gap")
    legend_beside(ax, title="data set: slope (corr.)")


FM_6 = Figure(
    "FM-6",
    "Underdetermined regression: sharpness and generalization",
    (
        Panel(
            "FM-6a",
            "Sharpness at initialization and after training, n = 15 and d = 20. Dashed: 2/η. "
            "Dotted: the exact S_min with the printed lower bound just below it.",
            SWEEP,
            plot_sharpness,
        ),
        Panel(
            "FM-6b",
            "Generalization gap against sharpness after training, η = 0.001, one dot for each run.",
            SWEEP,
            plot_generalization,
        ),
        our_panel(
            "FM-6-data-sets",
            "Robustness: the regression line on ten other data sets (quick: three), "
            "η = 0.05 · 2/S_min.",
            EVERYWHERE,
            plot_relation,
            relation_questions,
            size=(5.8, 3.5),
        ),
    ),
    printed="n = 15, d = 20, L = 5, scale from 0.1 to 0.36 (9 values). Steps × repetitions: 40 "
    "000×100 (η = 0.001), 10 000×20 (0.004), 4 000×20 (0.01). 6b: regression of the log10 of the "
    "generalization gap on the log10 of the sharpness, slope 0.42 ± 0.01, intercept −0.96 ± 0.03.",
    as_run="As for FM-1, with the authors' own data and starts; the test set has n fresh points, "
    "scaled by the same factor as the training set.",
)
