"""Sharpness of minimizers and what it means for the learning rate (FM Section 3)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from deeplin.certificates.context import NEAR, Context
from deeplin.certificates.registry import Check, NotApplicable, statement
from deeplin.hessian import sharpness
from deeplin.networks import Network, linear_gradient
from deeplin.theory.minimizers import balanced_sharpness, minimizer_lower_bound
from deeplin.theory.sharpness_brackets import sharpness_brackets

STRETCHES = (2.0, 10.0, 100.0)
"""Factors C with which FM-rescale is tried."""


@jax.jit
@partial(jax.vmap, in_axes=(None, 0, 0))
def _gradient_along(quadratic, network, step):
    """∇R at the weights moved by `step` (flattened), flattened."""
    flat, unravel = ravel_pytree(network.weights)
    moved = Network(unravel(flat + step), network.readout)
    return ravel_pytree(linear_gradient(quadratic, moved))[0]


@statement(
    "FM-sharp",
    title="sharpness as the fastest change of the gradient",
    kind="definition",
    reference="FM, eq. (7)",
    formula=r"S(W)^2 = \lim_{\xi\to0}\sup\sum_k\|\nabla_kR(W)-\nabla_kR(\tilde W)\|_F^2 /"
    r"\sum_k\|W_k-\tilde W_k\|_F^2",
)
def fastest_change(context: Context) -> list[Check]:
    """Change of the gradient along the top eigenvector; no eigenvalue of larger modulus.

    The quotient is a central difference of step 1e-5‖W‖: its error, of second order, stays far
    below the relative slack of 1e-6. Near a minimizer no eigenvalue is below −(error of X-1),
    since the Hessian is within it of a positive semidefinite matrix.
    """
    top, exact = context.certified_sharpness, context.exact_sharpness
    size = np.sqrt(np.sum(context.layer_norms[-1] ** 2, axis=-1))
    step = jnp.asarray(1e-5 * size[:, None] * np.asarray(top.vector))
    sides = (context.problem.quadratic, context.final_network)
    change = _gradient_along(*sides, step) - _gradient_along(*sides, -step)
    quotient = np.linalg.norm(np.asarray(change), axis=1) / (2e-5 * size)
    value, slack = np.abs(top.value), 1e-6 + top.error / np.abs(top.value)
    finite, at_minimum = context.stays_finite(), context.minimizer_hypotheses()
    part = "along the top eigenvector"
    return [
        Check(quotient, value, part, equality=True, slack=slack, hypotheses=finite),
        Check(exact.error, top.value, "no eigenvalue of larger modulus", hypotheses=at_minimum),
    ]


@statement(
    "FM-T1",
    title="minimal sharpness grows linearly with depth",
    formula=r"2\|w^*\|^{2-2/L}La \le S_{\min} \le"
    r"2\|w^*\|^{2-2/L}\sqrt{(2L-1)\Lambda^2+(L-1)^2a^2}",
)
def minimal_sharpness_bracket(context: Context) -> list[Check]:
    """The bracket around the exact value, for p = 1."""
    context.require_vector()
    minimal = context.minimal
    return [
        Check(minimal.lower, minimal.exact, "lower bound"),
        Check(minimal.exact, minimal.upper, "upper bound"),
    ]


@statement(
    "FM-T2",
    title="sharpness of every minimizer, with a read-out",
    reference="FM, Theorem 2, with erratum E-8",
    formula=r"S(W) \ge 2a\|w^*\|^{2-1/L}\|p\|^{1/L}\sum_k 1/\|W_k\|_F,\quad "
    r"S(W) \ge 2\|w^*\|^{2-2/L}\|p\|^{2/L}La",
)
def sharpness_of_minimizers(context: Context) -> list[Check]:
    """Both lower bounds at the end of the run, and the bracket of FM-T1 scaled by ‖p‖^{2/L}."""
    context.require_vector()
    minimal, scale = context.minimal, context.minimal_scale
    own = minimizer_lower_bound(context.problem, context.layer_norms[-1])
    own = own * context.readout_norm ** (1 / context.depth)
    return [
        Check(minimal.lower * scale, minimal.exact * scale, "lower bound"),
        Check(minimal.exact * scale, minimal.upper * scale, "upper bound"),
        context.at_minimizer(own, context.final_sharpness, "Σ1/‖W_k‖"),
        context.at_minimizer(minimal.lower * scale, context.final_sharpness, "uniform"),
    ]


@statement(
    "FM-rescale",
    title="minimizers can be arbitrarily sharp",
    kind="observation",
    reference="FM, Section 3",
    formula=r"S(CW_1, W_2/C, W_3, \dots) \ge 2a\|w^*\|^{2-1/L}\|p\|^{1/L}C/\|W_2\|_F",
)
def rescaled_minimizers(context: Context) -> list[Check]:
    """The end of the run, rescaled by several C."""
    context.require_vector()
    context.require_depth()
    network = context.final_network
    first, second, *rest = network.weights
    second_norm = context.layer_norms[-1, :, 1:2]
    bound = minimizer_lower_bound(context.problem, second_norm, depth=context.depth)
    bound = bound * context.readout_norm ** (1 / context.depth)
    checks = []
    for C in STRETCHES:
        stretched = Network((C * first, second / C, *rest), network.readout)
        measured = sharpness(context.problem, stretched, method="exact").value
        checks.append(context.at_minimizer(C * bound, measured, f"C = {C:g}"))
    return checks


@statement(
    "FM-crit",
    title="where descent settles, the sharpness is between S_min and 2/η",
    kind="observation",
    reference="FM, Section 1 and eq. (1); exact threshold by X-2",
    formula=r"S_{\min} \le S(W) \le 2/\eta,\quad\text{so}\quad \eta \le 2/S_{\min}",
)
def settled_sharpness(context: Context) -> list[Check]:
    """At the end of a descent run; with momentum β the threshold is (2+2β)/η."""
    context.require_vector()
    if context.run.learning_rate is None:
        raise NotApplicable("for gradient descent")
    threshold = (2 + 2 * context.run.momentum) / context.learning_rate
    measured, slack = context.final_sharpness, 4 * context.slack
    hypotheses = context.minimizer_hypotheses()
    doubtful = context.bounded & (context.slack <= NEAR) & (measured > threshold * (1 + slack))
    hypotheses["the run stayed there long enough to be thrown out"] = ~doubtful | _settled(context)
    minimal = context.minimal.exact * context.minimal_scale
    return [
        Check(minimal, measured, "S_min ≤ S", slack=slack, hypotheses=hypotheses),
        Check(measured, threshold, "S ≤ 2/η", slack=slack, hypotheses=hypotheses),
    ]


def _settled(context: Context) -> np.ndarray:
    """Whether each run stayed at its minimizer long enough for an instability to show, (batch,).

    Above the threshold one step multiplies the deviation along the top eigenvector by g, |g| > 1
    (for heavy ball the larger root of z² − (1 + β − ηS)z + β): rounding grows to `NEAR` within
    log(NEAR/eps)/log|g| steps. The run itself says how long it was near; nothing is trained.
    """
    beta = context.run.momentum
    trace = 1 + beta - context.learning_rate * context.final_sharpness
    root = np.sqrt(np.maximum(trace**2 - 4 * beta, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = np.log(np.maximum((np.abs(trace) + root) / 2, 1))
        needed = np.log(NEAR / np.finfo(float).eps) / growth
    near = context.gap <= NEAR**2 * context.problem.zero_gap
    near = np.logical_and.accumulate(near[::-1])[::-1]
    since = np.where(near, context.times[:, None], np.inf).min(axis=0)
    return (context.times[-1] - since >= needed) & (context.gap[-1] > 0)


@statement(
    "X-18",
    title="best possible brackets of S_min and S_bal from Λ, a and L; their worst ratio",
    formula=r"NaG(c)\le S_{\min}\le NLac^{1/L},\ N\max(La,\Lambda)\le S_{\mathrm{bal}}\le "
    r"N(\Lambda+(L-1)a),\ S_{\mathrm{bal}}/S_{\min}\le R(c,L),\ c=\Lambda/a",
)
def tight_brackets(context: Context) -> list[Check]:
    """The brackets around the exact values, and the worst ratio, for p = 1: theorems.

    The worst ratio in closed form is proved for Λ/a ≤ L − 1, and a computed maximum above.
    """
    context.require_vector()
    problem, L = context.problem, context.depth
    brackets, least = sharpness_brackets(problem, L), context.minimal.exact
    balanced = balanced_sharpness(problem, L)
    how = "theorem" if L == 1 or brackets.spread <= L - 1 else "computed"
    return [
        Check(brackets.minimal[0], least, "S_min, lower"),
        Check(least, brackets.minimal[1], "S_min, upper"),
        Check(brackets.balanced[0], balanced, "S_bal, lower"),
        Check(balanced, brackets.balanced[1], "S_bal, upper"),
        Check(balanced / least, brackets.worst_ratio, f"S_bal/S_min ≤ R ({how})"),
    ]
