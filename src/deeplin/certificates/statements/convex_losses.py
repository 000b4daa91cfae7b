"""Exact results for losses that are not squared (X-14, X-17)."""

from __future__ import annotations

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, NotApplicable, statement
from deeplin.hessian import sharpness
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.theory.minimizers import balanced_sharpness


@statement(
    "X-14",
    title="minimal sharpness for any convex loss",
    formula=r"S_{\min} = \min_{t>0}\lambda_{\max}\big(H^{1/2}[t^2I+"
    r"(L-1)(\|p\|/t)^{2/(L-1)}w^*w^{*\top}]H^{1/2}\big),\quad H=\nabla^2\ell(w^*)",
    any_loss=True,
)
def minimal_sharpness_of_a_loss(context: Context) -> list[Check]:
    """The minimizer that attains it, the balanced one, and the end of the run: none is flatter."""
    _require_minimizer(context)
    context.require_vector()
    minimal = context.minimal
    attained = sharpness(context.problem, minimal.attaining(hidden=1), method="dense").value
    balanced = balanced_sharpness(context.problem, context.depth)
    least = minimal.exact * context.minimal_scale
    return [
        Check(attained, minimal.exact, "attained", equality=True),
        Check(minimal.exact, balanced, "S_min ≤ S_bal"),
        context.at_minimizer(least, context.final_sharpness, "S_min ≤ S"),
    ]


@statement(
    "X-17",
    title="minimal sharpness of softmax by a geodesically convex program",
    formula=r"S_{\min} = \inf_{P_k\succ0}\lambda_{\max}\big(H^{1/2}\textstyle\sum_kP_k\otimes"
    r"\Theta^\top P_{k-1}^{-1}\Theta\,H^{1/2}\big)",
    any_loss=True,
)
def minimal_sharpness_of_softmax(context: Context) -> list[Check]:
    """Between its bounds, attained, and not undercut by the end of the run."""
    _require_minimizer(context)
    if context.problem.outputs == 1:
        raise NotApplicable("for several outputs; one output is X-14")
    minimal = context.minimal
    width = context.problem.outputs
    attained = sharpness(context.problem, minimal.attaining(width), method="dense").value
    return [
        Check(attained, minimal.exact, "attained", equality=True),
        Check(minimal.lower, minimal.exact, "lower bound"),
        Check(minimal.exact, minimal.upper, "upper bound"),
        context.at_minimizer(minimal.exact, context.final_sharpness, "S_min ≤ S"),
    ]


def _require_minimizer(context: Context) -> None:
    problem = context.problem
    if not isinstance(problem, GeneralizedLinearProblem):
        raise NotApplicable("for losses that are not squared; squared loss is X-2 and X-7")
    if not problem.has_minimizer:
        raise NotApplicable("the risk has no minimizer on separable data (X-16)")
    if problem.rank == 0 or problem.optimum_norm == 0:
        raise NotApplicable("for Θ* ≠ 0; the minimizer is zero")
