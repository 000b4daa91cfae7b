"""Gradient flow from a small initialization (FM Section 4: d_L = 1, p = 1)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, statement, value
from deeplin.networks.products import squared_distance
from deeplin.theory.small_initialization import (
    balanced_sharpness_at,
    flow_end_bounds,
    initialization_scale,
    lojasiewicz_constant,
)


def _epsilon(context: Context) -> np.ndarray:
    """ε of the start of each run (FM-ε), (batch,)."""
    context.require_depth()
    return np.asarray(initialization_scale(context.run.initial.with_batch()))


def _parts(name: str, checks: list[Check]) -> dict[str, Hypothesis]:
    """The parts of an assumption as hypotheses, with the sides as the part's name has them."""
    found = {}
    for check in checks:
        left, right = np.squeeze(check.left), np.squeeze(check.right)
        least = Hypothesis(right, "≥", left)  # such as ‖w*‖ ≥ 1
        found[f"{name}, {check.part}"] = (
            Hypothesis(left, "≤", right) if "≤" in check.part else least
        )
    return found


def _first(context: Context) -> dict[str, Any]:
    """The hypotheses of FM-T3."""
    return _flow(context) | _parts("FM-A1", first_assumption(context))


def _second(context: Context) -> dict[str, Any]:
    """The hypotheses of the corollaries about where the flow ends."""
    problem = context.problem
    optimum = problem.optimum.reshape(problem.dimension, -1)
    apart = np.sqrt(squared_distance(context.backward[0][-1] - optimum))
    late = {"t large enough: ‖w − w*‖ ≤ ‖w*‖/8": Hypothesis(apart, "≤", problem.optimum_norm / 8)}
    small = _parts("FM-A2", second_assumption(context))
    return _first(context) | small | context.minimizer_hypotheses() | late


def _flow(context: Context) -> dict[str, Any]:
    return {"gradient flow": context.flow}


@statement(
    "FM-A1",
    title="assumption on the start: risk at most that of the zero map, gradient not zero",
    reference="FM, Assumption (A1)",
    formula=r"R(W(0)) \le R_0,\quad \nabla R(W(0)) \ne 0",
)
def first_assumption(context: Context) -> list[Check]:
    """Both parts, at the initial weights."""
    context.require_perceptron()
    context.require_vector()
    gradient = np.sqrt(np.sum(context.gradient_squares[0], axis=-1))
    return [
        Check(context.gap[:1], context.problem.zero_gap, "R(W(0)) ≤ R_0"),
        Check(np.finfo(float).tiny, gradient, "∇R(W(0)) ≠ 0"),
    ]


@statement(
    "FM-ε",
    title="size of the initialization",
    kind="definition",
    reference="FM, Section 4",
    formula=r"\varepsilon = 3\max_k\|W_k(0)\|_F^2 + 2\sum_{k<L}"
    r"\|W_k(0)W_k(0)^\top - W_{k+1}(0)^\top W_{k+1}(0)\|_2",
)
def scale_of_initialization(context: Context) -> Check:
    """ε of each run."""
    return value(_epsilon(context))


@statement(
    "FM-L2",
    title="layers are nearly rank one, of equal norm, and aligned",
    formula=r"\|W_k\|_F^2-\|W_k\|_2^2 \le \varepsilon,\ |\sigma_k^2-\sigma_j^2| \le \varepsilon,"
    r"\  \langle v_{k+1},u_k\rangle^2 \ge 1-\varepsilon/\sigma_{k+1}^2",
    hypotheses=_flow,
)
def layer_structure(context: Context) -> list[Check]:
    """All three, at every record."""
    context.require_perceptron()
    epsilon = _epsilon(context)[None, :, None]
    squares = context.singular_values**2
    spread = np.max(squares, axis=-1, keepdims=True) - np.min(squares, axis=-1, keepdims=True)
    later = squares[..., 1:]
    with np.errstate(divide="ignore"):
        bound = 1 - epsilon / later
    pairs = pairwise(context.extremes)
    aligned = np.stack([np.sum(up.right * down.left, axis=-1) ** 2 for down, up in pairs], axis=-1)
    return [
        Check(context.layer_norms**2 - squares, epsilon, "(a) rank one"),
        Check(spread, epsilon, "(b) equal norms"),
        Check(bound, aligned, "(c) aligned", where=later > 0, scale=1.0),
    ]


def _early(context: Context) -> int:
    """Index of the first record with t ≥ 1; the proof of FM-T3 works from any such moment."""
    context.require_depth()
    context.require_perceptron()
    context.require_vector()
    late = np.flatnonzero(context.times >= 1)
    if not context.is_flow or len(late) == 0:
        raise NotApplicable("for gradient flow recorded at some time t ≥ 1")
    return int(late[0])


def _constant(context: Context, early: int) -> np.ndarray:
    """μ of FM-T3 for each run, from the first record with t ≥ 1."""
    gap = context.gap[early]
    return lojasiewicz_constant(context.problem, context.depth, _epsilon(context), gap).constant


@statement(
    "FM-T3",
    title="Polyak-Łojasiewicz condition with the constant of the proof",
    reference="FM, Theorem 3 and Appendix B.4",
    formula=r"\sum_k\|\nabla_k R\|_F^2 \ge \mu(R-R_{\min})\ (t\ge1),\quad"
    r"\|W_L\cdots W_2\| \ge (\sigma_1-\sqrt{2\varepsilon}L)^{L-1}",
)
def lojasiewicz(context: Context) -> list[Check]:
    """The condition with the best constant over C, and the bound on W_L…W_2 in its proof."""
    early = _early(context)
    late = (np.arange(len(context.times)) >= early)[:, None]
    squares = np.sum(context.gradient_squares, axis=-1)
    floor = np.sqrt(2 * _epsilon(context)) * context.depth
    beyond = context.singular_values[..., 0] - floor
    upper_layers = np.linalg.norm(context.backward[1], axis=(-1, -2))
    bound, least = _constant(context, early) * context.gap, np.maximum(beyond, 0)
    product, flow = least ** (context.depth - 1), {"gradient flow": context.flow}
    return [
        Check(bound, squares, "Polyak-Łojasiewicz", where=late, hypotheses=_first(context)),
        Check(product, upper_layers, "‖W_L…W_2‖", where=beyond > 0, hypotheses=flow),
    ]


@statement(
    "FM-L7",
    title="exponential convergence and finite path under the Polyak-Łojasiewicz condition",
    formula=r"R(t)-R_{\min} \le (R(t_0)-R_{\min})e^{-\mu(t-t_0)},\quad"
    r"\int_{t_0}^\infty\|\nabla R\|\,dt\le2\sqrt{(R(t_0)-R_{\min})/\mu}",
)
def exponential_convergence(context: Context) -> list[Check]:
    """From the first record with t ≥ 1, with the constant of FM-T3; the path by its chords."""
    early = _early(context)
    elapsed = np.maximum(context.times - context.times[early], 0)[:, None]
    mu, met = _constant(context, early), _first(context)
    bound = context.gap[early] * np.exp(-mu * elapsed)
    later = (elapsed > 0) & context.moving
    slack = context.gap_error / np.maximum(context.gap, bound)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = 2 * np.sqrt(context.gap[early] / mu)
    return [
        Check(context.gap, bound, "rate", where=later, slack=slack, hypotheses=met),
        Check(_chords(context, early), whole, "path length", hypotheses=met),
    ]


def _chords(context: Context, early: int) -> np.ndarray:
    """Σ‖W(t_{i+1}) − W(t_i)‖ from a record on: at most the length ∫‖∇R‖dt of the path, (batch,)."""
    squares = [np.sum(np.diff(w[early:], axis=0) ** 2, axis=(-1, -2)) for w in context.weights]
    return np.sum(np.sqrt(np.sum(squares, axis=0)), axis=0)


@statement(
    "FM-A2",
    title="assumption of a small enough start",
    reference="FM, Assumption (A2)",
    formula=r"\hat\Sigma \succ 0,\ \varepsilon\le1,\ \|w^*\|\ge1,\ 32L\sqrt\varepsilon\le1",
)
def second_assumption(context: Context) -> list[Check]:
    """All four parts."""
    context.require_perceptron()
    context.require_vector()
    epsilon = _epsilon(context)
    return [
        Check(float(context.problem.dimension), float(context.problem.rank), "Σ̂ has full rank"),
        Check(epsilon, 1.0, "ε ≤ 1"),
        Check(1.0, context.problem.optimum_norm, "‖w*‖ ≥ 1"),
        Check(32 * context.depth * np.sqrt(epsilon), 1.0, "32 L √ε ≤ 1"),
    ]


@statement(
    "FM-C1",
    title="norms of the layers after training",
    formula=r"(\|w^*\|/2)^{1/L} \le \sigma_k \le (2\|w^*\|)^{1/L}",
    hypotheses=_second,
)
def layer_norms(context: Context) -> list[Check]:
    """Both bounds at the end of the run."""
    size, power = context.problem.optimum_norm, 1 / context.depth
    sigma = context.singular_values[-1:]
    return [
        Check((size / 2) ** power, sigma, "lower"),
        Check(sigma, (2 * size) ** power, "upper"),
    ]


@statement(
    "FM-C2",
    title="the flow from a small start ends in a flat minimum",
    reference="FM, Corollary 2 and its proof",
    formula=r"1 \le S/S_{\min} \le 4\Lambda/\lambda,\quad S \le 8L\Lambda\|w^*\|^{2-2/L}",
    hypotheses=_second,
)
def flat_minimum(context: Context) -> list[Check]:
    """The ratio, with the exact S_min of X-2, and the bound on S itself."""
    problem, L = context.problem, context.depth
    sharpness = context.final_sharpness
    ratio = sharpness / context.minimal.exact
    bound = 8 * L * problem.largest_eigenvalue * problem.optimum_norm ** (2 - 2 / L)
    return [
        Check(1.0, ratio, "1 ≤ S/S_min", slack=context.slack),
        Check(ratio, 4 * problem.condition_number, "S/S_min ≤ 4Λ/λ"),
        Check(sharpness, bound, "S"),
    ]


@statement(
    "X-19",
    title="layers and sharpness along the flow, by what it conserves, without FM-A2",
    formula=r"|\sigma_k^2-r|\le2\Delta,\ \min\big((1-\delta)^{L-1},\tfrac1{1+\delta}\big)\le"
    r"\tfrac{S}{S_{\mathrm{bal}}}\le\max\big((1+\delta)^{L-1}(1+\tfrac{(L-1)\omega}{r+2\Delta}),"
    r"\tfrac1{1-\delta}\big),\ r=\|w\|^{2/L},\ \delta=2\Delta/r",
    hypotheses=_flow,
)
def conserved_end(context: Context) -> list[Check]:
    """Singular values and x_k = ‖v_{k−1}‖²/‖v_k‖² at every record, the sharpness at the end.

    Theorems about the flow; an integrated one is known to its tolerance for each conserved
    difference, relative to r and σ². S_bal is that of the product reached, which is w* for data of
    full rank.
    """
    context.require_depth()
    context.require_perceptron()
    context.require_vector()
    product, start = context.backward[0][..., 0], context.run.initial.with_batch()
    bounds = flow_end_bounds(start, np.linalg.norm(product, axis=-1))
    low, high = (np.asarray(bound)[..., None] for bound in bounds.singular_squares)
    squares, slack = context.singular_values**2, context.depth * context.flow_slack
    scale = np.maximum(squares, high)
    ends = np.stack([np.sum(v**2, axis=(-1, -2)) for v in context.backward], axis=-1)
    known = ends[..., 1:] > 0
    growth = np.divide(ends[..., :-1], ends[..., 1:], out=np.zeros_like(squares), where=known)
    balanced = balanced_sharpness_at(context.problem, product[-1], context.depth)
    ratio = context.final_sharpness / balanced
    least, most = (np.asarray(bound)[-1] for bound in bounds.sharpness_ratio)
    size = {"r − 2Δ > 0": Hypothesis(low[-1, :, 0], ">", 0.0)}
    met = context.minimizer_hypotheses() | size
    return [
        Check(low, squares, "r − 2Δ ≤ σ_k²", scale=scale, slack=slack),
        Check(squares, high, "σ_k² ≤ r + 2Δ", scale=scale, slack=slack),
        Check(low, growth, "r − 2Δ ≤ x_k", scale=scale, slack=slack, where=known),
        Check(growth, high, "x_k ≤ r + 2Δ", scale=scale, slack=slack, where=known),
        Check(least, ratio, "S/S_bal, lower", slack=slack, hypotheses=met),
        Check(ratio, most, "S/S_bal, upper", slack=slack, hypotheses=met),
    ]
