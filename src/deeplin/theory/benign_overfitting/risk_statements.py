"""Benign overfitting: the risk of interpolating networks and its bounds (BO Sections 3, 4)."""

from __future__ import annotations

import math

import numpy as np

from deeplin.theory.benign_overfitting import (
    RiskBound,
    RiskSplit,
    interpolation_bound,
    random_start_bound,
    risk_split,
    spike_bound,
)
from deeplin.theory.benign_overfitting.data_statements import (
    finite_index,
    require_spike,
    with_constant,
)
from deeplin.theory.benign_overfitting.effective_ranks import effective_ranks
from deeplin.theory.context import Context
from deeplin.theory.registry import Check, NotApplicable, statement


def _interpolator(context: Context) -> np.ndarray:
    """Θ_min + Θ_⊥, (batch, d, q): the interpolator nearest to the trained map."""
    optimum = context.problem.optimum.reshape(context.problem.dimension, -1)
    return optimum + context.interpolation.perpendicular[-1]


def _split(context: Context) -> RiskSplit:
    population = context.interpolation.require_population()
    context.interpolation.require_wide_data()
    return risk_split(context.problem, population, _interpolator(context))


@statement(
    "BO-risk",
    title="excess risk, exactly",
    kind="definition",
    reference="BO, Section 2.2",
    formula=r"\mathrm{Risk}(\Theta)=\mathrm{Tr}\,(\Theta-\Theta^*)^\top\Sigma(\Theta-\Theta^*)",
)
def excess_risk(context: Context) -> Check:
    """Of the trained map; it is between 0 and λ_1‖Θ − Θ*‖²."""
    population = context.interpolation.require_population()
    theta = context.backward[0][-1]
    distance = np.sum((theta - population.optimum) ** 2, axis=(-1, -2))
    return Check(
        np.atleast_1d(population.risk(theta))[None],
        (population.spectrum[0] * distance)[None],
        "Risk ≤ λ_1‖Θ − Θ*‖²",
        hypotheses=context.stays_finite(),
    )


@statement(
    "BO-L4.1",
    title="on the data every interpolator is the minimum-norm one",
    kind="lemma",
    reference="BO, Lemma 4.1",
    formula=r"P_X\Theta=\Theta_{\min};\quad\|P_X\Theta-\Theta_{\min}\|\le\|Y-X\Theta\|/\sigma_{\min}(X)",
)
def inside_the_data(context: Context) -> Check:
    """In its quantitative form, at every record: exact interpolation makes the right side 0."""
    view = context.interpolation
    view.require_wide_data()
    return Check(
        np.linalg.norm(context.coordinates, axis=(-1, -2)),
        np.sqrt(view.loss) / view.smallest_singular,
        scale=np.linalg.norm(context.backward[0], axis=(-1, -2)) + context.problem.optimum_norm,
        hypotheses=context.stays_finite(),
    )


@statement(
    "BO-L4.2",
    title="risk from the bias beside the data and the noise on it",
    kind="lemma",
    reference="BO, Lemma 4.2",
    formula=r"\mathrm{Risk}\le 2\mathrm{Tr}\,(\Theta^*-\Theta_\perp)^\top B(\Theta^*-\Theta_\perp)"
    r"+2\mathrm{Tr}\,\Omega^\top C\Omega",
)
def risk_parts(context: Context) -> Check:
    """For the interpolator nearest to the trained map."""
    split = _split(context)
    return Check(
        np.atleast_1d(split.total)[None],
        np.atleast_1d(split.bound)[None],
        hypotheses=context.interpolation.interpolates(),
    )


@statement(
    "BO-T3.1",
    title="risk of any deep linear network trained to interpolation",
    kind="theorem",
    reference="BO, Theorem 3.1",
    formula=r"\mathrm{Risk}\le c\big[\tfrac{s_k}{n}\|\Theta^*\|^2+q\log\tfrac q\delta"
    r"(\tfrac kn+\tfrac n{R_k})+\tfrac{s_k}{n}\|\Theta_\perp\|^2\big]",
)
def interpolation_risk(context: Context) -> Check:
    """With the measured ‖Θ_⊥‖ in the place of its bound."""
    view, split = context.interpolation, _split(context)
    finite_index(context)
    bound = interpolation_bound(
        view.require_population(),
        context.problem.samples,
        view.perpendicular_norm[-1],
        delta=view.constants.delta,
        b=view.constants.b,
    )
    return _judged(context, split, bound, {})


@statement(
    "BO-T3.2",
    title="risk from a random start",
    kind="theorem",
    reference="BO, Theorem 3.2, with α and β as measured (errata E-6)",
    formula=r"\Xi\le\tfrac{c\alpha^2s_k}{n}\big[q\beta^2+L^2(\alpha+\tfrac1L)^4"
    r"\tfrac{\lambda_1n^2}{s_k^2}(\lambda_1\|\Theta^*\|^2+q+"
    r"\tfrac{\alpha^2\beta^2s_0q\log(n/\delta)}{m})\big]",
)
def random_start_risk(context: Context) -> Check:
    """With Ξ bounded by the initialisation alone."""
    view = context.interpolation
    view.require_identity_middle()
    split, k = _split(context), finite_index(context)
    population, constants = view.require_population(), view.constants
    alpha, beta = view.scales
    n, m, L = context.problem.samples, view.width, context.depth
    c, delta = constants.c or 1.0, constants.delta
    bound = random_start_bound(
        population, n, alpha=alpha, beta=beta, depth=L, width=m, delta=delta, b=constants.b
    )
    largest, s_0 = population.spectrum[0], np.sum(population.spectrum)
    s_k = effective_ranks(population.spectrum).tail_sums[int(k)]
    truth, q = np.linalg.norm(population.optimum), population.outputs
    reach = math.sqrt(L * n) * (math.sqrt(truth) * largest**0.25 + q**0.25)
    spread = L**2 * alpha**2 * largest * s_0 * n**2 * q * math.log(n / delta)
    with np.errstate(divide="ignore", invalid="ignore"):
        wide = np.maximum(population.dimension + q - math.log(delta), spread / (beta * s_k) ** 2)
    conditions = {
        "gradient flow": context.flow,
        "α ≤ 1": alpha <= 1,
        "β large enough": beta >= c * max(1.0, largest**0.25 * reach / math.sqrt(s_k)),
        "width m large enough": m >= c * wide,
    }
    return _judged(context, split, bound, conditions)


def _judged(context: Context, split: RiskSplit, bound: RiskBound, conditions: dict) -> Check:
    """Risk ≤ c·bound for an interpolating run, with enough samples for this c (1 if none)."""
    view, n = context.interpolation, context.problem.samples
    first = effective_ranks(view.require_population().spectrum).small[0]
    needed = max(first, finite_index(context), -math.log(view.constants.delta))
    enough = {"n ≥ c·max(r_0, k, log(1/δ))": n >= (view.constants.c or 1.0) * needed}
    return with_constant(
        context,
        np.atleast_1d(split.total)[None],
        np.broadcast_to(bound.total, context.batch)[None],
        hypotheses=view.interpolates() | conditions | enough,
    )


@statement(
    "BO-C3.4",
    title="risk for a spiked population and a small first layer",
    kind="corollary",
    reference="BO, Corollary 3.4",
    formula=r"\mathrm{Risk}\le c\big(\tfrac{\varepsilon d\|\Theta^*\|^2+qk\log(q/\delta)}n+"
    r"\tfrac{nq\log(q/\delta)}d\big)",
)
def spike_risk(context: Context) -> Check:
    """For the interpolator nearest to the trained map."""
    view = context.interpolation
    population = view.require_population()
    require_spike(population.spectrum)
    view.require_identity_middle()
    split = _split(context)
    bound = spike_bound(population, context.problem.samples, delta=view.constants.delta)
    conditions = view.interpolates() | {"gradient flow": context.flow}
    return with_constant(context, np.atleast_1d(split.total)[None], bound, hypotheses=conditions)


@statement(
    "BO-disc",
    title="the risk follows that of the minimum-norm interpolant",
    kind="observation",
    reference="BO, Sections 7 and 8",
    formula=r"|\sqrt{\mathrm{Risk}(\Theta)}-\sqrt{\mathrm{Risk}(\Theta_{\min})}|\le"
    r"\|\Sigma^{1/2}\Theta_\perp\|",
)
def follows_interpolant(context: Context) -> Check:
    """Benign or tempered alike: the difference is the part Ξ due to Θ_⊥, and vanishes with it."""
    split = _split(context)
    population = context.interpolation.require_population()
    least = population.risk(context.problem.optimum.reshape(population.optimum.shape))
    total = np.atleast_1d(split.total)
    return Check(
        np.abs(np.sqrt(total) - math.sqrt(least))[None],
        np.sqrt(np.atleast_1d(split.xi))[None],
        scale=np.sqrt(total)[None],
        hypotheses=context.interpolation.interpolates(),
    )


@statement(
    "BO-mod-id",
    title="the modified identity ends at the minimum-norm interpolant",
    kind="observation",
    reference="BO, Section 8 (Zou et al.)",
    formula=r"\Theta_\perp(t)=0",
)
def modified_identity(context: Context) -> Check:
    """For networks that copy the input to the first d units and read the last q."""
    view = context.interpolation
    view.require_identity_middle()
    d, q, m = context.widths[0], context.widths[-1], context.widths[1]
    eye = np.eye(d + q)
    same = m == d + q and np.all(context.initial[0] == eye[:, :d])
    if not same or np.any(context.initial[-1] != eye[d:]) or context.readout is not None:
        raise NotApplicable("for the modified identity of width d + q")
    return Check(
        view.perpendicular_norm,
        0.0,
        scale=context.problem.optimum_norm,
        hypotheses=context.stays_finite(),
    )
