"""Talk-log: no critical learning rate for logistic regression on separable data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network
from deeplin.papers.figures import Answers, Table, define_figure, define_panel, define_study
from deeplin.papers.setting import ALL_DATA, FEW_DATA, OnDataSets, Setting
from deeplin.plot_style import INK, series
from deeplin.problems.synthetic import separable
from deeplin.theory.critical_rate import logistic_descent

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
    ax.plot([], [], "x", color=INK, label="diverged")
    ax.axvline(1, color=INK, linestyle="--", linewidth=1, label="threshold")


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


FIGURE = define_figure(
    "Talk-log",
    define_panel(
        "Talk-log",
        CONTRAST,
        plot_contrast,
        contrast_answers,
        size=(4.8, 4.2),
        axes={
            "xlabel": "Learning rate relative to the threshold of its problem",
            "ylabel": "Final loss or gap,\nover that at the start",
            "xscale": "log",
            "yscale": "log",
        },
        legend={"ncols": 1, "bbox_to_anchor": (0.5, -0.22)},
        ours=True,
    ),
)
