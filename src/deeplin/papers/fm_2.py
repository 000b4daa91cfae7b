"""FM-2: the critical learning rate of every depth, as printed and measured by bisection."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network, initialize
from deeplin.networks.network import distance_to_optimum
from deeplin.papers.figures import Answers, Table, define_figure, define_panel, define_study
from deeplin.papers.scale_sweep import name_floor
from deeplin.papers.setting import (
    ALL_DATA,
    AUTHORS,
    DEPTHS,
    FEW_DATA,
    FLOOR,
    FM_2_RATES,
    InSetting,
    Setting,
    sweep_starts,
)
from deeplin.papers.statistics import curve, power_interval
from deeplin.plot_style import INK, QUIET, band, bars, name_once, nested, series, ticks_at
from deeplin.sweep import run_key
from deeplin.theory import minimal_sharpness
from deeplin.training import empirical_critical_rate


@dataclass(frozen=True)
class DepthSweep(InSetting):
    """Every learning rate at every depth, on several data sets."""

    unused: ClassVar[tuple[str, ...]] = ("data_seed", "depth")
    depths: tuple[int, ...]
    learning_rates: tuple[float, ...]
    steps: int
    repetitions: int
    scale: float

    def critical(self, table: Table) -> Table:
        """Return the exact 2/S_min of each row's depth and data set."""
        exact = {
            (depth, seed): self.at(seed, depth=depth).flattest.critical_learning_rate()
            for depth, seed in product(self.depths, self.data_seeds)
        }
        rows = zip(table["depth"], table["data_seed"], strict=True)
        return np.array([exact[row] for row in rows])


def run_depth_sweep(config: DepthSweep, depth: int, data_seed: int) -> pd.DataFrame:
    """Return one row for each run, from the authors' starts or from one start for every rate."""
    setting = config.at(data_seed, depth=depth)
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
        initial = Network([np.concatenate(layer) for layer in layers], readout=drawn[0].readout)
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


RESIDUAL = Setting(initialization="residual")
LEARNING_RATES = tuple(rate for rate, *_ in FM_2_RATES)
SWEEP = define_study(
    "fm-2-rates",
    run_depth_sweep,
    {"depth": "depths", "data_seed": "data_seeds"},
    paper=DepthSweep(RESIDUAL, DEPTHS, LEARNING_RATES, 1_000, 50, 0.25),
    quick={"repetitions": 8},
    runs=lambda config: len(config.learning_rates) * config.repetitions,
    steps="steps",
)
STARTS = {
    "residual": "from residual initializations",
    "flattest": "from next to the flattest minimizer",
}


@dataclass(frozen=True)
class CriticalRates(InSetting):
    """A search for the largest rate that settles, at every depth and from both kinds of start."""

    unused: ClassVar[tuple[str, ...]] = ("activation", "data_seed", "depth", "initialization")
    depths: tuple[int, ...]
    starts: int
    steps: tuple[int, ...]
    """Numbers of steps, increasing: the result of the search depends on them."""


def _rates(setting: Setting) -> tuple[float, float]:
    """Return the exact critical rate 2/S_min and its printed approximation."""
    flattest = setting.flattest
    return flattest.critical_learning_rate(), flattest.printed_critical_learning_rate


def beside(network: Network, keys: Array) -> Network:
    """Return copies of a network, one for each key, with Gaussian noise of 1e-3 of each layer."""

    def size(weight: Array) -> Array:
        top = jnp.max(jnp.abs(weight))
        return jnp.where(top > 0, top, 1.0)

    def draw(key: Array) -> Network:
        pairs = zip(network.weights, jax.random.split(key, network.depth), strict=True)
        noise = [size(w) * initialize.standard_normal(k, w.shape) for w, k in pairs]
        moved = [w + 1e-3 * n for w, n in zip(network.weights, noise, strict=True)]
        return Network(moved, readout=network.readout)

    return jax.vmap(draw)(keys)


def run_depth(
    config: CriticalRates, depth: int, start: str, steps: int, data_seed: int
) -> list[dict[str, float]]:
    """Return one row: the measured rate with its interval, the exact and the printed rate."""
    setting = config.at(data_seed, depth=depth)
    problem = setting.data.problem
    flattest = minimal_sharpness(problem, depth).minimizer
    measured = empirical_critical_rate(
        problem,
        depth,
        initialization=start if start == "residual" else partial(beside, flattest),
        seeds=config.starts,
        steps=steps,
        key=run_key(config.seed, depth=depth, start=start),
    )
    low, high = measured.interval
    exact, printed = _rates(setting)
    rates = {"measured": measured.value, "low": low, "high": high}
    return [rates | {"exact": exact, "printed": printed}]


THRESHOLDS = define_study(
    "fm-2-thresholds",
    run_depth,
    {"depth": "depths", "start": tuple(STARTS), "steps": "steps", "data_seed": "data_seeds"},
    paper=CriticalRates(RESIDUAL, DEPTHS, starts=50, steps=(5_000, 20_000), data_seeds=ALL_DATA),
    quick={"starts": 8, "steps": (1_000, 4_000), "data_seeds": FEW_DATA},
    runs="starts",
)


def plot_rates(config: DepthSweep, table: Table, ax: Axes) -> None:
    """Plot mean squared distance against η, with the exact and the printed critical rate."""
    table, _ = config.split(table)
    for index, depth in enumerate(config.depths):
        points = curve(table[table["depth"] == depth], "learning_rate", "distance")
        style = nested(index, label=f"depth {depth}")
        band(ax, points, "learning_rate", median=True, floor=FLOOR, **style)
        for rate, line in zip(_rates(config.at(depth=depth)), ("--", ":"), strict=True):
            ax.axvline(rate, color=style["color"], linestyle=line, linewidth=1)
    name_floor(ax)
    ax.plot([], [], color=INK, linestyle="--", linewidth=1, label=r"$2/S_{\min}$, exact")
    ax.plot([], [], color=QUIET, linestyle=":", linewidth=1, label=r"$1/(La)$, printed")


def plot_thresholds(config: CriticalRates, table: Table, ax: Axes) -> None:
    """Plot measured and printed critical rates relative to the exact 2/S_min."""
    most = max(config.steps)
    table, others = config.split(table)
    others = others[others["steps"] == most]
    light = {"linestyle": "", "alpha": 0.35, "markersize": 3}
    for index, (start, label) in enumerate(STARTS.items()):
        for steps in config.steps:
            rows = table[(table["start"] == start) & (table["steps"] == steps)]
            points = rows[["measured", "low", "high"]].div(rows["exact"], axis=0)
            style = series(index, label=label, linestyle="", capsize=3)
            if steps < most:
                style |= {"label": None, "markerfacecolor": "none", "elinewidth": 0.8}
            shift = (0.97 if index else 1.03) * (1 if steps == most else 0.94)
            points = points.assign(depth=rows["depth"] * shift)
            bars(ax, points.rename(columns={"measured": "mean"}), "depth", **style)
        rows = others[others["start"] == start]
        place = rows["depth"] * (0.9 if index else 1.1)
        style = series(index, markeredgewidth=0, zorder=1, **light)
        ax.plot(place, rows["measured"] / rows["exact"], **style)
    if len(others):
        ax.plot([], [], marker="o", color=QUIET, label="other data sets", **light)
    early = {"linestyle": "", "marker": "o", "markerfacecolor": "none"}
    name_once(ax, f"after {min(config.steps)} steps", color=QUIET, **early)
    printed = table.drop_duplicates("depth")
    ratio = printed["printed"] / printed["exact"]
    ax.plot(printed["depth"], ratio, ":", label="printed, $1/(La)$", **series(2))
    ax.axhline(1, color=INK, linestyle="--", linewidth=1, label=r"exact, $2/S_{\min}$")
    ticks_at(ax, config.depths)


def threshold_answers(config: CriticalRates, table: Table) -> Answers:
    """Answer how the measured threshold of every depth and data set compares with 2/S_min."""
    few, many = min(config.steps), max(config.steps)
    ratio = (table["measured"] / table["exact"]).groupby(
        [table["steps"], table["start"], table["depth"]]
    )
    flattest, residual = ratio.agg(["min", "max"]).loc[many, "flattest"], ratio.mean()
    printed = (table["printed"] / table["exact"]).groupby(table["depth"]).max()
    return {
        "flattest start": {
            "least": flattest["min"],
            "most": flattest["max"].max(),
            "sets": table["data_seed"].nunique(),
        },
        "residual start": {
            "few": few,
            "many": many,
            "early": residual[few, "residual"],
            "late": residual[many, "residual"],
        },
        "like 1/L": {"power": power_interval(table, "depth", "measured", "data_seed")},
        "printed approximation": {"percent": 100 * (printed - 1)},
    }


FIGURE = define_figure(
    "FM-2",
    define_panel(
        "FM-2",
        SWEEP,
        plot_rates,
        size=(4.8, 4.2),
        axes={
            "xlabel": "Learning rate",
            "ylabel": r"$\|w - w^\star\|_2^2$",
            "xscale": "log",
            "yscale": "log",
            "ylim": (3e-16, 10),
        },
    ),
    define_panel(
        "FM-2-thresholds",
        THRESHOLDS,
        plot_thresholds,
        threshold_answers,
        size=(4.8, 3.9),
        axes={"xlabel": "Depth", "ylabel": "Critical rate relative to the exact one"},
        legend={"ncols": 2},
        ours=True,
    ),
)
