"""Derivatives of the risk of linear networks in NumPy: nothing is compiled, whatever the shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deeplin.hessian import lanczos
from deeplin.networks import products
from deeplin.problems import Problem

STEP = 1e-100
"""Imaginary step of a complex derivative; its square is the error, and it subtracts nothing."""


class Eigenpair(NamedTuple):
    """An extreme eigenvalue of the Hessian of each network of a batch."""

    value: np.ndarray
    error: np.ndarray
    """Bound of the distance to the true eigenvalue, rounding included."""
    vector: np.ndarray
    """Unit vectors over the flattened weights, (batch, parameters)."""
    scale: np.ndarray
    """Size of the largest eigenvalue in modulus, as far as the iteration saw it."""


class LinearHessian:
    """Hessian-vector products of linear networks, by differentiating FM-grad once more.

    Along D the gradient V_k u_kᵀ changes by dV_k u_kᵀ + V_k du_kᵀ, with
    dV_{k−1} = D_kᵀV_k + W_kᵀdV_k and du_{k+1} = D_k u_k + W_k du_k, from dV_L = 0 and
    du_1 = ∇²R¹(Θ)[dV_0].
    """

    def __init__(self, problem: Problem, weights: Sequence[np.ndarray], readout: np.ndarray | None):
        self.risk, self.weights = problem.risk_of_columns, list(weights)
        self.backward = products.backward_products(self.weights, readout)
        slope = self.risk.value_and_gradient(self.backward[0])[1]
        self.forward = products.forward_products(self.weights, slope)
        sizes = [weight[0].size for weight in self.weights]
        self.shape, self.cuts = (len(self.weights[0]), sum(sizes)), np.cumsum(sizes)[:-1]

    def __call__(self, members: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return Hx for each of the members, as flat vectors."""
        parts = np.split(vectors, self.cuts, axis=1)
        weights = [weight[members] for weight in self.weights]
        backward = [v[members] if len(v) > 1 else v for v in self.backward]
        forward = [u[members] for u in self.forward]
        moves = [part.reshape(w.shape) for part, w in zip(parts, weights, strict=True)]
        changes = [np.zeros_like(backward[-1])]  # dV_L, …, dV_0
        for weight, move, above in zip(weights[::-1], moves[::-1], backward[:0:-1], strict=True):
            changes.append(move.mT @ above + weight.mT @ changes[-1])
        change = self.risk.curvature_product(backward[0], changes.pop())
        images = []
        for k, (weight, move) in enumerate(zip(weights, moves, strict=True)):
            image = changes.pop() @ forward[k].mT + backward[k + 1] @ change.mT
            images.append(np.broadcast_to(image, weight.shape).reshape(len(members), -1))
            change = move @ forward[k] + weight @ change
        return np.concatenate(images, axis=1)

    def extreme(self, sign: int = 1, tolerance: float = 1e-8) -> Eigenpair:
        """Return the largest (or with sign −1 the smallest) eigenvalue, by certified Lanczos."""
        found = lanczos.largest(
            lambda members, vectors: sign * self(members, vectors),
            self.shape,
            np.dtype(float),
            seed=0,
            tolerance=tolerance,
            max_products=500,
        )
        assert found.vector is not None
        value = sign * np.asarray(found.value)
        return Eigenpair(value, np.asarray(found.error), found.vector, np.asarray(found.scale))


def directional(function, weights: Sequence[np.ndarray], moves: Sequence[np.ndarray]) -> np.ndarray:
    """Return the derivative of an analytic function of the weights along `moves`.

    It is Im f(W + ihD)/h: without a difference of values it is exact to rounding.
    """
    moved = [weight + 1j * STEP * move for weight, move in zip(weights, moves, strict=True)]
    return np.imag(function(moved)) / STEP
