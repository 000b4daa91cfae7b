"""Training from many scales of initialisation with several learning rates.

One experiment for FM-1, FM-3, FM-4, FM-5, FM-6, FM-7 and its noisy variant.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
import pandas as pd

from deeplin.dynamics import gradient_descent
from deeplin.figures.setting import Setting, select_networks
from deeplin.networks import Network, distance_to_optimum
from deeplin.networks.risk import landscape
from deeplin.problems import Problem
from deeplin.sharpness import sharpness
from deeplin.sweep import Experiment, Unit

PIECE = 400
"""Networks whose sharpness is computed at once."""


@dataclass(frozen=True)
class Rate:
    """A learning rate with its number of steps and of repetitions at every scale."""

    learning_rate: float
    steps: int
    repetitions: int


@dataclass(frozen=True)
class ScaleSweep:
    """Every rate from every scale."""

    setting: Setting
    scales: tuple[float, ...]
    rates: tuple[Rate, ...]
    seed: int = 0


def units(config: ScaleSweep) -> list[Unit]:
    """One unit for each learning rate: all its scales and repetitions are one batch."""
    return [
        Unit(
            {
                "learning_rate": rate.learning_rate,
                "steps": rate.steps,
                "repetitions": rate.repetitions,
                "scales": config.scales,
            },
            runs=rate.repetitions * len(config.scales),
            steps=rate.steps * rate.repetitions * len(config.scales),
        )
        for rate in config.rates
    ]


def run_unit(config: ScaleSweep, unit: Unit) -> pd.DataFrame:
    """Train the batch; sharpness before and after, distance to w*, risk on training and test data.

    The initial weights depend on scale and repetition but not on η, so that learning rates are
    compared on the same networks.
    """
    rate = unit.coordinates
    runs = [
        {"scale": scale, "repetition": repetition}
        for scale in rate["scales"]
        for repetition in range(rate["repetitions"])
    ]
    scales = np.array([run["scale"] for run in runs])
    data = config.setting.data
    initial = config.setting.networks(config.seed, runs, scales)
    trained = gradient_descent(data.problem, initial, rate["learning_rate"], rate["steps"])
    settled = np.asarray(trained.status) != "diverged"
    # A diverged run takes part in no mean, so its sharpness is not needed: that of zero is cheap.
    nothing = jax.tree.map(np.zeros_like, initial)
    ends = select_networks(settled, trained.network, nothing)
    before, after, error = _sharpness_before_and_after(data.problem, initial, ends)
    final = {
        "distance": distance_to_optimum(data.problem, trained.network),
        "risk": trained.evidence["risk"],
        "test_risk": _risk(data.test, trained.network),
        "sharpness": after,
        "sharpness_error": error,
    }
    return pd.DataFrame(runs).assign(
        learning_rate=rate["learning_rate"],
        status=trained.status,
        steps=trained.steps,
        initial_sharpness=before,
        **{name: np.where(settled, values, np.nan) for name, values in final.items()},
    )


def _sharpness_before_and_after(problem: Problem, initial: Network, final: Network):
    """Both as one batch, in pieces that fit the processor's cache and are compiled for once."""
    both = jax.tree.map(
        lambda *halves: np.concatenate(halves), initial.with_batch(), final.with_batch()
    )
    count = len(both.weights[0])
    pieces = [
        sharpness(problem, jax.tree.map(lambda leaf, chosen=chosen: leaf[chosen], both))
        for chosen in np.array_split(np.arange(count), -(-count // PIECE))
    ]
    value = np.concatenate([np.atleast_1d(piece.value) for piece in pieces])
    error = np.concatenate([np.atleast_1d(piece.error) for piece in pieces])
    before, after = np.split(value, 2)
    return before, after, np.split(error, 2)[1]


def _risk(problem: Problem, networks: Network) -> np.ndarray:
    risk, data = landscape(problem, networks)
    return np.asarray(jax.vmap(partial(risk, data))(networks.with_batch()))


SCALE_SWEEP = Experiment("scale-sweep", ScaleSweep, units, run_unit, grid=("scales", "rates"))
