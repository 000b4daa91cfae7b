"""The balanced minimiser for any number of targets: the end of small initialisations (X-3)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.checks import whole_number
from deeplin.door import door
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.theory.architecture import aligned_network, architecture, numerical_rank
from deeplin.theory.secular import largest_eigenvalue_of_update


@door
def balanced_network(problem: Problem, depth: int, width: int | None = None) -> Network:
    """The balanced minimiser: Θ*ᵀ = U S Vᵀ shared equally, W_k = S^{1/L} between aligned bases.

    W_{k+1}ᵀW_{k+1} = W_kW_kᵀ for every k, and its product is the solution of minimal norm. For one
    target this is the rank-one aligned network of X-3.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.theory.minimizers import balanced_network
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, :2])
    assert balanced_network(problem, depth=3).widths == (5, 5, 5, 2)
    ```
    """
    return balanced_factors(problem.optimum.reshape(problem.dimension, -1), depth, width)


def balanced_factors(
    product: Float[np.ndarray, "d q"],
    depth: int,
    width: int | None = None,
    readout: Float[np.ndarray, " m"] | None = None,
) -> Network:
    """L layers of equal singular values with this product: they have the least Σ‖W_k‖_F² (X-9)."""
    L = whole_number("depth", depth)
    size = 1.0 if readout is None else float(np.linalg.norm(readout))
    right, values, left = np.linalg.svd(product / size, full_matrices=False)
    rank = numerical_rank(values, max(product.shape))
    hidden = max(product.shape) if width is None else width
    share = values[:rank] ** (1 / L)
    first, last = share[:, None] * right[:, :rank].T, left[:rank].T
    return aligned_network(first, share, last * share if L > 1 else last, L, hidden, readout)


@door
def balanced_sharpness(problem: Problem, depth: int, readout: ArrayLike | None = None) -> float:
    """S_bal, the sharpness where the flow from a vanishing initialisation ends (X-3).

    One target: λ_max(2‖w*‖^{2−2/L}‖p‖^{2/L}(Σ̂ + (L−1)Σ̂^{1/2}ŵŵᵀΣ̂^{1/2})), ŵ = w*/‖w*‖. For several
    the Hessian at balanced weights acts on D (d×q) as D ↦ 2 Σ_k (ΘΘᵀ)^{(k−1)/L} Σ̂ D (ΘᵀΘ)^{(L−k)/L}
    (X-1), which falls apart along the right singular vectors of Θ: for each singular value s_j,
    λ_max(2 Σ̂^{1/2} [Σ_k s_j^{2(L−k)/L} (ΘΘᵀ)^{(k−1)/L}] Σ̂^{1/2}).

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    assert dl.theory.balanced_sharpness(problem, 3) >= dl.theory.minimal_sharpness(problem, 3).exact
    ```
    """
    net = architecture(problem, depth, readout, "the balanced sharpness")
    eigenvalues, _, coordinates = problem.spectrum
    if problem.outputs > 1:
        return max(_of_singular_values(eigenvalues, coordinates, net.depth))
    size = problem.optimum_norm
    direction = coordinates[:, 0] / size
    top = largest_eigenvalue_of_update(eigenvalues, (net.depth - 1) * eigenvalues * direction**2)
    return 2 * size ** (2 - 2 / net.depth) * net.norm ** (2 / net.depth) * top


def _of_singular_values(
    eigenvalues: Float[np.ndarray, " r"], coordinates: Float[np.ndarray, "r q"], L: int
) -> list[float]:
    """The largest eigenvalue that belongs to each singular value of Θ*, zero included."""
    left, values, _ = np.linalg.svd(coordinates, full_matrices=False)
    columns = np.zeros(coordinates.shape[1])
    columns[: len(values)] = values
    root = np.sqrt(eigenvalues)[:, None] * left
    tops = []
    for s in np.unique(columns):
        # k = 1 has the identity of all inputs; k ≥ 2 lives on the left singular vectors.
        weights = sum(s ** (2 * (L - k) / L) * values ** (2 * (k - 1) / L) for k in range(2, L + 1))
        matrix = (root * weights) @ root.T + np.diag(s ** (2 * (L - 1) / L) * eigenvalues)
        tops.append(2 * float(np.linalg.eigvalsh(matrix)[-1]))
    return tops
