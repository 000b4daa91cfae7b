"""Functions small enough to be swept and killed hundreds of times; worker processes import them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from deeplin.sweep import coordinate_words

SAFETY_SECONDS = 120
"""For what should happen soon: only a failure takes so long."""


def wait_until(condition: Callable[[], Any]) -> Any:
    """Wait for what other processes do; the value of the condition is returned."""
    started = time.monotonic()
    while not (value := condition()):
        assert time.monotonic() - started < SAFETY_SECONDS, "this never happened"
        time.sleep(0.002)
    return value


def troubled(number: int, home: str, rng: np.random.Generator) -> dict[str, Any]:
    """Draw three numbers, log the call, and do what the file `trouble` says about this one."""
    with Path(home, "log").open("a") as log:
        log.write(f"{os.getpid()} {number}\n")
    trouble = Path(home, "trouble")
    lines = [line.split() for line in trouble.read_text().splitlines()] if trouble.exists() else []
    kind = dict(lines).get(str(number), "")
    if kind == "raise":
        raise RuntimeError(f"trouble in {number}")
    if kind == "raise-other":
        raise ValueError(f"trouble of another kind in {number}")
    if kind == "die" or (kind == "die-once" and computed(home).count(number) == 1):
        os.kill(os.getpid(), 9)
    if kind == "wait":
        wait_until(lambda: not trouble.exists())
    draws = rng.normal(size=3)
    return {
        "draw": draws,
        "status": ["converged" if draw > 0 else "diverged" for draw in draws],
        "risk": [draw if draw > 0 else np.nan for draw in draws],
    }


def computed(home: str | os.PathLike) -> list[int]:
    """Return the calls of `troubled` in their order."""
    log = Path(home, "log")
    return [int(line.split()[1]) for line in log.read_text().splitlines()] if log.exists() else []


def expected(numbers, home, seed: int = 0) -> pd.DataFrame:
    """Return the table of `troubled` without any sweep."""
    rows = []
    for number in numbers:
        run = {"number": number, "home": str(home), "repetition": 0}
        draws = np.random.default_rng(coordinate_words(seed, **run)).normal(size=3)
        rows += [
            run | {"draw": d, "status": "converged" if d > 0 else "diverged"}
            | {"risk": d if d > 0 else np.nan}
            for d in draws
        ]  # fmt: skip
    return pd.DataFrame(rows)


def draw_around(center: float, spread: float, rng: np.random.Generator) -> dict[str, float]:
    """Return a random number, and the largest of three."""
    draws = center + spread * rng.normal(size=3)
    return {"first": draws[0], "largest": draws.max()}


def squares(up_to: int) -> dict[str, np.ndarray]:
    """Return several rows."""
    return {"number": np.arange(up_to), "square": np.arange(up_to) ** 2}


def key_bits(center: float, key: object, repetition: int) -> int:
    """Return a number alone."""
    return int(jax.random.key_data(key)[1]) + 0 * repetition
