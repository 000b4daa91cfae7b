"""Gradient flow from a residual initialization (FM Section 5)."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.special import chdtr, ndtr

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, statement
from deeplin.theory.residual_depth import (
    least_margin,
    sharp_failure_probability,
    sharp_product_bounds,
)
from deeplin.theory.residual_initialization import (
    ResidualConstants,
    admissible_range,
    least_failure_u,
    noise_scale,
    product_bounds,
    product_constants,
    residual_constants,
    residual_noise,
)
from deeplin.theory.sharpness_brackets import least_sharpness, sharpness_brackets

LEAST_PROBABILITY = 1e-4
"""A start passes as residual unless a Gaussian sample is less likely than this to look like it."""
GRID = np.linspace(0.0, 1.0, 401)[1:]
"""Where the inequalities are evaluated, as a share of their range (at 0 both sides are equal)."""


def _sandwich(context: Context) -> list[Check]:
    """4λ‖p‖²σ_min²σ_min²(R−R_min) ≤ ‖∇_kR‖² ≤ 4Λ‖p‖²‖·‖²‖·‖²(R−R_min), for every layer."""
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


@statement(
    "FM-grad-sandwich",
    title="gradients between multiples of the gap",
    kind="identity",
    reference="FM, Section 5 and eq. (37), (43)",
    formula=r"4\lambda\|p\|^2\sigma_{\min}^2(\Pi_{L:k+1})\sigma_{\min}^2(\Pi_{k-1:1})(R-R_{\min})"
    r"\le\|\nabla_kR\|_F^2\le"
    r"4\Lambda\|p\|^2\|\Pi_{L:k+1}\|_2^2\|\Pi_{k-1:1}\|_2^2(R-R_{\min})",
)
def gradient_sandwich(context: Context) -> list[Check]:
    """Both bounds for every layer and record; without a read-out ‖p‖ = 1 (FM-T5)."""
    context.require_square()
    return _sandwich(context)


def _residual_start(context: Context) -> tuple[np.ndarray, dict[str, Any]]:
    """s of each run, and the hypothesis that W_k(0) − I is Gaussian noise."""
    context.require_square()
    noise = residual_noise(context.run.initial.with_batch()).reshape(context.batch, -1)
    scale = np.asarray(noise_scale(context.run.initial.with_batch()))
    if not np.all(scale > 0):
        raise NotApplicable("for a random start, s > 0; here W_k(0) = I")
    distance = kolmogorov_distance(noise / scale[:, None], ndtr)
    likely = Hypothesis(distance, "≤", kolmogorov_bound(noise.shape[1], LEAST_PROBABILITY))
    # s is known to a few percent, so two digits lose nothing, and runs share their constants
    rounded = np.array([float(f"{s:.2g}") for s in scale])
    return rounded, {"residual initialization": likely}


def kolmogorov_distance(samples: np.ndarray, distribution) -> np.ndarray:
    """Largest distance between the empirical and the given distribution, along the last axis."""
    count = samples.shape[-1]
    level = distribution(np.sort(samples, axis=-1))
    above = np.arange(1, count + 1) / count - level
    return np.max(np.maximum(above, 1 / count - above), axis=-1)


def kolmogorov_bound(samples: int, probability: float) -> float:
    """The distance exceeded with at most this probability (Dvoretzky-Kiefer-Wolfowitz)."""
    return float(np.sqrt(np.log(2 / probability) / (2 * samples)))


def _field(constants: list[ResidualConstants | None], name: str) -> np.ndarray:
    """One constant of each run, NaN where there are none."""
    return np.array([np.nan if c is None else getattr(c, name) for c in constants])


@statement(
    "FM-L3",
    title="singular values of products of residual layers",
    reference="FM, Lemma 3, with errata E-1 and E-2",
    formula=r"\|\Pi_{k:1}\|_2 \le 4e^{s^2/2+u},\quad \sigma_{\min}(\Pi_{k:1}) \ge"
    r"\tfrac14e^{-2s^2/d-u}\quad\text{if }\|\theta_k\|_2 \le \tfrac1{64}e^{-2s^2-4u}",
)
def product_singular_values(context: Context) -> list[Check]:
    """At the smallest admissible u; where there is none, at the u with the least failure bound."""
    scale, hypotheses = _residual_start(context)
    d, L = context.widths[0], context.depth
    ranges = [admissible_range(s, d, L) for s in scale.tolist()]
    pairs = zip(scale.tolist(), ranges, strict=True)
    u = np.array([least_failure_u(s, d, L) if r is None else r.lower for s, r in pairs])
    hypotheses["L, d large enough for an admissible u"] = [r is not None for r in ranges]
    bounds = product_bounds(scale, d, u)
    ball = np.exp(-2 * scale**2 - 4 * u) / 64
    near = (np.max(context.displacement_norms, axis=-1) <= ball)[..., None]
    through = context.product_values
    M, m = (np.reshape(bound, (-1, 1)) for bound in (2 * bounds.largest, bounds.smallest / 2))
    return [
        Check(through[..., 0], M, "‖Π_{k:1}‖", where=near, hypotheses=hypotheses),
        Check(m, through[..., 1], "σ_min(Π_{k:1})", where=near, hypotheses=hypotheses),
    ]


@lru_cache(maxsize=16)
def _gaussian_statistics(width: int) -> tuple[int, float, float]:
    """Number of draws, and Kolmogorov distances of ‖Nh‖²/‖h‖² and hᵀNh/‖h‖²."""
    draws = int(np.clip(2e6 // width**2, 20, 2000))
    rng = np.random.default_rng(width)
    h = rng.normal(size=width)
    N = rng.normal(size=(draws, width, width))
    image = N @ h
    first = np.sum(image**2, axis=1) / (h @ h)
    second = image @ h / (h @ h)
    distances = kolmogorov_distance(first, partial(chdtr, width)), kolmogorov_distance(second, ndtr)
    return draws, float(distances[0]), float(distances[1])


@statement(
    "FM-L6",
    title="a Gaussian matrix applied to a vector",
    formula=r"\|Nh\|^2/\|h\|^2 \sim \chi^2(d),\quad h^\top Nh/\|h\|^2 \sim \mathcal N(0,1)",
)
def gaussian_image(context: Context) -> list[Check]:
    """Kolmogorov distances at this width, against what is exceeded with probability 1e-9."""
    draws, first, second = _gaussian_statistics(context.widths[0])
    bound = kolmogorov_bound(draws, 1e-9)
    return [Check(first, bound, "χ²(d)"), Check(second, bound, "N(0, 1)")]


@statement(
    "FM-L9",
    title="singular values of products under perturbation",
    formula=r"\|\theta_k\|_2 \le \tfrac{m^2}{4M^2} \Rightarrow \|\tilde\Pi_{k:1}\|_2 \le 2M,"
    r"\ \sigma_{\min}(\tilde\Pi_{k:1}) \ge m/2",
    hypotheses=Context.stays_finite,
)
def perturbed_products(context: Context) -> list[Check]:
    """With M and m measured at the start, wherever training has moved little enough.

    The condition on ‖θ_k‖_2 is asked of ‖θ_k‖_F, which is at least as large.
    """
    context.require_square()
    start = context.product_values[0]
    M = np.maximum(np.max(start[..., 0], axis=-1), 1)
    m = np.minimum(np.min(start[..., 1], axis=-1), 1 - 1e-12)
    near = (np.max(context.displacement_norms, axis=-1) <= m**2 / (4 * M**2))[..., None]
    through = context.product_values
    return [
        Check(through[..., 0], 2 * M[:, None], "‖Π_{k:1}‖", where=near),
        Check(m[:, None] / 2, through[..., 1], "σ_min(Π_{k:1})", where=near),
    ]


def _convergence(context: Context) -> list[Check]:
    """θ_k stays in its ball and the gap decays at the rate of the proof of FM-T4."""
    constants, hypotheses = _convergence_hypotheses(context)
    rate, radius = _field(constants, "rate"), _field(constants, "radius")
    return _stays_near(context, rate, radius, "C_5", hypotheses)


def _stays_near(
    context: Context, rate: np.ndarray, radius: np.ndarray, name: str, hypotheses: dict[str, Any]
) -> list[Check]:
    """θ_k within its radius, the Polyak-Łojasiewicz inequality with rate·λ‖p‖², and its decay."""
    rate = rate * context.problem.smallest_eigenvalue * context.readout_norm**2
    decay = context.gap[0] * np.exp(-rate * context.times[:, None])
    later = (context.times[:, None] > 0) & context.moving
    slack = context.gap_error / np.maximum(context.gap, decay)
    squares = np.sum(context.gradient_squares, axis=-1)
    moved = context.displacement_norms
    return [
        Check(moved, radius[:, None], f"‖θ_k‖_F ≤ {name}", hypotheses=hypotheses),
        Check(rate * context.gap, squares, "Polyak-Łojasiewicz", hypotheses=hypotheses),
        Check(context.gap, decay, "convergence", where=later, slack=slack, hypotheses=hypotheses),
    ]


def _convergence_hypotheses(context: Context):
    """The constants of each run and the hypotheses of FM-T4."""
    scale, hypotheses = _residual_start(context)
    d, L, problem = context.widths[0], context.depth, context.problem
    constants = [residual_constants(s, d, L) for s in scale.tolist()]
    ratio = problem.smallest_eigenvalue**2 / problem.largest_eigenvalue
    allowed = _field(constants, "gap") * ratio * context.readout_norm**2
    hypotheses["gradient flow"] = context.flow
    hypotheses["L, d large enough for an admissible u"] = [c is not None for c in constants]
    hypotheses["R(W(0)) − R_min ≤ C_4λ²‖p‖²/Λ"] = Hypothesis(context.gap[0], "≤", allowed)
    return constants, hypotheses


@statement(
    "FM-T4",
    title="convergence of the flow from a residual start",
    reference="FM, Theorem 4 and Appendix B.7, C_4 with erratum E-23",
    formula=r"R(W(0))-R_{\min} \le C_4\lambda^2\|p\|^2/\Lambda \Rightarrow \|\theta_k\|_F \le C_5,"
    r"\ R(t)-R_{\min} \le (R(0)-R_{\min})e^{-\mu t}",
)
def residual_convergence(context: Context) -> list[Check]:
    """With the constants of the proof at the smallest admissible u."""
    context.require_vector()
    if context.readout is None:
        raise NotApplicable("for networks with a read-out p (without one: FM-T5)")
    return _convergence(context)


@statement(
    "FM-T5",
    title="the same for multivariate regression",
    reference="FM, Theorem 5 and Appendix B.7, C_4 with erratum E-23",
    formula=r"4\lambda\sigma_{\min}^2(\Pi_{L:k+1})\sigma_{\min}^2(\Pi_{k-1:1})(R-R_{\min})"
    r"\le\|\nabla_kR\|_F^2\le4\Lambda\|\Pi_{L:k+1}\|^2\|\Pi_{k-1:1}\|^2(R-R_{\min})",
)
def multivariate_convergence(context: Context) -> list[Check]:
    """The bounds on the gradients and the convergence that follows, with ‖p‖ = 1."""
    context.require_square()
    if context.readout is not None:
        raise NotApplicable("for networks without a read-out (with one: FM-T4)")
    return _sandwich(context) + _convergence(context)


@statement(
    "FM-C3",
    title="the flow from a residual start ends in a flat minimum",
    reference="FM, Corollary 3 and Appendix B.9, C_4 with erratum E-23",
    formula=r"1 \le S/S_{\min} \le C\Lambda/\lambda",
)
def residual_flat_minimum(context: Context) -> list[Check]:
    """The ratio, with the exact S_min of X-2."""
    context.require_vector()
    if context.readout is None:
        raise NotApplicable("for networks with a read-out p")
    constants, hypotheses = _convergence_hypotheses(context)
    hypotheses |= _full_rank(context) | context.minimizer_hypotheses()
    ratio = context.final_sharpness / (context.minimal.exact * context.minimal_scale)
    bound = _field(constants, "sharpness_ratio") * context.problem.condition_number
    return [
        Check(1.0, ratio, "1 ≤ S/S_min", slack=context.slack, hypotheses=hypotheses),
        Check(ratio, bound, "S/S_min ≤ CΛ/λ", hypotheses=hypotheses),
    ]


def _full_rank(context: Context) -> dict[str, Hypothesis]:
    problem = context.problem
    return {"Σ̂ has full rank": Hypothesis(problem.rank, "≥", problem.dimension)}


@statement(
    "X-20",
    title="convergence of the flow from one draw of square layers, with its own constants",
    formula=r"R(W(0))-R_{\min}\le C_4\lambda\|p\|^2\Rightarrow\|\theta_k\|_F\le\rho,\ "
    r"S/S_{\min}\le C\tfrac{\Lambda}{a}\tfrac{L}{G(\Lambda/a)},\quad"
    r"\sqrt{C_4}=xe^{-2x}(1-\tfrac xL)^{4L}m_0^5/M_0^3,\ \rho=xm_0/M_0",
)
def convergence_of_a_draw(context: Context) -> list[Check]:
    """FM-T4, T5 and C3 with M_0, m_0 measured on the start, whatever its law; a theorem."""
    context.require_square()
    values = np.concatenate([context.product_values[0], context.suffix_values[0]], axis=-2)
    M0, m0 = np.max(values[..., 0], axis=-1), np.min(values[..., 1], axis=-1)
    constants, problem = product_constants(M0, m0, context.depth), context.problem
    allowed = constants.gap * problem.smallest_eigenvalue * context.readout_norm**2
    close = Hypothesis(context.gap[0], "≤", allowed)
    met = {"gradient flow": context.flow, "R(W(0)) − R_min ≤ C_4λ‖p‖²": close}
    rate, radius = np.asarray(constants.rate), np.asarray(constants.radius)
    checks = _stays_near(context, rate, radius, "ρ", met)
    if problem.outputs > 1 or context.readout is None or problem.optimum_norm == 0:
        return checks
    least = context.minimal.exact * context.minimal_scale
    spread = sharpness_brackets(problem, context.depth).spread
    bound = constants.sharpness_ratio * spread * context.depth
    bound = bound / least_sharpness(context.depth, spread)
    met = met | _full_rank(context) | context.minimizer_hypotheses()
    part, ratio = "S/S_min ≤ C(Λ/a)L/G", context.final_sharpness / least
    return [*checks, Check(ratio, bound, part, hypotheses=met)]


@statement(
    "X-21",
    title="singular values of products of residual layers, both directions, without s^{−2/3}",
    formula=r"\|\Pi_{k:1}\|,\|\Pi_{L:k}\|\le2e^{s^2/2+u},\quad"
    r"\sigma_{\min}(\Pi_{k:1}),\sigma_{\min}(\Pi_{L:k})\ge\tfrac12e^{-s^2/2-u}",
)
def conditioned_products(context: Context) -> list[Check]:
    """At the start and u = 1.5u_∞; fails for at most one draw in a hundred where its bound says so.

    A theorem about the law of the start, its expectations by quadrature.
    """
    scale, hypotheses = _residual_start(context)
    d, L = context.widths[0], context.depth
    if d < 2:
        raise NotApplicable("for layers of width at least 2")
    u = [1.5 * least_margin(s, d) for s in scale.tolist()]
    pairs = list(zip(scale.tolist(), u, strict=True))
    fails = [sharp_failure_probability(s, d, L, margin) for s, margin in pairs]
    hypotheses["L large enough: failure ≤ 0.01"] = Hypothesis(np.array(fails), "≤", 0.01)
    bounds = [sharp_product_bounds(s, margin) for s, margin in pairs]
    M, m = np.array(bounds).T[..., None]
    values = np.concatenate([context.product_values[0], context.suffix_values[0]], axis=-2)
    return [
        Check(values[None, ..., 0], M, "‖Π‖", hypotheses=hypotheses),
        Check(m, values[None, ..., 1], "σ_min(Π)", hypotheses=hypotheses),
    ]


@statement(
    "FM-L4",
    title="powers near one",
    formula=r"(1-x)^\alpha\ge1-2\alpha x\ (0\le x\le\tfrac12),\quad"
    r"(1+x)^\alpha\le1+2\alpha x\ (\alpha x\le1)",
)
def powers_near_one(context: Context) -> list[Check]:
    """Both, for α = 1/L, 1 and L."""
    depth = float(context.depth)
    alpha = np.array([1 / depth, 1.0, depth])[:, None]
    low, high = GRID / 2, GRID / alpha
    return [
        Check((1 - 2 * alpha * low)[None, None], ((1 - low) ** alpha)[None, None], "1 − x"),
        Check(((1 + high) ** alpha)[None, None], (1 + 2 * alpha * high)[None, None], "1 + x"),
    ]


@statement(
    "FM-L5",
    title="a factor L against an exponential in √L",
    reference="FM, Lemma 5, where C = 1 suffices",
    formula=r"Le^{-\sqrt Lx}\le4e^{-x}\quad(x\ge1)",
)
def depth_against_exponential(context: Context) -> Check:
    """At the depth of the network, as log L − √L x ≤ log 4 − x."""
    x = (1 + 49 * np.insert(GRID, 0, 0.0))[None, None]
    L = float(context.depth)
    return Check(np.log(L) - np.sqrt(L) * x, np.log(4.0) - x)
