"""BO-1 and BO-3: excess risk of wide linear networks against the scale of a layer and against d.

One experiment for both, exactly at any width (X-4).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import UnstableStep, simulate_wide
from deeplin.papers.bo_logs import OUTPUTS, SAMPLES, STEP, compared, expected_law, published
from deeplin.papers.figures import Figure, Panel, Study, Table
from deeplin.papers.question import Question, each, extent, number, percent
from deeplin.papers.setting import data_seed
from deeplin.papers.statistics import curve, mean_interval
from deeplin.papers.style import INK, bars, legend_below, look
from deeplin.problems import Population
from deeplin.problems.synthetic import Synthetic, spiked
from deeplin.sweep import Experiment, Unit, run_keys

STABLE = 1500
"""Below this dimension the authors' step is stable for every draw; beyond it see E-11."""


@dataclass(frozen=True)
class WideSweep:
    """Every pair of scales at every dimension, by descent and, from `flow_from` on, also by flow.

    Data, Θ* and the random numbers behind the weights depend on dimension and repetition alone, so
    that scales are compared on the same draws.
    """

    dimensions: tuple[int, ...]
    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    repetitions: int = 20
    flow_from: int = 1600
    """Where the first draws are past the stability limit of descent (E-11)."""
    seed: int = 0


def units(config: WideSweep) -> list[Unit]:
    """One unit for each dimension and dynamics: all its scales and repetitions are one batch."""
    batch = {"alphas": config.alphas, "betas": config.betas, "repetitions": config.repetitions}
    runs = len(config.alphas) * len(config.betas) * config.repetitions
    return [
        Unit({"dimension": dimension, "dynamics": dynamics, **batch}, runs=runs)
        for dimension in config.dimensions
        for dynamics in ("descent", "flow")
        if dynamics == "descent" or dimension >= config.flow_from
    ]


def run_unit(config: WideSweep, unit: Unit) -> pd.DataFrame:
    """Train the batch; exact excess risk, distance to Θ_min, and its part outside the data."""
    cell = unit.coordinates
    d, repetitions = cell["dimension"], range(cell["repetitions"])
    drawn = [data_seed(config.seed, dimension=d, repetition=k, part="data") for k in repetitions]
    data = [spiked(seed, d, samples=SAMPLES, outputs=OUTPUTS) for seed in drawn]
    runs = pd.MultiIndex.from_product(
        (cell["alphas"], cell["betas"], repetitions), names=("alpha", "beta", "repetition")
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
            dynamics=cell["dynamics"],
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
        dynamics=cell["dynamics"],
        status=wide.status,
        steps=wide.steps,
        loss=wide.loss,
        **{name: np.where(wide.status != "diverged", end, np.nan) for name, end in ends.items()},
        interpolant_risk=[float(population.risk(one.optimum)) for population, one in pairs],
        interpolant_norm=[one.optimum_norm for one in problems],
    )


def population_of(data: Synthetic) -> Population:
    """The population that a data set was drawn from."""
    return Population(np.asarray(data.truth), data.spectrum, drawn=True)


WIDE_SWEEP = Experiment("wide-sweep", WideSweep, units, run_unit, grid=("dimensions", "flow_from"))


def width(dimension: int) -> int:
    """m = 10(d + q)."""
    return 10 * (dimension + OUTPUTS)


def expected_distance(alpha: Any, dimension: Any) -> Any:
    """α²(d−n)mq: the squared distance to Θ_min that a random first layer leaves (β = 1)."""
    return alpha**2 * (dimension - SAMPLES) * width(dimension) * OUTPUTS


def faithful(table: Table) -> Any:
    """Runs that follow gradient flow: stable descent, and flow where descent is not stable."""
    return table[(table["dimension"] < STABLE) | (table["dynamics"] == "flow")]


def compared_with_logs(table: Table, figure: str) -> Any:
    """Each cell that the authors logged and we ran, with z of the difference of the means."""
    ours = table[table["dynamics"] == "descent"]
    ours = ours.assign(**{name: ours[name].round(9) for name in ("alpha", "beta")})
    found = ours.groupby(["dimension", "alpha", "beta"])[["distance", "risk"]]
    means, spreads, runs = found.mean(), found.std(), found.size()
    logs = published()
    logs = logs[logs["figure"] == figure]
    logs = logs.assign(**{name: logs[name].round(9) for name in ("alpha", "beta")})
    logs = logs.set_index(["dimension", "alpha", "beta"])
    cells = logs.index.intersection(means.index)
    rows = {}
    for name in ("distance", "risk"):
        theirs = logs.loc[cells, [f"{name}_mean", f"{name}_sd"]].to_numpy().T
        error = (
            theirs[1] ** 2 / logs.loc[cells, "runs"] + spreads.loc[cells, name] ** 2 / runs[cells]
        )
        rows[name] = (means.loc[cells, name] - theirs[0]) / np.sqrt(error)
    return pd.DataFrame(rows, index=cells)


def log_questions(config: WideSweep, table: Table, *, figure: str) -> list[Question]:
    """Whether our cells are those of the authors' logs."""
    z = compared_with_logs(table, figure)
    stable = z[z.index.get_level_values("dimension") < STABLE]
    law = compared()
    law = law[(law["figure"] == figure) & law["stable"]]
    # at the zero scale both are what the loss target leaves: no draw of weights to compare
    some = (stable.reset_index()[["alpha", "beta"]].min(axis=1) > 0).to_numpy()
    stable = stable[some]
    return [
        Question(
            "authors' logs",
            "Are our runs distributed as the authors' logged ones?",
            f"In {len(stable)} cells with a stable step the means differ by z of mean "
            f"{number(stable['distance'].mean())} and sd {number(stable['distance'].std())} for "
            f"the squared distance, {number(stable['risk'].mean())} and "
            f"{number(stable['risk'].std())} for the risk (0 and 1 for runs of the same law; cells "
            "share draws, so their z are related).",
        ),
        Question(
            "law",
            "Does the law without simulation (X-25 to X-29) give the authors' logged distances?",
            f"In {len(law)} cells of this figure with α > 0 and a stable step: z of mean "
            f"{number(law['z'].mean())} and sd {number(law['z'].std())}.",
        ),
        *cross_questions(table),
        *flow_questions(config, table),
    ]


def cross_questions(table: Table) -> list[Question]:
    """How often a random start lowers the risk (BO: "in rare cases")."""
    runs = faithful(table)
    runs = runs[runs["beside"] > 1e-6 * runs["interpolant_norm"] ** 2].dropna(subset=["cross"])
    relative = runs["cross"] / runs["interpolant_risk"]
    mean, half = mean_interval(relative.groupby([runs["dimension"], runs["repetition"]]).mean())
    helped = (runs["added"] + runs["cross"] < 0).mean()
    return [
        Question(
            "cross term",
            "Does a random start ever lower the risk, by the cross term of Θ* and Θ_⊥?",
            f"In {percent(helped)} of {len(runs)} runs the cross term outweighs what Θ_⊥ adds; its "
            f"mean is {number(mean)} ± {number(half)} of the risk of Θ_min (0 by X-25).",
        )
    ]


def flow_questions(config: WideSweep, table: Table) -> list[Question]:
    """Where the authors' step stands for gradient flow (E-11), and the law of the distance."""
    scale = "alpha" if len(config.alphas) > 1 else "beta"
    runs: Any = table[table[scale] == table[scale].max()]
    draws = runs.set_index(["dimension", "repetition", "dynamics"])["distance"].unstack()
    found = []
    if "flow" in draws:
        both = draws.dropna().groupby("dimension").mean()
        found.append(
            Question(
                "descent and flow",
                "Does the step 1e-4 stand for gradient flow at large d?",
                f"The squared distance of descent over that of the flow is "
                f"{each('d = {}', both['descent'] / both['flow'])} (E-11: there the step is past "
                "the stability limit for some draws or all).",
            )
        )
    if scale == "alpha":
        runs = faithful(table.query("alpha > 0"))
        ratio = runs["beside"] / expected_distance(runs["alpha"], runs["dimension"])
        means = ratio.groupby([runs["dimension"], runs["alpha"]]).mean()
        found.append(
            Question(
                "law of the distance",
                "How large is what the first layer leaves outside the data?",
                f"‖Θ_⊥‖² is {extent(means)} times α²(d−n)mq where training follows the flow.",
            )
        )
    return found


def plot_published(ax: Axes, table: Table, figure: str, by: str, column: str, lines: str) -> None:
    """The authors' logged means with 95% intervals, and the law that needs no simulation (X-29)."""
    logs = published()
    logs = logs[(logs["figure"] == figure) & logs["dimension"].isin(table["dimension"].unique())]
    variance = logs["alpha" if "top" in figure else "beta"] ** 2
    for index, (_, cell) in enumerate(logs.assign(variance=variance).groupby(lines)):
        half = 1.96 * cell[f"{column}_sd"] / np.sqrt(cell["runs"])
        style = {"linestyle": "", "marker": "x", "markersize": 6, "zorder": 4, "elinewidth": 0.8}
        colour = look(index)["color"]
        ax.errorbar(cell[by], cell[f"{column}_mean"], half, color=colour, label="_", **style)
        cells: Any = cell[["dimension", "alpha", "beta", "width"]]
        cells = cells.to_dict("records")
        law = pd.DataFrame([expected_law(**one) for one in cells], index=cell.index)
        height = law["law_distance"]
        if column == "risk":
            height = cell["risk_min_norm_mean"] + law["law_added_risk"]
        ax.plot(cell[by], height.where(height > 0), ":", color=colour, linewidth=1, label="_")
    ax.plot([], [], "x", color=INK, label="authors' logs")
    ax.plot([], [], ":", color=INK, linewidth=1, label="law (X-29)")


FLOW = {"linestyle": "-.", "linewidth": 1, "markerfacecolor": "none"}
"""Told apart by its open markers, which the legend names once."""


def plot_against_variance(
    config: WideSweep, table: Table, ax: Axes, *, scale: str, column: str
) -> None:
    """Excess risk or squared distance to Θ_min against α² or β², one curve for each d (BO-1)."""
    for index, dimension in enumerate(config.dimensions):
        runs: Any = table[table["dimension"] == dimension]
        squared = runs.assign(variance=runs[scale] ** 2)
        _dynamics(ax, squared, "variance", column, index, f"$d = {dimension}$")
        if column == "risk":
            level = runs.drop_duplicates("repetition")["interpolant_risk"].mean()
            ax.axhline(level, color=look(index)["color"], linestyle="--", linewidth=1, zorder=1)
    if column == "risk":
        ax.plot([], [], color="0.4", linestyle="--", linewidth=1, label="minimum norm")
    figure = "BO-1-top" if scale == "alpha" else "BO-1-bottom"
    plot_published(ax, table, figure, "variance", column, "dimension")
    label = "Excess risk" if column == "risk" else r"$\|\Theta - \Theta_{\min}\|_F^2$"
    ax.set(xlabel=rf"Initialization variance $\{scale}^2$", ylabel=label)
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    _legend(ax, table)


def plot_risk_against_dimension(config: WideSweep, table: Table, ax: Axes) -> None:
    """Excess risk against d, one curve for each α, and that of Θ_min (BO-3 left)."""
    _against_dimension(config, table, ax, "risk")
    first = table.drop_duplicates(["dimension", "repetition"]).assign(status="interpolant")
    points = curve(first, "dimension", "interpolant_risk")
    # wide and pale: the curves of small α lie on it
    style = {"color": INK, "linewidth": 6, "alpha": 0.2, "zorder": 1}
    ax.plot(points["dimension"], points["mean"], label="minimum norm", **style)
    plot_published(ax, table, "BO-3", "dimension", "risk", "alpha")
    ax.set(ylabel="Excess risk")
    _legend(ax, table)


def plot_distance_against_dimension(config: WideSweep, table: Table, ax: Axes) -> None:
    """Squared distance to Θ_min against d, with the law (BO-3 right)."""
    _against_dimension(config, table, ax, "distance")
    plot_published(ax, table, "BO-3", "dimension", "distance", "alpha")
    ax.set_yscale("log")
    ax.set(ylabel=r"$\|\Theta - \Theta_{\min}\|_F^2$")
    _legend(ax, table)


def _legend(ax: Axes, table: Table) -> None:
    """Below the axes, with one entry for gradient flow where it is drawn."""
    if (table["dynamics"] == "flow").any():
        ax.plot([], [], color=INK, marker="o", label="gradient flow", **FLOW)
    legend_below(ax)


def _against_dimension(config: WideSweep, table: Table, ax: Axes, column: str) -> None:
    for index, alpha in enumerate(config.alphas):
        runs: Any = table[table["alpha"] == alpha]
        _dynamics(ax, runs, "dimension", column, index, rf"$\alpha = {alpha:g}$")
    ax.set(xlabel="Dimension $d$")


def _dynamics(ax: Axes, runs: Table, by: str, column: str, index: int, label: str) -> None:
    """Descent as a line with error bars; flow, where it was computed, as open markers."""
    for dynamics, rows in runs.groupby("dynamics"):
        style = {"label": label} if dynamics == "descent" else FLOW | {"label": f"_{label}, flow"}
        bars(ax, curve(rows, by, column), by, **look(index, **style))


SCALES = tuple(np.linspace(0.0, 1e-3, 10).tolist())
FEWER = (SCALES[0], SCALES[5], SCALES[9])
DIMENSIONS = (500, 1000, 2000)

FIRST_LAYER = Study(
    "bo-1-first-layer",
    WIDE_SWEEP,
    paper=WideSweep(DIMENSIONS, alphas=SCALES, betas=(1.0,)),
    quick=WideSweep(DIMENSIONS, alphas=FEWER, betas=(1.0,), repetitions=4),
)
LAST_LAYER = Study(
    "bo-1-last-layer",
    WIDE_SWEEP,
    paper=WideSweep(DIMENSIONS, alphas=(1.0,), betas=SCALES),
    quick=WideSweep(DIMENSIONS, alphas=(1.0,), betas=FEWER, repetitions=4),
)

UNSTABLE = (
    "At d = 2000 the authors' step is unstable; the open markers show gradient flow. Crosses: the "
    "authors' logs."
)


def _column(row: str, study: Study, scale: str) -> tuple[Panel, Panel]:
    """Excess risk and squared distance against the variance of one layer."""
    layer = "first layer (β = 1)" if scale == "alpha" else "last layer (α = 1)"
    letter = "α²" if scale == "alpha" else "β²"
    plot = partial(plot_against_variance, scale=scale)
    return (
        Panel(
            f"BO-1-{row}",
            f"Excess risk against the variance {letter} of the {layer}. Dashed: the minimum-norm "
            f"interpolant. {UNSTABLE}",
            study,
            partial(plot, column="risk"),
            partial(log_questions, figure=f"BO-1-{row}"),
        ),
        Panel(
            f"BO-1-{row}-right",
            f"Squared distance to the minimum-norm interpolant against {letter}. {UNSTABLE}",
            study,
            partial(plot, column="distance"),
        ),
    )


BO_1 = Figure(
    "BO-1",
    "Wide linear networks: excess risk and distance against the scale of the first and last layer",
    (*_column("top", FIRST_LAYER, "alpha"), *_column("bottom", LAST_LAYER, "beta")),
    printed="n = 100, q = 3, Σ diagonal with 10 eigenvalues 1 and d − 10 eigenvalues 0.01, unit "
    "Θ*, noise N(0, 1), L = 3, width 10(d + q), identity in the middle; gradient descent with step "
    "1e-4 on the squared loss until it is below 1e-7; mean of 20 runs.",
    as_run="The authors' step is on the mean over the n·q entries, capped at 10⁵ steps, and their "
    "risk is measured on 10·d noise-free points. Here the risk is the exact population value, the "
    "networks are trained through their exact reduction to width n + q (X-4, X-5), and every "
    "scale is run on the same 20 draws of data and weights. From d = 1600 on the step is past the "
    "stability limit for a third of the draws and more (E-11): descent as the authors ran it and "
    "gradient flow are both shown.",
)

ALPHAS = (0.0, 1e-4, 1e-3)
DIMENSION = Study(
    "bo-3-dimension",
    WIDE_SWEEP,
    paper=WideSweep(tuple(range(200, 2001, 200)), alphas=ALPHAS, betas=(1.0,)),
    quick=WideSweep((200, 600, 1000, 1400, 2000), alphas=ALPHAS, betas=(1.0,), repetitions=3),
)

BO_3 = Figure(
    "BO-3",
    "Wide linear networks: excess risk and distance against the dimension",
    (
        Panel(
            "BO-3-risk",
            "Excess risk against the dimension d for three scales of the first layer. Open "
            "markers: gradient flow, where the authors' step is unstable.",
            DIMENSION,
            plot_risk_against_dimension,
        ),
        Panel(
            "BO-3-distance",
            "Squared distance to the minimum-norm interpolant. Dotted: the law (X-29). What is "
            "left at α = 0 is what the loss target leaves untrained.",
            DIMENSION,
            plot_distance_against_dimension,
            partial(log_questions, figure="BO-3"),
        ),
    ),
    printed=BO_1.printed + " d from 200 to 2000 in steps of 200; α = 0, 1e-4, 1e-3; β = 1.",
    as_run=BO_1.as_run,
)
