"""The linear algebra of a linear network, written once for NumPy and JAX arrays alike.

Weights W_1 … W_L may carry any leading axes (batch; records, batch); the read-out p then has the
same or fewer of them. V_k = W_{k+1}ᵀ…W_Lᵀp are the backward products, Θ = V_0 is the product, and
Δ = Θ − Θ* its difference from the optimum. Without a read-out the columns of the identity take the
place of p.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, TypeVar

import jax
import numpy as np

A = TypeVar("A", np.ndarray, jax.Array)


def backward_products(weights: Sequence[A], readout: A | None = None) -> list[A]:
    """V_k = W_{k+1}ᵀ … W_Lᵀp for k = 0 … L, each (…, d_k, q); V_0 is the product Θ."""
    products = [last_columns(weights, readout)]
    for weight in reversed(weights):
        products.append(weight.mT @ products[-1])
    return products[::-1]


def product(weights: Sequence[A], readout: A | None = None) -> A:
    """Θ = W_1ᵀ … W_Lᵀp, (…, d, q)."""
    first = weights[-1].mT  # W_Lᵀ; the identity need not be multiplied with
    result = first if readout is None else first @ readout[..., None]
    for weight in reversed(weights[:-1]):
        result = weight.mT @ result
    return result


def forward_products(weights: Sequence[A], columns: A) -> list[A]:
    """W_{k−1} … W_1 C for k = 1 … L, each (…, d_{k−1}, columns of C)."""
    products = [columns]
    for weight in weights[:-1]:
        products.append(weight @ products[-1])
    return products


def squared_distance(difference: A) -> Any:
    """‖Δ‖_F², squared as everywhere in the papers."""
    return (difference**2).sum(axis=(-2, -1))


def layer_gradients(backward: Sequence[A], forward: Sequence[A]) -> list[A]:
    """∇_k R = V_k (W_{k−1}…W_1 g)ᵀ for k = 1 … L, from the products of all layers (FM-grad)."""
    return [v @ u.mT for v, u in zip(backward[1:], forward, strict=True)]


def tangent_kernel(backward: Sequence[np.ndarray], forward: Sequence[np.ndarray]) -> np.ndarray:
    """Σ_k (B_kᵀB_k) ⊗ (V_kᵀV_k), (…, r·q, r·q), for forward products B_k = W_{k−1}…W_1C (X-1)."""
    pairs = zip(forward, backward[1:], strict=True)
    terms = (np.einsum("...ij,...kl->...ikjl", b.mT @ b, v.mT @ v) for b, v in pairs)
    kernel = reduce(np.add, terms)
    size = kernel.shape[-1] * kernel.shape[-2]
    return kernel.reshape(*kernel.shape[:-4], size, size)


def imbalance(weights: Sequence[A]) -> list[A]:
    """D_k = W_{k+1}ᵀW_{k+1} − W_kW_kᵀ for k = 1 … L−1, which gradient flow conserves (FM-L1)."""
    return [upper.mT @ upper - lower @ lower.mT for lower, upper in pairwise(weights)]


def last_columns(weights: Sequence[A], readout: A | None = None) -> Any:
    """V_L: p as a column, or the identity, with the leading axes of the weights."""
    last = weights[-1]
    arrays = last.__array_namespace__()
    if readout is None:
        columns = arrays.eye(last.shape[-2], dtype=last.dtype)
    else:
        columns = readout[..., None]
    return arrays.broadcast_to(columns, (*last.shape[:-2], *columns.shape[-2:]))
