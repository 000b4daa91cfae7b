"""FM-flow: descent on the path of the gradient flow from a small start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Array
from matplotlib.axes import Axes
from scipy.spatial import KDTree

from deeplin.dynamics import Run, gradient_descent, gradient_flow
from deeplin.networks import Network, initialize
from deeplin.papers.figures import Answers, Table, define_figure, define_panel, define_study
from deeplin.papers.setting import Config, Setting
from deeplin.papers.statistics import number
from deeplin.plot_style import INK, QUIET, name_once, series
from deeplin.problems import Problem
from deeplin.sweep import run_keys
from deeplin.theory import balanced_sharpness

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


def small_start(problem: Problem, keys: Array, depth: int, scale: float) -> Network:
    """Draw Gaussian layers, the last with the sign that lowers the risk (FM-A1)."""
    start = initialize.gaussian(keys, (*[problem.dimension] * depth, 1), scale)
    towards = np.asarray(start.product) @ problem.cross_moment
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
    factor, table = max(config.factors), table[table["status"] != "diverged"]
    top = table[table["factor"] == factor].groupby("scale")["apart"].mean()
    middle = table[np.isclose(table["factor"], REASONABLE)].groupby("scale")["apart"].mean()
    return {"how far apart": {"middle": middle, "factor": factor, "top": top}}


def plot_paths(config: Paths, table: Table, ax: Axes) -> None:
    """Plot largest distance from the flow's curve against the rate, for each scale."""
    for index, (scale, runs) in enumerate(table.groupby("scale")):
        style = series(index, label=f"scale {number(scale)}")
        gone = runs["status"] == "diverged"
        ax.plot(runs["factor"], runs["apart"], ".", color=style["color"], alpha=0.3)
        ax.plot(runs["factor"][gone], runs["apart"][gone], "x", color=style["color"], zorder=4)
        ax.plot(runs[~gone].groupby("factor")["apart"].mean(), **style)
        if gone.any():
            name_once(ax, "diverged, not in the mean", linestyle="", marker="x")
    ax.plot([], [], ".", color=QUIET, alpha=0.5, label="single runs")
    ax.axhline(0.05, color=INK, linestyle=":", linewidth=1, label="a twentieth")


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


FIGURE = define_figure(
    "FM-flow",
    define_panel(
        "FM-flow",
        PATHS,
        plot_paths,
        path_answers,
        size=(4.8, 4.2),
        axes={
            "xlabel": r"Learning rate over $2/S_{\mathrm{bal}}$",
            "ylabel": "Distance from the curve of the\nflow over the size of the weights",
            "xscale": "log",
            "yscale": "log",
        },
        ours=True,
    ),
)
