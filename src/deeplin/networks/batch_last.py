"""Products of layers for many small linear networks at once, with the batch axis last.

Layer k is an array W_k of shape (d_k, d_{k−1}, b). A product with a vector is a multiplication and
a sum over a leading axis, which XLA vectorizes over the b networks: at width 5 this is two to three
times as fast as matrix products with the batch axis first. Rows V_k (q, d_k, b) are the transposed
backward products of `deeplin.networks.products`, columns U_k (q, d_{k−1}, b) the forward ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Layers = Sequence[Float[Array, "_ _ b"]]
Rows = Float[Array, "q _ b"]
NARROW = 12
"""Widest layer of networks for which training and the tracking of sharpness have the batch axis
last. The choice depends on the shape of the networks alone. If it depended on the size of the
batch, results would depend in their last digits on how runs are grouped."""
UNROLLED = 12
"""Depth up to which a loop over layers is unrolled: this is faster, but compiles more slowly."""


def row_times_matrix(rows: Rows, matrix: Float[Array, "m n b"]) -> Rows:
    """Return V W for every row and network: (q, m, b), (m, n, b) → (q, n, b)."""
    return (rows[:, :, None, :] * matrix[None]).sum(1)


def matrix_times_column(matrix: Float[Array, "m n b"], columns: Rows) -> Rows:
    """Return W U for every column and network: (m, n, b), (q, n, b) → (q, m, b)."""
    return (matrix[None] * columns[:, None, :, :]).sum(2)


def backward_rows(layers: Layers, readout: Float[Array, "width b"] | None) -> list[Rows]:
    """Return V_0 … V_L as rows: V_k = pᵀW_L … W_{k+1}, each (q, d_k, b); V_0 is the product."""
    last = layers[-1]
    if readout is None:  # no multiplication by the identity
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


def hessian_product(
    layers: Float[Array, "L D D b"], readout: Float[Array, "q D b"], derivatives: Callable
) -> Callable[[Float[Array, "s N b"]], Float[Array, "s N b"]]:
    """Return v ↦ Hv for the Hessian of R(W) = ℓ(Θ), for stacks of directions of all layers.

    Layers are padded with zeros to one width D, which adds directions of zero curvature. With the
    rows V_k, the columns U_k and a direction D_k,

        δV_{k−1} = δV_k W_k + V_k D_k,   δU_{k+1} = W_k δU_k + D_k U_k,
        U_1 = ∇ℓ(Θ),   δU_1 = ∇²ℓ(Θ)δΘ,
        (Hv)_k = δV_kᵀ U_kᵀ + V_kᵀ δU_kᵀ.

    `derivatives` maps Θ (q, D, b) to ∇ℓ(Θ) and to the function δΘ ↦ ∇²ℓ(Θ)δΘ.
    """
    depth, width, _, batch = layers.shape
    unroll = depth if depth <= UNROLLED else 4
    theta, rows = jax.lax.scan(
        lambda v, w: (row_times_matrix(v, w), v), readout, layers, reverse=True, unroll=unroll
    )
    slope, curvature = derivatives(theta)
    columns = jax.lax.scan(
        lambda u, w: (matrix_times_column(w, u), u), slope, layers, unroll=unroll
    )[1]

    def product(vectors: Float[Array, "s N b"]) -> Float[Array, "s N b"]:
        count = len(vectors)
        directions = vectors.reshape(count, depth, width, width, batch)
        from_rows = (rows[:, :, :, None] * directions[:, :, None]).sum(3)
        from_columns = (directions[:, :, None] * columns[:, :, None]).sum(4)
        pairs = jnp.moveaxis(from_rows, 1, 0), jnp.moveaxis(from_columns, 1, 0)
        none = jnp.zeros((count, *readout.shape), vectors.dtype)
        moved, row_moves = jax.lax.scan(
            lambda v, w: ((v[:, :, :, None] * w[0]).sum(2) + w[1], v),
            none, (layers, pairs[0]), reverse=True, unroll=unroll,
        )  # fmt: skip
        column_moves = jax.lax.scan(
            lambda u, w: ((w[0] * u[:, :, None]).sum(3) + w[1], u),
            curvature(moved), (layers, pairs[1]), unroll=unroll,
        )[1]  # fmt: skip
        images = (row_moves[:, :, :, :, None] * columns[:, None, :, None]).sum(2) + (
            rows[:, None, :, :, None] * column_moves[:, :, :, None]
        ).sum(2)
        return jnp.moveaxis(images, 1, 0).reshape(vectors.shape)

    return product
