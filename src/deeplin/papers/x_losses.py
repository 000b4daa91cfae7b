"""X-losses: the critical learning rate of a classifier and of regression, against depth (X-14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, extent, number
from deeplin.papers.setting import Setting
from deeplin.papers.statistics import mean_interval
from deeplin.papers.style import QUIET, legend_below, look
from deeplin.papers.x_search import DATA_SETS, LIGHT, rate_beside
from deeplin.problems import Problem
from deeplin.sweep import run_key
from deeplin.theory import minimal_sharpness
from deeplin.training import empirical_critical_rate

SEARCHED = (0.003, 300.0)
AWAY: dict[str, Any] = {
    "linestyle": "", "marker": "D", "markersize": 6, "markerfacecolor": "none", "capsize": 2
}  # fmt: skip
LABELS = {"logistic": "logistic loss", "squared": "squared loss"}


@dataclass(frozen=True)
class Losses:
    """Depths at which networks with either loss are trained on the same inputs."""

    depths: tuple[int, ...]
    steps: int
    starts: int
    """Residual starts of each search."""
    data_seeds: tuple[int, ...] = DATA_SETS
    """The first is drawn in full."""
    seed: int = 0


def run_cell(config: Losses, depth: int, loss: str, data_seed: int) -> list[dict[str, float]]:
    """The predicted rate, and two measured ones: beside the flattest minimizer, and far from it."""
    problem = problem_of(loss, data_seed)
    flattest = minimal_sharpness(problem, depth)
    key = run_key(config.seed, data_seed=data_seed, depth=depth, loss=loss)
    away = empirical_critical_rate(problem, depth, seeds=config.starts, steps=config.steps, key=key)
    low, high = away.interval
    return [
        {
            "predicted": flattest.critical_learning_rate(),
            "measured": rate_beside(problem, flattest.minimizer, key, SEARCHED, config.steps),
            "residual": away.value,
            "low": low,
            "high": high,
        }
    ]


def problem_of(loss: str, data_seed: int) -> Problem:
    """The data of FM-1; for classification the signs of its targets are the labels."""
    X, Y = Setting(data_seed=data_seed).data.problem.require_data("the labels")
    return Problem.from_data(X, Y[:, 0] if loss == "squared" else np.sign(Y[:, 0]), loss=loss)


def questions(config: Losses, table: Table) -> list[Question]:
    """How the measured rates compare with 2/S_min for both losses."""
    found = []
    for loss, rows in table.groupby("loss"):
        beside = rows["measured"] / rows["predicted"]
        away = (rows["residual"] / rows["predicted"]).groupby(rows["depth"]).mean()
        slopes = [
            np.polyfit(np.log(part["depth"]), np.log(part["measured"]), 1)[0]
            for _, part in rows.groupby("data_seed")
        ]
        mean, half = mean_interval(slopes)
        found.append(
            Question(
                f"{loss} loss",
                f"Is 2/S_min the critical rate of deep networks with {loss} loss?",
                f"Beside the flattest minimizer descent settles up to {extent(beside)} of it "
                f"(bisection to 0.5 %; depths {extent(config.depths)}, "
                f"{table['data_seed'].nunique()} data sets), from residual starts up to "
                f"{extent(away)} of it after {config.steps} steps (mean at each depth). It falls "
                f"like L to the power {number(mean)} ± {number(half)}.",
            )
        )
    ratio = table.pivot_table("predicted", ["depth", "data_seed"], "loss")
    apart = (ratio["logistic"] / ratio["squared"]).groupby("depth").mean()
    found.append(
        Question(
            "both losses",
            "How much larger is the critical rate of the logistic network?",
            f"{number(apart.iloc[0])} times that of regression on the same inputs at depth "
            f"{apart.index[0]}, {number(apart.iloc[-1])} times at depth {apart.index[-1]} (means).",
        )
    )
    return found


def plot(config: Losses, table: Table, ax: Axes) -> None:
    """Predicted rates as lines, measured ones as marks, one color for each loss."""
    for index, (loss, label) in enumerate(LABELS.items()):
        mine = table[table["loss"] == loss].sort_values("depth")
        style = look(index)
        for data_seed, rows in mine.groupby("data_seed"):
            if data_seed != config.data_seeds[0]:
                ax.plot(rows["depth"], rows["predicted"], color=style["color"], **LIGHT)
        rows = mine[mine["data_seed"] == config.data_seeds[0]]
        ax.plot(rows["depth"], rows["predicted"], color=style["color"], label=f"{label}, predicted")
        ax.plot(rows["depth"], rows["measured"], **style, linestyle="")
        spread = [rows["residual"] - rows["low"], rows["high"] - rows["residual"]]
        ax.errorbar(rows["depth"], rows["residual"], spread, color=style["color"], **AWAY)
    ax.plot([], [], "o", color=QUIET, label="measured beside the flattest minimizer")
    ax.errorbar([], [], [], color=QUIET, label="measured from residual starts", **AWAY)
    ax.loglog()
    ax.set_xticks(config.depths, [str(depth) for depth in config.depths])
    ax.minorticks_off()
    ax.set(xlabel="Depth $L$", ylabel="Critical learning rate")
    legend_below(ax, ncols=2)


AXES = {"depth": "depths", "loss": tuple(LABELS), "data_seed": "data_seeds"}
LOSSES = grid_experiment("losses", Losses, run_cell, AXES, runs="starts", bucket="depth")
X_LOSSES = Figure(
    "X-losses",
    "The critical learning rate of a deep classifier",
    (
        our_panel(
            "X-losses",
            "Critical learning rate against depth with logistic and with squared loss on the same "
            "inputs: predicted by X-14 and X-2, and measured by bisection beside the flattest "
            "minimizer and from residual starts (bars: 95 % over the starts). One data set is "
            "drawn in full, the predicted rates of the others lightly.",
            Study(
                "x-losses",
                LOSSES,
                paper=Losses((2, 3, 5, 10, 20, 40), steps=4_000, starts=6),
                quick=Losses((2, 5, 20), steps=1_000, starts=3, data_seeds=DATA_SETS[:2]),
            ),
            plot,
            questions,
            size=(5.2, 4.4),
        ),
    ),
    printed="Not in the papers, whose exact results are for squared loss.",
    as_run="The data of FM-1 (n = 50, d = 5); the labels are the signs of its targets, which no "
    "plane separates. Descent from within 1e-4 of the flattest minimizer, where a rate settles if "
    "the gap ends smaller than it began; and from residual starts (s = 0.25, a unit read-out of "
    "its own each), where the gap has to fall to 1e-8 of that of the zero map.",
)
