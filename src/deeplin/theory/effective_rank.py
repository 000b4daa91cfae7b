"""Effective ranks of a population spectrum (BO-D2.1, BO-D2.2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import InputError, finite_array, positive_number, whole_number


class EffectiveRanks(NamedTuple):
    """s_j, r_j and R_j for j = 0 … d−1."""

    tail_sums: np.ndarray
    """s_j = Σ_{i>j} λ_i."""
    small: np.ndarray
    """r_j = s_j/λ_{j+1}; 0 where λ_{j+1} = 0."""
    large: np.ndarray
    """R_j = s_j²/Σ_{i>j} λ_i²; 0 where the tail is zero."""


def effective_ranks(spectrum: ArrayLike) -> EffectiveRanks:
    """s_j = Σ_{i>j}λ_i, r_j = s_j/λ_{j+1}, R_j = s_j²/Σ_{i>j}λ_i² for all j (BO-D2.1).

    ```python
    import deeplin as dl
    ranks = dl.theory.benign_overfitting.effective_ranks([1.0] * 10 + [0.01] * 490)
    ranks.small[10], ranks.large[10]      # both 490: the tail is flat
    ```
    """
    eigenvalues = _descending(spectrum)
    # Summed from the smallest eigenvalue up, so that small tails keep their digits.
    sums = np.cumsum(eigenvalues[::-1])[::-1]
    squares = np.cumsum(eigenvalues[::-1] ** 2)[::-1]
    return EffectiveRanks(sums, _ratio(sums, eigenvalues), _ratio(sums**2, squares))


def effective_index(spectrum: ArrayLike, samples: int, b: float = 1.0) -> float:
    """k = min{j ≥ 0 : r_j ≥ bn}, infinite if there is none (BO-D2.2)."""
    enough = positive_number("b", b) * whole_number("samples", samples)
    found = np.flatnonzero(effective_ranks(spectrum).small >= enough)
    return float(found[0]) if len(found) else float("inf")


class Tail(NamedTuple):
    """The part of a spectrum that n samples do not tell apart."""

    n: int
    k: float
    """Where it begins (BO-D2.2); infinite where no tail is flat enough."""
    sum: float
    """s_k."""
    rank: float
    """R_k."""


def flat_tail(spectrum: ArrayLike, samples: int, b: float = 1.0) -> Tail:
    """n, k, s_k and R_k of a population (BO-D2.1, BO-D2.2)."""
    n, k = whole_number("samples", samples), effective_index(spectrum, samples, b)
    if np.isinf(k):
        return Tail(n, k, np.inf, np.nan)
    ranks = effective_ranks(spectrum)
    return Tail(n, k, float(ranks.tail_sums[int(k)]), float(ranks.large[int(k)]))


def spike(spectrum: ArrayLike) -> tuple[int, float] | None:
    """(k, ε) if the spectrum is a (k, ε)-spike, k eigenvalues 1 and the others ε < 1 (BO-D3.3)."""
    eigenvalues = _descending(spectrum)
    k = int(np.sum(eigenvalues == 1.0))
    tail = eigenvalues[k:]
    if k == 0 or len(tail) == 0 or np.ptp(tail) > 0 or tail[0] > 1.0:
        return None
    return k, float(tail[0])


def _descending(spectrum: ArrayLike) -> np.ndarray:
    eigenvalues = finite_array("spectrum", spectrum, (1,))
    if eigenvalues.min() < 0 or eigenvalues.max() == 0:
        raise InputError(
            f"spectrum runs from {eigenvalues.min():g} to {eigenvalues.max():g}; pass eigenvalues "
            "of at least 0, one of them above 0."
        )
    return np.sort(eigenvalues)[::-1]


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
