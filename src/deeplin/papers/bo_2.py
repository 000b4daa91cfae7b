"""BO-2: ReLU networks, excess risk against the variance of the first and of the last layer.

As the authors ran it, by descent that stops early, and as printed: trained to interpolation.
Descent with the printed step does not get there (E-10); Levenberg-Marquardt does: steps
−Jᵀ(JJᵀ + μI)⁻¹r on the residuals r, μ lowered after a step that helps and raised otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import linalg

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network, initialize
from deeplin.networks.network import risk_and_data
from deeplin.papers.figures import Answers, Table, define_figure, define_panel, define_study
from deeplin.papers.setting import Config, data_seed
from deeplin.papers.statistics import curve, mean_interval, number
from deeplin.papers.wide_sweep import RISK, SCALES
from deeplin.plot_style import INK, QUIET, bars, series
from deeplin.problems import Problem
from deeplin.problems.synthetic import relu_teacher
from deeplin.sweep import Unit, run_key

INPUTS, WIDTH, OUTPUTS, DEPTH = 10, 50, 3, 3
TARGET = 1e-7
"""The printed loss, as the mean over the n·q entries."""
AUTHORS_STEP = 1e-4
"""On the mean squared error over the n·q entries."""


@dataclass(frozen=True)
class ReluSweep(Config):
    """Every pair (α, β) on `repetitions` fresh data sets of a ReLU teacher, with one step size.

    In the `checked` first repetitions the pair of largest scales is also trained with the authors'
    step over the same time η·steps, so that the difference is measured and not assumed.
    """

    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    repetitions: int = 20
    learning_rate: float = 1e-4
    steps: int = 100_000
    checked: int = 0


def units(config: ReluSweep) -> list[Unit]:
    """Return one unit for each data set and step, with all scales as one batch."""
    pairs = list(product(config.alphas, config.betas))
    runs = [(r, config.learning_rate, pairs) for r in range(config.repetitions)]
    runs += [(r, AUTHORS_STEP, pairs[-1:]) for r in range(config.checked)]
    return [
        Unit(
            {"repetition": repetition, "learning_rate": rate, "pairs": chosen},
            runs=len(chosen),
            steps=len(chosen) * _steps(config, rate),
        )
        for repetition, rate, chosen in runs
    ]


def _steps(config: ReluSweep, learning_rate: float) -> int:
    """Return the number of steps with this rate over the time of the config."""
    return round(config.steps * config.learning_rate / learning_rate)


def run_relu(
    config: ReluSweep, repetition: int, learning_rate: float, pairs: list[list[float]]
) -> pd.DataFrame:
    """Train in float32, as the authors did; excess risk on fresh noise-free points."""
    data = relu_teacher(data_seed(config.seed, repetition=repetition, part="data"))
    initial = _networks(config.seed, repetition, pairs)
    gradients = jax.vmap(jax.grad(_risk(data.problem, initial)))(initial)
    size = sum(jnp.sum(jnp.abs(leaf), axis=(1, 2)) for leaf in gradients.weights)
    alive = np.asarray(size) > 0  # with α = 0 every unit stays dead (E-10)
    batch = jax.tree.map(lambda leaf: leaf[np.flatnonzero(alive)], initial)
    # Descent on the mean over n·q is descent on R, the mean over n, with step η/q.
    steps = _steps(config, learning_rate)
    run = gradient_descent(data.problem, batch, learning_rate / OUTPUTS, steps)
    trained = jax.tree.map(lambda all, some: all.at[alive].set(some), initial, run.network)
    status, taken = np.full(len(pairs), "stopped", dtype=object), np.zeros(len(pairs), dtype=int)
    status[alive], taken[alive] = run.status, run.steps
    return pd.DataFrame(pairs, columns=["alpha", "beta"]).assign(
        repetition=repetition,
        learning_rate=learning_rate,
        status=status.astype(str),
        steps=taken,
        loss=np.asarray(jax.vmap(_risk(data.problem, trained))(trained), dtype=float),
        risk=np.asarray(jax.vmap(_risk(data.test, trained))(trained), dtype=float),
        zero_risk=data.test.target_moment,
    )


def _networks(seed: int, repetition: int, pairs: list[list[float]]) -> Network:
    """Return one network for each pair of scales, from the same random numbers, in float32."""
    first, middle, last = (layer.astype(jnp.float32) for layer in unit_layers(seed, repetition))
    alphas, betas = jnp.asarray(pairs, jnp.float32).T[..., None, None]
    middles = jnp.broadcast_to(middle, (len(pairs), *middle.shape))
    return Network((alphas * first, middles, betas * last), activation="relu")


def _risk(problem: Problem, networks: Network) -> Callable[[Network], jax.Array]:
    """Return (1/n)‖Y − f(X)‖² of a network: excess risk where the targets carry no noise."""
    return partial(*risk_and_data(problem, networks))


def main_runs(config: ReluSweep, table: Table) -> Table:
    """Return the runs of the figure, without those that check its step."""
    return table[table["learning_rate"] == config.learning_rate]


def unit_layers(seed: int, repetition: int) -> Sequence[jax.Array]:
    """Return the random numbers shared by all scales of a repetition: layers with α = β = 1."""
    key = run_key(seed, repetition=repetition, part="weights")
    scales = {"alpha": 1.0, "beta": 1.0}
    return initialize.identity_middle(key, INPUTS, WIDTH, OUTPUTS, DEPTH, **scales).weights


def effect(runs: Table, scale: str) -> pd.Series:
    """Return the relative change of the risk from the smallest nonzero scale to the largest."""
    risks = runs[runs[scale] > 0].pivot(index="repetition", columns=scale, values="risk")
    small, large = risks.iloc[:, 0], risks.iloc[:, -1]
    return (large - small) / small


def plot_risk(config: ReluSweep, table: Table, ax: Axes, *, scale: str) -> None:
    """Plot excess risk on fresh points against α² or β², with that of the zero predictor."""
    runs = main_runs(config, table)
    points = curve(runs.assign(variance=runs[scale] ** 2), "variance", "risk")
    bars(ax, points, "variance", **series(0, label="trained"))
    dead = runs[runs["steps"] == 0]
    if len(dead):
        value = dead[scale].iloc[0]
        letter = "α" if scale == "alpha" else "β"
        note = f"{letter} = {number(value)}: no gradient, never trained (E-10)"
        point, shift = (value**2, dead["risk"].mean()), (12, -16)
        ax.annotate(note, point, shift, textcoords="offset points", fontsize="small")
    _plot_zero_predictor(ax, runs)
    ax.set_ylim(bottom=0)
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))


def _plot_zero_predictor(ax: Axes, runs: Table) -> None:
    zero = runs.drop_duplicates("repetition")["zero_risk"].mean()
    ax.axhline(zero, color=QUIET, linestyle=":", label="zero predictor")


def first_layer_answers(config: ReluSweep, table: Table) -> Answers:
    """Answer how large the effect of α is, and what the drawn point at α = 0 is."""
    runs = main_runs(config, table)
    dead, top = runs[runs["alpha"] == 0], runs[runs["alpha"] == runs["alpha"].max()]
    return {
        "size of the effect": {
            "growth": mean_interval(effect(runs, "alpha").to_numpy()),
            "ratio": top["risk"].mean() / dead["risk"].mean(),
            "steps": dead["steps"].max(),
        },
        **step_answers(config, table),
    }


def step_answers(config: ReluSweep, table: Table) -> Answers:
    """Answer how far a larger step over the same time is from true descent."""
    if config.learning_rate == AUTHORS_STEP:
        return {}
    keys = ["repetition", "alpha", "beta"]
    true = table.query("learning_rate == @AUTHORS_STEP").set_index(keys)["risk"]
    ours = main_runs(config, table).set_index(keys)["risk"].reindex(true.index)
    return {"larger step": {"change": (ours / true - 1).abs().max()}}


QUICK = {"repetitions": 4, "learning_rate": 1e-3, "steps": 2_500, "checked": 1}
FEWER = (SCALES[0], SCALES[1], SCALES[9])
relu_study = partial(define_study, run=run_relu, over=units)
FIRST_LAYER = relu_study(
    "bo-2-first-layer", paper=ReluSweep(SCALES, (1.0,)), quick={"alphas": FEWER, **QUICK}
)
LAST_LAYER = relu_study(
    "bo-2-last-layer", paper=ReluSweep((1.0,), SCALES), quick={"betas": FEWER, **QUICK}
)


@dataclass(frozen=True)
class Interpolating(Config):
    """α swept with β = 1, and β with α = 1, each on the same data sets and random numbers."""

    scales: tuple[float, ...]
    repetitions: int
    samples: int = 500
    iterations: int = 300


def run_interpolating(config: Interpolating, repetition: int) -> list[dict[str, Any]]:
    """Train every pair of scales; excess risk on fresh noise-free points."""
    drawn = data_seed(config.seed, repetition=repetition, part="interpolating")
    data = relu_teacher(drawn, samples=config.samples)
    X, Y = data.problem.require_data("training")
    first, middle, last = (
        np.asarray(layer, np.float64) for layer in unit_layers(config.seed, repetition)
    )
    rows = []
    for swept, scale in product(("alpha", "beta"), config.scales):
        alpha, beta = (scale, 1.0) if swept == "alpha" else (1.0, scale)
        start = Network([alpha * first, middle, beta * last], activation="relu")
        network, loss, steps = interpolate(X, Y, start, config.iterations)
        test = np.asarray(network(jnp.asarray(data.test.inputs)))
        rows.append(
            {
                "swept": swept,
                "scale": scale,
                "loss": loss,
                "risk": float(np.mean(np.sum((test - data.test.targets) ** 2, axis=1))),
                "steps": steps,
                "status": "converged" if loss <= TARGET else "stopped",
                "zero_risk": data.test.target_moment,
            }
        )
    return rows


def interpolate(X, Y, start: Network, iterations: int) -> tuple[Network, float, int]:
    """Train by Levenberg-Marquardt until the mean squared error is at most `TARGET`."""
    X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    weights = [np.asarray(weight, np.float64) for weight in start.weights]
    damping = 1.0
    for step in range(iterations):
        layers, residual = _forward(weights, X, Y)
        loss = float(np.mean(residual**2))
        if loss <= TARGET:
            return Network(weights, activation="relu"), loss, step
        backward = _backward(weights, layers)
        gram = _gram(layers, backward)
        for _ in range(12):
            damped = gram.copy()
            damped.flat[:: len(gram) + 1] += damping
            # Symmetric: the transpose is the same matrix in Fortran order, as LAPACK needs it.
            factor = linalg.cho_factor(damped.T, overwrite_a=True, check_finite=False)
            solved = linalg.cho_solve(factor, residual.ravel(), check_finite=False)
            moves = _adjoint(layers, backward, solved.reshape(residual.shape))
            tried = [weight - move for weight, move in zip(weights, moves, strict=True)]
            if np.mean(_forward(tried, X, Y)[1] ** 2) < loss:
                weights, damping = tried, damping / 3
                break
            damping *= 4
        else:
            break
    loss = float(np.mean(_forward(weights, X, Y)[1] ** 2))
    return Network(weights, activation="relu"), loss, iterations


def _forward(weights, X, Y) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the inputs of every layer, and the residuals."""
    layers = [X]
    for weight in weights[:-1]:
        layers.append(np.maximum(layers[-1] @ weight.T, 0.0))
    return layers, layers[-1] @ weights[-1].T - Y


def _backward(weights, layers) -> list[np.ndarray]:
    """Return the derivative (n, q, width) of the outputs in the preactivations of each layer."""
    outputs = len(weights[-1])
    found = [np.broadcast_to(np.eye(outputs), (len(layers[0]), outputs, outputs))]
    for weight, layer in zip(weights[:0:-1], layers[:0:-1], strict=True):
        found.append((found[-1] @ weight) * (layer > 0)[:, None, :])
    return found[::-1]


def _gram(layers, backward) -> np.ndarray:
    """Return JJᵀ = Σ_k (δ_kδ_kᵀ) ∘ (h_{k−1}h_{k−1}ᵀ ⊗ 11ᵀ) without forming J."""
    n, q, _ = backward[0].shape
    total = np.zeros((n, q, n, q))
    for layer, delta in zip(layers, backward, strict=True):
        rows = delta.reshape(n * q, -1)
        product = (rows @ rows.T).reshape(total.shape)
        product *= (layer @ layer.T)[:, None, :, None]  # in place: memory dominates the cost
        total += product
    return total.reshape(n * q, n * q)


def _adjoint(layers, backward, vector) -> list[np.ndarray]:
    """Return Jᵀv for each layer."""
    pairs = zip(layers, backward, strict=True)
    return [np.einsum("iom,io->im", delta, vector).T @ layer for layer, delta in pairs]


def interpolating_answers(config: Interpolating, table: Table) -> Answers:
    """Answer the printed claims for networks that do interpolate."""
    alpha, beta = (effect(runs, "scale") for _, runs in table.groupby("swept"))
    effects = {"alpha": alpha, "beta": beta, "difference": alpha - beta}
    return {
        "trained to interpolation": {
            "reached": (table["loss"] <= TARGET).groupby(table["swept"]).sum(),
            "networks": len(table) // 2,
            "sets": table["repetition"].nunique(),
            **{name: mean_interval(change.dropna()) for name, change in effects.items()},
        }
    }


def plot_interpolating(config: Interpolating, table: Table, ax: Axes) -> None:
    """Plot the relative change of the risk from the small scale to the large one, by data set."""
    names = []
    for place, (swept, runs) in enumerate(table.groupby("swept")):
        changes = effect(runs, "scale").dropna()
        style = series(place)
        spread = np.linspace(-0.12, 0.12, len(changes))
        ax.plot(place + spread, changes, "o", color=style["color"], alpha=0.4)
        mean, half = mean_interval(changes)
        ax.errorbar([place + 0.22], [mean], [half], capsize=4, **style)
        names.append(rf"$\{swept}$")
    ax.set_xticks(range(len(names)), names)
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.plot([], [], "o", color=QUIET, alpha=0.5, label="one data set")
    ax.errorbar([], [], [], color=QUIET, marker="s", capsize=4, label="mean, 95% interval")


INTERPOLATING = define_study(
    "bo-2-printed",
    run_interpolating,
    {"repetition": "repetitions"},
    # Two scales suffice: a network takes up to a hundred factorizations of size 1500.
    paper=Interpolating((1e-4, 1e-3), repetitions=10),
    quick={"repetitions": 4, "samples": 100},
    runs=lambda config: 2 * len(config.scales),
)

VARIANCE = r"Initialization variance $\{}^2$"
FIGURE = define_figure(
    "BO-2",
    define_panel(
        "BO-2-left",
        FIRST_LAYER,
        partial(plot_risk, scale="alpha"),
        first_layer_answers,
        axes={"xlabel": VARIANCE.format("alpha"), "ylabel": RISK},
        legend={"loc": "lower right"},
    ),
    define_panel(
        "BO-2-right",
        LAST_LAYER,
        partial(plot_risk, scale="beta"),
        step_answers,
        axes={"xlabel": VARIANCE.format("beta"), "ylabel": RISK},
        legend={"loc": "lower right"},
    ),
    define_panel(
        "BO-2-printed",
        INTERPOLATING,
        plot_interpolating,
        interpolating_answers,
        axes={
            "xlabel": "Scale that grows tenfold, the other one is 1",
            "ylabel": "Relative change of the excess risk",
        },
        ours=True,
    ),
)
