"""Beyond the papers: where the gradient flow from each iterate of descent would end.

That its sharpness falls along descent is a theorem of Kreisler et al. 2023 for scalar networks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.papers.claims import Claim, number, on_data_sets
from deeplin.papers.figure import Figure, Panel, Study, Table, grid_experiment
from deeplin.papers.fm_1 import DATA_SEEDS
from deeplin.papers.setting import DATA_SEED, Setting
from deeplin.papers.style import COLOURS, QUIET, reference_line

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
    data_seeds: tuple[int, ...] = (DATA_SEED,)
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


def claims(config: FlowEnds, table: Table) -> list[Claim]:
    """What the theorem for scalar networks says, asked of matrices."""
    runs, second = rises(table), rises(table, stride=2)
    rate, keys = "{} of the critical rate", ["factor", "data_seed"]
    ends = runs.assign(ratio=runs["last"] / runs["first"], below=runs["last"] <= 1 + LEAST)
    return [
        on_data_sets(
            "Descent lowers the sharpness at which the flow would end (a theorem for scalar "
            "networks): largest share of steps that raise it, over the runs",
            runs.groupby(keys)["share"].max(),
            rate,
            upper=0.0,
            name="monotone",
            reason=f"The theorem leaves no exception; changes below {number(LEAST)} do not count.",
            explanation=f"{(runs['share'] > 0).mean():.0%} of {len(runs)} runs have a step that "
            "raises it.",
            known="K-22",
        ),
        on_data_sets(
            "So it does from each iterate to the second next: largest share of such pairs that "
            "raise it",
            second.groupby(keys)["share"].max(),
            rate,
            upper=0.0,
            name="every second iterate",
            reason="As it was found on one run.",
            explanation=f"{(second['share'] > 0).mean():.0%} of {len(second)} runs have one that "
            "does.",
            known="K-22",
        ),
        on_data_sets(
            "What the rising steps regain is small: largest sum of rises over sum of falls",
            runs.groupby(keys)["regained"].max(),
            rate,
            upper=0.1,
            name="little is regained",
            reason="A tenth of what is lost.",
            explanation=f"Median of the runs: {number(runs['regained'].median())}. Where next to "
            "nothing falls the ratio has no bound.",
            known="K-22",
        ),
        on_data_sets(
            "Every run ends where the flow would end flatter than from its start: largest ratio",
            ends.groupby(keys)["ratio"].max(),
            rate,
            upper=1 + LEAST,
            name="flatter at the end",
            reason="No change, up to accuracy.",
            known="K-22",
        ),
        on_data_sets(
            "The flow from the last iterate ends below the edge: share of runs with at most 2/η",
            ends.groupby(keys)["below"].mean(),
            rate,
            lower=0.95,
            name="below the edge",
            reason="A run that still settles may be above: one in twenty.",
            known="K-3",
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
    ax.set(xlabel="Step of descent", ylabel="Sharpness at the end of the flow, over 2/η")
    ax.legend(loc="center left", bbox_to_anchor=(1.04, 0.8), title="median of the runs")


AXES = {"factor": "factors", "data_seed": "data_seeds"}
FLOW_ENDS = grid_experiment(
    "flow-ends", FlowEnds, run_cell, AXES, runs="repetitions", steps="steps"
)
SETTING = Setting(depth=5)
STUDY = Study(
    "edge-flow",
    FLOW_ENDS,
    paper=FlowEnds(SETTING, 0.4, (0.3, 0.6, 0.9), 300, 100, (DATA_SEED, *DATA_SEEDS)),
    quick=FlowEnds(SETTING, 0.4, (0.3, 0.6, 0.9), 120, 24, (DATA_SEED, *DATA_SEEDS[:2])),
)

EOS_FLOW = Figure(
    "EOS-flow",
    "Beyond the papers: where the flow from each iterate of descent would end",
    (
        Panel(
            "EOS-flow",
            "Sharpness at which the gradient flow from each iterate of descent ends (thin: single "
            "runs on one data set; dashed: medians on the other ten, two in the quick preset).",
            STUDY,
            plot,
            claims,
            size=(6.2, 3.5),
        ),
    ),
    printed="Not drawn in the papers. For scalar networks descent is known to lower the sharpness "
    "of the gradient-flow solution at every step.",
    as_run="n = 50, d = 5, depth 5, Gaussian starts of scale 0.4; from every iterate the gradient "
    "flow is integrated to its minimiser, whose sharpness is exact (X-1). Judged on eleven "
    "data sets (three in the quick preset), from the same starts.",
)
