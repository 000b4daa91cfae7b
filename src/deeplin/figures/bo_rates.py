"""BO-C3.4 one term at a time: the excess risk as k/n, εd/n or n/d goes to zero alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.figures.bo_spikes import OUTPUTS, draw, last_layer, population_of, train
from deeplin.figures.claims import Claim, number
from deeplin.figures.figure import Study, Table
from deeplin.figures.statistics import slope_interval
from deeplin.figures.style import QUIET, look
from deeplin.problems import population_risk
from deeplin.sweep import Experiment, Unit, run_keys

FIRST_LAYER = 1e-3
"""Operator norm of the first layer: so small that Ξ does not show (the corollary lets α choose)."""
DEPTH, QUIET_TERM, MANY = 3, 0.05, 3000
"""Depth; εd/n where it is not swept, and d where n/d is not: both then show little."""
SWEEPS = {
    "k/n": (16, 8, 4, 2, 1),
    "n/d": (120, 240, 480, 960, 1920),
    "εd/n": (0.8, 0.4, 0.2, 0.1, 0.05),
}
"""k, d and εd/n; the last without noise, which would cover it."""


@dataclass(frozen=True)
class Rates:
    """Trained networks along three sweeps, each of which sends one term of BO-C3.4 to zero."""

    repetitions: int
    samples: int = 30
    seed: int = 0


def rate_units(config: Rates) -> list[Unit]:
    """One unit for each sweep and value."""
    return [
        Unit({"term": term, "value": value}, runs=config.repetitions)
        for term, values in SWEEPS.items()
        for value in values
    ]


def population_sizes(samples: int, term: str, value: float) -> tuple[int, int, float, float]:
    """k, d, ε and the size of the noise at a point of a sweep."""
    if term == "k/n":
        return int(value), MANY, QUIET_TERM * samples / MANY, 1.0
    if term == "n/d":
        return 0, int(value), QUIET_TERM * samples / value, 1.0
    return 2, MANY, value * samples / MANY, 0.0


def run_rate(config: Rates, unit: Unit) -> pd.DataFrame:
    """The exact excess risk of each trained network, and the term of BO-C3.4 that is swept."""
    n, term = config.samples, unit.coordinates["term"]
    k, d, epsilon, noise = population_sizes(n, term, unit.coordinates["value"])
    data = [
        draw(config.seed, j, n, d, epsilon, spikes=k, noise=noise)
        for j in range(config.repetitions)
    ]
    draws = [{"repetition": j, "part": "weights"} for j in range(config.repetitions)]
    beta = last_layer(data[0], DEPTH, spikes=k)
    wide = train(data, DEPTH, beta, run_keys(config.seed, draws), alpha=FIRST_LAYER)
    sizes = {"k/n": OUTPUTS * (k / n + n / d), "n/d": OUTPUTS * n / d, "εd/n": epsilon * d / n}
    risks = []
    for source, theta in zip(data, np.asarray(wide.theta), strict=True):
        population = population_of(source)
        truth, spectrum = population.optimum, source.spectrum
        risks.append(float(population_risk(theta, optimum=truth, covariance=spectrum)))
    return pd.DataFrame(
        {
            "term": term,
            "value": float(unit.coordinates["value"]),
            "repetition": np.arange(config.repetitions),
            "status": [str(status) for status in wide.status],
            "size": sizes[term],
            "risk": risks,
        }
    )


def exponent(runs: Table) -> tuple[float, float]:
    """Slope of log mean risk against the log of the term, and half of its 95% interval."""
    means = runs.groupby("size")["risk"].mean()
    return slope_interval(np.log(means.index), np.log(means))


def rate_claims(config: Rates, table: Table) -> list[Claim]:
    """Does the risk fall at least as fast as each term, and with one constant?"""
    groups = {str(term): runs for term, runs in table.groupby("term")}
    found = {term: exponent(groups[term]) for term in SWEEPS}
    told = ", ".join(f"{term}: {number(b)} ± {number(h)}" for term, (b, h) in found.items())
    return [
        Claim(
            "The excess risk goes to zero with k/n, with n/d and with εd/n at the rate of BO-C3.4 "
            "or faster: lower end of the 95% interval of the exponent of the term",
            {term: slope - half for term, (slope, half) in found.items()},
            lower=0.75,
            name="rate of each term",
            reason="Exponent 1 less a quarter, a factor of two over a range of sixteen.",
            explanation=f"{told}; means over {config.repetitions} data sets.",
        ),
        Claim(
            "One constant c serves every point: largest mean risk over the term",
            {
                term: (
                    runs.groupby("size")["risk"].mean() / runs.groupby("size")["size"].first()
                ).max()
                for term, runs in groups.items()
            },
            upper=3.0,
            name="one constant",
            reason="log(q/δ) is 3 at q = 2 and δ = 0.1; the corollary leaves c open.",
        ),
    ]


def plot_rates(config: Rates, table: Table, ax: Axes) -> None:
    """Mean excess risk against the term that is swept; dotted: the term itself."""
    letters = {
        "k/n": r"$q(k/n + n/d)$, $k$ swept",
        "n/d": r"$q\,n/d$",
        "εd/n": r"$\varepsilon d/n$",
    }
    for index, (term, label) in enumerate(letters.items()):
        runs = table[table["term"] == term]
        ax.plot(runs["size"], runs["risk"], ".", color=look(index)["color"], alpha=0.4)
        ax.plot(runs.groupby("size")["risk"].mean(), label=label, **look(index))
    ends = np.array([table["size"].min(), table["size"].max()])
    ax.plot(ends, ends, ":", color=QUIET, label="the term itself")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(xlabel="Term of the bound of BO-C3.4", ylabel="Excess risk")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


BO_RATES = Experiment("bo-rates", Rates, rate_units, run_rate, grid=("repetitions",))
RATES = Study("bo-rates", BO_RATES, {"paper": Rates(20), "quick": Rates(4)})
