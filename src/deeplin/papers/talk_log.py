"""Talk-log: no critical learning rate for logistic regression on separable data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, extent, number, percent
from deeplin.papers.setting import AUTHORS, DATA_SEEDS, Setting
from deeplin.papers.style import INK, look
from deeplin.problems.synthetic import separable
from deeplin.theory.critical_rate import logistic_descent

LABELS = {
    "logistic": "logistic loss, separable data",
    "linear": "squared loss, linear regression",
    "deep": "squared loss, depth 10",
}


@dataclass(frozen=True)
class Contrast:
    """Learning rates relative to the threshold of each problem, all with the same steps."""

    relative_rates: tuple[float, ...]
    steps: int
    data_seeds: tuple[int, ...] = (AUTHORS,)
    """The first is drawn."""
    scale: float = 0.25
    seed: int = 0


def run_cell(config: Contrast, problem: str, data_seed: int) -> dict[str, np.ndarray]:
    """Final loss relative to its start; rates in units of 2/smoothness, or 2/S_min for depth 10."""
    if problem == "logistic":
        inputs, labels = separable(abs(data_seed)).problem.require_data("logistic regression")
        loss = logistic_descent(inputs, labels[:, 0], config.relative_rates, config.steps)
        final, status = loss / np.log(2), np.full(len(loss), "stopped")
    else:
        final, status = _regression(config, data_seed, 1 if problem == "linear" else 10)
    return {"relative_rate": np.array(config.relative_rates), "status": status, "loss": final}


def _regression(config: Contrast, seed: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Gap R − R_min at the end over that of the zero map, NaN where descent diverged."""
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


def plot(config: Contrast, table: Table, ax: Axes) -> None:
    """Final loss against the learning rate; crosses above the axes: diverged."""
    table = table[table["data_seed"] == config.data_seeds[0]]
    for index, (name, label) in enumerate(LABELS.items()):
        runs = table[table["problem"] == name]
        style = look(index)
        ax.plot(runs["relative_rate"], runs["loss"].clip(lower=1e-16), label=label, **style)
        gone = runs.loc[runs["status"] == "diverged", "relative_rate"]
        # in a strip of their own: a run that diverged has no final loss
        strip = {"transform": ax.get_xaxis_transform(), "clip_on": False}
        ax.plot(gone, np.full_like(gone, 1.03 + 0.035 * index), "x", color=style["color"], **strip)
    ax.axvline(1, color=INK, linestyle="--", linewidth=1)
    ax.loglog()
    ax.set(
        xlabel="Learning rate relative to the threshold of its problem",
        ylabel="Final loss (gap) over that at the start",
    )
    # long names: side by side they would crush the axes; lower than the label of the axis
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=1, frameon=False)


def questions(config: Contrast, table: Table) -> list[Question]:
    """Logistic loss at every rate; squared loss below and above its threshold."""
    table = table.assign(loss=table["loss"].fillna(np.inf))
    logistic, regression = (
        table[(table["problem"] == "logistic") == kind] for kind in (True, False)
    )
    settled = regression[regression["relative_rate"] > 1]["status"] == "converged"
    best = logistic.groupby("relative_rate")["loss"].max()
    below = regression[regression["relative_rate"] < 0.9]["loss"].max()
    return [
        Question(
            "critical rate",
            "Has logistic regression on separable data a critical rate, as regression has?",
            f"No (Wu et al. 2024): at up to {number(max(config.relative_rates))} times "
            f"2/smoothness the loss ends at {extent(best[best.index > 1])} of its start or lower, "
            f"the lower the larger the rate. Regression ends at {number(below)} of its gap or "
            f"lower below 0.9 of its threshold, and {percent(settled.mean())} of {len(settled)} "
            "runs above it settle.",
        )
    ]


AXES = {"problem": tuple(LABELS), "data_seed": "data_seeds"}
TALK_LOG_EXPERIMENT = grid_experiment(
    "talk-log", Contrast, run_cell, AXES, runs="relative_rates", steps="steps"
)
RELATIVE_RATES = tuple(np.logspace(-1, 3, 33).tolist())

TALK_LOG = Figure(
    "Talk-log",
    "Classification has no critical learning rate",
    (
        our_panel(
            "Talk-log",
            "Final loss against the learning rate: logistic loss on separable data beside "
            "regression. The threshold is 2/smoothness, or 2/S_min for depth 10. Crosses above the "
            "axes: runs that diverged.",
            Study(
                "talk-log",
                TALK_LOG_EXPERIMENT,
                paper=Contrast(RELATIVE_RATES, 20_000, (AUTHORS, *DATA_SEEDS)),
                quick=Contrast(RELATIVE_RATES, 2_000, (AUTHORS, *DATA_SEEDS[:2])),
            ),
            plot,
            questions,
            size=(4.8, 4.2),
        ),
    ),
    printed="Stated, not drawn: for classification with linearly separable data and logistic loss, "
    "gradient descent converges for any learning rate (Wu et al. 2024), unlike regression.",
    as_run="n = 50, d = 5; labels of a random direction, margin 0.1; descent from zero. Beside it "
    "the FM data set with a linear model (from zero) and a residual network (L = 10, s = 0.25). "
    "The question is asked of this and further data sets, of which the first is drawn.",
)
