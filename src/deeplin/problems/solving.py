"""Least squares: by the singular values of X, or by its moments where those are as accurate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

MANY_NUMBERS = 2**20
"""From so many numbers in X on, w* is sought without its singular values first."""
WELL_CONDITIONED = 1e-10
"""1/κ(Σ̂) from which one correction leaves nothing of the error of the normal equations."""


class Solution(NamedTuple):
    """w* (d×q) and R_min."""

    optimum: np.ndarray
    minimal_risk: float


def is_tall(inputs: np.ndarray) -> bool:
    """Whether the moments of X are worth a try: many numbers, in more rows than columns."""
    n, d = inputs.shape
    return inputs.size >= MANY_NUMBERS and n > 2 * d


def solve_tall(
    inputs: np.ndarray, targets: np.ndarray, covariance: np.ndarray, cross: np.ndarray
) -> Solution | None:
    """w* from Σ̂ and b = Xᵀy/n, unless Σ̂ is too near a singular matrix.

    The solution of Σ̂w = b is corrected once by that of Σ̂δ = Xᵀ(y − Xw)/n: an error of ε κ(Σ̂) in
    the first becomes its square, and what is left is that of a QR factorization, at the price of Σ̂.
    """
    solve = solver(covariance)
    if solve is None:
        return None
    n = len(inputs)
    optimum = solve(cross)
    optimum += solve(inputs.T @ (targets - inputs @ optimum) / n)
    return Solution(optimum, float(np.sum((targets - inputs @ optimum) ** 2) / n))


def solver(covariance: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
    """Σ̂⁻¹ by Cholesky, unless Σ̂ is too near a singular matrix for it."""
    from scipy.linalg import cho_factor, cho_solve, lapack  # not for those who only start a command

    try:
        factor = cho_factor(covariance, lower=True)
    except np.linalg.LinAlgError:
        return None
    inverse_condition, _ = lapack.dpocon(factor[0], np.linalg.norm(covariance, 1), uplo="L")  # pyright: ignore[reportAttributeAccessIssue]
    return partial(cho_solve, factor) if inverse_condition >= WELL_CONDITIONED else None


def thin_svd(inputs: np.ndarray, targets: np.ndarray):
    """UᵀY, the singular values and Vᵀ of X = U S Vᵀ, without forming U for tall X.

    For n much larger than d the triangular factor of [X Y] carries all that is needed.
    """
    n, d = inputs.shape
    if n > 2 * (d + targets.shape[1]):
        triangle = np.asarray(np.linalg.qr(np.concatenate([inputs, targets], axis=1), mode="r"))
        inputs, targets = triangle[:, :d], triangle[:, d:]
    left, singular, right = np.linalg.svd(inputs, full_matrices=False)
    return left.T @ targets, singular, right
