"""Single trainings followed step by step: FM-1c, FM-1d, FM-4c, FM-4d and what lies behind them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from deeplin.dynamics import gradient_descent
from deeplin.figures.setting import Setting
from deeplin.sweep import Experiment, Unit

RECORDED = ("distance", "gap", "sharpness", "alignment", "conservation")


@dataclass(frozen=True)
class Followed:
    """A learning rate with its steps, recorded every so many."""

    learning_rate: float
    steps: int
    record_every: int = 1


@dataclass(frozen=True)
class Trajectories:
    """The same initial networks trained with each of the rates."""

    setting: Setting
    scale: float
    rates: tuple[Followed, ...]
    repetitions: int
    seed: int = 0


def units(config: Trajectories) -> list[Unit]:
    """One unit for each learning rate."""
    return [
        Unit(
            {
                "learning_rate": rate.learning_rate,
                "steps": rate.steps,
                "record_every": rate.record_every,
            },
            runs=config.repetitions,
            steps=rate.steps * config.repetitions,
        )
        for rate in config.rates
    ]


def run_unit(config: Trajectories, unit: Unit) -> pd.DataFrame:
    """One row for each record and repetition; alignment as its mean and minimum over the layers."""
    rate = unit.coordinates
    runs = [{"scale": config.scale, "repetition": k} for k in range(config.repetitions)]
    networks = config.setting.networks(config.seed, runs, config.scale)
    trained = gradient_descent(
        config.setting.data.problem,
        networks,
        rate["learning_rate"],
        rate["steps"],
        record_every=rate["record_every"],
        record=RECORDED,
        keep_weights=False,
    )
    records = trained.records
    count = len(records["step"])
    return pd.DataFrame(
        {
            "learning_rate": rate["learning_rate"],
            "repetition": np.tile(np.arange(config.repetitions), count),
            "status": np.tile(np.asarray(trained.status), count),
            "step": np.repeat(records["step"], config.repetitions),
            "alignment": records["alignment"].mean(axis=-1).ravel(),
            "least_alignment": records["alignment"].min(axis=-1).ravel(),
            **{name: records[name].ravel() for name in RECORDED if name != "alignment"},
        }
    )


TRAJECTORIES = Experiment("trajectories", Trajectories, units, run_unit, grid=("rates",))
