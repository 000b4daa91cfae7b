"""The sweep behind FM-1 and FM-3 to FM-7: training from many scales at several rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product, starmap
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.networks.network import distance_to_optimum, risk_and_data
from deeplin.papers.figures import Answers, Panel, Study, Table, define_panel, define_study
from deeplin.papers.setting import FLOOR, SAME, SWEEPS, Config, Setting, sweep_starts
from deeplin.papers.statistics import curve
from deeplin.plot_style import QUIET, band, name_once, nested, reference_line
from deeplin.problems import Problem
from deeplin.sweep import Unit

SHOWN_BELOW = 0.09
"""Panels b show the learning rates below this."""
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
    final = _added_by_start(setting, runs, ends) | {
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


def _added_by_start(setting: Setting, runs: list[dict[str, Any]], ends: Network) -> dict[str, Any]:
    """Return σ²‖v_1‖²tr((I − P)Σ̂), v_1 = W_2ᵀ…W_Lᵀ: the mean that a start adds to the test risk.

    Only inputs with a null space leave something outside the data (X-35).
    """
    problem, test = setting.data.problem, setting.data.test
    if setting.activation != "linear" or problem.rank == problem.dimension:
        return {}
    above = np.asarray(ends.weights[-1])
    for weight in ends.weights[-2:0:-1]:
        above = above @ np.asarray(weight)
    X, _ = problem.require_data("the law")
    row_space = np.linalg.pinv(X) @ X
    unseen = np.trace(np.asarray(test.covariance)) - np.sum(row_space * np.asarray(test.covariance))
    squares = np.sum(above**2, axis=(-2, -1))
    return {"added_by_start": np.array([run["scale"] for run in runs]) ** 2 * squares * unseen}


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


def plot_distance(config: ScaleSweep, table: Table, ax: Axes) -> None:
    """Plot mean squared distance to w* against the scale, one curve for each η (FM-1a, FM-4a).

    Values below 1e-15 are rounding. The authors' plots show the mean over the d coordinates (E-9).
    """
    for style, runs in _by_rate(config, table):
        points = curve(runs, "scale", "distance")
        band(ax, points, "scale", median=True, floor=FLOOR, **style)
    name_floor(ax)


def name_floor(ax: Axes) -> None:
    """Draw the line on which distances lie that are rounding, and name it in the legend."""
    ax.axhline(FLOOR, color=QUIET, linewidth=0.6, zorder=0)
    name_once(ax, r"$\leq 10^{-15}$: rounding", color=QUIET, linewidth=0.6)


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
    ax.plot(initial["scale"], initial["mean"], "x-", color=QUIET, label="at initialization")
    for style, runs in _by_rate(config, table[table["learning_rate"] < below]):
        alive = runs["sharpness"][runs["sharpness"] > 0]
        points = curve(runs, "scale", "sharpness")
        band(ax, points, "scale", median=not linear, floor=alive.min(), **style)
        _mark_dead(ax, runs, style["color"])
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
    name_once(ax, r"$2/\eta$", color=QUIET, linestyle="--")


DEAD = 1e-3
"""Final sharpness, in units of 2/η, below which all units of a network are off."""


def dead(runs: Table) -> Any:
    """Return which runs ended with all units off: the network is constant, its sharpness 0."""
    return runs["sharpness"] * runs["learning_rate"] / 2 < DEAD


def _mark_dead(ax: Axes, runs: Table, color: str) -> None:
    """Mark the scales of networks whose units are all off below the axes' lower end."""
    scales = runs["scale"][dead(runs)].unique()
    if len(scales):
        strip = {"transform": ax.get_xaxis_transform(), "clip_on": False, "linestyle": ""}
        ax.plot(scales, np.full(len(scales), 0.02), marker="x", color=color, label="_dead", **strip)
        name_once(ax, "runs with all units off", linestyle="", marker="x")


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
            yield nested(index, label=rf"$\eta = {rate:g}$"), runs


def divergence_answers(config: ScaleSweep, table: Table) -> Answers:
    """Answer where the probability of divergence grows."""
    gone = (table["status"] == "diverged").groupby([table["learning_rate"], table["scale"]])
    shares = gone.mean().unstack("scale")
    first = {rate: row.index[row > 0].min() for rate, row in shares.iterrows()}
    last = {rate: row.index[row < 1].max() for rate, row in shares.iterrows()}
    return {"where it begins": {"first": first, "last": last}}


SCALE, SCALE_S = "Scale of initialization", "Scale of initialization $s$"
"""Names of the horizontal axis: for Gaussian and for residual starts."""


def distance_panel(name: str, study: Study, xlabel: str = SCALE) -> Panel:
    """Return panel a of a figure."""
    axes = {"xlabel": xlabel, "ylabel": r"$\|w - w^\star\|_2^2$", "yscale": "log"}
    return define_panel(name, study, plot_distance, axes=axes)


def sharpness_panel(
    name: str, study: Study, answers: Any = None, *, xlabel: str = SCALE, ours=False, **options: Any
) -> Panel:
    """Return panel b of a figure, with options of `plot_sharpness`."""
    axes = {"xlabel": xlabel, "ylabel": "Sharpness", "yscale": "log"}
    plot = partial(plot_sharpness, **options)
    place: dict[str, Any] = {"axes": axes, "plain": True}
    return define_panel(name, study, plot, answers, ours=ours, **place)


def divergence_panel(name: str, study: Study, xlabel: str = SCALE) -> Panel:
    """Return FM-3 or FM-5."""
    axes = {"xlabel": xlabel, "ylabel": "Probability of divergence", "ylim": (-0.03, 1.03)}
    return define_panel(name, study, plot_divergence, divergence_answers, axes=axes)
