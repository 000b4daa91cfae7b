"""FM-flow: gradient flow and gradient descent from small starts, up to the rate 2/S_bal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy.spatial import KDTree

from deeplin.dynamics import gradient_descent, gradient_flow
from deeplin.networks import Network, initialize
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, each, number
from deeplin.papers.quote import Part, mean_of
from deeplin.papers.setting import Setting
from deeplin.papers.style import INK, legend_beside, look
from deeplin.sweep import run_keys
from deeplin.theory import balanced_sharpness

REASONABLE = 0.5
"""In units of 2/S_bal: a reasonably large rate."""
ON_CURVE = 2_000
"""Points on the curve of the flow."""
RECORDS = 2_000
"""Of descent, at the smallest rate."""


@dataclass(frozen=True)
class Paths:
    """The flow and descents at several rates from the same small starts, of several scales."""

    scales: tuple[float, ...]
    factors: tuple[float, ...]
    """Learning rates in units of 2/S_bal."""
    repetitions: int
    depth: int = 3
    seed: int = 0


def run_scale(config: Paths, scale: float) -> pd.DataFrame:
    """How far each descent strays from the curve of the flow from its start."""
    setting = Setting(depth=config.depth)
    problem = setting.data.problem
    widths = (setting.dimension,) * config.depth + (1,)
    keys = run_keys(config.seed, [{"path": k} for k in range(config.repetitions)])
    starts = lowering(problem, initialize.gaussian(keys, widths, scale))
    ends = gradient_flow(problem, starts, gap=1e-6 * problem.zero_gap)
    time = float(np.max(ends.evidence["time"]))
    flow = gradient_flow(problem, starts, until=time, at=np.linspace(0, time, ON_CURVE)[1:])
    assert flow.trajectory is not None  # asked for by `at`
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


def lowering(problem, start: Network) -> Network:
    """The start with the sign of its last layer that lowers the risk (FM-A1)."""
    towards = np.asarray(start.product) @ np.asarray(problem.cross_moment).reshape(-1)
    *lower, last = start.weights
    return Network([*lower, np.copysign(1.0, towards)[..., None, None] * last])


def _flat(networks) -> np.ndarray:
    """All weights of each network in one row."""
    layers = [np.asarray(weight) for weight in networks.weights]
    return np.concatenate([w.reshape(*w.shape[:-2], -1) for w in layers], axis=-1)


def same_trajectory(config: Paths, table: Table) -> list[Part]:
    """From the smallest scale up to a reasonable rate: largest distance from the flow's curve."""
    runs = table[(table["scale"] == min(config.scales)) & (table["factor"] <= REASONABLE)]
    return [
        mean_of(f"η = {number(factor)} · 2/S_bal", group["apart"], upper=0.05)
        for factor, group in runs.groupby("factor")
    ]


def questions(config: Paths, table: Table) -> list[Question]:
    """Up to which rate, and from which scale on."""
    top = table[table["factor"] == max(config.factors)].groupby("scale")["apart"].mean()
    mid = table[np.isclose(table["factor"], REASONABLE)].groupby("scale")["apart"].mean()
    return [
        Question(
            "how far apart",
            "How far does descent stray from the flow, and does the scale matter?",
            f"At half of 2/S_bal by {each('scale {}', mid)} of the size of the final weights, at "
            f"{number(max(config.factors))} of it by {each('scale {}', top)}.",
        )
    ]


def plot(config: Paths, table: Table, ax: Axes) -> None:
    """Largest distance from the flow's curve against the rate, for each scale."""
    for index, (scale, runs) in enumerate(table.groupby("scale")):
        means = runs.groupby("factor")["apart"].mean()
        style = look(index, label=f"scale {number(float(scale))}")  # pyright: ignore
        ax.plot(runs["factor"], runs["apart"], ".", color=style["color"], alpha=0.3)
        ax.plot(means.index, means, **style)
    ax.axhline(0.05, color=INK, linestyle=":", linewidth=1)
    ax.loglog()
    ax.set(
        xlabel=r"Learning rate over $2/S_{\mathrm{bal}}$",
        ylabel="Distance from the curve of the\nflow over the size of the weights",
    )
    legend_beside(ax)


PATHS = grid_experiment("paths", Paths, run_scale, {"scale": "scales"}, runs="repetitions")
FACTORS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
STUDY = Study(
    "fm-flow",
    PATHS,
    paper=Paths((0.01, 0.03, 0.1, 0.2, 0.4), FACTORS, 10),
    quick=Paths((0.03, 0.1, 0.4), (0.1, 0.5, 1.0), 3),
)
FM_FLOW = Figure(
    "FM-flow",
    "Gradient flow and gradient descent on one path",
    (
        our_panel(
            "FM-flow",
            "How far the weights of descent stray from the curve of the gradient flow from the "
            "same start, for learning rates up to 2/S_bal. Dotted: a twentieth.",
            STUDY,
            plot,
            questions,
            size=(5.8, 3.5),
        ),
    ),
    printed="Said in FM, Appendix C, without a figure: up to a reasonably large learning rate both "
    "should follow the same trajectory from a small start.",
    as_run="The authors' data at depth 3, Gaussian layers of several scales, the last with the "
    "sign that lowers the risk (FM-A1). S_bal is the sharpness of the balanced minimizer, where "
    "the flow from a vanishing start ends (X-3).",
)
