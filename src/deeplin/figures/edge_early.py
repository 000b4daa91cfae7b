"""Beyond the papers: early sharpening, and what of it the smallest layers explain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.figures.claims import Claim, number, on_data_sets
from deeplin.figures.edge_white import curve_claim, curves, plot_curves, white_problem
from deeplin.figures.figure import Figure, Panel, Study, Table
from deeplin.figures.fm_1 import DATA_SEEDS
from deeplin.figures.setting import DATA_SEED, Setting
from deeplin.figures.style import QUIET, legend_beside, look
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.sharpness import sharpness
from deeplin.sweep import Experiment, Unit, run_key

HALF = 0.5
"""Training is early until the gap has shrunk to this share of its start."""


@dataclass(frozen=True)
class EarlySharpening:
    """Gaussian starts whose layers differ in size by a factor, in random order."""

    setting: Setting
    """Its own data set is not used."""
    scales: tuple[float, ...]
    spreads: tuple[float, ...]
    repetitions: int
    data_seeds: tuple[int, ...] = (DATA_SEED,)
    """The first is drawn in full."""
    factor: float = 0.02
    """Learning rate, in units of the critical one: close to the flow."""
    steps: int = 6000
    seed: int = 0


def units(config: EarlySharpening) -> list[Unit]:
    """One unit for each scale, spread and data set, and one for the exact curve on white inputs."""
    starts = [*product(config.scales, config.spreads, config.data_seeds), (0.0, 0.0, -1)]
    return [
        Unit({"scale": scale, "spread": spread, "data_seed": seed}, runs=config.repetitions)
        for scale, spread, seed in starts
    ]


def run_unit(config: EarlySharpening, unit: Unit) -> pd.DataFrame:
    """How much the sharpness grew, and how much with only some of the layers as trained."""
    scale, spread = unit.coordinates["scale"], unit.coordinates["spread"]
    if scale == 0:
        white = curves(white_problem(), config.setting.depth)
        return _rows(scale=0.0, spread=0.0, **white)
    setting = replace(config.setting, data_seed=unit.coordinates["data_seed"])
    problem, depth = setting.data.problem, setting.depth
    coordinates = {"scale": scale, "spread": spread}
    runs = [{**coordinates, "repetition": k} for k in range(config.repetitions)]
    start = _spread(config, setting.networks(config.seed, runs, scale), spread)
    rate = config.factor * setting.flattest.critical_learning_rate()
    zero = np.zeros(config.repetitions)
    run = gradient_descent(
        problem, start, rate + zero, config.steps, record_every=10, record=("gap",)
    )
    gaps = run.records["gap"]
    reached = gaps <= HALF * gaps[0]
    late = np.where(reached.any(axis=0), reached.argmax(axis=0), len(gaps) - 1)
    assert run.trajectory is not None  # recorded
    members = np.arange(config.repetitions)
    after = [np.asarray(layer)[late, members] for layer in run.trajectory.weights]
    before = [np.asarray(layer) for layer in start.weights]
    sizes = np.stack([np.linalg.norm(layer, axis=(1, 2)) for layer in before])
    small = np.argsort(np.argsort(sizes, axis=0), axis=0) < depth // 2  # (layers, runs)
    first = _sharpness(problem, before)

    def growth(trained: np.ndarray) -> np.ndarray:
        chosen = zip(trained, after, before, strict=True)
        mixed = [np.where(mine[:, None, None], a, b) for mine, a, b in chosen]
        return np.log(_sharpness(problem, mixed) / first)

    return _rows(
        **coordinates,
        data_seed=setting.data_seed,
        repetition=members,
        halved=reached.any(axis=0),
        growth=growth(np.ones_like(small)),
        small=growth(small),
        large=growth(~small),
    )


def _spread(config: EarlySharpening, nets: Network, spread: float) -> Network:
    """Layers times spread^(−½…½), in an order of each run's own; the product keeps its size."""
    depth = len(nets.weights)
    powers = spread ** np.linspace(-0.5, 0.5, depth)
    orders = [
        jax.random.permutation(run_key(config.seed, part="order", repetition=k), depth)
        for k in range(config.repetitions)
    ]
    factors = powers[np.stack([np.asarray(order) for order in orders])]
    layers = enumerate(nets.weights)
    return Network([np.asarray(w) * factors[:, k, None, None] for k, w in layers], nets.readout)


def _sharpness(problem: Problem, weights: list[np.ndarray]) -> np.ndarray:
    return np.asarray(sharpness(problem, Network(weights)).value)


def _rows(**columns: Any) -> pd.DataFrame:
    """Rows of either kind: the columns of the other are not numbers."""
    names = ("growth", "small", "large", "share", "time", "sharpness", "exact")
    empty: dict[str, Any] = {
        "data_seed": -1,
        "repetition": -1,
        "halved": False,
        **dict.fromkeys(names, np.nan),
    }
    return pd.DataFrame(empty | columns)


GROUPS, START = ["scale", "spread"], "scale {}, layers apart by {}"


def shares(table: Table) -> Table:
    """For each start and data set: share of runs that sharpen, and median shares of the growth."""
    runs = table[(table["scale"] > 0) & table["halved"]]
    grown = runs["growth"] > 0
    explained = {half: (runs[half] / runs["growth"]).where(grown) for half in ("small", "large")}
    rows = runs.assign(grown=grown, **explained).groupby([*GROUPS, "data_seed"])
    found = rows[["small", "large"]].median().assign(grown=rows["grown"].mean())
    return found.assign(runs=rows.size(), growing=rows["grown"].sum())


def claims(config: EarlySharpening, table: Table) -> list[Claim]:
    """Whether it is there, and what carries it."""
    found = shares(table)
    return [
        on_data_sets(
            "While the gap halves the sharpness grows: share of runs in which it does",
            found["grown"],
            START,
            lower=0.9,
            name="sharpens early",
            reason="Nine of ten starts. The second scale was added after a trial of the first.",
            explanation=f"{found['runs'].sum()} runs whose gap halved.",
            known="K-20",
        ),
        on_data_sets(
            "The smaller half of the layers explains it: median share of the growth of log S with "
            "only these as trained and the others as at the start",
            found["small"],
            START,
            lower=0.8,
            name="small layers",
            reason="A half would be no explanation; four fifths is most of it.",
            explanation=f"{found['growing'].sum()} runs in which it grows.",
            known="K-21",
        ),
        on_data_sets(
            "The larger half explains little: the same with only these as trained",
            found["large"],
            START,
            upper=0.2,
            name="large layers",
            reason="One fifth, the rest of the above.",
            known="K-21",
        ),
        curve_claim(table[table["scale"] == 0]),
    ]


def plot_shares(config: EarlySharpening, table: Table, ax: Axes) -> None:
    """Growth with half of the layers trained against the whole growth, a mark a run."""
    drawn = table["data_seed"] == config.data_seeds[0]
    for index, (group, rows) in enumerate(table[drawn & table["halved"]].groupby(GROUPS)):
        marks = look(index, linestyle="none")
        label = START.format(*(number(size) for size in group))
        ax.plot(rows["growth"], rows["small"], label=label, **marks)
        ax.plot(rows["growth"], rows["large"], markerfacecolor="none", **marks)
    for label, face in (("smaller half trained", QUIET), ("larger half trained", "none")):
        ax.plot([], [], "o", color=QUIET, markerfacecolor=face, label=label)
    ax.axline((0, 0), slope=1, color=QUIET, linestyle=":", linewidth=1)
    ax.set(
        xlabel="Growth of log S while the gap halves",
        ylabel="Growth with only half of\nthe layers as trained",
    )
    legend_beside(ax)


def _on_data_sets(config: EarlySharpening, table: Table, ax: Axes, **columns: Any) -> None:
    """Columns of `shares` on every data set, each with the style of its marks."""
    places = {seed: place for place, seed in enumerate(config.data_seeds)}
    for index, (group, rows) in enumerate(shares(table).groupby(GROUPS)):
        place = rows.index.get_level_values("data_seed").map(places) + 0.15 * (index - 1.5)
        label = START.format(*(number(size) for size in group))
        for column, style in columns.items():
            ax.plot(place, rows[column], **look(index, linestyle="none", label=label) | style)
            label = None
    ax.set_xticks([*places.values()], [str(seed) for seed in places])
    ax.set(xlabel="Data set (seed)")


def plot_growing(config: EarlySharpening, table: Table, ax: Axes) -> None:
    """Share of the runs that sharpen, on every data set."""
    _on_data_sets(config, table, ax, grown={})
    ax.axhline(0.9, color=QUIET, linestyle=":", linewidth=1)
    ax.set(ylabel="Share of runs that sharpen", ylim=(0, 1.05))
    legend_beside(ax)


def plot_halves(config: EarlySharpening, table: Table, ax: Axes) -> None:
    """Median shares of the growth that each half of the layers explains, on every data set."""
    _on_data_sets(config, table, ax, small={}, large={"markerfacecolor": "none"})
    for limit in (0.2, 0.8):
        ax.axhline(limit, color=QUIET, linestyle=":", linewidth=1)
    for label, face in (("smaller half trained", QUIET), ("larger half trained", "none")):
        ax.plot([], [], "o", color=QUIET, markerfacecolor=face, label=label)
    ax.set(ylabel="Median share of the growth")
    legend_beside(ax)


def plot_white(config: EarlySharpening, table: Table, ax: Axes) -> None:
    """The exact curve and descent."""
    plot_curves(config.setting.depth, table[table["scale"] == 0], ax)


EARLY = Experiment(
    "early-sharpening", EarlySharpening, units, run_unit, grid=("scales", "spreads", "data_seeds")
)
SETTING = Setting(depth=4)
STUDY = Study(
    "edge-early",
    EARLY,
    paper=EarlySharpening(SETTING, (0.2, 0.35), (2.0, 4.0), 200, (DATA_SEED, *DATA_SEEDS)),
    quick=EarlySharpening(SETTING, (0.2, 0.35), (2.0, 4.0), 20, (DATA_SEED, *DATA_SEEDS[:2])),
)

EOS_EARLY = Figure(
    "EOS-early",
    "Beyond the papers: early sharpening and the smallest layers",
    (
        Panel(
            "EOS-early",
            "Growth of the sharpness while the gap halves, and what is left of it when only half "
            "of the layers are as trained and the others as at the start; on one data set.",
            STUDY,
            plot_shares,
            claims,
            size=(6.8, 3.5),
        ),
        Panel(
            "EOS-early-data-sets",
            "On how many of the starts the sharpness grows while the gap halves, on every data set "
            "(eleven, three in the quick preset). Line: the limit of the claim.",
            STUDY,
            plot_growing,
            size=(6.8, 3.0),
        ),
        Panel(
            "EOS-early-halves",
            "Median share of that growth with only the smaller half of the layers as trained "
            "(filled) and with only the larger half (open), on every data set. Lines: the limits "
            "of the claims.",
            STUDY,
            plot_halves,
            size=(6.8, 3.5),
        ),
        Panel(
            "EOS-early-white",
            "Sharpness along descent from balanced weights on white inputs (marks) and along the "
            "exact solution (lines).",
            STUDY,
            plot_white,
            size=(4.8, 3.6),
        ),
    ),
    printed="An open question of the talk: why the sharpness grows early in training.",
    as_run="n = 50, d = 5, depth 4, Gaussian starts of scale 0.2 and 0.35 whose layers are made up "
    "to four times as large as one another in random order, descent at 0.02 of the critical rate. "
    "Judged on eleven data sets (three in the quick preset), from the same starts.",
)
