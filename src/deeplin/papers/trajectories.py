"""Single trainings followed step by step: FM-1c, FM-1d, FM-4c, FM-4d and what lies behind them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.papers.claims import POSITIVE, Claim, number, parts
from deeplin.papers.figure import Table
from deeplin.papers.scale_sweep import FLOOR, SAME
from deeplin.papers.setting import Setting
from deeplin.papers.statistics import mean_interval
from deeplin.papers.style import COLOURS, INK, QUIET, legend_below, look, plain_numbers
from deeplin.sweep import Experiment, Unit

RECORDED = ("distance", "gap", "sharpness", "alignment", "conservation")


@dataclass(frozen=True)
class Followed:
    """A learning rate with its steps, recorded every so many."""

    learning_rate: float
    steps: int
    record_every: int = 1


@dataclass(frozen=True)
class Trajectories:
    """The same initial networks trained with each of the rates."""

    setting: Setting
    scale: float
    rates: tuple[Followed, ...]
    repetitions: int
    seed: int = 0


def units(config: Trajectories) -> list[Unit]:
    """One unit for each learning rate."""
    runs = config.repetitions
    return [Unit(asdict(rate), runs=runs, steps=rate.steps * runs) for rate in config.rates]


def run_unit(config: Trajectories, unit: Unit) -> pd.DataFrame:
    """One row for each record and repetition; alignment as its mean and minimum over the layers."""
    runs = [{"scale": config.scale, "repetition": k} for k in range(config.repetitions)]
    trained = gradient_descent(
        config.setting.data.problem,
        config.setting.networks(config.seed, runs, config.scale),
        **unit.coordinates,
        record=RECORDED,
        keep_weights=False,
    )
    records = trained.records
    count = len(records["step"])
    return pd.DataFrame(
        {
            "learning_rate": unit.coordinates["learning_rate"],
            "repetition": np.tile(np.arange(config.repetitions), count),
            "status": np.tile(np.asarray(trained.status), count),
            "step": np.repeat(records["step"], config.repetitions),
            "alignment": records["alignment"].mean(axis=-1).ravel(),
            "least_alignment": records["alignment"].min(axis=-1).ravel(),
            **{name: records[name].ravel() for name in RECORDED if name != "alignment"},
        }
    )


TRAJECTORIES = Experiment("trajectories", Trajectories, units, run_unit, grid=("rates",))


SHOWN = 0
"""The repetition that is drawn; the claims look at all of them."""


def plot_training(
    config: Trajectories,
    table: Table,
    ax: Axes,
    *,
    learning_rate: float,
    subsample: int = 1,
    upper_bound: bool = False,
) -> None:
    """Squared distance (left axis) and sharpness (right axis) along one run (FM-1c, 1d, 4c, 4d)."""
    run = _shown(table, learning_rate).iloc[::subsample]
    right = ax.twinx()
    right.spines["right"].set_visible(True)
    distance, sharp = COLOURS[0], COLOURS[1]
    ax.plot(run["step"], run["distance"].clip(lower=FLOOR), color=distance)
    ax.margins(y=0.12)  # at its floor it would hide the line of S_min
    right.plot(run["step"], run["sharpness"], color=sharp)
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
    legend_below(ax, handles=named, ncols=3)
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
    """⟨v_{k+1}, u_k⟩², averaged over neighbouring layers, against time ηt (FM-L2 c)."""
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


def _shown(table: Table, learning_rate: float) -> Table:
    return table[(table["learning_rate"] == learning_rate) & (table["repetition"] == SHOWN)]


def stable_claims(config: Trajectories, table: Table, *, learning_rate: float) -> list[Claim]:
    """A small rate does not meet the edge of stability and reaches w*."""
    runs = table[table["learning_rate"] == learning_rate]
    last = runs[runs["step"] == runs["step"].max()].set_index("repetition")
    height = runs["sharpness"] * learning_rate / 2
    late = height[runs["step"] >= 2 / 3 * runs["step"].max()].max()
    return [
        Claim(
            f"η = {number(learning_rate)} does not enter the edge of stability: largest sharpness "
            "of a run at any step, in units of 2/η",
            parts("run {}", height.groupby(runs["repetition"]).max()),
            upper=1.0,
            name="below the edge",
            reason="The printed threshold, for the whole run.",
            explanation=f"Over the last third of all runs the largest is {number(late)}.",
            known="K-8",
        ),
        Claim(
            f"η = {number(learning_rate)} reaches w*: final squared distance of each run",
            parts("run {}", last["distance"]),
            upper=1e-6,
            name="reaches w*",
            reason="A millionth of ‖w*‖², first set before the runs; it stood at 1e-3 for a while.",
            known="K-10",
        ),
    ]


def edge_of_stability_claims(
    config: Trajectories, table: Table, *, learning_rate: float
) -> list[Claim]:
    """A larger rate oscillates around 2/η."""
    runs = table[(table["learning_rate"] == learning_rate) & (table["status"] != "diverged")]
    height = runs.assign(height=runs["sharpness"] * learning_rate / 2)
    late = height[height["step"] >= 2 / 3 * height["step"].max()]
    # A run that settles at the edge stops crossing: count crossings over the whole run.
    crossings = {
        repetition: np.count_nonzero(np.diff(run["height"].to_numpy() > 1))
        for repetition, run in height.groupby("repetition")
    }
    return [
        Claim(
            f"η = {number(learning_rate)} enters the edge of stability: how often the sharpness of "
            "a run crosses 2/η",
            parts("run {}", crossings),
            lower=10,
            name="enters the edge",
            reason="An oscillation, not a passage: ten crossings in 400 steps.",
        ),
        Claim(
            f"η = {number(learning_rate)} oscillates around it: mean of a run's sharpness over its "
            "last third, in units of 2/η",
            parts("run {}", late.groupby("repetition")["height"].mean()),
            lower=0.9,
            upper=1.1,
            name="stays around 2/η",
            reason="A tenth on either side.",
        ),
    ]


def conservation_claims(config: Trajectories, table: Table) -> list[Claim]:
    """What flow conserves descent moves in proportion to η, and strongly at the edge."""
    slow, middle, fast = sorted(rate.learning_rate for rate in config.rates)
    drift = table.groupby(["learning_rate", "repetition"])["conservation"].max()
    return [
        Claim(
            "Flow conserves W_{k+1}ᵀW_{k+1} − W_kW_kᵀ (FM-L1); below the edge the drift of descent "
            f"is proportional to η: drift at {number(middle)} over that at {number(slow)}, divided "
            "by the ratio of the rates",
            parts("run {}", drift[middle] / drift[slow] / (middle / slow)),
            lower=0.8,
            upper=1.25,
            name="drift like η",
            reason="A quarter, where the rates differ by ten; the next order is η².",
        ),
        Claim(
            f"At the edge (η = {number(fast)}) descent leaves the conserved surface: drift "
            f"relative to that at η = {number(middle)}, divided by the ratio of the rates",
            parts("run {}", drift[fast] / drift[middle] / (fast / middle)),
            lower=2.0,
            name="drift at the edge",
            reason="Twice what proportionality gives.",
        ),
    ]


def alignment_claims(config: Trajectories, table: Table) -> list[Claim]:
    """Neighbouring layers align during training."""
    slow, middle, _ = sorted(rate.learning_rate for rate in config.rates)
    growth = {}
    for rate in (slow, middle):
        runs = table[table["learning_rate"] == rate].set_index("repetition")
        ends = [runs.loc[runs["step"] == step, "alignment"] for step in (0, runs["step"].max())]
        mean, half = mean_interval((ends[1] - ends[0]).to_numpy())
        growth[rate] = mean - half
    return [
        Claim(
            "Layers align (FM-L2 c): growth of ⟨v_{k+1}, u_k⟩² over training, mean over layers, "
            "lower end of its paired 95% interval",
            parts("η = {}", growth),
            lower=POSITIVE,
            name="layers align",
            reason="A paired interval that excludes no growth.",
            explanation="The guarantee 1 − ε/σ² of FM-L2 c is about small initialisations and "
            "says nothing at this scale, where ε is larger than σ²; alignment grows all the same.",
        )
    ]
