"""The balanced minimizer, to which small initializations converge, and its sharpness (X-3)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.errors import InputError, finite_array, whole_number
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.problems.factorizations import numerical_rank
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.problems.problem import as_map
from deeplin.theory.architecture import aligned_network, architecture, padded, readout_norm
from deeplin.theory.gauge import Reduced
from deeplin.theory.roots import largest_eigenvalue_of_update


def balanced_network(problem: Problem, depth: int, width: int | None = None) -> Network:
    """Return the balanced minimizer, W_k = S^{1/L} between aligned bases, for Θ*ᵀ = U S Vᵀ.

    W_{k+1}ᵀW_{k+1} = W_kW_kᵀ for every k, and its product is the solution of minimal norm. For one
    target this is the rank-one aligned network of X-3.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.theory.balanced import balanced_network
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, :2])
    assert balanced_network(problem, depth=3).widths == (5, 5, 5, 2)
    ```
    """
    return balanced_factors(problem.optimum_columns, depth, width)


def balanced_factors(
    product: Float[np.ndarray, "d q"],
    depth: int,
    width: int | None = None,
    readout: Float[np.ndarray, " m"] | None = None,
) -> Network:
    """Return L layers of equal singular values with this product and the least Σ‖W_k‖_F² (X-9)."""
    L = whole_number("depth", depth)
    right, values, left = np.linalg.svd(product / readout_norm(readout), full_matrices=False)
    rank = max(numerical_rank(values, max(product.shape)), 1)  # 0 of a collapsed network
    share = values[:rank] ** (1 / L)
    first, last = share[:, None] * right[:, :rank].T, left[:rank].T
    network = aligned_network(first, share, last * share if L > 1 else last, L, readout)
    return padded(network, max(product.shape) if width is None else width)


def balanced_sharpness(
    problem: Problem,
    depth: int,
    readout: ArrayLike | None = None,
    *,
    at: ArrayLike | None = None,
) -> float:
    """Return S_bal, the sharpness at the end of the flow from a vanishing initialization (X-3).

    One target: λ_max(2‖w*‖^{2−2/L}‖p‖^{2/L}(Σ̂ + (L−1)Σ̂^{1/2}ŵŵᵀΣ̂^{1/2})), ŵ = w*/‖w*‖. For several
    the Hessian at balanced weights acts on D (d×q) as D ↦ 2 Σ_k (ΘΘᵀ)^{(k−1)/L} Σ̂ D (ΘᵀΘ)^{(L−k)/L}
    (X-1), which falls apart along the right singular vectors of Θ: for each singular value s_j,
    λ_max(2 Σ̂^{1/2} [Σ_k s_j^{2(L−k)/L} (ΘΘᵀ)^{(k−1)/L}] Σ̂^{1/2}). Other convex losses have H/2 in
    the place of Σ̂ (X-14, X-17), at the minimizer of least norm.

    Args:
        problem: the data and the loss.
        depth: L.
        readout: p, the fixed last vector of a network with one output.
        at: another product than Θ*, (q, d), or (d,) for one output. At a product that is no
            minimizer this is the Gauss-Newton part of the sharpness of balanced layers, with the
            curvature of the loss there. From balanced rank-one layers the flow stays balanced, so
            the formula follows it: for white inputs 2L‖w‖^{2−2/L}, which grows with ‖w‖.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    end = dl.theory.balanced_sharpness(problem, 3)
    assert end >= dl.theory.minimal_sharpness(problem, 3).exact
    assert dl.theory.balanced_sharpness(problem, 3, at=problem.optimum / 2) < end
    ```
    """
    quantity = "the balanced sharpness"
    net = architecture(problem, depth, readout, quantity, signal=at is None)
    columns = problem.optimum_columns if at is None else _columns_at(problem, at)
    one = problem.outputs == 1
    if isinstance(problem, GeneralizedLinearProblem) and (at is not None or not one):
        if at is None:
            reduced = Reduced.of(problem, columns)
            return balanced_top(reduced.theta, reduced.hessian, net.depth)
        top = balanced_top(columns.T, problem.curvature_at(as_map(columns)), net.depth)
        return net.norm ** (2 / net.depth) * top
    if not one:
        return max(_of_singular_values(problem, columns, net.depth))
    alone = balanced_sharpness_at(problem, columns.T, net.depth)
    return net.norm ** (2 / net.depth) * float(alone[0])


def _columns_at(problem: Problem, at: ArrayLike) -> Float[np.ndarray, "d q"]:
    """Return a product that a caller passes as columns."""
    d, q = problem.dimension, problem.outputs
    theta = finite_array("at", at, (1, 2))
    if theta.shape == (q, d) or (q == 1 and theta.shape == (d,)):
        return theta.reshape(q, d).T
    wanted = f"({d},)" if q == 1 else f"({q}, {d})"
    raise InputError(f"at has shape {theta.shape}; pass a product of shape {wanted}.")


def balanced_sharpness_at(
    problem: Problem, products: Float[np.ndarray, "batch d"], depth: int
) -> Float[np.ndarray, " batch"]:
    """Return S_bal (X-3) of one target at products w, such as the minimizers of a singular Σ̂."""
    eigenvalues, vectors, _ = problem.spectrum
    sizes = np.linalg.norm(products, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = (products @ vectors / sizes[:, None]) ** 2
    update = (depth - 1) * eigenvalues * np.nan_to_num(squares)
    return 2 * sizes ** (2 - 2 / depth) * largest_eigenvalue_of_update(eigenvalues, update)


def _of_singular_values(problem: Problem, columns: Float[np.ndarray, "d q"], L: int) -> list[float]:
    """Return the largest eigenvalue for each singular value of Θ, zero included."""
    eigenvalues, vectors, _ = problem.spectrum
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    sizes = np.zeros(columns.shape[1])
    sizes[: len(values)] = values
    root = np.sqrt(eigenvalues)[:, None] * (vectors.T @ left)
    tops = []
    for s in np.unique(sizes):
        # k = 1 has the identity of all inputs; k ≥ 2 lives on the left singular vectors.
        weights = sum(s ** (2 * (L - k) / L) * values ** (2 * (k - 1) / L) for k in range(2, L + 1))
        matrix = (root * weights) @ root.T + np.diag(s ** (2 * (L - 1) / L) * eigenvalues)
        tops.append(2 * float(np.linalg.eigvalsh(matrix)[-1]))
    return tops


def balanced_top(theta: np.ndarray, hessian: np.ndarray, depth: int) -> float:
    """Return λ_max(H^{1/2} Σ_k (ΘΘᵀ)^{(L−k)/L}⊗(ΘᵀΘ)^{(k−1)/L} H^{1/2}) of balanced layers."""
    U, s, Vt = np.linalg.svd(theta)
    q, n = theta.shape
    full = np.zeros(max(q, n))
    full[: len(s)] = s
    # 0⁰ = 1: the first and last terms are identities
    powers = [full ** (2 * k / depth) if k else np.ones(len(full)) for k in range(depth)]
    kernel = sum(
        np.kron(U * powers[depth - 1 - k][:q] @ U.T, Vt.T * powers[k][:n] @ Vt)
        for k in range(depth)
    )
    values, vectors = np.linalg.eigh(hessian)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return float(np.linalg.eigvalsh(root.T @ kernel @ root)[-1])
