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

from deeplin.kernels.compiling import SUMS, compiled
from deeplin.kernels.lanes import choose_less, fill, load, multiply_add, square_root, store

USUAL = 5
"""Width of the layers in the experiments of FM, for which loops are unrolled."""

inlined = numba.njit(nogil=True, forceinline=True, fastmath=SUMS, error_model="numpy")


class FlatNetwork(NamedTuple):
    """One network, or a lane of them; a batch has a leading axis in `weights`."""

    widths: np.ndarray
    weights: np.ndarray
    curvature: np.ndarray
    """2Σ̂."""


class Frame(NamedTuple):
    """All v̂ and û, node after node, with their lengths (2, L + 1); a batch has a leading axis."""

    left: np.ndarray
    right: np.ndarray
    lengths: np.ndarray


@compiled
def find_frame(network, readout, optimum, frame):
    """The frame of one network, or of a lane of them."""
    (widths, weights, curvature), (left, right, lengths) = network, frame
    last, d = widths.size - 1, widths[0]
    place, node = len(weights), len(left) - widths[last]
    for i in range(widths[last]):
        store(left, node + i, load(readout, i))
    for k in range(last, 0, -1):
        place, node = place - widths[k] * widths[k - 1], node - widths[k - 1]
        for j in range(widths[k - 1]):
            store(left, node + j, fill(left, 0.0))
        _pull(weights, place, left, node, widths[k], widths[k - 1])
    for i in range(d):
        total = fill(left, 0.0)
        for j in range(d):
            difference = load(left, j) - fill(left, optimum[j])
            total = multiply_add(fill(left, curvature[i, j]), difference, total)
        store(right, i, total)
    for k in range(1, last):
        rows, columns = widths[k], widths[k - 1]
        for i in range(rows):
            total = _row(weights, place + i * columns, right, node, columns)
            store(right, node + columns + i, total)
        place, node = place + rows * columns, node + columns
    for i in range(node + widths[last - 1], len(right)):
        store(right, i, fill(right, 0.0))
    _normalize(widths, left, lengths[0])
    _normalize(widths, right, lengths[1])


@inlined
def _pull(weights, place, vectors, node, rows, columns):
    """Add Wᵀv, with v just after the entries it is added to."""
    if weights.ndim > 1:  # lanes: no order of the weights is better, and sums stay in registers
        for j in range(columns):
            total = load(vectors, node + j)
            for i in range(rows):
                entry = load(weights, place + i * columns + j)
                total = multiply_add(entry, load(vectors, node + columns + i), total)
            store(vectors, node + j, total)
        return
    for i in range(rows):
        above = load(vectors, node + columns + i)
        for j in range(columns):
            entry = load(weights, place + i * columns + j)
            store(vectors, node + j, multiply_add(entry, above, load(vectors, node + j)))


@inlined
def _row(weights, place, vector, node, columns):
    """⟨row of W, u⟩."""
    total = load(weights, place) * load(vector, node)
    for j in range(1, columns):
        total = multiply_add(load(weights, place + j), load(vector, node + j), total)
    return total


@inlined
def _inner(x, at, y, node, count):
    """⟨x, y⟩ over `count` entries."""
    total = load(x, at) * load(y, node)
    for j in range(1, count):
        total = multiply_add(load(x, at + j), load(y, node + j), total)
    return total


@compiled
def _normalize(widths, rows, lengths):
    """Divide each node's part by its length (but zero stays zero)."""
    node, none = 0, fill(rows, 0.0)
    for k in range(widths.size):
        length = square_root(_inner(rows, node, rows, node, widths[k]))
        store(lengths, k, length)
        inverse = choose_less(none, length, fill(rows, 1.0) / length, length)
        for i in range(node, node + widths[k]):
            store(rows, i, load(rows, i) * inverse)
        node += widths[k]


@compiled
def multiply(network, frame, x, image, scratch):
    """Hx for one network, or a lane of them; `scratch` is two arrays like those of a frame."""
    widths, _, curvature = network
    dv, du = scratch
    last, d = widths.size - 1, widths[0]
    place, node, at = len(network.weights), len(dv) - widths[last], len(x)
    for i in range(node, len(dv)):
        store(dv, i, fill(dv, 0.0))
    for k in range(last, 0, -1):
        rows, columns = widths[k], widths[k - 1]
        place, node, at = place - rows * columns, node - columns, at - rows - columns
        if rows == USUAL and columns == USUAL:  # constants, so that the loops unroll
            _backward(network.weights, frame, x, dv, (k, place, node, at, USUAL, USUAL))
        else:
            _backward(network.weights, frame, x, dv, (k, place, node, at, rows, columns))
    for i in range(d):
        total = fill(du, 0.0)
        for j in range(d):
            total = multiply_add(fill(du, curvature[i, j]), load(dv, j), total)
        store(du, i, total)
    for k in range(1, last + 1):
        rows, columns = widths[k], widths[k - 1]
        if rows == USUAL and columns == USUAL:
            _forward(network.weights, frame, x, image, scratch, (k, place, node, at, USUAL, USUAL))
        else:
            _forward(network.weights, frame, x, image, scratch, (k, place, node, at, rows, columns))
        place, node, at = place + rows * columns, node + columns, at + rows + columns


@inlined
def _backward(weights, frame, x, dv, layer):
    """δv of the node below layer k."""
    left, right, lengths = frame
    k, place, below, at, rows, columns = layer
    along = _inner(x, at, left, below + columns, rows)
    along = along - _inner(x, at + rows, right, below, columns)  # b without its part along û
    size = load(lengths[0], k)
    for j in range(columns):
        entry = multiply_add(along, load(right, below + j), load(x, at + rows + j))
        store(dv, below + j, size * entry)
    _pull(weights, place, dv, below, rows, columns)


@inlined
def _forward(weights, frame, x, image, scratch, layer):
    """The part of the image in layer k, and δu of the node above it."""
    (left, right, lengths), (dv, du) = frame, scratch
    k, place, node, at, rows, columns = layer
    above, size, slope = node + columns, load(lengths[0], k), load(lengths[1], k - 1)
    along = _inner(right, node, du, node, columns)
    turned = size * along
    for i in range(rows):
        entry = slope * load(dv, above + i)
        store(image, at + i, multiply_add(turned, load(left, above + i), entry))
        total = _row(weights, place + i * columns, du, node, columns)
        store(du, above + i, multiply_add(slope, load(x, at + i), total))
    for j in range(columns):
        entry = load(du, node + j) - along * load(right, node + j)
        store(image, at + rows + j, size * entry)


@compiled
def turns(widths, left, right, new_left, new_right, cosines):
    """⟨v̂, v̂'⟩ and ⟨û, û'⟩ at every node, from an old frame to a new one."""
    node = 0
    for k in range(widths.size):
        store(cosines[0], k, _inner(left, node, new_left, node, widths[k]))
        store(cosines[1], k, _inner(right, node, new_right, node, widths[k]))
        node += widths[k]


@compiled
def transport(widths, left, right, new_left, new_right, cosines, x):
    """Coordinates in a new frame of what x stands for in the old one, projected on its range."""
    node, at = 0, 0
    for k in range(1, widths.size):
        rows, columns = widths[k], widths[k - 1]
        above = node + columns
        kept, turn = load(cosines[0], k), load(cosines[1], k - 1)
        lost = _inner(x, at + rows, new_right, node, columns)  # ⟨b, û'⟩
        gained = _inner(x, at, new_left, above, rows)  # ⟨a, v̂'⟩
        for i in range(rows):
            entry = turn * load(x, at + i)
            store(x, at + i, multiply_add(lost, load(left, above + i), entry))
        along = gained * turn + kept * lost
        for j in range(columns):
            entry = kept * load(x, at + rows + j) - along * load(new_right, node + j)
            store(x, at + rows + j, multiply_add(gained, load(right, node + j), entry))
        node, at = above, at + rows + columns


@compiled
def frames(networks, readouts, optimum, frame):
    """The frame of every network of a batch."""
    (widths, weights, curvature), (left, right, lengths) = networks, frame
    for b in range(len(weights)):
        own = Frame(left[b], right[b], lengths[b])
        find_frame(FlatNetwork(widths, weights[b], curvature), readouts[b], optimum, own)


@compiled
def multiply_members(networks, frames, members, vectors, images):
    """Hx for each of the members and its x."""
    (widths, weights, curvature), (left, right, lengths) = networks, frames
    scratch = np.empty_like(left[0]), np.empty_like(left[0])
    for row, b in enumerate(members):
        own = Frame(left[b], right[b], lengths[b])
        multiply(
            FlatNetwork(widths, weights[b], curvature), own, vectors[row], images[row], scratch
        )


@compiled
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


@compiled
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


@compiled
def dot(left, right):
    """⟨left, right⟩."""
    total = left[0] * right[0]
    for j in range(1, len(left)):
        total += left[j] * right[j]
    return total
