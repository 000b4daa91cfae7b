"""Gradient flow on white inputs against its exact solution (X-13)."""

from __future__ import annotations

import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, statement
from deeplin.theory.white_inputs import (
    balanced_mode,
    time_to_reach,
    two_layer_flow,
)


@statement(
    "X-13",
    title="gradient flow of a balanced mode on white inputs",
    reference="exact results, X-13 (known results)",
    formula=r"\dot\sigma = 2L\sigma^{2-2/L}(s-\sigma)",
)
def flow_of_a_mode(context: Context) -> list[Check]:
    """A mode with target ‖w*‖ from a hundredth of it: its speed, and both solutions for L = 2."""
    context.require_vector()
    L, s = context.depth, context.problem.optimum_norm
    mode = {"target": s, "start": s / 100, "depth": L}
    time = time_to_reach(s / 2, **mode)
    h = 1e-4 * time
    before, half, after = balanced_mode([time - h, time, time + h], **mode)
    speed = 2 * L * half ** (2 - 2 / L) * (s - half)
    weight = np.sqrt([[s / 100]])
    two = two_layer_flow(weight, weight, [[s]], time).product[0, 0]
    logistic = balanced_mode(time, target=s, start=s / 100, depth=2)[0]
    # a central difference over 1e-4 of the time errs by its square
    return [
        Check(half, s / 2, "time to reach half", equality=True),
        Check((after - before) / (2 * h), speed, "speed", equality=True, slack=1e-5),
        Check(two, logistic, "two layers", equality=True),
    ]
