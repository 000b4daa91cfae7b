"""How flat a minimiser can be: the bracket of FM-T2, the exact value X-2, the balanced one X-3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from deeplin.checks import InputError, finite_array, positive_number, whole_number
from deeplin.networks import Network
from deeplin.problems import Problem


@dataclass(frozen=True)
class MinimalSharpness:
    """The smallest sharpness of any minimiser: bracketed (FM-T2), exact (X-2), and attained."""

    lower: float
    """2‖w*‖^{2−2/L}‖p‖^{2/L} L a, the lower bound of FM-T2."""
    exact: float
    """S_min (X-2)."""
    upper: float
    """2‖w*‖^{2−2/L}‖p‖^{2/L} sqrt((2L−1)Λ² + (L−1)²a²), the upper bound of FM-T2."""
    depth: int
    first_norm: float
    """‖W_1‖ of the flattest minimiser; every other layer has the norm `other_norm`."""
    other_norm: float
    optimum: np.ndarray = field(repr=False)
    readout: np.ndarray | None = field(repr=False)

    def critical_learning_rate(self, momentum: float = 0.0) -> float:
        """2/S_min, or (2+2β)/S_min with heavy-ball momentum β: above it no minimiser is stable."""
        return (2 + 2 * momentum) / self.exact

    @property
    def printed_critical_learning_rate(self) -> float:
        """1/(‖w*‖^{2−2/L}‖p‖^{2/L} L a), the approximation of FM-crit: 2 over the lower bound."""
        return 2 / self.lower

    @cached_property
    def minimizer(self) -> Network:
        """The flattest minimiser, as wide as its inputs in every layer."""
        return self.attaining()

    def attaining(self, hidden: int | None = None) -> Network:
        """The flattest minimiser with layers of width `hidden`: rank-one, aligned (X-2)."""
        w = self.optimum
        units = [w / np.linalg.norm(w), *([np.eye(hidden or len(w))[0]] * (self.depth - 1))]
        last = np.ones(1) if self.readout is None else self.readout / np.linalg.norm(self.readout)
        units.append(last)
        norms = [self.first_norm] + [self.other_norm] * (self.depth - 1)
        weights = [norms[k] * np.outer(units[k + 1], units[k]) for k in range(self.depth)]
        return Network(weights, self.readout)


def minimal_sharpness(problem: Problem, depth: int, readout: Any = None) -> MinimalSharpness:
    """S_min, the smallest sharpness of any minimiser of depth L, for any data (FM-T1, FM-T2, X-2).

    S_min = min over t > 0 of λ_max(2 Σ̂^{1/2}[t² I + (L−1)(‖p‖/t)^{2/(L−1)} w*w*ᵀ]Σ̂^{1/2}).
    An eigenvalue of a rank-one update is at most S exactly when its secular function is at most
    one, so with v = 2t²/S the two nested searches become one over v ∈ (0, 1/Λ]:
    S_min^{L/(L−1)} = min over v of 2(L−1)(2‖p‖²/v)^{1/(L−1)} w*ᵀΣ̂(I − vΣ̂)^{-1}w*.
    Its logarithm is convex in log v, and only the spectrum of Σ̂ is needed.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    flattest = dl.theory.minimal_sharpness(problem, depth=10)
    assert flattest.lower <= flattest.exact <= flattest.upper
    ```
    """
    L, vector, norm = _architecture(problem, depth, readout)
    a, Lambda = problem.alignment, problem.largest_eigenvalue
    size = problem.optimum_norm
    unit = 2 * size ** (2 - 2 / L) * norm ** (2 / L)
    if L == 1:
        exact, first, other = 2 * norm**2 * Lambda, size / norm, 1.0
    else:
        exact, t = _flattest(problem, L, norm)
        first, other = size / t, (t / norm) ** (1 / (L - 1))
    return MinimalSharpness(
        lower=unit * L * a,
        exact=exact,
        upper=unit * float(np.hypot(np.sqrt(2 * L - 1) * Lambda, (L - 1) * a)),
        depth=L,
        first_norm=first,
        other_norm=other,
        optimum=problem.optimum.reshape(-1),
        readout=vector,
    )


def critical_learning_rate(
    problem: Problem, depth: int, readout: Any = None, *, momentum: float = 0.0
) -> float:
    """2/S_min: above it gradient descent cannot settle in any minimiser (FM-crit, exact by X-2).

    With heavy-ball momentum β a minimum of sharpness S is stable up to (2+2β)/S.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    rate = dl.theory.critical_learning_rate(problem, depth=10)
    ```
    """
    if not 0 <= positive_number("momentum", momentum, zero_allowed=True) < 1:
        raise InputError(f"momentum is {momentum}; pass a number from 0 to below 1.")
    return minimal_sharpness(problem, depth, readout).critical_learning_rate(momentum)


def balanced_sharpness(problem: Problem, depth: int, readout: Any = None) -> float:
    """S_bal, the sharpness where the flow from a vanishing initialisation ends (X-3).

    S_bal = λ_max(2‖w*‖^{2−2/L}‖p‖^{2/L}(Σ̂ + (L−1)Σ̂^{1/2}ŵŵᵀΣ̂^{1/2})), ŵ = w*/‖w*‖.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    assert dl.theory.balanced_sharpness(problem, 3) >= dl.theory.minimal_sharpness(problem, 3).exact
    ```
    """
    L, _, norm = _architecture(problem, depth, readout)
    eigenvalues, _, coordinates = problem.spectrum
    size = problem.optimum_norm
    direction = coordinates[:, 0] / size
    top = largest_eigenvalue_of_update(eigenvalues, (L - 1) * eigenvalues * direction**2)
    return 2 * size ** (2 - 2 / L) * norm ** (2 / L) * top


def minimizer_lower_bound(
    problem: Problem, layer_norms: Any, readout: Any = None, *, depth: int | None = None
) -> np.ndarray:
    """2a‖w*‖^{2−1/L}‖p‖^{1/L} Σ_k 1/‖W_k‖_F: below the sharpness of that minimiser (FM-T2, E-8).

    `layer_norms` holds ‖W_k‖_F along its last axis; other axes are a batch of minimisers. The
    norms of some layers alone give a smaller bound (FM-rescale); pass the `depth` L then.
    """
    norms = np.asarray(layer_norms, dtype=np.float64)
    L, _, norm = _architecture(problem, depth or norms.shape[-1], readout)
    scale = 2 * problem.alignment * problem.optimum_norm ** (2 - 1 / L) * norm ** (1 / L)
    return scale * np.sum(1 / norms, axis=-1)


def largest_eigenvalue_of_update(diagonal: np.ndarray, squares: np.ndarray) -> float:
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
    return top + _root(excess, at_top, total)


def _flattest(problem: Problem, L: int, norm: float) -> tuple[float, float]:
    """S_min and the t = ‖W_2ᵀ…W_Lᵀp‖ that attains it, for L ≥ 2.

    With h = 1 − vΛ the optimum solves v q'(v)/q(v) = 1/(L−1), q(v) = w*ᵀΣ̂(I − vΣ̂)^{-1}w*. The
    left side grows with v; where w* has no part along the top eigenvector it stays bounded, and
    the optimum can sit at the end h = 0.
    """
    eigenvalues, _, coordinates = problem.spectrum
    Lambda = eigenvalues[0]
    # a part of w* below rounding moves S_min by less than rounding, but would stall the search
    share = np.abs(coordinates[:, 0]) > np.finfo(float).eps * problem.optimum_norm
    ell = eigenvalues[share] / Lambda
    weights = ell * coordinates[share, 0] ** 2
    below = 1 - ell

    def moments(h: float) -> tuple[float, float]:
        """q and v q'(v), up to the common factor Λ."""
        terms = weights / (below + h * ell)
        return float(np.sum(terms)), float(np.sum(terms * (1 - h) * ell / (below + h * ell)))

    def slope(log_h: float) -> float:
        q, derivative = moments(np.exp(log_h))
        return (L - 1) * derivative / q - 1

    end = np.log(1e-60)
    h = float(np.exp(_root(slope, end, 0.0))) if slope(end) > 0 else 0.0
    q, _ = moments(h)
    v = (1 - h) / Lambda
    power = np.log(2 * (L - 1) * Lambda * q) + np.log(2 * norm**2 / v) / (L - 1)
    exact = float(np.exp(power * (L - 1) / L))
    return exact, float(np.sqrt(v * exact / 2))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a monotone function changes sign, to the last digits."""
    from scipy.optimize import brentq  # half a second, which `import deeplin` need not wait for

    root = brentq(function, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps)
    return float(root)  # pyright: ignore[reportArgumentType]


def _architecture(problem: Problem, depth: int, readout: Any):
    """Check what a network of this depth and read-out needs: L, p and ‖p‖."""
    L = whole_number("depth", depth)
    problem.require_single_target("the minimal sharpness")
    problem.require_signal("the minimal sharpness")
    if readout is None:
        return L, None, 1.0
    p = finite_array("readout", readout, (1,))
    norm = float(np.linalg.norm(p))
    if norm == 0:
        raise InputError("readout is zero; pass a vector p ≠ 0.")
    return L, p, norm
