"""Training from many scales of initialization with several learning rates.

One experiment for FM-1, FM-3, FM-4, FM-5, FM-6, FM-7 and its noisy variant, and a small one of the
same on many data sets, for the sentences about regression in general.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product, starmap
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.hessian import sharpness
from deeplin.networks import Network, distance_to_optimum, risk_and_data
from deeplin.papers.figures import Study, Table, grid_experiment
from deeplin.papers.marion_chizat_starts import SWEEPS, sweep_starts
from deeplin.papers.question import Question, each, extent, number, percent
from deeplin.papers.setting import Setting, data_name
from deeplin.papers.statistics import curve
from deeplin.papers.style import (
    INK,
    QUARTILES,
    QUIET,
    band,
    legend_below,
    look,
    plain_numbers,
    reference_line,
)
from deeplin.problems import Problem
from deeplin.sweep import Experiment, Unit

PIECE = 400
"""Networks whose sharpness is computed at once: they fit the processor's cache."""


@dataclass(frozen=True)
class Rate:
    """A learning rate with its number of steps and of repetitions at every scale."""

    learning_rate: float
    steps: int
    repetitions: int


@dataclass(frozen=True)
class ScaleSweep:
    """Every rate from every scale."""

    setting: Setting
    scales: tuple[float, ...]
    rates: tuple[Rate, ...]
    starts: str = ""
    """The authors' sweep (`marion_chizat_starts`) whose starts are taken at seed 0."""
    seed: int = 0


def units(config: ScaleSweep) -> list[Unit]:
    """One unit for each learning rate: all its scales and repetitions are one batch."""
    sizes = ((rate, rate.repetitions * len(config.scales)) for rate in config.rates)
    return [
        Unit({**asdict(rate), "scales": config.scales}, runs=runs, steps=rate.steps * runs)
        for rate, runs in sizes
    ]


def run_unit(config: ScaleSweep, unit: Unit) -> pd.DataFrame:
    """The rows of one learning rate, from the authors' starts or from draws of the seed."""
    cell = unit.coordinates
    initial = None
    if config.starts and config.seed == 0:
        initial = sweep_starts(config.starts, cell["learning_rate"], cell["repetitions"])
    return train(config.setting, config.seed, **cell, initial=initial)


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

    Without `initial` weights they are drawn for each scale and repetition, the same for every η.
    """
    pairs = product(scales, range(repetitions))
    runs = [{"scale": scale, "repetition": repetition} for scale, repetition in pairs]
    data = setting.data
    if initial is None:
        initial = setting.networks(seed, runs, np.array([run["scale"] for run in runs]))
    trained = gradient_descent(data.problem, initial, learning_rate, steps)
    settled = np.asarray(trained.status) != "diverged"
    # A diverged run takes part in no mean, so its sharpness is not needed: that of zero is cheap.
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
    """Two rows: the sharpness of each network, and its error bound."""
    count = len(networks.weights[0])
    pieces = [
        sharpness(problem, jax.tree.map(lambda leaf, chosen=chosen: leaf[chosen], networks))
        for chosen in np.array_split(np.arange(count), -(-count // PIECE))
    ]
    return np.concatenate([np.stack([piece.value, piece.error]) for piece in pieces], axis=1)


def _risk(problem: Problem, networks: Network) -> np.ndarray:
    risk, data = risk_and_data(problem, networks)
    return np.asarray(jax.vmap(partial(risk, data))(networks.with_batch()))


SCALE_SWEEP = Experiment("scale-sweep", ScaleSweep, units, run_unit, grid=("scales", "rates"))


def scale_study(name: str, setting: Setting, starts: str, quick: Any) -> Study:
    """The study of one of the authors' sweeps; `quick` has (η, steps, repetitions) of each rate."""
    protocol = SWEEPS[starts]
    rates = (tuple(starmap(Rate, preset)) for preset in (protocol.rates, quick))
    configs = (ScaleSweep(setting, protocol.scales, them, starts) for them in rates)
    return Study(name, SCALE_SWEEP, *configs)


@dataclass(frozen=True)
class DataSets:
    """Rates relative to the critical rate of each data set, from a few scales."""

    setting: Setting
    data_seeds: tuple[int, ...]
    scales: tuple[float, ...]
    relative_rates: tuple[float, ...]
    steps: int
    repetitions: int
    seed: int = 0

    def at(self, data_seed: int) -> Setting:
        """The setting on one data set."""
        return replace(self.setting, data_seed=data_seed)


def train_on(config: DataSets, data_seed: int, relative_rate: float) -> pd.DataFrame:
    """The rows of a scale sweep, with the data set, the relative rate and its S_min."""
    setting = config.at(data_seed)
    flattest = setting.flattest
    rate = relative_rate * flattest.critical_learning_rate()
    rows = train(setting, config.seed, rate, config.steps, config.repetitions, config.scales)
    return rows.assign(
        data_seed=data_seed, relative_rate=relative_rate, minimal_sharpness=flattest.exact
    )


DATA_SETS = grid_experiment(
    "data-sets",
    DataSets,
    train_on,
    {"data_seed": "data_seeds", "relative_rate": "relative_rates"},
    runs=lambda config: len(config.scales) * config.repetitions,
    steps="steps",
    grid=("data_seeds",),
)


SCALE_LABEL = {"gaussian": "Scale of initialization", "residual": "Scale of initialization $s$"}
FLOOR = 1e-15
"""Squared distances below this are rounding."""
SAME = 0.97
"""Lower bound over S_min from which both are drawn as one line."""


def plot_distance(config: ScaleSweep, table: Table, ax: Axes) -> None:
    """Median squared distance to w* against the scale, one curve for each η (FM-1a, FM-4a).

    A mean of numbers from 1e-32 to 1e-10 would show only its largest; below 1e-15 is rounding.
    The authors' plots show the mean over the d coordinates (E-9).
    """
    for index, rate in enumerate(config.rates):
        runs = table[table["learning_rate"] == rate.learning_rate]
        points = curve(runs, "scale", "distance")
        band(ax, points, "scale", QUARTILES, FLOOR, **_rate_look(index, rate))
    _finish(ax, config, r"$\|w - w^\star\|_2^2$", yscale="log")


def plot_sharpness(
    config: ScaleSweep,
    table: Table,
    ax: Axes,
    *,
    below: float = np.inf,
    upper_bound: bool = False,
    linear: bool = True,
) -> None:
    """Sharpness at initialization and after training, with 2/η and the bounds (FM-1b, 4b, 6a, 7).

    Only learning rates `below` a limit are drawn, as in the paper.
    """
    # each network once: the starts are the same at every rate
    networks = table.drop_duplicates(["scale", "repetition"]).assign(status="initial")
    initial = curve(networks, "scale", "initial_sharpness")
    band(ax, initial, "scale", color=QUIET, marker="x", label="at initialization")
    drawn = [rate for rate in config.rates if rate.learning_rate < below]
    for index, rate in enumerate(drawn):
        runs = table[table["learning_rate"] == rate.learning_rate]
        band(ax, curve(runs, "scale", "sharpness"), "scale", **_rate_look(index, rate))
        threshold = 2 / rate.learning_rate
        ax.axhline(threshold, color=look(index)["color"], linestyle="--", linewidth=1, zorder=1)
    flattest = config.setting.flattest
    together = flattest.lower > SAME * flattest.exact
    name = r"$S_{\min} \approx 2La$" if together else r"$S_{\min}$, $2La$"
    reference_line(ax, flattest.exact, name + ("" if linear else "\n(linear)"))
    if not together:
        ax.axhline(flattest.lower, color=QUIET, linestyle=":", linewidth=1, zorder=1)
    if upper_bound:
        reference_line(ax, config.setting.upper_bound, r"$8L\Lambda$", color=QUIET)
    ax.plot([], [], color=QUIET, linestyle="--", linewidth=1, label=r"$2/\eta$")
    _finish(ax, config, "Sharpness", yscale="log")


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
    _finish(ax, config, "Probability of divergence", ylim=(-0.03, 1.03))


def _rate_look(index: int, rate: Rate) -> dict[str, Any]:
    return look(index, label=rf"$\eta = {rate.learning_rate:g}$")


def _finish(ax: Axes, config: ScaleSweep, ylabel: str, **axis: Any) -> None:
    ax.set(xlabel=SCALE_LABEL[config.setting.initialization], ylabel=ylabel, **axis)
    legend_below(ax)


def plot_data_sets(config: DataSets, table: Table, ax: Axes) -> None:
    """Final sharpness over S_min of each surviving run, one column for each data set."""
    for index, rate in enumerate(config.relative_rates):
        runs = table[(table["relative_rate"] == rate) & (table["status"] != "diverged")]
        places = runs["data_seed"].map({s: k for k, s in enumerate(config.data_seeds)})
        style = look(index) | {"linestyle": "", "markersize": 3, "alpha": 0.6}
        shift = (index - (len(config.relative_rates) - 1) / 2) * 0.15
        ax.plot(
            places + shift,
            runs["sharpness"] / runs["minimal_sharpness"],
            label=rf"$\eta = {rate:g}\cdot 2/S_{{\min}}$",
            **style,
        )
        if rate < 1:
            ax.axhline(1 / rate, color=style["color"], linestyle="--", linewidth=1, zorder=1)
    ax.axhline(1, color=INK, linestyle=":", linewidth=1)
    ax.set_xticks(range(len(config.data_seeds)), [data_name(seed) for seed in config.data_seeds])
    ax.set(xlabel="Data set (seed)", ylabel=r"Sharpness after training over $S_{\min}$")
    ax.set_yscale("log")
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.18), ncols=3)


def plot_divergence_on_data_sets(config: DataSets, table: Table, ax: Axes) -> None:
    """Share of runs that diverge against η over 2/S_min, one line for each data set and scale."""
    gone = (table["status"] == "diverged").groupby(
        [table["scale"], table["data_seed"], table["relative_rate"]]
    )
    for index, (scale, shares) in enumerate(gone.mean().groupby("scale")):
        lines = shares.droplevel("scale").unstack("data_seed")
        style = look(index, linewidth=0.9, alpha=0.5, markersize=3)
        ax.plot(
            lines.index,
            lines,
            label=[f"scale {number(float(scale))}"] + [None] * (lines.shape[1] - 1),
            **style,
        )
    ax.axvline(1, color=INK, linestyle="--", linewidth=1, label=r"$2/S_{\min}$")
    ax.set(xlabel=r"Learning rate over $2/S_{\min}$", ylabel="Share of runs that diverge")
    ax.set(xscale="log", ylim=(-0.03, 1.03))
    plain_numbers(ax.xaxis)
    legend_below(ax)


LEARNED = 0.01
"""A network with ‖w − w*‖² below this (the zero map has 1) has learned."""


def data_set_questions(config: DataSets, table: Table) -> list[Question]:
    """What FM says about its data set, asked of others of the same recipe."""
    by, below = table["data_seed"], table["relative_rate"] < 1
    kept = table["status"] != "diverged"
    learned = (table["distance"] < LEARNED)[below & kept].groupby(by).mean()
    settled = (table["status"] == "converged")[~below]
    height = (table["sharpness"] * table["learning_rate"] / 2)[below & kept].groupby(by)
    return [
        Question(
            "other data sets",
            "Do these sentences depend on the data set?",
            f"On {len(learned)} data sets of the same recipe {percent(learned.min())} or more of "
            "the runs that do not diverge below 2/S_min end at w*; above it "
            f"{percent(settled.mean())} of {len(settled)} runs settle. The largest final sharpness "
            f"of a run is {extent(height.max())} times 2/η: at the last step some oscillate above "
            "it.",
        )
    ]


def divergence_questions(config: ScaleSweep, table: Table) -> list[Question]:
    """Where the probability of divergence grows."""
    gone = (table["status"] == "diverged").groupby([table["learning_rate"], table["scale"]])
    shares = gone.mean().unstack("scale")
    first = {rate: row.index[row > 0].min() for rate, row in shares.iterrows()}
    last = {rate: row.index[row < 1].max() for rate, row in shares.iterrows()}
    return [
        Question(
            "where it begins",
            "From which scale on do runs diverge?",
            f"The smallest scale at which a run diverges: {each('η = {}', first)}; the largest at "
            f"which one does not: {each('η = {}', last)}.",
        )
    ]
