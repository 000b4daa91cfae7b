"""The global minimizer with weight decay (X-9)."""

from __future__ import annotations

import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, statement
from deeplin.hessian import sharpness
from deeplin.networks import host_arrays, products
from deeplin.theory.weight_decay import (
    critical_weight_decay,
    decayed_minimum,
)


@statement(
    "X-9",
    title="the global minimizer with weight decay and its unique sharpness",
    formula=r"w = (\hat\Sigma+\mu I)^{-1}\hat\Sigma w^*,\quad \mu = \lambda\|w\|^{2/L-2}",
)
def decayed(context: Context) -> list[Check]:
    """At a quarter of the critical weight decay (of ‖Σ̂w*‖ for one layer), and at the jump."""
    context.require_vector()
    problem, L = context.problem, context.depth
    critical = critical_weight_decay(problem, L).value
    strength = critical if L > 1 else float(np.linalg.norm(problem.cross_moment))
    z = decayed_minimum(problem, L, strength / 4)
    network = z.attaining(hidden=1)
    layers, _ = host_arrays(network)
    risk = problem.risk(products.product(layers))
    cost = risk + z.weight_decay * sum(np.sum(layer**2) for layer in layers)
    top = sharpness(problem, network, method="lanczos", tolerance=1e-10)
    checks = [
        Check(cost, z.objective, "objective", equality=True),
        Check(cost, problem.target_moment, "F(W) ≤ F(0)"),
        Check(top.value + 2 * z.weight_decay, z.sharpness, "S_λ", equality=True, slack=1e-8),
    ]
    if L > 1:
        edge = decayed_minimum(problem, L, critical * (1 - 1e-9))
        zero = problem.target_moment
        # F grows with λ at the rate Σ‖W_k‖², so 1e-9 beside the jump it is within 1e-9 of F(0)
        checks.append(Check(edge.objective, zero, "jump", equality=True, slack=1e-8))
    return checks
