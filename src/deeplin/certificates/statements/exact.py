"""Exact results beyond the papers (X)."""

from __future__ import annotations

import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, NotApplicable, statement
from deeplin.hessian import sharpness
from deeplin.hessian.spectrum import blocks
from deeplin.networks import Network, initialize
from deeplin.theory.minimizers import balanced_sharpness, minimal_trace


@statement(
    "X-1",
    title="sharpness at a minimizer from a d×d matrix",
    formula=r"S = \lambda_{\max}\big(2\hat\Sigma^{1/2}\textstyle\sum_k\|v_k\|^2A_k^\top A_k"
    r"\hat\Sigma^{1/2}\big)",
    hypotheses=Context.minimizer_hypotheses,
)
def exact_sharpness(context: Context) -> Check:
    """Against certified Lanczos on the full Hessian, at the end of the run."""
    exact, other = context.exact_sharpness, context.certified_sharpness
    apart, error = np.abs(exact.value - other.value), np.add(exact.error, other.error)
    return Check(apart, error, scale=np.abs(other.value))


@statement(
    "X-2",
    title="exact minimal sharpness",
    formula=r"S_{\min} = \min_{t>0}\lambda_{\max}\big(2\hat\Sigma^{1/2}[t^2I+"
    r"(L-1)(\|p\|/t)^{2/(L-1)}w^*w^{*\top}]\hat\Sigma^{1/2}\big)",
)
def exact_minimal_sharpness(context: Context) -> list[Check]:
    """The minimizer that attains it, and the end of the run, which cannot be flatter."""
    context.require_vector()
    minimal = context.minimal
    attained = sharpness(context.problem, minimal.attaining(hidden=1), method="exact").value
    least = minimal.exact * context.minimal_scale
    return [
        Check(attained, minimal.exact, "attained", equality=True),
        context.at_minimizer(least, context.final_sharpness, "S_min ≤ S"),
    ]


@statement(
    "X-3",
    title="sharpness in the limit of a vanishing start",
    formula=r"S_{\mathrm{bal}} = \lambda_{\max}\big(2\|w^*\|^{2-2/L}\|p\|^{2/L}(\hat\Sigma+"
    r"(L-1)\hat\Sigma^{1/2}\hat w\hat w^\top\hat\Sigma^{1/2})\big) \ge S_{\min}",
)
def balanced_limit(context: Context) -> list[Check]:
    """The balanced rank-one minimizer has this sharpness, and it is at least S_min."""
    context.require_vector()
    problem, L = context.problem, context.depth
    balanced = balanced_sharpness(problem, L)
    widths = (problem.dimension, *[1] * L)  # rank-one layers need no more
    network = initialize.rank_one(problem.optimum.reshape(-1), L, widths=widths)
    measured = sharpness(problem, network, method="exact").value
    return [
        Check(measured, balanced, "balanced minimizer", equality=True),
        Check(context.minimal.exact, balanced, "S_min ≤ S_bal"),
    ]


@statement(
    "X-7",
    title="exact minimal sharpness for any number of outputs",
    formula=r"S_{\min} = \min_{t>0}2\lambda_{\max}\big(\hat\Sigma^{1/2}[t^2I+"
    r"(L-1)t^{-2/(L-1)}\Theta^{*\top}\Theta^*]\hat\Sigma^{1/2}\big)",
)
def minimal_sharpness_of_several(context: Context) -> list[Check]:
    """As X-2, with the bracket of FM-T2 extended to several outputs."""
    if context.problem.outputs == 1:
        raise NotApplicable("for several targets; one target is X-2")
    _require_solution(context)
    minimal = context.minimal
    attained = sharpness(context.problem, _narrowest(context), method="exact").value
    return [
        Check(attained, minimal.exact, "attained", equality=True),
        Check(minimal.lower, minimal.exact, "lower bound"),
        Check(minimal.exact, minimal.upper, "upper bound"),
        context.at_minimizer(minimal.exact, context.final_sharpness, "S_min ≤ S"),
    ]


@statement(
    "X-8",
    title="minimal trace of the Hessian",
    formula=r"\min\operatorname{tr}\nabla^2R = 2L(q\operatorname{tr}\hat\Sigma)^{1/L}"
    r"\|\Theta^*\hat\Sigma^{1/2}\|_*^{2(L-1)/L}",
)
def least_trace(context: Context) -> list[Check]:
    """Attained, and not undercut by the end of the run."""
    _require_solution(context)
    minimal = minimal_trace(context.problem, context.depth)
    network = minimal.attaining(hidden=len(minimal.values))
    attained, _ = blocks(context.problem, network.with_batch())
    reached, _ = blocks(context.problem, context.final_network)
    return [
        Check(np.asarray(attained), minimal.exact, "attained", equality=True),
        context.at_minimizer(minimal.exact * context.minimal_scale, reached, "least ≤ trace"),
    ]


@statement(
    "X-11",
    title="of layer-wise learning rates only the geometric mean counts",
    formula=r"\min\lambda_{\max}\big(D_\eta^{1/2}\nabla^2R\,D_\eta^{1/2}\big) = "
    r"(\eta_1\cdots\eta_L)^{1/L}S_{\min}",
)
def layerwise_rates(context: Context) -> list[Check]:
    """Rates 4, 1/4, 4, … of product one: W_k = √η_k V_k turns the preconditioned Hessian at W into
    the Hessian at V, another minimizer of the same problem."""
    _require_solution(context)
    L = context.depth
    rates = np.where(np.arange(L) == 2 * (L // 2), 1.0, 4.0 ** ((-1.0) ** np.arange(L)))
    network = _narrowest(context, rates)
    pairs = zip(network.weights, rates, strict=True)
    moved = Network([np.asarray(weight) / np.sqrt(rate) for weight, rate in pairs])
    measured = sharpness(context.problem, moved, method="exact").value
    return [Check(measured, context.minimal.exact, "attained", equality=True)]


def _require_solution(context: Context) -> None:
    if context.problem.rank == 0 or context.problem.optimum_norm == 0:
        raise NotApplicable("for Θ* ≠ 0; the least-squares solution is zero")


def _narrowest(context: Context, rates: np.ndarray | None = None) -> Network:
    """The flattest minimizer with hidden layers as wide as the rank of Θ* asks for."""
    rank = int(np.linalg.matrix_rank(context.problem.spectrum.coordinates))
    return context.minimal.attaining(hidden=rank, rates=rates)
