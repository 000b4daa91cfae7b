"""EOS-life: one run below, at and above the critical learning rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import central_flow, gradient_descent
from deeplin.hessian import sharpness
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, each, extent
from deeplin.papers.setting import AUTHORS, DATA_SEEDS, Setting
from deeplin.papers.style import COLOURS, INK, QUIET, reference_line
from deeplin.theory import network_orbit

PLACES = {0.7: "below", 1.0: "at", 1.1: "above"}
"""Rates in units of the critical one, by name."""
EARLY, SETTLING = 20, 10
"""Steps in which the sharpness first rises; steps before the central flow is compared."""


@dataclass(frozen=True)
class Life:
    """One start, trained at three rates on several data sets and seen at every step."""

    setting: Setting
    """Its own data set is not used."""
    scale: float
    repetition: int
    steps: int
    central_steps: int
    data_seeds: tuple[int, ...] = (AUTHORS,)
    """The first is drawn in full."""
    seed: int = 0


def run_cell(config: Life, factor: float, data_seed: int) -> pd.DataFrame:
    """Everything that is known of the run, at every step, in units of the edge 2/η."""
    setting = replace(config.setting, data_seed=data_seed)
    problem, rate = setting.data.problem, factor * setting.flattest.critical_learning_rate()
    one = [{"scale": config.scale, "repetition": config.repetition}]
    net = jax.tree.map(lambda leaf: leaf[0], setting.networks(config.seed, one, config.scale))
    names = ("gap", "eigenvalues", "flow_sharpness")
    run = gradient_descent(problem, net, rate, config.steps, record_every=1, record=names)
    records, edge = run.records, 2 / rate
    averaged = central_flow(problem, net, rate, config.central_steps).records
    orbit = network_orbit(problem, run.network, rate)
    low, high = (float(sharpness(problem, network).value) / edge for network in orbit.networks)
    values = enumerate(records["eigenvalues"].T / edge, start=1)
    return pd.DataFrame({"step": records["step"], "gap": records["gap"]}).assign(
        **{f"eigenvalue{index}": value for index, value in values},
        flow=records["flow_sharpness"] / edge,
        minimal=setting.flattest.exact / edge,
        central=pd.Series(averaged["sharpness"] / edge),
        modes=orbit.modes,
        multiplier=orbit.multiplier,
        orbit_found=orbit.converged,
        orbit_gap=np.mean(orbit.risks) - problem.minimal_risk,
        orbit_low=low,
        orbit_high=high,
    )


def _of(table: Table, value, place: str = "") -> dict[tuple[str, int], Any]:
    """A number for each rate (or one of them), by its name, and data set."""
    runs = table.groupby(["factor", "data_seed"])
    named = {(PLACES[float(factor)], seed): run for (factor, seed), run in runs}
    return {key: value(run) for key, run in named.items() if place in ("", key[0])}


def _orbit_error(run: Table) -> float:
    """|mean gap of the last two steps over that of the orbit − 1|."""
    return abs(run["gap"].iloc[-2:].mean() / run["orbit_gap"].iloc[-1] - 1)


def _central_error(run: Table) -> float:
    """Median |mean of two consecutive sharpnesses over that of the central flow − 1|."""
    known = run.dropna(subset=["central"])
    pairs = known["eigenvalue1"].rolling(2).mean().shift(-1)
    return float((pairs / known["central"] - 1).abs().iloc[SETTLING:].median())


def questions(config: Life, table: Table) -> list[Question]:
    """The stages of a run, over the data sets."""
    first, rate = "eigenvalue1", "{} the critical rate"

    def by_place(value: Any, summary: Any = np.max) -> dict[str, float]:
        found = _of(table, value)
        return {
            p: float(summary([v for (q, _), v in found.items() if q == p])) for p in PLACES.values()
        }

    early = by_place(lambda run: run[first].iloc[1:EARLY].max() / run[first].iloc[0], np.min)
    ends = by_place(lambda run: run["flow"].iloc[-1] / max(1.0, run["minimal"].iloc[-1]))
    above = _of(table, _orbit_error, "above").values()
    multiplier = _of(table, lambda run: run["multiplier"].iloc[-1], "above").values()
    return [
        Question(
            "sharpens",
            f"Does the sharpness rise in the first {EARLY} steps?",
            f"The largest over that of the start is at least {each(rate, early)}: where the flow "
            "would end hardly sharper than the start there is nothing to gain.",
        ),
        Question(
            "where it ends",
            "Does descent lower where the flow would end until that is stable, or as flat as "
            "can be?",
            f"The flow's sharpness at the end over the larger of 2/η and S_min is at most "
            f"{each(rate, ends)}.",
        ),
        Question(
            "central flow",
            "How well does the central flow follow the sharpness averaged over two steps?",
            f"Within {each(rate, by_place(_central_error))} in the median of its steps from step "
            f"{SETTLING} on: above the critical rate descent swings too widely for it, and "
            "below it the first steps, from above 2/η, land beside the path of any flow.",
        ),
        Question(
            "orbit",
            "Does a run above the critical rate end on an orbit of period two?",
            f"The mean gap of its last two steps is within {extent(above)} of that of the orbit, "
            f"whose largest multiplier of two steps is {extent(multiplier)}.",
        ),
    ]


def plot(factor: float, config: Life, table: Table, ax: Axes) -> None:
    """Top five eigenvalues, flow sharpness, central flow and orbit, over 2/η."""
    here, drawn = table["factor"] == factor, table["data_seed"] == config.data_seeds[0]
    run, others = table[here & drawn], table[here & ~drawn]
    for index in range(5, 1, -1):
        label = "second to fifth eigenvalue" if index == 2 else None
        ax.plot(run["step"], run[f"eigenvalue{index}"], color=QUIET, linewidth=0.7, label=label)
    ax.plot(run["step"], run["eigenvalue1"], color=COLOURS[0], linewidth=1, label="sharpness")
    ax.plot(run["step"], run["flow"], color=COLOURS[1], label="where the flow would end")
    for seed, other in others.groupby("data_seed"):
        label = "the same, other data sets" if seed == others["data_seed"].max() else None
        style: dict[str, Any] = {"color": COLOURS[1], "linewidth": 0.8, "alpha": 0.4, "zorder": 1.5}
        ax.plot(other["step"], other["flow"], label=label, **style)
    ax.plot(run["step"], run["central"], color=COLOURS[2], linestyle="--", label="central flow")
    if factor > 1:
        for name, label in (("orbit_low", "orbit"), ("orbit_high", None)):
            height = run[name].iloc[-1]
            ax.axhline(height, color=COLOURS[3], linestyle="-.", linewidth=1, label=label)
    reference_line(ax, 1.0, "2/η")
    flattest = run["minimal"].iloc[-1]
    if abs(flattest - 1) > 0.05:
        reference_line(ax, flattest, r"$S_{\mathrm{min}}$", color=INK, linestyle="--")
    ax.set_xscale("symlog", linthresh=20)
    ax.set_xlim(0, config.steps)
    ax.set_ylim(bottom=min(0, run["eigenvalue5"].min()))
    ax.set(xlabel="Step of descent", ylabel="Eigenvalues of the Hessian, over 2/η")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)


AXES = {"factor": tuple(PLACES), "data_seed": "data_seeds"}
LIFE = grid_experiment("life", Life, run_cell, AXES, steps="steps")
STUDY = Study(
    "eos-life",
    LIFE,
    paper=Life(Setting(depth=3), 0.3, 3, 1000, 200, (AUTHORS, *DATA_SEEDS)),
    quick=Life(Setting(depth=3), 0.3, 3, 300, 30, (AUTHORS, *DATA_SEEDS[:2])),
)

EOS_LIFE = Figure(
    "EOS-life",
    "A run below, at and above the critical rate",
    tuple(
        our_panel(
            f"EOS-life-{place}",
            f"One run at {'' if factor == 1 else f'{factor} times '}the critical rate: sharpness, "
            "the next four eigenvalues, where the flow would end, central flow"
            f"{' and orbit' if factor > 1 else ''}. Light: the same start on the other ten data "
            "sets (two in the quick preset).",
            STUDY,
            partial(plot, factor),
            questions if place == "below" else lambda config, table: (),
            size=(4.8, 4.2),
        )
        for factor, place in PLACES.items()
    ),
    printed="Not drawn in the papers, which show the sharpness of single runs (FM-1c, FM-1d).",
    as_run="n = 50, d = 5, depth 3, one Gaussian start of scale 0.3; the same start at three "
    "rates. The central flow is integrated for the first steps only. Asked of eleven data sets "
    "(three in the quick preset), from the same start.",
)
