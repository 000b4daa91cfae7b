"""A function that trains networks, to be swept by every executor."""

from __future__ import annotations

from typing import Any

import jax

import deeplin as dl

problem = dl.problems.synthetic.flat_minima(seed=0, samples=20, dimension=5).problem


def train(learning_rate: float, scale: float, key: jax.Array) -> dict[str, Any]:
    """Train eight networks: some rates settle, some diverge, some never settle."""
    nets = dl.initialize.gaussian(jax.random.split(key, 8), widths=(5, 5, 1), scale=scale)
    run = dl.gradient_descent(problem, nets, learning_rate, 300)
    return {
        "status": run.status,
        "steps": run.steps,
        "risk": run.evidence["risk"],
        "sharpness": dl.sharpness(problem, run.network).value,
    }
