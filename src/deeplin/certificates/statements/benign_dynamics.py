"""Benign overfitting: what training does in and beside the span of the data (BO Sections 4, 5)."""

from __future__ import annotations

import jax
import numpy as np

from deeplin.certificates.interpolation import CertificateContext
from deeplin.certificates.registry import Check, NotApplicable, statement, value
from deeplin.networks import linear_risk


@statement(
    "BO-D2.3",
    title="random first and last layer, identity in between",
    formula=r"W_1\sim N(0,\alpha^2),\;W_L\sim N(0,\beta^2),\;W_2=\dots=W_{L-1}=I",
)
def random_start(context: CertificateContext) -> Check:
    """β measured on the last layer, in the caller's normalisation."""
    context.require_identity_middle()
    return value(context.scales[1], "β")


@statement(
    "BO-D2.4",
    title="training is perpetually B-bounded",
    formula=r"\sup_t\prod_j\max(1,\|W_j(t)\|_2)\le B",
    hypotheses=CertificateContext.stays_finite,
)
def perpetual_bound(context: CertificateContext) -> Check:
    """The smallest B over the records."""
    return value(context.bound[-1], "B")


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
    reference="BO, Lemma 4.4, with the factor 2 of the gradient (errata E-5)",
    formula=r"\dot\Theta=-2\sum_j A_j^\top A_jX^\top(X\Theta-Y)B_j^\top B_j,\quad "
    r"A_j=W_{j-1}\cdots W_1,\ B_j=(W_L\cdots W_{j+1})^\top",
    hypotheses=CertificateContext.stays_finite,
)
def product_rate(context: CertificateContext) -> Check:
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
    return Check(np.stack(errors), 0.0, scale=np.stack(sizes))


def _pulled_back(context: CertificateContext, record: int) -> np.ndarray:
    """Σ_j A_jᵀ(A_j g)(V_jᵀV_j), by Horner's rule from the last layer down, (batch, d, q)."""
    total = 0.0
    for j in range(context.depth, 0, -1):
        above = context.backward[j][record if len(context.backward[j]) > 1 else 0]
        total = total + context.forward[j - 1][record] @ (above.mT @ above)
        if j > 1:
            total = context.weights[j - 2][record].mT @ total
    return np.asarray(total)


@statement(
    "BO-L4.5",
    title="growth of Θ_⊥ under gradient flow",
    formula=r"\|\Theta_\perp(t)\|\le\|\Theta_\perp(0)\|+(L-1)B^2\|X\|_2\int_0^t\sqrt{\mathcal L}",
    hypotheses=CertificateContext.under_flow,
)
def perpendicular_growth(context: CertificateContext) -> Check:
    """At every record, with B and the integral up to it.

    The gradient's factor 2 (errata E-5) is made up for by ‖(I−P_X)A_jᵀA_jP_X‖ ≤ ‖A_j‖²/2, so the
    printed constant stands.
    """
    return _growth(context, 1.0)


def _growth(context: CertificateContext, factor) -> Check:
    """‖Θ_⊥(t)‖ ≤ ‖Θ_⊥(0)‖ + factor·(L−1)B²‖X‖_2∫√ℒ, for a factor (batch,)."""
    context.require_wide_data()
    growth = (context.depth - 1) * context.bound**2 * context.input_norm * context.path
    return _perpendicular_below(context, context.perpendicular_norm[:1] + factor * growth)


def _perpendicular_below(context: CertificateContext, right, where=True) -> Check:
    """‖Θ_⊥(t)‖ ≤ right along a gradient flow after its start, relative to ‖Θ‖ + ‖Θ_min‖."""
    size = np.linalg.norm(context.backward[0], axis=(-1, -2)) + context.problem.optimum_norm
    after, slack = context.later & where, context.flow_tolerance
    return Check(context.perpendicular_norm, right, where=after, slack=slack, scale=size)


@statement(
    "E-4",
    title="BO-L4.5 as printed: Θ_⊥ stays 0 if it starts at 0",
    kind="erratum",
    reference="BO, Theorem 3.1 and Lemma 4.5, first case; see X-6 for the correct condition",
    formula=r"\|\Theta_\perp(0)\|=0\;\Rightarrow\;\|\Theta_\perp(t)\|=0",
    hypotheses=CertificateContext.under_flow,
)
def printed_zero_case(context: CertificateContext) -> Check:
    """The printed claim, judged: it is false for β = 0 with a random first layer."""
    context.require_wide_data()
    zero = context.perpendicular_norm[0] == 0
    if not np.any(zero):
        raise NotApplicable("for maps that start at Θ_⊥ = 0")
    return _perpendicular_below(context, 0.0, where=zero[None])


@statement(
    "BO-L5.3",
    title="Θ_⊥ comes from the first layer beside the data",
    formula=r"\Theta_\perp=(W_L\cdots W_2W_1(I-P_X))^\top",
    hypotheses=CertificateContext.stays_finite,
)
def perpendicular_from_first_layer(context: CertificateContext) -> Check:
    """Projecting the product, or the first layer before multiplying."""
    context.require_wide_data()
    first = context.problem.spectrum.beside(context.weights[0].mT)
    difference = context.perpendicular - first @ context.backward[1]
    scale = np.sqrt(context.problem.outputs) * np.prod(context.singular_values, axis=-1)
    return Check(np.linalg.norm(difference, axis=(-1, -2)), 0.0, scale=scale)


@statement(
    "BO-L5.4",
    title="the first layer never changes beside the data",
    formula=r"W_1(t)(I-P_X)=W_1(0)(I-P_X)",
    hypotheses=CertificateContext.stays_finite,
)
def first_layer_beside_data(context: CertificateContext) -> Check:
    """For descent as for flow: its gradients have their rows in the span of the data."""
    context.require_wide_data()
    change = context.problem.spectrum.beside((context.weights[0] - context.initial[0]).mT)
    sizes = context.layer_norms[..., 0]
    return Check(np.linalg.norm(change, axis=(-1, -2)), 0.0, scale=np.maximum(sizes, sizes[:1]))


@statement(
    "BO-L5.5",
    title="growth of Θ_⊥ from a small first layer",
    reference="BO, Lemma 5.5, with the factor 2 of the gradient (errata E-5)",
    formula=r"\|\Theta_\perp(t)\|\le\|\Theta_\perp(0)\|+"
    r"2(L-1)\|W_1(0)\|_2\|X\|_2B^2\int_0^t\sqrt{\mathcal L}",
    hypotheses=CertificateContext.under_flow,
)
def perpendicular_growth_from_first_layer(context: CertificateContext) -> Check:
    """At every record, with B and the integral up to it."""
    return _growth(context, 2 * np.linalg.norm(context.initial[0], 2, axis=(-2, -1)))
