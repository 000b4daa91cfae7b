"""Our own questions about small initialization (FM Section 4): its limit, and S/S_min."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_flow
from deeplin.hessian import sharpness
from deeplin.networks import initialize
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.fm_flow import lowering
from deeplin.papers.question import Question, each, extent, number
from deeplin.papers.setting import AUTHORS, DATA_SEEDS, Setting
from deeplin.papers.statistics import mean_interval, slope_interval
from deeplin.papers.style import INK, legend_beside, look, plain_numbers
from deeplin.problems.synthetic import flat_minima
from deeplin.sweep import run_key
from deeplin.theory import (
    balanced_sharpness,
    initialization_scale,
    minimal_sharpness,
    worst_sharpness_ratio,
)


@dataclass(frozen=True)
class SmallStarts:
    """Gaussian starts of several sizes, on several data sets."""

    depth: int
    scales: tuple[float, ...]
    data_seeds: tuple[int, ...]
    seed: int = 0


def run_start(config: SmallStarts, data_seed: int, scale: float) -> pd.DataFrame:
    """The flow to its end: structure of the layers and sharpness."""
    setting = Setting(depth=config.depth, data_seed=data_seed)
    problem = setting.data.problem
    key = run_key(config.seed, data_seed=data_seed, part="small")
    widths = (setting.dimension,) * config.depth + (1,)
    start = lowering(problem, initialize.gaussian(key, widths, scale))
    run = gradient_flow(problem, start, gap=1e-10 * problem.zero_gap)
    parts = [np.linalg.svd(np.asarray(weight)) for weight in run.network.weights]
    aligned = [float((up[2][0] @ low[0][:, 0]) ** 2) for low, up in pairwise(parts)]
    row = {
        "status": str(run.status),
        "epsilon": initialization_scale(start),
        "excess": max(float(np.sum(values[1:] ** 2)) for _, values, _ in parts),
        "misaligned": 1 - min(aligned),
        "sharpness": float(sharpness(problem, run.network).value)
        / balanced_sharpness(problem, config.depth),
    }
    return pd.DataFrame([row])


def questions(config: SmallStarts, table: Table) -> list[Question]:
    """How fast the sharpness tends to S_bal as the start shrinks."""
    apart = (table["sharpness"] - 1).abs().clip(lower=np.finfo(float).eps)
    logs: Any = np.log(pd.DataFrame({"epsilon": table["epsilon"], "apart": apart}))
    # at the smallest starts what is left is the last gap of the flow
    resolved = apart > 1e-9
    slopes = [
        slope_interval(rows["epsilon"], rows["apart"])[0]
        for _, rows in logs[resolved].groupby(table["data_seed"])
        if len(rows) > 2
    ]
    mean, half = mean_interval(slopes)
    least = table["scale"] == min(config.scales)
    return [
        Question(
            "limit",
            "How does the sharpness at the end of the flow depend on the size ε of the start?",
            f"It tends to S_bal (X-3): |S/S_bal − 1| falls like ε to the power {number(mean)} ± "
            f"{number(half)} and is {extent(apart[least])} at the smallest start ({len(slopes)} "
            "data sets).",
        )
    ]


def plot_structure(config: SmallStarts, table: Table, ax: Axes) -> None:
    """Excess rank, misalignment and distance to S_bal against ε, medians over the data sets."""
    cells = table.assign(apart=(table["sharpness"] - 1).abs()).groupby("scale")
    medians = cells.median(numeric_only=True)
    rows = (
        ("excess", r"$\max_k\ \|W_k\|_F^2 - \sigma_k^2$"),
        ("misaligned", r"$1 - \min_k \langle v_{k+1}, u_k\rangle^2$"),
        ("apart", r"$|S/S_{\mathrm{bal}} - 1|$"),
    )
    for index, (column, label) in enumerate(rows):
        # the first is open and larger: where two are at the floor, both show
        style = {"markersize": 8, "markerfacecolor": "none"} if index == 0 else {}
        height = medians[column].clip(lower=1e-15)
        ax.plot(medians["epsilon"], height, label=label, **look(index), **style)
    grid = np.sort(medians["epsilon"])
    ax.plot(grid, grid, color=INK, linestyle=":", linewidth=1, label=r"$\varepsilon$")
    ax.loglog()
    ax.set(xlabel=r"Size of the start $\varepsilon$", ylabel="After training")
    legend_beside(ax)


SMALL_STARTS = grid_experiment(
    "small-starts", SmallStarts, run_start, {"data_seed": "data_seeds", "scale": "scales"}
)
SCALES = (0.1, 0.05, 0.01, 5e-4, 1e-4)
"""ε from about one to a millionth; the last two meet FM-A2."""
STUDY = Study(
    "fm-small",
    SMALL_STARTS,
    paper=SmallStarts(3, SCALES, (AUTHORS, *DATA_SEEDS)),
    quick=SmallStarts(3, SCALES, (AUTHORS, *DATA_SEEDS[:2])),
)


@dataclass(frozen=True)
class Ratios:
    """Where the flow from a vanishing start ends, over S_min, on random data."""

    depths: tuple[int, ...]
    conditions: tuple[float, ...]
    """Condition numbers of the population."""
    data_sets: int
    widths: tuple[int, ...] = (5, 10, 20)
    """Of the hidden layers, at depth 3 and from a small start."""
    seed: int = 0


def run_ratio(config: Ratios, condition: float) -> pd.DataFrame:
    """S_bal/S_min at every depth (X-2, X-3), and of flows at several widths."""
    rows = []
    for k in range(config.data_sets):
        data = flat_minima(k + 1000 * config.seed, condition_number=condition)
        problem = data.problem
        shape = {"data_set": k, "spread": problem.largest_eigenvalue / problem.alignment}
        shape["condition"] = problem.condition_number
        for depth in config.depths:
            ratio = balanced_sharpness(problem, depth) / minimal_sharpness(problem, depth).exact
            rows.append(shape | {"depth": depth, "width": 0, "ratio": ratio})
        for width in config.widths if k == 0 else ():
            key = run_key(config.seed, part="ratio", width=width)
            widths = (problem.dimension, width, width, 1)
            start = lowering(problem, initialize.gaussian(key, widths, 1e-3))
            run = gradient_flow(problem, start, gap=1e-10 * problem.zero_gap)
            ratio = float(sharpness(problem, run.network).value)
            ratio /= minimal_sharpness(problem, 3).exact
            rows.append(shape | {"depth": 3, "width": width, "ratio": ratio})
    return pd.DataFrame(rows).assign(status="converged")


def ratio_questions(config: Ratios, table: Table) -> list[Question]:
    """The abstract's "not on width or depth", as a number."""
    limits, flows = table[table["width"] == 0], table[table["width"] > 0]
    by_depth = limits.groupby("depth")["ratio"]
    spread = flows.groupby("condition")["ratio"].agg(lambda ratio: ratio.max() / ratio.min() - 1)
    bound = (limits["ratio"] / (4 * limits["condition"])).max()
    return [
        Question(
            "ratio",
            "How sharp is the end of small initialization, over S_min, and what does it depend on?",
            f"S_bal/S_min is at most {each('depth {}', by_depth.max())} on {config.data_sets} data "
            f"sets for each of the condition numbers {extent(config.conditions)}: it falls with "
            f"depth. The width changes it by {extent(spread)} of itself. The bound 4Λ/λ of FM-C2 "
            f"is at least {number(1 / bound)} times as large.",
        )
    ]


def plot_ratio(config: Ratios, table: Table, ax: Axes) -> None:
    """S_bal/S_min against Λ/a, with the exact worst ratio (X-18), and flows."""
    limits, flows = table[table["width"] == 0], table[table["width"] > 0]
    grid = np.geomspace(1.001, limits["spread"].max(), 200)
    for index, (depth, rows) in enumerate(limits.groupby("depth")):
        L, style = int(depth), look(index)  # pyright: ignore
        ax.plot(rows["spread"], rows["ratio"], ".", color=style["color"], alpha=0.6)
        ax.plot(grid, worst_sharpness_ratio(L, grid), color=style["color"], label=f"depth {L}")
    ax.plot(flows["spread"], flows["ratio"], "k+", label="flows, depth 3,\nseveral widths")
    ax.plot([], [], color=INK, label="worst ratio (X-18)")
    ax.plot([], [], ".", color=INK, label=r"$S_{\mathrm{bal}}/S_{\min}$, data sets")
    ax.loglog()
    plain_numbers(ax.yaxis)
    ax.set(xlabel=r"$\Lambda/a$", ylabel=r"Sharpness over $S_{\min}$")
    legend_beside(ax)


RATIOS = grid_experiment(
    "sharpness-ratios", Ratios, run_ratio, {"condition": "conditions"}, runs="data_sets"
)
RATIO_STUDY = Study(
    "fm-ratio",
    RATIOS,
    paper=Ratios((3, 5, 10, 40), (1.0, 10.0, 100.0, 1000.0), 50),
    quick=Ratios((3, 5, 10, 40), (1.0, 10.0, 100.0), 10),
)


FM_SMALL = Figure(
    "FM-small",
    "Small initialization: its limit, and how sharp it ends",
    (
        our_panel(
            "FM-small",
            "How the layers and the sharpness end, against the size ε of the start (medians over "
            "the data sets). The sharpness levels off at what the last gap of the flow leaves.",
            STUDY,
            plot_structure,
            questions,
            size=(5.8, 3.5),
        ),
        our_panel(
            "FM-ratio",
            "Sharpness at the end of small initialization over S_min, against Λ/a, for several "
            "depths, with the exact worst ratio; crosses: flows of networks of several widths.",
            RATIO_STUDY,
            plot_ratio,
            ratio_questions,
            size=(5.8, 3.5),
        ),
    ),
    printed="Not drawn in the paper: Lemma 2, Corollaries 1 and 2. The abstract says that the "
    "constant depends on the condition number, but not on width or depth.",
    as_run="FM-small: n = 50, d = 5, depth 3, Gaussian layers, the last with the sign that lowers "
    "the risk (FM-A1), gradient flow to a relative gap of 1e-10, on the authors' data and others "
    "of their recipe. FM-ratio: data of growing condition number; S_bal and S_min are exact (X-2, "
    "X-3), and flows from scale 10⁻³ have hidden layers of width 5, 10 and 20.",
)
