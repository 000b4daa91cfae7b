"""Beyond the paper's figures: the theory of small initialisation (FM Section 4), ε from 1 down."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent, gradient_flow
from deeplin.hessian import sharpness
from deeplin.networks import Network, initialize, products
from deeplin.networks.singular_values import extremes_of_layers
from deeplin.papers.claims import POSITIVE, Claim, number, parts
from deeplin.papers.figure import Figure, Panel, Study, Table, grid_experiment
from deeplin.papers.setting import DATA_SEEDS, Setting
from deeplin.papers.statistics import slope_interval
from deeplin.papers.style import INK, legend_beside, look
from deeplin.problems import Problem
from deeplin.sweep import run_key
from deeplin.theory import balanced_sharpness, initialization_scale

SETS = "data set {}"
RATE, SHARED = 1e-3, 40
"""Step of descent beside the flow, and the number of common times."""


@dataclass(frozen=True)
class SmallStarts:
    """Gaussian starts of several sizes, on several data sets."""

    depth: int
    scales: tuple[float, ...]
    data_seeds: tuple[int, ...]
    path_scale: float = 0.05
    """Scale at which descent is compared with the flow along the whole path."""
    seed: int = 0


def run_start(config: SmallStarts, data_seed: int, scale: float) -> pd.DataFrame:
    """The flow to its end: structure of the layers, sharpness, and how far descent strays."""
    setting = Setting(depth=config.depth, data_seed=data_seed)
    problem = setting.data.problem
    key = run_key(config.seed, data_seed=data_seed, part="small")
    start = _start(problem, key, (setting.dimension,) * config.depth + (1,), scale)
    run = gradient_flow(problem, start, gap=1e-10 * problem.zero_gap)
    weights = [np.asarray(weight) for weight in run.network.weights]
    tops = extremes_of_layers(weights)
    sizes = np.array([float(top.largest) for top in tops])
    excess = max(np.sum(w**2) - s**2 for w, s in zip(weights, sizes, strict=True))
    aligned = [float(np.sum(upper.right * lower.left) ** 2) for lower, upper in pairwise(tops)]
    epsilon = initialization_scale(start)
    balanced = balanced_sharpness(problem, config.depth)
    row = {
        "data_seed": data_seed,
        "scale": scale,
        "status": str(run.status),
        "epsilon": epsilon,
        "small": 32 * config.depth * np.sqrt(epsilon) <= 1 and _allowed(problem, start),
        "excess": excess,
        "misaligned": 1 - min(aligned),
        "alignment_bound": epsilon / sizes[1:].min() ** 2,
        "least_size": sizes.min() / (problem.optimum_norm / 2) ** (1 / config.depth),
        "largest_size": sizes.max() / (2 * problem.optimum_norm) ** (1 / config.depth),
        "sharpness": float(sharpness(problem, run.network).value) / balanced,
        "strays": _strays(problem, start, run) if scale == config.path_scale else np.nan,
    }
    return pd.DataFrame([row])


def _start(problem: Problem, key, widths: tuple[int, ...], scale: float) -> Network:
    """Gaussian layers, the last with the sign that lowers the risk (FM-A1).

    With a zero layer, which also meets FM-A1, two layers are rank one and aligned by construction.
    """
    start = initialize.gaussian(key, widths, scale)
    towards = np.asarray(start.product) @ np.asarray(problem.cross_moment).reshape(-1)
    *lower, last = start.weights
    return Network([*lower, np.copysign(1.0, towards) * last])


def _allowed(problem: Problem, start: Network) -> bool:
    """R(W(0)) ≤ R_0, the first part of FM-A1."""
    w = np.asarray(start.product)
    return bool(w @ problem.covariance @ w <= 2 * w @ np.asarray(problem.cross_moment).reshape(-1))


def _strays(problem, start: Network, run) -> float:
    """Largest ‖w_descent(k) − w_flow(ηk)‖/‖w*‖ at common times up to the end of the flow."""
    steps = max(SHARED, int(float(np.max(run.evidence["time"])) / RATE))
    every = max(1, steps // SHARED)
    descent = gradient_descent(problem, start, RATE, steps, record_every=every)
    flow = gradient_flow(
        problem, start, until=RATE * steps, at=RATE * np.asarray(descent.records["step"])[1:]
    )
    trajectories: Any = (descent.trajectory, flow.trajectory)
    count = len(trajectories[1])
    maps = [products.product([np.asarray(w)[-count:] for w in it.weights]) for it in trajectories]
    apart = np.linalg.norm(maps[0] - maps[1], axis=(1, 2))
    return float(apart.max() / problem.optimum_norm)


def _exponent(runs: Table) -> float:
    """Lower end of the 95% interval of the slope of log |S/S_bal − 1| against log ε."""
    apart = (runs["sharpness"] - 1).abs().clip(lower=np.finfo(float).eps)
    slope, half = slope_interval(np.log(runs["epsilon"]), np.log(apart))
    return slope - half


def claims(config: SmallStarts, table: Table) -> list[Claim]:
    """FM-L2, FM-C1, X-3 and the common path, on each data set."""
    by = table["data_seed"]
    small = table[table["small"]]
    least = table[table["scale"] == min(config.scales)].set_index("data_seed")
    return [
        Claim(
            "Layers are nearly rank one (FM-L2 a): largest ‖W_k‖_F² − σ_k² over ε",
            parts(SETS, (table["excess"] / table["epsilon"]).groupby(by).max()),
            upper=1.0,
            name="rank one",
            reason="The bound of the lemma, at every size of the start.",
        ),
        Claim(
            "They align (FM-L2 c): largest 1 − ⟨v_{k+1}, u_k⟩² over its bound ε/σ²",
            parts(SETS, (table["misaligned"] / table["alignment_bound"]).groupby(by).max()),
            upper=1.0,
            name="aligned",
            reason="The bound of the lemma.",
        ),
        Claim(
            "Their norms end between (‖w*‖/2)^{1/L} and (2‖w*‖)^{1/L} (FM-C1), where FM-A2 is met: "
            "smallest and largest in these units",
            {
                "lower bound": small["least_size"].min(),
                "upper bound": 2 - small["largest_size"].max(),
            },
            lower=1.0,
            name="norms",
            reason="The bounds of the corollary (the upper one mirrored at 1).",
            explanation=f"{len(small)} of {len(table)} starts meet FM-A2.",
        ),
        Claim(
            "As ε → 0 the sharpness tends to S_bal (X-3): |S/S_bal − 1| at the smallest start",
            parts(SETS, (least["sharpness"] - 1).abs()),
            upper=1e-3,
            name="S_bal",
            reason="The square root of the smallest ε.",
        ),
        Claim(
            "It gets nearer the smaller ε is: exponent of ε in |S/S_bal − 1|, lower end of its 95% "
            "interval on each data set",
            parts(SETS, {seed: _exponent(runs) for seed, runs in table.groupby("data_seed")}),
            lower=POSITIVE,
            name="nearer with ε",
            reason="An interval that excludes no dependence.",
            known="K-15",
        ),
        Claim(
            "Flow and descent share their path from a small start: largest distance of their maps "
            f"at common times, over ‖w*‖ (η = {number(RATE)})",
            parts(SETS, table.dropna(subset=["strays"]).set_index("data_seed")["strays"]),
            upper=0.05,
            name="one path",
            reason="A twentieth; the difference is of the order of η times the sharpness.",
        ),
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
    paper=SmallStarts(3, SCALES, DATA_SEEDS),
    quick=SmallStarts(3, SCALES, DATA_SEEDS[:3]),
)

FM_SMALL = Figure(
    "FM-small",
    "Beyond the paper: the theory of small initialisation",
    (
        Panel(
            "FM-small",
            "How the layers and the sharpness end, against the size ε of the start (medians over "
            "the data sets). The sharpness levels off at what the last gap of the flow leaves.",
            STUDY,
            plot_structure,
            claims,
            size=(5.8, 3.5),
        ),
    ),
    printed="Not drawn in the paper: Lemma 2, Corollaries 1 and 2.",
    as_run="n = 50, d = 5, depth 3, Gaussian layers, the last with the sign that lowers the risk "
    "(FM-A1), gradient flow to a relative gap of 1e-10, on several data sets of the recipe of "
    "FM-1.",
)
