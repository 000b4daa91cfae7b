"""The theorems of both papers, judged by certificates on runs that their hypotheses allow.

The looseness of a bound on a run is a measured number, not a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.certificates.certificate import HOLDS, MEASURED, UNMET, VIOLATED, certify
from deeplin.certificates.registry import THEOREMS
from deeplin.dynamics import Run, gradient_descent, gradient_flow, simulate_wide
from deeplin.networks import Network, initialize
from deeplin.papers.figures import Answers, Table, define_figure, define_panel, define_study
from deeplin.papers.fm_flow import flow_to_minimum, small_start
from deeplin.papers.setting import AUTHORS, Config, Setting, training_start
from deeplin.papers.statistics import number
from deeplin.papers.wide_sweep import population_of
from deeplin.plot_style import QUIET
from deeplin.problems import Population, Problem
from deeplin.problems.synthetic import spiked
from deeplin.sweep import run_key
from deeplin.theory import minimal_sharpness


@dataclass(frozen=True)
class Certified(Config):
    """The kinds of runs, each certified on several data sets."""

    data_seeds: tuple[int, ...]


Certifiable = tuple[Problem, Run | Network, Population | None]
"""A problem, what is certified on it, and the population of its data."""


def small_start_flow(config: Certified, data_seed: int) -> Certifiable:
    """Return a flow from a start so small that FM-A1 and FM-A2 are met, with doubled targets.

    FM-A2 asks for ‖w*‖ ≥ 1, and the authors' data, normalized in float32, have 1 − 9e-8.
    """
    X, y = Setting(data_seed=data_seed).data.problem.require_data("the theorems")
    problem = Problem.from_data(X, 2 * y)
    key = run_key(config.seed, theorem="small", data_seed=data_seed)
    return problem, flow_to_minimum(problem, small_start(problem, key, 3, 1e-4)), None


def residual_flow(config: Certified, data_seed: int) -> Certifiable:
    """Return a flow from a residual start far from the data."""
    problem = Setting(data_seed=data_seed).data.problem
    key = run_key(config.seed, theorem="residual", data_seed=data_seed)
    readout = Setting(initialization="residual").readout(config.seed)
    start = initialize.residual(key, 5, 10, 0.25, readout)
    return problem, flow_to_minimum(problem, start), None


def near_flow(config: Certified, data_seed: int, *, outputs: int = 1) -> Certifiable:
    """Return a flow on data that its residual start nearly explains (FM-T4, C3; T5 if q = d)."""
    key = run_key(config.seed, theorem="near", data_seed=data_seed)
    readout = np.eye(4)[0] if outputs == 1 else None
    start = initialize.residual(key, 4, 6, 0.05, readout)
    rng = np.random.default_rng(abs(data_seed))
    X, away = rng.normal(size=(30, 4)), rng.normal(size=(4, outputs))
    Y = np.asarray(start(X)).reshape(30, outputs) + 1e-12 * X @ away
    problem = Problem.from_data(X, Y)
    run = gradient_flow(problem, start, until=3.0, at=[0.1, 0.5, 1.0, 3.0], record=("gap",))
    return problem, run, None


def authors_descent(config: Certified, data_seed: int) -> Certifiable:
    """Return descent from the start of FM-1c."""
    problem = Setting(data_seed=data_seed).data.problem
    recorded: Any = {"record_every": 50, "record": ("gap",)}
    run = gradient_descent(problem, training_start("FM-1"), 0.02, 4_500, **recorded)
    return problem, run, None


def flattest(config: Certified, data_seed: int) -> Certifiable:
    """Return a minimizer of least sharpness."""
    problem = Setting(data_seed=data_seed).data.problem
    return problem, minimal_sharpness(problem, 10).minimizer, None


def wide_run(
    config: Certified, data_seed: int, *, alpha: float, beta: float, width: int, **options: Any
) -> Certifiable:
    """Return a wide network on spiked data, whose entries have deviations alpha and beta."""
    samples = options.pop("samples", 20)
    seed = data_seed + 100
    spread: Any = {} if samples == 20 else {"epsilon": 0.2}
    data = spiked(seed, 3 * samples, samples=samples, outputs=2, spikes=2, **spread)
    key = jax.random.fold_in(run_key(config.seed, theorem="wide"), seed)
    given = {"dynamics": "flow", "record_every": 10**6} | options
    wide = simulate_wide(data.problem, width, 3, alpha, beta, key, **given)
    return data.problem, wide.as_run(), population_of(data)


LARGE = 30 / 4000**0.5
"""β with β√m = 30 at m = 4000, which meets the hypotheses of BO-T3.2, P5.2 and C3.4 with c = 1."""
RUNS: dict[str, Callable[[Certified, int], Certifiable]] = {
    "flow, small start": small_start_flow,
    "flow, residual start": residual_flow,
    "flow, residual start near the data": near_flow,
    "flow, several outputs near the data": partial(near_flow, outputs=4),
    "descent, FM-1c": authors_descent,
    "flattest minimizer": flattest,
    "flow, wide network": partial(wide_run, alpha=0.005, beta=0.05, width=400),
    "flow, wide, β√m = 30": partial(wide_run, alpha=1e-3 / 4000**0.5, beta=LARGE, width=4000),
    "flow, wide, β = 0": partial(wide_run, alpha=0.05, beta=0.0, width=400),
    "flow, wide, α = 0": partial(wide_run, alpha=0.0, beta=0.05, width=400),
    "descent, wide, β = 6": partial(
        wide_run, alpha=0.005, beta=6.0, width=1000, samples=8, dynamics="descent",
        stable_share=0.2, record_every=1, max_steps=2000, loss_target=1e-12,
    ),
}  # fmt: skip
"""Runs that together meet the hypotheses of the twelve theorems, and of X-27, X-28, X-31."""


def run_certificate(config: Certified, run: str, data_seed: int) -> pd.DataFrame:
    """Return one row for each claim of each statement about a run."""
    problem, found, population = RUNS[run](config, data_seed)
    table = certify(problem, found, population=population, parts=True, scope="all")
    kept: Any = table.table[["id", "title", "kind", "part", "verdict", "left", "right"]]
    kept = kept.assign(judged=table.table.index.isin(table.judged.index))
    return kept.astype({"left": float, "right": float, "part": str})


def judged(table: Table) -> Table:
    """Return the claims that a certificate judged, except statements printed wrongly (errata).

    A claim with an open constant is judged if the run meets its hypotheses with the smallest
    constant for which it also obeys the conclusion (`Certificate.judged`).
    """
    return table[table["judged"] & (table["kind"] != "erratum")]


def count(config: Certified, table: Table) -> dict[str, Any]:
    """Return which of the papers' theorems were judged, on how many runs, and what beside them.

    A theorem is judged on a run that meets the hypotheses of all its claims.
    """
    rows = judged(table)
    missed = table["verdict"].eq(UNMET) | (table["verdict"].eq(MEASURED) & ~table["judged"])
    complete = ~missed.groupby([table["run"], table["data_seed"], table["id"]]).any()
    met = {id for *_, id in complete.index[complete]} & set(rows["id"])
    apart = rows[~rows["id"].isin(THEOREMS)]
    exact = apart["kind"] == "exact result"
    return {
        "theorems": [id for id in THEOREMS if id in met],
        "unmet": [id for id in THEOREMS if id not in met],
        "runs": int(rows.groupby(["run", "data_seed"]).ngroups),
        "violated": sorted(set(rows.loc[rows["verdict"] == VIOLATED, "id"])),
        "lemmas": int(apart.loc[~exact, "id"].nunique()),
        "exact": int(apart.loc[exact, "id"].nunique()),
    }


def looseness(table: Table) -> Any:
    """Return the right over the left side of the tightest claim, by run and statement."""
    rows = table[table["verdict"].isin((HOLDS, VIOLATED)) & (table["kind"] != "erratum")]
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
    """Write a table of the papers' theorems: runs that meet the hypotheses, verdict, tightness."""
    ratios, rows = looseness(table).groupby("id").min(), judged(table)
    ax.set_axis_off()
    columns = (0.0, 0.24, 0.45, 0.72)
    heads = ("Theorem", "Judged on", "Verdict", "Right over left side")
    lines: list[tuple[str, ...]] = [heads]
    for id in THEOREMS:
        mine = rows[rows["id"] == id]
        runs = mine.groupby(["run", "data_seed"]).ngroups
        verdict = VIOLATED if VIOLATED in set(mine["verdict"]) else HOLDS
        measured = mine.loc[mine["verdict"] == MEASURED, "left"]
        side = number(max(ratios[id], 1)) if id in ratios.index else ""  # less is rounding
        if len(measured):
            verdict, side = MEASURED, f"needs c ≥ {number(measured.max())}"
        lines.append((id, f"{runs} run{'' if runs == 1 else 's'}", verdict if runs else "", side))
    for row, line in enumerate(lines):
        for place, text in zip(columns, line, strict=True):
            weight = "bold" if row == 0 or place == 0 else "normal"
            ax.text(place, -row, text, va="center", fontweight=weight, fontsize=10)
        ax.axhline(-row - 0.5, color=QUIET, linewidth=0.5)
    ax.set(xlim=(0, 1.12), ylim=(-len(lines) + 0.4, 0.6))


STUDY = define_study(
    "theorems",
    run_certificate,
    {"run": tuple(RUNS), "data_seed": "data_seeds"},
    paper=Certified((AUTHORS, 10, 11, 12)),
    quick={"data_seeds": (AUTHORS,)},
)


FIGURE = define_figure(
    "Theorems",
    define_panel(
        "Theorems",
        STUDY,
        plot,
        answers,
        size=(5.2, 4.2),
        axes={},
        legend=None,
        ours=True,
        theorems=count,
    ),
)
