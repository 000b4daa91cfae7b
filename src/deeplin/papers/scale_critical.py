"""The critical rate from several scales, by bisection: FM-1a-critical and FM-4a-critical."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes

from deeplin.papers.figures import Answers, Panel, Study, Table, define_panel, define_study
from deeplin.papers.setting import SWEEPS, Config, Setting
from deeplin.plot_style import INK, bars, series
from deeplin.sweep import run_key
from deeplin.training import empirical_critical_rate


@dataclass(frozen=True)
class ScaleCritical(Config):
    """A search for the largest rate that settles, from every scale."""

    unused: ClassVar[tuple[str, ...]] = ("activation",)
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


def critical_study(figure: str, setting: Setting, scales: slice) -> Study:
    """Return the critical rates from some scales of a figure's sweep."""
    paper = ScaleCritical(setting, SWEEPS[figure].scales[scales], starts=12, steps=20_000)
    name, fewer = f"{figure.lower()}-critical", {"starts": 4, "steps": 4_000}
    over = {"scale": "scales"}
    return define_study(name, run_scale, over, paper=paper, quick=fewer, runs="starts")


def critical_answers(config: ScaleCritical, table: Table) -> Answers:
    """Answer whether the scale moves the critical rate."""
    counts = ", ".join(f"{int(settled)} of {config.starts}" for settled in table["settled"])
    return {"scale": {"ratio": table.set_index("scale")["ratio"], "counts": counts}}


def plot_critical(config: ScaleCritical, table: Table, ax: Axes) -> None:
    """Plot measured critical rate over the exact one, with its 95% interval over the starts."""
    bars(ax, table.rename(columns={"ratio": "mean"}), "scale", **series(0))
    ax.axhline(1, color=INK, linestyle="--", linewidth=1, label=r"exact, $2/S_{\min}$")


def critical_panel(name: str, study: Study) -> Panel:
    """Return the panel of a figure's critical rates."""
    axes = {
        "xlabel": "Scale of initialization",
        "ylabel": "Critical rate over the exact one",
        "ylim": (0, 1.1),
    }
    legend = {"loc": "lower left"}
    return define_panel(
        name, study, plot_critical, critical_answers, axes=axes, legend=legend, ours=True
    )
