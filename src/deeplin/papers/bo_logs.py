"""The BO authors' published cells beside the law that needs no simulation (X-25 to X-29).

`bo_logs.csv` holds mean and standard deviation over the runs of each cell of BO's Figures 1 and 3
(linear networks; squared distances), computed from the authors' public logs. What is compared here
are expectations over their data too: E‖Θ_min‖² = σ²q/κ + ‖PΘ*‖² and tr((I−P)Σ) = κn (X-32, D3).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
import pandas as pd

from deeplin.problems import Population
from deeplin.theory.ridgeless import ridgeless_risk
from deeplin.theory.wide_networks import Start, expected_modes

SAMPLES, OUTPUTS, DEPTH, STEP = 100, 3, 3, 1e-4
"""BO's setting: n, q, L, and the rate on the mean loss."""


def published() -> pd.DataFrame:
    """The cells of the logs: figure, log, dimension, scales, width, runs, means, deviations."""
    with files("deeplin.papers").joinpath("bo_logs.csv").open(encoding="utf-8") as source:
        return pd.read_csv(source, comment="#")


def expected_law(dimension: int, alpha: float, beta: float, width: int) -> dict[str, float]:
    """Mean distance and added risk of BO's setting, over data and start, and its stability number.

    The stability number lr·λ_max = 2lr‖X‖²(a²+b²+a²b²)/(nq) uses the mean of ‖X‖²
    (X-31); descent is stable below 2.
    """
    n, q = SAMPLES, OUTPUTS
    population = Population(np.zeros((dimension, q)), _spectrum(dimension))
    kappa = ridgeless_risk(population, n).kappa
    squared = q / kappa + n / dimension  # ‖Θ*‖ = 1 in a random direction
    start = Start(np.full(q, np.sqrt(squared / q)), n, float(width), DEPTH, alpha, beta)
    modes = expected_modes(start)
    total = np.nan if modes is None else alpha**2 * float(np.sum(modes.squares))
    stiffness = start.a2 + start.b2 + (DEPTH - 2) * start.a2 * start.b2
    return {
        "law_distance": (dimension - n) * total,
        "law_added_risk": kappa * n * total,
        "stability": 2 * STEP * _squared_norm(dimension) * stiffness / (n * q),
    }


def _spectrum(dimension: int) -> np.ndarray:
    return np.where(np.arange(dimension) < 10, 1.0, 0.01)


@cache
def _largest_spike() -> float:
    """The mean of ‖X_1‖_2² over the ten inputs of variance 1, by 400 draws."""
    draws = np.random.default_rng(0).normal(size=(400, SAMPLES, 10))
    return float(np.mean(np.linalg.eigvalsh(draws.mT @ draws)[:, -1]))


def _squared_norm(dimension: int) -> float:
    """About E‖X‖_2²: the other inputs add about ε(d−10) to every eigenvalue of XXᵀ."""
    return _largest_spike() + 0.01 * (dimension - 10)


def compared() -> pd.DataFrame:
    """Every published cell with α > 0, the law, and z = (logs − law)/standard error.

    Cells with a stability number of 2 or more are not trained as the flow is: `stable` says which.
    """
    cells = published().query("alpha > 0").reset_index(drop=True)
    columns = (cells[name] for name in ("dimension", "alpha", "beta", "width"))
    laws = pd.DataFrame([expected_law(*cell) for cell in zip(*columns, strict=True)])
    table = pd.concat([cells, laws], axis=1)
    table["z"] = (table["distance_mean"] - table["law_distance"]) / (
        table["distance_sd"] / np.sqrt(table["runs"])
    )
    table["added_risk"] = table["risk_mean"] - table["risk_min_norm_mean"]
    return table.assign(stable=table["stability"] < 2)
