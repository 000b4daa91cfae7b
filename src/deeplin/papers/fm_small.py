"""Small initialization (FM Section 4): descent on the path of the flow, its limit, and S/S_min.

FM-flow, FM-small, FM-ratio and X-ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Array
from matplotlib.axes import Axes
from scipy.spatial import KDTree

from deeplin.dynamics import Run, gradient_descent, gradient_flow
from deeplin.hessian import sharpness
from deeplin.networks import Network, initialize
from deeplin.papers.figures import Answers, Table, define_study
from deeplin.papers.setting import ALL_DATA, FEW_DATA, Config, Setting
from deeplin.papers.statistics import mean_interval, number, slope_interval
from deeplin.plot_style import COLORS, INK, QUIET, series
from deeplin.problems import Problem
from deeplin.problems.synthetic import flat_minima
from deeplin.sweep import coordinate_words, run_key, run_keys
from deeplin.theory import (
    balanced_sharpness,
    initialization_scale,
    minimal_sharpness,
    worst_sharpness_ratio,
)

REASONABLE = 0.5
"""A reasonably large learning rate, in units of 2/S_bal."""
ON_CURVE = 2_000
"""Number of points on the curve of the flow."""
RECORDS = 2_000
"""Number of records of descent, at the smallest rate."""


@dataclass(frozen=True)
class Paths(Config):
    """The flow and descents at several rates from the same small starts, of several scales."""

    scales: tuple[float, ...]
    factors: tuple[float, ...]
    """Learning rates in units of 2/S_bal."""
    repetitions: int
    depth: int = 3


def run_paths(config: Paths, scale: float) -> pd.DataFrame:
    """Return how far each descent is from the curve of the flow from its start."""
    problem = Setting(depth=config.depth).data.problem
    keys = run_keys(config.seed, [{"path": k} for k in range(config.repetitions)])
    starts = small_start(problem, keys, config.depth, scale)
    ends = gradient_flow(problem, starts, gap=1e-6 * problem.zero_gap)
    time = float(np.max(ends.evidence["time"]))
    flow = gradient_flow(problem, starts, until=time, at=np.linspace(0, time, ON_CURVE)[1:])
    assert flow.trajectory is not None  # requested by `at`
    curves, sizes = _flat(flow.trajectory), np.linalg.norm(_flat(ends.network), axis=-1)
    factors = np.repeat(config.factors, config.repetitions)
    rates = factors * 2 / balanced_sharpness(problem, config.depth)
    steps = int(np.ceil(time / rates.min()))
    copies = Network([np.tile(w, (len(config.factors), 1, 1)) for w in starts.weights])
    run = gradient_descent(
        problem, copies, rates, steps, record_every=max(1, steps // RECORDS), record=("gap",)
    )
    assert run.trajectory is not None  # recorded
    paths, rows = _flat(run.trajectory), []
    for index, factor in enumerate(factors):
        k = index % config.repetitions
        path = paths[:, index]
        apart = KDTree(curves[:, k]).query(path[np.isfinite(path).all(axis=1)])[0].max()
        rows.append({"repetition": k, "factor": factor, "apart": apart / sizes[k]})
    return pd.DataFrame(rows).assign(status=np.asarray(run.status))


def small_start(
    problem: Problem, keys: Array, depth: int, scale: float, width: int | None = None
) -> Network:
    """Draw Gaussian layers, the last with the sign that lowers the risk (FM-A1)."""
    hidden = problem.dimension if width is None else width
    start = initialize.gaussian(keys, (problem.dimension, *[hidden] * (depth - 1), 1), scale)
    towards = np.asarray(start.product) @ np.asarray(problem.cross_moment).reshape(-1)
    *lower, last = start.weights
    return Network([*lower, np.copysign(1.0, towards)[..., None, None] * last])


def flow_to_minimum(problem: Problem, start: Network) -> Run:
    """Integrate gradient flow until the gap is 1e-10 of that of the zero map."""
    return gradient_flow(problem, start, gap=1e-10 * problem.zero_gap)


def _flat(networks) -> np.ndarray:
    """Return all weights of each network in one row."""
    layers = [np.asarray(weight) for weight in networks.weights]
    return np.concatenate([w.reshape(*w.shape[:-2], -1) for w in layers], axis=-1)


def path_answers(config: Paths, table: Table) -> Answers:
    """Answer up to which rate, and from which scale on, descent stays near the flow."""
    factor = max(config.factors)
    top = table[table["factor"] == factor].groupby("scale")["apart"].mean()
    middle = table[np.isclose(table["factor"], REASONABLE)].groupby("scale")["apart"].mean()
    return {"how far apart": {"middle": middle, "factor": factor, "top": top}}


def plot_paths(config: Paths, table: Table, ax: Axes) -> None:
    """Plot largest distance from the flow's curve against the rate, for each scale."""
    for index, (scale, runs) in enumerate(table.groupby("scale")):
        style = series(index, label=f"scale {number(scale)}")
        ax.plot(runs["factor"], runs["apart"], ".", color=style["color"], alpha=0.3)
        ax.plot(runs.groupby("factor")["apart"].mean(), **style)
    ax.axhline(0.05, color=INK, linestyle=":", linewidth=1)


PATHS = define_study(
    "fm-flow",
    run_paths,
    {"scale": "scales"},
    paper=Paths(
        scales=(0.01, 0.03, 0.1, 0.2, 0.4),
        factors=(0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0),
        repetitions=10,
    ),
    quick={"scales": (0.03, 0.1, 0.4), "factors": (0.1, 0.5, 1.0), "repetitions": 3},
    runs="repetitions",
)


@dataclass(frozen=True)
class SmallStarts(Config):
    """Gaussian starts of several sizes, on several data sets."""

    depth: int
    scales: tuple[float, ...]
    data_seeds: tuple[int, ...]


def run_start(config: SmallStarts, data_seed: int, scale: float) -> list[dict[str, Any]]:
    """Integrate the flow to its end and return structure of the layers and sharpness."""
    problem = Setting(data_seed=data_seed).data.problem
    key = run_key(config.seed, data_seed=data_seed, part="small")
    start = small_start(problem, key, config.depth, scale)
    run = flow_to_minimum(problem, start)
    parts = [np.linalg.svd(np.asarray(weight)) for weight in run.network.weights]
    aligned = [float((up[2][0] @ low[0][:, 0]) ** 2) for low, up in pairwise(parts)]
    end = float(sharpness(problem, run.network).value)
    row = {
        "status": str(run.status),
        "epsilon": initialization_scale(start),
        "excess": max(float(np.sum(values[1:] ** 2)) for _, values, _ in parts),
        "misaligned": 1 - min(aligned),
        "sharpness": end / balanced_sharpness(problem, config.depth),
    }
    return [row]


def start_answers(config: SmallStarts, table: Table) -> Answers:
    """Answer how fast the sharpness tends to S_bal as the start shrinks."""
    apart = (table["sharpness"] - 1).abs().clip(lower=np.finfo(float).eps)
    logs: Any = np.log(pd.DataFrame({"epsilon": table["epsilon"], "apart": apart}))
    # at the smallest starts only the final gap of the flow remains
    resolved = apart > 1e-9
    slopes = [
        slope_interval(rows["epsilon"], rows["apart"])[0]
        for _, rows in logs[resolved].groupby(table["data_seed"])
        if len(rows) > 2
    ]
    least = apart[table["scale"] == min(config.scales)]
    return {"limit": {"power": mean_interval(slopes), "least": least, "sets": len(slopes)}}


def plot_structure(config: SmallStarts, table: Table, ax: Axes) -> None:
    """Plot excess rank, misalignment and distance to S_bal against ε (medians over data sets)."""
    cells = table.assign(apart=(table["sharpness"] - 1).abs()).groupby("scale")
    medians = cells.median(numeric_only=True)
    labels = {
        "excess": r"$\max_k\ \|W_k\|_F^2 - \sigma_k^2$",
        "misaligned": r"$1 - \min_k \langle v_{k+1}, u_k\rangle^2$",
        "apart": r"$|S/S_{\mathrm{bal}} - 1|$",
    }
    for index, (column, label) in enumerate(labels.items()):
        # the first is open and larger, so that both are visible at the floor
        style = {"markersize": 8, "markerfacecolor": "none"} if index == 0 else {}
        height = medians[column].clip(lower=1e-15)
        ax.plot(medians["epsilon"], height, label=label, **series(index, **style))
    grid = np.sort(medians["epsilon"])
    ax.plot(grid, grid, color=INK, linestyle=":", linewidth=1, label=r"$\varepsilon$")


SMALL_STARTS = define_study(
    "fm-small",
    run_start,
    {"data_seed": "data_seeds", "scale": "scales"},
    # ε from about one to a millionth; the last two meet FM-A2
    paper=SmallStarts(3, (0.1, 0.05, 0.01, 5e-4, 1e-4), ALL_DATA),
    quick={"data_seeds": FEW_DATA},
)


@dataclass(frozen=True)
class Ratios(Config):
    """Sharpness at the end of the flow from a vanishing start, over S_min, on random data."""

    depths: tuple[int, ...]
    conditions: tuple[float, ...]
    """Condition numbers of the population."""
    data_sets: int
    widths: tuple[int, ...] = (5, 10, 20)
    """Widths of the hidden layers, at depth 3 and from a small start."""


def run_ratio(config: Ratios, condition: float) -> pd.DataFrame:
    """Return S_bal/S_min at every depth (X-2, X-3), and of flows at several widths."""
    rows = []
    for k in range(config.data_sets):
        problem = flat_minima(k + 1000 * config.seed, condition_number=condition).problem
        shape = {"data_set": k, "spread": problem.largest_eigenvalue / problem.alignment}
        shape["condition"] = problem.condition_number
        for depth in config.depths:
            ratio = balanced_sharpness(problem, depth) / minimal_sharpness(problem, depth).exact
            rows.append(shape | {"depth": depth, "width": 0, "ratio": ratio})
        for width in config.widths if k == 0 else ():
            key = run_key(config.seed, part="ratio", width=width)
            run = flow_to_minimum(problem, small_start(problem, key, 3, 1e-3, width))
            ratio = float(sharpness(problem, run.network).value)
            ratio /= minimal_sharpness(problem, 3).exact
            rows.append(shape | {"depth": 3, "width": width, "ratio": ratio})
    return pd.DataFrame(rows).assign(status="converged")


def ratio_answers(config: Ratios, table: Table) -> Answers:
    """Answer the abstract's "not on width or depth" by a number."""
    limits, flows = table[table["width"] == 0], table[table["width"] > 0]
    spread = flows.groupby("condition")["ratio"].agg(lambda ratio: ratio.max() / ratio.min() - 1)
    bound = (4 * limits["condition"] / limits["ratio"]).min()
    most = limits.groupby("depth")["ratio"].max()
    return {"ratio": {"most": most, "spread": spread, "bound": bound}}


def plot_ratio(config: Ratios, table: Table, ax: Axes) -> None:
    """Plot S_bal/S_min against Λ/a, with the exact worst ratio (X-18), and flows."""
    limits, flows = table[table["width"] == 0], table[table["width"] > 0]
    grid = np.geomspace(1.001, limits["spread"].max(), 200)
    for color, (depth, rows) in zip(COLORS, limits.groupby("depth"), strict=False):
        ax.plot(rows["spread"], rows["ratio"], ".", color=color, alpha=0.6)
        ax.plot(grid, worst_sharpness_ratio(depth, grid), color=color, label=f"depth {depth}")
    ax.plot(flows["spread"], flows["ratio"], "k+", label="flows, depth 3,\nseveral widths")
    ax.plot([], [], color=INK, label="worst ratio (X-18)")
    ax.plot([], [], ".", color=INK, label=r"$S_{\mathrm{bal}}/S_{\min}$, data sets")


RATIOS = define_study(
    "fm-ratio",
    run_ratio,
    {"condition": "conditions"},
    paper=Ratios((3, 5, 10, 40), (1.0, 10.0, 100.0, 1000.0), 50),
    quick={"conditions": (1.0, 10.0, 100.0), "data_sets": 10},
    runs="data_sets",
)


KINDS = {
    "random": (".", 2, "random data"),
    "diagonal": ("s", 4, r"$\hat\Sigma = \mathrm{diag}(c, 1)$"),
    "degenerate": ("^", 4, r"$\hat\Sigma = \mathrm{diag}(c, \nu \to 0)$"),
    "FM": ("*", 8, "data of FM-1"),
}
"""Marker, its size and the label of each kind of data."""
VANISHING = 1e-9
"""Second eigenvalue of the degenerate data, which approach r(c) as it goes to 0."""


@dataclass(frozen=True)
class WorstRatios(Config):
    """Data sets with many values of Λ/a, at several depths."""

    depths: tuple[int, ...]
    draws: int
    """Number of random data sets at each depth."""
    spreads: tuple[float, ...] = (1.5, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    """Λ/a of the worst data."""


def run_worst(config: WorstRatios, depth: int, kind: str) -> list[dict[str, float]]:
    """Return S_bal/S_min and Λ/a of each data set of this kind, with the bound of FM-C2."""
    return [
        {
            "spread": problem.largest_eigenvalue / problem.alignment,
            "ratio": balanced_sharpness(problem, depth) / minimal_sharpness(problem, depth).exact,
            "printed": 4 * problem.condition_number,
        }
        for problem in _problems(config, depth, kind)
    ]


def _problems(config: WorstRatios, depth: int, kind: str) -> list[Problem]:
    if kind == "FM":
        return [Setting().data.problem]
    if kind == "random":
        rng = np.random.default_rng(coordinate_words(config.seed, depth=depth, part="ratios"))
        return [_random(rng) for _ in range(config.draws)]
    return [_of_two_inputs(c, degenerate=kind == "degenerate") for c in config.spreads]


def _random(rng: np.random.Generator) -> Problem:
    """Draw two to five inputs of very different variances, and a target in a random direction."""
    d = int(rng.integers(2, 6))
    sizes = 10.0 ** rng.uniform(-1.5, 0.5, d)
    target = 10.0 ** rng.uniform(-2, 1, d) * rng.choice([-1, 1], d)
    return Problem.from_moments(np.diag(sizes**2), sizes**2 * target, sizes**2 @ target**2, 100)


def _of_two_inputs(c: float, *, degenerate: bool) -> Problem:
    """Return Σ̂ = diag(c, ν), a = 1: with ν = 1 and w* = e_2, or with ν → 0."""
    second = VANISHING if degenerate else 1.0
    share = (1 - second) / (c - second) if degenerate else 0.0  # of w* along the first axis
    squares = np.array([share, 1 - share])
    variances = np.array([c, second])
    return Problem.from_moments(
        np.diag(variances), variances * np.sqrt(squares), variances @ squares, 100
    )


def worst_answers(config: WorstRatios, table: Table) -> Answers:
    """Answer whether data exceed the worst case, which attain it, and its gain over FM-C2."""
    pairs = zip(table["depth"], table["spread"], strict=True)
    worst = np.array([worst_sharpness_ratio(int(L), max(c, 1.0)) for L, c in pairs])
    table = table.assign(
        worst=worst, reached=table["ratio"] / worst, saved=table["printed"] / worst
    )
    drawn, ours = (table[table["kind"] == kind] for kind in ("random", "FM"))
    built = table[table["kind"].isin(["diagonal", "degenerate"])]
    attained = built["reached"].groupby([built["depth"], built["spread"].round(6)]).max()
    return {
        "worst case": {"drawn": drawn, "most": drawn["reached"].max(), "attained": attained},
        "beside FM-C2": {
            "printed": drawn["saved"],
            "ratio": ours.set_index("depth")["ratio"],
            "worst": ours["worst"],
            "factor": ours["printed"].iloc[0],
        },
    }


def plot_worst(config: WorstRatios, table: Table, ax: Axes) -> None:
    """Plot the worst case of each depth (curves), random data (dots), the worst data, and FM-C2."""
    c = np.geomspace(1, max(config.spreads), 200)
    table = table[table["spread"] <= c[-1]]
    for color, L in zip(COLORS, config.depths, strict=False):
        ax.plot(c, worst_sharpness_ratio(L, c), color=color, label=f"$L = {L}$")
        for kind, (marker, size, _) in KINDS.items():
            rows = table[(table["depth"] == L) & (table["kind"] == kind)]
            style: dict[str, Any] = {"markersize": size, "alpha": 0.6}
            if kind == "FM":
                style = {"markersize": size, "markeredgecolor": INK}
            ax.plot(rows["spread"], rows["ratio"], marker, color=color, **style)
    ax.plot(c, 4 * c, ":", color=INK, label=r"$4\Lambda/a \leq 4\Lambda/\lambda$ (FM-C2)")
    for marker, size, label in KINDS.values():
        ax.plot([], [], marker, color=QUIET, markersize=size, label=label)
    ax.loglog()
    ax.set_yticks([1, 3, 10, 30, 100, 300], ["1", "3", "10", "30", "100", "300"])
    ax.minorticks_off()


WORST_RATIOS = define_study(
    "x-ratio",
    run_worst,
    {"depth": "depths", "kind": tuple(KINDS)},
    paper=WorstRatios((2, 3, 10, 30, 100), draws=2_000),
    quick={"depths": (2, 3, 10, 100), "draws": 100},
)
