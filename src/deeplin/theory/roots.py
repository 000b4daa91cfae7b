"""Roots of scalar equations to full precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return a root of a function that has different signs at the ends, to full precision."""
    # No limit on bisections: ends may be hundreds of orders of magnitude apart.
    found = brentq(function, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps, maxiter=10_000)
    return float(found)  # pyright: ignore[reportArgumentType]


def largest_eigenvalue_of_update(
    diagonal: Float[np.ndarray, " r"], squares: Float[np.ndarray, "*batch r"]
) -> float | np.ndarray:
    """Return λ_max(diag(D) + bbᵀ) from D and b∘b, by the secular equation Σ b_i²/(x − D_i) = 1.

    The unknown is the distance x − max D, which keeps its relative accuracy when it is tiny. 1/s is
    concave there, so Newton's method for 1/s = 1 increases monotonically to the root from the part
    of b at the top eigenvalue.
    """
    below = diagonal.max() - diagonal
    distance = np.sum(squares, axis=-1, where=below == 0)
    for _ in range(200):
        apart = distance[..., None] + below
        terms = np.divide(squares, apart, out=np.zeros(squares.shape), where=squares > 0)
        total = np.sum(terms, axis=-1)
        speed = np.sum(np.divide(terms, apart, out=terms, where=terms > 0), axis=-1)
        step = np.divide((total - 1) * total, speed, out=np.zeros(total.shape), where=total > 1)
        distance = distance + step
        if np.all(step <= np.finfo(float).eps * distance):
            break
    return diagonal.max() + distance
