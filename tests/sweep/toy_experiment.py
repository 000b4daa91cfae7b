"""Experiments small enough to be interrupted thousands of times; importable by worker processes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from deeplin.sweep import Experiment, Unit, coordinate_words


@dataclass(frozen=True)
class Toy:
    """Draws of random numbers: `groups` of sizes `group_size`, with trouble where asked for."""

    count: int = 12
    per_unit: int = 3
    seed: int = 0
    seconds: float = 0.0
    log: str = ""
    trouble: str = ""


def units(config: Toy) -> list[Unit]:
    starts = range(0, config.count, config.per_unit)
    return [
        Unit(
            {"first": first, "last": min(first + config.per_unit, config.count)},
            runs=config.per_unit,
            steps=10,
            bucket=str(first % 2),
        )
        for first in starts
    ]


def run_unit(config: Toy, unit: Unit) -> pd.DataFrame:
    first, last = unit.coordinates["first"], unit.coordinates["last"]
    if config.log:
        with Path(config.log).open("a") as log:
            log.write(f"{os.getpid()} {first}\n")
    _trouble(config, first)
    time.sleep(config.seconds)
    runs = range(first, last)
    draws = [np.random.default_rng(coordinate_words(config.seed, run=run)).normal() for run in runs]
    return pd.DataFrame(
        {"run": runs, "draw": draws, "status": ["converged" if d > 0 else "stopped" for d in draws]}
    )


def _trouble(config: Toy, first: int) -> None:
    """`trouble` is the path of a file with lines `first kind`: read anew, so it can be cured."""
    if not config.trouble or not Path(config.trouble).exists():
        return
    for line in Path(config.trouble).read_text().splitlines():
        where, kind = line.split()
        if int(where) != first:
            continue
        if kind == "raise":
            raise RuntimeError(f"trouble in {first}")
        if kind == "die":
            os.kill(os.getpid(), 9)


TOY = Experiment(
    "toy", Toy, units, run_unit, grid=("count", "per_unit", "seconds", "log", "trouble")
)
