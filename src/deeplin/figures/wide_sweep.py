"""Wide linear networks over dimensions and initialisation scales, exactly at any width (X-4).

One experiment for BO-1 (both halves) and BO-3.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from deeplin.dynamics import UnstableStep, simulate_wide
from deeplin.figures.setting import data_seed
from deeplin.problems import Population
from deeplin.problems.synthetic import Synthetic, spiked
from deeplin.sweep import Experiment, Unit, run_keys

SAMPLES, OUTPUTS, DEPTH = 100, 3, 3
LETTER = {"alpha": "α", "beta": "β"}
STEP = 1e-4
"""Step of descent, on the mean squared error over the n·q entries."""


@dataclass(frozen=True)
class WideSweep:
    """Every pair of scales at every dimension, by descent and, from `flow_from` on, also by flow.

    Data, Θ* and the random numbers behind the weights depend on dimension and repetition alone, so
    that scales are compared on the same draws.
    """

    dimensions: tuple[int, ...]
    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    repetitions: int = 20
    flow_from: int = 1600
    """Where the first draws are past the stability limit of descent (E-11)."""
    seed: int = 0


def units(config: WideSweep) -> list[Unit]:
    """One unit for each dimension and dynamics: all its scales and repetitions are one batch."""
    found = []
    for dimension in config.dimensions:
        for dynamics in ("descent", "flow") if dimension >= config.flow_from else ("descent",):
            coordinates = {
                "dimension": dimension,
                "dynamics": dynamics,
                "alphas": config.alphas,
                "betas": config.betas,
                "repetitions": config.repetitions,
            }
            runs = len(config.alphas) * len(config.betas) * config.repetitions
            found.append(Unit(coordinates, runs=runs))
    return found


def width(dimension: int) -> int:
    """m = 10(d + q)."""
    return 10 * (dimension + OUTPUTS)


def run_unit(config: WideSweep, unit: Unit) -> pd.DataFrame:
    """Train the batch; exact excess risk, distance to Θ_min, and its part outside the data."""
    cell = unit.coordinates
    d = cell["dimension"]
    data = [_data(config.seed, d, repetition) for repetition in range(cell["repetitions"])]
    runs = [
        {"alpha": alpha, "beta": beta, "repetition": repetition}
        for alpha in cell["alphas"]
        for beta in cell["betas"]
        for repetition in range(cell["repetitions"])
    ]
    draws = [{"dimension": d, "repetition": run["repetition"], "part": "weights"} for run in runs]
    chosen = [data[run["repetition"]] for run in runs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableStep)  # told by the status of each row
        wide = simulate_wide(
            [source.problem for source in chosen],
            width=width(d),
            depth=DEPTH,
            alpha=[run["alpha"] for run in runs],
            beta=[run["beta"] for run in runs],
            key=run_keys(config.seed, draws),
            learning_rate=STEP,
            dynamics=cell["dynamics"],
            population=[_population(source) for source in chosen],
        )
    beside = np.sum(np.asarray(wide.theta_perp) ** 2, axis=(1, 2))
    risk = np.asarray(wide.risk)
    settled = wide.status != "diverged"
    return pd.DataFrame(runs).assign(
        dimension=d,
        dynamics=cell["dynamics"],
        status=wide.status,
        steps=wide.steps,
        loss=wide.loss,
        risk=np.where(settled, risk, np.nan),
        distance=np.where(settled, wide.distance, np.nan),
        beside=np.where(settled, beside, np.nan),
        interpolant_risk=[float(_population(s).risk(s.problem.optimum)) for s in chosen],
        interpolant_norm=[s.problem.optimum_norm for s in chosen],
    )


def expected_distance(alpha: Any, dimension: Any) -> Any:
    """α²(d−n)mq: the squared distance to Θ_min that a random first layer leaves (β = 1)."""
    return alpha**2 * (dimension - SAMPLES) * width(dimension) * OUTPUTS


def _data(seed: int, dimension: int, repetition: int) -> Synthetic:
    drawn = data_seed(seed, dimension=dimension, repetition=repetition, part="data")
    return spiked(drawn, dimension, samples=SAMPLES, outputs=OUTPUTS)


def _population(data: Synthetic) -> Population:
    assert isinstance(data.truth, np.ndarray)
    return Population(data.truth, data.spectrum)


WIDE_SWEEP = Experiment("wide-sweep", WideSweep, units, run_unit, grid=("dimensions", "flow_from"))
