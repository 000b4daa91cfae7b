"""Flat minima (FM), small starts: what the flow conserves, convergence, where it ends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, statement, value
from deeplin.networks.products import imbalance, layer_gradients, squared_distance
from deeplin.theory.balanced import balanced_sharpness_at
from deeplin.theory.small_initialization import flow_end_bounds, lojasiewicz_constant


@statement("FM-L1", Context.several_layers)
def conservation(context: Context) -> list[Check]:
    """Check the drift along the flow, and its exact size between consecutive descent steps.

    One step of descent changes the difference by η²(∇_{k+1}ᵀ∇_{k+1} − ∇_k∇_kᵀ), because the terms
    of first order cancel. So a descent run recorded at every step is checked to rounding too.
    """
    change = imbalance(context.weights)
    for level, start in zip(change, imbalance(context.initial), strict=True):
        level -= start
    squares = context.layer_norms**2
    scale = np.max(squares[..., 1:] + squares[..., :-1], axis=0, keepdims=True)
    drift = np.stack([np.linalg.norm(level, axis=(-1, -2)) for level in change], axis=-1)
    flow, slack = context.flow(), context.flow_slack
    along = Check(drift, 0.0, "along the flow", scale=scale, slack=slack, hypotheses=flow)
    if not context.consecutive.any():
        return [along]
    error, where = _discrete_error(context, change), context.consecutive[..., None]
    finite = context.stays_finite()
    steps = Check(error, 0.0, "between descent steps", scale=scale, where=where, hypotheses=finite)
    return [along, steps]


def _discrete_error(context: Context, change: list[np.ndarray]) -> np.ndarray:
    """Return ‖change − η²(∇_{k+1}ᵀ∇_{k+1} − ∇_k∇_kᵀ)‖_F between records, (records, batch, L−1)."""
    rate = context.learning_rate[:, None, None]
    gradients = layer_gradients(context.backward, context.forward)
    predicted = [rate**2 * square for square in imbalance(gradients)]
    errors = [
        np.linalg.norm(np.diff(level, axis=0) - step[:-1], axis=(-1, -2))
        for level, step in zip(change, predicted, strict=True)
    ]
    return np.pad(np.stack(errors, axis=-1), ((1, 0), (0, 0), (0, 0)))


def _parts(name: str, checks: list[Check]) -> dict[str, Hypothesis]:
    """Return the parts of an assumption as hypotheses, with the sides as in the part's name."""
    found = {}
    for check in checks:
        left, right = np.squeeze(check.left), np.squeeze(check.right)
        least = Hypothesis(right, "≥", left)  # such as ‖w*‖ ≥ 1
        found[f"{name}, {check.part}"] = (
            Hypothesis(left, "≤", right) if "≤" in check.part else least
        )
    return found


def _first(context: Context) -> dict[str, Any]:
    """Return the hypotheses of FM-T3."""
    context.one_unit()
    context.one_target()
    return context.flow() | _parts("FM-A1", first_assumption(context))


def _second(context: Context) -> dict[str, Any]:
    """Return the hypotheses of the corollaries about where the flow ends."""
    first, problem = _first(context), context.problem
    context.several_layers()
    ends = context.backward[0][-1]
    apart = np.sqrt(squared_distance(ends - problem.optimum_columns))
    late = {"t large enough: ‖w − w*‖ ≤ ‖w*‖/8": Hypothesis(apart, "≤", problem.optimum_norm / 8)}
    small = _parts("FM-A2", second_assumption(context))
    return first | small | context.ends_in_minimizer() | late


@statement("FM-A1", Context.one_unit, Context.one_target)
def first_assumption(context: Context) -> list[Check]:
    """Check both parts, at the initial weights."""
    gradient = np.sqrt(np.sum(context.gradient_squares[0], axis=-1))
    return [
        Check(context.gap[:1], context.problem.zero_gap, "R(W(0)) ≤ R_0"),
        Check(np.finfo(float).tiny, gradient, "∇R(W(0)) ≠ 0"),
    ]


@statement("FM-ε", Context.several_layers)
def scale_of_initialization(context: Context) -> Check:
    """Report ε of each run."""
    return value(context.epsilon)


@statement("FM-L2", Context.flow, Context.one_unit, Context.several_layers)
def layer_structure(context: Context) -> list[Check]:
    """Check all three parts, at every record.

    Of the flow the proof uses the L − 1 conserved differences alone. If each has changed by e_k, in
    norm and in trace, then all parts hold with ε + 2Σe_k. An integrated flow knows a difference to
    its tolerance relative to the two squares that are subtracted, at their largest so far: when ε
    is far below these squares, the drift of the integration may exceed it.
    """
    epsilon = context.epsilon[None, :, None]
    squares = context.singular_values**2
    spread = np.max(squares, axis=-1, keepdims=True) - np.min(squares, axis=-1, keepdims=True)
    later = squares[..., 1:]
    bound = 1 - epsilon / later
    pairs = pairwise(context.extremes)
    aligned = np.stack([np.sum(up.right * down.left, axis=-1) ** 2 for down, up in pairs], axis=-1)
    norms = np.maximum.accumulate(context.layer_norms**2, axis=0)
    terms = 2 * np.sum(norms[..., 1:] + norms[..., :-1], axis=-1, keepdims=True)
    known: dict[str, Any] = {"scale": terms, "slack": context.flow_slack}
    relative = known | {"scale": terms / later, "where": later > 0}
    return [
        Check(context.layer_norms**2 - squares, epsilon, "(a) rank one", **known),
        Check(spread, epsilon, "(b) equal norms", **known),
        Check(bound, aligned, "(c) aligned", **relative),
    ]


def _early(context: Context) -> int:
    """Return the index of the first record with t ≥ 1, from which the proof of FM-T3 works."""
    late = np.flatnonzero(context.times >= 1)
    if not context.is_flow or len(late) == 0:
        raise NotApplicable("for gradient flow recorded at some time t ≥ 1")
    return int(late[0])


def _constant(context: Context, early: int) -> np.ndarray:
    """Return μ of FM-T3 for each run, from the first record with t ≥ 1."""
    gap = context.gap[early]
    return lojasiewicz_constant(context.problem, context.depth, context.epsilon, gap).constant


@statement("FM-T3", Context.several_layers, Context.one_unit, Context.one_target)
def lojasiewicz(context: Context) -> list[Check]:
    """Check the condition with the best constant over C, and the bound on W_L…W_2 in its proof."""
    early = _early(context)
    late = (np.arange(len(context.times)) >= early)[:, None]
    squares = np.sum(context.gradient_squares, axis=-1)
    floor = np.sqrt(2 * context.epsilon) * context.depth
    beyond = context.singular_values[..., 0] - floor
    upper_layers = np.linalg.norm(context.backward[1], axis=(-1, -2))
    bound, least = _constant(context, early) * context.gap, np.maximum(beyond, 0)
    product, flow = least ** (context.depth - 1), context.flow()
    return [
        Check(bound, squares, "Polyak-Łojasiewicz", where=late, hypotheses=_first(context)),
        Check(product, upper_layers, "‖W_L…W_2‖", where=beyond > 0, hypotheses=flow),
    ]


@statement("FM-L7", Context.several_layers, Context.one_unit, Context.one_target)
def exponential_convergence(context: Context) -> list[Check]:
    """Check from the first record with t ≥ 1 with the constant of FM-T3; the path by its chords."""
    early = _early(context)
    mu, met = _constant(context, early), _first(context)
    whole = 2 * np.sqrt(context.gap[early] / mu)
    size = np.sqrt(np.sum(context.layer_norms[early] ** 2, axis=-1))
    details: dict[str, Any] = {"scale": size + whole, "slack": context.flow_slack}
    return [
        gap_decays(context, mu, "rate", met, early),
        Check(_chords(context, early), whole, "path length", hypotheses=met, **details),
    ]


def gap_decays(
    context: Context, rate: np.ndarray, part: str, hypotheses: dict[str, Any], since: int = 0
) -> Check:
    """Check that the gap decays at least as e^{−rate·t} after a record, until the run stops."""
    elapsed = np.maximum(context.times - context.times[since], 0)[:, None]
    bound = context.gap[since] * np.exp(-rate * elapsed)
    later = (elapsed > 0) & context.moving
    known = context.known_loss()
    return Check(context.gap, bound, part, where=later, hypotheses=hypotheses, **known)


def _chords(context: Context, early: int) -> np.ndarray:
    """Return Σ‖W(t_{i+1}) − W(t_i)‖ from a record on, at most the path length ∫‖∇R‖dt, (batch,)."""
    squares = [np.sum(np.diff(w[early:], axis=0) ** 2, axis=(-1, -2)) for w in context.weights]
    return np.sum(np.sqrt(np.sum(squares, axis=0)), axis=0)


@statement("FM-A2", Context.one_unit, Context.one_target, Context.several_layers)
def second_assumption(context: Context) -> list[Check]:
    """Check all four parts."""
    epsilon = context.epsilon
    return [
        Check(float(context.problem.dimension), float(context.problem.rank), "Σ̂ has full rank"),
        Check(epsilon, 1.0, "ε ≤ 1"),
        Check(1.0, context.problem.optimum_norm, "‖w*‖ ≥ 1"),
        Check(32 * context.depth * np.sqrt(epsilon), 1.0, "32 L √ε ≤ 1"),
    ]


@statement("FM-C1", _second)
def layer_norms(context: Context) -> list[Check]:
    """Check both bounds at the end of the run."""
    size, power = context.problem.optimum_norm, 1 / context.depth
    sigma = context.singular_values[-1:]
    return [
        Check((size / 2) ** power, sigma, "lower"),
        Check(sigma, (2 * size) ** power, "upper"),
    ]


@statement("FM-C2", _second)
def flat_minimum(context: Context) -> list[Check]:
    """Check the ratio, with the exact S_min of X-2, and the bound on S itself."""
    problem, L = context.problem, context.depth
    sharpness = context.final_sharpness
    ratio = sharpness / context.minimal.exact
    bound = 8 * L * problem.largest_eigenvalue * problem.optimum_norm ** (2 - 2 / L)
    return [
        Check(1.0, ratio, "1 ≤ S/S_min", slack=4 * context.slack),
        Check(ratio, 4 * problem.condition_number, "S/S_min ≤ 4Λ/λ"),
        Check(sharpness, bound, "S"),
    ]


@statement("X-19", Context.flow, Context.several_layers, Context.one_unit, Context.one_target)
def conserved_end(context: Context) -> list[Check]:
    """Check singular values and x_k = ‖v_{k−1}‖²/‖v_k‖² at every record, the sharpness at the end.

    Theorems about the flow; an integrated one is known to its tolerance for each conserved
    difference, relative to r and σ². S_bal is that of the product reached, which is w* for data of
    full rank.
    """
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
    met = context.ends_in_minimizer() | size
    return [
        Check(low, squares, "r − 2Δ ≤ σ_k²", scale=scale, slack=slack),
        Check(squares, high, "σ_k² ≤ r + 2Δ", scale=scale, slack=slack),
        Check(low, growth, "r − 2Δ ≤ x_k", scale=scale, slack=slack, where=known),
        Check(growth, high, "x_k ≤ r + 2Δ", scale=scale, slack=slack, where=known),
        Check(least, ratio, "S/S_bal, lower", slack=slack, hypotheses=met),
        Check(ratio, most, "S/S_bal, upper", slack=slack, hypotheses=met),
    ]
