"""Critical rates beyond the papers: X-decay, X-outputs, X-layers and X-losses.

Each compares an exact rate with the measured one, up to which descent converges near a minimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.papers.figures import Answers, Table, define_study
from deeplin.papers.setting import AUTHORS, DATA_SEEDS, Config, OnDataSets, Setting
from deeplin.papers.statistics import power_interval
from deeplin.plot_style import COLORS, INK, QUIET, bars, series, ticks_at
from deeplin.problems import Problem
from deeplin.sweep import coordinate_words, run_key
from deeplin.theory import (
    balanced_sharpness,
    critical_weight_decay,
    decayed_minimum,
    minimal_sharpness,
)
from deeplin.theory.minimizers import balanced_network
from deeplin.training import empirical_critical_rate
from deeplin.training.critical_rate import SECTIONS, largest_settling, perturbed

DATA_SETS = (AUTHORS, *DATA_SEEDS[:9])
"""The FM authors' data set, drawn in full, and nine others of the same kind, drawn lightly."""
LIGHT = {"alpha": 0.25, "linewidth": 0.8, "markersize": 2.5, "zorder": 0}
CLOSE = 1e-4
"""Size of the deviation from the minimizer: its square is far above rounding in the objective."""
RESOLUTION = 0.005
"""Relative width of the interval in which a measured rate is known."""
SEARCHED = {
    "decay": (0.01, 100.0), "outputs": (0.2, 4.0), "layers": (0.02, 1.0), "losses": (0.003, 300.0)
}  # fmt: skip
"""Range of rates in which each figure searches, independent of the theory."""


def gaps(problem: Problem, networks: Network) -> np.ndarray:
    """Return R − R_min of each network of a batch."""
    products = np.asarray(networks.product).reshape(-1, problem.dimension, problem.outputs)
    return problem.gap(products)


def measured_rate(
    settles: Callable[[np.ndarray], np.ndarray], searched: tuple[float, float]
) -> float:
    """Return the largest rate in the interval `searched` that settles; NaN if none does.

    `settles` takes SECTIONS rates and returns for each whether descent settles. The interval is the
    same for the whole figure, so that the search is independent of the theory it is compared with.
    """
    ends = [searched[0]], [searched[1]]
    low, high, found = largest_settling(lambda r: settles(r[0])[None], *ends, RESOLUTION)
    return float(np.sqrt(low * high)[0]) if found[0] else float("nan")


def rate_beside(
    problem: Problem,
    network: Network,
    key: Array,
    searched: tuple[float, float],
    steps: int,
    *,
    height: Callable[[Problem, Network], np.ndarray] = gaps,
    layers: Any = None,
    **options: Any,
) -> float:
    """Return the largest rate at which descent from near a network ends lower than it began.

    `height` is the gap, or another quantity that must decrease. With `layers` each layer takes this
    multiple of the rate; `options` are those of descent.
    """
    moved = perturbed(network, key[None], CLOSE)
    # the same perturbed network for all rates, so that only the rates differ
    near = jax.tree.map(lambda leaf: jnp.repeat(leaf, SECTIONS, axis=0), moved)
    before = height(problem, near)

    def settles(rates: np.ndarray) -> np.ndarray:
        chosen = rates if layers is None else tuple(rates * share for share in layers)
        run = gradient_descent(problem, near, chosen, steps, **options)
        return height(problem, run.network) <= before

    return measured_rate(settles, searched)


def other_minimizers(network: Network, seed: int, spreads: Any) -> list[Network]:
    """Return W_{k+1}G^{-1}, GW_k with G = I + spread·N/√m for each spread: the same product."""
    rng = np.random.default_rng(coordinate_words(seed, part="minimizers"))
    found = []
    for spread in spreads:
        weights = [np.asarray(weight) for weight in network.weights]
        for k in range(len(weights) - 1):
            m = len(weights[k])
            G = np.eye(m) + spread * rng.normal(size=(m, m)) / np.sqrt(m)
            weights[k], weights[k + 1] = G @ weights[k], weights[k + 1] @ np.linalg.inv(G)
        found.append(Network(weights))
    return found


def plot_other_data(ax: Axes, config: Any, suffix: str = "", **style: Any) -> None:
    """Add a legend entry for the lightly drawn data sets."""
    label = f"{len(config.data_seeds) - 1} other data sets{suffix}"
    ax.plot([], [], color=INK, label=label, **style | LIGHT)


HALVINGS = 10
"""Number of bisections of the interval from half to twice the exact λ_c, to 0.1%."""
ROUNDING = 1e-12
"""Tolerance for rounding in the comparison of a collapsed network with zero."""


@dataclass(frozen=True)
class Decays(OnDataSets):
    """Weight decays relative to the critical one of each depth."""

    depths: tuple[int, ...]
    shares: tuple[float, ...]
    """λ/λ_c; two of them close to 1 on both sides show the jump."""
    steps: int


def run_decay(config: Decays, depth: int, data_seed: int, share: float) -> list[dict[str, float]]:
    """Return the exact and the measured rate; at the first weight decay also λ_c by training."""
    problem = Setting(data_seed=data_seed).data.problem
    critical = critical_weight_decay(problem, depth)
    minimum = decayed_minimum(problem, depth, share * critical.value)
    key = run_key(config.seed, data_seed=data_seed, depth=depth, share=share)

    def height(problem: Problem, networks: Network) -> np.ndarray:
        """Return F above its minimum."""
        risk = problem.minimal_risk + gaps(problem, networks)
        return risk + minimum.weight_decay * penalty(networks) - minimum.objective

    options = {"height": height, "weight_decay": minimum.weight_decay}
    first = share == config.shares[0]
    row = {
        "decay": minimum.weight_decay,
        "norm": float(np.linalg.norm(minimum.product)),
        "exact": minimum.critical_learning_rate(),
        "measured": rate_beside(
            problem, minimum.network, key, SEARCHED["decay"], config.steps, **options
        ),
        "balanced": 2 / balanced_sharpness(problem, depth),
        "critical_decay": critical.value,
        "measured_decay": _trained_collapse(problem, depth, config) if first else np.nan,
    }
    return [row]


def penalty(networks: Network) -> np.ndarray:
    """Return Σ_k‖W_k‖_F² of each network of a batch."""
    squares = [np.sum(np.asarray(weight) ** 2, axis=(-2, -1)) for weight in networks.weights]
    return np.sum(squares, axis=0)


def _trained_collapse(problem: Problem, depth: int, config: Decays) -> float:
    """Return λ at which the minimum reached by training from w* is no longer better than zero."""
    start = balanced_network(problem, depth)
    rate = 0.5 * 2 / balanced_sharpness(problem, depth)
    low, high = (factor * critical_weight_decay(problem, depth).value for factor in (0.5, 2.0))
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        run = gradient_descent(problem, start, rate, 4 * config.steps, weight_decay=middle)
        gap = float(run.evidence["gap"])
        gained = problem.zero_gap - gap - middle * float(penalty(run.network))
        better = gained > ROUNDING * problem.zero_gap
        low, high = (middle, high) if better else (low, middle)
    return float(np.sqrt(low * high))


def decay_answers(config: Decays, table: Table) -> Answers:
    """Answer X-9: the rate, the critical weight decay, the jump from depth 3 on, and λ → 0."""
    rates = table.pivot_table(index=["data_seed", "depth"], columns="share", values="measured")
    above = min(share for share in config.shares if share > 1)
    below = max(share for share in config.shares if share < 1)
    least = table[table["share"] == min(config.shares)]
    collapse = table.dropna(subset=["measured_decay"])
    return {
        "rate": {
            "measured": table["measured"] / table["exact"],
            "least": least["measured"] / least["balanced"],
        },
        "jump": {
            "collapse": collapse["measured_decay"] / collapse["critical_decay"],
            "jumps": (rates[above] / rates[below]).groupby("depth").mean(),
        },
    }


def plot_decay(config: Decays, table: Table, ax: Axes) -> None:
    """Plot exact curves and measured points against λ/λ_c, each depth relative to its 2/S_bal."""
    first = config.data_seeds[0]
    problem = Setting(data_seed=first).data.problem
    for index, depth in enumerate(config.depths):
        style = series(index)
        for low, high in ((min(config.shares), 1 - 1e-6), (1 + 1e-6, max(config.shares))):
            grid = np.geomspace(low, high, 60)
            ax.plot(grid, _exact_rates(problem, depth, grid), color=style["color"])
        for data_seed, rows in table[table["depth"] == depth].groupby("data_seed"):
            measured = (rows["measured"] / rows["balanced"]).set_axis(rows["share"])
            if data_seed == first:
                ax.plot(measured, linestyle="", label=f"depth {depth}", **style)
                continue
            for side in (measured.index < 1, measured.index > 1):
                ax.plot(measured[side], **(style | LIGHT))
    plot_other_data(ax, config, marker="o")
    ax.axvline(1, color=INK, linestyle=":", linewidth=1)


def _exact_rates(problem: Problem, depth: int, shares: np.ndarray) -> np.ndarray:
    """Return the exact critical rate (X-9) over 2/S_bal at each λ/λ_c."""
    critical = critical_weight_decay(problem, depth).value
    minima = [decayed_minimum(problem, depth, share * critical) for share in shares]
    rates = np.array([minimum.critical_learning_rate() for minimum in minima])
    return rates * balanced_sharpness(problem, depth) / 2


DECAYS = define_study(
    "x-decay",
    run_decay,
    {"depth": "depths", "data_seed": "data_seeds", "share": "shares"},
    paper=Decays(
        (2, 3, 4, 10),
        (*(1e-3, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.93, 0.98), 1.02, 1.1, 1.4, 2.0, 4.0),
        steps=10_000,
        data_seeds=DATA_SETS,
    ),
    quick={
        "depths": (2, 3, 4),
        "shares": (1e-3, 0.1, 0.5, 0.98, 1.02, 2.0),
        "steps": 2_000,
        "data_seeds": DATA_SETS[:3],
    },
)

WIDTH = 10
"""Width of the hidden layers: the number of digits, which is the largest rank of Θ*."""


@dataclass(frozen=True)
class Outputs(Config):
    """Numbers of digits that are classified."""

    outputs: tuple[int, ...]
    steps: int
    minimizers: int
    """Random minimizers that are compared with the flattest one."""
    depth: int = 3


@cache
def digits(outputs: int) -> Problem:
    """Return scikit-learn's digits, standardized, with a centered indicator for each digit."""
    from sklearn.datasets import load_digits

    X, labels = load_digits(return_X_y=True)
    X = X[:, X.std(axis=0) > 0]
    Y = np.eye(10)[labels][:, :outputs]
    return Problem.from_data((X - X.mean(axis=0)) / X.std(axis=0), Y - Y.mean(axis=0))


def run_outputs(config: Outputs, outputs: int) -> list[dict[str, float]]:
    """Return exact and measured rate, and the sharpness of the attaining and other networks."""
    problem, L = digits(outputs), config.depth
    flattest = minimal_sharpness(problem, L)
    network = flattest.attaining(hidden=WIDTH)
    key = run_key(config.seed, outputs=outputs)

    def exact_sharpness(one: Network) -> float:
        return float(sharpness(problem, one, method="exact").value)

    spreads = np.geomspace(0.01, 1.0, config.minimizers)
    others = other_minimizers(network, config.seed, spreads)
    last = problem if outputs == 1 else problem.only_target(outputs - 1)
    row = {
        "minimal_sharpness": flattest.exact,
        "exact": flattest.critical_learning_rate(),
        "measured": rate_beside(problem, network, key, SEARCHED["outputs"], config.steps),
        "attained": exact_sharpness(network),
        "flattest_other": min(exact_sharpness(other) for other in others),
        "last_alone": minimal_sharpness(last, L).critical_learning_rate(),
    }
    return [row]


def output_answers(config: Outputs, table: Table) -> Answers:
    """Answer how X-7 compares with descent and other minimizers, and the effect of more outputs."""
    rows = table.sort_values("outputs")
    least, exact = rows["minimal_sharpness"], rows["exact"]
    return {
        "rate": {
            "measured": rows["measured"] / exact,
            "attained": (rows["attained"] / least - 1).abs().max(),
            "others": rows["flattest_other"] / least,
        },
        "more outputs": {
            "first": exact.iloc[0],
            "last": exact.iloc[-1],
            "together": exact / rows["last_alone"],
        },
    }


def plot_outputs(config: Outputs, table: Table, ax: Axes) -> None:
    """Plot exact and measured rate against q, with that of each added target alone."""
    rows = table.set_index("outputs").sort_index()
    ax.plot(rows["exact"], color=INK, label=r"exact, $2/S_{\min}$ of all q", zorder=1)
    ax.plot(rows["measured"], **series(0, linestyle="", label="measured"))
    ax.plot(rows["last_alone"], **series(1, linestyle="", label="the last target alone"))
    ax.set_ylim(bottom=0)


OUTPUTS = define_study(
    "x-outputs",
    run_outputs,
    {"outputs": "outputs"},
    paper=Outputs(tuple(range(1, 11)), steps=5_000, minimizers=20),
    quick={"outputs": (1, 3, 10), "steps": 1_000, "minimizers": 2},
)

WIDEST = 3.0
MARGIN = 1.02
"""Ratio to the border below which runs would need more steps."""


@dataclass(frozen=True)
class RatePairs(OnDataSets):
    """A square grid of the two rates of a network of depth 2, in units of 2/S_min."""

    points: int
    """Number of points on each side, from 2^{-WIDEST} to 2^{WIDEST}."""
    steps: int


def run_pairs(config: RatePairs, data_seed: int) -> dict[str, np.ndarray]:
    """Return whether descent converges near the minimizer that is the flattest for its two rates.

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


def pair_answers(config: RatePairs, table: Table) -> Answers:
    """Answer whether the border is where the geometric mean is 2/S_min."""
    mean = np.sqrt(table["first"] * table["second"])
    below, above = (table["settled"][part] for part in (mean < 1 / MARGIN, mean > MARGIN))
    return {
        "border": {
            "settled": below.mean(),
            "below": below,
            "wandering": above.sum(),
            "above": above,
            "largest": table[["first", "second"]].max(axis=1)[table["settled"]].max(),
        }
    }


def plot_pairs(config: RatePairs, table: Table, ax: Axes) -> None:
    """Plot the grid of pairs with the border √(η_1η_2) = 2/S_min; all data sets in one."""
    pairs = table.groupby(["first", "second"], as_index=False)["settled"].mean()
    share = pairs["settled"]
    kinds = (
        (share == 1, "settles on every data set", {"marker": "o", "s": 10}),
        (share == 0, "on none", {"marker": "s", "s": 6}),
        ((share > 0) & (share < 1), "on some", {"marker": "^", "s": 14}),
    )
    for color, (which, label, style) in zip(COLORS, kinds, strict=False):
        rows = pairs[which]
        if len(rows):
            style = style | {"color": color, "linewidths": 0, "label": label}
            ax.scatter(rows["first"], rows["second"], **style)
    ends = 2.0 ** np.array([-WIDEST, WIDEST])
    ax.plot(ends, 1 / ends, color=INK, label=r"$\sqrt{\eta_1\eta_2} = 2/S_{\min}$")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)


@dataclass(frozen=True)
class RateSpreads(OnDataSets):
    """Random rates of the layers, from equal ones to very different ones."""

    spreads: tuple[float, ...]
    """Largest over smallest rate."""
    draws: int
    steps: int
    depth: int = 4


def run_spread(config: RateSpreads, **cell: float) -> list[dict[str, float]]:
    """Return the largest multiple of one set of rates that settles, by three of its means."""
    L, problem = config.depth, Setting(data_seed=int(cell["data_seed"])).data.problem
    flattest = minimal_sharpness(problem, L)
    exact = flattest.critical_learning_rate()
    rng = np.random.default_rng(coordinate_words(config.seed, **cell))
    places = rng.permutation(np.concatenate([[0.0, 1.0], rng.uniform(size=L - 2)]))
    shape = cell["spread"] ** places
    shape /= np.exp(np.mean(np.log(shape)))
    network, key = flattest.attaining(rates=shape), run_key(config.seed, **cell)
    measured = rate_beside(problem, network, key, SEARCHED["layers"], config.steps, layers=shape)
    row = {
        "geometric": measured / exact,
        "arithmetic": measured * shape.mean() / exact,
        "largest": measured * shape.max() / exact,
    }
    return [row]


def spread_answers(config: RateSpreads, table: Table) -> Answers:
    """Answer which mean of the rates decides."""
    widest = table[table["spread"] == max(config.spreads)]
    others = widest[["arithmetic", "largest"]].mean()
    return {"which mean": {"geometric": table["geometric"], "others": others}}


def plot_spread(config: RateSpreads, table: Table, ax: Axes) -> None:
    """Plot critical value of each mean against the spread of the rates."""
    labels = {
        "largest": "largest rate", "arithmetic": "arithmetic mean", "geometric": "geometric mean"
    }  # fmt: skip
    first, others = config.split(table)
    for index, (column, label) in enumerate(labels.items()):
        style = series(2 - index, linestyle="")
        ax.plot(1.12 * others["spread"], others[column], **(style | LIGHT))
        ax.plot(first["spread"], first[column], label=label, **style)
    plot_other_data(ax, config, ", beside", marker="o", linestyle="")
    ax.axhline(1, color=INK, linestyle="--", linewidth=1, label=r"$2/S_{\min}$ (X-11)")


RATE_PAIRS = define_study(
    "x-layers",
    run_pairs,
    {"data_seed": "data_seeds"},
    paper=RatePairs(61, steps=20_000, data_seeds=DATA_SETS),
    quick={"points": 25, "steps": 2_000, "data_seeds": DATA_SETS[:3]},
    runs=lambda config: config.points**2,
)
RATE_SPREADS = define_study(
    "x-layers-spread",
    run_spread,
    {"data_seed": "data_seeds", "spread": "spreads", "draw": "draws"},
    paper=RateSpreads(
        (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0), 20, steps=10_000, data_seeds=DATA_SETS
    ),
    quick={
        "spreads": (1.0, 10.0, 100.0), "draws": 4, "steps": 2_000, "data_seeds": DATA_SETS[:3]
    },
)  # fmt: skip

AWAY: dict[str, Any] = {
    "linestyle": "", "marker": "D", "markersize": 6, "markerfacecolor": "none"
}  # fmt: skip
"""Style of rates measured from residual starts."""


@dataclass(frozen=True)
class Losses(OnDataSets):
    """Depths at which networks with either loss are trained on the same inputs."""

    depths: tuple[int, ...]
    steps: int
    starts: int
    """Number of residual starts of each search."""


def run_losses(config: Losses, depth: int, loss: str, data_seed: int) -> list[dict[str, float]]:
    """Return the predicted rate, and measured ones near the flattest minimizer and far from it."""
    problem = problem_of(loss, data_seed)
    flattest = minimal_sharpness(problem, depth)
    key = run_key(config.seed, data_seed=data_seed, depth=depth, loss=loss)
    away = empirical_critical_rate(problem, depth, seeds=config.starts, steps=config.steps, key=key)
    low, high = away.interval
    return [
        {
            "predicted": flattest.critical_learning_rate(),
            "measured": rate_beside(
                problem, flattest.minimizer, key, SEARCHED["losses"], config.steps
            ),
            "residual": away.value,
            "low": low,
            "high": high,
        }
    ]


def problem_of(loss: str, data_seed: int) -> Problem:
    """Return the data of FM-1; for classification the signs of its targets are the labels."""
    X, Y = Setting(data_seed=data_seed).data.problem.require_data("the labels")
    return Problem.from_data(X, Y[:, 0] if loss == "squared" else np.sign(Y[:, 0]), loss=loss)


def loss_answers(config: Losses, table: Table) -> Answers:
    """Answer how the measured rates compare with 2/S_min for both losses."""
    found: Answers = {}
    for loss, rows in table.groupby("loss"):
        away = rows["residual"] / rows["predicted"]
        found[f"{loss} loss"] = {
            "beside": rows["measured"] / rows["predicted"],
            "sets": table["data_seed"].nunique(),
            "away": away.groupby(rows["depth"]).mean(),
            "power": power_interval(rows, "depth", "measured", "data_seed"),
        }
    ratio = table.pivot_table("predicted", ["depth", "data_seed"], "loss")
    apart = (ratio["logistic"] / ratio["squared"]).groupby("depth").mean()
    ends = {"shallow": apart.index[0], "deep": apart.index[-1]}
    return found | {"both losses": {"first": apart.iloc[0], "last": apart.iloc[-1], **ends}}


def plot_losses(config: Losses, table: Table, ax: Axes) -> None:
    """Plot predicted rates as lines, measured ones as marks, one color for each loss."""
    for index, loss in enumerate(LOSS_NAMES):
        color = COLORS[index]
        rows, others = config.split(table[table["loss"] == loss].sort_values("depth"))
        for _, other in others.groupby("data_seed"):
            ax.plot(other["depth"], other["predicted"], color=color, **LIGHT)
        ax.plot(rows["depth"], rows["predicted"], color=color, label=f"{loss} loss, predicted")
        ax.plot(rows["depth"], rows["measured"], **series(index, linestyle=""))
        bars(ax, rows.rename(columns={"residual": "mean"}), "depth", color=color, **AWAY)
    ax.plot([], [], "o", color=QUIET, label="measured beside the flattest minimizer")
    ax.errorbar([], [], [], color=QUIET, label="measured from residual starts", capsize=2, **AWAY)
    ax.loglog()
    ticks_at(ax, config.depths)


LOSS_NAMES = ("logistic", "squared")
LOSSES = define_study(
    "x-losses",
    run_losses,
    {"depth": "depths", "loss": LOSS_NAMES, "data_seed": "data_seeds"},
    paper=Losses((2, 3, 5, 10, 20, 40), steps=4_000, starts=6, data_seeds=DATA_SETS),
    quick={"depths": (2, 5, 20), "steps": 1_000, "starts": 3, "data_seeds": DATA_SETS[:2]},
    runs="starts",
)
