"""Training from many scales of initialisation with several learning rates.

One experiment for FM-1, FM-3, FM-4, FM-5, FM-6, FM-7 and its noisy variant.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.figures.figure import Table
from deeplin.figures.setting import Setting
from deeplin.figures.statistics import curve
from deeplin.figures.style import QUARTILES, QUIET, band, legend_below, look, reference_line
from deeplin.networks import Network, distance_to_optimum
from deeplin.networks.risk import landscape
from deeplin.problems import Problem
from deeplin.sharpness import sharpness
from deeplin.sweep import Experiment, Unit

PIECE = 400
"""Networks whose sharpness is computed at once."""


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
    seed: int = 0


def units(config: ScaleSweep) -> list[Unit]:
    """One unit for each learning rate: all its scales and repetitions are one batch."""
    return [
        Unit(
            {
                "learning_rate": rate.learning_rate,
                "steps": rate.steps,
                "repetitions": rate.repetitions,
                "scales": config.scales,
            },
            runs=rate.repetitions * len(config.scales),
            steps=rate.steps * rate.repetitions * len(config.scales),
        )
        for rate in config.rates
    ]


def run_unit(config: ScaleSweep, unit: Unit) -> pd.DataFrame:
    """Train the batch; sharpness before and after, distance to w*, risk on training and test data.

    The initial weights depend on scale and repetition but not on η, so that learning rates are
    compared on the same networks.
    """
    rate = unit.coordinates
    runs = [
        {"scale": scale, "repetition": repetition}
        for scale in rate["scales"]
        for repetition in range(rate["repetitions"])
    ]
    scales = np.array([run["scale"] for run in runs])
    data = config.setting.data
    initial = config.setting.networks(config.seed, runs, scales)
    trained = gradient_descent(data.problem, initial, rate["learning_rate"], rate["steps"])
    settled = np.asarray(trained.status) != "diverged"
    # A diverged run takes part in no mean, so its sharpness is not needed: that of zero is cheap.
    ends = jax.tree.map(
        lambda leaf: np.where(settled.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0.0),
        trained.network.with_batch(),
    )
    before, after, error = _sharpness_before_and_after(data.problem, initial, ends)
    final = {
        "distance": distance_to_optimum(data.problem, trained.network),
        "risk": trained.evidence["risk"],
        "test_risk": _risk(data.test, trained.network),
        "sharpness": after,
        "sharpness_error": error,
    }
    return pd.DataFrame(runs).assign(
        learning_rate=rate["learning_rate"],
        status=trained.status,
        steps=trained.steps,
        initial_sharpness=before,
        **{name: np.where(settled, values, np.nan) for name, values in final.items()},
    )


def _sharpness_before_and_after(problem: Problem, initial: Network, final: Network):
    """Both as one batch, in pieces that fit the processor's cache and are compiled for once."""
    both = jax.tree.map(
        lambda *halves: np.concatenate(halves), initial.with_batch(), final.with_batch()
    )
    count = len(both.weights[0])
    pieces = [
        sharpness(problem, jax.tree.map(lambda leaf, chosen=chosen: leaf[chosen], both))
        for chosen in np.array_split(np.arange(count), -(-count // PIECE))
    ]
    value = np.concatenate([np.atleast_1d(piece.value) for piece in pieces])
    error = np.concatenate([np.atleast_1d(piece.error) for piece in pieces])
    before, after = np.split(value, 2)
    return before, after, np.split(error, 2)[1]


def _risk(problem: Problem, networks: Network) -> np.ndarray:
    risk, data = landscape(problem, networks)
    return np.asarray(jax.vmap(partial(risk, data))(networks.with_batch()))


SCALE_SWEEP = Experiment("scale-sweep", ScaleSweep, units, run_unit, grid=("scales", "rates"))


SCALE_LABEL = {"gaussian": "Scale of initialization", "residual": "Scale of initialization $s$"}


def plot_distance(config: ScaleSweep, table: Table, ax: Axes) -> None:
    """Median squared distance to w* against the scale, one curve for each η (FM-1a, FM-4a).

    A mean of numbers from 1e-32 to 1e-10 would show only its largest; below 1e-15 is rounding.
    The authors' plots show the mean over the d coordinates (E-9).
    """
    for index, rate in enumerate(config.rates):
        runs = table[table["learning_rate"] == rate.learning_rate]
        points = curve(runs, "scale", "distance")
        band(ax, points, "scale", QUARTILES, FLOOR, **_rate_look(index, rate))
    ax.set_yscale("log")
    ax.set(xlabel=SCALE_LABEL[config.setting.initialization], ylabel=r"$\|w - w^\star\|_2^2$")
    legend_below(ax)


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
    draw_minimum(ax, config.setting.flattest, "" if linear else "\n(linear)")
    if upper_bound:
        reference_line(ax, config.setting.upper_bound, r"$8L\Lambda$", color=QUIET)
    ax.set_yscale("log")
    ax.set(xlabel=SCALE_LABEL[config.setting.initialization], ylabel="Sharpness")
    ax.plot([], [], color=QUIET, linestyle="--", linewidth=1, label=r"$2/\eta$")
    legend_below(ax)


SAME = 0.97
"""Lower bound over S_min from which both are drawn as one line."""


def draw_minimum(ax: Axes, flattest, note: str) -> None:
    """S_min, and the printed lower bound 2La where it can be told from it."""
    together = flattest.lower > SAME * flattest.exact
    name = r"$S_{\min} \approx 2La$" if together else r"$S_{\min}$, $2La$"
    reference_line(ax, flattest.exact, name + note)
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
    legend_below(ax)


def _rate_look(index: int, rate) -> dict:
    return look(index, label=rf"$\eta = {rate.learning_rate:g}$")
