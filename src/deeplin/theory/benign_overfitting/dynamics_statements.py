"""Benign overfitting: what training does in and beside the span of the data (BO Sections 4, 5)."""

from __future__ import annotations

import jax
import numpy as np

from deeplin.networks import linear_risk
from deeplin.theory.benign_overfitting.data_statements import with_constant
from deeplin.theory.context import Context
from deeplin.theory.registry import Check, NotApplicable, statement, value


@statement(
    "BO-D2.3",
    title="random first and last layer, identity in between",
    kind="definition",
    reference="BO, Definition 2.3",
    formula=r"W_1\sim N(0,\alpha^2),\;W_L\sim N(0,\beta^2),\;W_2=\dots=W_{L-1}=I",
)
def random_start(context: Context) -> Check:
    """β measured on the last layer, in the caller's normalisation."""
    context.interpolation.require_identity_middle()
    return value(context.interpolation.scales[1][None], "β")


@statement(
    "BO-D2.4",
    title="training is perpetually B-bounded",
    kind="definition",
    reference="BO, Definition 2.4",
    formula=r"\sup_t\prod_j\max(1,\|W_j(t)\|_2)\le B",
)
def perpetual_bound(context: Context) -> Check:
    """The smallest B over the records."""
    return Check(
        context.interpolation.bound[-1:],
        context.interpolation.bound[-1:],
        "B",
        equality=True,
        hypotheses=context.stays_finite(),
    )


def _product_rate(quadratic, network):
    """dΘ/dt under dW/dt = −∇R, by differentiation through the product alone."""
    slope = jax.grad(linear_risk, argnums=1)(quadratic, network)
    weights = jax.tree.map(lambda leaf: -leaf, slope.weights)

    def product(layers):
        return type(network)(layers, network.readout).product

    return jax.jvp(product, (network.weights,), (weights,))[1]


_product_rates = jax.jit(jax.vmap(_product_rate, in_axes=(None, 0)))


@statement(
    "BO-L4.4",
    title="how the product moves under gradient flow",
    kind="lemma",
    reference="BO, Lemma 4.4, with the factor 2 of the gradient (errata E-5)",
    formula=r"\dot\Theta=-2\sum_j A_j^\top A_jX^\top(X\Theta-Y)B_j^\top B_j,\quad "
    r"A_j=W_{j-1}\cdots W_1,\ B_j=(W_L\cdots W_{j+1})^\top",
)
def product_rate(context: Context) -> Check:
    """The formula against automatic differentiation, at the start and at the end."""
    n, shape = context.problem.samples, (context.batch, context.widths[0], -1)
    errors, sizes = [], []
    for record, network in ((0, context.run.initial), (-1, context.run.network)):
        rate = np.asarray(_product_rates(context.problem.quadratic, network.with_batch()))
        difference = rate.reshape(shape) + _pulled_back(context, record)
        errors.append(n * np.linalg.norm(difference, axis=(-1, -2)))
        norms = context.singular_values[record]
        others = [np.prod(np.delete(norms, k, axis=-1), axis=-1) for k in range(context.depth)]
        sizes.append(n * np.sum(context.gradient_scale[record] * np.stack(others, -1), axis=-1))
    return Check(np.stack(errors), 0.0, scale=np.stack(sizes), hypotheses=context.stays_finite())


def _pulled_back(context: Context, record: int) -> np.ndarray:
    """Σ_j A_jᵀ(A_j g)(V_jᵀV_j), by Horner's rule from the last layer down, (batch, d, q)."""
    total = 0.0
    for j in range(context.depth, 0, -1):
        above = context.backward[j][record if len(context.backward[j]) > 1 else 0]
        gram = np.swapaxes(above, -1, -2) @ above
        total = total + context.forward[j - 1][record] @ gram
        if j > 1:
            total = np.swapaxes(context.weights[j - 2][record], -1, -2) @ total
    return np.asarray(total)


@statement(
    "BO-L4.5",
    title="growth of Θ_⊥ under gradient flow",
    kind="lemma",
    reference="BO, Lemma 4.5",
    formula=r"\|\Theta_\perp(t)\|\le\|\Theta_\perp(0)\|+(L-1)B^2\|X\|_2\int_0^t\sqrt{\mathcal L}",
)
def perpendicular_growth(context: Context) -> Check:
    """At every record, with B and the integral up to it.

    The gradient's factor 2 (errata E-5) is made up for by ‖(I−P_X)A_jᵀA_jP_X‖ ≤ ‖A_j‖²/2, so the
    printed constant stands.
    """
    return _growth(context, 1.0)


def _growth(context: Context, factor) -> Check:
    """‖Θ_⊥(t)‖ ≤ ‖Θ_⊥(0)‖ + factor·(L−1)B²‖X‖_2∫√ℒ, for a factor (batch,)."""
    view = context.interpolation
    view.require_wide_data()
    growth = (context.depth - 1) * view.bound**2 * view.input_norm * view.path
    return _perpendicular_below(context, view.perpendicular_norm[:1] + factor * growth)


def _perpendicular_below(context: Context, right, where=True) -> Check:
    """‖Θ_⊥(t)‖ ≤ right along a gradient flow, relative to ‖Θ‖ + ‖Θ_min‖."""
    view = context.interpolation
    size = np.linalg.norm(context.backward[0], axis=(-1, -2)) + context.problem.optimum_norm
    return Check(
        view.perpendicular_norm,
        right,
        hypotheses=view.under_flow(),
        where=where,
        slack=context.flow_tolerance,
        scale=size,
    )


@statement(
    "E-4",
    title="BO-L4.5 as printed: Θ_⊥ stays 0 if it starts at 0",
    kind="erratum",
    reference="BO, Theorem 3.1 and Lemma 4.5, first case; see X-6 for the correct condition",
    formula=r"\|\Theta_\perp(0)\|=0\;\Rightarrow\;\|\Theta_\perp(t)\|=0",
)
def printed_zero_case(context: Context) -> Check:
    """The printed claim, judged: it is false for β = 0 with a random first layer."""
    view = context.interpolation
    view.require_wide_data()
    zero = view.perpendicular_norm[0] == 0
    if not np.any(zero):
        raise NotApplicable("for maps that start at Θ_⊥ = 0")
    return _perpendicular_below(context, 0.0, where=zero[None])


@statement(
    "BO-L5.3",
    title="Θ_⊥ comes from the first layer beside the data",
    kind="lemma",
    reference="BO, Lemma 5.3",
    formula=r"\Theta_\perp=(W_L\cdots W_2W_1(I-P_X))^\top",
)
def perpendicular_from_first_layer(context: Context) -> Check:
    """Projecting the product, or the first layer before multiplying."""
    view = context.interpolation
    view.require_wide_data()
    first = view.beside_data(np.swapaxes(context.weights[0], -1, -2))
    difference = view.perpendicular - first @ context.backward[1]
    return Check(
        np.linalg.norm(difference, axis=(-1, -2)),
        0.0,
        scale=np.sqrt(context.problem.outputs) * np.prod(context.singular_values, axis=-1),
        hypotheses=context.stays_finite(),
    )


@statement(
    "BO-L5.4",
    title="the first layer never changes beside the data",
    kind="lemma",
    reference="BO, Lemma 5.4",
    formula=r"W_1(t)(I-P_X)=W_1(0)(I-P_X)",
)
def first_layer_beside_data(context: Context) -> Check:
    """For descent as for flow: its gradients have their rows in the span of the data."""
    view = context.interpolation
    view.require_wide_data()
    change = np.swapaxes(context.weights[0] - context.initial[0], -1, -2)
    return Check(
        np.linalg.norm(view.beside_data(change), axis=(-1, -2)),
        0.0,
        scale=np.maximum(context.layer_norms[..., 0], context.layer_norms[:1, :, 0]),
        hypotheses=context.stays_finite(),
    )


@statement(
    "BO-L5.5",
    title="growth of Θ_⊥ from a small first layer",
    kind="lemma",
    reference="BO, Lemma 5.5, with the factor 2 of the gradient (errata E-5)",
    formula=r"\|\Theta_\perp(t)\|\le\|\Theta_\perp(0)\|+"
    r"2(L-1)\|W_1(0)\|_2\|X\|_2B^2\int_0^t\sqrt{\mathcal L}",
)
def perpendicular_growth_from_first_layer(context: Context) -> Check:
    """At every record, with B and the integral up to it."""
    return _growth(context, 2 * np.linalg.norm(context.initial[0], 2, axis=(-2, -1)))


@statement(
    "BO-D5.1",
    title="δ-good initialisation",
    kind="definition",
    reference="BO, Definition 5.1, on measured singular values (errata E-6)",
    formula=r"\alpha/c<\sigma(W_1(0))<c\alpha,\;\beta/c<\sigma(W_L(0))<c\beta,\;"
    r"\mathcal L(0)<c(\|Y\|^2+\alpha^2\beta^2q\|X\|_F^2\log(n/\delta)/m)",
)
def good_start(context: Context) -> Check:
    """The smallest c for which the initialisation is good."""
    context.interpolation.require_identity_middle()
    if "width" in context.run.evidence:
        raise NotApplicable("for weights that were formed; this wide network was not")
    return with_constant(context, goodness(context)[None], 1.0)


def goodness(context: Context) -> np.ndarray:
    """The smallest c of BO-D5.1, (batch,)."""
    view, problem = context.interpolation, context.problem
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = []
        ends = (context.initial[0], context.initial[-1])
        for scale, layer in zip(view.scales, ends, strict=True):
            singular = np.linalg.svd(layer, compute_uv=False)
            ratios += [scale / singular[:, -1], singular[:, 0] / scale]
    alpha, beta = view.scales
    chance = np.log(problem.samples / view.constants.delta)
    spread = alpha**2 * beta**2 * problem.outputs * view.input_frobenius**2 * chance
    ratios.append(view.loss[0] / (view.target_norm**2 + spread / view.width))
    return np.max(np.nan_to_num(ratios, nan=np.inf), axis=0)


@statement(
    "BO-P5.2",
    title="convergence from a random start",
    kind="proposition",
    reference="BO, Proposition 5.2, on measured singular values (errata E-6)",
    formula=r"\mathcal L(t)<\mathcal L(0)e^{-\beta^2\sigma_{\min}^2(X)t/(4e)},\quad "
    r"B\le c(\alpha+1/L)\beta",
)
def convergence(context: Context) -> list[Check]:
    """The rate of the loss at every record, and the constant of the bound on the weights."""
    view = context.interpolation
    view.require_identity_middle()
    alpha, beta = view.scales
    hypotheses = view.under_flow() | _start_conditions(context)
    decay = np.exp(-(beta**2) * view.smallest_singular**2 * view.time / (4 * np.e))
    rate = Check(
        view.loss,
        view.loss[:1] * decay,
        "rate of the loss",
        hypotheses=hypotheses,
        slack=context.flow_tolerance,
        # The loss is known to the rounding of Y − XΘ.
        scale=np.finfo(float).eps * view.target_norm**2 + view.loss[:1] * decay,
    )
    size = (alpha + 1 / context.depth) * beta
    bounded = with_constant(context, view.bound[-1:], size[None], hypotheses=hypotheses)
    return [rate, bounded] if view.constants.c is not None else [rate]


def _start_conditions(context: Context) -> dict[str, np.ndarray]:
    """The conditions of BO-P5.2 on m, β and α, with the caller's c (1 if none)."""
    view, problem, L = context.interpolation, context.problem, context.depth
    c, chance = view.constants.c or 1.0, np.log(problem.samples / view.constants.delta)
    alpha, beta = view.scales
    m, d, q = view.width, problem.dimension, problem.outputs
    X, sigma = view.input_norm, view.smallest_singular
    spread = L**2 * alpha**2 * X**2 * view.input_frobenius**2 * q * chance
    with np.errstate(divide="ignore", invalid="ignore"):
        enough = np.maximum(d + q - np.log(view.constants.delta), spread / (beta**2 * sigma**4))
    large = max(1.0, np.sqrt(L * X * view.target_norm) / sigma)
    return {
        "width m large enough": m >= c * enough,
        "β large enough": beta >= c * large,
        "α ≤ 1": alpha <= 1,
    }
