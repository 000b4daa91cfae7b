"""An experiment small enough to be interrupted thousands of times; worker processes import it."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from deeplin.sweep import Experiment, Unit, coordinate_words


@dataclass(frozen=True)
class Toy:
    """Random draws in groups of `per_unit`, with trouble on demand."""

    count: int = 12
    per_unit: int = 3
    seed: int = 0
    log: str = ""
    """A file that gets a line for every computation."""
    trouble: str = ""
    """A file with lines `first kind`, read anew for each unit so that trouble can be cured."""


SAFETY_SECONDS = 120
"""For what should happen soon: only a failure takes so long."""


def wait_until(condition: Callable[[], Any]) -> Any:
    """Wait for what other processes do; the value of the condition is returned."""
    started = time.monotonic()
    while not (value := condition()):
        assert time.monotonic() - started < SAFETY_SECONDS, "this never happened"
        time.sleep(0.002)
    return value


def units(config: Toy) -> list[Unit]:
    return [
        Unit(
            {"first": first, "last": min(first + config.per_unit, config.count)},
            runs=min(config.per_unit, config.count - first),
            steps=10,
            bucket=str(first % 2),
        )
        for first in range(0, config.count, config.per_unit)
    ]


def run_unit(config: Toy, unit: Unit) -> pd.DataFrame:
    first, last = unit.coordinates["first"], unit.coordinates["last"]
    if config.log:
        with Path(config.log).open("a") as log:
            log.write(f"{os.getpid()} {first}\n")
    if hasattr(sys.modules.get("sitecustomize"), "reach"):  # under torture
        sys.modules["sitecustomize"].reach("unit")
    kind = _trouble(config, first)
    if kind == "raise":
        raise RuntimeError(f"trouble in {first}")
    if kind == "raise-other":
        raise ValueError(f"trouble of another kind in {first}")
    if kind == "die" or (kind == "die-once" and computed(config.log).count(first) == 1):
        os.kill(os.getpid(), 9)
    if kind == "block":
        wait_for_ever_in_compiled_code()
    if kind == "linger":
        threading.Thread(target=wait_for_ever_in_compiled_code).start()
        threading.Event().wait()
    if kind == "meet":
        wait_until(lambda: len(computed(config.log)) > 1)
    if kind == "columns":  # other than those of the first unit kept, so there must be one
        wait_until(lambda: any(Path(config.log).parent.rglob("units/*.parquet")))
    runs = range(first, last)
    draws = [np.random.default_rng(coordinate_words(config.seed, run=r)).normal() for r in runs]
    rows = {
        "run": list(runs),
        "draw": draws,
        "status": ["converged" if draw > 0 else "diverged" for draw in draws],
        "risk": [draw if draw > 0 else np.nan for draw in draws],
    }
    return pd.DataFrame(rows if kind != "columns" else {"run": list(runs), "other": "x"})


def wait_for_ever_in_compiled_code() -> None:
    """Lock a mutex twice: no signal ends that wait, and Python gets no turn to notice one."""
    mutex = ctypes.create_string_buffer(128)
    system = ctypes.CDLL(None)
    system.pthread_mutex_init(mutex, None)
    system.pthread_mutex_lock(mutex)
    system.pthread_mutex_lock(mutex)


def _trouble(config: Toy, first: int) -> str:
    if not config.trouble or not Path(config.trouble).exists():
        return ""
    lines = [line.split() for line in Path(config.trouble).read_text().splitlines()]
    return next((kind for where, kind in lines if int(where) == first), "")


def troubled(folder: Path, trouble: str, **fields: Any) -> Toy:
    """A config with trouble, which a file in the folder tells, and a log beside it."""
    (folder / "trouble").write_text(trouble)
    return Toy(log=str(folder / "log"), trouble=str(folder / "trouble"), **fields)


TOY = Experiment("toy", Toy, units, run_unit, grid=("count", "per_unit", "log", "trouble"))


def computed(log: str | os.PathLike) -> list[int]:
    """The units that were computed, in order, by their `first`."""
    return [int(line.split()[1]) for line in Path(log).read_text().splitlines()]


def draw_around(center: float, spread: float, rng: np.random.Generator) -> dict[str, float]:
    """For `sweep.grid`: a random number, and the largest of three."""
    draws = center + spread * rng.normal(size=3)
    return {"first": draws[0], "largest": draws.max()}


def squares(up_to: int) -> dict[str, np.ndarray]:
    """For `sweep.grid`: several rows."""
    return {"number": np.arange(up_to), "square": np.arange(up_to) ** 2}


def key_bits(center: float, key: object, repetition: int) -> int:
    """For `sweep.grid`: a number alone."""
    return int(jax.random.key_data(key)[1]) + 0 * repetition
