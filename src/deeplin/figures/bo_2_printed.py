"""BO-2 as printed: ReLU networks trained to interpolation, and the asymmetry of α and β there.

Descent with the printed step does not get there (E-10); Levenberg-Marquardt does: steps
−Jᵀ(JJᵀ + μI)⁻¹r on the residuals r, μ lowered after a step that helps and raised otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import linalg

from deeplin.figures.claims import POSITIVE, Claim, number
from deeplin.figures.figure import Panel, Study, Table
from deeplin.figures.relu_sweep import DEPTH, INPUTS, OUTPUTS, WIDTH
from deeplin.figures.setting import data_seed
from deeplin.figures.statistics import mean_interval
from deeplin.figures.style import QUIET, legend_beside, look, plain_numbers
from deeplin.networks import Network, initialize
from deeplin.problems.synthetic import relu_teacher
from deeplin.sweep import Experiment, Unit, run_key

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


def units(config: Interpolating) -> list[Unit]:
    """One unit for each data set."""
    runs = 2 * len(config.scales)
    return [Unit({"repetition": k}, runs=runs) for k in range(config.repetitions)]


def run_unit(config: Interpolating, unit: Unit) -> pd.DataFrame:
    """Train every pair of scales; excess risk on fresh noise-free points."""
    k = unit.coordinates["repetition"]
    drawn = data_seed(config.seed, repetition=k, part="interpolating")
    data = relu_teacher(drawn, samples=config.samples)
    key = run_key(config.seed, repetition=k, part="weights")
    base = initialize.identity_middle(key, INPUTS, WIDTH, OUTPUTS, DEPTH, alpha=1.0, beta=1.0)
    first, middle, last = (np.asarray(weight, np.float64) for weight in base.weights)
    rows = []
    for swept in ("alpha", "beta"):
        for scale in config.scales:
            alpha, beta = (scale, 1.0) if swept == "alpha" else (1.0, scale)
            start = Network([alpha * first, middle, beta * last], activation="relu")
            network, loss, steps = interpolate(
                data.problem.inputs, data.problem.targets, start, config.iterations
            )
            test = np.asarray(network(jnp.asarray(data.test.inputs)))
            risk = float(np.mean(np.sum((test - data.test.targets) ** 2, axis=1)))
            row = {"swept": swept, "scale": scale, "repetition": k, "loss": loss}
            status = "converged" if loss <= TARGET else "stopped"
            rows.append(row | {"risk": risk, "steps": steps, "status": status})
    return pd.DataFrame(rows).assign(zero_risk=data.test.target_moment)


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
            damped = gram + damping * np.eye(len(gram))
            solved = linalg.solve(damped, residual.ravel(), assume_a="pos", overwrite_a=True)
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
        total += (rows @ rows.T).reshape(total.shape) * (layer @ layer.T)[:, None, :, None]
    return total.reshape(n * q, n * q)


def _adjoint(layers, backward, vector) -> list[np.ndarray]:
    """Jᵀv for each layer."""
    pairs = zip(layers, backward, strict=True)
    return [np.einsum("iom,io->im", delta, vector).T @ layer for layer, delta in pairs]


def effects(table: Table) -> dict[str, pd.Series]:
    """Relative change of the risk from the smallest scale to the largest, paired by data set."""
    found = {}
    for swept, runs in table.groupby("swept"):
        ends = runs.set_index("repetition")
        small, large = (
            ends.loc[ends["scale"] == value, "risk"]
            for value in (runs["scale"].min(), runs["scale"].max())
        )
        found[str(swept)] = (large - small) / small
    return found


def asymmetry_claim(more: float, apart: float) -> Claim:
    """The headline of BO-2, from the difference of the two effects and its half-width."""
    return Claim(
        "There is an asymmetry in the roles of α and β: increase with α less that with β, "
        "lower end of the paired 95% interval",
        more - apart,
        lower=POSITIVE,
        name="asymmetry",
        reason="A paired interval over the data sets that excludes equal effects.",
        explanation=f"{number(more)} ± {number(apart)}.",
        known="K-12",
    )


def claims(config: Interpolating, table: Table) -> list[Claim]:
    """What is printed, judged on networks that do interpolate."""
    found = effects(table)
    reached = (table["loss"] <= TARGET).groupby(table["swept"]).mean()
    (alpha, a_half), (beta, b_half) = (
        mean_interval(found[name].to_numpy()) for name in ("alpha", "beta")
    )
    more, apart = mean_interval((found["alpha"] - found["beta"]).to_numpy())
    return [
        Claim(
            "The networks are trained until the loss is below 1e-7: share of them",
            {"α swept": reached["alpha"], "β swept": reached["beta"]},
            lower=1.0,
            name="interpolates",
            reason="All of them; by a solver that can.",
            explanation=f"{table['repetition'].nunique()} data sets, {len(table)} networks; "
            f"largest loss {number(table['loss'].max())}.",
            known="K-29",
        ),
        Claim(
            "Trained to interpolation, the excess risk increases with α: relative increase, lower "
            "end of its paired 95% interval",
            alpha - a_half,
            lower=POSITIVE,
            name="grows with α",
            reason="A paired interval that excludes no increase.",
            explanation=f"{number(alpha)} ± {number(a_half)}.",
            known="K-12",
        ),
        Claim(
            "It is largely unaffected by β: relative change with its paired 95% interval added",
            abs(beta) + b_half,
            upper=0.1,
            name="unaffected by β",
            reason="An equivalence test with a margin of a tenth: solvers end in different places.",
            explanation=f"{number(beta)} ± {number(b_half)}.",
            known="K-15",
        ),
        asymmetry_claim(more, apart),
    ]


def plot(config: Interpolating, table: Table, ax: Axes) -> None:
    """Excess risk against the scale that is swept, for α and for β."""
    for index, (swept, letter) in enumerate((("alpha", r"\alpha"), ("beta", r"\beta"))):
        runs = table[table["swept"] == swept]
        means = [mean_interval(cell["risk"].to_numpy()) for _, cell in runs.groupby("scale")]
        height, half = zip(*means, strict=True)
        style = look(index, capsize=2, label=f"${letter}$")
        ax.errorbar(sorted(runs["scale"].unique()), height, half, **style)
    zero = table.drop_duplicates("repetition")["zero_risk"].mean()
    ax.axhline(zero, color=QUIET, linestyle=":", label="zero predictor")
    ax.loglog()
    plain_numbers(ax.yaxis)
    ax.set(
        xlabel=r"$\alpha$ (with $\beta = 1$) or $\beta$ (with $\alpha = 1$)", ylabel="Excess risk"
    )
    legend_beside(ax)


INTERPOLATING = Experiment(
    "relu-interpolating", Interpolating, units, run_unit, grid=("repetitions",)
)
STUDY = Study(
    "bo-2-printed",
    INTERPOLATING,
    # The two ends decide the claims: a network takes up to a hundred factorisations of a matrix
    # of size 1500.
    paper=Interpolating((1e-4, 1e-3), repetitions=10),
    quick=Interpolating((1e-4, 1e-3), repetitions=4, samples=100),
)
PANEL = Panel(
    "BO-2-printed",
    "As printed: trained until the loss is below 1e-7, by Levenberg-Marquardt (quick preset: "
    "n = 100).",
    STUDY,
    plot,
    claims,
    size=(5.8, 3.5),
)
