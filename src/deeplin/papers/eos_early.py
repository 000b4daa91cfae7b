"""EOS-early: early sharpening, and what of it the smallest layers explain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.papers.figures import Study, Table, define_figure, define_panel, grid_experiment
from deeplin.papers.question import Answers, number
from deeplin.papers.setting import ALL_DATA, AUTHORS, FEW_DATA, Setting, data_name
from deeplin.papers.style import COLOURS, QUIET, reference_line, series
from deeplin.problems import Problem
from deeplin.sweep import run_key
from deeplin.theory import balanced_mode
from deeplin.theory.minimizers import balanced_factors

FACTOR, STEPS = 0.02, 6000
"""Learning rate, in units of the critical one: close to the flow; and steps of descent."""
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
    data_seeds: tuple[int, ...] = (AUTHORS,)
    """The first is drawn in full."""
    seed: int = 0


def run_cell(
    config: EarlySharpening, scale: float, spread: float, data_seed: int
) -> dict[str, np.ndarray]:
    """How much the sharpness grew, and how much with only some of the layers as trained."""
    setting = replace(config.setting, data_seed=data_seed)
    problem, depth = setting.data.problem, setting.depth
    members = np.arange(config.repetitions)
    runs = [{"scale": scale, "spread": spread, "repetition": int(k)} for k in members]
    start = _spread(config, setting.networks(config.seed, runs, scale), spread)
    rate = np.full(len(runs), FACTOR * setting.flattest.critical_learning_rate())
    run = gradient_descent(problem, start, rate, STEPS, record_every=11, record=("gap",))
    gaps = run.records["gap"]
    reached = gaps <= HALF * gaps[0]
    late = np.where(reached.any(axis=0), reached.argmax(axis=0), len(gaps) - 1)
    assert run.trajectory is not None  # recorded
    after = [np.asarray(layer)[late, members] for layer in run.trajectory.weights]
    before = [np.asarray(layer) for layer in start.weights]
    sizes = np.stack([np.linalg.norm(layer, axis=(1, 2)) for layer in before])
    small = np.argsort(np.argsort(sizes, axis=0), axis=0) < depth // 2  # (layers, runs)
    first = _sharpness(problem, before)

    def growth(trained: np.ndarray) -> np.ndarray:
        chosen = zip(trained, after, before, strict=True)
        mixed = [np.where(mine[:, None, None], a, b) for mine, a, b in chosen]
        return np.log(_sharpness(problem, mixed) / first)

    return {
        "repetition": members,
        "halved": reached.any(axis=0),
        "growth": growth(np.ones_like(small)),
        "small": growth(small),
        "large": growth(~small),
    }


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


GROUPS, START = ["scale", "spread"], "scale {}, layers apart by {}"


def shares(table: Table) -> Table:
    """For each start and data set: share of runs that sharpen, and median shares of the growth."""
    runs = table[table["halved"]]
    grown = runs["growth"] > 0
    explained = {half: (runs[half] / runs["growth"]).where(grown) for half in ("small", "large")}
    rows = runs.assign(grown=grown, **explained).groupby([*GROUPS, "data_seed"])
    found = rows[["small", "large"]].median().assign(grown=rows["grown"].mean())
    return found.assign(runs=rows.size(), growing=rows["grown"].sum())


def answers(config: EarlySharpening, table: Table, white: Table) -> Answers:
    """Whether the sharpness grows early, what carries it, and the exact curve on white inputs."""
    found = shares(table)
    by = found.groupby(GROUPS)
    off = (white["sharpness"] / white["exact"] - 1).abs()
    return {
        "sharpens early": {"grown": by["grown"].mean(), "runs": found["runs"].sum()},
        "which layers": {half: by[half].median() for half in ("small", "large")},
        "exact curve": {"off": off.groupby(white["share"]).max()},
    }


def plot_shares(config: EarlySharpening, table: Table, ax: Axes) -> None:
    """Growth with half of the layers trained against the whole growth, a mark a run."""
    drawn = table["data_seed"] == config.data_seeds[0]
    for index, (group, rows) in enumerate(table[drawn & table["halved"]].groupby(GROUPS)):
        marks = series(index, linestyle="none")
        ax.plot(rows["growth"], rows["small"], label=_name(group), **marks)
        ax.plot(rows["growth"], rows["large"], markerfacecolor="none", **marks)
    _name_halves(ax)
    ax.axline((0, 0), slope=1, color=QUIET, linestyle=":", linewidth=1)


def _name(group: Any) -> str:
    """What a start is called, by its scale and the spread of its layers."""
    return "scale {}, layers apart by {}".format(*map(number, group))


def _name_halves(ax: Axes) -> None:
    for label, face in (("smaller half trained", QUIET), ("larger half trained", "none")):
        ax.plot([], [], "o", color=QUIET, markerfacecolor=face, label=label)


def _on_data_sets(config: EarlySharpening, table: Table, ax: Axes, **columns: Any) -> None:
    """Columns of `shares` on every data set, each with the style of its marks."""
    places = {seed: place for place, seed in enumerate(config.data_seeds)}
    for index, (group, rows) in enumerate(shares(table).groupby(GROUPS)):
        place = rows.index.get_level_values("data_seed").map(places) + 0.15 * (index - 1.5)
        label = _name(group)
        for column, style in columns.items():
            ax.plot(place, rows[column], **series(index, linestyle="none", label=label) | style)
            label = None
    ax.set_xticks([*places.values()], [data_name(seed) for seed in places])


def plot_growing(config: EarlySharpening, table: Table, ax: Axes) -> None:
    """Share of the runs that sharpen, on every data set."""
    _on_data_sets(config, table, ax, grown={})


def plot_halves(config: EarlySharpening, table: Table, ax: Axes) -> None:
    """Median shares of the growth that each half of the layers explains, on every data set."""
    _on_data_sets(config, table, ax, small={}, large={"markerfacecolor": "none"})
    _name_halves(ax)


AXES = {"scale": "scales", "spread": "spreads", "data_seed": "data_seeds"}
EARLY = grid_experiment("early-sharpening", EarlySharpening, run_cell, AXES, runs="repetitions")
SETTING = Setting(depth=4)
STUDY = Study(
    "eos-early",
    EARLY,
    paper=EarlySharpening(SETTING, (0.2, 0.35), (2.0, 4.0), 200, ALL_DATA),
    quick=EarlySharpening(SETTING, (0.2, 0.35), (2.0, 4.0), 20, FEW_DATA),
)

SIZE = 2.0
"""Target of the white problem."""


@dataclass(frozen=True)
class White:
    """Descent from balanced weights whose product has some share of the target."""

    depth: int
    shares: tuple[float, ...] = (0.3, 0.03)
    seed: int = 0


def white_problem(dimension: int = 5) -> Problem:
    """Σ̂ = I and a target of norm SIZE without noise."""
    inputs = np.sqrt(dimension) * np.eye(dimension)
    return Problem.from_data(inputs, inputs @ np.full(dimension, SIZE / np.sqrt(dimension)))


def run_white(config: White, share: float, problem: Problem | None = None) -> dict[str, np.ndarray]:
    """Sharpness along descent from balanced weights on white inputs, and on the exact path.

    A rotation and a change of units carry every such problem with one output into every other, so
    `sharpness / exact` is the same on all.
    """
    problem, depth = problem or white_problem(), config.depth
    size = problem.optimum_norm
    direction = np.asarray(problem.optimum).reshape(-1, 1) / size
    rate = 0.01 / (2 * depth * size ** (2 - 2 / depth))
    start = balanced_factors(share * size * direction, depth, width=len(direction))
    run = gradient_descent(problem, start, rate, 3000, record_every=100, record=("risk",))
    assert run.trajectory is not None  # recorded
    times = rate * run.records["step"]
    path = balanced_mode(times, target=size, start=share * size, depth=depth)
    ideal = [balanced_factors(s * direction, depth, width=len(direction)) for s in path]
    layers: Any = zip(*(net.weights for net in ideal), strict=True)
    # each by itself: followed along the run, the eigenvector of a symmetric start is kept where
    # one of another symmetry overtakes
    return {
        "time": times,
        "sharpness": np.asarray(sharpness(problem, Network(run.trajectory.weights)).value),
        "exact": np.asarray(sharpness(problem, Network([np.stack(w) for w in layers])).value),
    }


def plot_white(config: White, white: Table, ax: Axes) -> None:
    """Sharpness of descent (marks) and of the exact path (lines)."""
    for index, (share, rows) in enumerate(white.groupby("share")):
        ax.plot(rows["time"], rows["exact"], color=COLOURS[index], linewidth=1)
        marks = series(index, linestyle="none", label=f"from {number(share)} of the target")
        ax.plot(rows["time"], rows["sharpness"], **marks)
    reference_line(ax, 2 * config.depth * SIZE ** (2 - 2 / config.depth), r"$S_{\mathrm{bal}}$")


WHITE = grid_experiment("white-sharpness", White, run_white, {"share": "shares"})
WHITE_STUDY = Study("eos-white", WHITE, paper=White(depth=4), quick=White(depth=4))
EOS_EARLY = define_figure(
    "EOS-early",
    define_panel("EOS-early", STUDY, plot_shares, answers, beside=WHITE_STUDY),
    define_panel("EOS-early-data-sets", STUDY, plot_growing),
    define_panel("EOS-early-halves", STUDY, plot_halves),
    define_panel("EOS-early-white", WHITE_STUDY, plot_white),
)
