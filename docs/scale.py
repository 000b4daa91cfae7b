"""`python docs/scale.py` prints what `docs/scale.md` tabulates: CPU time against size.

No part of `deeplin bench`: these are costs, not ratios.
"""

from __future__ import annotations

import time
from functools import partial

import jax
import numpy as np

import deeplin as dl

BASE = {"samples": 50, "width": 5, "depth": 10, "batch": 64, "activation": "linear"}
VARIED = {
    "batch": (1, 8, 64, 512),
    "depth": (5, 10, 20, 40),
    "width": (5, 8, 16, 32, 64),
    "samples": (50, 5000),
}
TABLES = ((10_000, 10), (10_000, 100), (100_000, 100), (10_000, 1000))


def processor_seconds(call) -> float:
    """Least CPU time of all threads over some calls."""
    call()
    times = []
    for _ in range(5):
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
    steps = max(20, int(3e7 / (batch * depth * width**2 * (1 + work))))
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


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    for activation in ("linear", "gelu"):
        for name, values in VARIED.items():
            if activation == "gelu" and name in ("batch", "width"):
                continue
            costs = [descent(**BASE | {"activation": activation, name: v}) for v in values]
            shown = ", ".join(f"{v}: {c:.2f}" for v, c in zip(values, costs, strict=True))
            print(f"{activation}, µs a network-step against {name}: {shown}", flush=True)
    for samples, inputs in TABLES:
        print(f"problem of {samples} × {inputs}: {reading(samples, inputs):.3f} s", flush=True)


if __name__ == "__main__":
    main()
