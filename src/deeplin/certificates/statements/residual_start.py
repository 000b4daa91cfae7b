"""Flat minima (FM), residual starts: gradients, products of layers, convergence."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.special import chdtr, ndtr

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, statement
from deeplin.certificates.statements.small_start import gap_decays
from deeplin.theory.brackets import least_sharpness, sharpness_brackets
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

RARE = 1e-9
"""Probability up to which a statement that holds with high probability is judged on one draw."""
LEAST_PROBABILITY = 1e-4
"""Smallest probability of a start under a residual initialization at which it counts as one."""


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
        gap_decays(context, rate, "convergence", hypotheses),
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
