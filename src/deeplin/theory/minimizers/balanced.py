"""The balanced minimiser for any number of targets: the end of small initialisations (X-3)."""

from __future__ import annotations

import numpy as np

from deeplin.checks import InputError, whole_number
from deeplin.networks import Network
from deeplin.problems import Problem


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
    L = whole_number("depth", depth)
    theta = problem.optimum.reshape(problem.dimension, -1)
    d, q = theta.shape
    hidden = max(d, q) if width is None else whole_number("width", width)
    right, values, left = np.linalg.svd(theta, full_matrices=False)
    rank = int(np.count_nonzero(values > np.finfo(float).eps * max(d, q) * values[0]))
    if L > 1 and hidden < rank:
        raise InputError(
            f"width is {hidden}, but the least-squares solution has rank {rank}; "
            f"pass a width of at least {rank}."
        )
    size = values[:rank] ** (1 / L)
    widths = (d, *[hidden] * (L - 1), q)
    bases = [right[:, :rank], *(np.eye(m)[:, :rank] for m in widths[1:-1]), left[:rank].T]
    return Network([bases[k + 1] * size @ bases[k].T for k in range(L)])


def balanced_curvature(problem: Problem, depth: int) -> float:
    """S_bal for any number of targets: the sharpness of the balanced minimiser.

    At a minimiser the Hessian acts on D (d×q) as D ↦ 2 Σ_k (ΘΘᵀ)^{(k−1)/L} Σ̂ D (ΘᵀΘ)^{(L−k)/L}
    (X-1 at balanced weights), which falls apart along the right singular vectors of Θ: for each
    singular value s_j, λ_max(2 Σ̂^{1/2} [Σ_k s_j^{2(L−k)/L} (ΘΘᵀ)^{(k−1)/L}] Σ̂^{1/2}).
    """
    L = whole_number("depth", depth)
    eigenvalues, _, coordinates = problem.spectrum
    left, values, _ = np.linalg.svd(coordinates, full_matrices=False)
    columns = np.zeros(problem.outputs)
    columns[: len(values)] = values
    root = np.sqrt(eigenvalues)[:, None] * left
    top = 0.0
    for s in np.unique(columns):
        # k = 1 has the identity of all inputs; k ≥ 2 lives on the left singular vectors.
        weights = sum(s ** (2 * (L - k) / L) * values ** (2 * (k - 1) / L) for k in range(2, L + 1))
        matrix = (root * weights) @ root.T + np.diag(s ** (2 * (L - 1) / L) * eigenvalues)
        top = max(top, 2 * float(np.linalg.eigvalsh(matrix)[-1]))
    return top
