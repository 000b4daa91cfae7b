"""BO-C3.4 one term at a time: the excess risk as k/n, εd/n or n/d goes to zero alone.

With the spiked populations, and the very wide networks on them, that the bounds are asked of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import simulate_wide
from deeplin.figures.claims import Claim, number
from deeplin.figures.figure import Study, Table
from deeplin.figures.setting import data_seed
from deeplin.figures.statistics import slope_interval
from deeplin.figures.style import QUIET, legend_beside, look
from deeplin.problems import Population
from deeplin.problems.synthetic import Synthetic, spiked
from deeplin.sweep import Experiment, Unit, run_keys

OUTPUTS, SPIKES, WIDTH = 2, 2, 10**6
ALPHA = 0.05
"""Operator norm of the first layer; entries have standard deviation α/√m (E-6)."""


def draw(
    seed: int,
    repetition: int,
    samples: int,
    dimension: int,
    epsilon: float,
    *,
    spikes: int = SPIKES,
    noise: float = 1.0,
) -> Synthetic:
    """A data set of a spiked population, from its coordinates."""
    return spiked(
        data_seed(seed, samples=samples, repetition=repetition, part="bounds"),
        dimension,
        samples=samples,
        outputs=OUTPUTS,
        spikes=spikes,
        epsilon=epsilon,
        noise=noise,
    )


def population_of(data: Synthetic) -> Population:
    """The population that a data set was drawn from."""
    return Population(np.asarray(data.truth), data.spectrum, drawn=True)


def last_layer(data: Synthetic, depth: int, *, spikes: int = SPIKES) -> float:
    """β of BO-T3.2 with c = 1: max(1, λ_1^{1/4}√(Ln)(√‖Θ*‖λ_1^{1/4} + q^{1/4})/√s_k)."""
    n = data.problem.samples
    return max(1.0, np.sqrt(depth * n / data.spectrum[spikes:].sum()) * (1 + OUTPUTS**0.25))


def weight_keys(seed: int, repetitions: int):
    """One key for the weights on each data set."""
    return run_keys(seed, [{"repetition": k, "part": "weights"} for k in range(repetitions)])


def train(data: list[Synthetic], depth: int, beta: float, keys, *, alpha: float = ALPHA):
    """Gradient flow of a network of width 10⁶ on each data set, to a mean loss of 1e-8."""
    return simulate_wide(
        [source.problem for source in data],
        WIDTH,
        depth,
        alpha / np.sqrt(WIDTH),
        beta / np.sqrt(WIDTH),
        keys,
        dynamics="flow",
        loss_target=1e-8,
        record_every=10**6,
    )


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
    beta, keys = last_layer(data[0], DEPTH, spikes=k), weight_keys(config.seed, config.repetitions)
    wide = train(data, DEPTH, beta, keys, alpha=FIRST_LAYER)
    sizes = {"k/n": OUTPUTS * (k / n + n / d), "n/d": OUTPUTS * n / d, "εd/n": epsilon * d / n}
    risks = [
        float(population_of(source).risk(theta))
        for source, theta in zip(data, np.asarray(wide.theta), strict=True)
    ]
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
    ax.loglog()
    ax.set(xlabel="Term of the bound of BO-C3.4", ylabel="Excess risk")
    legend_beside(ax)


BO_RATES = Experiment("bo-rates", Rates, rate_units, run_rate, grid=("repetitions",))
RATES = Study("bo-rates", BO_RATES, paper=Rates(20), quick=Rates(4))
