"""BO-1, BO-3 and X-wide: wide linear networks against the scale of a layer, d and the depth.

One experiment serves both, exact at any width (X-4), for comparison with the authors' published
cells and with the law that needs no simulation (X-25 to X-29). `bo_logs.csv` holds mean and
standard deviation over the runs of each cell of BO's Figures 1 and 3 (linear networks; squared
distances), computed from the authors' public logs. They are compared with expectations that are
also over the data: E‖Θ_min‖² = σ²q/κ + ‖PΘ*‖² and tr((I−P)Σ) = κn (X-32, D3). X-wide measures the
part of such a network orthogonal to the data, as β → 0 and with depth (X-25 to X-30).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import UnstableStep, WideRun, simulate_wide
from deeplin.papers.figures import Answers, Table, define_study
from deeplin.papers.setting import Config, data_seed
from deeplin.papers.statistics import curve, interval, mean_interval, number
from deeplin.plot_style import COLORS, INK, QUIET, bars, series
from deeplin.problems import Population, Problem
from deeplin.problems.synthetic import Synthetic, spiked
from deeplin.sweep import Unit, run_key, run_keys
from deeplin.theory.ridgeless import ridgeless_risk
from deeplin.theory.wide_networks import Start, expected_modes, lazy_motion, wide_limit

SAMPLES, OUTPUTS, DEPTH, STEP = 100, 3, 3, 1e-4
"""BO's setting: n, q, L, and the rate on the mean loss."""
STABLE = 1500
"""Dimension below which the authors' step is stable for every draw; beyond it see E-11."""


def published() -> pd.DataFrame:
    """Return the cells of the authors' logs.

    A cell has a figure, log, dimension, scales, width, runs, means and deviations.
    """
    with files("deeplin.papers").joinpath("bo_logs.csv").open(encoding="utf-8") as source:
        return pd.read_csv(source, comment="#")


def expected_law(dimension: int, alpha: float, beta: float, width: int) -> dict[str, float]:
    """Return mean distance, mean added risk and stability number in BO's setting.

    The means are over data and start.

    The stability number lr·λ_max = 2lr‖X‖²(a²+b²+a²b²)/(nq) uses the mean of ‖X‖²
    (X-31); descent is stable below 2.
    """
    n, q = SAMPLES, OUTPUTS
    spectrum = np.where(np.arange(dimension) < 10, 1.0, 0.01)
    population = Population(np.zeros((dimension, q)), spectrum)
    kappa = ridgeless_risk(population, n).kappa
    squared = q / kappa + n / dimension  # ‖Θ*‖ = 1 in a random direction
    start = Start(np.full(q, np.sqrt(squared / q)), n, float(width), DEPTH, alpha, beta)
    modes = expected_modes(start)
    total = np.nan if modes is None else alpha**2 * float(np.sum(modes.squares))
    # about E‖X‖_2²: the other inputs add about ε(d−10) to every eigenvalue of XXᵀ
    squared_norm = _largest_spike() + 0.01 * (dimension - 10)
    stiffness = start.a2 + start.b2 + (DEPTH - 2) * start.a2 * start.b2
    return {
        "law_distance": (dimension - n) * total,
        "law_added_risk": kappa * n * total,
        "stability": 2 * STEP * squared_norm * stiffness / (n * q),
    }


@cache
def _largest_spike() -> float:
    """Return the mean of ‖X_1‖_2² over the ten inputs of variance 1, by 400 draws."""
    draws = np.random.default_rng(0).normal(size=(400, SAMPLES, 10))
    return float(np.mean(np.linalg.eigvalsh(draws.mT @ draws)[:, -1]))


def compared() -> pd.DataFrame:
    """Return every published cell with α > 0, the law, and z = (logs − law)/standard error.

    `stable` marks cells with a stability number below 2; descent does not follow the flow in the
    others.
    """
    cells = published().query("alpha > 0").reset_index(drop=True)
    columns = (cells[name] for name in ("dimension", "alpha", "beta", "width"))
    laws = pd.DataFrame([expected_law(*cell) for cell in zip(*columns, strict=True)])
    table = pd.concat([cells, laws], axis=1)
    table["z"] = (table["distance_mean"] - table["law_distance"]) / (
        table["distance_sd"] / np.sqrt(table["runs"])
    )
    table["added_risk"] = table["risk_mean"] - table["risk_min_norm_mean"]
    return table.assign(stable=table["stability"] < 2)


@dataclass(frozen=True)
class WideSweep(Config):
    """Every pair of scales at every dimension, by descent and, from `flow_from` on, also by flow.

    Data, Θ* and the random numbers behind the weights depend on dimension and repetition alone, so
    that scales are compared on the same draws.
    """

    dimensions: tuple[int, ...]
    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    repetitions: int = 20
    flow_from: int = 1600
    """Dimension from which some draws exceed the stability limit of descent (E-11)."""


def units(config: WideSweep) -> list[Unit]:
    """Return one unit for each dimension and dynamics; its scales and repetitions are one batch."""
    runs = len(config.alphas) * len(config.betas) * config.repetitions
    return [
        Unit({"dimension": dimension, "dynamics": dynamics}, runs=runs)
        for dimension in config.dimensions
        for dynamics in ("descent", "flow")
        if dynamics == "descent" or dimension >= config.flow_from
    ]


def run_wide(config: WideSweep, dimension: int, dynamics: Any) -> pd.DataFrame:
    """Train the batch; exact excess risk, distance to Θ_min, and its part outside the data."""
    d, repetitions = dimension, range(config.repetitions)
    drawn = [data_seed(config.seed, dimension=d, repetition=k, part="data") for k in repetitions]
    data = [spiked(seed, d, samples=SAMPLES, outputs=OUTPUTS) for seed in drawn]
    runs = pd.MultiIndex.from_product(
        (config.alphas, config.betas, repetitions), names=("alpha", "beta", "repetition")
    ).to_frame(index=False)
    draws = [{"dimension": d, "repetition": k, "part": "weights"} for k in runs["repetition"]]
    problems = [data[k].problem for k in runs["repetition"]]
    populations = [population_of(data[k]) for k in runs["repetition"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableStep)  # the status of each row says it
        wide = simulate_wide(
            problems,
            width=width(d),
            depth=3,
            alpha=runs["alpha"].to_numpy(),
            beta=runs["beta"].to_numpy(),
            key=run_keys(config.seed, draws),
            learning_rate=STEP,
            dynamics=dynamics,
            population=populations,
        )
    ends = {
        "risk": np.asarray(wide.risk),
        "distance": wide.distance,
        "beside": np.sum(wide.theta_perp**2, axis=(1, 2)),
        "added": np.asarray(wide.added_risk),
        "cross": np.asarray(wide.cross_term),
    }
    pairs = zip(populations, problems, strict=True)
    return runs.assign(
        dimension=d,
        dynamics=dynamics,
        status=wide.status,
        steps=wide.steps,
        loss=wide.loss,
        **{name: np.where(wide.status != "diverged", end, np.nan) for name, end in ends.items()},
        interpolant_risk=[float(population.risk(one.optimum)) for population, one in pairs],
        interpolant_norm=[one.optimum_norm for one in problems],
    )


def population_of(data: Synthetic) -> Population:
    """Return the population that a data set was drawn from."""
    return Population(np.asarray(data.truth), data.spectrum, drawn=True)


def gain_outside(wide: WideRun, k: int, problem: Problem) -> float:
    """Return ‖Θ_⊥ − Θ_⊥(0)‖² of the k-th network, the change orthogonal to the data."""
    basis, initial = problem.spectrum.vectors, np.asarray(wide.as_run(k).initial.product)
    start = initial - basis @ (basis.T @ initial)
    return np.sum((wide.theta_perp[k] - start) ** 2)


def width(dimension: int) -> int:
    """Return m = 10(d + q)."""
    return 10 * (dimension + OUTPUTS)


def expected_distance(alpha: Any, dimension: Any) -> Any:
    """Return α²(d−n)mq: the squared distance to Θ_min that a random first layer leaves (β = 1)."""
    return alpha**2 * (dimension - SAMPLES) * width(dimension) * OUTPUTS


def faithful(table: Table) -> Any:
    """Return the runs that follow gradient flow: stable descent, else flow."""
    return table[(table["dimension"] < STABLE) | (table["dynamics"] == "flow")]


def compared_with_logs(table: Table, figure: str) -> Any:
    """Return each cell that the authors logged and we ran, with z of the difference of means."""
    keys: list[str] = ["dimension", "alpha", "beta"]
    digits: Any = {"alpha": 9, "beta": 9}
    ours = table[table["dynamics"] == "descent"].round(digits).groupby(keys)
    logs = published().query("figure == @figure").round(digits).set_index(keys)
    cells = logs.index.intersection(ours.size().index)
    logs, runs = logs.loc[cells], ours.size()[cells]
    rows = {}
    for name in ("distance", "risk"):
        mean, spread = ours[name].mean()[cells], ours[name].std()[cells]
        error = logs[f"{name}_sd"] ** 2 / logs["runs"] + spread**2 / runs
        rows[name] = (mean - logs[f"{name}_mean"]) / np.sqrt(error)
    return pd.DataFrame(rows, index=cells)


def log_answers(config: WideSweep, table: Table, *, figure: str) -> Answers:
    """Answer whether our cells agree with the authors' logs, and where descent follows flow (E-11).

    It also answers how large the distance due to a random first layer is.
    """
    z = compared_with_logs(table, figure).reset_index()
    # at scale zero both only reflect the loss target: there are no random weights to compare
    stable = z[(z["dimension"] < STABLE) & (z[["alpha", "beta"]].min(axis=1) > 0)]
    law = compared()
    law = law[(law["figure"] == figure) & law["stable"]]["z"]
    runs = faithful(table)
    runs = runs[runs["beside"] > 1e-6 * runs["interpolant_norm"] ** 2].dropna(subset=["cross"])
    relative = runs["cross"] / runs["interpolant_risk"]
    by_draw = relative.groupby([runs["dimension"], runs["repetition"]]).mean()
    errors = stable[["distance", "risk"]]
    found: Answers = {
        "authors' logs": {"cells": len(stable), "mean": errors.mean(), "sd": errors.std()},
        "law": {"z": law, "mean": law.mean(), "sd": law.std()},
        "cross term": {
            "helped": (runs["added"] + runs["cross"] < 0).mean(),
            "runs": runs,
            "relative": mean_interval(by_draw),
        },
    }
    scale = "alpha" if len(config.alphas) > 1 else "beta"
    top = table[table[scale] == table[scale].max()]
    draws = top.set_index(["dimension", "repetition", "dynamics"])["distance"].unstack()
    if "flow" in draws:
        both = draws.dropna().groupby("dimension").mean()
        found["descent and flow"] = {"ratio": both["descent"] / both["flow"]}
    if scale == "alpha":
        runs = faithful(table.query("alpha > 0"))
        ratio = runs["beside"] / expected_distance(runs["alpha"], runs["dimension"])
        means = ratio.groupby([runs["dimension"], runs["alpha"]]).mean()
        found["law of the distance"] = {"ratio": means}
    return found


FLOW = {"linestyle": "-.", "linewidth": 1, "markerfacecolor": "none"}
"""Style of flow, distinguished by open markers, which the legend names once."""


def plot_curves(
    ax: Axes, table: Table, by: str, column: str, lines: dict[Any, str], figure: str
) -> None:
    """Plot a column against another, one line for each of `lines`: our runs, the logs, and the law.

    Descent has error bars, flow open markers; the authors' logged means with 95% intervals are
    crosses; the law (X-29), which needs no simulation, is dotted.
    """
    key = "alpha" if by == "dimension" else "dimension"
    logs = published()
    logs = logs[(logs["figure"] == figure) & logs["dimension"].isin(table["dimension"].unique())]
    logs = logs.assign(variance=logs["alpha" if "top" in figure else "beta"] ** 2)
    cross = {"linestyle": "", "marker": "x", "markersize": 6, "zorder": 4, "elinewidth": 0.8}
    for index, (value, label) in enumerate(lines.items()):
        for dynamics, rows in table[table[key] == value].groupby("dynamics"):
            named = (
                {"label": label} if dynamics == "descent" else FLOW | {"label": f"_{label}, flow"}
            )
            bars(ax, curve(rows, by, column), by, **series(index, **named))
        cells = logs[logs[key] == value]
        half = 1.96 * cells[f"{column}_sd"] / np.sqrt(cells["runs"])
        color = COLORS[index]
        ax.errorbar(cells[by], cells[f"{column}_mean"], half, color=color, label="_", **cross)
        settings: Any = cells[["dimension", "alpha", "beta", "width"]]
        name = "law_added_risk" if column == "risk" else "law_distance"
        laws = [expected_law(**one)[name] for one in settings.to_dict("records")]
        height = pd.Series(laws, index=cells.index, dtype=float)
        if column == "risk":
            height += cells["risk_min_norm_mean"]
        ax.plot(cells[by], height.where(height > 0), ":", color=color, linewidth=1, label="_")
    ax.plot([], [], "x", color=INK, label="authors' logs")
    ax.plot([], [], ":", color=INK, linewidth=1, label="law (X-29)")
    if (table["dynamics"] == "flow").any():
        ax.plot([], [], color=INK, marker="o", label="gradient flow", **FLOW)


def plot_against_variance(
    config: WideSweep, table: Table, ax: Axes, *, figure: str, column: str
) -> None:
    """Plot excess risk or squared distance to Θ_min against α² or β² for each d (BO-1)."""
    scale = "alpha" if "top" in figure else "beta"
    runs = table.assign(variance=table[scale] ** 2)
    if column == "risk":
        levels = runs.drop_duplicates(["dimension", "repetition"]).groupby("dimension")
        for color, level in zip(COLORS, levels["interpolant_risk"].mean(), strict=False):
            ax.axhline(level, color=color, linestyle="--", linewidth=1, zorder=1)
        ax.plot([], [], color="0.4", linestyle="--", linewidth=1, label="minimum norm")
    lines = {dimension: f"$d = {dimension}$" for dimension in config.dimensions}
    plot_curves(ax, runs, "variance", column, lines, figure)
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))


def plot_against_dimension(config: WideSweep, table: Table, ax: Axes, *, column: str) -> None:
    """Plot excess risk or squared distance to Θ_min against d, one curve for each α (BO-3)."""
    if column == "risk":
        first = table.drop_duplicates(["dimension", "repetition"]).assign(status="interpolant")
        points = curve(first, "dimension", "interpolant_risk")
        # wide and pale: the curves of small α lie on it
        style = {"color": INK, "linewidth": 6, "alpha": 0.2, "zorder": 1}
        ax.plot(points["dimension"], points["mean"], label="minimum norm", **style)
    lines = {alpha: rf"$\alpha = {alpha:g}$" for alpha in config.alphas}
    plot_curves(ax, table, "dimension", column, lines, "BO-3")


SCALES = tuple(np.linspace(0.0, 1e-3, 10).tolist())
FEWER = (SCALES[0], SCALES[5], SCALES[9])
DIMENSIONS = (500, 1000, 2000)
ALPHAS = (0.0, 1e-4, 1e-3)
wide_study = partial(define_study, run=run_wide, over=units)
FIRST_LAYER = wide_study(
    "bo-1-first-layer",
    paper=WideSweep(DIMENSIONS, alphas=SCALES, betas=(1.0,)),
    quick={"alphas": FEWER, "repetitions": 4},
)
LAST_LAYER = wide_study(
    "bo-1-last-layer",
    paper=WideSweep(DIMENSIONS, alphas=(1.0,), betas=SCALES),
    quick={"betas": FEWER, "repetitions": 4},
)
DIMENSION = wide_study(
    "bo-3-dimension",
    paper=WideSweep(tuple(range(200, 2001, 200)), alphas=ALPHAS, betas=(1.0,)),
    quick={"dimensions": (200, 600, 1000, 1400, 2000), "repetitions": 3},
)


@dataclass(frozen=True)
class LastLayers(Config):
    """BO's Figure 1, bottom row: α = 1 and last layers of entries N(0, β²), β down to 0."""

    dimensions: tuple[int, ...]
    runs: int
    """Number of simulations at each β, each with its own data and weights."""
    betas: tuple[float, ...] = (0.0, 5e-4, 1e-3)


def run_last_layer(config: LastLayers, dimension: int, beta: float) -> list[dict[str, float]]:
    """Return the mean squared distance to Θ_min of simulated flows, and the law (X-27, X-29)."""
    m = width(dimension)
    key = run_key(config.seed, dimension=dimension, beta=beta)
    problems = [spiked(config.seed + k, dimension).problem for k in range(config.runs)]
    keys = jax.random.split(key, config.runs)
    wide = simulate_wide(problems, m, DEPTH, 1.0, beta, keys, dynamics="flow", loss_target=1e-10)
    mean, half = mean_interval(np.atleast_1d(wide.expected_distance))
    law = expected_law(dimension, 1.0, beta, m)["law_distance"]
    return [{"simulated": mean, "half": half, "law": law}]


def logged() -> Table:
    """Return the authors' cells at α = 1 with the half-width of their 95% interval and the law."""
    cells = compared().query("figure == 'BO-1-bottom'").sort_values(["dimension", "beta"])
    return cells.assign(half=2 * cells["distance_sd"] / np.sqrt(cells["runs"]))


def last_layer_answers(config: LastLayers, table: Table) -> Answers:
    """Answer what β = 0 leaves, by the law, by simulation and by the logs."""
    zero = table[table["beta"] == 0].set_index("dimension")
    logs = logged()
    zero_logs = logs[logs["beta"] == 0].set_index("dimension")
    distances = [
        f"d = {d}: law {number(row.law)}, simulated {interval((row.simulated, row.half))}, "
        f"logs {interval(zero_logs.loc[d, ['distance_mean', 'half']])}"
        for d, row in zero.iterrows()
    ]
    z = logs[logs["stable"]]["z"]
    return {
        "β → 0": {"distances": "; ".join(distances)},
        "along β": {"ratio": table["simulated"] / table["law"], "z": z, "mean": z.mean()},
    }


HOLLOW: dict[str, Any] = {
    "marker": "D", "markersize": 7, "markerfacecolor": "none", "linestyle": ""
}  # fmt: skip
"""Style of simulated networks."""


def plot_last_layer(config: LastLayers, table: Table, ax: Axes) -> None:
    """Plot distance against β: the law (lines), simulated flows (hollow), the logs (filled)."""
    logs = logged()
    for color, d in zip(COLORS, config.dimensions, strict=False):
        grid = np.linspace(0, 1e-3, 101)
        law = [expected_law(d, 1.0, beta, width(d))["law_distance"] for beta in grid]
        ax.plot(1e3 * grid, law, color=color, label=f"law, $d = {d}$")
        for stable, part in logs[logs["dimension"] == d].groupby("stable"):
            style = {"marker": "o" if stable else "x", "linestyle": "", "capsize": 2}
            height = part["distance_mean"], part["half"]
            ax.errorbar(1e3 * part["beta"], *height, color=color, markersize=3.5, **style)
        mine = table[table["dimension"] == d]
        ax.errorbar(1e3 * mine["beta"], mine["simulated"], mine["half"], color=color, **HOLLOW)
    for marker, label in (("o", "authors' logs"), ("x", "logs, unstable step (E-11)")):
        ax.plot([], [], marker, color=QUIET, label=label)
    ax.plot([], [], color=QUIET, label="simulated flow", **HOLLOW)


@dataclass(frozen=True)
class Gained(Config):
    """Config of the growth of Θ_⊥ in training against the depth."""

    depths: tuple[int, ...]
    runs: int
    """Number of simulated networks of width 10⁶ at each depth."""
    first: float = 0.05
    """a = α√m."""
    last: float = 504.49
    """b² = β²m."""


@cache
def gained_problem() -> Problem:
    """Return one spiked data set (d = 40, n = 8, q = 2)."""
    return spiked(5, 40, samples=8, outputs=2, spikes=2, epsilon=0.2).problem


def _law(config: Gained, depth: Any) -> float:
    """Return ‖U(∞) − U(0)‖² to leading order (X-29)."""
    singular = np.linalg.svd(gained_problem().spectrum.coordinates, compute_uv=False)
    return lazy_motion(singular, config.first**2, config.last, depth)


def _shape(config: Gained, depth: Any) -> Any:
    """Return the factor by which the law depends on the depth."""
    return ((depth - 2) / (1 + (depth - 2) * config.first**2)) ** 2


def run_gained(config: Gained, depth: int) -> list[dict[str, float]]:
    """Return ‖U(∞) − U(0)‖², to which the change of Θ_⊥ is proportional: law, flow, simulation."""
    problem = gained_problem()
    a2, b2, width = config.first**2, config.last, 10**6
    before, after = wide_limit(problem, depth, a2, b2)
    free = problem.dimension - problem.rank
    keys = jax.random.split(run_key(config.seed, depth=depth), config.runs)
    alpha, beta = np.sqrt(a2 / width), np.sqrt(b2 / width)
    wide = simulate_wide(
        problem, width, depth, alpha, beta, keys, dynamics="flow", loss_target=1e-10
    )
    gained = [gain_outside(wide, k, problem) / (alpha**2 * free) for k in range(config.runs)]
    mean, half = mean_interval(gained)
    return [
        {
            "law": _law(config, depth),
            "shape": _shape(config, depth),
            "flow": float(np.sum((after - before) ** 2)),
            "kept": float(np.sum(after**2) - np.sum(before**2)),
            "simulated": mean,
            "half": half,
        }
    ]


def gained_answers(config: Gained, table: Table) -> Answers:
    """Answer how fast Θ_⊥ grows with depth, and how accurate the law is."""
    logs = np.log(table[["depth", "flow", "shape", "kept"]])
    slopes = {name: np.polyfit(logs["depth"], logs[name], 1)[0] for name in logs.columns[1:]}
    rows = table.set_index("depth")
    ratios = {name: rows[name] / rows["flow"] for name in ("law", "simulated", "half")}
    return {"exponent": {"slopes": slopes}, "law": ratios}


def plot_gained(config: Gained, table: Table, ax: Axes) -> None:
    """Plot ‖ΔU‖² against depth: the law, its shape, the infinitely wide flow, simulations."""
    rows = table.sort_values("depth").set_index("depth")
    grid = np.geomspace(3, max(config.depths), 100)
    law, shape = np.array([_law(config, L) for L in grid]), _shape(config, grid)
    ax.plot(grid, law, color=INK, label="law (X-29)")
    label = r"$\propto (L-2)^2/(1+(L-2)a^2)^2$"
    ax.plot(grid, shape * law[0] / shape[0], "--", color=COLORS[1], label=label)
    ax.plot(rows["flow"], **series(2, linestyle="", label="infinite width"))
    label = r"simulated, $m = 10^6$"
    ax.errorbar(rows.index, rows["simulated"], rows["half"], color=COLORS[0], label=label, **HOLLOW)
    ax.plot(rows["kept"], **series(3, linestyle=":", label=r"$\|U\|^2 - \|U(0)\|^2$"))


X_WIDE_LAST_LAYER = define_study(
    "x-wide-last-layer",
    run_last_layer,
    {"dimension": "dimensions", "beta": "betas"},
    paper=LastLayers((500, 1000, 2000), runs=20),
    quick={"runs": 3, "betas": (0.0,)},
    runs="runs",
)
X_WIDE_DEPTH = define_study(
    "x-wide-depth",
    run_gained,
    {"depth": "depths"},
    paper=Gained((3, 5, 10, 30, 100), runs=24),
    quick={"depths": (3, 5, 10, 30), "runs": 3},
    runs="runs",
)
