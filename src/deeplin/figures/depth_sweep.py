"""Training with many learning rates at several depths (FM-2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd

from deeplin.dynamics import gradient_descent
from deeplin.figures.setting import Setting
from deeplin.networks import distance_to_optimum
from deeplin.sweep import Experiment, Unit


@dataclass(frozen=True)
class DepthSweep:
    """Every learning rate at every depth."""

    setting: Setting
    """Its own depth is not used."""
    depths: tuple[int, ...]
    learning_rates: tuple[float, ...]
    steps: int
    repetitions: int
    scale: float
    seed: int = 0

    def at(self, depth: int) -> Setting:
        """The setting with this depth."""
        return replace(self.setting, depth=depth)


def units(config: DepthSweep) -> list[Unit]:
    """One unit for each depth: all its learning rates and repetitions are one batch."""
    runs = len(config.learning_rates) * config.repetitions
    return [
        Unit({"depth": depth}, runs=runs, steps=runs * config.steps, bucket=str(depth))
        for depth in config.depths
    ]


def run_unit(config: DepthSweep, unit: Unit) -> pd.DataFrame:
    """One row for each run; a repetition starts from the same weights at every learning rate."""
    setting = config.at(unit.coordinates["depth"])
    pairs = list(product(config.learning_rates, range(config.repetitions)))
    runs = [{"depth": setting.depth, "repetition": repetition} for _, repetition in pairs]
    rates = np.array([rate for rate, _ in pairs])
    problem = setting.data.problem
    initial = setting.networks(config.seed, runs, config.scale)
    trained = gradient_descent(problem, initial, rates, config.steps)
    distance = distance_to_optimum(problem, trained.network)
    settled = np.asarray(trained.status) != "diverged"
    return pd.DataFrame(runs).assign(
        learning_rate=rates,
        status=trained.status,
        steps=trained.steps,
        distance=np.where(settled, distance, np.nan),
    )


DEPTH_SWEEP = Experiment("depth-sweep", DepthSweep, units, run_unit, grid=("depths",))
