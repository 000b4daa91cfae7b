"""Beyond the papers' figures: the bounds of BO on the measured risk, and Ξ against depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from deeplin.papers.bo_1 import population_of
from deeplin.papers.bo_terms import (
    DEPTHS,
    OUTPUTS,
    RATES,
    depth_questions,
    draw,
    last_layer,
    plot_depth,
    plot_rates,
    rate_questions,
    train,
    weight_keys,
)
from deeplin.papers.figures import Figure, Panel, Study, Table, grid_experiment
from deeplin.papers.question import Question, each, extent, number
from deeplin.papers.statistics import slope_interval
from deeplin.papers.style import QUIET, legend_beside, look, plain_numbers
from deeplin.problems import Population, Problem
from deeplin.problems.synthetic import Synthetic
from deeplin.theory import conditional_variance, interpolation_bound, risk_split, spike_bound
from deeplin.theory.benign_overfitting import noise_cost_bound

DEPTH = 3


@dataclass(frozen=True)
class Benign:
    """Ever more samples with d = n^1.5 and ε = 1/(2√d): k/n, εd/n and n/d all fall."""

    samples: tuple[int, ...]
    repetitions: int
    noises: int
    """Fresh draws of the noise on the same inputs."""
    asked: int = 1
    """Data sets for each number of samples on which the noise is drawn again."""
    seed: int = 0


def run_benign(config: Benign, samples: int) -> list[dict[str, Any]]:
    """Risk and its parts, the bounds of BO with c = 1, and the variance over fresh noise."""
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
    """Trace of the empirical covariance of Σ^{1/2}P_XΘ over fresh noise on the same inputs.

    Trained from the same weights each time.
    """
    if k >= config.asked:
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
    """Relative standard error √(2Tr(C²)/(q(N−1)))/Tr(C) of that trace over N draws of the noise."""
    eigenvalues, vectors, _ = problem.spectrum
    half = vectors / np.sqrt(problem.samples * eigenvalues)
    C = half.T @ population.apply(half)
    return float(np.sqrt(2 * np.sum(C**2) / (OUTPUTS * (config.noises - 1))) / np.trace(C))


def benign_questions(config: Benign, table: Table) -> list[Question]:
    """Which constant suffices, the variance over the noise, and how fast the risk falls."""
    bound = table["bias_bound"] + table["variance_bound"] + table["xi_bound"]
    ratios = {
        "bias": table["bias"] / table["bias_bound"],
        "variance": table["noise"] / table["variance_bound"],
        "Ξ": table["xi"] / table["xi_bound"],
        "total": table["risk"] / bound,
        "BO-C3.4": table["risk"] / table["spike_bound"],
    }
    asked = table.dropna(subset=["measured_variance"])
    apart = (asked["measured_variance"] / asked["expected_variance"] - 1) / asked["variance_error"]
    slope, half = slope_interval(np.log(table["samples"]), np.log(table["risk"]))
    return [
        Question(
            "constants",
            "Which constant c do the bounds of BO-T3.1 and BO-C3.4 need on these runs?",
            "The smallest that serves all n: "
            f"{each('{}', {k: r.max() for k, r in ratios.items()})}.",
        ),
        Question(
            "variance over the noise",
            "Is the conditional variance that of the minimum-norm interpolant, σ²q·Tr(C)?",
            f"Over {config.noises} draws of the noise the empirical covariance is {extent(apart)} "
            f"standard errors from it ({len(asked)} data sets).",
        ),
        Question(
            "lower bound",
            "How tight is the lower bound on the variance (X-32)?",
            f"It is {extent(table['lower_variance'] / table['expected_variance'])} of the "
            "conditional variance, tighter the larger n.",
        ),
        Question(
            "benign",
            "How does the risk fall as k/n, εd/n and n/d do (d = n^1.5)?",
            f"Like n to the power {number(slope)} ± {number(half)}.",
        ),
    ]


def plot_benign(config: Benign, table: Table, ax: Axes) -> None:
    """Risk and its parts against n, each with its bound (c = 1) in the same colour, dotted."""
    means = table.groupby("samples").mean(numeric_only=True)
    rows = (
        ("risk", "spike_bound", "risk; bound of BO-C3.4"),
        ("bias", "bias_bound", "bias"),
        ("noise", "variance_bound", "variance"),
        ("xi", "xi_bound", r"$\Xi$"),
    )
    for index, (column, bound, label) in enumerate(rows):
        # the risk wide and pale: most of it is variance
        wide = {"linewidth": 5, "alpha": 0.4} if column == "risk" else {}
        ax.plot(means.index, means[column], label=label, **look(index), **wide)
        style: dict[str, Any] = look(index) | {"marker": None}
        ax.plot(means.index, means[bound], ":", **style)
    style = look(2) | {"marker": None, "linewidth": 1}
    ax.plot(means.index, means["lower_variance"], "--", label="variance, at least (X-32)", **style)
    ax.plot([], [], ":", color=QUIET, label="bounds with $c = 1$")
    ax.loglog()
    plain_numbers(ax.xaxis)
    ax.set(xlabel="Samples $n$ ($d = n^{1.5}$)", ylabel="Excess risk and its parts")
    legend_beside(ax)


BO_BENIGN = grid_experiment(
    "bo-benign", Benign, run_benign, {"samples": "samples"}, runs="repetitions"
)
BENIGN = Study(
    "bo-benign",
    BO_BENIGN,
    # n = 320 takes some four minutes of one core, all the others one together
    paper=Benign((10, 20, 40, 80, 160, 320), repetitions=10, noises=30, asked=3),
    quick=Benign((10, 20, 40), repetitions=3, noises=20),
)

BO_BOUNDS = Figure(
    "BO-bounds",
    "The bounds on the measured risk, and Ξ against depth",
    (
        Panel(
            "BO-bounds-risk",
            "Excess risk with its bias, variance and Ξ, and the bounds of BO-T3.1 and BO-C3.4 with "
            "c = 1 (dotted), where k/n, εd/n and n/d fall.",
            BENIGN,
            plot_benign,
            benign_questions,
            size=(5.8, 3.5),
            ours=True,
        ),
        Panel(
            "BO-bounds-rates",
            "Excess risk of trained networks as one term of BO-C3.4 goes to zero and the others "
            "show little (dots: data sets).",
            RATES,
            plot_rates,
            rate_questions,
            size=(5.8, 3.5),
            ours=True,
        ),
        Panel(
            "BO-bounds-depth",
            "What Θ_⊥ gains in training and Ξ, against depth, with the bound on Ξ of BO-T3.2 as "
            "printed and corrected (E-19), c = 1.",
            DEPTHS,
            plot_depth,
            depth_questions,
            size=(5.8, 3.5),
            ours=True,
        ),
    ),
    printed="Not in the paper, which draws no bound. Theorem 3.1, Theorem 3.2 and Corollary 3.4 "
    "leave their constant c open.",
    as_run="Spiked populations, k = 2 and q = 2, networks of width 10⁶ by gradient flow through "
    "their exact reduction (X-4, X-5), α = 0.05 in operator norm, β as BO-T3.2 asks with c = 1. "
    "Risk: depth 3. Rates: depth 3, n = 30, α = 0.001. Depth: n = 8, d = 40, ε = 0.2, the same β "
    "at every depth.",
)
