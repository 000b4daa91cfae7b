"""What gradient flow conserves: the differences of neighboring layers (FM Lemma 1)."""

from __future__ import annotations

import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, statement
from deeplin.networks.products import imbalance, layer_gradients


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
