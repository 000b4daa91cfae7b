"""Benign overfitting: convergence from a random start (BO Section 5 and Appendix B).

α and β are measured on the singular values of the initial layers (errata E-6). The paper's flow
lacks the factor 2 of the gradient (errata E-5): the flow of the true gradient judged here runs
twice as fast, so the printed rates hold a fortiori.
"""

from __future__ import annotations

import numpy as np

from deeplin.certificates.interpolation import CertificateContext
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, statement, value


@statement(
    "BO-D5.1",
    title="δ-good initialization",
    reference="BO, Definition 5.1, on measured singular values (errata E-6)",
    formula=r"\alpha/c<\sigma(W_1(0))<c\alpha,\;\beta/c<\sigma(W_L(0))<c\beta,\;"
    r"\mathcal L(0)<c(\|Y\|^2+\alpha^2\beta^2q\|X\|_F^2\log(n/\delta)/m)",
)
def good_start(context: CertificateContext) -> Check:
    """The smallest c for which the initialization is good."""
    spread = np.max(_spread(context), axis=0)
    return context.with_constant(np.maximum(spread, _start_of_the_loss(context)), 1.0)


def _spread(context: CertificateContext) -> np.ndarray:
    """α/σ_min, σ_max/α of W_1(0) and β/σ_min, σ_max/β of W_L(0), (4, batch)."""
    context.require_identity_middle()
    if "width" in context.run.evidence:
        raise NotApplicable("for weights that were formed; this wide network was not")
    ratios = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for scale, layer in zip(context.scales, context.ends, strict=True):
            singular = np.linalg.svd(layer, compute_uv=False)
            ratios += [scale / singular[:, -1], singular[:, 0] / scale]
    return np.nan_to_num(ratios, nan=np.inf)


def _start_of_the_loss(context: CertificateContext) -> np.ndarray:
    """ℒ(0)/(‖Y‖² + α²β²q‖X‖_F²log(n/δ)/m), (batch,)."""
    alpha, beta = context.scales
    chance = np.log(context.problem.samples / context.constants.delta)
    spread = (alpha * beta * context.input_frobenius) ** 2 * context.problem.outputs * chance
    return context.loss[0] / (context.target_norm**2 + spread / context.width)


def _wide(context: CertificateContext) -> dict[str, Hypothesis]:
    """m ≥ c(d + q + log(1/δ)), with the caller's c (1 if none)."""
    needed = context.problem.dimension + context.problem.outputs - np.log(context.constants.delta)
    enough = Hypothesis(context.width, "≥", (context.constants.c or 1.0) * needed)
    return {"m ≥ c(d + q + log(1/δ))": enough}


@statement(
    "BO-LB.1",
    title="singular values of the random layers",
    reference="BO, Lemma B.1, for entries of variance α²/m and β²/m (errata E-6)",
    formula=r"\alpha/2<\sigma_{\min}(W_1(0))\le\sigma_{\max}(W_1(0))<2\alpha,\;"
    r"\beta/2<\sigma_{\min}(W_L(0))\le\sigma_{\max}(W_L(0))<2\beta",
    hypotheses=_wide,
)
def singular_values_at_start(context: CertificateContext) -> list[Check]:
    """All four, as ratios of at most 2."""
    names = ("α/σ_min(W_1)", "σ_max(W_1)/α", "β/σ_min(W_L)", "σ_max(W_L)/β")
    nonzero = [scale > 0 for scale in context.scales for _ in range(2)]
    rows = zip(_spread(context), names, nonzero, strict=True)
    return [Check(ratio, 2.0, name, where=some) for ratio, name, some in rows]


@statement(
    "BO-LB.2",
    title="loss at the start",
    formula=r"\mathcal L(0)<c(\|Y\|^2+\alpha^2\beta^2q\|X\|_F^2\log(n/\delta)/m)",
    hypotheses=_wide,
)
def loss_at_start(context: CertificateContext) -> Check:
    """The measured constant."""
    context.require_identity_middle()
    return context.with_constant(_start_of_the_loss(context), 1.0)


def _good(context: CertificateContext) -> dict[str, Hypothesis]:
    """β ≥ 2 and a good start, which for the lemmas means the event of BO-LB.1."""
    first, last = (np.max(part, axis=0) for part in np.split(_spread(context), 2))
    worst = np.maximum(np.where(context.scales[0] == 0, 0.0, first), last)
    return {
        "β ≥ 2": Hypothesis(context.scales[1], "≥", 2.0),
        "good initialization": Hypothesis(worst, "≤", 2.0),
    }


def _decay_rate(context: CertificateContext) -> np.ndarray:
    """β²σ_min²(X)/(4e), (batch,)."""
    return (context.scales[1] * context.smallest_singular) ** 2 / (4 * np.e)


@statement(
    "BO-LB.3",
    title="the loss falls while the layers have moved little",
    formula=r"\max_j\|W_j(t)-W_j(0)\|_2<\tfrac1{2L}\Rightarrow\dot{\mathcal L}<"
    r"-\tfrac{\beta^2\sigma_{\min}^2(X)}{4e}\mathcal L",
)
def decay_while_lazy(context: CertificateContext) -> Check:
    """At every record: −dℒ/dt is the squared norm of the gradient of ℒ = nR."""
    met = _good(context) | context.stays_finite()
    speed = context.problem.samples**2 * np.sum(context.gradient_squares, axis=-1)
    return Check(_decay_rate(context) * context.loss, speed, where=context.lazy, hypotheses=met)


@statement(
    "BO-LB.4",
    title="exponential decay while the layers have moved little",
    formula=r"\mathcal L(t)<\mathcal L(0)e^{-\beta^2\sigma_{\min}^2(X)t/(4e)}",
)
def decay_as_long_as_lazy(context: CertificateContext) -> Check:
    """At every record up to which all layers stayed near their start."""
    return _decay(context, _good(context), np.logical_and.accumulate(context.lazy, axis=0))


def _decay(context: CertificateContext, hypotheses: dict, where: np.ndarray | bool = True) -> Check:
    """ℒ(t) ≤ ℒ(0)exp(−β²σ_min²(X)t/(4e)) after the start."""
    bound = context.loss[:1] * np.exp(-_decay_rate(context) * context.time)
    # The loss is known to the rounding of Y − XΘ.
    scale = np.finfo(float).eps * context.target_norm**2 + bound
    return Check(
        context.loss,
        bound,
        "rate of the loss",
        hypotheses=context.under_flow() | hypotheses,
        where=context.later & where,
        slack=context.flow_tolerance,
        scale=scale,
    )


@statement(
    "BO-LB.5",
    title="the layers stay near their start",
    reference="BO, Lemma B.5; fails for α of order 1/L and deep networks (errata E-24)",
    formula=r"\|W_j(t)-W_j(0)\|_2<\tfrac1{2L}\quad(j=1,\dots,L)",
)
def stays_lazy(context: CertificateContext) -> Check:
    """The lazy distance at every record, under the conditions of BO-P5.2 and its decay."""
    conditions: dict = _good(context) | _start_conditions(context)
    decay = context.loss[:1] * np.exp(-_decay_rate(context) * context.time)
    known = np.finfo(float).eps * context.target_norm**2
    conditions["the loss decays as in BO-LB.4"] = np.all(context.loss <= decay + known, axis=0)
    met, later = context.under_flow() | conditions, context.later[..., None]
    least = 1 / (2 * context.depth)
    return Check(context.lazy_distance, least, "lazy distance", hypotheses=met, where=later)


def _start_conditions(context: CertificateContext) -> dict[str, Hypothesis]:
    """The conditions of BO-P5.2 on m, β and α, with the caller's c (1 if none)."""
    problem, L = context.problem, context.depth
    c, chance = context.constants.c or 1.0, np.log(problem.samples / context.constants.delta)
    alpha, beta = context.scales
    X, sigma = context.input_norm, context.smallest_singular
    spread = (L * alpha * X * context.input_frobenius) ** 2 * problem.outputs * chance
    with np.errstate(divide="ignore", invalid="ignore"):
        enough = spread / (beta**2 * sigma**4)
    large = max(1.0, np.sqrt(L * X * context.target_norm) / sigma)
    return _wide(context) | {
        "m large enough for L, α and X": Hypothesis(context.width, "≥", c * enough),
        "β large enough": Hypothesis(beta, "≥", c * large),
        "α ≤ 1": Hypothesis(alpha, "≤", 1.0),
    }


@statement(
    "BO-P5.2",
    title="convergence from a random start",
    reference="BO, Proposition 5.2, on measured singular values (errata E-6)",
    formula=r"\delta\text{-good};\quad B\le c(\alpha+1/L)\beta;\quad"
    r"\mathcal L(t)<\mathcal L(0)e^{-\beta^2\sigma_{\min}^2(X)t/(4e)}"
    r"<c(\|Y\|^2+\dots)e^{-\beta^2\sigma_{\min}^2(X)t/(4e)}",
)
def convergence(context: CertificateContext) -> list[Check]:
    """All its parts; part 2 as it is true, over the subsets of layers with the first (E-19)."""
    context.require_identity_middle()
    conditions = _start_conditions(context)
    flow, start = context.under_flow() | conditions, _start_of_the_loss(context)
    bound, size = context.bound_with_first[-1], _printed_bound(context)
    parts = [
        _decay(context, conditions),
        context.with_constant(start, 1.0, "3. ℒ(0)", hypotheses=conditions),
        context.with_constant(bound, size, "2. B with layer 1", hypotheses=flow),
    ]
    if "width" not in context.run.evidence:
        spread = np.max(_spread(context), axis=0)
        parts.append(context.with_constant(spread, 1.0, "1. good", hypotheses=conditions))
    return parts


def _printed_bound(context: CertificateContext) -> np.ndarray:
    """(α + 1/L)β, (batch,)."""
    alpha, beta = context.scales
    return (alpha + 1 / context.depth) * beta


@statement(
    "E-19",
    title="BO-P5.2 part 2 as printed: B over all subsets of layers is c(α + 1/L)β",
    kind="erratum",
    reference="BO, Proposition 5.2 part 2 with Definition 2.4; true over subsets with layer 1",
    formula=r"\sup_t\max_S\prod_{j\in S}\|W_j(t)\|_2\le c(\alpha+1/L)\beta",
)
def printed_bound_on_all_subsets(context: CertificateContext) -> list[Check]:
    """The c it needs, about L for small α, since the last layer alone has norm β."""
    context.require_identity_middle()
    size = _printed_bound(context)
    flow = context.under_flow() | _start_conditions(context)
    with np.errstate(divide="ignore", invalid="ignore"):
        narrower = context.bound_with_first[-1] / size
    return [
        context.with_constant(context.bound[-1], size, "all subsets", hypotheses=flow),
        value(narrower, "with layer 1: smallest c", hypotheses=flow),
    ]


@statement(
    "E-24",
    title="BO-P5.2 parts 2 and 3 together: ‖Θ_min‖_2 would be at most c(α + 1/L)β",
    kind="erratum",
    reference="BO, Proposition 5.2 for α of order 1/L; repair: β ≥ cL‖X‖‖Y‖/σ_min²(X)",
    formula=r"\|\Theta_{\min}\|_2\le\liminf_t\|\Theta(t)\|_2\le c(\alpha+1/L)\beta",
)
def printed_bound_on_the_product(context: CertificateContext) -> Check:
    """The c it needs: an interpolating map has at least the norm of Θ_min on the data."""
    context.require_identity_middle()
    least = np.linalg.norm(context.problem.optimum.reshape(context.problem.dimension, -1), 2)
    conditions = context.under_flow() | _start_conditions(context)
    return context.with_constant(least, _printed_bound(context), hypotheses=conditions)
