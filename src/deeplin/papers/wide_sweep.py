"""The sweep behind BO-1 and BO-3: wide linear networks against scales and dimension.

One experiment serves both, exact at any width (X-4), for comparison with the authors' published
cells and with the law that needs no simulation (X-25 to X-29). `bo_logs.csv` holds mean and
standard deviation over the runs of each cell of BO's Figures 1 and 3 (linear networks; squared
distances), computed from the authors' public logs. They are compared with expectations that are
also over the data: E‖Θ_min‖² = σ²q/κ + ‖PΘ*‖² and tr((I−P)Σ) = κn (X-32, D3).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import UnstableStep, simulate_wide
from deeplin.papers.figures import Answers, Table, define_study
from deeplin.papers.setting import Config, data_seed
from deeplin.papers.statistics import curve, mean_interval
from deeplin.plot_style import COLORS, INK, bars, series
from deeplin.problems import Population
from deeplin.problems.synthetic import Synthetic, spiked
from deeplin.sweep import Unit, run_keys
from deeplin.theory.ridgeless import ridgeless_risk
from deeplin.theory.wide_networks import Start, expected_modes

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
    """Return mean distance, added risk, risk and stability number in BO's setting.

    The means are over data and start.

    The stability number lr·λ_max = 2lr‖X‖²(a²+b²+a²b²)/(nq) uses the mean of ‖X‖²
    (X-31); descent is stable below 2.
    """
    n, q = SAMPLES, OUTPUTS
    spectrum = np.where(np.arange(dimension) < 10, 1.0, 0.01)
    truth = np.full((q, dimension), (dimension * q) ** -0.5)  # ‖Θ*‖ = 1 in a random direction
    least = ridgeless_risk(Population(truth, spectrum, noise=1.0), n)
    kappa = least.kappa
    squared = q / kappa + n / dimension
    start = Start(np.full(q, np.sqrt(squared / q)), n, float(width), DEPTH, alpha, beta)
    modes = expected_modes(start)
    total = np.nan if modes is None else alpha**2 * float(np.sum(modes.squares))
    # about E‖X‖_2²: the other inputs add about ε(d−10) to every eigenvalue of XXᵀ
    squared_norm = _largest_spike() + 0.01 * (dimension - 10)
    stiffness = start.a2 + start.b2 + (DEPTH - 2) * start.a2 * start.b2
    return {
        "law_distance": (dimension - n) * total,
        "law_added_risk": kappa * n * total,
        "law_risk": least.total + kappa * n * total,
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
    assert isinstance(data.truth, np.ndarray)  # Θ*
    return Population(data.truth, data.spectrum, drawn=True)


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
    rows["ratio"] = logs["distance_mean"] / ours["distance"].mean()[cells]
    return pd.DataFrame(rows, index=cells)


def log_answers(config: WideSweep, table: Table, *, figure: str) -> Answers:
    """Answer whether our cells agree with the authors' logs, and where descent follows flow (E-11).

    It also answers how large the distance due to a random first layer is.
    """
    z = compared_with_logs(table, figure).reset_index()
    zero = z[(z["alpha"] == 0) & (z["dimension"] < STABLE)].set_index("dimension")["ratio"]
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
    if len(zero):
        found["zero first layer"] = {"ratio": zero}
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
        laws = [expected_law(**one)[f"law_{column}"] for one in settings.to_dict("records")]
        height = pd.Series(laws, index=cells.index, dtype=float)
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
wide_study = partial(define_study, run=run_wide, over=units)
RISK, DISTANCE = "Excess risk", r"$\|\Theta - \Theta_{\min}\|_F^2$"
"""Names of the vertical axes."""
