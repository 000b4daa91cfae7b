"""FM-2: the critical learning rate of every depth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network, distance_to_optimum
from deeplin.papers.critical_rates import (
    CRITICAL_RATES,
    CriticalRates,
    plot_thresholds,
    threshold_questions,
)
from deeplin.papers.figures import Figure, Panel, Study, Table, grid_experiment, our_panel
from deeplin.papers.marion_chizat_starts import DEPTHS, FM_2_RATES, sweep_starts
from deeplin.papers.question import Question, each, percent
from deeplin.papers.scale_sweep import FLOOR, LEARNED
from deeplin.papers.setting import AUTHORS, DATA_SEEDS, Setting
from deeplin.papers.statistics import curve
from deeplin.papers.style import INK, QUARTILES, QUIET, band, legend_beside, look, plain_numbers


@dataclass(frozen=True)
class DepthSweep:
    """Every learning rate at every depth, on several data sets."""

    setting: Setting
    """Its own depth and data set are not used."""
    depths: tuple[int, ...]
    learning_rates: tuple[float, ...]
    steps: int
    repetitions: int
    scale: float
    data_seeds: tuple[int, ...] = (AUTHORS,)
    """The first is drawn in full."""
    seed: int = 0

    def at(self, depth: int, data_seed: int | None = None) -> Setting:
        """The setting with this depth on this data set, or the first one."""
        chosen = self.data_seeds[0] if data_seed is None else data_seed
        return replace(self.setting, depth=depth, data_seed=chosen)

    def critical(self, table: Table) -> Table:
        """The exact 2/S_min of each row's depth and data set."""
        exact = {
            (depth, seed): self.at(depth, seed).flattest.critical_learning_rate()
            for depth, seed in product(self.depths, self.data_seeds)
        }
        rows = zip(table["depth"], table["data_seed"], strict=True)
        return np.array([exact[row] for row in rows])


def run(config: DepthSweep, depth: int, data_seed: int) -> pd.DataFrame:
    """One row for each run: the authors' starts on their data, or one start for every rate."""
    setting = config.at(depth, data_seed)
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


DEPTH_SWEEP = grid_experiment(
    "depth-sweep",
    DepthSweep,
    run,
    {"depth": "depths", "data_seed": "data_seeds"},
    runs=lambda config: len(config.learning_rates) * config.repetitions,
    steps="steps",
    bucket="depth",
)


RESIDUAL = Setting(initialization="residual")
LEARNING_RATES = tuple(rate for rate, *_ in FM_2_RATES)

ALL, FEW = (AUTHORS, *DATA_SEEDS), (AUTHORS, *DATA_SEEDS[:2])

SWEEP = Study(
    "fm-2-rates",
    DEPTH_SWEEP,
    paper=DepthSweep(RESIDUAL, DEPTHS, LEARNING_RATES, 1_000, 50, 0.25, ALL),
    quick=DepthSweep(RESIDUAL, DEPTHS, LEARNING_RATES, 1_000, 8, 0.25, FEW),
)

THRESHOLDS = Study(
    "fm-2-thresholds",
    CRITICAL_RATES,
    paper=CriticalRates(RESIDUAL, DEPTHS, starts=50, steps=(5_000, 20_000), data_seeds=ALL),
    quick=CriticalRates(RESIDUAL, DEPTHS, starts=8, steps=(1_000, 4_000), data_seeds=FEW),
)


def plot_rates(config: DepthSweep, table: Table, ax: Axes) -> None:
    """Median squared distance against η, with the exact and the printed critical rate."""
    table = table[table["data_seed"] == config.data_seeds[0]]
    for index, depth in enumerate(config.depths):
        points = curve(table[table["depth"] == depth], "learning_rate", "distance")
        style = look(index, label=f"depth {depth}")
        band(ax, points, "learning_rate", QUARTILES, FLOOR, **style)
        flattest = config.at(depth).flattest
        exact, printed = flattest.critical_learning_rate(), flattest.printed_critical_learning_rate
        ax.axvline(exact, color=style["color"], linestyle="--", linewidth=1)
        ax.axvline(printed, color=style["color"], linestyle=":", linewidth=1)
    ax.plot([], [], color=INK, linestyle="--", linewidth=1, label=r"$2/S_{\min}$, exact")
    ax.plot([], [], color=QUIET, linestyle=":", linewidth=1, label=r"$1/(La)$, printed")
    ax.loglog()
    ax.set(ylim=(FLOOR / 3, 10), xlabel="Learning rate", ylabel=r"$\|w - w^\star\|_2^2$")
    legend_beside(ax)


def plot_collapse(config: DepthSweep, table: Table, ax: Axes) -> None:
    """Median squared distance on every data set against η over its exact critical rate."""
    runs = table.assign(relative=table["learning_rate"] / config.critical(table))
    for index, depth in enumerate(config.depths):
        style = look(index, markersize=3)
        for seed in reversed(config.data_seeds):  # the first on top
            chosen = runs[(runs["depth"] == depth) & (runs["data_seed"] == seed)]
            points = curve(chosen, "relative", "distance")
            drawn: dict[str, Any] = style | {"label": f"depth {depth}"}
            if seed != config.data_seeds[0]:
                drawn = style | {"alpha": 0.35, "linewidth": 0.8, "marker": None}
            ax.plot(points["relative"], points["median"].clip(lower=FLOOR), **drawn)
    ax.plot([], [], color=QUIET, linewidth=0.8, label="other data sets")
    ax.axvline(1, color=INK, linestyle="--", linewidth=1, label=r"$2/S_{\min}$, exact")
    ax.loglog()
    ax.set(xlim=(0.3, 4), ylim=(FLOOR / 3, 10))
    plain_numbers(ax.xaxis)
    ax.set(xlabel=r"Learning rate over $2/S_{\min}$", ylabel=r"$\|w - w^\star\|_2^2$")
    legend_beside(ax)


def data_set_questions(config: DepthSweep, table: Table) -> list[Question]:
    """The threshold on every data set."""
    relative = table["learning_rate"] / config.critical(table)
    learned = (table["status"] != "diverged") & (table["distance"] < LEARNED)
    by = table["depth"]
    below, above = (learned[part].groupby(by).mean() for part in (relative < 0.9, relative > 1.1))
    return [
        Question(
            "other data sets",
            "Is the threshold as sharp on other data sets?",
            f"On {len(config.data_seeds)} data sets {percent(below.min())} or more of the runs at "
            f"less than 0.9 of 2/S_min end at w*, and {each('depth {}', above)} of those "
            "above 1.1 of it: a few that wander pass by at the last step, none settles.",
        )
    ]


FM_2 = Figure(
    "FM-2",
    "The critical learning rate of every depth",
    (
        Panel(
            "FM-2",
            "Squared distance to the empirical risk minimizer against the learning rate. Dashed: "
            "exact critical rate 2/S_min. Dotted: the printed approximation.",
            SWEEP,
            plot_rates,
            size=(5.8, 3.5),
        ),
        our_panel(
            "FM-2-data-sets",
            "Robustness: the same against the learning rate over 2/S_min, on this data set and on "
            "others of its recipe (light: ten, two in the quick preset).",
            SWEEP,
            plot_collapse,
            data_set_questions,
            size=(5.8, 3.5),
        ),
        our_panel(
            "FM-2-thresholds",
            "The critical rate of each depth, measured by bisection from "
            "several starts with 95% intervals, relative to the exact 2/S_min. Open: a quarter of "
            "the steps. Light: the other data sets (ten, two in the quick preset).",
            THRESHOLDS,
            plot_thresholds,
            threshold_questions,
            size=(4.8, 3.9),
        ),
    ),
    printed="The setting of the residual initialization with s = 0.25 and depths 5, 10, 20, 40; "
    "25 learning rates, log-spaced from 10⁻² to 10^−0.3; 1 000 steps, 50 repetitions. The dashed "
    "lines show 2/S_min ≃ 1/(‖w*‖^{2−2/L} L a).",
    as_run="The authors' own data, starts and read-outs, with the true squared norm (E-9) in "
    "float64, over the runs that do not diverge. Dashed: the exact 2/S_min (X-2); dotted: the "
    "printed approximation.",
)
