"""EOS-flow: where the gradient flow from each iterate of descent would end.

That its sharpness falls along descent is a theorem of Kreisler et al. 2023 for scalar networks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, each, number, percent
from deeplin.papers.setting import AUTHORS, DATA_SEEDS, Setting
from deeplin.papers.statistics import mean_interval
from deeplin.papers.style import COLOURS, QUIET, plain_numbers, reference_line

LEAST = 1e-7
"""Relative change that counts: a hundred times what the flows are exact to."""


@dataclass(frozen=True)
class FlowEnds:
    """Descent from many starts at some shares of the critical rate, seen at every step."""

    setting: Setting
    """Its own data set is not used."""
    scale: float
    factors: tuple[float, ...]
    """Learning rates, in units of the critical one."""
    steps: int
    repetitions: int
    data_seeds: tuple[int, ...] = (AUTHORS,)
    """The first is drawn in full."""
    seed: int = 0


def run_cell(config: FlowEnds, factor: float, data_seed: int) -> dict[str, np.ndarray]:
    """The sharpness at the end of the flow from every iterate, over the edge 2/η."""
    setting = replace(config.setting, data_seed=data_seed)
    rate = factor * setting.flattest.critical_learning_rate()
    runs = [{"scale": config.scale, "repetition": k} for k in range(config.repetitions)]
    nets = setting.networks(config.seed, runs, config.scale)
    run = gradient_descent(
        setting.data.problem, nets, rate, config.steps,
        record_every=1, record=("flow_sharpness",), keep_weights=False,
    )  # fmt: skip
    ends = run.records["flow_sharpness"] * rate / 2
    return {
        "repetition": np.tile(np.arange(config.repetitions), len(ends)),
        "step": np.repeat(run.records["step"], config.repetitions),
        "status": np.tile(np.asarray(run.status), len(ends)),
        "end": ends.ravel(),
    }


def rises(table: Table, stride: int = 1) -> Table:
    """For each run: start and end, the share of its steps that rise, and its rise over its fall."""
    rows, keys = [], ["factor", "data_seed", "repetition"]
    for key, run in table[table["status"] != "diverged"].groupby(keys):
        ends = run.sort_values("step")["end"].to_numpy()[::stride]
        change = np.diff(ends) / ends[:-1]
        up = change > LEAST
        fall = -change[change < 0].sum()
        rows.append(
            dict(zip(keys, key, strict=True))
            | {
                "first": ends[0],
                "last": ends[-1],
                "share": np.mean(up) if np.isfinite(ends).all() else np.nan,
                "regained": change[up].sum() / fall if fall > 0 else np.nan,
            }
        )
    return pd.DataFrame(rows)


def questions(config: FlowEnds, table: Table) -> list[Question]:
    """What the theorem for scalar networks says, asked of matrices."""
    runs, second = rises(table), rises(table, stride=2)
    share, half = mean_interval(runs["share"].dropna())
    regained = runs["regained"].dropna()
    sharper = (runs["last"] > runs["first"] * (1 + LEAST)).groupby(runs["factor"]).mean()
    below = (runs["last"] <= 1 + LEAST).groupby(runs["factor"]).mean()
    rate = "η = {} of the critical rate"
    return [
        Question(
            "monotone",
            "Does the sharpness of the flow's end fall at every step, as it does for scalar "
            "networks (Kreisler et al. 2023)?",
            f"No: it rises at {percent(share)} ± {percent(half)} of the steps of a run, and in "
            f"{percent((runs['share'] > 0).mean())} of {len(runs)} runs at some step "
            f"({percent((second['share'] > 0).mean())} from one iterate to the second next). The "
            f"rises make up {percent(regained.median())} of the falls in the median run.",
        ),
        Question(
            "over a run",
            "And over a whole run?",
            f"It ends sharper than at the start in {each(rate, sharper)} of the runs; at most by "
            f"{percent(max((runs['last'] / runs['first'] - 1).max(), 0))}. It ends at most at 2/η "
            f"in {each(rate, below)} of them.",
        ),
    ]


def plot(config: FlowEnds, table: Table, ax: Axes) -> None:
    """Every run, a colour for each rate; medians thick, those of the other data sets dashed."""
    kept = table[table["status"] != "diverged"]
    drawn = kept["data_seed"] == config.data_seeds[0]
    for colour, (_, runs) in zip(COLOURS, kept[~drawn].groupby("factor"), strict=False):
        paths = runs.groupby(["data_seed", "step"])["end"].median().unstack("data_seed")
        ax.plot(paths.index, paths, color=colour, linewidth=0.9, linestyle="--", alpha=0.6)
    for colour, (factor, runs) in zip(COLOURS, kept[drawn].groupby("factor"), strict=False):
        paths = runs.pivot(index="step", columns="repetition", values="end")
        ax.plot(paths.index, paths, color=colour, linewidth=0.5, alpha=0.35)
        label = rf"$\eta = {number(float(factor))}\,\eta_c$"
        ax.plot(paths.index, paths.median(axis=1), color=colour, linewidth=2, label=label)
    ax.plot([], [], color=QUIET, linewidth=0.9, linestyle="--", label="other data sets")
    reference_line(ax, 1.0, "2/η")
    ax.set_yscale("log")
    ax.set_xscale("symlog", linthresh=10)
    ax.set_xlim(0, config.steps)
    ax.set(xlabel="Step of descent", ylabel="Sharpness at the end\nof the flow, over 2/η")
    plain_numbers(ax.yaxis)
    ax.legend(loc="center left", bbox_to_anchor=(1.04, 0.8), title="median of the runs")


AXES = {"factor": "factors", "data_seed": "data_seeds"}
FLOW_ENDS = grid_experiment(
    "flow-ends", FlowEnds, run_cell, AXES, runs="repetitions", steps="steps"
)
SETTING = Setting(depth=5)
STUDY = Study(
    "eos-flow",
    FLOW_ENDS,
    paper=FlowEnds(SETTING, 0.4, (0.3, 0.6, 0.9), 200, 40, (AUTHORS, *DATA_SEEDS)),
    quick=FlowEnds(SETTING, 0.4, (0.3, 0.6, 0.9), 60, 8, (AUTHORS, *DATA_SEEDS[:2])),
)

EOS_FLOW = Figure(
    "EOS-flow",
    "Where the flow from each iterate of descent would end",
    (
        our_panel(
            "EOS-flow",
            "Sharpness at which the gradient flow from each iterate of descent ends (thin: single "
            "runs on one data set; dashed: medians on the other ten, two in the quick preset).",
            STUDY,
            plot,
            questions,
            size=(6.2, 3.5),
        ),
    ),
    printed="Not drawn in the papers. For scalar networks descent is known to lower the sharpness "
    "of the gradient-flow solution at every step.",
    as_run="n = 50, d = 5, depth 5, Gaussian starts of scale 0.4; from every iterate the gradient "
    "flow is integrated to its minimizer, whose sharpness is exact (X-1). Asked of eleven "
    "data sets (three in the quick preset), from the same starts.",
)
