"""Exact results on wide networks: where training lives, and when Θ_⊥ stays zero (X-4 to X-6)."""

from __future__ import annotations

import numpy as np

from deeplin.certificates.interpolation import CertificateContext
from deeplin.certificates.registry import Check, NotApplicable, statement, value


def _subspaces(context: CertificateContext) -> list[np.ndarray]:
    """Orthonormal columns (batch, d_k, r) that span H_1 … H_{L−1}, for orthogonal middle layers.

    H_1 is the span of W_1(0)Q and of W_2(0)ᵀ…W_L(0)ᵀ, carried up by the middle layers. Columns
    beyond its dimension are zero.
    """
    context.require_depth()
    if context.problem.rank == 0:
        raise NotApplicable("for nonzero inputs")
    for layer in context.initial[1:-1]:
        gram = np.swapaxes(layer, -1, -2) @ layer
        if layer.shape[-1] != layer.shape[-2] or not np.allclose(gram, np.eye(gram.shape[-1])):
            raise NotApplicable("for middle layers that start orthogonal, such as the identity")
    start = 0 if len(context.backward[1]) > 1 else -1
    span = np.concatenate(
        [context.initial[0] @ context.problem.spectrum.vectors, context.backward[1][start]], axis=-1
    )
    left, sizes, _ = np.linalg.svd(span, full_matrices=False)
    floor = 100 * np.finfo(float).eps * np.sqrt(max(span.shape[1:])) * sizes[:, :1]
    basis = left * (sizes > floor)[:, None, :]
    bases = [basis]
    for layer in context.initial[1:-1]:
        bases.append(layer @ bases[-1])
    return bases


@statement(
    "X-4",
    title="training lives in rank(X) + q directions of every hidden layer",
    formula=r"W_k(t)-W_k(0)=V_kV_k^\top(W_k(t)-W_k(0))V_{k-1}V_{k-1}^\top",
    hypotheses=CertificateContext.stays_finite,
)
def exact_reduction(context: CertificateContext) -> Check:
    """For orthogonal middle layers, under descent, momentum and flow, at every record."""
    last = np.eye(context.widths[-1])
    if context.readout is not None:
        last = (context.readout / context.readout_norm[:, None])[..., None]
    spaces = [context.problem.spectrum.vectors, *_subspaces(context), last]
    left, sizes = [], []
    for k, layer in enumerate(context.weights):
        change = layer - context.initial[k]
        upper, lower = spaces[k + 1], spaces[k]
        block = np.swapaxes(upper, -1, -2) @ change @ lower
        outside = change - upper @ block @ np.swapaxes(lower, -1, -2)
        left.append(np.linalg.norm(outside, axis=(-1, -2)))
        sizes.append(context.layer_norms[..., k] + context.layer_norms[:1, :, k])
    left, scale = (np.stack(parts, axis=-1) for parts in (left, sizes))
    return Check(left, 0.0, scale=scale, slack=context.flow_slack)


@statement(
    "X-5",
    title="width at which the initial state can be drawn without forming the network",
    formula=r"r=\min(m,\mathrm{rank}(X)+q)",
)
def reduced_width(context: CertificateContext) -> Check:
    """The width r that carries the training; `simulate_wide` draws it for any m."""
    context.require_identity_middle()
    needed = context.problem.rank + context.problem.outputs
    return value(float(min(context.width, needed)), "r")


@statement(
    "X-6",
    title="when the trained network is the minimum-norm interpolant",
    reference="exact results, X-6 (the correct form of BO-L4.5, first case)",
    formula=r"\|\Theta_\perp(t)\|\le\|V^\top W_1(0)(I-P_X)\|_F\,"
    r"\|W_2(t)^\top\cdots W_L(t)^\top\|_2",
    hypotheses=CertificateContext.stays_finite,
)
def minimum_norm_condition(context: CertificateContext) -> Check:
    """Θ_⊥(t) = NᵀV_1(t) with N = VᵀW_1(0)(I − P_X): it stays 0 if N = 0."""
    context.require_wide_data()
    outside = context.problem.spectrum.beside(np.swapaxes(context.initial[0], -1, -2))
    reached = np.linalg.norm(outside @ _subspaces(context)[0], axis=(-1, -2))
    above = np.linalg.norm(context.backward[1], 2, axis=(-2, -1))
    scale = np.prod(context.layer_norms, axis=-1)
    return Check(context.perpendicular_norm, reached * above, scale=scale, slack=context.flow_slack)
