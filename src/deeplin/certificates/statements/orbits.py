"""The period-two orbit of a balanced mode (X-12)."""

from __future__ import annotations

import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, statement
from deeplin.theory.orbits import balanced_orbit


@statement(
    "X-12",
    title="the period-two orbit of a balanced mode beyond the edge of stability",
    formula=r"a = 1+\eta(\sigma-x^L)x^{L-2},\quad \sigma = x^L\frac{1+a^{2L-1}}{1+a^{L-1}}",
)
def orbit_of_a_mode(context: Context) -> list[Check]:
    """A mode of the size ‖w*‖ at 1.1 times its critical rate: two steps of its descent return."""
    context.require_vector()
    context.require_depth()
    L, sigma = context.depth, context.problem.optimum_norm
    rate = 1.1 * 2 / (L * sigma ** (2 - 2 / L))
    orbit = balanced_orbit(sigma, L, rate, curvature=0.5)
    assert orbit is not None  # above its threshold

    def step(x: float) -> float:
        return x + rate * (sigma - x**L) * x ** (L - 1)

    there = step(orbit.low)
    # errors of the first step are multiplied by the slope of the second, which is about L at most
    return [
        Check(there, orbit.high, "there", equality=True),
        Check(step(there), orbit.low, "and back", equality=True, slack=1e-9),
        Check(np.abs(orbit.multiplier), 1.0, "stable"),
    ]
