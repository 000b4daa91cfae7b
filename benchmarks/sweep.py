"""What the sweep engine costs on top of the work it is given."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from deeplin import sweep
from deeplin.sweep import Experiment, Unit

UNITS = 1000
REPETITIONS = 5


@dataclass(frozen=True)
class Busy:
    """Units that keep a core busy for `seconds` each."""

    count: int = UNITS
    seconds: float = 1e-3


def units(config: Busy) -> list[Unit]:
    return [Unit({"k": k}) for k in range(config.count)]


def run_unit(config: Busy, unit: Unit) -> pd.DataFrame:
    # Time of this thread's own work: a neighbour that takes the core away stretches the work and
    # the engine alike, and the ratio stays.
    until = time.thread_time() + config.seconds
    while time.thread_time() < until:
        pass
    return pd.DataFrame({"k": [unit.coordinates["k"]], "status": ["converged"], "risk": [0.5]})


BUSY = Experiment("busy", Busy, units, run_unit)


def measure() -> dict[str, dict]:
    """A sweep of 1000 units of 1 ms against the same units in a plain loop."""
    config = Busy()
    plain, swept, again = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        for repetition in range(REPETITIONS):
            folder = Path(scratch) / str(repetition)
            plain.append(_seconds(lambda: [run_unit(config, unit) for unit in units(config)]))
            swept.append(_seconds(lambda folder=folder: sweep.run(BUSY, config, folder)))
            again.append(_seconds(lambda folder=folder: sweep.run(BUSY, config, folder)))
    ratios = [one / other for one, other in zip(swept, plain, strict=True)]
    return {
        "sweep of 1000 units of 1 ms against the work alone": {
            "ratio": statistics.median(ratios),
            "target": 2.0,
            "at_most": True,
            "details": {
                "work seconds": statistics.median(plain),
                "sweep seconds": statistics.median(swept),
                "seconds to find everything finished": statistics.median(again),
            },
        }
    }


def _seconds(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
