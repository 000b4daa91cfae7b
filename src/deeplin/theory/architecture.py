"""Shared parts of the results: checked depths and read-outs, aligned networks, stability, roots."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from deeplin.dynamics.update import check_momentum
from deeplin.errors import InputError, finite_array, require_size, whole_number
from deeplin.networks import Network
from deeplin.problems import Problem


class Architecture(NamedTuple):
    """L layers, and the fixed read-out p or None where the last layer is the output."""

    depth: int
    readout: Float[np.ndarray, " m"] | None

    @property
    def norm(self) -> float:
        """‖p‖, 1 without a read-out."""
        return readout_norm(self.readout)


def readout_norm(readout: Float[np.ndarray, " m"] | None) -> float:
    """Return ‖p‖, or 1 without a read-out."""
    return 1.0 if readout is None else float(np.linalg.norm(readout))


def architecture(
    problem: Problem, depth: int, readout: ArrayLike | None, quantity: str, *, signal: bool = True
) -> Architecture:
    """Check that `quantity` is defined for this problem, depth and read-out.

    Without `signal`, problems may have a zero minimizer, or none.
    """
    L = whole_number("depth", depth)
    if signal:
        problem.require_signal(quantity)
    if readout is None:
        return Architecture(L, None)
    problem.require_single_target(f"{quantity} of a network with a read-out")
    p = finite_array("readout", readout, (1,))
    require_size("readout", p)
    if not np.any(p):
        raise InputError("readout is zero; pass a vector p ≠ 0.")
    return Architecture(L, p)


def numerical_rank(singular: Float[np.ndarray, " k"], size: int) -> int:
    """Return the number of nonzero singular values (largest first) of a matrix.

    `size` is the larger side of the matrix.
    """
    return int(np.count_nonzero(singular > np.finfo(float).eps * size * singular[0]))


def is_white(problem: Problem) -> bool:
    """Return whether Σ̂ = cI on its range, up to a relative spread of 1e-9."""
    high, low = problem.largest_eigenvalue, problem.smallest_eigenvalue
    return high - low <= 1e-9 * high


def require_width(hidden: int, rank: int, depth: int) -> int:
    """Return a hidden width at which a map of this rank is possible."""
    width = whole_number("width", hidden)
    if depth > 1 and width < rank:
        raise InputError(
            f"the hidden layers have width {width}, but the solution has rank {rank}: no such "
            "network is a minimizer (the formula stays a lower bound). "
            f"Pass a width of at least {rank}."
        )
    return width


def aligned_network(
    rows: Float[np.ndarray, "k d"],
    scale: float | Float[np.ndarray, " k"],
    columns: Float[np.ndarray, "q k"],
    depth: int,
    width: int,
    readout: Float[np.ndarray, " m"] | None = None,
) -> Network:
    """Return W_1 = E·rows, W_2 … W_{L−1} = E diag(scale) Eᵀ and W_L = columns·Eᵀ, E = (I 0)ᵀ.

    Minimizers that attain a bound are of this form: every hidden layer uses k units. With a
    read-out p its direction takes the place of `columns`' one output; for L = 1, W_1 is their
    product.
    """
    require_width(width, len(rows), depth)
    if readout is not None:
        columns = np.outer(readout / np.linalg.norm(readout), columns[0])
    if depth == 1:
        return Network([columns @ rows], readout)
    E = np.eye(width)[:, : len(rows)]
    return Network([E @ rows, *[E * scale @ E.T] * (depth - 2), columns @ E.T], readout)


def stability_limit(momentum: float = 0.0, *, nesterov: bool = False) -> float:
    """Return the largest ηS at which descent is stable at a minimum of sharpness S.

    2 for gradient descent. Heavy ball, x ← x − η∇ + β(x − x₋): z² − (1+β−ηS)z + β has its roots in
    the unit disk exactly for ηS ≤ 2+2β. Nesterov, ∇ taken at x + β(x − x₋): with c = 1−ηS the
    polynomial z² − (1+β)cz + βc requires c ≥ −1/(1+2β), so ηS ≤ (2+2β)/(1+2β).

    ```python
    from deeplin.theory import stability_limit
    assert stability_limit(0.9) == 3.8 and stability_limit(0.9, nesterov=True) < 1.36
    ```
    """
    beta = check_momentum(momentum)
    return (2 + 2 * beta) / (1 + 2 * beta) if nesterov else 2 + 2 * beta


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
