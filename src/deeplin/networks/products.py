"""Linear algebra of linear networks, for NumPy and JAX arrays.

The last part computes singular values of layers, by LAPACK on all cores.

Weights W_1 … W_L may have any leading axes (batch; records, batch); the read-out p has the same or
fewer. V_k = W_{k+1}ᵀ…W_Lᵀp are the backward products, Θ = V_0 is the product, and Δ = Θ − Θ* its
difference from the optimum. Without a read-out, p is the identity matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from deeplin.execution import map_in_threads, thread_count

STACK = 2000
"""Number of matrices from which a separate thread for their singular values pays off."""
A = TypeVar("A", np.ndarray, jax.Array)


def backward_products(weights: Sequence[A], readout: A | None = None) -> list[A]:
    """Return V_k = W_{k+1}ᵀ … W_Lᵀp for k = 0 … L, each (…, d_k, q); V_0 is the product Θ."""
    last = weights[-1]
    arrays = last.__array_namespace__()
    columns = (
        arrays.eye(last.shape[-2], dtype=last.dtype) if readout is None else readout[..., None]
    )
    products = [arrays.broadcast_to(columns, (*last.shape[:-2], *columns.shape[-2:]))]
    for weight in reversed(weights):
        products.append(_transposed_times(weight, products[-1]))
    return products[::-1]


def product(weights: Sequence[A], readout: A | None = None) -> A:
    """Return Θ = W_1ᵀ … W_Lᵀp, (…, d, q)."""
    first = weights[-1].mT  # W_Lᵀ: no multiplication by the identity
    result = first if readout is None else first @ readout[..., None]
    for weight in reversed(weights[:-1]):
        result = _transposed_times(weight, result)
    return result


def _transposed_times(weight: A, columns: A) -> A:
    """Return WᵀC as (CᵀW)ᵀ: in `weight.mT @ columns` XLA copies the weights of a batch."""
    return (columns.mT @ weight).mT


def forward_products(
    weights: Sequence[A], columns: A, biases: Sequence[A | None] | None = None
) -> list[A]:
    """Return W_{k−1} … W_1 C for k = 1 … L, each (…, d_{k−1}, columns of C).

    With biases the last row of C belongs to the constant input 1. A layer with a bias gets that row
    as well, so that its product is what [W_k b_k] multiplies.
    """
    products = [columns]
    if biases is None:
        for weight in weights[:-1]:
            products.append(weight @ products[-1])
        return products
    arrays = columns.__array_namespace__()
    hidden, constant = columns[..., :-1, :], columns[..., -1:, :]
    products = []
    for weight, bias in zip(weights, biases, strict=True):
        one = () if bias is None else (constant,)
        products.append(arrays.concat([hidden, *one], axis=-2))
        hidden = weight @ hidden
        hidden = hidden if bias is None else hidden + bias[..., None] * constant
    return products


def with_offset(backward: Sequence[A], biases: Sequence[A | None]) -> A:
    """Return Θ with one more row, the output Σ_k V_kᵀb_k at x = 0, (…, d + 1, q)."""
    pairs = zip(backward[1:], biases, strict=True)
    rows = [(v * bias[..., None]).sum(axis=-2) for v, bias in pairs if bias is not None]
    offset = reduce(lambda one, other: one + other, rows)[..., None, :]
    return offset.__array_namespace__().concat([backward[0], offset], axis=-2)


def split_layers(layers: Sequence[A], biases: Sequence[Any] | None) -> tuple[A, ...]:
    """Return matrices [W_k b_k] as weights and, after them, the biases of layers that have one."""
    if biases is None:
        return tuple(layers)
    pairs = list(zip(layers, biases, strict=True))
    weights = [layer if bias is None else layer[..., :-1] for layer, bias in pairs]
    return (*weights, *(layer[..., -1] for layer, bias in pairs if bias is not None))


def squared_distance(difference: A) -> Any:
    """Return ‖Δ‖_F², squared as everywhere in the papers."""
    return (difference**2).sum(axis=(-2, -1))


def layer_gradients(backward: Sequence[A], forward: Sequence[A]) -> list[A]:
    """Return ∇_k R = V_k (W_{k−1}…W_1 g)ᵀ for k = 1 … L, from products of the layers (FM-grad)."""
    return [v @ u.mT for v, u in zip(backward[1:], forward, strict=True)]


def tangent_kernel(backward: Sequence[np.ndarray], forward: Sequence[np.ndarray]) -> np.ndarray:
    """Return Σ_k (B_kᵀB_k) ⊗ (V_kᵀV_k), (…, r·q, r·q), with B_k = W_{k−1}…W_1C (X-1)."""
    pairs = zip(forward, backward[1:], strict=True)
    terms = (np.einsum("...ij,...kl->...ikjl", b.mT @ b, v.mT @ v) for b, v in pairs)
    kernel = reduce(np.add, terms)
    size = kernel.shape[-1] * kernel.shape[-2]
    return kernel.reshape(*kernel.shape[:-4], size, size)


def imbalance(weights: Sequence[A], biases: Sequence[A | None] | None = None) -> list[A]:
    """Return D_k = W_{k+1}ᵀW_{k+1} − W_kW_kᵀ − b_kb_kᵀ for k < L, conserved by the flow (FM-L1)."""
    levels = [upper.mT @ upper - lower @ lower.mT for lower, upper in pairwise(weights)]
    pairs = zip(levels, biases or (None,) * len(levels), strict=False)
    return [d if b is None else d - b[..., :, None] * b[..., None, :] for d, b in pairs]


def drift(network: Any, initial: Any) -> np.ndarray:
    """Return max_k ‖D_k − D_k(0)‖_F of the `imbalance` D_k; 0 for one layer (FM-L1)."""
    now, then = (
        imbalance([np.asarray(w) for w in net.weights], jax.tree.map(np.asarray, net.biases))
        for net in (network, initial)
    )
    changes = [np.linalg.norm(a - b, axis=(-2, -1)) for a, b in zip(now, then, strict=True)]
    return np.max([np.zeros(network.weights[0].shape[:-2]), *changes], axis=0)


class Extremes(NamedTuple):
    """Largest and smallest singular value, and the vectors u, v of the largest."""

    largest: np.ndarray
    smallest: np.ndarray
    left: np.ndarray
    right: np.ndarray


def extreme_singular(matrices: np.ndarray) -> Extremes:
    """Return the extremes of a stack of matrices (…, m, n); the smallest is over min(m, n) values.

    The values are NaN for a matrix that is not finite.
    """
    u, s, v = _decomposed(partial(np.linalg.svd, full_matrices=False), matrices)
    return Extremes(s[..., 0], s[..., -1], u[..., :, 0], v[..., 0, :])


def singular_values(matrices: np.ndarray) -> np.ndarray:
    """Return the singular values of each matrix of a stack (…, m, n), largest first.

    NaN for a matrix that is not finite.
    """
    return _decomposed(lambda part: (np.linalg.svd(part, compute_uv=False),), matrices)[0]


def extreme_values(matrices: np.ndarray) -> np.ndarray:
    """Return the largest and smallest singular value of each matrix of a stack, as (…, 2)."""
    return _decomposed(lambda part: (_extremes_by_gram(part),), matrices)[0]


def _extremes_by_gram(matrices: np.ndarray) -> np.ndarray:
    """Return the largest and smallest singular values as roots of eigenvalues of WᵀW.

    This takes half the time of a singular value decomposition.

    Squaring loses the digits of a small σ_min, so matrices with small σ_min are decomposed
    directly.
    """
    size = np.max(np.abs(matrices), axis=(1, 2), keepdims=True)
    scaled = matrices / np.where(size > 0, size, 1)  # squares of large entries would overflow
    wide = matrices.shape[2] > matrices.shape[1]
    squares = np.linalg.eigvalsh(scaled @ scaled.mT if wide else scaled.mT @ scaled)[:, [-1, 0]]
    values, poor = np.sqrt(np.maximum(squares, 0)), squares[:, 1] < 1e-3 * squares[:, 0]
    values[poor] = np.linalg.svd(scaled[poor], compute_uv=False)[:, [0, -1]]
    return values * size[:, 0]


def values_of_layers(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Return the largest and smallest singular value of each of L layers, as (…, L, 2)."""
    return np.stack([extreme_values(layer) for layer in layers], axis=-2)


def _decomposed(function: Callable, matrices: np.ndarray) -> list[np.ndarray]:
    """Apply a decomposition to a stack, split over threads; NaN where a matrix is not finite."""
    *stack, m, n = matrices.shape
    flat = np.asarray(matrices, np.float64).reshape(-1, m, n)
    lost = np.asarray(~np.isfinite(flat).all(axis=(1, 2)))
    if lost.any():  # LAPACK would reject the whole stack
        flat = np.where(lost[:, None, None], 0, flat)
    count = min(thread_count(), max(1, len(flat) // STACK))
    parts = map_in_threads(function, np.array_split(flat, count))
    found = [np.concatenate(column) for column in zip(*parts, strict=True)]
    for column in found:
        column[lost] = np.nan
    return [column.reshape(*stack, *column.shape[1:]) for column in found]
