"""What the benign-overfitting figures claim, in the paper's terms: at every dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deeplin.papers.claims import POSITIVE, Claim, number, parts
from deeplin.papers.figure import Table
from deeplin.papers.statistics import (
    LEVEL,
    TREND_LEVEL,
    mean_interval,
    slope_interval,
    standard_errors_apart,
    trend,
)

if TYPE_CHECKING:
    from deeplin.papers.bo_1 import WideSweep

SAMPLES, OUTPUTS = 100, 3
LETTER = {"alpha": "α", "beta": "β"}

STABLE = 1500
"""Below this dimension the authors' step is stable for every draw; beyond it see E-11."""


PUBLISHED_RUNS = 20
PUBLISHED_DISTANCES = {"beta": (0.0, 500, 5.6, 0.05), "alpha": (1e-3, 2000, 70.0, 0.5)}
"""Mean squared distance to Θ_min in the authors' logs, with half of its last digit: at β = 0 and
d = 500 (E-4), and at α = 1e-3 and d = 2000, where their step is unstable (E-11)."""


def width(dimension: int) -> int:
    """m = 10(d + q)."""
    return 10 * (dimension + OUTPUTS)


def expected_distance(alpha: Any, dimension: Any) -> Any:
    """α²(d−n)mq: the squared distance to Θ_min that a random first layer leaves (β = 1)."""
    return alpha**2 * (dimension - SAMPLES) * width(dimension) * OUTPUTS


def faithful(table: Table) -> Any:
    """Runs that follow gradient flow: stable descent, and flow where descent is not stable."""
    return table[(table["dimension"] < STABLE) | (table["dynamics"] == "flow")]


def growth_claim(table: Table, scale: str) -> Claim:
    """The excess risk grows with the variance of the layer whose scale is swept."""
    increases = {}
    for group, runs in table.groupby(["dimension", "dynamics"]):
        added = runs["risk"] - runs["interpolant_risk"]
        slopes = [
            slope_interval(one[scale] ** 2, added.loc[one.index])[0] * one[scale].max() ** 2
            for _, one in runs.groupby("repetition")
        ]
        mean, half = mean_interval(np.array(slopes))
        increases[group] = mean - half
    return Claim(
        f"The excess risk grows with {LETTER[scale]}², at every d: increase over the range along "
        f"the regression line of each draw, lower end of the {LEVEL:.0%} interval of its mean",
        _cells(increases),
        lower=POSITIVE,
        name=f"grows with {LETTER[scale]}²",
        reason="A paired interval over the draws that excludes no increase.",
        explanation=f"{table['repetition'].nunique()} draws of data and weights.",
    )


def first_layer_claims(config: WideSweep, table: Table) -> list[Claim]:
    """Small α gives the risk of Θ_min; larger α is off by α²(d−n)mq (X-6)."""
    zero = table[table["alpha"] == 0]
    apart = (zero["risk"] / zero["interpolant_risk"] - 1).abs()
    return [
        growth_claim(table, "alpha"),
        Claim(
            "α = 0 produces the minimum-norm interpolant: largest relative difference of the risk",
            _cells(apart.groupby([zero["dimension"], zero["dynamics"]]).max()),
            upper=1e-2,
            name="α = 0",
            reason="What a mean loss of 1e-7 leaves untrained is of the size of its square root.",
        ),
        distance_claim(table),
        *flow_claims(table),
        *published_claims(table, "alpha"),
    ]


def published_claims(table: Table, scale: str) -> list[Claim]:
    """The authors' squared distances, as far as their logs are known, beside ours."""
    value, d, published, rounding = PUBLISHED_DISTANCES[scale]
    rows: Any = table.query(f"{scale} == @value and dimension == @d and dynamics == 'descent'")
    if rows.empty:
        return []
    ours = rows["distance"].dropna().to_numpy()
    limits = {"runs": PUBLISHED_RUNS, "rounding": rounding}
    apart = standard_errors_apart(ours, published, **limits)
    error = float(ours.std(ddof=1) / np.sqrt(len(ours))) if len(ours) > 1 else np.nan
    return [
        Claim(
            "The squared distance to Θ_min is that of the authors' logs: difference of the means "
            "in standard errors",
            {f"{LETTER[scale]} = {value:g}, d = {d}": apart},
            upper=2.0,
            name="published distance",
            reason="Two standard errors of the difference, as for the authors' fits.",
            known="K-15",
            explanation=f"published {number(published)}, ours {number(ours.mean())} ± "
            f"{number(error)}.",
        )
    ]


def _cells(values: Any) -> dict[str, float]:
    """The parts of a claim about each dimension and dynamics."""
    named = {(d, ", flow" if how == "flow" else ""): v for (d, how), v in values.items()}
    return parts("d = {}{}", named)


def last_layer_claims(config: WideSweep, table: Table) -> list[Claim]:
    """β = 0 starts at the zero function, yet does not end at the interpolant (E-4)."""
    zero = table[table["beta"] == 0]
    groups = ["dimension", "dynamics"]
    apart = zero.assign(apart=zero["distance"] / zero["interpolant_norm"] ** 2)
    means = zero.groupby(groups)[["risk", "interpolant_risk"]].mean()
    return [
        growth_claim(table, "beta"),
        Claim(
            "A network that starts at the zero function (β = 0) ends at the minimum-norm "
            "interpolant (BO-T3.1, BO-L4.5, case 1): largest squared distance over ‖Θ_min‖²",
            _cells(apart.groupby(groups)["apart"].max()),
            upper=1e-3,
            name="β = 0 is the interpolant",
            reason="What the loss target leaves at α = 0 stays below it.",
            explanation="The gradient at the start already leaves the row space of X unless the "
            "first layer starts there (X-6).",
            known="E-4",
        ),
        Claim(
            "As β → 0 the model gets close to the minimum-norm interpolant: relative difference of "
            "the mean risk at β = 0",
            _cells(means["risk"] / means["interpolant_risk"] - 1),
            lower=-0.1,
            upper=0.1,
            name="β = 0 is close in risk",
            reason="A tenth, what the printed figure resolves.",
        ),
        *published_claims(table, "beta"),
    ]


def distance_claim(table: Table) -> Claim:
    """While training follows the flow, the squared distance is α²(d−n)mq."""
    runs = faithful(table.query("alpha > 0"))
    ratio = runs["beside"] / expected_distance(runs["alpha"], runs["dimension"])
    means = ratio.groupby([runs["dimension"], runs["alpha"]]).mean()
    return Claim(
        "‖Θ_⊥‖² follows α²(d−n)mq while training follows the flow: its mean in these units",
        parts("d = {}, α = {}", means),
        lower=0.8,
        upper=1.2,
        name="α²(d−n)mq",
        reason="To first order; the layers above move by a few percent.",
    )


def flow_claims(table: Table) -> list[Claim]:
    """The printed step stands for gradient flow; where it is unstable it does not (E-11)."""
    runs: Any = table.query("alpha == alpha.max()")
    draws = runs.set_index(["dimension", "repetition", "dynamics"])["distance"].unstack()
    if "flow" not in draws:
        return []
    both = draws.dropna().groupby("dimension").mean()
    same = ((draws["descent"] / draws["flow"] - 1).abs() < 0.01)[draws["flow"].notna()]
    told = ", ".join(
        f"{int(d)}: {int(hits.sum())} of {len(hits)}" for d, hits in same.groupby("dimension")
    )
    return [
        Claim(
            "Gradient descent with step 1e-4 stands for gradient flow: squared distance to Θ_min "
            "of descent over that of the flow",
            parts("d = {}", both["descent"] / both["flow"]),
            lower=0.95,
            upper=1.05,
            name="descent is like flow",
            reason="A twentieth; stable descent is within 1%.",
            explanation=f"Draws in which both end within 1% of each other, d = {told}.",
            known="E-11",
        )
    ]


def dimension_claims(config: WideSweep, table: Table) -> list[Claim]:
    """Small first layers stay near Θ_min at every dimension; α = 1e-3 does not."""
    runs = faithful(table)
    small, large = sorted(a for a in config.alphas if a > 0)[:2]
    added = (runs["risk"] - runs["interpolant_risk"]) / runs["interpolant_risk"]
    means = added.groupby([runs["alpha"], runs["dimension"]]).mean()
    chosen = runs["alpha"] == large
    return [
        distance_claim(table),
        Claim(
            f"When the initialisation scale is small (α = {number(small)}) the solution is close "
            "to Θ_min: mean increase of the risk relative to that of Θ_min",
            parts("d = {}", means[small]),
            upper=0.02,
            name="small α costs nothing",
            reason="A fiftieth, as first set; it stood at 0.05 for a while.",
            known="K-6",
        ),
        Claim(
            f"α = {number(large)} costs more the larger d is: p-value of Kendall's one-sided test "
            "of the relative increase against d",
            trend(added[chosen].to_numpy(), runs.loc[chosen, "dimension"].to_numpy()),
            upper=TREND_LEVEL,
            name="large α costs more with d",
            reason=f"Level {TREND_LEVEL}.",
        ),
        *flow_claims(table),
        *published_claims(table, "alpha"),
    ]
