"""What the papers claim about a scale sweep, measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from deeplin.figures.claims import Claim, number
from deeplin.figures.scale_sweep import ScaleSweep
from deeplin.figures.statistics import curve
from deeplin.figures.tables import Table

DEAD = 1e-3
"""Final sharpness, in units of 2/η, below which no unit of a network is on any more."""
LEARNED = 0.01
"""A network with ‖w − w*‖² below this (the zero map has 1) has learned."""


def distance_claims(config: ScaleSweep, table: Table) -> list[Claim]:
    """Training succeeds below and fails above a critical rate that the scale does not move."""
    critical = config.setting.flattest.critical_learning_rate()
    settled = table[table["status"] != "diverged"]
    below = settled[settled["learning_rate"] < critical]
    above = settled[settled["learning_rate"] > critical]
    learned = (below["distance"] < LEARNED).groupby(below["scale"]).mean()
    return [
        Claim(
            f"Below the critical rate 2/S_min = {number(critical)} every run that does not diverge "
            "ends at w*: largest squared distance",
            below["distance"].max(),
            upper=LEARNED,
        ),
        Claim(
            f"Above it training fails: share of settled runs nearer than {number(LEARNED)} when "
            "training stops",
            (above["distance"] < LEARNED).mean() if len(above) else 0.0,
            upper=0.1,
            explanation="Above the critical rate a run wanders and may pass near w*; it cannot "
            "stay there. Stopped at a fixed step, a few runs are near by chance.",
        ),
        Claim(
            "The scale does not move the critical rate: difference between the scales in the share "
            "of settled runs that learn below it",
            learned.max() - learned.min(),
            upper=0.05,
        ),
    ]


def sharpness_claims(
    config: ScaleSweep,
    table: Table,
    *,
    below: float = np.inf,
    upper_bound: bool = False,
    plateau: bool = True,
) -> list[Claim]:
    """Small scales end at a value independent of η, large ones at 2/η; none below S_min."""
    table = table[table["learning_rate"] < below]
    claims = [*small_scale_claims(config, table, upper_bound), *edge_claims(table)]
    if plateau:
        claims.append(plateau_claim(table))
    converged = table.loc[table["status"] == "converged", "sharpness"]
    return [
        *claims,
        Claim(
            "No minimiser found is flatter than the exact S_min (X-2): smallest ratio of final "
            "sharpness to S_min",
            converged.min() / config.setting.flattest.exact,
            lower=1 - 1e-6,
        ),
    ]


def small_scale_claims(config: ScaleSweep, table: Table, upper_bound: bool = False) -> list[Claim]:
    """At the smallest scale the sharpness after training does not depend on η."""
    smallest = table[table["scale"] == table["scale"].min()]
    ends = curve(smallest, "learning_rate", "sharpness")["mean"]
    claims = [
        Claim(
            "From the smallest scale the sharpness after training does not depend on η: relative "
            "spread of its mean between learning rates",
            (ends.max() - ends.min()) / ends.mean(),
            upper=0.1,
        )
    ]
    if upper_bound:
        low = config.setting.flattest.exact
        claims.append(
            Claim(
                "It lies between S_min and 8LΛ (FM-C2): mean sharpness over S_min",
                ends.mean() / low,
                lower=1.0,
                upper=config.setting.upper_bound / low,
            )
        )
    return claims


def edge_claims(table: Table, *, oscillation: float = 0.05) -> list[Claim]:
    """Training survives a start far above 2/η (catapult) and does not end above it.

    At the edge of stability the sharpness oscillates around 2/η; `oscillation` is how far the mean
    of a cell may be above it at the last step.
    """
    settled = table[table["status"] != "diverged"]
    height = settled["sharpness"] * settled["learning_rate"] / 2
    return [
        Claim(
            "Training succeeds although it starts far above 2/η (catapult): largest initial "
            "sharpness of a settled run in units of 2/η",
            (settled["initial_sharpness"] * settled["learning_rate"] / 2).max(),
            lower=3.0,
        ),
        Claim(
            "Training does not end above 2/η: largest mean final sharpness of a scale and rate, in "
            "units of 2/η",
            height.groupby([settled["scale"], settled["learning_rate"]]).mean().max(),
            upper=1 + oscillation,
        ),
    ]


def plateau_claim(table: Table) -> Claim:
    """Runs that start above 2/η end at it."""
    settled = table[table["status"] != "diverged"]
    start = settled["initial_sharpness"] * settled["learning_rate"] / 2
    end = settled["sharpness"] * settled["learning_rate"] / 2
    means = end[start > 1].groupby(settled["learning_rate"]).mean()
    fastest = settled["learning_rate"].max()
    others = ", ".join(
        f"{number(mean)} for η = {number(rate)}"
        for rate, mean in means.drop(fastest, errors="ignore").items()
    )
    heights = end[(start > 1) & (settled["learning_rate"] == fastest)]
    return Claim(
        "Runs that start above 2/η end near it: mean final sharpness in units of 2/η at the "
        f"largest of these rates, η = {number(fastest)}",
        means.get(fastest, np.nan),
        lower=0.9,
        upper=1.05,
        explanation=_dead_runs(heights),
        printed="The sharpness plateaus at 2/η for every learning rate. Measured in the same way: "
        f"{others}. At small rates a catapult may land a run below 2/η, and it stays there."
        if others
        else "",
    )


def _dead_runs(heights: Any) -> str:
    """Runs that a catapult has thrown where the network no longer depends on its weights."""
    dead = heights < DEAD
    if not dead.any():
        return ""
    return (
        f"The catapult kills {dead.sum()} of these {len(heights)} runs: every unit is off, the "
        "sharpness is zero and the network stays the zero predictor. The mean of the others is "
        f"{number(heights[~dead].mean())}."
    )


def divergence_claims(config: ScaleSweep, table: Table) -> list[Claim]:
    """The probability of divergence grows with the scale and with η."""
    shares = (
        table.assign(diverged=table["status"] == "diverged")
        .pivot_table(index="scale", columns="learning_rate", values="diverged", aggfunc="mean")
        .to_numpy(float)
    )
    repetitions = min(rate.repetitions for rate in config.rates)
    noise = 2 * np.sqrt(0.5 / repetitions)
    allowed = "two standard errors of the difference of two shares at these repetitions"
    return [
        Claim(
            f"It grows with the scale: largest drop to the next larger scale (allowed: {allowed})",
            -np.diff(shares, axis=0).min(),
            upper=noise,
        ),
        Claim(
            f"It grows with η: largest drop to the next larger η (allowed: {allowed})",
            -np.diff(shares, axis=1).min(),
            upper=noise,
        ),
        Claim(
            "No run diverges at the smallest scale below the critical rate: share of them",
            _smallest_scale_share(config, table),
            upper=0.0,
        ),
        Claim(
            "At the largest scale and η runs do diverge: share of them", shares[-1, -1], lower=0.5
        ),
    ]


def _smallest_scale_share(config: ScaleSweep, table: Table) -> float:
    critical = config.setting.flattest.critical_learning_rate()
    chosen = (table["scale"] == table["scale"].min()) & (table["learning_rate"] < critical)
    return float((table.loc[chosen, "status"] == "diverged").mean())
