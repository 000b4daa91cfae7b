"""Our own questions about residual initialization (FM Section 5), L to 1000."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.papers.figures import Figure, Panel, Study, Table, grid_experiment
from deeplin.papers.question import Question, extent, number, percent
from deeplin.papers.residual_products import (
    PRODUCTS,
    layers,
    plot_admissible,
    plot_products,
    product_questions,
)
from deeplin.papers.setting import AUTHORS, DATA_SEEDS, Setting
from deeplin.papers.statistics import mean_interval
from deeplin.papers.style import QUIET, legend_below, look
from deeplin.sweep import coordinate_words
from deeplin.theory import residual_constants, residual_displacement

STEP = 0.01
"""η·L: about a hundredth of the stability limit, so that descent stands for the flow."""


@dataclass(frozen=True)
class Displacements:
    """Training from residual starts of growing depth, on several data sets."""

    depths: tuple[int, ...]
    data_seeds: tuple[int, ...]
    repetitions: int
    scale: float = 0.25
    steps: int = 4000
    seed: int = 0


def run_displacement(config: Displacements, depth: int, data_seed: int) -> pd.DataFrame:
    """max_k ‖θ_k‖_F after training, the rate of decay, and both in the units of FM-T4."""
    setting = Setting(initialization="residual", depth=depth, data_seed=data_seed)
    problem, d = setting.data.problem, setting.dimension
    words = coordinate_words(config.seed, data_seed=data_seed, depth=depth, part="residual")
    weights = list(layers(words, config.scale, depth, d, config.repetitions))
    start = Network(weights, readout=setting.readout(config.seed))
    run = gradient_descent(problem, start, STEP / depth, config.steps)
    moved = np.linalg.norm(residual_displacement(start, run.network), axis=(-1, -2)).max(axis=-1)
    away = np.asarray(start.product) - np.asarray(problem.optimum)
    gap = np.einsum("ri,ij,rj->r", away, np.asarray(problem.covariance), away)
    allowed = problem.smallest_eigenvalue**2 / problem.largest_eigenvalue
    return pd.DataFrame(
        {
            "depth": depth,
            "data_seed": data_seed,
            "repetition": np.arange(config.repetitions),
            "status": [str(status) for status in np.atleast_1d(run.status)],
            "moved": moved,
            "gap": gap / allowed,
            "rate": np.log(gap / np.asarray(run.evidence["gap"]))
            / (STEP / depth * config.steps * problem.smallest_eigenvalue),
            "sharpness": np.asarray(sharpness(problem, run.network).value) / setting.flattest.exact,
            "condition": problem.condition_number,
        }
    )


RESIDUAL_THETA = grid_experiment(
    "residual-theta",
    Displacements,
    run_displacement,
    {"depth": "depths", "data_seed": "data_seeds"},
    runs="repetitions",
    steps="steps",
)
DISPLACEMENTS = Study(
    "fm-residual-theta",
    RESIDUAL_THETA,
    paper=Displacements((5, 10, 20, 50, 100, 200, 500, 1000), (AUTHORS, *DATA_SEEDS), 10),
    quick=Displacements((5, 20, 100, 1000), (AUTHORS, *DATA_SEEDS[:2]), 4),
)


def constants_of(config: Displacements) -> pd.DataFrame:
    """The constants of FM-T4 and FM-C3, one row for each depth at which FM-L3 is admissible."""
    width = Setting().dimension
    found = {L: residual_constants(config.scale, width, L) for L in config.depths}
    return pd.DataFrame({L: c._asdict() for L, c in found.items() if c is not None}).T


def displacement_questions(config: Displacements, table: Table) -> list[Question]:
    """How far outside the constants of FM-T4 training from residual starts converges."""
    by, limits = table["depth"], constants_of(config)
    slopes = [
        np.polyfit(np.log(runs["depth"]), np.log(runs["moved"]), 1)[0]
        for _, runs in table.groupby("data_seed")
    ]
    mean, half = mean_interval(slopes)
    converged = (table["status"] == "converged").mean()
    found = [
        Question(
            "displacement",
            "Do the layers move by θ_k/L with ‖θ_k‖ bounded, as FM-T4 says for close starts?",
            f"{percent(converged)} of {len(table)} runs on {table['data_seed'].nunique()} data "
            "sets "
            f"converge at depths {extent(config.depths)}. max_k‖θ_k‖ grows like L to the power "
            f"{number(mean)} ± {number(half)} and is at most {number(table['moved'].max())}. They "
            f"end at {extent(table['sharpness'])} of S_min.",
        )
    ]
    part = table[by.isin(limits.index)].groupby("depth")
    if len(limits):
        found.append(
            Question(
                "constants",
                "How far are these runs from the constants of the proof?",
                f"R(W(0)) − R_min is {extent(part['gap'].max() / limits['gap'])} times what the "
                "theorem allows, ‖θ_k‖ ends at up to "
                f"{number((part['moved'].max() / limits['radius']).max())} times C_5, and the "
                f"gap decays at least {number((part['rate'].min() / limits['rate']).min())} times "
                "faster than μ: the theorem is a sufficient condition, and training converges far "
                "outside it.",
            )
        )
    return found


def plot_displacement(config: Displacements, table: Table, ax: Axes) -> None:
    """Largest ‖θ_k‖_F against depth, each run, with medians."""
    ax.plot(table["depth"], table["moved"], ".", color=QUIET, markersize=3, label="runs")
    ax.plot(table.groupby("depth")["moved"].median(), label="median", **look(0))
    ax.set(xscale="log", ylim=(0, 1.15 * table["moved"].max()))
    ax.set(xlabel="Depth $L$", ylabel=r"$\max_k \|\theta_k\|_F$ after training")
    legend_below(ax)


FM_RESIDUAL = Figure(
    "FM-residual",
    "The theory of residual initialization",
    (
        Panel(
            "FM-residual-products",
            "How often the bounds of FM-L3 with u fail for random residual layers: measured, and "
            "the bound of the lemma.",
            PRODUCTS,
            plot_products,
            product_questions,
            size=(5.8, 3.5),
            ours=True,
        ),
        Panel(
            "FM-residual-admissible",
            "The smallest depth at which FM-L3 has an admissible u, and the residual networks of "
            "the paper's figures.",
            PRODUCTS,
            plot_admissible,
            ours=True,
        ),
        Panel(
            "FM-residual-theta",
            "How far training moves the layers, W_k = W_k(0) + θ_k/L, against depth.",
            DISPLACEMENTS,
            plot_displacement,
            displacement_questions,
            ours=True,
        ),
    ),
    printed="Not drawn in the paper: Lemma 3, Theorem 4, Corollary 3, with open constants.",
    as_run="d = 5. Products: s = 0.05, 0.1, 0.25 at depths 10, 100, 1000. Training: s = 0.25, "
    "n = 50, descent with ηL = 0.01 (within about one percent of the flow), on several data sets "
    "of the recipe of FM-1. The open constants are the smallest admissible ones "
    "(`deeplin.theory.admissible_range`).",
)
