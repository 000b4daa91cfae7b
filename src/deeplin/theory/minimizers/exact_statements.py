"""Exact results beyond the papers (X)."""

from __future__ import annotations

import numpy as np

from deeplin.networks import initialize
from deeplin.sharpness import sharpness
from deeplin.theory.context import Context
from deeplin.theory.minimizers import balanced_sharpness
from deeplin.theory.registry import Check, statement


@statement(
    "X-1",
    title="sharpness at a minimiser from a d×d matrix",
    kind="exact result",
    reference="exact results, X-1",
    formula=r"S = \lambda_{\max}\big(2\hat\Sigma^{1/2}\textstyle\sum_k\|v_k\|^2A_k^\top A_k"
    r"\hat\Sigma^{1/2}\big)",
)
def exact_sharpness(context: Context) -> Check:
    """Against certified Lanczos on the full Hessian, at the end of the run."""
    exact, other = context.exact_sharpness, context.certified_sharpness
    return Check(
        np.abs(exact.value - other.value)[None],
        (exact.error + other.error)[None],
        scale=np.abs(other.value)[None],
        hypotheses=context.minimizer_hypotheses(),
    )


@statement(
    "X-2",
    title="exact minimal sharpness",
    kind="exact result",
    reference="exact results, X-2",
    formula=r"S_{\min} = \min_{t>0}\lambda_{\max}\big(2\hat\Sigma^{1/2}[t^2I+"
    r"(L-1)(\|p\|/t)^{2/(L-1)}w^*w^{*\top}]\hat\Sigma^{1/2}\big)",
)
def exact_minimal_sharpness(context: Context) -> list[Check]:
    """The minimiser that attains it, and the end of the run, which cannot be flatter."""
    context.require_vector()
    minimal = context.minimal
    attained = sharpness(context.problem, minimal.attaining(hidden=1), method="exact").value
    run = context.minimizer_hypotheses()
    least = (minimal.exact * context.minimal_scale)[None]
    reached = context.final_sharpness[None]
    return [
        Check(attained, minimal.exact, "attained", equality=True),
        Check(least, reached, "S_min ≤ S", slack=4 * context.slack, hypotheses=run),
    ]


@statement(
    "X-3",
    title="sharpness in the limit of a vanishing start",
    kind="exact result",
    reference="exact results, X-3",
    formula=r"S_{\mathrm{bal}} = \lambda_{\max}\big(2\|w^*\|^{2-2/L}\|p\|^{2/L}(\hat\Sigma+"
    r"(L-1)\hat\Sigma^{1/2}\hat w\hat w^\top\hat\Sigma^{1/2})\big) \ge S_{\min}",
)
def balanced_limit(context: Context) -> list[Check]:
    """The balanced rank-one minimiser has this sharpness, and it is at least S_min."""
    context.require_vector()
    problem, L = context.problem, context.depth
    balanced = balanced_sharpness(problem, L)
    network = initialize.rank_one(problem.optimum.reshape(-1), L, widths=_narrow(context))
    measured = sharpness(problem, network, method="exact").value
    return [
        Check(measured, balanced, "balanced minimiser", equality=True),
        Check(context.minimal.exact, balanced, "S_min ≤ S_bal"),
    ]


def _narrow(context: Context) -> tuple[int, ...]:
    """Widths of the smallest network of this depth: rank-one layers need no more."""
    return (context.problem.dimension, *([1] * context.depth))
