"""FM-2: the critical learning rate of every depth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.figures.claims import Claim, number, parts
from deeplin.figures.critical_rates import (
    CRITICAL_RATES,
    CriticalRates,
    plot_thresholds,
    threshold_claims,
)
from deeplin.figures.figure import Figure, Panel, Study, Table
from deeplin.figures.scale_sweep import FLOOR
from deeplin.figures.setting import Setting
from deeplin.figures.statistics import curve
from deeplin.figures.style import INK, QUARTILES, QUIET, band, legend_beside, look
from deeplin.networks import distance_to_optimum
from deeplin.sweep import Experiment, Unit


@dataclass(frozen=True)
class DepthSweep:
    """Every learning rate at every depth."""

    setting: Setting
    """Its own depth is not used."""
    depths: tuple[int, ...]
    learning_rates: tuple[float, ...]
    steps: int
    repetitions: int
    scale: float
    seed: int = 0

    def at(self, depth: int) -> Setting:
        """The setting with this depth."""
        return replace(self.setting, depth=depth)


def units(config: DepthSweep) -> list[Unit]:
    """One unit for each depth: all its learning rates and repetitions are one batch."""
    runs = len(config.learning_rates) * config.repetitions
    return [
        Unit({"depth": depth}, runs=runs, steps=runs * config.steps, bucket=str(depth))
        for depth in config.depths
    ]


def run_unit(config: DepthSweep, unit: Unit) -> pd.DataFrame:
    """One row for each run; a repetition starts from the same weights at every learning rate."""
    setting = config.at(unit.coordinates["depth"])
    pairs = list(product(config.learning_rates, range(config.repetitions)))
    runs = [{"depth": setting.depth, "repetition": repetition} for _, repetition in pairs]
    rates = np.array([rate for rate, _ in pairs])
    problem = setting.data.problem
    initial = setting.networks(config.seed, runs, config.scale)
    trained = gradient_descent(problem, initial, rates, config.steps)
    distance = distance_to_optimum(problem, trained.network)
    settled = np.asarray(trained.status) != "diverged"
    return pd.DataFrame(runs).assign(
        learning_rate=rates,
        status=trained.status,
        steps=trained.steps,
        distance=np.where(settled, distance, np.nan),
    )


DEPTH_SWEEP = Experiment("depth-sweep", DepthSweep, units, run_unit, grid=("depths",))


LEARNED = 1e-3
"""Below this squared distance a run has learned. Just above the critical rate it circles w* at a
distance that grows from zero, so a looser limit would blur the threshold."""

RESIDUAL = Setting(initialization="residual")
DEPTHS = (5, 10, 20, 40)
LEARNING_RATES = tuple(np.logspace(-2, -0.3, 25).tolist())

SWEEP = Study(
    "fm-2-rates",
    DEPTH_SWEEP,
    paper=DepthSweep(RESIDUAL, DEPTHS, LEARNING_RATES, 1_000, 50, scale=0.25),
    quick=DepthSweep(RESIDUAL, DEPTHS, LEARNING_RATES, 1_000, 8, scale=0.25),
)

THRESHOLDS = Study(
    "fm-2-thresholds",
    CRITICAL_RATES,
    paper=CriticalRates(RESIDUAL, DEPTHS, starts=50, steps=(5_000, 20_000)),
    quick=CriticalRates(RESIDUAL, DEPTHS, starts=8, steps=(1_000, 4_000)),
)


def plot_rates(config: DepthSweep, table: Table, ax: Axes) -> None:
    """Median squared distance against η, with the exact and the printed critical rate."""
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
    ax.set_ylim(FLOOR / 3, 10)
    ax.set(xlabel="Learning rate", ylabel=r"$\|w - w^\star\|_2^2$")
    legend_beside(ax)


def rate_claims(config: DepthSweep, table: Table) -> list[Claim]:
    """For each depth learning succeeds below 2/S_min and fails above it."""
    critical = {L: config.at(L).flattest.critical_learning_rate() for L in config.depths}
    runs = table.assign(critical=table["depth"].map(critical))
    learned = (runs["status"] != "diverged") & (runs["distance"] < LEARNED)
    below = runs["learning_rate"] < runs["critical"]
    return [
        Claim(
            "At every depth learning succeeds below 2/S_min: share of all runs that end at w* "
            f"(squared distance under {number(LEARNED)})",
            parts("depth {}", learned[below].groupby(runs["depth"]).mean()),
            lower=0.98,
            name="succeeds below",
            reason="One of the printed fifty runs may miss.",
        ),
        Claim(
            "At every depth it fails above 2/S_min: share of all runs that end at w*",
            parts("depth {}", learned[~below].groupby(runs["depth"]).mean()),
            upper=0.02,
            name="fails above",
            reason="One of fifty may pass by chance.",
            known="K-13",
        ),
    ]


FM_2 = Figure(
    "FM-2",
    "The critical learning rate of every depth",
    (
        Panel(
            "FM-2",
            "Squared distance to the empirical risk minimiser against the learning rate. Dashed: "
            "exact critical rate 2/S_min. Dotted: the printed approximation.",
            SWEEP,
            plot_rates,
            rate_claims,
            size=(5.8, 3.5),
        ),
        Panel(
            "FM-2-thresholds",
            "Beyond the paper: the critical rate of each depth, measured by bisection from "
            "several starts with 95% intervals, relative to the exact 2/S_min. Open: a quarter of "
            "the steps.",
            THRESHOLDS,
            plot_thresholds,
            threshold_claims,
            size=(4.8, 3.9),
        ),
    ),
    printed="The setting of the residual initialisation with s = 0.25 and depths 5, 10, 20, 40; "
    "25 learning rates, log-spaced from 10⁻² to 10^−0.3; 1 000 steps, 50 repetitions. The dashed "
    "lines show 2/S_min ≃ 1/(‖w*‖^{2−2/L} L a).",
    as_run="As printed, with the true squared norm (E-9) in float64. Means are over the runs that "
    "do not diverge. The dashed lines here are the exact 2/S_min (X-2).",
)
