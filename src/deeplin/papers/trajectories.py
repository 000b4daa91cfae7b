"""Single trainings recorded step by step: FM-1c, FM-1d, FM-4c and FM-4d."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network
from deeplin.papers.figures import Answers, Panel, Study, Table, define_panel, define_study
from deeplin.papers.setting import FLOOR, SAME, SWEEPS, TRAININGS, Config, Setting, training_start
from deeplin.papers.statistics import mean_interval
from deeplin.plot_style import COLORS, INK, QUIET, place_legend, plain_numbers
from deeplin.problems import Problem
from deeplin.sweep import Unit

RECORDED = ("distance", "gap", "sharpness")
AUTHORS_RUN, AS_RUN = 0, -1
"""The repetition with the authors' start, and the same run in float32 as they ran it."""


@dataclass(frozen=True)
class Followed:
    """A learning rate with its number of steps and the interval of records."""

    learning_rate: float
    steps: int
    record_every: int = 1


@dataclass(frozen=True)
class Trajectories(Config):
    """The same initial networks trained with each of the rates.

    The first of the `repetitions` starts where the authors' run of `start` does, in their setting
    and from their scale; the others are drawn from the seed.
    """

    setting: Setting
    start: str
    scale: float
    rates: tuple[Followed, ...]
    repetitions: int


def units(config: Trajectories) -> list[Unit]:
    """Return one unit for each learning rate."""
    runs = config.repetitions
    return [Unit(asdict(rate), runs=runs, steps=rate.steps * runs) for rate in config.rates]


def follow(
    config: Trajectories, learning_rate: float, steps: int, record_every: int
) -> pd.DataFrame:
    """Return one row for each record and repetition."""
    runs = [{"scale": config.scale, "repetition": k} for k in range(config.repetitions)]
    starts = config.setting.networks(config.seed, runs, config.scale)
    if _of_authors(config):
        first = training_start(config.start)
        pairs = zip(first.weights, starts.weights, strict=True)
        layers = [np.concatenate([w[None], v[1:]]) for w, v in pairs]
        starts = Network(layers, readout=first.readout)
    first = Network([np.asarray(weight)[0] for weight in starts.weights], readout=starts.readout)
    problem = config.setting.data.problem
    recording: Any = {"record_every": record_every, "record": RECORDED, "keep_weights": False}
    trained = gradient_descent(problem, starts, learning_rate, steps, **recording)
    records = trained.records
    count = len(records["step"])
    rows = pd.DataFrame(
        {
            "repetition": np.tile(np.arange(config.repetitions), count),
            "status": np.tile(np.asarray(trained.status), count),
            "step": np.repeat(records["step"], config.repetitions),
            **{name: records[name].ravel() for name in RECORDED},
        }
    )
    rows = pd.concat([rows, as_run(problem, first, learning_rate, steps)], ignore_index=True)
    return rows.assign(learning_rate=learning_rate)


def _of_authors(config: Trajectories) -> bool:
    """Return whether the authors' start is one of this setting and scale."""
    setting, protocol = config.setting, SWEEPS[config.start]
    mine = (setting.depth, setting.dimension, setting.initialization == "residual", config.scale)
    theirs = (protocol.depth, protocol.width, protocol.readout is not None)
    return mine == (*theirs, TRAININGS[config.start].scale)


def as_run(problem: Problem, start: Network, learning_rate: float, steps: int) -> pd.DataFrame:
    """Train by the authors' protocol.

    It has float32, automatic derivatives, and 20 power iterations at every fifth step.

    Their distance is the mean over the coordinates (E-9); here it is the sum, as printed.
    """
    X, y = (jnp.asarray(array, jnp.float32) for array in problem.require_data("the float32 run"))
    optimum = jnp.asarray(problem.optimum, jnp.float32)
    readout = None if start.readout is None else jnp.asarray(start.readout, jnp.float32)

    def product(weights: list) -> jax.Array:
        w = weights[-1][0] if readout is None else readout @ weights[-1]
        for weight in weights[-2::-1]:
            w = w @ weight
        return w

    def risk(weights: list) -> jax.Array:
        return jnp.mean((y.reshape(-1) - X @ product(weights)) ** 2)

    def power(weights: list) -> jax.Array:
        def iterate(vector, _):
            image = jax.jvp(jax.grad(risk), (weights,), (vector,))[1]
            size = jnp.sqrt(sum(jnp.sum(part**2) for part in image))
            return jax.tree.map(lambda part: part / size, image), size

        ones = jax.tree.map(jnp.ones_like, weights)
        norm = jnp.sqrt(jnp.float32(sum(leaf.size for leaf in weights)))
        first = jax.tree.map(lambda leaf: leaf / norm, ones)
        return jax.lax.scan(iterate, first, length=20)[1][-1]

    def step(weights, _):
        seen = jnp.sum((product(weights) - optimum) ** 2), power(weights)
        moved = jax.tree.map(
            lambda w, g: w - jnp.float32(learning_rate) * g, weights, jax.grad(risk)(weights)
        )
        return moved, seen

    weights = [jnp.asarray(weight, jnp.float32) for weight in start.weights]
    _, (distance, sharpness) = jax.jit(partial(jax.lax.scan, step, length=steps + 1))(weights)
    shown = np.arange(0, steps + 1, 5)
    return pd.DataFrame(
        {
            "repetition": AS_RUN,
            "status": "stopped",
            "step": shown,
            "distance": np.asarray(distance, float)[shown],
            "sharpness": np.asarray(sharpness, float)[shown],
        }
    )


def plot_training(
    config: Trajectories,
    table: Table,
    ax: Axes,
    *,
    rate: int,
    subsample: int = 1,
    upper_bound: bool = False,
) -> None:
    """Plot squared distance (left axis) and sharpness (right axis) along the first run.

    `rate` is the place of the learning rate among those of the config. The light curve is the
    run in float32 with 20 power iterations, as they ran it.
    """
    learning_rate = config.rates[rate].learning_rate
    right = ax.twinx()
    right.spines["right"].set_visible(True)
    light: dict[str, Any] = {"alpha": 0.35, "linewidth": 3.5, "zorder": 0.5}
    exact = _run(table, learning_rate).iloc[::subsample]
    for run, style in ((exact, {}), (_run(table, learning_rate, AS_RUN), light)):
        ax.plot(run["step"], run["distance"].clip(lower=FLOOR), color=COLORS[0], **style)
        right.plot(run["step"], run["sharpness"], color=COLORS[1], **style)
    ax.margins(y=0.12)  # at its floor it would hide the line of S_min
    flattest = config.setting.flattest
    together = flattest.lower >= SAME * flattest.exact
    levels = [
        (2 / learning_rate, COLORS[1], "--", r"$2/\eta$"),
        (flattest.exact, INK, ":", r"$S_{\min} \approx 2La$" if together else r"$S_{\min}$"),
    ]
    if not together:
        levels.append((flattest.lower, QUIET, ":", "_"))
    if upper_bound:
        levels.append((config.setting.upper_bound, QUIET, "-.", r"$8L\Lambda$"))
    for height, color, line, label in levels:
        right.axhline(height, color=color, linestyle=line, label=label, linewidth=1, zorder=1)
    right.plot([], [], color=QUIET, label="as run, float32", **light)
    named, _ = right.get_legend_handles_labels()
    place_legend(ax, handles=named, ncols=len(named))
    right.set_yscale("log")
    plain_numbers(right.yaxis)
    ax.set_ylabel(r"$\|w - w^\star\|_2^2$", color=COLORS[0])
    right.set_ylabel("Sharpness", color=COLORS[1])


def _run(table: Table, learning_rate: float, repetition: int = AUTHORS_RUN) -> Table:
    return table[(table["learning_rate"] == learning_rate) & (table["repetition"] == repetition)]


def own_starts(table: Table, learning_rate: float) -> Table:
    """Return the float64 runs of all starts with their sharpness over 2/η as `height`."""
    runs = table[(table["learning_rate"] == learning_rate) & (table["repetition"] != AS_RUN)]
    return runs.assign(height=runs["sharpness"] * learning_rate / 2)


def stable_answers(config: Trajectories, table: Table, *, rate: int) -> Answers:
    """Answer whether the other starts stay below the edge too, and what float32 changes."""
    learning_rate = config.rates[rate].learning_rate
    top = own_starts(table, learning_rate).groupby("repetition")["height"].max()
    return {
        "starts below the edge": {"top": top, "below": (top <= 1).sum()},
        "float32": _precision(table, learning_rate),
    }


def edge_answers(config: Trajectories, table: Table, *, rate: int) -> Answers:
    """Answer how the other starts oscillate, and what float32 changes."""
    learning_rate = config.rates[rate].learning_rate
    runs = own_starts(table, learning_rate)
    runs = runs[runs["status"] != "diverged"]
    late = runs[runs["step"] >= 2 / 3 * runs["step"].max()].groupby("repetition")["height"]
    crossings = [
        np.count_nonzero(np.diff(run["height"].to_numpy() > 1))
        for _, run in runs.groupby("repetition")
    ]
    return {
        "starts at the edge": {"crossings": crossings, "late": mean_interval(late.mean())},
        "float32": _precision(table, learning_rate),
    }


def _precision(table: Table, learning_rate: float) -> dict[str, float]:
    """Return the relative difference of the sharpness in float32 with 20 power iterations."""
    exact, single = (
        _run(table, learning_rate, which).set_index("step")["sharpness"]
        for which in (AUTHORS_RUN, AS_RUN)
    )
    off = (single / exact.reindex(single.index) - 1).abs()
    return {"median": off.median(), "most": off.max()}


def training_study(figure: str, scale: float, *rates: Followed, **setting: Any) -> Study:
    """Return the trainings of panels c and d of a figure."""
    paper = Trajectories(Setting(**setting), figure, scale, rates, 20)
    name = f"{figure.lower()}-training"
    return define_study(name, follow, units, paper=paper, quick={"repetitions": 4})


def training_panels(figure: str, study: Study, **options: Any) -> tuple[Panel, Panel]:
    """Return panels c and d of a figure, with options of `plot_training`."""
    axes = {"xlabel": "Gradient steps", "yscale": "log"}
    below, at_edge = {"rate": 0}, {"rate": -1}
    return (
        define_panel(
            f"{figure}c", study, partial(plot_training, **below, **options),
            partial(stable_answers, **below), axes=axes, legend=None,
        ),
        define_panel(
            f"{figure}d", study, partial(plot_training, **at_edge, subsample=5, **options),
            partial(edge_answers, **at_edge), axes=axes, legend=None,
        ),
    )  # fmt: skip
