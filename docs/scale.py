"""Print what `docs/scale.md` tabulates: `python docs/scale.py`, CPU time against size.

`python docs/scale.py descent`, `wide`, `call`, `reading` or `sweep` prints one part of it;
`descent gelu` only GELU networks; `sweep 100000 0.001` is a sweep of that many units of so many
seconds each. These are costs; `make bench` measures ratios.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import deeplin as dl
from deeplin import sweep
from deeplin.sweep import Experiment, Unit

BASE = {"samples": 50, "width": 5, "depth": 10, "batch": 64, "activation": "linear"}
VARIED = {
    "batch": (1, 8, 64, 512),
    "depth": (5, 10, 20, 40),
    "width": (5, 8, 16, 32, 64),
    "samples": (50, 5000),
}
WIDE = (50, 100, 300)
TABLES = ((10_000, 10), (10_000, 100), (100_000, 100), (10_000, 1000))


def processor_seconds(call) -> float:
    """Least CPU time of all threads over some calls."""
    call()
    times = []
    for _ in range(3):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def descent(samples: int, width: int, depth: int, batch: int, activation: str) -> float:
    """Microseconds of one step of one network: the difference of a long and a short call."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(samples, width))
    problem = dl.Problem.from_data(X, X @ rng.normal(size=width) / np.sqrt(width))
    keys = jax.random.split(jax.random.key(0), batch)
    widths = (width,) * depth + (1,)
    nets = dl.initialize.gaussian(keys, widths, 0.5 / np.sqrt(width), activation=activation)
    work = samples if activation != "linear" else 1
    steps = max(20, int(1e8 / (batch * depth * width**2 * (1 + work))))
    few, many = (
        processor_seconds(partial(dl.gradient_descent, problem, nets, 1e-4, count))
        for count in (steps, 4 * steps)
    )
    return 1e6 * (many - few) / (3 * steps * batch)


def reading(samples: int, inputs: int) -> float:
    """Seconds from a matrix to a solved problem."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(samples, inputs))
    y = X @ rng.normal(size=inputs)
    return processor_seconds(lambda: dl.Problem.from_data(X, y).minimal_risk)


@dataclass(frozen=True)
class Busy:
    """Units that keep a core busy for `seconds` each."""

    count: int
    seconds: float


def busy_units(config: Busy) -> list[Unit]:
    return [Unit({"k": k}) for k in range(config.count)]


def busy_unit(config: Busy, unit: Unit) -> dict[str, Any]:
    until = time.thread_time() + config.seconds
    while time.thread_time() < until:
        pass
    return {"k": [unit.coordinates["k"]], "status": ["converged"], "risk": [0.5]}


BUSY = Experiment("busy", Busy, busy_units, busy_unit)


def print_descent(*activations: str) -> None:
    for activation in activations or ("linear", "gelu"):
        for name, values in VARIED.items():
            if activation == "gelu" and name in ("batch", "width"):
                continue
            print(f"{activation}, µs a network-step against {name}:", end="", flush=True)
            for value in values:
                cost = descent(**BASE | {"activation": activation, name: value})
                print(f" {value}: {cost:.2g}", end="", flush=True)
            print()


def print_wide() -> None:
    """One wide network on its own."""
    for width in WIDE:
        cost = descent(**BASE | {"batch": 1, "width": width})
        print(f"one network of width {width}, µs a step: {cost:.1f}", flush=True)


def print_call() -> None:
    """A call of one step of one network, d = 5, L = 10."""
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), (5,) * 10 + (1,), 0.4)
    seconds = [
        processor_seconds(partial(dl.gradient_descent, problem, net, 1e-3, 1)) for _ in range(20)
    ]
    print(f"a call: {1e3 * min(seconds):.2f} ms")


def print_reading() -> None:
    for samples, inputs in TABLES:
        print(f"problem of {samples} × {inputs}: {reading(samples, inputs):.3f} s", flush=True)


def print_sweep(count: int = 10_000, seconds: float = 1e-3) -> None:
    """Units that compute for `seconds`: CPU time, and the most memory so far."""
    config = Busy(count, seconds)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "sweep"
        parts: dict[str, Callable[[], object]] = {
            "nothing yet": lambda: None,
            "computing all": lambda: sweep.run(BUSY, config, folder),
            "finding everything finished": lambda: sweep.run(BUSY, config, folder),
            "finding everything and reading the table": lambda: sweep.run(
                BUSY, config, folder
            ).table(),
        }
        for name, part in parts.items():
            began = time.process_time()
            part()
            used = time.process_time() - began
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux: kibibytes
            print(f"{count} units of {seconds} s, {name}: {used:.2f} s, {peak:.0f} MiB", flush=True)
        files = [path for path in folder.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files) / 1e6
        print(f"{len(files)} files, {size:.1f} MB")


PARTS: dict[str, Callable[..., None]] = {
    "descent": print_descent,
    "wide": print_wide,
    "call": print_call,
    "reading": print_reading,
    "sweep": print_sweep,
}


def main(part: str = "", *options: str) -> None:
    jax.config.update("jax_enable_x64", True)
    if part == "sweep" and options:
        print_sweep(int(options[0]), *map(float, options[1:]))
    elif part:
        PARTS[part](*options)
    else:
        for print_part in PARTS.values():
            print_part()


if __name__ == "__main__":
    main(*sys.argv[1:])
