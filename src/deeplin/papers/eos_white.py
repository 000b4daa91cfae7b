"""Sharpness along training on white inputs, where it is known exactly (a part of EOS-early)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.papers.figures import Study, Table, grid_experiment
from deeplin.papers.question import number
from deeplin.papers.style import COLOURS, look, reference_line
from deeplin.problems import Problem
from deeplin.theory import balanced_mode
from deeplin.theory.minimizers import balanced_factors

SIZE = 2.0
"""Target of the white problem."""


@dataclass(frozen=True)
class White:
    """Descent from balanced weights whose product has some share of the target."""

    depth: int
    shares: tuple[float, ...] = (0.3, 0.03)
    seed: int = 0


def white_problem(dimension: int = 5) -> Problem:
    """Σ̂ = I and a target of norm SIZE without noise."""
    inputs = np.sqrt(dimension) * np.eye(dimension)
    return Problem.from_data(inputs, inputs @ np.full(dimension, SIZE / np.sqrt(dimension)))


def run_cell(config: White, share: float, problem: Problem | None = None) -> dict[str, np.ndarray]:
    """Sharpness along descent from balanced weights on white inputs, and on the exact path.

    A rotation and a change of units carry every such problem with one output into every other, so
    `sharpness / exact` is the same on all.
    """
    problem, depth = problem or white_problem(), config.depth
    size = problem.optimum_norm
    direction = np.asarray(problem.optimum).reshape(-1, 1) / size
    rate = 0.01 / (2 * depth * size ** (2 - 2 / depth))
    start = balanced_factors(share * size * direction, depth, width=len(direction))
    run = gradient_descent(problem, start, rate, 3000, record_every=100, record=("risk",))
    assert run.trajectory is not None  # recorded
    times = rate * run.records["step"]
    path = balanced_mode(times, target=size, start=share * size, depth=depth)
    ideal = [balanced_factors(s * direction, depth, width=len(direction)) for s in path]
    layers: Any = zip(*(net.weights for net in ideal), strict=True)
    # each by itself: followed along the run, the eigenvector of a symmetric start is kept where
    # one of another symmetry overtakes
    return {
        "time": times,
        "sharpness": np.asarray(sharpness(problem, Network(run.trajectory.weights)).value),
        "exact": np.asarray(sharpness(problem, Network([np.stack(w) for w in layers])).value),
    }


def plot(config: White, white: Table, ax: Axes) -> None:
    """Sharpness of descent (marks) and of the exact path (lines)."""
    for index, (share, rows) in enumerate(white.groupby("share")):
        label = f"from {number(float(share))} of the target"  # pyright: ignore
        ax.plot(rows["time"], rows["exact"], color=COLOURS[index], linewidth=1)
        ax.plot(rows["time"], rows["sharpness"], label=label, **look(index, linestyle="none"))
    reference_line(ax, 2 * config.depth * SIZE ** (2 - 2 / config.depth), r"$S_{\mathrm{bal}}$")
    ax.set(xlabel="Time ηk", ylabel="Sharpness")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)


WHITE = grid_experiment("white-sharpness", White, run_cell, {"share": "shares"})
STUDY = Study("eos-white", WHITE, paper=White(depth=4), quick=White(depth=4))
