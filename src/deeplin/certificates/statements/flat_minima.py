"""Flat minima (FM): gradients, sharpness of minimizers, small and residual starts; its talk."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import chdtr, ndtr

from deeplin.certificates.context import AT_MINIMIZER, Context
from deeplin.certificates.curvature import LinearHessian, directional
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, statement, value
from deeplin.hessian import sharpness
from deeplin.networks import Network, products
from deeplin.networks.products import imbalance, layer_gradients, squared_distance
from deeplin.problems.problem import as_map
from deeplin.theory.balanced import balanced_sharpness, balanced_sharpness_at
from deeplin.theory.brackets import least_sharpness, sharpness_brackets
from deeplin.theory.critical_rate import logistic_descent
from deeplin.theory.minimizers import minimizer_lower_bound
from deeplin.theory.residual_initialization import (
    ResidualConstants,
    admissible_range,
    draw_constants,
    least_failure_u,
    least_margin,
    noise_scale,
    product_bounds,
    residual_constants,
    residual_noise,
    sharp_failure_probability,
    sharp_product_bounds,
)
from deeplin.theory.small_initialization import (
    flow_end_bounds,
    lojasiewicz_constant,
)


@statement("FM-grad", Context.stays_finite)
def gradients(context: Context) -> list[Check]:
    """Compare the closed form with derivatives of the risk, and with the steps of descent."""
    checks = [_along_directions(context, residual=False)]
    if context.consecutive.any():
        checks.append(_steps(context))
    return checks


DIRECTIONS = 3
"""Random directions along which derivatives of the risk are compared."""


def _along_directions(context: Context, residual: bool) -> Check:
    """Compare ⟨∇R, D⟩ with the derivative of the risk along D, at the start and at the end.

    With `residual` the risk is a function of the branches V_k = W_k − I. For a loss that is not
    squared, which takes no complex numbers, the derivative is that of the product along ∇R¹.
    """
    rng, identity = np.random.default_rng(0), np.eye(context.widths[0]) if residual else 0.0
    errors, sizes, scale = [], [], context.gradient_scale(float(residual))  # of I + (W_k − I)

    def risk(branches):
        product = products.product([identity + b for b in branches], context.readout)
        if context.problem.loss == "squared":
            return context.problem.gap(as_map(product))
        return np.sum(context.slope[record] * product, axis=(-1, -2))

    for record, layers in ((0, context.initial), (-1, context.final)):
        branches = [layer - identity for layer in layers]
        gradients = context.gradients_at(record)
        for _ in range(DIRECTIONS):
            moves = [rng.normal(size=layer.shape[1:]) for layer in layers]
            moves = [move / np.linalg.norm(move) for move in moves]
            pairs = zip(gradients, moves, strict=True)
            closed = sum(np.sum(slope * move, axis=(-1, -2)) for slope, move in pairs)
            errors.append(np.abs(directional(risk, branches, moves) - closed))
            sizes.append(np.sum(scale[record], axis=-1))
    error, size = (np.stack(parts, axis=-1)[None] for parts in (errors, sizes))
    return Check(error, 0.0, "derivatives", scale=size)


def _steps(context: Context) -> Check:
    """Check W_k(t+1) = W_k(t) − η∇_kR between records that are one step of plain descent apart."""
    rate, below = context.learning_rate[:, None], 1.0
    bound = context.slope_bound(context.backward[0][:-1])
    errors, rounding = [], []
    for k, weight in enumerate(context.weights):
        v, u = context.backward[k + 1][:-1], context.forward[k][:-1]
        step = np.diff(weight, axis=0) + rate[..., None] * (v @ u.mT)
        errors.append(np.linalg.norm(step, axis=(-1, -2)))
        rounding.append(rate[:, 0] * bound * np.linalg.norm(v, axis=(-1, -2)) * below)
        below = below * context.singular_values[:-1, :, k]
    before = ((1, 0), (0, 0), (0, 0))
    error, size = (np.pad(np.stack(parts, axis=-1), before) for parts in (errors, rounding))
    return Check(
        error,
        0.0,
        "steps of descent",
        scale=context.layer_norms,
        where=context.consecutive[..., None],
        subtracted=size,
        condition=context.condition,
    )


@statement("FM-L8", Context.stays_finite)
def gap_and_gradient(context: Context) -> list[Check]:
    """Compare the risk expanded in the moments with R_min plus the distance; check both bounds."""
    problem, product = context.problem, context.backward[0]
    cross = problem.cross_moment.reshape(problem.dimension, -1)
    square = np.sum(product * (problem.covariance @ product), axis=(-1, -2))
    risk = problem.target_moment - 2 * np.sum(cross * product, axis=(-1, -2)) + square
    expected, scale = problem.minimal_risk + context.gap, problem.target_moment + square
    low, high = 4 * problem.smallest_eigenvalue, 4 * problem.largest_eigenvalue
    slope_squares = np.sum(context.slope**2, axis=(-1, -2))
    return [
        Check(risk, expected, "R − R_min", equality=True, scale=scale),
        Check(low * context.gap, slope_squares, "lower bound"),
        Check(slope_squares, high * context.gap, "upper bound"),
    ]


@statement("FM-toy")
def toy_product(context: Context) -> Check:
    """Check the Hessian by automatic differentiation, at the depth of the network."""
    sharpness = toy_sharpness(context.depth)
    return Check(sharpness, context.depth - 1.0, equality=True, scale=float(context.depth))


@lru_cache(maxsize=64)
def toy_sharpness(depth: int) -> float:
    """Return the largest Hessian eigenvalue of x ↦ x_1⋯x_L at (1, …, 1) (FM-toy).

    ```python
    from deeplin.certificates.statements.flat_minima import toy_sharpness
    assert abs(toy_sharpness(10) - 9) < 1e-5
    ```
    """
    hessian = jax.jit(jax.hessian(jnp.prod))(jnp.ones(depth))
    return float(np.linalg.eigvalsh(np.asarray(hessian))[-1])


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


STRETCHES = (2.0, 10.0, 100.0)
"""Factors C with which FM-rescale is tested."""


@statement("FM-sharp", Context.stays_finite)
def fastest_change(context: Context) -> list[Check]:
    """Check the change of the gradient along the top eigenvector, and that no modulus is larger.

    The change is a Hessian-vector product, known like the eigenvalue to the error of Lanczos. The
    Hessian is within the error of X-1 of a positive semidefinite matrix: where that error is below
    S, as at a minimizer, no eigenvalue is below −S.
    """
    top = context.certified_sharpness
    change = np.linalg.norm(context.hessian(np.arange(context.batch), top.vector), axis=1)
    error = top.error / np.maximum(top.scale, np.finfo(float).tiny)
    lowest = context.hessian.extreme(-1, 0.2)  # far from −S is enough
    near = {
        "close enough to a minimizer: error of X-1 ≤ S": np.asarray(context.exact_sharpness.error)
        <= top.value
    }
    met = context.ends_in_minimizer() | near
    part = "along the top eigenvector"
    return [
        Check(change, np.abs(top.value), part, equality=True, scale=top.scale, slack=error),
        Check(
            -lowest.value - lowest.error,
            top.value,
            "no eigenvalue of larger modulus",
            scale=top.scale,
            hypotheses=met,
        ),
    ]


@statement("FM-T1", Context.one_target)
def minimal_sharpness_bracket(context: Context) -> list[Check]:
    """Check the bracket around the exact value, for p = 1, and the end of the run."""
    reached = context.at_minimizer(
        context.minimal.lower, context.final_sharpness / context.minimal_scale, "S"
    )
    return [*context.minimal_bracket(), reached]


@statement("FM-T2", Context.one_target)
def sharpness_of_minimizers(context: Context) -> list[Check]:
    """Check both lower bounds at the end of the run, and the bracket of FM-T1 times ‖p‖^{2/L}."""
    minimal, scale = context.minimal, context.minimal_scale
    own = minimizer_lower_bound(context.problem, context.layer_norms[-1])
    own = own * context.readout_norm ** (1 / context.depth)
    return [
        *context.minimal_bracket(scale),
        context.at_minimizer(own, context.final_sharpness, "Σ1/‖W_k‖"),
        context.at_minimizer(minimal.lower * scale, context.final_sharpness, "uniform"),
    ]


@statement("FM-rescale", Context.one_target, Context.several_layers)
def rescaled_minimizers(context: Context) -> list[Check]:
    """Check the end of the run, rescaled by several C."""
    network = context.final_network
    first, second, *rest = network.weights
    second_norm = context.layer_norms[-1, :, 1:2]
    bound = minimizer_lower_bound(context.problem, second_norm, depth=context.depth)
    bound = bound * context.readout_norm ** (1 / context.depth)
    checks = []
    for C in STRETCHES:
        stretched = Network((C * first, second / C, *rest), readout=network.readout)
        measured = sharpness(context.problem, stretched, method="exact").value
        checks.append(context.at_minimizer(C * bound, measured, f"C = {C:g}"))
    return checks


@statement("FM-crit", Context.one_target)
def settled_sharpness(context: Context) -> list[Check]:
    """Check the end of a descent run; with momentum β the threshold is (2+2β)/η."""
    if context.run.learning_rate is None:
        raise NotApplicable("for gradient descent")
    threshold = stability_threshold(context)
    measured, slack = context.final_sharpness, 4 * context.slack
    hypotheses = settles(context)
    minimal = context.minimal.exact * context.minimal_scale
    return [
        Check(minimal, measured, "S_min ≤ S", slack=slack, hypotheses=hypotheses),
        Check(measured, threshold, "S ≤ 2/η", slack=slack, hypotheses=hypotheses),
    ]


def stability_threshold(context: Context) -> np.ndarray:
    """Return (2+2β)/η, above which a minimizer is unstable for descent, (batch,)."""
    return (2 + 2 * context.run.momentum) / context.learning_rate


def settles(context: Context) -> dict[str, Any]:
    """Return the hypotheses that descent ended in a minimizer, and would have left a sharp one."""
    hypotheses, slack = context.ends_in_minimizer(), context.slack
    above = context.final_sharpness > stability_threshold(context) * (1 + 4 * slack)
    doubtful = context.bounded & (slack <= AT_MINIMIZER) & above
    hypotheses["the run stayed there long enough to leave it"] = ~doubtful | _settled(context)
    return hypotheses


def _settled(context: Context) -> np.ndarray:
    """Return whether each run stayed at its minimizer long enough to show instability, (batch,).

    Above the threshold one step multiplies the deviation along the top eigenvector by g, |g| > 1
    (for heavy ball the larger root of z² − (1 + β − ηS)z + β): rounding grows to
    `AT_MINIMIZER` within log(AT_MINIMIZER/eps)/log|g| steps. The records of the run show how long
    it was near a minimizer; nothing is trained.
    """
    beta = context.run.momentum
    trace = 1 + beta - context.learning_rate * context.final_sharpness
    root = np.sqrt(np.maximum(trace**2 - 4 * beta, 0))
    growth = np.log(np.maximum((np.abs(trace) + root) / 2, 1))
    needed = np.log(AT_MINIMIZER / np.finfo(float).eps) / growth
    near = context.gap <= AT_MINIMIZER**2 * context.problem.zero_gap
    near = np.logical_and.accumulate(near[::-1])[::-1]
    since = np.where(near, context.times[:, None], np.inf).min(axis=0)
    return (context.times[-1] - since >= needed) & (context.gap[-1] > 0)


@statement("X-18", Context.one_target)
def tight_brackets(context: Context) -> list[Check]:
    """Check the brackets around the exact values, and the worst ratio, for p = 1: theorems.

    The worst ratio in closed form is proved for Λ/a ≤ L − 1, and a computed maximum above.
    """
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
    """Check all three parts, at every record."""
    epsilon = context.epsilon[None, :, None]
    squares = context.singular_values**2
    spread = np.max(squares, axis=-1, keepdims=True) - np.min(squares, axis=-1, keepdims=True)
    later = squares[..., 1:]
    bound = 1 - epsilon / later
    pairs = pairwise(context.extremes)
    aligned = np.stack([np.sum(up.right * down.left, axis=-1) ** 2 for down, up in pairs], axis=-1)
    return [
        Check(context.layer_norms**2 - squares, epsilon, "(a) rank one"),
        Check(spread, epsilon, "(b) equal norms"),
        Check(bound, aligned, "(c) aligned", where=later > 0, scale=1.0),
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
        _gap_decays(context, mu, "rate", met, early),
        Check(_chords(context, early), whole, "path length", hypotheses=met, **details),
    ]


def _gap_decays(
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


RARE = 1e-9
"""Probability up to which a statement that holds with high probability is judged on one draw."""
LEAST_PROBABILITY = 1e-4
"""Smallest probability of a start under a residual initialization at which it counts as one."""
GRID = np.linspace(0.0, 1.0, 401)[1:]
"""Points at which the inequalities are evaluated, as fractions of their range (at 0 both sides are
equal)."""


def _sandwich(context: Context) -> list[Check]:
    """Check both bounds of ‖∇_kR‖² for every layer.

    They are 4λ‖p‖²σ_min²σ_min²(R−R_min) and 4Λ‖p‖²‖·‖²‖·‖²(R−R_min).
    """
    problem = context.problem
    largest = context.suffix_values[..., 0] * context.prefix_values[..., 0]
    smallest = context.suffix_values[..., 1] * context.prefix_values[..., 1]
    gap = (4 * context.readout_norm**2 * context.gap)[..., None]
    low, high = problem.smallest_eigenvalue * smallest**2, problem.largest_eigenvalue * largest**2
    squares, finite = context.gradient_squares, context.stays_finite()
    return [
        Check(low * gap, squares, "lower", hypotheses=finite),
        Check(squares, high * gap, "upper", hypotheses=finite),
    ]


@statement("FM-grad-sandwich", Context.square_layers)
def gradient_sandwich(context: Context) -> list[Check]:
    """Check both bounds for every layer and record; without a read-out ‖p‖ = 1 (FM-T5)."""
    return _sandwich(context)


def _residual(context: Context) -> dict[str, Any]:
    """Return the hypothesis that W_k(0) − I is Gaussian noise."""
    context.square_layers()
    start = context.run.initial.with_batch()
    noise, scale = residual_noise(start).reshape(context.batch, -1), np.asarray(noise_scale(start))
    if not np.all(scale > 0):
        raise NotApplicable("for a random start, s > 0; here W_k(0) = I")
    distance = kolmogorov_distance(noise / scale[:, None], ndtr)
    likely = Hypothesis(distance, "≤", kolmogorov_bound(noise.shape[1], LEAST_PROBABILITY))
    return {"residual initialization": likely}


def _scales(context: Context) -> list[float]:
    """Return s of each run, rounded to two digits, since it is known to a few percent."""
    scale = np.asarray(noise_scale(context.run.initial.with_batch()))
    return [float(f"{s:.2g}") for s in scale]


def kolmogorov_distance(samples: np.ndarray, distribution) -> np.ndarray:
    """Return the largest distance between empirical and given distribution, along the last axis."""
    count = samples.shape[-1]
    level = distribution(np.sort(samples, axis=-1))
    above = np.arange(1, count + 1) / count - level
    return np.max(np.maximum(above, 1 / count - above), axis=-1)


def kolmogorov_bound(samples: int, probability: float) -> float:
    """Return the distance exceeded with at most this probability (Dvoretzky-Kiefer-Wolfowitz)."""
    return float(np.sqrt(np.log(2 / probability) / (2 * samples)))


def _field(constants: list[ResidualConstants | None], name: str) -> np.ndarray:
    """Return one constant of each run, NaN if there is none."""
    return np.array([np.nan if c is None else getattr(c, name) for c in constants])


@statement("FM-L3", _residual)
def product_singular_values(context: Context) -> list[Check]:
    """Check at the smallest admissible u with a negligible chance to fail.

    Without an admissible u the u with the least failure bound is shown.
    """
    scales, d, L = _scales(context), context.widths[0], context.depth
    ranges = [admissible_range(s, d, L) for s in scales]
    rare = [s * np.sqrt(32 * np.log(8 / RARE) / d) for s in scales]  # 8exp(−du²/(32s²)) = RARE
    u = np.array(
        [
            least_failure_u(s, d, L) if known is None else max(known.lower, least)
            for s, known, least in zip(scales, ranges, rare, strict=True)
        ]
    )
    ends = [0.0 if known is None else known.upper for known in ranges]
    met = {
        "L, d large enough for an admissible u": [known is not None for known in ranges],
        f"an admissible u fails with probability ≤ {RARE:g}": Hypothesis(u, "≤", np.array(ends)),
    }
    bounds = product_bounds(scales, d, u)
    ball = np.exp(-2 * np.square(scales) - 4 * u) / 64
    near = (np.max(context.displacement_norms, axis=-1) <= ball)[..., None]
    return _products_between(context, bounds.smallest / 2, 2 * bounds.largest, near, met)


def _products_between(
    context: Context, least: Any, most: Any, where: np.ndarray, hypotheses: dict[str, Any]
) -> list[Check]:
    """Check singular values of every product Π_{k:1} against bounds of each run, (batch,)."""
    M, m = (np.reshape(bound, (-1, 1)) for bound in (most, least))
    values, details = context.product_values, {"where": where, "hypotheses": hypotheses}
    return [
        Check(values[..., 0], M, "‖Π_{k:1}‖", **details),
        Check(m, values[..., 1], "σ_min(Π_{k:1})", **details),
    ]


@lru_cache(maxsize=16)
def _gaussian_statistics(width: int) -> tuple[int, float, float]:
    """Return the number of draws, and Kolmogorov distances of ‖Nh‖²/‖h‖² and hᵀNh/‖h‖²."""
    draws = int(np.clip(2e6 // width**2, 20, 2000))
    rng = np.random.default_rng(width)
    h = rng.normal(size=width)
    N = rng.normal(size=(draws, width, width))
    image = N @ h
    first = np.sum(image**2, axis=1) / (h @ h)
    second = image @ h / (h @ h)
    distances = kolmogorov_distance(first, partial(chdtr, width)), kolmogorov_distance(second, ndtr)
    return draws, float(distances[0]), float(distances[1])


@statement("FM-L6")
def gaussian_image(context: Context) -> list[Check]:
    """Check Kolmogorov distances at this width, with bounds that fail with probability 1e-9."""
    draws, first, second = _gaussian_statistics(context.widths[0])
    bound = kolmogorov_bound(draws, 1e-9)
    return [Check(first, bound, "χ²(d)"), Check(second, bound, "N(0, 1)")]


@statement("FM-L9", Context.stays_finite, Context.square_layers)
def perturbed_products(context: Context) -> list[Check]:
    """Check with M and m measured at the start, as long as training has moved little enough.

    The condition on ‖θ_k‖_2 is checked for ‖θ_k‖_F, which is at least as large.
    """
    start = context.product_values[0]
    M = np.maximum(np.max(start[..., 0], axis=-1), 1)
    m = np.minimum(np.min(start[..., 1], axis=-1), 1 - 1e-12)
    near = (np.max(context.displacement_norms, axis=-1) <= m**2 / (4 * M**2))[..., None]
    return _products_between(context, m / 2, 2 * M, near, {})


def _stays_near(
    context: Context, rate: np.ndarray, radius: np.ndarray, name: str, hypotheses: dict[str, Any]
) -> list[Check]:
    """Check θ_k within its radius, the Polyak-Łojasiewicz inequality, and the decay of the gap."""
    rate = rate * context.problem.smallest_eigenvalue * context.readout_norm**2
    squares = np.sum(context.gradient_squares, axis=-1)
    moved = context.displacement_norms
    return [
        Check(moved, radius[:, None], f"‖θ_k‖_F ≤ {name}", hypotheses=hypotheses),
        Check(rate * context.gap, squares, "Polyak-Łojasiewicz", hypotheses=hypotheses),
        _gap_decays(context, rate, "convergence", hypotheses),
    ]


def _constants(context: Context) -> list[ResidualConstants | None]:
    """Return the constants of FM-T4 for each run."""
    return [residual_constants(s, context.widths[0], context.depth) for s in _scales(context)]


def _convergence_hypotheses(context: Context) -> dict[str, Any]:
    """Return the hypotheses of FM-T4."""
    hypotheses, constants, problem = _residual(context), _constants(context), context.problem
    ratio = problem.smallest_eigenvalue**2 / problem.largest_eigenvalue
    allowed = _field(constants, "gap") * ratio * context.readout_norm**2
    sides = np.concatenate([context.prefix_values[0], context.suffix_values[0]], axis=-2)
    bounds = product_bounds(_scales(context), context.widths[0], _field(constants, "u"))
    inside = (np.max(sides[..., 0], axis=-1) <= bounds.largest) & (
        np.min(sides[..., 1], axis=-1) >= bounds.smallest
    )
    return hypotheses | {
        "gradient flow": context.is_flow,
        "L, d large enough for an admissible u": [c is not None for c in constants],
        "the event of FM-L3 at the start": inside,
        "R(W(0)) − R_min ≤ C_4λ²‖p‖²/Λ": Hypothesis(context.gap[0], "≤", allowed),
    }


def _convergence(context: Context) -> list[Check]:
    """Check that θ_k stays in its ball and the gap decays at the rate of the proof of FM-T4."""
    met, constants = _convergence_hypotheses(context), _constants(context)
    rate, radius = _field(constants, "rate"), _field(constants, "radius")
    return _stays_near(context, rate, radius, "C_5", met)


@statement("FM-T4", Context.one_target)
def residual_convergence(context: Context) -> list[Check]:
    """Check with the constants of the proof at the smallest admissible u."""
    if context.readout is None:
        raise NotApplicable("for networks with a read-out p (without one: FM-T5)")
    return _convergence(context)


@statement("FM-T5", Context.square_layers)
def multivariate_convergence(context: Context) -> list[Check]:
    """Check the bounds on the gradients and the convergence that follows, with ‖p‖ = 1."""
    if context.readout is not None:
        raise NotApplicable("for networks without a read-out (with one: FM-T4)")
    return _sandwich(context) + _convergence(context)


@statement("FM-C3", Context.one_target)
def residual_flat_minimum(context: Context) -> list[Check]:
    """Check the ratio, with the exact S_min of X-2."""
    if context.readout is None:
        raise NotApplicable("for networks with a read-out p")
    met = _convergence_hypotheses(context) | _full_rank(context) | context.ends_in_minimizer()
    ratio = context.final_sharpness / (context.minimal.exact * context.minimal_scale)
    constant = _field(_constants(context), "sharpness_ratio")
    bound = constant * context.problem.condition_number
    return [
        Check(1.0, ratio, "1 ≤ S/S_min", slack=4 * context.slack, hypotheses=met),
        Check(ratio, bound, "S/S_min ≤ CΛ/λ", hypotheses=met),
    ]


def _full_rank(context: Context) -> dict[str, Hypothesis]:
    problem = context.problem
    return {"Σ̂ has full rank": Hypothesis(problem.rank, "≥", problem.dimension)}


@statement("X-20", Context.square_layers)
def convergence_of_a_draw(context: Context) -> list[Check]:
    """Check FM-T4, T5 and C3 with M_0, m_0 measured on the start, for any law; a theorem."""
    constants, problem = draw_constants(context.run.initial.with_batch()), context.problem
    allowed = constants.gap * problem.smallest_eigenvalue * context.readout_norm**2
    close = Hypothesis(context.gap[0], "≤", allowed)
    met = context.flow() | {"R(W(0)) − R_min ≤ C_4λ‖p‖²": close}
    rate, radius = np.asarray(constants.rate), np.asarray(constants.radius)
    checks = _stays_near(context, rate, radius, "ρ", met)
    if problem.outputs > 1 or context.readout is None or problem.optimum_norm == 0:
        return checks
    least = context.minimal.exact * context.minimal_scale
    spread = sharpness_brackets(problem, context.depth).spread
    bound = constants.sharpness_ratio * spread * context.depth
    bound = bound / least_sharpness(context.depth, spread)
    met = met | _full_rank(context) | context.ends_in_minimizer()
    part, ratio = "S/S_min ≤ C(Λ/a)L/G", context.final_sharpness / least
    return [*checks, Check(ratio, bound, part, hypotheses=met)]


@statement("X-21", _residual)
def conditioned_products(context: Context) -> list[Check]:
    """Check at the start and u = 1.5u_∞, where it fails with a negligible chance if so bounded.

    A theorem about the law of the start, its expectations by quadrature.
    """
    d, L = context.widths[0], context.depth
    if d < 2:
        raise NotApplicable("for layers of width at least 2")
    pairs = [(s, 1.5 * least_margin(s, d, RARE)) for s in _scales(context)]
    fails = [sharp_failure_probability(s, d, L, margin, target=RARE) for s, margin in pairs]
    met = {f"L large enough: failure ≤ {RARE:g}": Hypothesis(np.array(fails), "≤", RARE)}
    M, m = np.array([sharp_product_bounds(s, margin) for s, margin in pairs]).T[..., None]
    values = np.concatenate([context.product_values[0], context.suffix_values[0]], axis=-2)
    return [
        Check(values[None, ..., 0], M, "‖Π‖", hypotheses=met),
        Check(m, values[None, ..., 1], "σ_min(Π)", hypotheses=met),
    ]


@statement("FM-L4")
def powers_near_one(context: Context) -> list[Check]:
    """Check both, for α = 1/L, 1 and L."""
    depth = float(context.depth)
    alpha = np.array([1 / depth, 1.0, depth])[:, None]
    low, high = GRID / 2, GRID / alpha
    return [
        Check((1 - 2 * alpha * low)[None, None], ((1 - low) ** alpha)[None, None], "1 − x"),
        Check(((1 + high) ** alpha)[None, None], (1 + 2 * alpha * high)[None, None], "1 + x"),
    ]


@statement("FM-L5")
def depth_against_exponential(context: Context) -> Check:
    """Check at the depth of the network, as log L − √L x ≤ log 4 − x."""
    x = (1 + 49 * np.insert(GRID, 0, 0.0))[None, None]
    L = float(context.depth)
    return Check(np.log(L) - np.sqrt(L) * x, np.log(4.0) - x)


RATES = (1.0, 10.0, 100.0)
"""Learning rates of Talk-log, relative to 2/smoothness, the largest of the convex theory."""


@statement("Talk-res", Context.stays_finite, Context.square_layers)
def residual_form(context: Context) -> Check:
    """Compare derivatives with respect to V with the gradients of W."""
    return _along_directions(context, residual=True)


STEPS_OF_LOGISTIC_DESCENT = 2000
"""Steps after which Talk-log reports the loss."""


@statement("Talk-log", Context.one_target)
def logistic_contrast(context: Context) -> list[Check]:
    """Report the loss with the labels sign(Xw*) after some steps, relative to that of the zero map.

    The claim is about a limit, and sets no deadline: after a large step the loss can stay large for
    a long time before it falls. So nothing is judged.
    """
    inputs, _ = context.problem.require_data("the logistic contrast")
    scores = inputs @ context.problem.optimum.reshape(-1)
    rows = np.flatnonzero(scores != 0)[:200]
    data = inputs[rows], np.sign(scores[rows])
    losses = logistic_descent(*data, RATES, steps=STEPS_OF_LOGISTIC_DESCENT)
    pairs = zip(RATES, losses, strict=True)
    return [value(loss / np.log(2.0), f"{rate:g} × 2/smoothness") for rate, loss in pairs]


RESOLVED = 1e-12
"""Relative accuracy of Θ − Θ*: a gap below the square of this times R_0 − R_min changes by rounding
only."""


STEPS, POINTS = 4, 3
"""Number of steps of a run that Talk-descent evaluates, and of points in each step."""


@statement("Talk-descent", Context.stays_finite)
def descent_lemma(context: Context) -> Check:
    """Check at some steps of a descent recorded at consecutive steps, where η < 2/S."""
    taken = np.flatnonzero(context.consecutive.any(axis=1))
    if len(taken) == 0:
        raise NotApplicable("for plain descent with two records one step apart")
    after = taken[np.unique(np.linspace(0, len(taken) - 1, STEPS).astype(int))]
    largest = _sharpness_of_steps(context, after)
    rate = context.learning_rate
    squares = np.sum(context.gradient_squares[after - 1], axis=-1)
    promised = context.gap[after - 1] - rate * (1 - rate * largest / 2) * squares
    resolved = context.gap[after - 1] > RESOLVED**2 * context.problem.zero_gap
    where = context.consecutive[after] & (rate * largest < 2) & resolved
    scale = context.gap[after - 1] + rate * squares
    known = context.known_loss()
    return Check(context.gap[after], promised, where=where, scale=scale, **known)


def _sharpness_of_steps(context: Context, after: np.ndarray) -> np.ndarray:
    """Return a bound of the sharpness on the step before each record, (steps, batch).

    The largest value at some points, and as much more as it varies between them.
    """
    shares = np.linspace(0, 1, POINTS)[:, None, None, None, None]
    between = [
        np.nan_to_num((1 - shares) * w[after - 1] + shares * w[after]) for w in context.weights
    ]
    flat = [np.asarray(w).reshape(-1, *w.shape[-2:]) for w in between]
    readout = context.readout
    if readout is not None:
        readout = np.tile(readout, (POINTS * len(after), 1))
    top = LinearHessian(context.problem, flat, readout).extreme(tolerance=1e-3)
    values = np.reshape(top.value + top.error, (POINTS, len(after), context.batch))
    return np.max(values, axis=0) + np.ptp(values, axis=0)
