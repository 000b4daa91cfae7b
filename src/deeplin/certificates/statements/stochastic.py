"""Learning rates at which mini-batch descent settles (X-10)."""

from __future__ import annotations

import jax

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, NotApplicable, statement
from deeplin.errors import InputError
from deeplin.theory.second_moment import (
    DENSE,
)
from deeplin.theory.stochastic import (
    minimal_stochastic_sharpness,
    stochastic_sharpness,
)


@statement(
    "X-10",
    title="mini-batch descent: the least curvature of its second moment",
    formula=r"S_{\min}(B) = \min_tS_B\big(t^2I+(L-1)t^{-2/(L-1)}w^*w^{*\top}\big)",
)
def batches(context: Context) -> list[Check]:
    """For B = n/5, at the minimizer that attains it and at the end of the first run."""
    context.require_vector()
    problem = context.problem
    size = max(1, problem.samples // 5)
    if problem.rank > DENSE or size == problem.samples:
        raise NotApplicable(f"in certificates for two samples or more and rank up to {DENSE}")
    try:
        minimal = minimal_stochastic_sharpness(problem, context.depth, size)
    except InputError as error:
        raise NotApplicable(str(error)) from error
    attained = stochastic_sharpness(problem, minimal.minimizer, size)
    checks = [
        Check(attained.value, minimal.exact, "attained", equality=True),
        Check(minimal.exact, attained.upper, "certified", slack=1e-9),
        Check(context.minimal.exact, minimal.exact, "S_min ≤ S_min(B)"),
    ]
    first = jax.tree.map(lambda leaf: leaf[0], context.final_network)
    try:
        reached = stochastic_sharpness(problem, first, size).value
    except InputError:  # the run did not end in a minimizer
        return checks
    least = minimal.lower * float(context.minimal_scale[0])
    # a network counts as a minimizer up to 1e-6
    return [*checks, Check(least, reached, "S_min(B) ≤ S_B", slack=1e-5)]
