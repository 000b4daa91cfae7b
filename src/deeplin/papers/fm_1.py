"""FM-1 and FM-3 to FM-7: training from many scales of initialization with several learning rates.

One experiment for the authors' sweeps, and a small one of the same on many data sets, for the
sentences about regression in general.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product, starmap
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from deeplin.dynamics import gradient_descent
from deeplin.hessian import sharpness
from deeplin.networks import Network, distance_to_optimum, risk_and_data
from deeplin.papers.figures import Answers, Study, Table, define_study
from deeplin.papers.setting import (
    DATA_SEEDS,
    FLOOR,
    LEARNED,
    RATES,
    SAME,
    SWEEPS,
    Config,
    InSetting,
    Setting,
    data_name,
    sweep_starts,
)
from deeplin.papers.statistics import curve, number
from deeplin.plot_style import COLORS, INK, QUARTILES, QUIET, band, reference_line, series
from deeplin.problems import Problem
from deeplin.sweep import Unit

CHUNK = 400
"""Number of networks whose sharpness is computed at once, which fit into the cache."""


@dataclass(frozen=True)
class Rate:
    """A learning rate with its number of steps and of repetitions at every scale."""

    learning_rate: float
    steps: int
    repetitions: int


@dataclass(frozen=True)
class ScaleSweep(Config):
    """Every rate from every scale."""

    setting: Setting
    scales: tuple[float, ...]
    rates: tuple[Rate, ...]
    starts: str = ""
    """The authors' sweep (`marion_chizat_starts`) whose starts are taken at seed 0."""


def units(config: ScaleSweep) -> list[Unit]:
    """Return one unit for each learning rate, with all scales and repetitions as one batch."""
    sizes = ((rate, rate.repetitions * len(config.scales)) for rate in config.rates)
    return [Unit(asdict(rate), runs=runs, steps=rate.steps * runs) for rate, runs in sizes]


def train_rate(
    config: ScaleSweep, learning_rate: float, steps: int, repetitions: int
) -> pd.DataFrame:
    """Return the rows of one learning rate, from the authors' starts or from draws of the seed."""
    initial = None
    if config.starts and config.seed == 0:
        initial = sweep_starts(config.starts, learning_rate, repetitions)
    batch = learning_rate, steps, repetitions, config.scales
    return train(config.setting, config.seed, *batch, initial)


def train(
    setting: Setting,
    seed: int,
    learning_rate: float,
    steps: int,
    repetitions: int,
    scales: Any,
    initial: Network | None = None,
) -> pd.DataFrame:
    """Train the batch; sharpness before and after, distance to w*, risk on training and test data.

    Without `initial`, weights are drawn for each scale and repetition, the same for every η.
    """
    pairs = product(scales, range(repetitions))
    runs = [{"scale": scale, "repetition": repetition} for scale, repetition in pairs]
    data = setting.data
    if initial is None:
        initial = setting.networks(seed, runs, np.array([run["scale"] for run in runs]))
    trained = gradient_descent(data.problem, initial, learning_rate, steps)
    settled = np.asarray(trained.status) != "diverged"
    # Diverged runs are in no mean, so their sharpness is not needed; that of zero is cheap.
    ends = jax.tree.map(
        lambda leaf: np.where(settled.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0.0),
        trained.network.with_batch(),
    )
    after, error = _sharpness(data.problem, ends)
    final = {
        "distance": distance_to_optimum(data.problem, trained.network),
        "risk": trained.evidence["risk"],
        "test_risk": _risk(data.test, trained.network),
        "sharpness": after,
        "sharpness_error": error,
    }
    return pd.DataFrame(runs).assign(
        learning_rate=learning_rate,
        status=trained.status,
        steps=trained.steps,
        initial_sharpness=_sharpness(data.problem, initial.with_batch())[0],
        **{name: np.where(settled, values, np.nan) for name, values in final.items()},
    )


def _sharpness(problem: Problem, networks: Network) -> np.ndarray:
    """Return two rows: the sharpness of each network, and its error bound."""
    count = len(networks.weights[0])
    pieces = [
        sharpness(problem, jax.tree.map(lambda leaf, chosen=chosen: leaf[chosen], networks))
        for chosen in np.array_split(np.arange(count), -(-count // CHUNK))
    ]
    return np.concatenate([np.stack([piece.value, piece.error]) for piece in pieces], axis=1)


def _risk(problem: Problem, networks: Network) -> np.ndarray:
    risk, data = risk_and_data(problem, networks)
    return np.asarray(jax.vmap(partial(risk, data))(networks.with_batch()))


def scale_study(name: str, setting: Setting, starts: str, quick: Any) -> Study:
    """Return the study of one of the authors' sweeps.

    `quick` has (η, steps, repetitions) of each rate.
    """
    protocol = SWEEPS[starts]
    rates, fewer = (tuple(starmap(Rate, preset)) for preset in (protocol.rates, quick))
    paper = ScaleSweep(setting, protocol.scales, rates, starts)
    return define_study(name, train_rate, units, paper=paper, quick={"rates": fewer})


@dataclass(frozen=True)
class DataSets(InSetting):
    """Rates relative to the critical rate of each data set, from a few scales."""

    scales: tuple[float, ...]
    relative_rates: tuple[float, ...]
    steps: int
    repetitions: int


def train_on(config: DataSets, data_seed: int, relative_rate: float) -> pd.DataFrame:
    """Return the rows of a scale sweep, with the data set, the relative rate and its S_min."""
    setting = config.at(data_seed)
    flattest = setting.flattest
    rate = relative_rate * flattest.critical_learning_rate()
    rows = train(setting, config.seed, rate, config.steps, config.repetitions, config.scales)
    return rows.assign(
        data_seed=data_seed, relative_rate=relative_rate, minimal_sharpness=flattest.exact
    )


data_sets_study = partial(
    define_study,
    run=train_on,
    over={"data_seed": "data_seeds", "relative_rate": "relative_rates"},
    runs=lambda config: len(config.scales) * config.repetitions,
    steps="steps",
)


def plot_distance(config: ScaleSweep, table: Table, ax: Axes) -> None:
    """Plot median squared distance to w* against the scale, one curve for each η (FM-1a, FM-4a).

    A mean of numbers from 1e-32 to 1e-10 would show only the largest; values below 1e-15 are
    rounding. The authors' plots show the mean over the d coordinates (E-9).
    """
    for style, runs in _by_rate(config, table):
        band(ax, curve(runs, "scale", "distance"), "scale", QUARTILES, FLOOR, **style)


def plot_sharpness(
    config: ScaleSweep,
    table: Table,
    ax: Axes,
    *,
    below: float = np.inf,
    upper_bound: bool = False,
    linear: bool = True,
) -> None:
    """Plot sharpness before and after training, with 2/η and the bounds (FM-1b, 4b, 6a, 7).

    Only learning rates `below` a limit are drawn, as in the paper.
    """
    networks = table.drop_duplicates(["scale", "repetition"]).assign(status="initial")
    initial = curve(networks, "scale", "initial_sharpness")
    band(ax, initial, "scale", color=QUIET, marker="x", label="at initialization")
    for style, runs in _by_rate(config, table[table["learning_rate"] < below]):
        band(ax, curve(runs, "scale", "sharpness"), "scale", **style)
        edge = 2 / runs["learning_rate"].iloc[0]
        ax.axhline(edge, color=style["color"], linestyle="--", linewidth=1, zorder=1)
    flattest = config.setting.flattest
    together = flattest.lower > SAME * flattest.exact
    name = r"$S_{\min} \approx 2La$" if together else r"$S_{\min}$, $2La$"
    reference_line(ax, flattest.exact, name + ("" if linear else "\n(linear)"))
    if not together:
        ax.axhline(flattest.lower, color=QUIET, linestyle=":", linewidth=1, zorder=1)
    if upper_bound:
        reference_line(ax, config.setting.upper_bound, r"$8L\Lambda$", color=QUIET)
    ax.plot([], [], color=QUIET, linestyle="--", linewidth=1, label=r"$2/\eta$")


def plot_divergence(config: ScaleSweep, table: Table, ax: Axes) -> None:
    """Plot the share of runs that diverge, with Wilson's 95% interval (FM-3, FM-5)."""
    for index, (style, runs) in enumerate(_by_rate(config, table)):
        points = curve(runs, "scale", "distance")
        share = points["diverged"]
        # Wilson's interval need not contain the share itself at its ends
        low = (share - points["diverged_low"]).clip(lower=0)
        high = (points["diverged_high"] - share).clip(lower=0)
        step = np.ptp(points["scale"]) / max(len(points) - 1, 1)
        shift = (index - (len(config.rates) - 1) / 2) * 0.12 * step
        ax.errorbar(points["scale"] + shift, share, [low, high], capsize=2, elinewidth=0.8, **style)


def _by_rate(config: ScaleSweep, table: Table) -> Iterator[tuple[dict[str, Any], Table]]:
    """Return the runs of each learning rate that the table has, with the style of their curve."""
    for index, rate in enumerate(rate.learning_rate for rate in config.rates):
        runs = table[table["learning_rate"] == rate]
        if len(runs):
            yield series(index, label=rf"$\eta = {rate:g}$"), runs


def plot_data_sets(config: DataSets, table: Table, ax: Axes) -> None:
    """Plot final sharpness over S_min of each surviving run, one column for each data set."""
    for index, rate in enumerate(config.relative_rates):
        runs = table[(table["relative_rate"] == rate) & (table["status"] != "diverged")]
        places = runs["data_seed"].map({s: k for k, s in enumerate(config.data_seeds)})
        shift = (index - (len(config.relative_rates) - 1) / 2) * 0.15
        label = rf"$\eta = {rate:g}\cdot 2/S_{{\min}}$"
        style = series(index, linestyle="", markersize=3, alpha=0.6, label=label)
        ax.plot(places + shift, runs["sharpness"] / runs["minimal_sharpness"], **style)
        if rate < 1:
            ax.axhline(1 / rate, color=style["color"], linestyle="--", linewidth=1, zorder=1)
    ax.axhline(1, color=INK, linestyle=":", linewidth=1)
    ax.set_xticks(range(len(config.data_seeds)), [data_name(seed) for seed in config.data_seeds])


def plot_divergence_on_data_sets(config: DataSets, table: Table, ax: Axes) -> None:
    """Plot the share of runs that diverge against η over 2/S_min, for each data set and scale."""
    gone = (table["status"] == "diverged").groupby(
        [table["scale"], table["data_seed"], table["relative_rate"]]
    )
    for index, (scale, shares) in enumerate(gone.mean().groupby("scale")):
        lines = shares.droplevel("scale").unstack("data_seed")
        style = series(index, linewidth=0.9, alpha=0.5, markersize=3)
        names = [f"scale {number(scale)}"] + [None] * (lines.shape[1] - 1)
        ax.plot(lines.index, lines, label=names, **style)
    ax.axvline(1, color=INK, linestyle="--", linewidth=1, label=r"$2/S_{\min}$")


def data_set_answers(config: DataSets, table: Table) -> Answers:
    """Answer the claims of FM about its data set for other data sets of the same kind."""
    by, below = table["data_seed"], table["relative_rate"] < 1
    kept = table["status"] != "diverged"
    learned = (table["distance"] < LEARNED)[below & kept].groupby(by).mean()
    settled = (table["status"] == "converged")[~below]
    height = (table["sharpness"] * table["learning_rate"] / 2)[below & kept].groupby(by)
    return {
        "other data sets": {
            "learned": learned,
            "least": learned.min(),
            "settled": settled.mean(),
            "above": len(settled),
            "highest": height.max(),
        }
    }


def divergence_answers(config: ScaleSweep, table: Table) -> Answers:
    """Answer where the probability of divergence grows."""
    gone = (table["status"] == "diverged").groupby([table["learning_rate"], table["scale"]])
    shares = gone.mean().unstack("scale")
    first = {rate: row.index[row > 0].min() for rate, row in shares.iterrows()}
    last = {rate: row.index[row < 1].max() for rate, row in shares.iterrows()}
    return {"where it begins": {"first": first, "last": last}}


SHOWN_BELOW = 0.09
"""Panels b show the learning rates below this."""
SLOWEST = 0.001
"""The learning rate of FM-6b."""
GAUSSIAN, RESIDUAL = Setting(initialization="gaussian"), Setting(initialization="residual")
UNDERDETERMINED = Setting(samples=15, dimension=20, depth=5)
GELU = Setting(activation="gelu", noise=0.0)

SWEEP = scale_study(
    "fm-1-scales",
    GAUSSIAN,
    "FM-1",
    [(0.005, 20_000, 8), (0.02, 5_000, 8), (0.07, 4_000, 8), (0.1, 4_000, 8), (0.2, 1_000, 16)],
)
RESIDUAL_SWEEP = scale_study("fm-4-scales", RESIDUAL, "FM-4", [(rate, 4_000, 8) for rate in RATES])
UNDERDETERMINED_SWEEP = scale_study(
    "fm-6-scales",
    UNDERDETERMINED,
    "FM-6",
    [(SLOWEST, 10_000, 6), (0.004, 2_500, 6), (0.01, 2_000, 6)],
)
# Small scales leave their plateau only after a time ηt of some hundreds, so the quick preset keeps
# the steps and leaves out the slowest rate, which needs most of them.
QUICK_GELU = ((0.02, 40_000, 3), (0.07, 16_000, 3))
NOISELESS = scale_study("fm-7-scales", GELU, "FM-7", QUICK_GELU)
NOISY = scale_study("fm-7-noisy-scales", replace(GELU, noise=1.0), "FM-7", QUICK_GELU)

RELATIVE = (0.05, 0.2, 0.65, 0.9, 1.3)
FEWER = {"data_seeds": DATA_SEEDS[:3], "repetitions": 3}
EVERYWHERE = data_sets_study(
    "fm-1-data-sets",
    paper=DataSets(GAUSSIAN, (0.3, 0.4, 0.5), RELATIVE, 10_000, 10, data_seeds=DATA_SEEDS),
    quick={"scales": (0.3, 0.4), **FEWER},
)
RESIDUAL_EVERYWHERE = data_sets_study(
    "fm-4-data-sets",
    paper=DataSets(RESIDUAL, (0.25, 0.5, 1.0), RELATIVE, 10_000, 10, data_seeds=DATA_SEEDS),
    quick={"scales": (0.25, 1.0), **FEWER},
)
UNDERDETERMINED_EVERYWHERE = data_sets_study(
    "fm-6-data-sets",
    paper=DataSets(
        UNDERDETERMINED, SWEEPS["FM-6"].scales, (0.05,), 20_000, 6, data_seeds=DATA_SEEDS
    ),
    quick={"scales": SWEEPS["FM-6"].scales[::2], "steps": 10_000, **FEWER, "repetitions": 6},
)

PUBLISHED = {"slope": (0.42, 0.01), "intercept": (-0.96, 0.03)}
"""The authors' fit with its standard errors, on their data set."""


def fit(runs: Table) -> tuple[Table, Any]:
    """Return log10 of the generalization gap and of the sharpness, with their regression line."""
    points = pd.DataFrame({"sharpness": runs["sharpness"], "gap": runs["test_risk"] - runs["risk"]})
    points = np.log10(points[(points > 0).all(axis=1)])
    return points, stats.linregress(points["sharpness"], points["gap"]) if len(points) > 2 else None


def slowest(table: Table) -> Table:
    """Return the runs of panel b."""
    return table[(table["learning_rate"] == SLOWEST) & (table["status"] != "diverged")]


def plot_generalization(config: ScaleSweep, table: Table, ax: Axes) -> None:
    """Plot one dot for each run, and the regression line (FM-6b)."""
    points, line = fit(slowest(table))
    ax.scatter(points["sharpness"], points["gap"], s=8, color=COLORS[0], alpha=0.5, linewidth=0)
    ends = np.array([points["sharpness"].min(), points["sharpness"].max()])
    label = f"slope {line.slope:.2f} ± {line.stderr:.2f}, intercept {line.intercept:.2f}"
    ax.plot(ends, line.intercept + line.slope * ends, color=INK, label=label.replace("-", "−"))
    (slope, error), (intercept, _) = PUBLISHED.values()
    label = f"published: {slope} ± {error}, {intercept}".replace("-", "−")
    ax.plot(ends, intercept + slope * ends, "--", color=COLORS[1], label=label)


def relation_answers(config: DataSets, table: Table) -> Answers:
    """Answer whether sharper minima generalize worse on other data sets, too."""
    settled = table[table["status"] != "diverged"]
    lines = {int(s): fit(runs)[1] for s, runs in settled.groupby("data_seed")}
    found = {seed: line for seed, line in lines.items() if line}
    quantile = stats.t.ppf(0.975, len(settled) / len(lines) - 2)
    return {
        "other data sets": {
            "slopes": {seed: line.slope for seed, line in found.items()},
            "correlations": {seed: line.rvalue for seed, line in found.items()},
            "clear": sum(line.slope > quantile * line.stderr for line in found.values()),
            "sets": len(lines),
        }
    }


def plot_relation(config: DataSets, table: Table, ax: Axes) -> None:
    """Plot the regression line of each data set over its range of sharpness, extremes labeled."""
    settled = table[table["status"] != "diverged"]
    fits = [(seed, runs["sharpness"], fit(runs)[1]) for seed, runs in settled.groupby("data_seed")]
    fits = sorted((found for found in fits if found[2]), key=lambda found: found[2].slope)
    quiet: dict[str, Any] = {"color": QUIET, "alpha": 0.45, "linewidth": 1}
    for place, (seed, values, line) in enumerate(fits):
        ends = np.log10(np.array([values.min(), values.max()]))
        style: dict[str, Any] = quiet | {"zorder": 1}
        if place in (0, len(fits) - 1):
            label = f"{int(seed)}: {line.slope:.2f} ({line.rvalue:.2f})"
            style = series(1 if place == 0 else 0, marker=None, label=label)
        ax.plot(ends, line.intercept + line.slope * ends, **style)
    ax.plot([], [], **quiet, label="the others, between")
    grid = np.array(ax.get_xlim())
    (slope, _), (intercept, _) = PUBLISHED.values()
    ax.plot(grid, intercept + slope * grid, "--", color=INK, label=f"published: {slope}")


DEAD = 1e-3
"""Final sharpness, in units of 2/η, below which all units of a network are off."""


def dead_answers(config: ScaleSweep, table: Table) -> Answers:
    """Answer how many networks the first steps switch off."""
    settled = table[table["status"] != "diverged"]
    height = settled["sharpness"] * settled["learning_rate"] / 2
    start = settled["initial_sharpness"] * settled["learning_rate"] / 2 > 1
    dead = (height < DEAD)[start]
    alive = height[start & (height >= DEAD)].groupby(settled["learning_rate"]).mean()
    return {
        "switched off": {
            "starts": len(dead),
            "dead": dead.sum(),
            "alive": alive,
            "most": height.max(),
        }
    }
