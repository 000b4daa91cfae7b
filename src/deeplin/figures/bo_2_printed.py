"""BO-2 as printed: ReLU networks trained to interpolation, and the asymmetry of α and β there.

Descent with the printed step does not get there (E-10); Levenberg-Marquardt does: steps
−Jᵀ(JJᵀ + μI)⁻¹r on the residuals r, μ lowered after a step that helps and raised otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.flatten_util import ravel_pytree
from matplotlib.axes import Axes

from deeplin.figures.claims import POSITIVE, Claim, number
from deeplin.figures.figure import Panel, Study
from deeplin.figures.relu_sweep import DEPTH, INPUTS, OUTPUTS, WIDTH
from deeplin.figures.statistics import mean_interval
from deeplin.figures.style import QUIET, look
from deeplin.figures.tables import Table
from deeplin.networks import Network, initialize
from deeplin.problems.synthetic import relu_teacher
from deeplin.sweep import Experiment, Unit, coordinate_words, run_key

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
    high, low = coordinate_words(config.seed, repetition=k, part="interpolating")
    data = relu_teacher((high << 32) | low, samples=config.samples)
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
    flat, restore = ravel_pytree(start)
    residual, jacobian = _compiled(restore, jnp.asarray(X), jnp.asarray(Y))
    value, damping = residual(flat), 1.0
    for step in range(iterations):
        loss = float(jnp.mean(value**2))
        if loss <= TARGET:
            return restore(flat), loss, step
        J = jacobian(flat)
        gram = J @ J.T
        for _ in range(12):
            move = J.T @ jnp.linalg.solve(gram + damping * jnp.eye(len(gram)), value)
            tried = residual(flat - move)
            if float(jnp.mean(tried**2)) < loss:
                flat, value, damping = flat - move, tried, damping / 3
                break
            damping *= 4
        else:
            break
    return restore(flat), float(jnp.mean(value**2)), step


def _compiled(restore, X, Y):
    def residual(flat):
        return (restore(flat)(X) - Y).ravel()

    return jax.jit(residual), jax.jit(jax.jacrev(residual))


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
            explanation=f"{table['repetition'].nunique()} data sets, {len(table)} networks.",
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
        Claim(
            "There is an asymmetry in the roles of α and β: increase with α less that with β, "
            "lower end of the paired 95% interval",
            more - apart,
            lower=POSITIVE,
            name="asymmetry",
            reason="A paired interval that excludes equal effects.",
            explanation=f"{number(more)} ± {number(apart)}.",
            known="K-12",
        ),
    ]


def plot(config: Interpolating, table: Table, ax: Axes) -> None:
    """Excess risk against the scale that is swept, for α and for β."""
    for index, (swept, letter) in enumerate((("alpha", r"\alpha"), ("beta", r"\beta"))):
        runs = table[table["swept"] == swept]
        means = [mean_interval(cell["risk"].to_numpy()) for _, cell in runs.groupby("scale")]
        height, half = zip(*means, strict=True)
        ax.errorbar(
            sorted(runs["scale"].unique()),
            height,
            half,
            capsize=2,
            label=f"${letter}$",
            **look(index),
        )
    zero = table.drop_duplicates("repetition")["zero_risk"].mean()
    ax.axhline(zero, color=QUIET, linestyle=":", label="zero predictor")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(
        xlabel=r"$\alpha$ (with $\beta = 1$) or $\beta$ (with $\alpha = 1$)", ylabel="Excess risk"
    )
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


INTERPOLATING = Experiment(
    "relu-interpolating", Interpolating, units, run_unit, grid=("repetitions",)
)
STUDY = Study(
    "bo-2-printed",
    INTERPOLATING,
    {
        "paper": Interpolating((1e-4, 3e-4, 1e-3), repetitions=10),
        "quick": Interpolating((1e-4, 1e-3), repetitions=4, samples=100),
    },
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
