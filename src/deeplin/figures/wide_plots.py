"""What the benign-overfitting figures show: excess risk and distance to the interpolant."""

from __future__ import annotations

from functools import partial
from typing import Any

from matplotlib.axes import Axes

from deeplin.figures.statistics import curve
from deeplin.figures.style import INK, legend_below, look
from deeplin.figures.tables import Table
from deeplin.figures.wide_claims import PUBLISHED_DISTANCES
from deeplin.figures.wide_sweep import WideSweep, expected_distance


def plot_risk_against_variance(config: WideSweep, table: Table, ax: Axes, *, scale: str) -> None:
    """Excess risk against α² or β², one curve for each d, with that of Θ_min (BO-1)."""
    for index, dimension in enumerate(config.dimensions):
        runs: Any = table[table["dimension"] == dimension]
        squared = runs.assign(variance=runs[scale] ** 2)
        _dynamics(ax, squared, "variance", "risk", index, f"$d = {dimension}$")
        first = runs.drop_duplicates("repetition")
        level = first["interpolant_risk"].mean()
        ax.axhline(level, color=look(index)["color"], linestyle="--", linewidth=1, zorder=1)
    ax.plot([], [], color="0.4", linestyle="--", linewidth=1, label="minimum norm")
    ax.set(xlabel=rf"Initialization variance $\{scale}^2$", ylabel="Excess risk")
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    _legend(ax, table)


def plot_risk_against_dimension(config: WideSweep, table: Table, ax: Axes) -> None:
    """Excess risk against d, one curve for each α, and that of Θ_min (BO-3 left)."""
    _against_dimension(config, table, ax, "risk")
    first = table.drop_duplicates(["dimension", "repetition"]).assign(status="interpolant")
    points = curve(first, "dimension", "interpolant_risk")
    # wide and pale: the curves of small α lie on it
    style = {"color": INK, "linewidth": 6, "alpha": 0.2, "zorder": 1}
    ax.plot(points["dimension"], points["mean"], label="minimum norm", **style)
    ax.set(ylabel="Excess risk")
    _legend(ax, table)


def plot_distance_against_dimension(config: WideSweep, table: Table, ax: Axes) -> None:
    """Squared distance to Θ_min against d, with α²(d−n)mq (BO-3 right)."""
    _against_dimension(config, table, ax, "distance")
    for alpha in config.alphas:
        if alpha > 0:
            expected = [expected_distance(alpha, d) for d in config.dimensions]
            ax.plot(config.dimensions, expected, "k:", linewidth=1, zorder=1)
    ax.plot([], [], "k:", linewidth=1, label=r"$\alpha^2(d-n)mq$")
    dimension, (published, _) = 2000, PUBLISHED_DISTANCES["alpha", 2000]
    ax.plot([dimension], [published], "k*", markersize=9, zorder=4, label="published")
    ax.set_yscale("log")
    ax.set(ylabel=r"$\|\Theta - \Theta_{\min}\|_F^2$")
    _legend(ax, table)


def _legend(ax: Axes, table: Table) -> None:
    """Below the axes, with one entry for gradient flow where it is drawn."""
    if (table["dynamics"] == "flow").any():
        style = {"linestyle": "-.", "linewidth": 1, "marker": "o", "markerfacecolor": "none"}
        ax.plot([], [], color=INK, label="gradient flow", **style)
    legend_below(ax, len(ax.get_legend_handles_labels()[0]))


def _against_dimension(config: WideSweep, table: Table, ax: Axes, column: str) -> None:
    for index, alpha in enumerate(config.alphas):
        runs: Any = table[table["alpha"] == alpha]
        _dynamics(ax, runs, "dimension", column, index, rf"$\alpha = {alpha:g}$")
    ax.set(xlabel="Dimension $d$")


def _dynamics(ax: Axes, runs: Table, by: str, column: str, index: int, label: str) -> None:
    """Descent as a line with error bars; flow, where it was computed, as open markers."""
    draw = partial(ax.errorbar, capsize=2, **look(index))
    for dynamics, rows in runs.groupby("dynamics"):
        points = curve(rows, by, column)
        spread = [points["mean"] - points["low"], points["high"] - points["mean"]]
        if dynamics == "descent":
            draw(points[by], points["mean"], spread, label=label)
        else:
            style = {"linestyle": "-.", "linewidth": 1, "markerfacecolor": "none"}
            # told apart by its open markers, which the legend names once
            draw(points[by], points["mean"], spread, label=f"_{label}, flow", **style)
