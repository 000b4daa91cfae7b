"""Sharpness at a minimizer from a small matrix (X-1), with an error bound near a minimizer.

Let Σ̂ = CCᵀ (d×r), B_k = W_{k−1}…W_1C and V_k = W_{k+1}ᵀ…W_Lᵀp. The Gauss-Newton part 2JᵀΣ̂J of the
Hessian has the nonzero spectrum of 2 Σ_k (B_kᵀB_k) ⊗ (V_kᵀV_k), which is d×d for one output. A
network with biases sees one more input, the constant 1: B_k of a layer with a bias then has its row
of C as well, as what [W_k b_k] multiplies. For centered inputs and no offsets of the hidden layers
the matrix falls apart into that of the weights and 2 Σ_k V_kᵀV_k (X-38).

The rest of the Hessian has, for layers j < k, the blocks ⟨dW_k M_jk dW_j, V_k (A_j g)ᵀ⟩ with
M_jk = W_{k−1}…W_{j+1} and A_j g = 2 B_j Cᵀ(w − w*), of norm at most ‖V_k‖_F ‖A_j g‖_F ‖M_jk‖_F. Its
norm is at most the Frobenius norm of the table of these. The sums over j obey a recursion,
G_{k+1} = W_k G_k W_kᵀ + ‖A_k g‖² I, Σ_j ‖A_j g‖² ‖M_jk‖² = tr G_k, so the bound costs no more than
the matrix. It vanishes at every minimizer. Rounding of B_k enters the same recursion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from deeplin.networks import Network, products
from deeplin.networks.network import as_seen
from deeplin.problems import Problem

MARGIN = 1e3
"""Largest ratio of a lower bound of the error to the tolerance at which `exact` is tried."""
ROUNDING = float(np.finfo(np.float64).eps)


class Tangent(NamedTuple):
    """Linear networks (any leading axes) on a problem, in the notation of the formula."""

    weights: list[np.ndarray]
    biases: list[np.ndarray | None] | None
    backward: list[np.ndarray]
    """V_0 … V_L."""
    forward: list[np.ndarray]
    """B_1 … B_L, with the row of the constant in layers with a bias."""
    goal: np.ndarray
    """CᵀΘ*, (r, q)."""
    left: np.ndarray
    """Cᵀ(Θ − Θ*), (…, r, q)."""

    @classmethod
    def of(cls, problem: Problem, networks: Network) -> Tangent:
        """Return the tangent at networks, in double precision."""
        root, goal = _factors(as_seen(problem, networks))
        arrays = _in_numpy(networks)
        weights, biases = list(arrays.weights), arrays.biases
        columns = np.broadcast_to(root, (*weights[0].shape[:-2], *root.shape))
        backward = products.backward_products(weights, arrays.readout)
        theta = backward[0] if biases is None else products.with_offset(backward, biases)
        forward = products.forward_products(weights, columns, biases)
        return cls(weights, biases, backward, forward, goal, root.T @ theta - goal)

    @property
    def kernel(self) -> np.ndarray:
        """Σ_k (B_kᵀB_k) ⊗ (V_kᵀV_k), (…, r·q, r·q)."""
        return products.tangent_kernel(self.backward, self.forward)

    def flat(self, layers: Sequence[np.ndarray]) -> np.ndarray:
        """Return directions of [W_k b_k] for each layer as vectors over the flat parameters."""
        parts = products.split_layers(layers, self.biases)
        axes = layers[0].shape[:-2]
        return np.concatenate([part.reshape(*axes, -1) for part in parts], axis=-1)


def _in_numpy(networks: Network) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), networks)


def _factors(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return C (d, r) and CᵀΘ* (r, q) from the nonzero spectrum of Σ̂."""
    spectrum = problem.spectrum
    roots = np.sqrt(spectrum.eigenvalues)
    root = np.ascontiguousarray(spectrum.vectors * roots)
    return root, spectrum.coordinates * roots[:, None]


def exact(problem: Problem, networks: Network, which: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the extreme eigenvalue of 2JᵀΣ̂J of each network, and a bound on its error.

    The error bounds the distance to the eigenvalue of the whole Hessian, rounding included. For
    linear networks only; computed in float64.
    """
    tangent = Tangent.of(problem, networks)
    matrices, error = gauss_newton(tangent)
    if matrices.shape[1] == 0:  # all inputs are zero, and so is the Hessian
        return np.zeros(len(matrices)), error
    lost = ~np.isfinite(error)
    values = np.linalg.eigvalsh(np.where(lost[:, None, None], 0, matrices))
    error += matrices.shape[1] * ROUNDING * np.abs(values[:, -1])
    if which == "largest":
        value = values[:, -1]
    else:  # as many eigenvalues as parameters; those missing here are zero
        missing = sum(array[0].size for array in networks.parameters) - values.shape[1]
        value = np.zeros(len(values)) if missing > 0 else values[:, -missing]
    return np.where(lost, np.nan, value), np.where(lost, np.inf, error)


def may_be_exact(problem: Problem, networks: Network, tolerance: float) -> bool:
    """Return whether some network may be close enough to a minimizer for `exact`, by a cheap test.

    With u_k = 2B_kCᵀ(Θ − Θ*), ‖M_jk‖ ≥ ‖u_k‖/‖u_j‖ bounds the error of `exact` from below by
    √(4 Σ_k (k−1)‖V_k‖²‖u_k‖²); 2 Σ_k ‖V_k‖²‖B_kx‖²/‖x‖² with any x is of the order of its value.
    """
    root, goal = _factors(as_seen(problem, networks))
    arrays = _in_numpy(networks)
    weights, biases = arrays.weights, arrays.biases
    backward = products.backward_products(weights, arrays.readout)
    theta = backward[0] if biases is None else products.with_offset(backward, biases)
    start = root @ (root.T @ theta - goal)
    along = np.broadcast_to(root @ goal, start.shape)
    both = products.forward_products(weights, np.concatenate([2 * start, along], axis=-1), biases)
    v, q = _norms(backward[1:]), goal.shape[1]
    slopes, images = _norms([m[..., :q] for m in both]), _norms([m[..., q:] for m in both])
    layers = np.arange(len(weights))[:, None]
    error = np.sqrt(4 * np.sum(layers * (v * slopes) ** 2, axis=0))
    value = 2 * np.sum((v * images) ** 2, axis=0) / max(np.sum(goal**2), np.finfo(float).tiny)
    return bool(np.any(error <= MARGIN * tolerance * value))


def gauss_newton(tangent: Tangent) -> tuple[np.ndarray, np.ndarray]:
    """Return 2 Σ_k (B_kᵀB_k) ⊗ (V_kᵀV_k) for each network, and its distance from the Hessian."""
    weights, forward = tangent.weights, tangent.forward
    unit = ROUNDING * max(max(weight.shape[-2:]) for weight in weights)
    layer, b, v = (_norms(items) for items in (weights, forward, tangent.backward[1:]))
    for k, bias in enumerate(tangent.biases or ()):
        layer[k] = layer[k] if bias is None else np.hypot(layer[k], np.linalg.norm(bias, axis=-1))
    slips = unit * layer * b  # of W_k B_k
    miss = unit * (np.sum(layer * b * v, axis=0) + _norms([tangent.goal])[0])  # of Cᵀ(w − w*)
    weight_of_slip = 4 * len(weights) * np.max(b * v, axis=0)
    error = _rest(weights, forward, tangent.left, v, b, miss, slips * weight_of_slip)
    return 2 * tangent.kernel, error


def _rest(weights, forward, left, v, b, miss, slips) -> np.ndarray:
    """Return √(4 Σ_k ‖V_k‖² tr G_k), by the recursion for G."""
    total = np.zeros(len(left))
    table = np.zeros((len(left), weights[0].shape[-1], weights[0].shape[-1]))
    for k, weight in enumerate(weights):
        total += v[k] ** 2 * np.trace(table, axis1=1, axis2=2)
        slope = 2 * np.linalg.norm(forward[k] @ left, axis=(1, 2)) + 2 * b[k] * miss
        fresh = slope**2 + slips[k] ** 2
        table = weight @ table @ weight.mT + fresh[:, None, None] * np.eye(weight.shape[1])
    own = np.max(slips, axis=0)  # V_k and the sum itself are rounded too
    return np.sqrt(4 * total) + own


def _norms(items) -> np.ndarray:
    """Return the Frobenius norm of each matrix, layers first, then the batch."""
    return np.stack([np.linalg.norm(item, axis=(-2, -1)) for item in items])
