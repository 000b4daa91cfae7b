"""Hessians of linear networks with one output, in the coordinates of their range.

The gradient of layer k is v_k u_kᵀ, with the backward products v_k = W_{k+1}ᵀ…W_Lᵀp and the forward
products u_k = W_{k−1}…W_1 g (FM-grad). Along δ it changes, in layer k, by δv_k u_kᵀ + v_k δu_kᵀ:
so the range of the Hessian has in layer k no more than the d_k + d_{k−1} dimensions of
a ûᵀ + v̂ bᵀ, û and v̂ of length one. Where b has no part along û these are orthonormal coordinates,
(a_1, b_1, …, a_L, b_L), and a product needs no matrix but the weights themselves:
δv_{k−1} = ⟨a, v_k⟩ û + |v_k| b + W_kᵀδv_k and δu_{k+1} = |u_k| a + W_k δu_k.

Weights of a network are one flat vector, layer after layer.
"""

from typing import NamedTuple

import numba
import numpy as np

SUMS = {"reassoc", "contract"}
"""What the compiler may do to sums: take several terms at a time. NaN stays NaN."""


class FlatNetwork(NamedTuple):
    """One network, or a batch of them with a leading axis in `weights`."""

    widths: np.ndarray
    weights: np.ndarray
    curvature: np.ndarray
    """2Σ̂."""


class Frame(NamedTuple):
    """All v̂ and û, node after node, with their lengths (2, L + 1); a batch has a leading axis."""

    left: np.ndarray
    right: np.ndarray
    lengths: np.ndarray


@numba.njit(nogil=True, cache=True, fastmath=SUMS)
def find_frame(network, readout, optimum, frame):
    """The frame of one network."""
    (widths, weights, curvature), (left, right, lengths) = network, frame
    last, d = widths.size - 1, widths[0]
    place, node = weights.size, left.size - widths[last]
    left[node:] = readout
    for k in range(last, 0, -1):
        rows, columns = widths[k], widths[k - 1]
        place -= rows * columns
        left[node - columns : node] = 0
        for i in range(rows):
            for j in range(columns):
                left[node - columns + j] += weights[place + i * columns + j] * left[node + i]
        node -= columns
    for i in range(d):
        total = curvature[i, 0] * (left[0] - optimum[0])
        for j in range(1, d):
            total += curvature[i, j] * (left[j] - optimum[j])
        right[i] = total
    for k in range(1, last):
        rows, columns = widths[k], widths[k - 1]
        for i in range(rows):
            total = weights[place + i * columns] * right[node]
            for j in range(1, columns):
                total += weights[place + i * columns + j] * right[node + j]
            right[node + columns + i] = total
        place, node = place + rows * columns, node + columns
    right[node + widths[last - 1] :] = 0
    _normalize(widths, left, lengths[0])
    _normalize(widths, right, lengths[1])


@numba.njit(nogil=True, cache=True, fastmath=SUMS)
def _normalize(widths, rows, lengths):
    """Divide each node's part by its length (but zero stays zero)."""
    node = 0
    for k in range(widths.size):
        square = rows[node] * rows[node]
        for i in range(node + 1, node + widths[k]):
            square += rows[i] * rows[i]
        lengths[k] = np.sqrt(square)
        inverse = 1 / lengths[k] if lengths[k] != 0 else lengths[k]
        for i in range(node, node + widths[k]):
            rows[i] *= inverse
        node += widths[k]


@numba.njit(nogil=True, cache=True, fastmath=SUMS)
def multiply(network, frame, x, image, scratch):
    """Hx for one network; `scratch` is two rows of the length of a frame."""
    (widths, weights, curvature), (left, right, lengths) = network, frame
    dv, du = scratch
    last, d = widths.size - 1, widths[0]
    place, node, at = weights.size, left.size - widths[last], x.size
    dv[node:] = 0
    for k in range(last, 0, -1):
        rows, columns = widths[k], widths[k - 1]
        place, at, below = place - rows * columns, at - rows - columns, node - columns
        size, along = lengths[0, k], 0.0
        for i in range(rows):
            along += x[at + i] * left[node + i]
        for j in range(columns):
            along -= x[at + rows + j] * right[below + j]  # b without its part along û
        for j in range(columns):
            dv[below + j] = size * (along * right[below + j] + x[at + rows + j])
        for i in range(rows):
            for j in range(columns):
                dv[below + j] += weights[place + i * columns + j] * dv[node + i]
        node = below
    for i in range(d):
        du[i] = curvature[i, 0] * dv[0]
        for j in range(1, d):
            du[i] += curvature[i, j] * dv[j]
    for k in range(1, last + 1):
        rows, columns = widths[k], widths[k - 1]
        above, size, slope = node + columns, lengths[0, k], lengths[1, k - 1]
        along = right[node] * du[node]
        for j in range(1, columns):
            along += right[node + j] * du[node + j]
        for i in range(rows):
            image[at + i] = slope * dv[above + i] + size * along * left[above + i]
        for j in range(columns):
            image[at + rows + j] = size * (du[node + j] - along * right[node + j])
        for i in range(rows):
            total = slope * x[at + i]
            for j in range(columns):
                total += weights[place + i * columns + j] * du[node + j]
            du[above + i] = total
        place, node, at = place + rows * columns, above, at + rows + columns


@numba.njit(nogil=True, cache=True)
def turns(widths, left, right, new_left, new_right, cosines):
    """⟨v̂, v̂'⟩ and ⟨û, û'⟩ at every node, from an old frame to a new one."""
    node = 0
    for k in range(widths.size):
        end = node + widths[k]
        cosines[0, k] = dot(left[node:end], new_left[node:end])
        cosines[1, k] = dot(right[node:end], new_right[node:end])
        node = end


@numba.njit(nogil=True, cache=True, fastmath=SUMS)
def transport(widths, left, right, new_left, new_right, cosines, x):
    """Coordinates in a new frame of what x stands for in the old one, projected on its range."""
    node, at = 0, 0
    for k in range(1, widths.size):
        rows, columns = widths[k], widths[k - 1]
        above = node + columns
        kept, turn = cosines[0, k], cosines[1, k - 1]
        lost, gained = 0.0, 0.0  # ⟨b, û'⟩ and ⟨a, v̂'⟩
        for j in range(columns):
            lost += x[at + rows + j] * new_right[node + j]
        for i in range(rows):
            gained += x[at + i] * new_left[above + i]
        for i in range(rows):
            x[at + i] = turn * x[at + i] + lost * left[above + i]
        along = gained * turn + kept * lost
        for j in range(columns):
            x[at + rows + j] = (
                gained * right[node + j] + kept * x[at + rows + j] - along * new_right[node + j]
            )
        node, at = above, at + rows + columns


@numba.njit(nogil=True, cache=True)
def frames(networks, readouts, optimum, frame):
    """The frame of every network of a batch."""
    (widths, weights, curvature), (left, right, lengths) = networks, frame
    for b in range(len(weights)):
        own = Frame(left[b], right[b], lengths[b])
        find_frame(FlatNetwork(widths, weights[b], curvature), readouts[b], optimum, own)


@numba.njit(nogil=True, cache=True)
def multiply_members(networks, frames, members, vectors, images):
    """Hx for each of the members and its x."""
    (widths, weights, curvature), (left, right, lengths) = networks, frames
    scratch = np.empty_like(left[0]), np.empty_like(left[0])
    for row, b in enumerate(members):
        own = Frame(left[b], right[b], lengths[b])
        multiply(
            FlatNetwork(widths, weights[b], curvature), own, vectors[row], images[row], scratch
        )


@numba.njit(nogil=True, cache=True)
def expand(widths, left, right, members, coordinates, vectors):
    """Flat vectors of weights: a ûᵀ + v̂ bᵀ of every layer, b without its part along û."""
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
            across = x[at + rows : at + rows + columns]
            across[:] = 0
            for i in range(rows):
                x[at + i] = dot(layer[i], u)
                for j in range(columns):
                    across[j] += v[i] * layer[i, j]
            overlap = dot(across, u)
            for j in range(columns):
                across[j] -= overlap * u[j]
            node, place, at = node + columns, place + rows * columns, at + rows + columns


@numba.njit(nogil=True, cache=True, fastmath=SUMS)
def dot(left, right):
    """⟨left, right⟩."""
    total = left[0] * right[0]
    for j in range(1, len(left)):
        total += left[j] * right[j]
    return total
