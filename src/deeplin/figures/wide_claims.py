"""What the benign-overfitting figures claim, measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from deeplin.figures.claims import Claim, number
from deeplin.figures.statistics import mean_interval
from deeplin.figures.wide_sweep import LETTER, WideSweep, expected_distance

SMALL = 1e-3
"""What counts as an increase: a thousandth, of a risk of about 1."""
STABLE = 1700
"""Below this dimension the authors' step is stable (η·λ_max < 2); beyond it see E-11."""


def faithful(table: pd.DataFrame) -> Any:
    """Runs that follow gradient flow: stable descent, and flow where descent is not stable."""
    return table[(table["dimension"] < STABLE) | (table["dynamics"] == "flow")]


def growth_claims(config: WideSweep, table: pd.DataFrame, scale: str) -> list[Claim]:
    """The excess risk grows with the variance of the layer whose scale is swept."""
    claims = []
    for dimension, runs in faithful(table).groupby("dimension"):
        added = (runs["risk"] - runs["interpolant_risk"]).groupby(runs[scale])
        largest = added.get_group(runs[scale].max()).to_numpy()
        smallest = added.get_group(runs[scale].min()).to_numpy()
        mean, half = mean_interval(largest - smallest)
        claims.append(
            Claim(
                f"d = {dimension}: the excess risk grows with {LETTER[scale]}², from its smallest "
                "to its largest value: lower end of the 95% interval of the paired difference",
                mean - half,
                lower=SMALL,
            )
        )
    return claims


def first_layer_claims(config: WideSweep, table: pd.DataFrame) -> list[Claim]:
    """α = 0 is the minimum-norm interpolant; larger α is off by α²(d−n)mq (X-6)."""
    return [
        *growth_claims(config, table, "alpha"),
        zero_start_claim(table),
        distance_claim(table),
        *inside_claims(table),
    ]


def last_layer_claims(config: WideSweep, table: pd.DataFrame) -> list[Claim]:
    """β = 0 starts at the zero function, yet does not end at the interpolant (E-4)."""
    zero = faithful(table.query("beta == 0"))
    return [
        *growth_claims(config, table, "beta"),
        Claim(
            "β = 0 starts at the zero function and ends away from the minimum-norm interpolant: "
            "smallest squared distance",
            zero["distance"].min(),
            lower=0.1,
            printed="A network that starts at the zero function ends at the minimum-norm "
            "interpolant (BO-T3.1, BO-L4.5): does not hold, see E-4.",
            explanation="The gradient at the start already leaves the row space of X unless the "
            "first layer starts there (X-6).",
        ),
        *inside_claims(table),
    ]


def zero_start_claim(table: pd.DataFrame) -> Claim:
    """With α = 0 nothing of Θ is outside the row space of X."""
    zero: Any = table.query("alpha == 0 and status == 'converged'")
    return Claim(
        "α = 0 ends at the minimum-norm interpolant: largest ‖Θ_⊥‖² (the rest of the distance is "
        "what the loss target 1e-7 leaves untrained)",
        zero["beside"].max(),
        upper=1e-20,
    )


def distance_claim(table: pd.DataFrame) -> Claim:
    """While training follows the flow, the squared distance is α²(d−n)mq."""
    runs = faithful(table.query("alpha > 0"))
    ratio = runs["beside"] / expected_distance(runs["alpha"], runs["dimension"])
    means = ratio.groupby([runs["dimension"], runs["alpha"]]).mean()
    worst = means.iloc[np.argmax(np.abs(means - 1))]
    return Claim(
        "‖Θ_⊥‖² follows α²(d−n)mq: its mean in these units, at the dimension and scale where it is "
        "furthest from 1",
        worst,
        lower=0.8,
        upper=1.2,
    )


def inside_claims(table: pd.DataFrame) -> list[Claim]:
    """In the row space of X every trained network is Θ_min, so that its variance is the same."""
    runs: Any = table.query("status == 'converged'")
    inside = (runs["distance"] - runs["beside"]) / runs["interpolant_norm"] ** 2
    return [
        Claim(
            "The conditional variance is that of the minimum-norm interpolant for every "
            "initialisation (BO-L4.1): largest ‖P_XΘ − Θ_min‖²/‖Θ_min‖²",
            inside.max(),
            upper=1e-3,
        )
    ]


def catapult_claims(config: WideSweep, table: pd.DataFrame) -> list[Claim]:
    """Where the authors' step is unstable, descent ends nearer to Θ_min than the flow (E-11)."""
    runs: Any = table.query("dimension >= @STABLE and alpha == alpha.max()")
    means = runs.groupby(["dimension", "dynamics"])["distance"].mean().unstack()
    return [
        Claim(
            f"d = {dimension}: the step 1e-4 is past the stability limit and descent catapults to "
            "a smaller squared distance than the flow: their ratio",
            row["descent"] / row["flow"],
            upper=0.9,
            printed="Gradient-flow regime: does not hold here, see E-11.",
        )
        for dimension, row in means.iterrows()
    ]


def dimension_claims(config: WideSweep, table: pd.DataFrame) -> list[Claim]:
    """Small first layers stay near Θ_min at every dimension; α = 1e-3 does not."""
    runs = faithful(table)
    small, large = sorted(a for a in config.alphas if a > 0)[:2]
    added = (runs["risk"] - runs["interpolant_risk"]) / runs["interpolant_risk"]
    means = added.groupby([runs["alpha"], runs["dimension"]]).mean()
    return [
        zero_start_claim(table),
        distance_claim(table),
        Claim(
            f"α = {number(small)} costs almost nothing at any d: largest mean increase of the risk "
            "relative to that of Θ_min",
            means[small].max(),
            upper=0.05,
        ),
        Claim(
            f"α = {number(large)} costs more the larger d is: relative increase of the risk at the "
            "largest d minus that at the smallest",
            means[large].iloc[-1] - means[large].iloc[0],
            lower=0.05,
        ),
        *catapult_claims(config, table),
    ]
