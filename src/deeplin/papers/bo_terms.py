"""The terms of the bounds of BO: as k/n, εd/n or n/d goes to zero alone, and Ξ against depth.

With the spiked populations, and the very wide networks on them, that the bounds are asked of.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from deeplin.dynamics import WideRun, simulate_wide
from deeplin.papers.bo_1 import population_of
from deeplin.papers.figures import Study, Table, grid_experiment
from deeplin.papers.question import Question, each, extent, number
from deeplin.papers.setting import data_seed
from deeplin.papers.statistics import mean_interval, slope_interval
from deeplin.papers.style import QUIET, legend_beside, look, plain_numbers
from deeplin.problems.synthetic import Synthetic, spiked
from deeplin.sweep import run_keys
from deeplin.theory import random_start_bound, risk_split

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
    drawn = data_seed(seed, samples=samples, repetition=repetition, part="bounds")
    shape: dict[str, Any] = {"samples": samples, "outputs": OUTPUTS, "spikes": spikes}
    return spiked(drawn, dimension, epsilon=epsilon, noise=noise, **shape)


def last_layer(data: Synthetic, depth: int, *, spikes: int = SPIKES) -> float:
    """β of BO-T3.2 with c = 1: max(1, λ_1^{1/4}√(Ln)(√‖Θ*‖λ_1^{1/4} + q^{1/4})/√s_k)."""
    n = data.problem.samples
    return max(1.0, np.sqrt(depth * n / data.spectrum[spikes:].sum()) * (1 + OUTPUTS**0.25))


def weight_keys(seed: int, repetitions: int):
    """One key for the weights on each data set."""
    return run_keys(seed, [{"repetition": k, "part": "weights"} for k in range(repetitions)])


def train(data: list[Synthetic], depth: int, beta: float, keys, *, alpha: float = ALPHA) -> WideRun:
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
        population=[population_of(source) for source in data],
        record_every=10**6,
    )


FIRST_LAYER = 1e-3
"""Operator norm of the first layer: so small that Ξ does not show (the corollary lets α choose)."""
QUIET_TERM, MANY = 0.05, 3000
"""εd/n where it is not swept, and d where n/d is not: both then show little."""
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
    depth: int = 3
    seed: int = 0


def population_sizes(samples: int, term: str, value: float) -> tuple[int, int, float, float]:
    """k, d, ε and the size of the noise at a point of a sweep."""
    if term == "k/n":
        return int(value), MANY, QUIET_TERM * samples / MANY, 1.0
    if term == "n/d":
        return 0, int(value), QUIET_TERM * samples / value, 1.0
    return 2, MANY, value * samples / MANY, 0.0


def run_rate(config: Rates, term: str, place: int) -> dict[str, Any]:
    """The exact excess risk of each trained network, and the term of BO-C3.4 that is swept."""
    n, value, repetitions = config.samples, SWEEPS[term][place], range(config.repetitions)
    k, d, epsilon, noise = population_sizes(n, term, value)
    data = [draw(config.seed, j, n, d, epsilon, spikes=k, noise=noise) for j in repetitions]
    beta = last_layer(data[0], config.depth, spikes=k)
    keys = weight_keys(config.seed, config.repetitions)
    wide = train(data, config.depth, beta, keys, alpha=FIRST_LAYER)
    sizes = {"k/n": OUTPUTS * (k / n + n / d), "n/d": OUTPUTS * n / d, "εd/n": epsilon * d / n}
    return {
        "value": float(value),
        "repetition": repetitions,
        "status": wide.status,
        "size": sizes[term],
        "risk": wide.risk,
    }


def rate_questions(config: Rates, table: Table) -> list[Question]:
    """How fast the risk falls with each term, and with which constant."""
    means = {term: runs.groupby("size")["risk"].mean() for term, runs in table.groupby("term")}
    found = {term: slope_interval(np.log(m.index), np.log(m)) for term, m in means.items()}
    told = ", ".join(f"{number(b)} ± {number(h)} ({term})" for term, (b, h) in found.items())
    needed = {term: (risk / risk.index).max() for term, risk in means.items()}
    return [
        Question(
            "rate of each term",
            "How does the risk fall when one term of BO-C3.4 goes to zero?",
            f"Like the term to the power {told}; the largest ratio to the term is "
            f"{each('{}', needed)} (means over {config.repetitions} data sets).",
        )
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


POINTS = {"term": tuple(SWEEPS), "place": range(5)}
BO_RATES = grid_experiment("bo-rates", Rates, run_rate, POINTS, runs="repetitions")
RATES = Study("bo-rates", BO_RATES, paper=Rates(20), quick=Rates(4))


@dataclass(frozen=True)
class Depths:
    """Ξ against depth, with the bound of BO-T3.2 as printed and as its proof gives it (E-19).

    The same data trained at several depths, with β large enough for BO-T3.2 at all of them.
    """

    depths: tuple[int, ...]
    repetitions: int
    samples: int = 8
    dimension: int = 40
    epsilon: float = 0.2
    deepest: int = 100
    """β is that of this depth."""
    seed: int = 0


def run_depth(config: Depths, depth: int) -> list[dict[str, Any]]:
    """Ξ, what Θ_⊥ gained on the way, and both bounds on Ξ with c = 1."""
    sizes = config.samples, config.dimension, config.epsilon
    data = [draw(config.seed, k, *sizes) for k in range(config.repetitions)]
    beta = last_layer(data[0], config.deepest)
    wide = train(data, depth, beta, weight_keys(config.seed, config.repetitions))
    rows = []
    for k, source in enumerate(data):
        population = population_of(source)
        initial = np.asarray(wide.as_run(k).initial.product)
        basis = source.problem.spectrum.vectors
        start = initial - basis @ (basis.T @ initial)
        scales = {"alpha": ALPHA, "beta": beta, "depth": depth, "width": WIDTH}
        bound = partial(random_start_bound, population, config.samples, **scales)
        rows.append(
            {
                "repetition": k,
                "status": wide.status[k],
                "xi": risk_split(source.problem, population, wide.theta[k]).xi,
                "gained": np.sum((wide.theta_perp[k] - start) ** 2),
                "printed": bound(corrected=False).xi,
                "corrected": bound(corrected=True).xi,
            }
        )
    return rows


def depth_questions(config: Depths, table: Table) -> list[Question]:
    """How what Θ_⊥ gains grows with depth, and how far both bounds on Ξ are above it."""
    logs = np.log(table[["depth", "gained"]]).groupby(table["repetition"])
    slopes = [slope_interval(runs["depth"], runs["gained"])[0] for _, runs in logs]
    mean, half = mean_interval(np.array(slopes))
    loose = [(table[form] / table["xi"]) for form in ("printed", "corrected")]
    return [
        Question(
            "growth with depth",
            "How does what Θ_⊥ gains in training grow with depth?",
            f"Like L to the power {number(mean)} ± {number(half)} ({len(slopes)} data sets).",
        ),
        Question(
            "bounds on Ξ",
            "How far above Ξ is the bound of BO-T3.2?",
            f"{extent(loose[0])} times as printed and {extent(loose[1])} times as corrected "
            "(E-19), with c = 1: they are bounds, not laws.",
        ),
    ]


def plot_depth(config: Depths, table: Table, ax: Axes) -> None:
    """What Θ_⊥ gained, and Ξ with its two bounds, against depth."""
    means = table.groupby("depth").mean(numeric_only=True)
    ax.plot(
        means.index, means["gained"], label=r"$\|\Theta_\perp - \Theta_\perp(0)\|^2$", **look(0)
    )
    ax.plot(means.index, means["xi"], label=r"$\Xi$", **look(1))
    # wide and pale: the first term, which both share, is far larger than the second
    wide = {"color": QUIET, "linewidth": 6, "alpha": 0.4}
    ax.plot(means.index, means["printed"], label=r"bound on $\Xi$, printed", **wide)
    ax.plot(means.index, means["corrected"], "--", label=r"bound on $\Xi$, corrected", **look(3))
    ax.loglog()
    plain_numbers(ax.xaxis)
    ax.set(xlabel="Depth $L$", ylabel="Squared size")
    legend_beside(ax)


BO_DEPTH = grid_experiment(
    "bo-depth", Depths, run_depth, {"depth": "depths"}, runs="repetitions", bucket="depth"
)
DEPTHS = Study(
    "bo-depth",
    BO_DEPTH,
    paper=Depths((3, 5, 10, 20, 50, 100), repetitions=10),
    quick=Depths((3, 6, 12, 24), repetitions=3, deepest=24),
)
