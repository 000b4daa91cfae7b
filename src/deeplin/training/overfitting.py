"""How much of the targets is explained, and is interpolation benign? From the data alone.

R² on the samples and, exactly, on samples left out. BO's effective ranks belong to the population
covariance Σ, which a user does not have. Here they are estimated from the samples, and the error of
the minimum-norm interpolant is measured by leaving out each sample in turn, which needs no
assumption at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplin.errors import InputError, positive_number
from deeplin.problems import Problem
from deeplin.validation import validated

FLAT_EDGE = 1.1
"""A tail counts as flat when its top sample eigenvalue is at most this times that of a flat one."""


def r_squared(problem: Problem, product: Any = None) -> Float[np.ndarray, " q"]:
    """R² = 1 − R/Var(y) of a linear map (d×q; none: the optimum), one for each target.

    Where only second moments are known, the targets count about zero instead of their mean. A
    target that does not vary has R² = 0.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training.overfitting import r_squared
    X = np.random.default_rng(0).normal(size=(20, 3))
    assert np.allclose(r_squared(dl.Problem.from_data(X, X @ np.ones(3))), 1)
    ```
    """
    d = problem.dimension
    theta = np.asarray(problem.optimum if product is None else product).reshape(d, -1)
    if problem.inputs is not None and problem.targets is not None:
        return _compared(problem, problem.targets - problem.inputs @ theta)
    moments = np.asarray(problem.second_moments)
    total = np.diag(moments)[d:]
    cross = np.sum(theta * moments[:d, d:], axis=0)
    remaining = total - 2 * cross + np.sum(theta * (moments[:d, :d] @ theta), axis=0)
    return _ratio(np.maximum(remaining, 0), total)


def r_squared_left_out(
    problem: Problem, *, centered: bool = False
) -> Float[np.ndarray, " q"] | None:
    """R² of least squares on samples left out in turn; None where leaving one out means nothing."""
    known = problem.inputs is not None and problem.samples > 2
    dependent = problem.dimension >= problem.samples and problem.rank < problem.samples - 1
    if not known or dependent:
        return None
    errors = leave_one_out_errors(problem, centered=centered)
    return _compared(problem, errors) if np.isfinite(errors).all() else None


def _compared(problem: Problem, errors: np.ndarray) -> np.ndarray:
    return _ratio(np.mean(errors**2, axis=0), np.var(np.asarray(problem.targets), axis=0))


def _ratio(remaining: np.ndarray, total: np.ndarray) -> np.ndarray:
    varies = total > 0
    return np.where(varies, 1 - remaining / np.where(varies, total, 1), 0.0)


def leave_one_out_errors(problem: Problem, *, centered: bool = False) -> Float[np.ndarray, "n q"]:
    """Errors of the least-squares solution (of minimal norm) of all samples but one, on that one.

    With the hat matrix H = X(XᵀX)⁺Xᵀ the error on sample i is r_i/(1 − H_ii), r the residual; for
    an interpolant, where that is 0/0, it is (G⁺Y)_i/(G⁺)_ii with G = XXᵀ. `centered` says that the
    means were subtracted: then they leave the sample out as well (H gains 1/n).

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training.overfitting import leave_one_out_errors
    X = np.random.default_rng(0).normal(size=(20, 3))
    errors = leave_one_out_errors(dl.Problem.from_data(X, X @ np.ones(3)))
    assert np.allclose(errors, 0)
    ```
    """
    X, Y = problem.require_data("the leave-one-out error")
    n = problem.samples
    eigenvalues, vectors, _ = problem.spectrum
    left = X @ vectors / np.sqrt(n * eigenvalues)
    if problem.dimension >= n:
        if problem.rank < n - 1:
            raise InputError(
                f"the leave-one-out error of an interpolant needs independent rows; received {n} "
                f"samples of {problem.dimension} inputs, of rank {problem.rank}."
            )
        weights = left / (n * eigenvalues)
        share = np.sum(weights * left, axis=1)[:, None]
        found = np.divide(weights @ (left.T @ Y), share, out=Y.astype(float), where=share > 0)
        return found  # a sample of zeros is predicted as zero, with it or without it
    leverage = np.sum(left**2, axis=1) + (1 / n if centered else 0.0)
    residual = Y - X @ problem.optimum.reshape(problem.dimension, -1)
    free = 1 - leverage
    alone = free <= n * np.finfo(float).eps  # such a sample decides its own fit
    return np.where(alone[:, None], np.nan, residual / np.where(alone, 1, free)[:, None])


@dataclass(frozen=True)
class TailEstimate:
    """Estimates of k, s_k, r_k and R_k of the population (BO-D2.1, BO-D2.2)."""

    index: float
    """k, infinite when no k up to n/4 leaves a tail flat enough for r_k ≥ b·n."""
    tail_sum: float
    small_rank: float
    large_rank: float


@dataclass(frozen=True)
class Overfitting:
    """What interpolating with the minimum-norm solution costs, with BO's bounds at c = 1."""

    tail: TailEstimate
    total_rank: float
    """r_0 = Tr Σ/λ_1, estimated."""
    interpolant_norm: float
    """‖Θ_min‖."""
    leave_one_out: float
    """Mean squared error of Θ_min on a sample left out: exact, all n of them."""
    zero_error: float
    """Mean squared error of predicting zero."""
    noise_cost: float
    """k/n + n/R_k: the part of the noise variance that fitting the noise adds to the risk."""
    bias: float
    """(s_k/n)‖Θ_min‖² (BO-T3.1 at c = 1, with Θ_min in place of Θ*)."""
    variance: float
    """log(q/δ) σ² (k/n + n/R_k) (BO-T3.1 at c = 1), σ² over all targets, at most leave_one_out."""

    beats_zero: bool = True
    """On samples left out the interpolant is better than predicting zero: paired test, 5 %."""

    @property
    def verdict(self) -> str:
        """`benign`, `tempered` or `harmful`; the error on samples left out decides first.

        The spectrum only bounds what fitting the noise adds. Where the interpolant is no better
        than predicting zero on samples it has not seen, it is `harmful` whatever the spectrum.
        """
        if not self.beats_zero:
            return "harmful"
        if self.noise_cost <= 0.25:
            return "benign"
        return "tempered" if self.noise_cost <= 1 else "harmful"


@validated
def estimate_overfitting(problem: Problem, *, b: float = 1.0, delta: float = 0.1) -> Overfitting:
    """Effective ranks, leave-one-out error and the bounds of BO-T3.1 for d > n, from the data.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training.overfitting import estimate_overfitting
    X = np.random.default_rng(0).normal(size=(20, 400))
    report = estimate_overfitting(dl.Problem.from_data(X, X[:, 0]))
    report.verdict, report.leave_one_out
    ```
    """
    n, q = problem.samples, problem.outputs
    if problem.dimension <= n:
        raise InputError(
            f"overfitting by interpolation needs more inputs than samples; received {n} samples of "
            f"{problem.dimension} inputs."
        )
    if problem.rank < 2:
        raise InputError(
            f"the samples have rank {problem.rank}; pass at least two independent ones to estimate "
            "what interpolation costs."
        )
    tail = estimate_tail(problem, b=b)
    errors = leave_one_out_errors(problem)
    error = float(np.sum(errors**2) / n)
    zero = problem.target_moment
    top = max(problem.largest_eigenvalue - tail_sum(problem, 1) / n, np.finfo(float).tiny)
    cost = tail.index / n + n / tail.large_rank if tail.large_rank else math.inf
    noise = min(error, zero)
    return Overfitting(
        tail=tail,
        total_rank=tail_sum(problem, 0) / top,
        interpolant_norm=problem.optimum_norm,
        leave_one_out=error,
        zero_error=zero,
        noise_cost=cost,
        bias=tail.tail_sum / n * problem.optimum_norm**2,
        variance=math.log(q / positive_number("delta", delta)) * noise * cost,
        beats_zero=_beats_zero(errors, problem.require_data("the left-out error")[1]),
    )


def _beats_zero(errors: np.ndarray, targets: np.ndarray) -> bool:
    """Whether the squared errors are smaller than the targets' squares: paired t-test at 5 %."""
    from scipy.special import stdtrit

    gains = np.sum(targets**2 - errors**2, axis=1)
    n, deviation = len(gains), float(np.std(gains, ddof=1)) if len(gains) > 1 else math.inf
    return n > 1 and float(gains.mean()) > stdtrit(n - 1, 0.95) * deviation / math.sqrt(n)


def tail_sum(problem: Problem, removed: int) -> float:
    """s_j of the population, estimated by n/(n−j) Σ_{i>j} of the sample eigenvalues.

    Where the tail is spread over many directions, each of the n − j remaining sample eigenvalues is
    close to s_j/n.
    """
    eigenvalues = problem.spectrum.eigenvalues
    return problem.rank / (problem.rank - removed) * float(np.sum(eigenvalues[removed:]))


def estimate_tail(problem: Problem, *, b: float = 1.0) -> TailEstimate:
    """The smallest k whose tail has r_k ≥ b·n, with its s_k, r_k and R_k.

    With m = n − k tail eigenvalues ℓ, Σλ² is estimated without bias (for Gaussian rows) by
    n²/((m−1)(m+2)) · (Σℓ² − (Σℓ)²/m). λ_{k+1} is the mean eigenvalue of the tail, Σλ²/Σλ, where
    the largest ℓ is no larger than a flat tail's would be, (s/n)(1 + √(m/R))², else ℓ_{k+1} − s/n.
    """
    n, eigenvalues = problem.samples, problem.spectrum.eigenvalues
    for k in range(max(len(eigenvalues) // 4, 1)):  # beyond, too few eigenvalues are left to judge
        tail = eigenvalues[k:]
        m, s = len(tail), tail_sum(problem, k)
        spread = float(np.sum((tail - tail.mean()) ** 2))
        squares = n**2 / ((m - 1) * (m + 2)) * spread
        if squares <= 0:
            continue
        large = s**2 / squares
        flat = tail[0] <= FLAT_EDGE * s / n * (1 + math.sqrt(m / large)) ** 2
        top = squares / s if flat else max(float(tail[0]) - s / n, squares / s)
        if s / top >= positive_number("b", b) * n:
            return TailEstimate(k, s, s / top, large)
    return TailEstimate(math.inf, 0.0, 0.0, 0.0)
