"""Beyond the papers: early sharpening, and what of it the smallest layers explain."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.figures.claims import Claim, number, parts
from deeplin.figures.figure import Figure, Panel, Study, Table
from deeplin.figures.setting import Setting
from deeplin.figures.style import COLOURS, QUIET, legend_beside, look, reference_line
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.sharpness import sharpness
from deeplin.sweep import Experiment, Unit, run_key
from deeplin.theory import balanced_mode
from deeplin.theory.minimizers.balanced import balanced_factors

HALF = 0.5
"""Training is early until the gap has shrunk to this share of its start."""
SIZE, CURVES = 2.0, (0.3, 0.03)
"""Target of the white problem, and products at which its runs start, in units of it."""


@dataclass(frozen=True)
class EarlySharpening:
    """Gaussian starts whose layers differ in size by a factor, in random order."""

    setting: Setting
    scales: tuple[float, ...]
    spreads: tuple[float, ...]
    repetitions: int
    factor: float = 0.02
    """Learning rate, in units of the critical one: close to the flow."""
    steps: int = 6000
    seed: int = 0


def units(config: EarlySharpening) -> list[Unit]:
    """One unit for each scale and spread, and one for the exact curve on white inputs."""
    starts = product(config.scales, config.spreads)
    runs = [Unit({"scale": a, "spread": b}, runs=config.repetitions) for a, b in starts]
    return [*runs, Unit({"scale": 0.0, "spread": 0.0})]


def run_unit(config: EarlySharpening, unit: Unit) -> pd.DataFrame:
    """How much the sharpness grew, and how much with only some of the layers as trained."""
    scale, spread = unit.coordinates["scale"], unit.coordinates["spread"]
    if scale == 0:
        return _white(config.setting.depth)
    problem, depth = config.setting.data.problem, config.setting.depth
    coordinates = {"scale": scale, "spread": spread}
    runs = [{**coordinates, "repetition": k} for k in range(config.repetitions)]
    start = _spread(config, config.setting.networks(config.seed, runs, scale), spread)
    rate = config.factor * config.setting.flattest.critical_learning_rate()
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


def _white(depth: int) -> pd.DataFrame:
    """Sharpness along descent from balanced weights on white inputs, and on the exact path."""
    size = 5
    inputs = np.sqrt(size) * np.eye(size)  # Σ̂ = I
    direction = np.full((size, 1), 1 / np.sqrt(size))
    problem = Problem.from_data(inputs, (inputs @ (SIZE * direction))[:, 0])
    rate = 0.01 / (2 * depth * SIZE ** (2 - 2 / depth))
    rows = []
    for share in CURVES:
        start = balanced_factors(share * SIZE * direction, depth, width=size)
        run = gradient_descent(
            problem, start, rate, 3000, record_every=100, record=("sharpness",), keep_weights=False
        )
        steps = run.records["step"]
        path = balanced_mode(rate * steps, target=SIZE, start=share * SIZE, depth=depth)
        ideal = [balanced_factors(sigma * direction, depth, width=size) for sigma in path]
        layers: Any = zip(*(net.weights for net in ideal), strict=True)
        exact = _sharpness(problem, [np.stack([np.asarray(w) for w in same]) for same in layers])
        columns = {"time": rate * steps, "sharpness": run.records["sharpness"], "exact": exact}
        rows.append(_rows(scale=0.0, spread=0.0, share=share, **columns))
    return pd.concat(rows)


def _rows(**columns: Any) -> pd.DataFrame:
    """Rows of either kind: the columns of the other are not numbers."""
    names = ("growth", "small", "large", "share", "time", "sharpness", "exact")
    empty: dict[str, Any] = {"repetition": -1, "halved": False, **dict.fromkeys(names, np.nan)}
    return pd.DataFrame(empty | columns)


GROUPS, START = ["scale", "spread"], "scale {}, layers apart by {}"


def claims(config: EarlySharpening, table: Table) -> list[Claim]:
    """Whether it is there, and what carries it."""
    runs = table[(table["scale"] > 0) & table["halved"]]
    grown = runs[runs["growth"] > 0].assign(
        small=lambda rows: rows["small"] / rows["growth"],
        large=lambda rows: rows["large"] / rows["growth"],
    )
    shares = grown.groupby(GROUPS)[["small", "large"]].median()
    white = table[table["scale"] == 0]
    off = (white["sharpness"] / white["exact"] - 1).abs()
    return [
        Claim(
            "While the gap halves the sharpness grows: share of runs in which it does",
            parts(START, (runs["growth"] > 0).groupby([runs["scale"], runs["spread"]]).mean()),
            lower=0.9,
            name="sharpens early",
            reason="Nine of ten starts. The second scale was added after a trial of the first.",
            explanation=f"{len(runs)} runs whose gap halved.",
            known="K-20",
        ),
        Claim(
            "The smaller half of the layers explains it: median share of the growth of log S with "
            "only these as trained and the others as at the start",
            parts(START, shares["small"]),
            lower=0.8,
            name="small layers",
            reason="A half would be no explanation; four fifths is most of it.",
            explanation=f"{len(grown)} runs in which it grows.",
            known="K-21",
        ),
        Claim(
            "The larger half explains little: the same with only these as trained",
            parts(START, shares["large"]),
            upper=0.2,
            name="large layers",
            reason="One fifth, the rest of the above.",
            known="K-21",
        ),
        Claim(
            "On white inputs descent follows the exact curve of sharpness of a balanced mode "
            "(X-13): largest relative difference",
            parts("from {} of the target", off.groupby(white["share"]).max()),
            upper=0.05,
            name="exact curve",
            reason="The step is a hundredth of the largest inverse sharpness; while the product "
            "grows tenfold its error grows with it.",
        ),
    ]


def plot_shares(config: EarlySharpening, table: Table, ax: Axes) -> None:
    """Growth with half of the layers trained against the whole growth, a mark a run."""
    runs = table[(table["scale"] > 0) & table["halved"]]
    for index, (group, rows) in enumerate(runs.groupby(GROUPS)):
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


def plot_white(config: EarlySharpening, table: Table, ax: Axes) -> None:
    """Sharpness of descent (marks) and of the exact path (lines)."""
    depth = config.setting.depth
    for index, (share, rows) in enumerate(table[table["scale"] == 0].groupby("share")):
        label = f"from {number(float(share))} of the target"  # pyright: ignore
        ax.plot(rows["time"], rows["exact"], color=COLOURS[index], linewidth=1)
        ax.plot(rows["time"], rows["sharpness"], label=label, **look(index, linestyle="none"))
    reference_line(ax, 2 * depth * SIZE ** (2 - 2 / depth), r"$S_{\mathrm{bal}}$")
    ax.set(xlabel="Time ηk", ylabel="Sharpness")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)


EARLY = Experiment("early-sharpening", EarlySharpening, units, run_unit, grid=("scales", "spreads"))
SETTING = Setting(depth=4)
STUDY = Study(
    "edge-early",
    EARLY,
    paper=EarlySharpening(SETTING, (0.2, 0.35), (2.0, 4.0), 200),
    quick=EarlySharpening(SETTING, (0.2, 0.35), (2.0, 4.0), 20),
)

EOS_EARLY = Figure(
    "EOS-early",
    "Beyond the papers: early sharpening and the smallest layers",
    (
        Panel(
            "EOS-early",
            "Growth of the sharpness while the gap halves, and what is left of it when only half "
            "of the layers are as trained and the others as at the start.",
            STUDY,
            plot_shares,
            claims,
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
    "to four times as large as one another in random order, descent at 0.02 of the critical rate.",
)
