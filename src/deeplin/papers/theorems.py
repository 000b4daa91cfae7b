"""The theorems of both papers, judged by certificates on runs that their hypotheses allow.

The looseness of a bound on a run is a measured number, not a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.certificates.certificate import HOLDS, VIOLATED, certify
from deeplin.dynamics import Run, gradient_descent, simulate_wide
from deeplin.networks import Network, initialize
from deeplin.papers.bo_1 import population_of
from deeplin.papers.figures import Answers, Table, define_study
from deeplin.papers.fm_small import flow_to_minimum, small_start
from deeplin.papers.setting import AUTHORS, Config, Setting, training_start
from deeplin.plot_style import INK, series
from deeplin.problems.synthetic import spiked
from deeplin.sweep import run_key
from deeplin.theory import minimal_sharpness

LOOSE = 1e6
"""Value at which looser bounds are drawn."""


@dataclass(frozen=True)
class Certified(Config):
    """The kinds of runs, each certified on several data sets."""

    data_seeds: tuple[int, ...]


RUNS = (
    *("flow, small start", "flow, residual start", "descent, FM-1c", "flattest minimizer"),
    "flow, wide network",
)


def certified_run(config: Certified, run: str, setting: Setting) -> Run | Network:
    """Return a run on the data of the FM authors, or a network that is certified by itself."""
    problem, data_seed = setting.data.problem, setting.data_seed
    if run == "flow, small start":  # so small that FM-A1 and FM-A2 are met
        key = run_key(config.seed, theorem="small", data_seed=data_seed)
        return flow_to_minimum(problem, small_start(problem, key, 3, 1e-4))
    if run == "flow, residual start":
        key = run_key(config.seed, theorem="residual", data_seed=data_seed)
        readout = Setting(initialization="residual").readout(config.seed)
        return flow_to_minimum(problem, initialize.residual(key, 5, 10, 0.25, readout))
    if run == "descent, FM-1c":
        recorded: Any = {"record_every": 50, "record": ("gap",)}
        return gradient_descent(problem, training_start("FM-1"), 0.02, 4_500, **recorded)
    return minimal_sharpness(problem, 10).minimizer


def run_certificate(config: Certified, run: str, data_seed: int) -> pd.DataFrame:
    """Return one row for each claim of each statement about a run."""
    if run == RUNS[-1]:
        data = spiked(data_seed + 100, 60, samples=20, outputs=2, spikes=2)
        key = jax.random.fold_in(run_key(config.seed, theorem="wide"), data_seed + 100)
        wide = simulate_wide(
            data.problem, 400, 3, 0.005, 0.05, key, dynamics="flow", record_every=10**6
        )
        table = certify(data.problem, wide.as_run(), population=population_of(data), parts=True)
    else:
        setting = Setting(data_seed=data_seed)
        found = certified_run(config, run, setting)
        table = certify(setting.data.problem, found, parts=True)
    kept: Any = table.table[["id", "title", "kind", "part", "verdict", "left", "right"]]
    return kept.astype({"left": float, "right": float, "part": str})


def judged(table: Table) -> Table:
    """Return the claims that a certificate judged, except statements printed wrongly (errata)."""
    return table[table["verdict"].isin([HOLDS, VIOLATED]) & (table["kind"] != "erratum")]


def count(config: Certified, table: Table) -> dict[str, int]:
    """Return how many statements were checked on how many runs, and how many were violated."""
    rows = judged(table)
    return {
        "statements": int(rows["id"].nunique()),
        "runs": int(rows.groupby(["run", "data_seed"]).ngroups),
        "violated": int(rows.loc[rows["verdict"] == VIOLATED, "id"].nunique()),
    }


def looseness(table: Table) -> Any:
    """Return the right over the left side of the tightest claim, by run and statement."""
    rows = judged(table)
    rows = rows[(rows["left"] > 0) & (rows["right"] > 0) & np.isfinite(rows["right"])]
    return (rows["right"] / rows["left"]).groupby([rows["run"], rows["id"]]).min()


def answers(config: Certified, table: Table) -> Answers:
    """Answer how tight the bounds are."""
    ratio = looseness(table).groupby("id").min().sort_values()
    tight = ratio[ratio < 1.1]
    return {
        "looseness": {
            "ratio": ratio,
            "tight": tight,
            "names": ", ".join(tight.index[:12]),
            "loosest": ratio.index[-1],
            "factor": ratio.iloc[-1],
        }
    }


def plot(config: Certified, table: Table, ax: Axes) -> None:
    """Plot the right side over the left side of every bound, on each run."""
    ratio = looseness(table)
    statements = ratio.groupby("id").min().sort_values().index
    for index, (run, values) in enumerate(ratio.clip(1, LOOSE).groupby("run")):
        places = statements.get_indexer(values.index.get_level_values("id"))
        ax.plot(values, places, label=str(run), **series(index, linestyle="", alpha=0.8))
    ax.axvline(1, color=INK, linestyle=":", linewidth=1)
    ax.set_yticks(range(len(statements)), statements, fontsize=6.5)
    ax.invert_yaxis()


STUDY = define_study(
    "theorems",
    run_certificate,
    {"run": RUNS, "data_seed": "data_seeds"},
    paper=Certified((AUTHORS, 10, 11, 12)),
    quick={"data_seeds": (AUTHORS,)},
)
