"""Gradient evaluations of the flow against descent with step 1e-3."""

from __future__ import annotations

import jax
import numpy as np

import deeplin as dl
from deeplin.dynamics import gradient_flow
from deeplin.problems import synthetic

GAP = 1e-12


def measure() -> dict[str, dict]:
    problem = synthetic.flat_minima(seed=0).problem
    keys = jax.random.split(jax.random.key(0), 16)
    nets = dl.initialize.gaussian(keys, (5,) * 10 + (1,), 0.25)
    flow = gradient_flow(problem, nets, gap=GAP)
    descent = dl.gradient_descent(problem, nets, learning_rate=1e-3, steps=500_000, gap=GAP)
    ratios = descent.steps / flow.evidence["evaluations"]
    steps = descent.steps / flow.steps
    return {
        "flow_evaluations": {
            "ratio": float(np.sum(descent.steps) / np.sum(flow.evidence["evaluations"])),
            "target": 25,
            "details": {
                "all_converged": bool(np.all(flow.status == "converged")),
                "mean_steps": float(np.mean(flow.steps)),
                "mean_evaluations": float(np.mean(flow.evidence["evaluations"])),
                "mean_descent_steps": float(np.mean(descent.steps)),
                "ratio_smallest_median_largest": [
                    float(f(ratios)) for f in (np.min, np.median, np.max)
                ],
                "ratio_in_steps": float(np.sum(descent.steps) / np.sum(flow.steps)),
                "ratio_in_steps_smallest": float(np.min(steps)),
                "largest_drift": float(np.max(flow.evidence["drift"])),
                "drift_target": 1e-8,
            },
        }
    }
