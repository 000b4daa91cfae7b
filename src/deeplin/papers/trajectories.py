"""Single trainings followed step by step: FM-1c, FM-1d, FM-4c, FM-4d and what lies behind them."""

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
from deeplin.papers.figures import Table
from deeplin.papers.marion_chizat_starts import training_start
from deeplin.papers.question import Question, extent, number
from deeplin.papers.scale_sweep import FLOOR, SAME
from deeplin.papers.setting import Setting
from deeplin.papers.statistics import mean_interval
from deeplin.papers.style import COLOURS, INK, QUIET, legend_below, look, plain_numbers
from deeplin.problems import Problem
from deeplin.sweep import Experiment, Unit

RECORDED = ("distance", "gap", "sharpness", "alignment", "conservation")
AUTHORS_RUN, AS_RUN = 0, -1
"""The repetition that starts where the authors did; the same as they ran it, in float32."""


@dataclass(frozen=True)
class Followed:
    """A learning rate with its steps, recorded every so many."""

    learning_rate: float
    steps: int
    record_every: int = 1


@dataclass(frozen=True)
class Trajectories:
    """The same initial networks trained with each of the rates.

    The first of the `repetitions` starts where the authors' run of `start` does; the others are
    drawn from the seed.
    """

    setting: Setting
    start: str
    scale: float
    rates: tuple[Followed, ...]
    repetitions: int
    seed: int = 0


def units(config: Trajectories) -> list[Unit]:
    """One unit for each learning rate."""
    runs = config.repetitions
    return [Unit(asdict(rate), runs=runs, steps=rate.steps * runs) for rate in config.rates]


def run_unit(config: Trajectories, unit: Unit) -> pd.DataFrame:
    """One row for each record and repetition; alignment as its mean over the layers."""
    runs = [{"scale": config.scale, "repetition": k} for k in range(1, config.repetitions)]
    own = config.setting.networks(config.seed, runs, config.scale)
    first = training_start(config.start)
    pairs = zip(first.weights, own.weights, strict=True)
    starts = Network([np.concatenate([w[None], v]) for w, v in pairs], first.readout)
    problem = config.setting.data.problem
    trained = gradient_descent(
        problem, starts, **unit.coordinates, record=RECORDED, keep_weights=False
    )
    records = trained.records
    count = len(records["step"])
    rows = pd.DataFrame(
        {
            "repetition": np.tile(np.arange(config.repetitions), count),
            "status": np.tile(np.asarray(trained.status), count),
            "step": np.repeat(records["step"], config.repetitions),
            "alignment": records["alignment"].mean(axis=-1).ravel(),
            **{name: records[name].ravel() for name in RECORDED if name != "alignment"},
        }
    )
    rate, steps = (unit.coordinates[name] for name in ("learning_rate", "steps"))
    rows = pd.concat([rows, as_run(problem, first, rate, steps)], ignore_index=True)
    return rows.assign(learning_rate=rate)


TRAJECTORIES = Experiment("trajectories", Trajectories, units, run_unit, grid=("rates",))


def as_run(problem: Problem, start: Network, learning_rate: float, steps: int) -> pd.DataFrame:
    """The authors' protocol: float32, automatic derivatives, 20 power iterations, every fifth step.

    Their distance is the mean over the coordinates (E-9); here it is the sum, as printed.
    """
    X, y = (jnp.asarray(array, jnp.float32) for array in problem.require_data("the float32 run"))
    optimum = jnp.asarray(problem.optimum, jnp.float32).reshape(-1)
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
    learning_rate: float,
    subsample: int = 1,
    upper_bound: bool = False,
) -> None:
    """Squared distance (left axis) and sharpness (right axis) along the authors' run.

    Light: as they ran it, in float32 with 20 power iterations.
    """
    run = _shown(table, learning_rate).iloc[::subsample]
    single = _shown(table, learning_rate, AS_RUN)
    right = ax.twinx()
    right.spines["right"].set_visible(True)
    distance, sharp = COLOURS[0], COLOURS[1]
    ax.plot(run["step"], run["distance"].clip(lower=FLOOR), color=distance)
    ax.margins(y=0.12)  # at its floor it would hide the line of S_min
    right.plot(run["step"], run["sharpness"], color=sharp)
    light: dict[str, Any] = {"alpha": 0.35, "linewidth": 3.5, "zorder": 0.5}
    ax.plot(single["step"], single["distance"].clip(lower=FLOOR), color=distance, **light)
    right.plot(single["step"], single["sharpness"], color=sharp, **light)
    flattest = config.setting.flattest
    level = {"linewidth": 1, "zorder": 1}
    edge = right.axhline(2 / learning_rate, color=sharp, linestyle="--", label=r"$2/\eta$", **level)
    least = right.axhline(flattest.exact, color=INK, linestyle=":", label=r"$S_{\min}$", **level)
    named = [edge, least]
    if flattest.lower < SAME * flattest.exact:
        right.axhline(flattest.lower, color=QUIET, linestyle=":", **level)
    else:
        least.set_label(r"$S_{\min} \approx 2La$")
    if upper_bound:
        bound = config.setting.upper_bound
        style = {"color": QUIET, "linestyle": "-.", "label": r"$8L\Lambda$"}
        named.append(right.axhline(bound, **style, **level))
    named += ax.plot([], [], color=QUIET, label="as run, float32", **light)
    legend_below(ax, handles=named, ncols=len(named))
    ax.set(yscale="log", xlabel="Gradient steps")
    right.set_yscale("log")
    plain_numbers(right.yaxis)
    ax.set_ylabel(r"$\|w - w^\star\|_2^2$", color=distance)
    right.set_ylabel("Sharpness", color=sharp)


def plot_conservation(config: Trajectories, table: Table, ax: Axes) -> None:
    """Drift of W_{k+1}ᵀW_{k+1} − W_kW_kᵀ, constant on the flow, against time ηt (FM-L1)."""
    _against_time(config, table, ax, "conservation")
    ax.set(yscale="log", ylabel=r"$\max_k \|D_k(t) - D_k(0)\|_F$")


def plot_alignment(config: Trajectories, table: Table, ax: Axes) -> None:
    """⟨v_{k+1}, u_k⟩², averaged over neighboring layers, against time ηt (FM-L2 c)."""
    _against_time(config, table, ax, "alignment")
    ax.set(ylim=(0, 1.02), ylabel=r"mean over $k$ of $\langle v_{k+1}, u_k\rangle^2$")


def _against_time(config: Trajectories, table: Table, ax: Axes, column: str) -> None:
    for index, rate in enumerate(sorted(config.rates, key=lambda rate: rate.learning_rate)):
        run = _shown(table, rate.learning_rate)
        style = look(index, marker=None, label=rf"$\eta = {rate.learning_rate:g}$")
        if index == 0:
            style |= {"linewidth": 5, "alpha": 0.4}  # the next rate follows the same path
        run = run[run["step"] > 0]
        ax.plot(run["step"] * rate.learning_rate, run[column], **style)
    ax.set(xscale="log", xlabel=r"Time $\eta t$")
    ax.legend()


def _shown(table: Table, learning_rate: float, repetition: int = AUTHORS_RUN) -> Table:
    return table[(table["learning_rate"] == learning_rate) & (table["repetition"] == repetition)]


def own_starts(table: Table, learning_rate: float) -> Table:
    """The float64 runs of all starts with their sharpness over 2/η as `height`."""
    runs = table[(table["learning_rate"] == learning_rate) & (table["repetition"] != AS_RUN)]
    return runs.assign(height=runs["sharpness"] * learning_rate / 2)


def stable_questions(config: Trajectories, table: Table, *, learning_rate: float) -> list[Question]:
    """Whether the other starts stay below the edge too, and what float32 changes."""
    runs = own_starts(table, learning_rate)
    top = runs.groupby("repetition")["height"].max()
    return [
        Question(
            "other starts",
            "Is the authors' run typical of its scale?",
            f"Of {len(top)} starts of this scale {int((top <= 1).sum())} never rise above 2/η; the "
            f"largest sharpness of a run is {extent(top)} of it.",
        ),
        _precision_question(table, learning_rate),
    ]


def edge_questions(config: Trajectories, table: Table, *, learning_rate: float) -> list[Question]:
    """How the other starts oscillate, and what float32 changes."""
    runs = own_starts(table, learning_rate)
    runs = runs[runs["status"] != "diverged"]
    late = runs[runs["step"] >= 2 / 3 * runs["step"].max()].groupby("repetition")["height"]
    mean, half = mean_interval(late.mean())
    crossings = [
        np.count_nonzero(np.diff(run["height"].to_numpy() > 1))
        for _, run in runs.groupby("repetition")
    ]
    return [
        Question(
            "other starts",
            "Is the authors' run typical of its scale?",
            f"Over the last third the sharpness of {len(crossings)} starts averages "
            f"{number(mean)} ± {number(half)} of 2/η; it crosses 2/η {extent(crossings)} times.",
        ),
        _precision_question(table, learning_rate),
    ]


def _precision_question(table: Table, learning_rate: float) -> Question:
    exact, single = (
        _shown(table, learning_rate, which).set_index("step")["sharpness"]
        for which in (AUTHORS_RUN, AS_RUN)
    )
    off = (single / exact.reindex(single.index) - 1).abs()
    return Question(
        "float32",
        "What do float32 and 20 power iterations change?",
        f"The sharpness by {number(float(off.median()))} in the median and {number(off.max())} at "
        "most, relative to the exact value at the same step.",
    )


def conservation_questions(config: Trajectories, table: Table) -> list[Question]:
    """What flow conserves and descent moves."""
    slow, middle, fast = sorted(rate.learning_rate for rate in config.rates)
    drift = table.groupby(["learning_rate", "repetition"])["conservation"].max()
    near, far = drift[middle] / drift[slow] / (middle / slow), drift[fast] / drift[middle]
    return [
        Question(
            "drift",
            "How far does descent move what the flow conserves (FM-L1)?",
            f"Below the edge in proportion to η: the drift at η = {number(middle)} over that at "
            f"{number(slow)} is {extent(near.dropna())} times the ratio of the rates. At the edge "
            f"(η = {number(fast)}) it is {extent((far / (fast / middle)).dropna())} times that.",
        )
    ]


def alignment_questions(config: Trajectories, table: Table) -> list[Question]:
    """Whether neighboring layers align far from small initialization."""
    slow, *_ = sorted(rate.learning_rate for rate in config.rates)
    runs = own_starts(table, slow).set_index("repetition")
    first, last = (runs.loc[runs["step"] == s, "alignment"] for s in (0, runs["step"].max()))
    mean, half = mean_interval((last - first).to_numpy())
    return [
        Question(
            "alignment",
            "Do layers align at this scale, where the guarantee of FM-L2 says nothing?",
            f"Yes: ⟨v_(k+1), u_k⟩², averaged over the layers, grows by {number(mean)} ± "
            f"{number(half)} over training (η = {number(slow)}, {len(first)} starts).",
        )
    ]
