"""What the papers claim about a scale sweep, in their own terms: for every η and every scale."""

from __future__ import annotations

import numpy as np
import pandas as pd

from deeplin.papers.claims import Claim, number, parts
from deeplin.papers.figure import Table
from deeplin.papers.scale_sweep import DataSets, ScaleSweep
from deeplin.papers.statistics import TREND_LEVEL, largest_difference, trend

DEAD = 1e-3
"""Final sharpness, in units of 2/η, below which no unit of a network is on any more."""
LEARNED = 0.01
"""A network with ‖w − w*‖² below this (the zero map has 1) has learned."""
RATE = "η = {}"
AT_THE_EDGE = 0.9
"""In units of 2/η: sharpness that is "at" 2/η. The rates differ by factors of 1.4 and more."""


def distance_claims(config: ScaleSweep, table: Table) -> list[Claim]:
    """Training succeeds below and fails above a critical rate that the scale does not move."""
    critical = config.setting.flattest.critical_learning_rate()
    below = table[table["learning_rate"] < critical]
    above = table[table["learning_rate"] > critical]
    survivors = below[below["status"] != "diverged"]
    learned = (below["distance"] < LEARNED).groupby(below["scale"])
    alive = (below["status"] != "diverged").groupby(below["scale"]).sum()
    counts = ", ".join(f"{n} of {learned.size().iloc[0]}" for n in alive)
    return [
        Claim(
            f"Training succeeds below the critical rate 2/S_min = {number(critical)}, whatever the "
            "scale: share of all runs that end at w*, at each scale",
            parts("scale {}", learned.mean()),
            lower=0.95,
            name="succeeds below",
            reason="Nineteen of twenty, the printed repetitions of a cell.",
            explanation=f"Runs that do not diverge, from the smallest scale up: {counts}.",
            known="K-1",
        ),
        Claim(
            "Below it every run that does not diverge ends at w*: largest squared distance",
            parts(RATE, survivors.groupby("learning_rate")["distance"].max()),
            upper=LEARNED,
            name="survivors learn",
            reason="A hundredth of the zero map's distance; the slowest mode needs more steps for "
            "less.",
            explanation=f"{len(survivors)} of {len(below)} runs survive.",
        ),
        Claim(
            "Above it training fails: share of all runs that settle",
            (above["status"] == "converged").mean() if len(above) else np.nan,
            upper=0.0,
            name="fails above",
            reason="No minimiser is stable there (FM-crit with X-2).",
            explanation=f"Of {len(above)} runs {int((above['distance'] < LEARNED).sum())} are near "
            "w* when training stops: a wandering run may pass by.",
        ),
    ]


def sharpness_claims(
    config: ScaleSweep, table: Table, *, below: float = np.inf, upper_bound: bool = False
) -> list[Claim]:
    """Small scales end at a value independent of η, large ones at 2/η; none below S_min."""
    table = table[table["learning_rate"] < below]
    settled = table[table["status"] == "converged"]
    least = config.setting.flattest.exact
    return [
        *small_scale_claims(config, table, upper_bound),
        *edge_claims(config, table),
        plateau_claim(table),
        Claim(
            "No minimiser found is flatter than the exact S_min (X-2): smallest final sharpness "
            "over S_min",
            parts(RATE, settled.groupby("learning_rate")["sharpness"].min() / least),
            lower=1 - 1e-6,
            name="S_min",
            reason="A theorem; 1e-6 is how far a converged run may be from its minimiser.",
        ),
    ]


def small_scale_claims(config: ScaleSweep, table: Table, upper_bound: bool = False) -> list[Claim]:
    """At the smallest scale the sharpness after training does not depend on η."""
    smallest = table[(table["scale"] == table["scale"].min()) & (table["status"] != "diverged")]
    ends = smallest.pivot_table(index="repetition", columns="learning_rate", values="sharpness")
    claims = [
        Claim(
            "From the smallest scale the sharpness after training does not depend on η: largest "
            "relative difference between two rates, upper end of its paired 95% interval",
            largest_difference(ends),
            upper=0.1,
            name="independent of η",
            reason="An equivalence test: a tenth, where the thresholds 2/η differ by factors.",
            explanation=f"{len(ends.dropna())} starts, the same for every rate.",
        )
    ]
    if upper_bound:
        least = config.setting.flattest.exact
        claims.append(
            Claim(
                "It lies between S_min and 8LΛ (FM-C2): smallest and largest over S_min",
                {
                    "the smallest": smallest["sharpness"].min() / least,
                    "the largest": smallest["sharpness"].max() / least,
                },
                lower=1.0,
                upper=config.setting.upper_bound / least,
                name="inside the bounds",
                reason="The bounds of FM-C2, with the exact S_min.",
            )
        )
    return claims


def edge_claims(config: ScaleSweep, table: Table, known: str = "") -> list[Claim]:
    """Training succeeds from a start far above 2/η (catapult), and no run ends above it."""
    problem = config.setting.data.problem
    settled = table[table["status"] != "diverged"]
    learned = settled["risk"] - problem.minimal_risk < LEARNED * problem.zero_gap
    height = settled["sharpness"] * settled["learning_rate"] / 2
    start = settled["initial_sharpness"] * settled["learning_rate"] / 2
    by = settled["learning_rate"]
    return [
        Claim(
            "Training succeeds although it starts far above 2/η (catapult): largest initial "
            "sharpness of a run that ends below a hundredth of the zero map's gap, in units of 2/η",
            parts(RATE, start[learned].groupby(by).max()),
            lower=3.0,
            name="catapult",
            reason="On a quadratic every start above 1 diverges; three is far from it.",
            known="K-14",
        ),
        Claim(
            "No run ends above 2/η: largest final sharpness of a run, in units of 2/η",
            parts(RATE, height.groupby(by).max()),
            upper=1.0,
            name="not above 2/η",
            reason="The printed threshold itself.",
            explanation="Largest mean of a scale and rate: "
            f"{number(height.groupby([settled['scale'], by]).mean().max())}.",
            known=known,
        ),
    ]


def plateau_claim(table: Table) -> Claim:
    """Runs that start above 2/η end at it, for every η."""
    settled = table[table["status"] != "diverged"]
    start = settled["initial_sharpness"] * settled["learning_rate"] / 2
    end = (settled["sharpness"] * settled["learning_rate"] / 2)[start > 1]
    dead = int((end < DEAD).sum())
    told = f"{len(end)} runs start above 2/η and survive."
    if dead:
        told += f" The catapult kills {dead} of them (K-4); the mean of the others is "
        told += f"{number(end[end >= DEAD].mean())}."
    return Claim(
        "Runs that start above 2/η end at it, for every η: mean final sharpness in units of 2/η",
        parts(RATE, end.groupby(settled["learning_rate"]).mean()),
        lower=AT_THE_EDGE,
        upper=1.05,
        name="plateau at 2/η",
        reason="A tenth below and half of it above, where the thresholds differ by factors.",
        explanation=told,
        known="K-2",
    )


def divergence_claims(config: ScaleSweep, table: Table) -> list[Claim]:
    """The probability of divergence grows with the scale and with η."""
    runs = table.assign(diverged=(table["status"] == "diverged").astype(float))
    critical = config.setting.flattest.critical_learning_rate()
    smallest = (runs["scale"] == runs["scale"].min()) & (runs["learning_rate"] < critical)
    corner = (runs["scale"] == runs["scale"].max()) & (
        runs["learning_rate"] == runs["learning_rate"].max()
    )
    return [
        _growth_claim(runs, "scale", "learning_rate", "It grows with the scale, at every η"),
        _growth_claim(runs, "learning_rate", "scale", "It grows with η, at every scale"),
        Claim(
            "No run diverges at the smallest scale below the critical rate: share of them",
            runs.loc[smallest, "diverged"].mean(),
            upper=0.0,
            name="none at the smallest scale",
            reason="None of the runs: all of them start below 2/η.",
        ),
        Claim(
            "At the largest scale and η runs do diverge: share of them",
            runs.loc[corner, "diverged"].mean(),
            lower=0.5,
            name="many at the largest scale",
            reason="More often than not.",
        ),
    ]


def _growth_claim(runs: Table, by: str, within: str, sentence: str) -> Claim:
    """A trend test along `by` for each value of `within`."""
    found = {
        value: trend(cell["diverged"].to_numpy(), cell[by].to_numpy())
        for value, cell in runs.groupby(within)
    }
    return Claim(
        f"{sentence}: largest p-value of Kendall's one-sided test",
        parts(RATE if by == "scale" else "scale {}", found),
        upper=TREND_LEVEL / len(found),
        name="grows with the scale" if by == "scale" else "grows with η",
        reason=f"Level {TREND_LEVEL} for all parts together; a flat curve has p = 1.",
        known="K-9",
    )


def conditioning_claim(residual: Table, gaussian: Table) -> Claim:
    """Residual networks start better conditioned than Gaussian ones."""
    decades = [
        np.ptp(np.log10(pd.Series(table["initial_sharpness"]).quantile([0.025, 0.975])))
        for table in (residual, gaussian)
    ]
    return Claim(
        "Residual networks start better conditioned: decades of initial sharpness (95% of the runs "
        "of all scales) of the Gaussian starts of FM-1, less those of the residual starts",
        decades[1] - decades[0],
        lower=1.0,
        name="better conditioned",
        reason="A factor of ten.",
        explanation=f"{number(decades[0])} decades from residual starts, {number(decades[1])} from "
        "Gaussian ones.",
    )


def general_claims(config: DataSets, table: Table) -> list[Claim]:
    """What FM says about any regression, on each data set."""
    by = table["data_seed"]
    below, above = table["relative_rate"] < 1, table["relative_rate"] > 1
    settled = table["status"] != "diverged"
    height = table["sharpness"] * table["learning_rate"] / 2
    survivors = table[below & settled]
    converged = table[table["status"] == "converged"]
    return [
        Claim(
            "On every data set the runs that survive below 2/S_min end at w*: largest squared "
            "distance",
            parts("data set {}", survivors["distance"].groupby(by).max()),
            upper=LEARNED,
            name="survivors learn",
            reason="As in FM-1a.",
            explanation=f"{len(survivors)} of {int(below.sum())} runs survive.",
        ),
        Claim(
            "On every data set none settles above it: share of the runs that do",
            parts("data set {}", (table["status"] == "converged")[above].groupby(by).mean()),
            upper=0.0,
            name="fails above",
            reason="No minimiser is stable there (FM-crit with X-2).",
        ),
        Claim(
            "On every data set no run below 2/S_min ends above 2/η: largest final sharpness in "
            "units of 2/η",
            parts("data set {}", height[below & settled].groupby(by).max()),
            upper=1.0,
            name="not above 2/η",
            reason="The printed threshold itself.",
            known="K-11",
        ),
        Claim(
            "On every data set no minimiser found is flatter than the exact S_min: smallest ratio",
            parts(
                "data set {}",
                (converged["sharpness"] / converged["minimal_sharpness"]).groupby(by).min(),
            ),
            lower=1 - 1e-6,
            name="S_min",
            reason="A theorem; 1e-6 is how far a converged run may be from its minimiser.",
        ),
    ]
