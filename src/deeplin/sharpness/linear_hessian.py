"""Hessian-vector products of linear networks with one output, compiled once for every shape.

Weights of a network are one flat vector, layer after layer. The gradient of layer k is v_k u_kᵀ,
with v_k = W_{k+1}ᵀ…W_Lᵀp and u_k = W_{k−1}…W_1 g (FM-grad); a product is its derivative along δ.
"""

from __future__ import annotations

import numba
import numpy as np

from deeplin.compiled import call
from deeplin.networks import Network
from deeplin.problems import Problem


class LinearHessian:
    """The Hessians at a batch of networks, from their flat weights (batch, N) and read-outs.

    `hessian(members, vectors)` multiplies those with the numbers `members`, each by its vector.
    """

    def __init__(self, problem: Problem, widths: tuple[int, ...], weights, readouts):
        dtype = weights.dtype
        self.weights, self.widths = weights, np.array(widths)
        self.shape, self.dtype = weights.shape, dtype
        self.curvature = 2 * problem.covariance.astype(dtype)
        shape = (len(weights), self.widths.sum())
        self.backward, self.forward = np.empty(shape, dtype), np.empty(shape, dtype)
        call(
            _sweep, self.widths, self.weights, readouts, self.curvature,
            problem.optimum.reshape(-1).astype(dtype), self.backward, self.forward,
        )  # fmt: skip

    def __call__(self, members: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Hv, a row for each of the members."""
        images = np.empty_like(self.weights, shape=vectors.shape)
        call(
            _multiply, self.widths, self.weights, self.curvature, self.backward, self.forward,
            members, np.ascontiguousarray(vectors), images,
        )  # fmt: skip
        return images


def flat_weights(networks: Network) -> tuple[np.ndarray, np.ndarray]:
    """Weights (…, N) and read-outs (…, d_L) as vectors, for any leading axes."""
    layers = [np.asarray(weight) for weight in networks.weights]
    weights = np.concatenate([layer.reshape(*layer.shape[:-2], -1) for layer in layers], axis=-1)
    readout = np.ones(1) if networks.readout is None else np.asarray(networks.readout)
    readouts = np.empty((*weights.shape[:-1], readout.shape[-1]), weights.dtype)
    readouts[:] = readout
    return weights, readouts


@numba.njit(nogil=True, cache=True)
def _sweep(widths, weights, readouts, curvature, optimum, backward, forward):
    """All v_k into `backward` and all u_k into `forward`, for every network."""
    last, d = widths.size - 1, widths[0]
    for b in range(len(weights)):
        W, v, u = weights[b], backward[b], forward[b]
        place, node = W.size, v.size - widths[last]
        v[node:] = readouts[b]
        for k in range(last, 0, -1):
            rows, columns = widths[k], widths[k - 1]
            place -= rows * columns
            v[node - columns : node] = 0
            for i in range(rows):
                for j in range(columns):
                    v[node - columns + j] += W[place + i * columns + j] * v[node + i]
            node -= columns
        _apply(curvature, v[:d] - optimum, u[:d])
        for k in range(1, last):
            rows, columns = widths[k], widths[k - 1]
            layer = W[place : place + rows * columns].reshape(rows, columns)
            _apply(layer, u[node : node + columns], u[node + columns : node + columns + rows])
            place, node = place + rows * columns, node + columns


@numba.njit(nogil=True, cache=True)
def _multiply(widths, weights, curvature, backward, forward, members, vectors, images):
    """Hδ, layer by layer δv_k u_kᵀ + v_k δu_kᵀ, for each of the members and its δ."""
    last, d = widths.size - 1, widths[0]
    dv, du = np.empty_like(backward[0]), np.empty_like(forward[0])
    for row, b in enumerate(members):
        W, v, u, delta, image = weights[b], backward[b], forward[b], vectors[row], images[row]
        dv[:] = 0  # how the backward products move
        place, node = W.size, v.size - widths[last]
        for k in range(last, 0, -1):
            rows, columns = widths[k], widths[k - 1]
            place -= rows * columns
            for i in range(rows):
                for j in range(columns):
                    at = place + i * columns + j
                    dv[node - columns + j] += delta[at] * v[node + i] + W[at] * dv[node + i]
            node -= columns
        _apply(curvature, dv[:d], du[:d])  # δg = 2Σ̂ δw, and from there on the forward ones
        for k in range(1, last + 1):
            rows, columns = widths[k], widths[k - 1]
            above = node + columns
            for i in range(rows):
                total = 0.0
                for j in range(columns):
                    at, below = place + i * columns + j, node + j
                    image[at] = dv[above + i] * u[below] + v[above + i] * du[below]
                    total += delta[at] * u[below] + W[at] * du[below]
                du[above + i] = total
            place, node = place + rows * columns, above


@numba.njit(nogil=True, cache=True)
def _apply(matrix, vector, image):
    """image = matrix · vector."""
    for i in range(len(matrix)):
        total = 0.0
        for j in range(len(vector)):
            total += matrix[i, j] * vector[j]
        image[i] = total
