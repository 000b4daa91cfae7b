"""X-wide: what a wide network keeps beside the data, as β → 0 and with depth (X-25 to X-30)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes

from deeplin.dynamics import simulate_wide
from deeplin.papers.bo_1 import DEPTH, compared, expected_law
from deeplin.papers.figures import Answers, Table, define_study
from deeplin.papers.statistics import interval, mean_interval, number
from deeplin.plot_style import COLORS, INK, QUIET, series
from deeplin.problems import Problem
from deeplin.problems.synthetic import spiked
from deeplin.sweep import run_key
from deeplin.theory.wide_networks import lazy_motion, wide_limit


@dataclass(frozen=True)
class LastLayers:
    """BO's Figure 1, bottom row: α = 1 and last layers of entries N(0, β²), β down to 0."""

    dimensions: tuple[int, ...]
    runs: int
    """Simulated at each β, each with data and weights of its own."""
    betas: tuple[float, ...] = (0.0, 5e-4, 1e-3)
    seed: int = 0


def run_last_layer(config: LastLayers, dimension: int, beta: float) -> list[dict[str, float]]:
    """The mean squared distance to Θ_min over simulated flows, and the law of X-27 and X-29."""
    width = 10 * (dimension + 3)
    key = run_key(config.seed, dimension=dimension, beta=beta)
    problems = [spiked(config.seed + k, dimension).problem for k in range(config.runs)]
    keys = jax.random.split(key, config.runs)
    wide = simulate_wide(
        problems, width, DEPTH, 1.0, beta, keys, dynamics="flow", loss_target=1e-10
    )
    mean, half = mean_interval(np.atleast_1d(wide.expected_distance))
    law = expected_law(dimension, 1.0, beta, width)["law_distance"]
    return [{"simulated": mean, "half": half, "law": law}]


def logged() -> Table:
    """The authors' cells at α = 1, with the half-width of their 95 % interval and the law."""
    cells = compared().query("figure == 'BO-1-bottom'").sort_values(["dimension", "beta"])
    return cells.assign(half=2 * cells["distance_sd"] / np.sqrt(cells["runs"]))


def last_layer_answers(config: LastLayers, table: Table) -> Answers:
    """What β = 0 leaves: the law, the simulation, the logs."""
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
"""Simulated networks."""


def plot_last_layer(config: LastLayers, table: Table, ax: Axes) -> None:
    """Distance against β: law (lines), simulated flows (hollow), the authors' logs (filled)."""
    logs = logged()
    for color, d in zip(COLORS, config.dimensions, strict=False):
        grid = np.linspace(0, 1e-3, 101)
        law = [expected_law(d, 1.0, beta, 10 * (d + 3))["law_distance"] for beta in grid]
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
class Gained:
    """What Θ_⊥ gains in training, against the depth."""

    depths: tuple[int, ...]
    runs: int
    """Simulated networks of width 10⁶ at each depth."""
    first: float = 0.05
    """a = α√m."""
    last: float = 504.49
    """b² = β²m."""
    seed: int = 0


@cache
def gained_problem() -> Problem:
    """One spiked data set (d = 40, n = 8, q = 2)."""
    return spiked(5, 40, samples=8, outputs=2, spikes=2, epsilon=0.2).problem


def _law(config: Gained, depth: Any) -> float:
    """‖U(∞) − U(0)‖² to leading order (X-29)."""
    singular = np.linalg.svd(gained_problem().spectrum.coordinates, compute_uv=False)
    return lazy_motion(singular, config.first**2, config.last, depth)


def _shape(config: Gained, depth: Any) -> Any:
    """How the law depends on the depth."""
    return ((depth - 2) / (1 + (depth - 2) * config.first**2)) ** 2


def run_gained(config: Gained, depth: int) -> list[dict[str, float]]:
    """‖U(∞) − U(0)‖², to which ‖Θ_⊥(∞) − Θ_⊥(0)‖² is proportional: law, flow and simulation."""
    problem = gained_problem()
    a2, b2, width = config.first**2, config.last, 10**6
    before, after = wide_limit(problem, depth, a2, b2)
    free = problem.dimension - problem.rank
    keys = jax.random.split(run_key(config.seed, depth=depth), config.runs)
    alpha, beta = np.sqrt(a2 / width), np.sqrt(b2 / width)
    wide = simulate_wide(
        problem, width, depth, alpha, beta, keys, dynamics="flow", loss_target=1e-10
    )
    basis = problem.spectrum.vectors
    gained = []
    for k in range(config.runs):
        start = np.asarray(wide.as_run(k).initial.product)
        outside = start - basis @ (basis.T @ start)
        gained.append(np.sum((wide.theta_perp[k] - outside) ** 2) / (alpha**2 * free))
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
    """How fast Θ_⊥ grows with depth, and how good the law is."""
    logs = np.log(table[["depth", "flow", "shape", "kept"]])
    slopes = {name: np.polyfit(logs["depth"], logs[name], 1)[0] for name in logs.columns[1:]}
    rows = table.set_index("depth")
    ratios = {name: rows[name] / rows["flow"] for name in ("law", "simulated", "half")}
    return {"exponent": {"slopes": slopes}, "law": ratios}


def plot_gained(config: Gained, table: Table, ax: Axes) -> None:
    """‖ΔU‖² against depth: the law, its shape, the infinitely wide flow, simulated networks."""
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


LAST_LAYER = define_study(
    "x-wide-last-layer",
    run_last_layer,
    {"dimension": "dimensions", "beta": "betas"},
    paper=LastLayers((500, 1000, 2000), runs=20),
    quick={"runs": 3, "betas": (0.0,)},
    runs="runs",
    bucket="dimension",
)
DEPTH_STUDY = define_study(
    "x-wide-depth",
    run_gained,
    {"depth": "depths"},
    paper=Gained((3, 5, 10, 30, 100), runs=24),
    quick={"depths": (3, 5, 10, 30), "runs": 3},
    runs="runs",
    bucket="depth",
)
