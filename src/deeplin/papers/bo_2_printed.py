"""BO-2 as printed: ReLU networks trained to interpolation, and the asymmetry of α and β there.

Descent with the printed step does not get there (E-10); Levenberg-Marquardt does: steps
−Jᵀ(JJᵀ + μI)⁻¹r on the residuals r, μ lowered after a step that helps and raised otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import linalg

from deeplin.networks import Network, initialize
from deeplin.papers.figures import Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, number
from deeplin.papers.setting import data_seed
from deeplin.papers.statistics import mean_interval
from deeplin.papers.style import QUIET, legend_beside, look, plain_numbers
from deeplin.problems.synthetic import relu_teacher
from deeplin.sweep import run_key

INPUTS, WIDTH, OUTPUTS, DEPTH = 10, 50, 3, 3
TARGET = 1e-7
"""The printed loss, as the mean over the n·q entries."""


@dataclass(frozen=True)
class Interpolating:
    """α swept with β = 1, and β with α = 1, each on the same data sets and random numbers."""

    scales: tuple[float, ...]
    repetitions: int
    samples: int = 500
    iterations: int = 300
    seed: int = 0

    @property
    def networks(self) -> int:
        """How many are trained on each data set."""
        return 2 * len(self.scales)


def unit_layers(seed: int, repetition: int) -> Sequence[jax.Array]:
    """The random numbers behind all scales of a repetition: layers with α = β = 1."""
    key = run_key(seed, repetition=repetition, part="weights")
    scales = {"alpha": 1.0, "beta": 1.0}
    return initialize.identity_middle(key, INPUTS, WIDTH, OUTPUTS, DEPTH, **scales).weights


def run_cell(config: Interpolating, repetition: int) -> list[dict[str, Any]]:
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
    """Levenberg-Marquardt until the mean squared error is at most `TARGET`."""
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
            # Symmetric: its transpose is the same matrix, in the order LAPACK works in.
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
    """The inputs of every layer, and the residuals."""
    layers = [X]
    for weight in weights[:-1]:
        layers.append(np.maximum(layers[-1] @ weight.T, 0.0))
    return layers, layers[-1] @ weights[-1].T - Y


def _backward(weights, layers) -> list[np.ndarray]:
    """Derivative (n, q, width) of the outputs with respect to the preactivations of each layer."""
    outputs = len(weights[-1])
    found = [np.broadcast_to(np.eye(outputs), (len(layers[0]), outputs, outputs))]
    for weight, layer in zip(weights[:0:-1], layers[:0:-1], strict=True):
        found.append((found[-1] @ weight) * (layer > 0)[:, None, :])
    return found[::-1]


def _gram(layers, backward) -> np.ndarray:
    """JJᵀ without J, whose rows are Kronecker products: Σ_k (δ_kδ_kᵀ) ∘ (h_{k−1}h_{k−1}ᵀ ⊗ 11ᵀ)."""
    n, q, _ = backward[0].shape
    total = np.zeros((n, q, n, q))
    for layer, delta in zip(layers, backward, strict=True):
        rows = delta.reshape(n * q, -1)
        product = (rows @ rows.T).reshape(total.shape)
        product *= (layer @ layer.T)[:, None, :, None]  # in place: memory is what takes time here
        total += product
    return total.reshape(n * q, n * q)


def _adjoint(layers, backward, vector) -> list[np.ndarray]:
    """Jᵀv for each layer."""
    pairs = zip(layers, backward, strict=True)
    return [np.einsum("iom,io->im", delta, vector).T @ layer for layer, delta in pairs]


def effect(runs: Table, scale: str) -> pd.Series:
    """Relative change of the risk from the smallest nonzero scale to the largest, by data set."""
    risks = runs[runs[scale] > 0].pivot(index="repetition", columns=scale, values="risk")
    small, large = risks.iloc[:, 0], risks.iloc[:, -1]
    return (large - small) / small


def questions(config: Interpolating, table: Table) -> list[Question]:
    """What is printed, asked of networks that do interpolate."""
    reached = (table["loss"] <= TARGET).groupby(table["swept"]).sum()
    effects = {swept: effect(runs, "scale") for swept, runs in table.groupby("swept")}
    (a, a_half), (b, b_half), (more, apart) = (
        mean_interval(values.dropna().to_numpy())
        for values in (effects["alpha"], effects["beta"], effects["alpha"] - effects["beta"])
    )
    return [
        Question(
            "trained to interpolation",
            "What happens when the networks are trained until the loss is below 1e-7, as printed?",
            f"A solver that can get there ends below it in {int(reached['alpha'])} networks with "
            f"small α and {int(reached['beta'])} with small β, of {len(table) // 2} each. From "
            f"10⁻⁴ to 10⁻³ the risk then changes by {number(a)} ± {number(a_half)} with α and by "
            f"{number(b)} ± {number(b_half)} with β; the difference is {number(more)} ± "
            f"{number(apart)} ({table['repetition'].nunique()} data sets).",
        )
    ]


def plot(config: Interpolating, table: Table, ax: Axes) -> None:
    """Excess risk against the scale that is swept, for α and for β."""
    for index, (swept, runs) in enumerate(table.groupby("swept")):
        means = [mean_interval(cell["risk"].to_numpy()) for _, cell in runs.groupby("scale")]
        height, half = zip(*means, strict=True)
        style = look(index, capsize=2, label=rf"$\{swept}$")
        ax.errorbar(sorted(runs["scale"].unique()), height, half, **style)
    zero = table.drop_duplicates("repetition")["zero_risk"].mean()
    ax.axhline(zero, color=QUIET, linestyle=":", label="zero predictor")
    ax.loglog()
    plain_numbers(ax.yaxis)
    ax.set(
        xlabel=r"$\alpha$ (with $\beta = 1$) or $\beta$ (with $\alpha = 1$)", ylabel="Excess risk"
    )
    legend_beside(ax)


AXES = {"repetition": "repetitions"}
INTERPOLATING = grid_experiment(
    "relu-interpolating", Interpolating, run_cell, AXES, runs="networks"
)
STUDY = Study(
    "bo-2-printed",
    INTERPOLATING,
    # The two ends decide: a network takes up to a hundred factorisations of a matrix
    # of size 1500.
    paper=Interpolating((1e-4, 1e-3), repetitions=10),
    quick=Interpolating((1e-4, 1e-3), repetitions=4, samples=100),
)
PANEL = our_panel(
    "BO-2-printed",
    "As printed: trained until the loss is below 1e-7, by Levenberg-Marquardt (quick preset: "
    "n = 100).",
    STUDY,
    plot,
    questions,
    size=(5.8, 3.5),
)
