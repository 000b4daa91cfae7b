"""Products of layers for many small linear networks at once, with the batch axis last.

Layer k is an array W_k of shape (d_k, d_{k−1}, b). A product with a vector is a multiplication and
a sum over a leading axis, which XLA vectorizes over the b networks: at width 5 this is two to three
times as fast as matrix products with the batch axis first. Rows V_k (q, d_k, b) are the transposed
backward products of `deeplin.networks.products`, columns U_k (q, d_{k−1}, b) the forward ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

Layers = Sequence[Float[Array, "_ _ b"]]
Rows = Float[Array, "q _ b"]


def row_times_matrix(rows: Rows, matrix: Float[Array, "m n b"]) -> Rows:
    """Return V W for every row and network: (q, m, b), (m, n, b) → (q, n, b)."""
    return (rows[:, :, None, :] * matrix[None]).sum(1)


def matrix_times_column(matrix: Float[Array, "m n b"], columns: Rows) -> Rows:
    """Return W U for every column and network: (m, n, b), (q, n, b) → (q, m, b)."""
    return (matrix[None] * columns[:, None, :, :]).sum(2)


def backward_rows(layers: Layers, readout: Float[Array, "width b"] | None) -> list[Rows]:
    """Return V_0 … V_L as rows: V_k = pᵀW_L … W_{k+1}, each (q, d_k, b); V_0 is the product."""
    last = layers[-1]
    if readout is None:  # the identity need not be multiplied with
        identity = jnp.broadcast_to(
            jnp.eye(last.shape[0], dtype=last.dtype)[..., None],
            (*[last.shape[0]] * 2, last.shape[-1]),
        )
        rows = [identity, last]
    else:
        rows = [readout[None], row_times_matrix(readout[None], last)]
    for layer in reversed(layers[:-1]):
        rows.append(row_times_matrix(rows[-1], layer))
    return rows[::-1]


def forward_columns(layers: Layers, columns: Rows) -> list[Rows]:
    """Return U_k = W_{k−1} … W_1 C for k = 1 … L, each (q, d_{k−1}, b)."""
    forward = [columns]
    for layer in layers[:-1]:
        forward.append(matrix_times_column(layer, forward[-1]))
    return forward


def outer(rows: Rows, columns: Rows) -> Float[Array, "m n b"]:
    """Return Σ_q V_q U_qᵀ for every network: the gradient of one layer (FM-grad)."""
    return (rows[:, :, None, :] * columns[:, None, :, :]).sum(0)


def layer_gradients(backward: Sequence[Rows], forward: Sequence[Rows]) -> tuple[Array, ...]:
    """Return ∇_k R = V_kᵀ U_kᵀ for k = 1 … L from the products of all layers (FM-grad)."""
    return tuple(outer(v, u) for v, u in zip(backward[1:], forward, strict=True))
