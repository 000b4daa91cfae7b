"""Hessian-vector products of linear networks with one output, and coordinates of their range.

Weights of a network are one flat vector, layer after layer. `v_k = W_{k+1}ᵀ…W_Lᵀp` are the backward
and `u_k = W_{k−1}…W_1 g` the forward products (FM-grad).
"""

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def sweep(widths, weights, readouts, curvature, optimum, backward, forward):
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
        apply(curvature, v[:d] - optimum, u[:d])
        for k in range(1, last):
            rows, columns = widths[k], widths[k - 1]
            layer = W[place : place + rows * columns].reshape(rows, columns)
            apply(layer, u[node : node + columns], u[node + columns : node + columns + rows])
            place, node = place + rows * columns, node + columns


@numba.njit(nogil=True, cache=True)
def multiply(widths, weights, curvature, backward, forward, members, vectors, images):
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
        apply(curvature, dv[:d], du[:d])  # δg = 2Σ̂ δw, and from there on the forward ones
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
def apply(matrix, vector, image):
    """image = matrix · vector."""
    for i in range(len(matrix)):
        image[i] = dot(matrix[i], vector)


@numba.njit(nogil=True, cache=True)
def expand(widths, left, right, members, coordinates, vectors):
    """a ûᵀ + v̂ bᵀ of every layer, b without its part along û."""
    for row, b in enumerate(members):
        x, image = coordinates[row], vectors[row]
        node, place, at = 0, 0, 0
        for k in range(1, widths.size):
            rows, columns = widths[k], widths[k - 1]
            u, v = right[b, node : node + columns], left[b, node + columns : node + columns + rows]
            across = x[at + rows : at + rows + columns]
            overlap = dot(across, u)
            for i in range(rows):
                for j in range(columns):
                    image[place + i * columns + j] = x[at + i] * u[j] + v[i] * (
                        across[j] - overlap * u[j]
                    )
            node, place, at = node + columns, place + rows * columns, at + rows + columns


@numba.njit(nogil=True, cache=True)
def project(widths, left, right, members, vectors, coordinates):
    """a = Mû and b = Mᵀv̂ without its part along û, for the matrix M of every layer."""
    for row, b in enumerate(members):
        x = coordinates[row]
        node, place, at = 0, 0, 0
        for k in range(1, widths.size):
            rows, columns = widths[k], widths[k - 1]
            u, v = right[b, node : node + columns], left[b, node + columns : node + columns + rows]
            layer = vectors[row, place : place + rows * columns].reshape(rows, columns)
            apply(layer, u, x[at : at + rows])
            across = x[at + rows : at + rows + columns]
            across[:] = 0
            for i in range(rows):
                for j in range(columns):
                    across[j] += v[i] * layer[i, j]
            overlap = dot(across, u)
            for j in range(columns):
                across[j] -= overlap * u[j]
            node, place, at = node + columns, place + rows * columns, at + rows + columns


@numba.njit(nogil=True, cache=True)
def dot(left, right):
    """⟨left, right⟩."""
    total = 0.0
    for j in range(len(left)):
        total += left[j] * right[j]
    return total
