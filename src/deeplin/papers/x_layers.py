"""X-layers: of layer-wise learning rates only the geometric mean decides (X-11)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, each, extent, number, percent
from deeplin.papers.setting import Setting
from deeplin.papers.style import COLOURS, INK, legend_below, look, plain_numbers
from deeplin.papers.x_search import CLOSE, DATA_SETS, LIGHT, gaps, rate_beside
from deeplin.sweep import coordinate_words, run_key
from deeplin.theory import minimal_sharpness

SEARCHED = (0.02, 1.0)
WIDEST = 3.0
MARGIN = 1.02
"""Runs nearer than this to the border need more steps than they get."""


@dataclass(frozen=True)
class RatePairs:
    """A square grid of the two rates of a network of depth 2, in units of 2/S_min."""

    points: int
    """On each side, from 2^{-WIDEST} to 2^{WIDEST}."""
    steps: int
    data_seeds: tuple[int, ...] = DATA_SETS
    seed: int = 0

    @property
    def pairs(self) -> int:
        """All of them are one batch."""
        return self.points**2


def run_pairs(config: RatePairs, data_seed: int) -> dict[str, np.ndarray]:
    """Whether descent settles beside the minimizer that is the flattest for its two rates.

    That is the flattest one with its layers multiplied by (η_1/η_2)^{±1/4} (X-11).
    """
    problem = Setting(data_seed=data_seed).data.problem
    flattest = minimal_sharpness(problem, 2)
    side = 2.0 ** np.linspace(-WIDEST, WIDEST, config.points)
    first, second = (axis.ravel() for axis in np.meshgrid(side, side, indexing="ij"))
    base = [np.asarray(weight) for weight in flattest.minimizer.weights]
    balance = (first / second)[:, None, None] ** 0.25
    rng = np.random.default_rng(coordinate_words(config.seed, data_seed=data_seed, part="pairs"))
    starts = Network(
        [
            scale * weight + CLOSE * rng.normal(size=(len(first), *weight.shape))
            for scale, weight in zip((balance, 1 / balance), base, strict=True)
        ]
    )
    unit_rate = flattest.critical_learning_rate()
    run = gradient_descent(problem, starts, (unit_rate * first, unit_rate * second), config.steps)
    settled = gaps(problem, run.network) <= gaps(problem, starts)
    return {"first": first, "second": second, "settled": settled}


def pair_questions(config: RatePairs, table: Table) -> list[Question]:
    """Whether the border is where the geometric mean is 2/S_min, and nothing else."""
    mean = np.sqrt(table["first"] * table["second"])
    below, above = (table["settled"][part] for part in (mean < 1 / MARGIN, mean > MARGIN))
    largest = table[["first", "second"]].max(axis=1)[table["settled"]].max()
    return [
        Question(
            "border",
            "Which pairs of rates settle (X-11)?",
            f"{percent(below.mean())} of {len(below)} pairs with a geometric mean below 2/S_min "
            f"and {int(above.sum())} of {len(above)} above it (pairs within 2% of it left out; a "
            "run that wanders may pass by at the last step). The largest rate of a layer in a pair "
            f"that settles is {number(largest)} times 2/S_min.",
        )
    ]


def plot_pairs(config: RatePairs, table: Table, ax: Axes) -> None:
    """The grid of pairs with the border √(η_1η_2) = 2/S_min; all data sets in one."""
    pairs = table.groupby(["first", "second"], as_index=False)["settled"].mean()
    share = pairs["settled"]
    looks = (
        (share == 1, "settles on every data set", {"marker": "o", "s": 10}),
        (share == 0, "on none", {"marker": "s", "s": 6}),
        ((share > 0) & (share < 1), "on some", {"marker": "^", "s": 14}),
    )
    for index, (which, label, style) in enumerate(looks):
        rows = pairs[which]
        if len(rows):
            style = style | {"color": COLOURS[index], "linewidths": 0, "label": label}
            ax.scatter(rows["first"], rows["second"], **style)
    ends = 2.0 ** np.array([-WIDEST, WIDEST])
    ax.plot(ends, 1 / ends, color=INK, label=r"$\sqrt{\eta_1\eta_2} = 2/S_{\min}$")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set(
        xlabel=r"Rate of the first layer, $\eta_1 S_{\min}/2$",
        ylabel=r"Rate of the second layer, $\eta_2 S_{\min}/2$",
        aspect="equal",
    )
    legend_below(ax)


@dataclass(frozen=True)
class RateSpreads:
    """Random rates of the layers, from equal ones to very different ones."""

    spreads: tuple[float, ...]
    """Largest over smallest rate."""
    draws: int
    steps: int
    depth: int = 4
    data_seeds: tuple[int, ...] = DATA_SETS
    """The first is drawn in full."""
    seed: int = 0


def run_spread(config: RateSpreads, **cell: float) -> list[dict[str, float]]:
    """The largest multiple of one set of rates that settles, by three of its means."""
    L, problem = config.depth, Setting(data_seed=int(cell["data_seed"])).data.problem
    flattest = minimal_sharpness(problem, L)
    exact = flattest.critical_learning_rate()
    rng = np.random.default_rng(coordinate_words(config.seed, **cell))
    places = rng.permutation(np.concatenate([[0.0, 1.0], rng.uniform(size=L - 2)]))
    shape = cell["spread"] ** places
    shape /= np.exp(np.mean(np.log(shape)))
    network, key = flattest.attaining(rates=shape), run_key(config.seed, **cell)
    measured = rate_beside(problem, network, key, SEARCHED, config.steps, layers=shape)
    row = {
        "geometric": measured / exact,
        "arithmetic": measured * shape.mean() / exact,
        "largest": measured * shape.max() / exact,
    }
    return [row]


def spread_questions(config: RateSpreads, table: Table) -> list[Question]:
    """Which mean of the rates decides."""
    widest = table[table["spread"] == max(config.spreads)]
    means = {name: widest[name].mean() for name in ("arithmetic", "largest")}
    return [
        Question(
            "which mean",
            f"Which mean of random rates decides at depth {config.depth}?",
            f"The geometric one: its critical value is {extent(table['geometric'])} of 2/S_min at "
            f"every spread. At the largest spread the others average {each('{}', means)} of it.",
        )
    ]


def plot_spread(config: RateSpreads, table: Table, ax: Axes) -> None:
    """Critical value of each mean against the spread of the rates."""
    rows = (
        ("largest", "largest rate"),
        ("arithmetic", "arithmetic mean"),
        ("geometric", "geometric mean"),
    )
    first = table["data_seed"] == config.data_seeds[0]
    for index, (column, label) in enumerate(rows):
        style = look(2 - index, linestyle="")
        beside = 1.12 * table["spread"][~first]
        ax.plot(beside, table[column][~first], **(style | LIGHT))
        ax.plot(table["spread"][first], table[column][first], label=label, **style)
    others = f"{len(config.data_seeds) - 1} other data sets, beside"
    ax.plot([], [], color=INK, marker="o", linestyle="", label=others, **LIGHT)
    ax.axhline(1, color=INK, linestyle="--", linewidth=1, label=r"$2/S_{\min}$ (X-11)")
    ax.loglog()
    ax.set(
        xlabel="Largest over smallest rate of a layer",
        ylabel=r"Critical value relative to $2/S_{\min}$",
    )
    plain_numbers(ax.yaxis)
    legend_below(ax)


RATE_PAIRS = grid_experiment(
    "rate-pairs", RatePairs, run_pairs, {"data_seed": "data_seeds"}, runs="pairs"
)
AXES = {"data_seed": "data_seeds", "spread": "spreads", "draw": "draws"}
RATE_SPREADS = grid_experiment("rate-spreads", RateSpreads, run_spread, AXES)
X_LAYERS = Figure(
    "X-layers",
    "Layer-wise learning rates, of which only the geometric mean decides",
    (
        our_panel(
            "X-layers",
            "Descent with one rate for each of two layers, beside the minimizer that is the "
            "flattest for them, on ten data sets (quick: three): it settles exactly below the line "
            "on which the geometric mean is 2/S_min.",
            Study(
                "x-layers",
                RATE_PAIRS,
                paper=RatePairs(61, steps=20_000),
                quick=RatePairs(25, steps=2_000, data_seeds=DATA_SETS[:3]),
            ),
            plot_pairs,
            pair_questions,
            size=(4.6, 4.8),
        ),
        our_panel(
            "X-layers-spread",
            "Random rates for four layers, all multiplied until descent no longer settles: the "
            "geometric mean at which that happens does not depend on how different they are; the "
            "arithmetic mean and the largest rate do. On ten data sets (quick: three); one "
            "is drawn in full, the others lightly.",
            Study(
                "x-layers-spread",
                RATE_SPREADS,
                paper=RateSpreads((1.0, 3.0, 10.0, 30.0, 100.0, 1000.0), 20, steps=10_000),
                quick=RateSpreads((1.0, 10.0, 100.0), 4, steps=2_000, data_seeds=DATA_SETS[:3]),
            ),
            plot_spread,
            spread_questions,
            size=(5.2, 4.0),
        ),
    ),
    printed="Not in the papers, which have one rate for all layers.",
    as_run="The FM data set and others of its recipe (n = 50, d = 5). Each run starts within "
    "1e-4 of the minimizer whose Hessian, preconditioned by its rates, has the smallest largest "
    "eigenvalue; it settles when the gap ends smaller than it began.",
)
