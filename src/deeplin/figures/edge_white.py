"""Sharpness along training on white inputs, where it is known exactly (a part of EOS-early)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.figures.claims import Claim, number, parts
from deeplin.figures.figure import Table
from deeplin.figures.style import COLOURS, look, reference_line
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.sharpness import sharpness
from deeplin.theory import balanced_mode
from deeplin.theory.minimizers import balanced_factors

SIZE, CURVES = 2.0, (0.3, 0.03)
"""Target of the white problem, and products at which its runs start, in units of it."""


def white_problem(dimension: int = 5) -> Problem:
    """Σ̂ = I and a target of norm SIZE without noise."""
    inputs = np.sqrt(dimension) * np.eye(dimension)
    return Problem.from_data(inputs, inputs @ np.full(dimension, SIZE / np.sqrt(dimension)))


def curves(problem: Problem, depth: int) -> pd.DataFrame:
    """Sharpness along descent from balanced weights on white inputs, and on the exact path.

    A rotation and a change of units carry every such problem with one output into every other, so
    `sharpness / exact` is the same on all.
    """
    size = problem.optimum_norm
    direction = np.asarray(problem.optimum).reshape(-1, 1) / size
    rate = 0.01 / (2 * depth * size ** (2 - 2 / depth))
    rows = []
    for share in CURVES:
        start = balanced_factors(share * size * direction, depth, width=len(direction))
        run = gradient_descent(problem, start, rate, 3000, record_every=100, record=("risk",))
        steps = run.records["step"]
        assert run.trajectory is not None  # recorded
        path = balanced_mode(rate * steps, target=size, start=share * size, depth=depth)
        ideal = [balanced_factors(s * direction, depth, width=len(direction)) for s in path]
        layers: Any = zip(*(net.weights for net in ideal), strict=True)
        # each by itself: followed along the run, the eigenvector of a symmetric start is kept where
        # one of another symmetry overtakes
        found = {
            "sharpness": sharpness(problem, Network(run.trajectory.weights)).value,
            "exact": sharpness(problem, Network([np.stack(same) for same in layers])).value,
        }
        columns = {name: np.asarray(value) for name, value in found.items()}
        rows.append(pd.DataFrame({"time": rate * steps, "share": share} | columns))
    return pd.concat(rows, ignore_index=True)


def curve_claim(white: Table) -> Claim:
    """Descent follows the exact curve."""
    off = (white["sharpness"] / white["exact"] - 1).abs()
    return Claim(
        "On white inputs descent follows the exact curve of sharpness of a balanced mode "
        "(X-13): largest relative difference",
        parts("from {} of the target", off.groupby(white["share"]).max()),
        upper=0.05,
        name="exact curve",
        reason="The step is a hundredth of the largest inverse sharpness; while the product "
        "grows tenfold its error grows with it.",
        explanation="One data set stands for all: a rotation and a change of units carry every "
        "problem with white inputs and one output into this one.",
    )


def plot_curves(depth: int, white: Table, ax: Axes) -> None:
    """Sharpness of descent (marks) and of the exact path (lines)."""
    for index, (share, rows) in enumerate(white.groupby("share")):
        label = f"from {number(float(share))} of the target"  # pyright: ignore
        ax.plot(rows["time"], rows["exact"], color=COLOURS[index], linewidth=1)
        ax.plot(rows["time"], rows["sharpness"], label=label, **look(index, linestyle="none"))
    reference_line(ax, 2 * depth * SIZE ** (2 - 2 / depth), r"$S_{\mathrm{bal}}$")
    ax.set(xlabel="Time ηk", ylabel="Sharpness")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
