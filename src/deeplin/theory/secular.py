"""Largest eigenvalues of a diagonal matrix with one more vector, by the secular equation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that has different signs at the ends changes sign, to the last digits."""
    from scipy.optimize import brentq  # half a second, which `import deeplin` need not wait for

    # Ends that are hundreds of orders apart take as many halvings: no number of them is too large.
    found = brentq(function, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps, maxiter=10_000)
    return float(found)  # pyright: ignore[reportArgumentType]


def largest_eigenvalue_of_update(
    diagonal: Float[np.ndarray, " r"], squares: Float[np.ndarray, " r"]
) -> float:
    """λ_max(diag(D) + bbᵀ) from D and b∘b, by the secular equation Σ b_i²/(x − D_i) = 1.

    Solved for the distance x − max D, which keeps its relative accuracy when it is tiny.
    """
    top = float(diagonal.max())
    below = top - diagonal
    at_top = float(np.sum(squares[below == 0]))
    total = float(np.sum(squares))

    def excess(distance: float) -> float:
        with np.errstate(divide="ignore"):
            return float(np.sum(squares[squares > 0] / (distance + below[squares > 0]))) - 1

    if total == 0 or (at_top == 0 and excess(0.0) <= 0):
        return top
    # all of b at the top eigenvalue, up to rounding: that end of the bracket is the root
    if excess(at_top) <= 0:
        return top + at_top
    if excess(total) >= 0:
        return top + total
    return top + root(excess, at_top, total)
