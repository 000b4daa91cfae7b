"""Hessian-vector products of linear networks with one output, compiled once for every shape.

Weights of a network are one flat vector, layer after layer. The gradient of layer k is v_k u_kᵀ,
with v_k = W_{k+1}ᵀ…W_Lᵀp and u_k = W_{k−1}…W_1 g (FM-grad); a product is its derivative along δ,
in layer k  δv_k u_kᵀ + v_k δu_kᵀ. So its range has, in layer k, no more than the d_k + d_{k−1}
dimensions of a ûᵀ + v̂ bᵀ, û and v̂ of length one: there the eigenvalues can be found with far
shorter vectors, because a symmetric matrix is zero on what is orthogonal to its range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deeplin.kernels import hessian as kernel
from deeplin.kernels.compiling import call
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
        self.backward, self.forward = np.zeros((2, *shape), dtype)
        call(
            kernel.sweep, self.widths, self.weights, readouts, self.curvature,
            problem.optimum.reshape(-1).astype(dtype), self.backward, self.forward,
        )  # fmt: skip

    def __call__(self, members: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Hv, a row for each of the members."""
        images = np.empty_like(self.weights, shape=vectors.shape)
        call(
            kernel.multiply, self.widths, self.weights, self.curvature, self.backward, self.forward,
            members, np.ascontiguousarray(vectors), images,
        )  # fmt: skip
        return images


class ReducedHessian:
    """The same Hessians in the coordinates (a_1, b_1, …, a_L, b_L) of their range.

    In layer k they stand for a_k û_kᵀ + v̂_k b_kᵀ, where the part of b_k along û_k is left out (it
    is in a_k already), so it counts as a direction of eigenvalue zero. All other eigenvalues are
    those of the full Hessians; `zero_is_theirs` says whether they have zero among them as well.
    """

    def __init__(self, problem: Problem, widths: tuple[int, ...], weights, readouts):
        self.full = LinearHessian(problem, widths, weights, readouts)
        self.left, self.right = (
            _of_length_one(rows, widths) for rows in (self.full.backward, self.full.forward)
        )
        layers = list(zip(widths[1:], widths[:-1], strict=True))
        self.shape = (len(weights), sum(rows + columns for rows, columns in layers))
        self.dtype = self.full.dtype
        self.zero_is_theirs = any(rows > 1 and columns > 1 for rows, columns in layers)

    def __call__(self, members: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Hv, a row for each of the members."""
        return self.project(members, self.full(members, self.expand(members, coordinates)))

    def expand(self, members: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Flat vectors of weights from coordinates, a row for each of the members."""
        vectors = np.empty((len(members), self.full.shape[1]), self.dtype)
        frame = self.full.widths, self.left, self.right
        call(kernel.expand, *frame, members, np.ascontiguousarray(coordinates), vectors)
        return vectors

    def project(self, members: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Coordinates of that part of flat vectors that lies in the range."""
        coordinates = np.empty((len(members), self.shape[1]), self.dtype)
        frame = self.full.widths, self.left, self.right
        call(kernel.project, *frame, members, np.ascontiguousarray(vectors), coordinates)
        return coordinates


def _of_length_one(rows: np.ndarray, widths: tuple[int, ...]) -> np.ndarray:
    """Each layer's part of every row divided by its length (but zero stays zero)."""
    starts = np.cumsum((0, *widths[:-1]))
    lengths = np.sqrt(np.add.reduceat(rows**2, starts, axis=1))
    return rows / np.repeat(np.where(lengths > 0, lengths, 1), widths, axis=1)


def is_scalar_linear(problem: Any, networks: Any) -> bool:
    """Whether this is a linear network with one output, on a Problem."""
    known = isinstance(problem, Problem) and isinstance(networks, Network)
    return known and networks.activation == "linear" and networks.outputs == 1


def flat_weights(networks: Network) -> tuple[np.ndarray, np.ndarray]:
    """Weights (…, N) and read-outs (…, d_L) as vectors, for any leading axes."""
    layers = [np.asarray(weight) for weight in networks.weights]
    weights = np.concatenate([layer.reshape(*layer.shape[:-2], -1) for layer in layers], axis=-1)
    readout = np.ones(1) if networks.readout is None else np.asarray(networks.readout)
    readouts = np.empty((*weights.shape[:-1], readout.shape[-1]), weights.dtype)
    readouts[:] = readout
    return weights, readouts
