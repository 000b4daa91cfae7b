"""What a scale sweep shows: distance to w*, sharpness before and after, chance of divergence."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from deeplin.figures.scale_sweep import ScaleSweep
from deeplin.figures.statistics import curve
from deeplin.figures.style import QUIET, legend_below, look, mark_few, reference_line
from deeplin.figures.tables import Table

SCALE_LABEL = {"gaussian": "Scale of initialization", "residual": "Scale of initialization $s$"}


def plot_distance(config: ScaleSweep, table: Table, ax: Axes, *, convention: str = "norm") -> None:
    """Median squared distance to w* against the scale, one curve for each η (FM-1a, FM-4a).

    A mean of numbers from 1e-32 to 1e-10 would show only its largest; below 1e-15 is rounding.

    `convention="mean"` divides by d, which is what the authors' plots show (E-9).
    """
    divisor = config.setting.dimension if convention == "mean" else 1
    for index, rate in enumerate(config.rates):
        runs = table[table["learning_rate"] == rate.learning_rate]
        points = curve(runs, "scale", "distance")
        style = _rate_look(index, rate)
        names = ("median", "quarter", "three quarters")
        middle, low, high = (points[name].clip(lower=FLOOR) / divisor for name in names)
        ax.plot(points["scale"], middle, **style)
        ax.fill_between(points["scale"], low, high, color=style["color"], alpha=0.18, linewidth=0)
        mark_few(ax, points["scale"], middle, points["settled"], style["color"])
    ax.set_yscale("log")
    symbol = r"$\|w - w^\star\|_2^2$" + (" (mean over coordinates)" if divisor > 1 else "")
    ax.set(xlabel=SCALE_LABEL[config.setting.initialization], ylabel=symbol)
    legend_below(ax, len(config.rates))


FLOOR = 1e-15
"""Squared distances below this are rounding."""


def plot_sharpness(
    config: ScaleSweep,
    table: Table,
    ax: Axes,
    *,
    below: float = np.inf,
    upper_bound: bool = False,
    linear: bool = True,
) -> None:
    """Sharpness at initialisation and after training, with 2/η and the bounds (FM-1b, 4b, 6a, 7).

    Only learning rates `below` a limit are drawn, as in the paper.
    """
    _initial(ax, table)
    drawn = [rate for rate in config.rates if rate.learning_rate < below]
    for index, rate in enumerate(drawn):
        runs = table[table["learning_rate"] == rate.learning_rate]
        _band(ax, curve(runs, "scale", "sharpness"), 1, **_rate_look(index, rate))
        threshold = 2 / rate.learning_rate
        ax.axhline(threshold, color=look(index)["color"], linestyle="--", linewidth=1, zorder=1)
    flattest = config.setting.flattest
    note = "" if linear else "\n(linear)"
    draw_minimum(ax, flattest, note)
    if upper_bound:
        reference_line(ax, config.setting.upper_bound, r"$8L\Lambda$", color=QUIET)
    ax.set_yscale("log")
    ax.set(xlabel=SCALE_LABEL[config.setting.initialization], ylabel="Sharpness")
    ax.plot([], [], color=QUIET, linestyle="--", linewidth=1, label=r"$2/\eta$")
    legend_below(ax, len(drawn) + 2)


SAME = 0.97
"""Lower bound over S_min from which both are drawn as one line."""


def draw_minimum(ax: Axes, flattest, note: str = "", **where) -> None:
    """S_min, and the printed lower bound 2La where it can be told from it."""
    together = flattest.lower > SAME * flattest.exact
    name = r"$S_{\min} \approx 2La$" if together else r"$S_{\min}$, $2La$"
    reference_line(ax, flattest.exact, name + note, **where)
    if not together:
        ax.axhline(flattest.lower, color=QUIET, linestyle=":", linewidth=1, zorder=1)


def plot_divergence(config: ScaleSweep, table: Table, ax: Axes) -> None:
    """Share of runs that diverge, with Wilson's 95% interval (FM-3, FM-5)."""
    for index, rate in enumerate(config.rates):
        runs = table[table["learning_rate"] == rate.learning_rate]
        points = curve(runs, "scale", "distance")
        share = points["diverged"]
        # Wilson's interval need not contain the share itself at its ends
        low = (share - points["diverged_low"]).clip(lower=0)
        high = (points["diverged_high"] - share).clip(lower=0)
        step = np.ptp(points["scale"]) / max(len(points) - 1, 1)
        shift = (index - (len(config.rates) - 1) / 2) * 0.12 * step
        style = _rate_look(index, rate) | {"capsize": 2, "elinewidth": 0.8}
        ax.errorbar(points["scale"] + shift, share, [low, high], **style)
    ax.set_ylim(-0.03, 1.03)
    ax.set(xlabel=SCALE_LABEL[config.setting.initialization], ylabel="Probability of divergence")
    legend_below(ax, len(config.rates))


def _initial(ax: Axes, table: Table) -> None:
    """Sharpness at initialisation, over the networks of all rates: each is drawn once."""
    networks = table.drop_duplicates(["scale", "repetition"]).assign(status="initial")
    points = curve(networks, "scale", "initial_sharpness")
    _band(ax, points, 1, color=QUIET, marker="x", label="at initialization")


def _rate_look(index: int, rate) -> dict:
    return look(index) | {"label": rf"$\eta = {rate.learning_rate:g}$"}


def _band(ax: Axes, points: Table, divisor: float, **style) -> None:
    """A curve with its confidence band."""
    scale, mean, low, high = (points[name].to_numpy() for name in ("scale", "mean", "low", "high"))
    ax.plot(scale, mean / divisor, **style)
    mark_few(ax, scale, mean / divisor, points["settled"], style["color"])
    ax.fill_between(
        scale, low / divisor, high / divisor, color=style["color"], alpha=0.18, linewidth=0
    )
