"""X-wide: what a wide network keeps beside the data, as β → 0 and with depth (X-25 to X-30)."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from matplotlib.axes import Axes

from deeplin.dynamics import simulate_wide
from deeplin.papers.bo_logs import DEPTH, compared, expected_law
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, each, extent, number
from deeplin.papers.statistics import mean_interval
from deeplin.papers.style import COLOURS, INK, QUIET, legend_beside, look, plain_numbers
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


def last_layer_questions(config: LastLayers, table: Table) -> list[Question]:
    """What β = 0 leaves: the law, the simulation, the logs."""
    zero = table[table["beta"] == 0].set_index("dimension")
    logs = logged().set_index("dimension")
    zero_logs = logs[(logs["beta"] == 0) & logs.index.isin(zero.index)]
    found = [
        f"d = {d}: law {number(row.law)}, simulated {number(row.simulated)} ± {number(row.half)}, "
        f"logs {number(zero_logs['distance_mean'][d])} ± {number(zero_logs['half'][d])}"
        for d, row in zero.iterrows()
    ]
    ratio = table["simulated"] / table["law"]
    stable = logs[logs["stable"]]
    return [
        Question(
            "β → 0",
            "Does the network end at the minimum-norm interpolant as β → 0, which BO leave open?",
            f"No. The squared distance left at β = 0: {'; '.join(found)} (95 % intervals). "
            "It falls with the width like 1/m, not with β.",
        ),
        Question(
            "along β",
            "Does the law hold along β?",
            f"Simulated over law is {extent(ratio)}; of the authors' cells with stable steps the "
            f"logs differ from it by {extent(stable['z'])} standard errors "
            f"({len(stable)} cells, mean {number(stable['z'].mean())}).",
        ),
    ]


def plot_last_layer(config: LastLayers, table: Table, ax: Axes) -> None:
    """Distance against β: law (lines), simulated flows (hollow), the authors' logs (filled)."""
    logs = logged()
    for index, d in enumerate(config.dimensions):
        color, grid = COLOURS[index], np.linspace(0, 1e-3, 101)
        law = [expected_law(d, 1.0, beta, 10 * (d + 3))["law_distance"] for beta in grid]
        ax.plot(1e3 * grid, law, color=color, label=f"law, $d = {d}$")
        own = logs[logs["dimension"] == d]
        for stable, part in own.groupby("stable"):
            style = {"marker": "o" if stable else "x", "linestyle": "", "capsize": 2}
            bars = part["distance_mean"], part["half"]
            ax.errorbar(1e3 * part["beta"], *bars, color=color, markersize=3.5, **style)
        mine = table[table["dimension"] == d]
        hollow = {"marker": "D", "markersize": 7, "markerfacecolor": "none", "linestyle": ""}
        place = 1e3 * mine["beta"]
        ax.errorbar(place, mine["simulated"], mine["half"], color=color, **hollow)
    for marker, label in (("o", "authors' logs"), ("x", "logs, unstable step (E-11)")):
        ax.plot([], [], marker, color=QUIET, label=label)
    ax.plot([], [], "D", color=QUIET, markersize=7, markerfacecolor="none", label="simulated flow")
    ax.set_yscale("log")
    ax.set(xlabel=r"$10^3\,\beta$", ylabel=r"$\|\Theta - \Theta_{\min}\|_F^2$, mean")
    plain_numbers(ax.yaxis)
    legend_beside(ax)


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


def run_gained(config: Gained, depth: int) -> list[dict[str, float]]:
    """‖U(∞) − U(0)‖², to which ‖Θ_⊥(∞) − Θ_⊥(0)‖² is proportional: law, flow and simulation."""
    problem = spiked(5, 40, samples=8, outputs=2, spikes=2, epsilon=0.2).problem
    singular = np.linalg.svd(problem.spectrum.coordinates, compute_uv=False)
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
            "law": lazy_motion(singular, a2, b2, depth),
            "shape": ((depth - 2) / (1 + (depth - 2) * a2)) ** 2,
            "flow": float(np.sum((after - before) ** 2)),
            "kept": float(np.sum(after**2) - np.sum(before**2)),
            "simulated": mean,
            "half": half,
        }
    ]


def gained_questions(config: Gained, table: Table) -> list[Question]:
    """How fast Θ_⊥ grows with depth, and how good the law is."""
    logs = np.log(table[["depth", "flow", "shape", "kept"]])
    slopes = {name: np.polyfit(logs["depth"], logs[name], 1)[0] for name in logs.columns[1:]}
    return [
        Question(
            "exponent",
            "With which power of the depth does what Θ_⊥ gains in training grow?",
            f"Over L = {extent(config.depths)} like L^{number(slopes['flow'])} in the limit of "
            f"width: it is (L−2)²/(1+(L−2)a²)² (slope {number(slopes['shape'])} there), quadratic "
            f"until L is near 2 + 1/a². ‖U‖² itself grows like L^{number(slopes['kept'])}.",
        ),
        Question(
            "law",
            "How close is the leading-order law (X-29)?",
            f"Law over flow of the infinite network: {each('L = {}', _ratio(table, 'law'))}; "
            f"simulated over flow {extent(_ratio(table, 'simulated'))} (width 10⁶, "
            f"{config.runs} networks each, 95 % half-widths "
            f"{extent(table['half'] / table['flow'])}).",
        ),
    ]


def _ratio(table: Table, column: str) -> Table:
    rows = table.set_index("depth")
    return rows[column] / rows["flow"]


def plot_gained(config: Gained, table: Table, ax: Axes) -> None:
    """‖ΔU‖² against depth: the law, its shape, the infinitely wide flow, simulated networks."""
    table = table.sort_values("depth")
    problem = spiked(5, 40, samples=8, outputs=2, spikes=2, epsilon=0.2).problem
    singular = np.linalg.svd(problem.spectrum.coordinates, compute_uv=False)
    grid, a2 = np.geomspace(3, max(config.depths), 100), config.first**2
    law = np.array([lazy_motion(singular, a2, config.last, L) for L in grid])
    shape = ((grid - 2) / (1 + (grid - 2) * a2)) ** 2
    ax.plot(grid, law, color=INK, label="law (X-29)")
    ax.plot(
        grid,
        shape * law[0] / shape[0],
        color=COLOURS[1],
        linestyle="--",
        label=r"$\propto (L-2)^2/(1+(L-2)a^2)^2$",
    )
    ax.plot(table["depth"], table["flow"], linestyle="", label="infinite width", **look(2))
    hollow = {"marker": "D", "markersize": 7, "markerfacecolor": "none", "linestyle": ""}
    simulated = table["depth"], table["simulated"], table["half"]
    ax.errorbar(*simulated, color=COLOURS[0], label=r"simulated, $m = 10^6$", **hollow)
    ax.plot(
        table["depth"], table["kept"], linestyle=":", label=r"$\|U\|^2 - \|U(0)\|^2$", **look(3)
    )
    ax.loglog()
    plain_numbers(ax.xaxis)
    ax.set(xlabel="Depth $L$")
    ax.set_ylabel(r"$\|\Theta_\perp - \Theta_\perp(0)\|^2/(\alpha^2(d-n))$")
    legend_beside(ax)


LAST_LAYERS = grid_experiment(
    "last-layers", LastLayers, run_last_layer, {"dimension": "dimensions", "beta": "betas"},
    runs="runs", bucket="dimension",
)  # fmt: skip
GAINED = grid_experiment(
    "gained-by-depth", Gained, run_gained, {"depth": "depths"}, runs="runs", bucket="depth"
)
X_WIDE = Figure(
    "X-wide",
    "What a wide network keeps beside the data",
    (
        our_panel(
            "X-wide-last-layer",
            "Mean squared distance to the minimum-norm interpolant after training, α = 1, against "
            "β: the law (X-27 at β = 0, X-29 beside it), simulated gradient flow, and the BO "
            "authors' public logs (bars: 95 %).",
            Study(
                "x-wide-last-layer",
                LAST_LAYERS,
                paper=LastLayers((500, 1000, 2000), runs=20),
                quick=LastLayers((500, 1000, 2000), runs=3, betas=(0.0,)),
            ),
            plot_last_layer,
            last_layer_questions,
            size=(6.2, 3.8),
        ),
        our_panel(
            "X-wide-depth",
            "What Θ_⊥ gains in training, against the depth, with its law and its shape scaled to "
            "the law at L = 3; a = 0.05, b² = 504.49.",
            Study(
                "x-wide-depth",
                GAINED,
                paper=Gained((3, 5, 10, 30, 100), runs=24),
                quick=Gained((3, 5, 10, 30), runs=3),
            ),
            plot_gained,
            gained_questions,
            size=(6.2, 3.8),
        ),
    ),
    printed="BO's Figure 1 has the excess risk; what β → 0 leaves is called open in its text.",
    as_run="Last layer: BO's setting (n = 100, q = 3, L = 3, width 10(d + 3)), gradient flow to a "
    "mean loss of 1e-10, data and weights drawn afresh for each run; means of α²(d−n)‖U‖², which "
    "have the same expectation as the distance and less noise (X-25). The law averages over data "
    "by deterministic equivalents (X-32). Depth: one spiked data set (d = 40, n = 8, q = 2).",
)
