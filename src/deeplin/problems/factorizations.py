"""Factorizations of the data: singular values, Cholesky factors and numerical ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

MANY_NUMBERS = 2**20
"""Number of entries of X from which w* is first computed without singular values."""
WELL_CONDITIONED = 1e-10
"""Smallest 1/κ(Σ̂) at which one correction removes the error of the normal equations."""


def is_tall(inputs: np.ndarray) -> bool:
    """Return whether moments of X may be used: many entries, and more rows than columns."""
    n, d = inputs.shape
    return inputs.size >= MANY_NUMBERS and n > 2 * d


def solver(covariance: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return Σ̂⁻¹ by Cholesky as a function, or None if Σ̂ is too close to singular."""
    from scipy.linalg import cho_factor, cho_solve, lapack  # imported on first use only

    try:
        factor = cho_factor(covariance, lower=True)
    except np.linalg.LinAlgError:
        return None
    inverse_condition, _ = lapack.dpocon(factor[0], np.linalg.norm(covariance, 1), uplo="L")  # pyright: ignore[reportAttributeAccessIssue]
    return partial(cho_solve, factor) if inverse_condition >= WELL_CONDITIONED else None


def thin_svd(inputs: np.ndarray, targets: np.ndarray):
    """Return UᵀY, the singular values and Vᵀ of X = U S Vᵀ, without forming U for tall X.

    For n much larger than d the triangular factor of [X Y] suffices.
    """
    n, d = inputs.shape
    if n > 2 * (d + targets.shape[1]):
        triangle = np.asarray(np.linalg.qr(np.concatenate([inputs, targets], axis=1), mode="r"))
        inputs, targets = triangle[:, :d], triangle[:, d:]
    left, singular, right = np.linalg.svd(inputs, full_matrices=False)
    return left.T @ targets, singular, right


def numerical_rank(singular: np.ndarray, size: int) -> int:
    """Return the number of nonzero singular values (largest first) of a matrix.

    `size` is the larger side of the matrix.
    """
    return int(np.count_nonzero(singular > np.finfo(float).eps * size * singular[0]))
