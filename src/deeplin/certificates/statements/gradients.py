"""The model, its gradients, its risk, what its flow conserves (FM Section 2, Lemmas 1 and 8)."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, statement
from deeplin.networks import linear_risk
from deeplin.networks.products import imbalance, layer_gradients

_autodiff = jax.jit(jax.vmap(jax.grad(linear_risk, argnums=1), in_axes=(None, 0)))


@statement(
    "FM-grad",
    title="gradient of each layer in closed form",
    kind="identity",
    reference="FM, eq. (5) and (6)",
    formula=r"\nabla_k R = (W_{k+1}^\top\cdots W_L^\top p)(W_{k-1}\cdots W_1 g)^\top",
    hypotheses=Context.stays_finite,
    any_loss=True,
)
def gradients(context: Context) -> Check:
    """The closed form against automatic differentiation, at the start and at the end."""
    errors, sizes = [], []
    for record, network in ((0, context.run.initial), (-1, context.run.network)):
        measured = _autodiff(context.problem.objective, network.with_batch()).weights
        for k, layer in enumerate(measured):
            closed = context.backward[k + 1][record] @ context.forward[k][record].mT
            errors.append(np.linalg.norm(np.asarray(layer) - closed, axis=(-1, -2)))
            sizes.append(context.gradient_scale[record, :, k])
    error, size = (np.stack(list(parts), axis=-1)[None] for parts in (errors, sizes))
    return Check(error, 0.0, scale=size)


@statement(
    "FM-L8",
    title="gap as a distance, gradient between multiples of it",
    formula=r"R - R_{\min} = \tfrac1n\|X(w^*-w)\|^2,\quad"
    r"4\lambda(R-R_{\min}) \le \|\nabla R^1(w)\|^2 \le 4\Lambda(R-R_{\min})",
    hypotheses=Context.stays_finite,
)
def gap_and_gradient(context: Context) -> list[Check]:
    """The risk expanded in the moments against R_min plus the distance; then both bounds."""
    problem, product = context.problem, context.backward[0]
    cross = problem.cross_moment.reshape(problem.dimension, -1)
    square = np.sum(product * (problem.covariance @ product), axis=(-1, -2))
    risk = problem.target_moment - 2 * np.sum(cross * product, axis=(-1, -2)) + square
    expected, scale = problem.minimal_risk + context.gap, problem.target_moment + square
    low, high = 4 * problem.smallest_eigenvalue, 4 * problem.largest_eigenvalue
    return [
        Check(risk, expected, "R − R_min", equality=True, scale=scale),
        Check(low * context.gap, context.slope_squares, "lower bound"),
        Check(context.slope_squares, high * context.gap, "upper bound"),
    ]


@statement(
    "FM-toy",
    title="the product of L numbers has sharpness L − 1 at (1, …, 1)",
    kind="observation",
    reference="FM, Section 3",
    formula=r"\lambda_{\max}\nabla^2\textstyle\prod_i x_i\big|_{x=(1,\dots,1)} = L-1",
)
def toy_product(context: Context) -> Check:
    """The Hessian by automatic differentiation, at the depth of the network."""
    sharpness = toy_sharpness(context.depth)
    return Check(sharpness, context.depth - 1.0, equality=True, scale=float(context.depth))


@lru_cache(maxsize=64)
def toy_sharpness(depth: int) -> float:
    """Largest Hessian eigenvalue of x ↦ x_1⋯x_L at (1, …, 1) (FM-toy).

    ```python
    from deeplin.certificates.statements.gradients import toy_sharpness
    assert abs(toy_sharpness(10) - 9) < 1e-5
    ```
    """
    hessian = jax.jit(jax.hessian(jnp.prod))(jnp.ones(depth))
    return float(np.linalg.eigvalsh(np.asarray(hessian))[-1])


@statement(
    "FM-L1",
    title="conserved differences of neighboring layers",
    formula=r"\tfrac{d}{dt}\big(W_{k+1}^\top W_{k+1} - W_k W_k^\top\big) = 0",
    any_loss=True,
)
def conservation(context: Context) -> list[Check]:
    """The drift along the flow; between consecutive descent steps, its exact size.

    One step of descent changes the difference by η²(∇_{k+1}ᵀ∇_{k+1} − ∇_k∇_kᵀ), because the terms
    of first order cancel. So a descent run recorded at every step is checked to rounding too.
    """
    context.require_depth()
    change = imbalance(context.weights)
    for level, start in zip(change, imbalance(context.initial), strict=True):
        level -= start
    squares = context.layer_norms**2
    scale = np.max(squares[..., 1:] + squares[..., :-1], axis=0, keepdims=True)
    drift = np.stack([np.linalg.norm(level, axis=(-1, -2)) for level in change], axis=-1)
    flow, slack = {"gradient flow": context.flow}, context.flow_tolerance
    along = Check(drift, 0.0, "along the flow", scale=scale, slack=slack, hypotheses=flow)
    if not context.consecutive.any():
        return [along]
    error, where = _discrete_error(context, change), context.consecutive[..., None]
    finite = context.stays_finite()
    steps = Check(error, 0.0, "between descent steps", scale=scale, where=where, hypotheses=finite)
    return [along, steps]


def _discrete_error(context: Context, change: list[np.ndarray]) -> np.ndarray:
    """‖change − η²(∇_{k+1}ᵀ∇_{k+1} − ∇_k∇_kᵀ)‖_F from the record before, (records, batch, L−1)."""
    rate = context.learning_rate[:, None, None]
    gradients = layer_gradients(context.backward, context.forward)
    predicted = [rate**2 * square for square in imbalance(gradients)]
    errors = [
        np.linalg.norm(np.diff(level, axis=0) - step[:-1], axis=(-1, -2))
        for level, step in zip(change, predicted, strict=True)
    ]
    return np.pad(np.stack(errors, axis=-1), ((1, 0), (0, 0), (0, 0)))
