"""Flat minima (FM): gradients, the sharpness of minimizers, where descent settles; the talk."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplin.certificates.context import AT_MINIMIZER, Context
from deeplin.certificates.curvature import LinearHessian, directional
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, statement, value
from deeplin.hessian.exact import exact
from deeplin.networks import Network, products
from deeplin.problems.problem import as_map
from deeplin.theory.balanced import balanced_sharpness
from deeplin.theory.brackets import sharpness_brackets
from deeplin.theory.critical_rate import logistic_descent
from deeplin.theory.minimizers import minimizer_lower_bound


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
    """Compare the risk expanded in the moments with R_min plus the distance; check both bounds.

    Rounding moves Σ̂ by ε‖Σ̂‖, so both sides are known to ε times Λ(‖Θ‖ + ‖Θ*‖)²: along small
    eigenvalues of Σ̂ this is far more than the risk.
    """
    problem, product = context.problem, context.backward[0]
    cross = problem.cross_moment.reshape(problem.dimension, -1)
    square = np.sum(product * (problem.covariance @ product), axis=(-1, -2))
    risk = problem.target_moment - 2 * np.sum(cross * product, axis=(-1, -2)) + square
    expected, scale = problem.minimal_risk + context.gap, problem.target_moment + square
    low, high = 4 * problem.smallest_eigenvalue, 4 * problem.largest_eigenvalue
    rounded: dict[str, Any] = {"subtracted": problem.largest_eigenvalue * context.map_size**2}
    slope_squares = np.sum(context.slope**2, axis=(-1, -2))
    return [
        Check(risk, expected, "R − R_min", equality=True, scale=scale, **rounded),
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
    near = Hypothesis(context.sharpness_error, "≤", top.value)
    met = context.ends_in_minimizer() | {"close enough to a minimizer: error of X-1 ≤ S": near}
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
        measured, _ = exact(context.problem, stretched, "largest")
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


GRID = np.linspace(0.0, 1.0, 401)[1:]
"""Points at which the inequalities are evaluated, as fractions of their range (at 0 both sides are
equal)."""


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
