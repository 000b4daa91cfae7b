"""BO-bounds: the bounds of BO on the measured risk, one term at a time, and Ξ against depth.

The populations are spiked and the networks very wide, as the bounds require.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from deeplin.dynamics import WideRun, simulate_wide
from deeplin.papers.bo_1 import gain_outside, population_of
from deeplin.papers.figures import Answers, Table, define_study
from deeplin.papers.setting import Config, data_seed
from deeplin.papers.statistics import interval, power_interval, slope_interval
from deeplin.plot_style import COLORS, QUIET, series
from deeplin.problems import Population, Problem
from deeplin.problems.synthetic import Synthetic, spiked
from deeplin.sweep import run_keys
from deeplin.theory import (
    conditional_variance,
    interpolation_bound,
    random_start_bound,
    risk_split,
    spike_bound,
)
from deeplin.theory.benign_overfitting import noise_cost_bound

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
    """Return a data set of a spiked population, from its coordinates."""
    drawn = data_seed(seed, samples=samples, repetition=repetition, part="bounds")
    shape: dict[str, Any] = {"samples": samples, "outputs": OUTPUTS, "spikes": spikes}
    return spiked(drawn, dimension, epsilon=epsilon, noise=noise, **shape)


def last_layer(data: Synthetic, depth: int, *, spikes: int = SPIKES) -> float:
    """Return β of BO-T3.2 with c = 1: max(1, λ_1^{1/4}√(Ln)(√‖Θ*‖λ_1^{1/4} + q^{1/4})/√s_k)."""
    n = data.problem.samples
    return max(1.0, np.sqrt(depth * n / data.spectrum[spikes:].sum()) * (1 + OUTPUTS**0.25))


def weight_keys(seed: int, repetitions: int):
    """Return one key for the weights on each data set."""
    return run_keys(seed, [{"repetition": k, "part": "weights"} for k in range(repetitions)])


def train(data: list[Synthetic], depth: int, beta: float, keys, *, alpha: float = ALPHA) -> WideRun:
    """Train a network of width 10⁶ on each data set by gradient flow to a mean loss of 1e-8."""
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
"""Operator norm of the first layer, so small that Ξ is negligible (the corollary leaves α free)."""
QUIET_TERM, MANY = 0.05, 3000
"""εd/n if it is not swept, and d if n/d is not, so that both terms are small."""
SWEEPS = {
    "k/n": (16, 8, 4, 2, 1),
    "n/d": (120, 240, 480, 960, 1920),
    "εd/n": (0.8, 0.4, 0.2, 0.1, 0.05),
}
"""k, d and εd/n; the last without noise, which would dominate it."""


@dataclass(frozen=True)
class Rates(Config):
    """Trained networks along three sweeps, each of which sends one term of BO-C3.4 to zero."""

    repetitions: int
    samples: int = 30
    depth: int = 3


def population_sizes(samples: int, term: str, value: float) -> tuple[int, int, float, float]:
    """Return k, d, ε and the size of the noise at a point of a sweep."""
    if term == "k/n":
        return int(value), MANY, QUIET_TERM * samples / MANY, 1.0
    if term == "n/d":
        return 0, int(value), QUIET_TERM * samples / value, 1.0
    return 2, MANY, value * samples / MANY, 0.0


def run_rate(config: Rates, term: str, place: int) -> dict[str, Any]:
    """Return the exact excess risk of each trained network, and the swept term of BO-C3.4."""
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


def rate_answers(config: Rates, table: Table) -> Answers:
    """Answer how fast the risk falls with each term, and with which constant."""
    means = {term: runs.groupby("size")["risk"].mean() for term, runs in table.groupby("term")}
    powers = {term: slope_interval(np.log(m.index), np.log(m)) for term, m in means.items()}
    return {
        "rate of each term": {
            "powers": ", ".join(f"{interval(power)} ({term})" for term, power in powers.items()),
            "needed": {term: (risk / risk.index).max() for term, risk in means.items()},
        }
    }


def plot_rates(config: Rates, table: Table, ax: Axes) -> None:
    """Plot mean excess risk against the term that is swept; dotted: the term itself."""
    letters = {
        "k/n": r"$q(k/n + n/d)$, $k$ swept",
        "n/d": r"$q\,n/d$",
        "εd/n": r"$\varepsilon d/n$",
    }
    for index, (term, label) in enumerate(letters.items()):
        runs = table[table["term"] == term]
        ax.plot(runs["size"], runs["risk"], ".", color=COLORS[index], alpha=0.4)
        ax.plot(runs.groupby("size")["risk"].mean(), label=label, **series(index))
    ends = np.array([table["size"].min(), table["size"].max()])
    ax.plot(ends, ends, ":", color=QUIET, label="the term itself")


RATES = define_study(
    "bo-rates",
    run_rate,
    {"term": tuple(SWEEPS), "place": range(5)},
    paper=Rates(20),
    quick={"repetitions": 4},
    runs="repetitions",
)


@dataclass(frozen=True)
class Depths(Config):
    """Ξ against depth, with the bound of BO-T3.2 as printed and as its proof gives it (E-19).

    The same data trained at several depths, with β large enough for BO-T3.2 at all of them.
    """

    depths: tuple[int, ...]
    repetitions: int
    samples: int = 8
    dimension: int = 40
    epsilon: float = 0.2
    deepest: int = 100
    """Depth whose β is used for all depths."""


def run_depth(config: Depths, depth: int) -> list[dict[str, Any]]:
    """Return Ξ, the gain of Θ_⊥ in training, and both bounds on Ξ with c = 1."""
    sizes = config.samples, config.dimension, config.epsilon
    data = [draw(config.seed, k, *sizes) for k in range(config.repetitions)]
    beta = last_layer(data[0], config.deepest)
    wide = train(data, depth, beta, weight_keys(config.seed, config.repetitions))
    rows = []
    for k, source in enumerate(data):
        population = population_of(source)
        scales = {"alpha": ALPHA, "beta": beta, "depth": depth, "width": WIDTH}
        bound = partial(random_start_bound, population, config.samples, **scales)
        rows.append(
            {
                "repetition": k,
                "status": wide.status[k],
                "xi": risk_split(source.problem, population, wide.theta[k]).xi,
                "gained": gain_outside(wide, k, source.problem),
                "printed": bound(corrected=False).xi,
                "corrected": bound(corrected=True).xi,
            }
        )
    return rows


def depth_answers(config: Depths, table: Table) -> Answers:
    """Answer how the gain of Θ_⊥ grows with depth, and how far both bounds on Ξ are above it."""
    return {
        "growth with depth": {
            "power": power_interval(table, "depth", "gained", "repetition"),
            "sets": table["repetition"].nunique(),
        },
        "bounds on Ξ": {form: table[form] / table["xi"] for form in ("printed", "corrected")},
    }


def plot_depth(config: Depths, table: Table, ax: Axes) -> None:
    """Plot the gain of Θ_⊥, and Ξ with its two bounds, against depth."""
    # wide and pale: the first term, which both bounds share, is far larger than the second
    wide = {"color": QUIET, "linewidth": 6, "alpha": 0.4}
    styles = {
        "gained": series(0, label=r"$\|\Theta_\perp - \Theta_\perp(0)\|^2$"),
        "xi": series(1, label=r"$\Xi$"),
        "printed": wide | {"label": r"bound on $\Xi$, printed"},
        "corrected": series(3, label=r"bound on $\Xi$, corrected", linestyle="--"),
    }
    means = table.groupby("depth").mean(numeric_only=True)
    for column, style in styles.items():
        ax.plot(means[column], **style)


DEPTHS = define_study(
    "bo-depth",
    run_depth,
    {"depth": "depths"},
    paper=Depths((3, 5, 10, 20, 50, 100), repetitions=10),
    quick={"depths": (3, 6, 12, 24), "repetitions": 3, "deepest": 24},
    runs="repetitions",
)
DEPTH = 3


@dataclass(frozen=True)
class Benign(Config):
    """Ever more samples with d = n^1.5 and ε = 1/(2√d): k/n, εd/n and n/d all fall."""

    samples: tuple[int, ...]
    repetitions: int
    noises: int
    """Number of new draws of the noise on the same inputs."""
    redrawn: int = 1
    """Number of data sets, for each number of samples, on which the noise is drawn again."""


def run_benign(config: Benign, samples: int) -> list[dict[str, Any]]:
    """Return the risk and its parts, the bounds of BO with c = 1, and the variance over noise."""
    n, d = samples, round(samples**1.5)
    data = [draw(config.seed, k, n, d, 0.5 / np.sqrt(d)) for k in range(config.repetitions)]
    keys = weight_keys(config.seed, config.repetitions)
    wide = train(data, DEPTH, last_layer(data[0], DEPTH), keys)
    rows = []
    for k, source in enumerate(data):
        population = population_of(source)
        split = risk_split(source.problem, population, wide.theta[k])
        bound = interpolation_bound(population, n, float(np.linalg.norm(wide.theta_perp[k])))
        rows.append(
            {
                "repetition": k,
                "status": wide.status[k],
                "risk": split.total,
                "bias": split.bias,
                "noise": split.noise,
                "xi": split.xi,
                "bias_bound": bound.bias,
                "variance_bound": bound.variance,
                "xi_bound": bound.xi,
                "spike_bound": spike_bound(population, n),
                "expected_variance": conditional_variance(source.problem, population),
                "lower_variance": OUTPUTS * noise_cost_bound(source.problem, population),
                "measured_variance": _over_noise(config, source, population, keys[k], k),
                "variance_error": _variance_error(config, source.problem, population),
            }
        )
    return rows


def _over_noise(config: Benign, source: Synthetic, population: Population, key, k: int) -> float:
    """Return the trace of the covariance of Σ^{1/2}P_XΘ over fresh noise on the same inputs.

    All networks are trained from the same weights.
    """
    if k >= config.redrawn:
        return np.nan
    rng = np.random.default_rng((config.seed, source.problem.samples, k))
    X, truth = np.asarray(source.problem.inputs), np.asarray(source.truth)
    fresh = [
        Problem.from_data(X, X @ truth + rng.normal(size=(len(X), OUTPUTS)))
        for _ in range(config.noises)
    ]
    copies = [Synthetic(problem, problem, truth, source.spectrum) for problem in fresh]
    keys = jnp.stack([key] * config.noises)
    maps = train(copies, DEPTH, last_layer(source, DEPTH), keys).theta
    basis = source.problem.spectrum.vectors
    inside = basis @ (basis.T @ (maps - maps.mean(axis=0)))
    sizes = np.sum(inside * population.apply(inside), axis=(-1, -2))
    return float(np.sum(sizes) / (config.noises - 1))


def _variance_error(config: Benign, problem: Problem, population: Population) -> float:
    """Return the relative standard error √(2Tr(C²)/(q(N−1)))/Tr(C) of that trace over N draws."""
    eigenvalues, vectors, _ = problem.spectrum
    half = vectors / np.sqrt(problem.samples * eigenvalues)
    C = half.T @ population.apply(half)
    return float(np.sqrt(2 * np.sum(C**2) / (OUTPUTS * (config.noises - 1))) / np.trace(C))


def benign_answers(config: Benign, table: Table) -> Answers:
    """Answer which constant suffices, the variance over the noise, and how fast the risk falls."""
    bound = table["bias_bound"] + table["variance_bound"] + table["xi_bound"]
    ratios = {
        "bias": table["bias"] / table["bias_bound"],
        "variance": table["noise"] / table["variance_bound"],
        "Ξ": table["xi"] / table["xi_bound"],
        "total": table["risk"] / bound,
        "BO-C3.4": table["risk"] / table["spike_bound"],
    }
    again = table.dropna(subset=["measured_variance"])
    apart = (again["measured_variance"] / again["expected_variance"] - 1) / again["variance_error"]
    return {
        "constants": {"ratios": {name: ratio.max() for name, ratio in ratios.items()}},
        "variance over the noise": {"apart": apart},
        "lower bound": {"ratio": table["lower_variance"] / table["expected_variance"]},
        "benign": {"power": slope_interval(np.log(table["samples"]), np.log(table["risk"]))},
    }


def plot_benign(config: Benign, table: Table, ax: Axes) -> None:
    """Plot risk and its parts against n, each with its bound (c = 1) in the same color, dotted."""
    means = table.groupby("samples").mean(numeric_only=True)
    parts = {
        "risk": ("spike_bound", "risk; bound of BO-C3.4"),
        "bias": ("bias_bound", "bias"),
        "noise": ("variance_bound", "variance"),
        "xi": ("xi_bound", r"$\Xi$"),
    }
    for index, (column, (bound, label)) in enumerate(parts.items()):
        # the risk wide and pale: most of it is variance
        wide = {"linewidth": 5, "alpha": 0.4} if column == "risk" else {}
        ax.plot(means[column], **series(index, label=label, **wide))
        ax.plot(means[bound], ":", color=COLORS[index])
    least = {"color": COLORS[2], "linestyle": "--", "linewidth": 1}
    ax.plot(means["lower_variance"], label="variance, at least (X-32)", **least)
    ax.plot([], [], ":", color=QUIET, label="bounds with $c = 1$")


BENIGN = define_study(
    "bo-benign",
    run_benign,
    {"samples": "samples"},
    # n = 320 takes some four minutes of one core, all the others one together
    paper=Benign((10, 20, 40, 80, 160, 320), repetitions=10, noises=30, redrawn=3),
    quick={"samples": (10, 20, 40), "repetitions": 3, "noises": 20, "redrawn": 1},
    runs="repetitions",
)
