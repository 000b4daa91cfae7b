"""Wide networks: the exact reduction against dense NumPy, and what width and batches cost."""

from __future__ import annotations

import time
from statistics import median

import jax
import numpy as np

from deeplin.dynamics import simulate_wide
from deeplin.problems import synthetic

STEPS = 60


def _seconds(function) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def _dense_descent(problem, width: int, rate: float):
    """The network in full; gradients as outer products of thin matrices, the best NumPy can do."""
    rng = np.random.default_rng(0)
    X, Y = problem.inputs, problem.targets
    first = 1e-3 * rng.standard_normal((width, problem.dimension))
    middle = np.eye(width)
    last = rng.standard_normal((problem.outputs, width))

    def steps():
        nonlocal first, middle, last
        for _ in range(STEPS):
            below = middle.T @ last.T
            slope = 2 / Y.size * X.T @ (X @ (first.T @ below) - Y)
            inner = first @ slope
            gradients = below @ slope.T, last.T @ inner.T, (middle @ inner).T
            first -= rate * gradients[0]
            middle -= rate * gradients[1]
            last -= rate * gradients[2]

    return steps


def _simulation(problem, width: int, rate: float):
    def run():
        wide = simulate_wide(
            problem,
            width,
            3,
            1e-3,
            1.0,
            jax.random.key(0),
            learning_rate=rate,
            max_steps=STEPS,
            loss_target=0,
        )
        assert wide.steps == STEPS
        return wide.theta

    return run


def _against_dense() -> dict:
    problem = synthetic.spiked(0, 500).problem
    ours, dense = _simulation(problem, 5030, 1e-4), _dense_descent(problem, 5030, 1e-4)
    ours()
    fast = median(_seconds(ours) for _ in range(21))
    slow = _seconds(dense)
    return {
        "ratio": slow / fast,
        "target": 1000,
        "details": {"d": 500, "m": 5030, "steps": STEPS, "dense_s": slow, "reduced_s": fast},
    }


def _against_width() -> dict:
    problem = synthetic.spiked(0, 500).problem
    narrow, wide = (_simulation(problem, width, 1e-8) for width in (10**3, 10**6))
    narrow(), wide()
    pairs = [(_seconds(wide), _seconds(narrow)) for _ in range(41)]
    slow, fast = (median(column) for column in zip(*pairs, strict=True))
    return {
        "ratio": slow / fast,
        "target": 1.2,
        "at_most": True,
        "details": {"m_1e6_s": slow, "m_1e3_s": fast},
    }


def _batch() -> dict:
    problems = [synthetic.spiked(seed, 1000).problem for seed in range(20)]
    keys = jax.random.split(jax.random.key(0), 20)
    for problem in problems:
        _ = problem.spectrum
    outcome = {}

    def together():
        outcome["wide"] = simulate_wide(problems, 10_030, 3, 1e-3, 1.0, keys)

    def apart():
        for problem, key in zip(problems, keys, strict=True):
            simulate_wide(problem, 10_030, 3, 1e-3, 1.0, key)

    together()
    pairs = [(_seconds(apart), _seconds(together)) for _ in range(5)]
    slow, fast = (median(column) for column in zip(*pairs, strict=True))
    wide = outcome["wide"]
    return {
        "ratio": slow / fast,
        "target": 1.0,
        "details": {
            "runs": 20,
            "converged": int(np.sum(wide.status == "converged")),
            "steps": int(np.sum(wide.steps)),
            "loss": float(np.max(wide.loss)),
            "batched_s": fast,
        },
    }


def measure() -> dict[str, dict]:
    """Ratios of wall-clock times, each within one process."""
    return {
        "wide: reduced against dense NumPy": _against_dense(),
        "wide: width 1e6 against 1e3": _against_width(),
        "wide: 20 runs one by one against one call": _batch(),
    }
