"""Benign overfitting: the risk of interpolating networks and its bounds (BO Sections 3, 4)."""

from __future__ import annotations

import math

import numpy as np

from deeplin.certificates.interpolation import CertificateContext
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, statement
from deeplin.networks.products import squared_distance
from deeplin.theory.benign_overfitting import (
    RiskBound,
    RiskSplit,
    interpolation_bound,
    noise_cost,
    random_start_bound,
    risk_split,
    spike_bound,
)
from deeplin.theory.effective_rank import effective_ranks


def _interpolator(context: CertificateContext) -> np.ndarray:
    """Θ_min + Θ_⊥, (batch, d, q): the interpolator nearest to the trained map."""
    optimum = context.problem.optimum.reshape(context.problem.dimension, -1)
    return optimum + context.perpendicular[-1]


def _split(context: CertificateContext) -> RiskSplit:
    population = context.require_population()
    context.require_wide_data()
    return risk_split(context.problem, population, _interpolator(context))


@statement(
    "BO-risk",
    title="excess risk, exactly",
    kind="definition",
    reference="BO, Section 2.2",
    formula=r"\mathrm{Risk}(\Theta)=\mathrm{Tr}\,(\Theta-\Theta^*)^\top\Sigma(\Theta-\Theta^*)",
    hypotheses=CertificateContext.stays_finite,
)
def excess_risk(context: CertificateContext) -> Check:
    """Of the trained map; it is between 0 and λ_1‖Θ − Θ*‖²."""
    population = context.require_population()
    theta = context.backward[0][-1]
    most = population.spectrum[0] * squared_distance(theta - population.optimum)
    return Check(population.risk(theta), most, "Risk ≤ λ_1‖Θ − Θ*‖²")


@statement(
    "BO-L4.1",
    title="on the data every interpolator is the minimum-norm one",
    formula=r"P_X\Theta=\Theta_{\min};\quad\|P_X\Theta-\Theta_{\min}\|\le\|Y-X\Theta\|/\sigma_{\min}(X)",
    hypotheses=CertificateContext.stays_finite,
)
def inside_the_data(context: CertificateContext) -> Check:
    """In its quantitative form, at every record: exact interpolation makes the right side 0."""
    context.require_wide_data()
    spectrum = context.problem.spectrum
    apart = spectrum.vectors.T @ context.backward[0] - spectrum.coordinates
    inside = np.linalg.norm(apart, axis=(-1, -2))
    scale = np.linalg.norm(context.backward[0], axis=(-1, -2)) + context.problem.optimum_norm
    return Check(inside, np.sqrt(context.loss) / context.smallest_singular, scale=scale)


@statement(
    "BO-L4.2",
    title="risk from the bias beside the data and the noise on it",
    reference="BO, Lemma 4.2 and its proof (for a factor q there see errata E-21)",
    formula=r"\mathrm{Risk}\le 2\mathrm{Tr}\,(\Theta^*-\Theta_\perp)^\top B(\Theta^*-\Theta_\perp)"
    r"+2\mathrm{Tr}\,\Omega^\top C\Omega\le c\,\mathrm{Tr}(\cdot)+cq\log(q/\delta)\mathrm{Tr}\,C",
    hypotheses=CertificateContext.interpolates,
)
def risk_parts(context: CertificateContext) -> list[Check]:
    """For the interpolator nearest to the trained map: as in the proof, then as printed."""
    split, population = _split(context), context.require_population()
    q = population.outputs
    chance = q * math.log(q / context.constants.delta)
    missed = split.bound / 2 - split.noise
    # Tr(ΩᵀCΩ) is quadratic in the noise, whose size the printed bound takes as 1.
    printed = missed + population.noise**2 * chance * noise_cost(context.problem, population)
    return [
        Check(split.total, split.bound, "of the proof"),
        context.with_constant(split.total, printed, "as printed"),
    ]


@statement(
    "BO-T3.1",
    title="risk of any deep linear network trained to interpolation",
    reference="BO, Theorem 3.1, as a bound (errata E-20)",
    formula=r"\mathrm{Risk}\le c\big[\tfrac{s_k}{n}\|\Theta^*\|^2+q\log\tfrac q\delta"
    r"(\tfrac kn+\tfrac n{R_k})+\tfrac{s_k}{n}\|\Theta_\perp\|^2\big],\;\|\Theta_\perp\|\le"
    r"\|\Theta_\perp(0)\|+LB^2\sqrt{\lambda_1n}\textstyle\int\sqrt{\mathcal L}",
)
def interpolation_risk(context: CertificateContext) -> list[Check]:
    """Bias, variance, Ξ from the measured ‖Θ_⊥‖, Ξ from ∫√ℒ, and the total."""
    split = _split(context)
    context.require_tail()
    population, n = context.require_population(), context.problem.samples
    delta, b, norms = context.constants.delta, context.constants.b, context.perpendicular_norm
    largest = math.sqrt(population.spectrum[0] * n)
    travelled = context.depth * context.bound[-1] ** 2 * largest * context.path[-1]
    bound, by_path = (
        interpolation_bound(population, n, norm, delta=delta, b=b)
        for norm in (norms[-1], norms[0] + travelled)
    )
    hypotheses = context.interpolates() | _enough_samples(context)
    along = hypotheses | context.under_flow()
    return [
        *_terms(context, split, bound, hypotheses),
        context.with_constant(split.xi, by_path.xi, "Ξ by ∫√ℒ", hypotheses=along),
    ]


def _terms(
    context: CertificateContext, split: RiskSplit, bound: RiskBound, hypotheses: dict
) -> list[Check]:
    """Bias, variance and Ξ each with the smallest c of its own, and the total."""
    rows = (
        (split.bias, bound.bias, "bias"),
        (split.noise, bound.variance, "variance"),
        (split.xi, bound.xi, "Ξ"),
        (split.total, bound.total, "total"),
    )
    return [context.with_constant(*row, hypotheses=hypotheses) for row in rows]


def _enough_samples(context: CertificateContext) -> dict:
    """n ≥ c·max(r_0, k, log(1/δ)), with the caller's c (1 if none)."""
    first = effective_ranks(context.require_population().spectrum).small[0]
    needed = max(first, context.require_tail().k, -math.log(context.constants.delta))
    enough = Hypothesis(context.problem.samples, "≥", (context.constants.c or 1.0) * needed)
    return {"n ≥ c·max(r_0, k, log(1/δ))": enough}


@statement(
    "BO-T3.2",
    title="risk from a random start",
    reference="BO, Theorem 3.2, with α and β as measured (errata E-6); Ξ also corrected (E-19)",
    formula=r"\Xi\le\tfrac{c\alpha^2s_k}{n}\big[q\beta^2+L^2(\alpha+\tfrac1L)^4"
    r"\tfrac{\lambda_1n^2}{s_k^2}(\lambda_1\|\Theta^*\|^2+q+"
    r"\tfrac{\alpha^2\beta^2s_0q\log(n/\delta)}{m})\big]",
)
def random_start_risk(context: CertificateContext) -> list[Check]:
    """Bias, variance, Ξ as printed and corrected, and the total, from the initialization alone."""
    context.require_identity_middle()
    split = _split(context)
    hypotheses = context.interpolates() | _enough_samples(context) | _random_start(context)
    printed, corrected = (_start_bound(context, corrected) for corrected in (False, True))
    return [
        *_terms(context, split, printed, hypotheses),
        context.with_constant(split.xi, corrected.xi, "Ξ corrected (E-19)", hypotheses=hypotheses),
    ]


def _start_bound(context: CertificateContext, corrected: bool) -> RiskBound:
    alpha, beta = context.scales
    return random_start_bound(
        context.require_population(),
        context.problem.samples,
        alpha=alpha,
        beta=beta,
        depth=context.depth,
        width=context.width,
        delta=context.constants.delta,
        b=context.constants.b,
        corrected=corrected,
    )


def _random_start(context: CertificateContext) -> dict:
    """The conditions of BO-T3.2 on α, β and m, with the caller's c (1 if none)."""
    population, constants = context.require_population(), context.constants
    c, delta = constants.c or 1.0, constants.delta
    alpha, beta = context.scales
    n, L, q = context.problem.samples, context.depth, population.outputs
    largest, s_0 = population.spectrum[0], np.sum(population.spectrum)
    s_k = context.require_tail().sum
    truth = np.linalg.norm(population.optimum)
    reach = math.sqrt(L * n) * (math.sqrt(truth) * largest**0.25 + q**0.25)
    spread = L**2 * alpha**2 * largest * s_0 * n**2 * q * math.log(n / delta)
    with np.errstate(divide="ignore", invalid="ignore"):
        wide = np.maximum(population.dimension + q - math.log(delta), spread / (beta * s_k) ** 2)
    large = max(1.0, largest**0.25 * reach / math.sqrt(s_k))
    return {
        "gradient flow": context.flow,
        "α ≤ 1": Hypothesis(alpha, "≤", 1.0),
        "β large enough": Hypothesis(beta, "≥", c * large),
        "width m large enough": Hypothesis(context.width, "≥", c * wide),
    }


@statement(
    "BO-C3.4",
    title="risk for a spiked population, for some scales of the first and last layer",
    reference="BO, Corollary 3.4 and its proof, which chooses α and β",
    formula=r"\exists\alpha,\beta:\;\mathrm{Risk}\le c\big(\tfrac{\varepsilon d\|\Theta^*\|^2+"
    r"qk\log(q/\delta)}n+\tfrac{nq\log(q/\delta)}d\big)",
)
def spike_risk(context: CertificateContext) -> Check:
    """With the α and β of the proof: β as in BO-T3.2, α so small that its Ξ is of lower order."""
    population, n = context.require_population(), context.problem.samples
    k, epsilon = context.require_spike()
    context.require_identity_middle()
    split, d, c = _split(context), population.dimension, context.constants.c or 1.0
    bound = spike_bound(population, n, delta=context.constants.delta)
    rare = -math.log(context.constants.delta)
    start = _start_bound(context, corrected=False)
    conditions = _random_start(context) | {
        "α so small that Ξ is of lower order": Hypothesis(
            start.xi, "≤", start.bias + start.variance
        ),
        "d ≥ cn": Hypothesis(d, "≥", c * n),
        "n ≥ c·max(k + εd, log(1/δ))": Hypothesis(n, "≥", c * max(k + epsilon * d, rare)),
    }
    return context.with_constant(split.total, bound, hypotheses=context.interpolates() | conditions)


@statement(
    "BO-disc",
    title="the risk follows that of the minimum-norm interpolant",
    kind="observation",
    reference="BO, Sections 7 and 8",
    formula=r"|\sqrt{\mathrm{Risk}(\Theta)}-\sqrt{\mathrm{Risk}(\Theta_{\min})}|\le"
    r"\|\Sigma^{1/2}\Theta_\perp\|",
    hypotheses=CertificateContext.interpolates,
)
def follows_interpolant(context: CertificateContext) -> Check:
    """Benign or tempered alike: the difference is the part Ξ due to Θ_⊥, and vanishes with it."""
    split = _split(context)
    population = context.require_population()
    least = population.risk(context.problem.optimum.reshape(population.optimum.shape))
    apart = np.abs(np.sqrt(split.total) - math.sqrt(least))
    return Check(apart, np.sqrt(split.xi), scale=np.sqrt(split.total))


@statement(
    "BO-mod-id",
    title="the modified identity ends at the minimum-norm interpolant",
    kind="observation",
    reference="BO, Section 8 (Zou et al.)",
    formula=r"\Theta_\perp(t)=0",
    hypotheses=CertificateContext.stays_finite,
)
def modified_identity(context: CertificateContext) -> Check:
    """For networks that copy the input to the first d units and read the last q."""
    context.require_identity_middle()
    d, q, m = context.widths[0], context.widths[-1], context.widths[1]
    eye = np.eye(d + q)
    same = m == d + q and np.all(context.initial[0] == eye[:, :d])
    if not same or np.any(context.initial[-1] != eye[d:]) or context.readout is not None:
        raise NotApplicable("for the modified identity of width d + q")
    return Check(context.perpendicular_norm, 0.0, scale=context.problem.optimum_norm)
