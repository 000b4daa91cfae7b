"""Will interpolation be benign on this data set? Effective ranks and errors from the data alone.

BO's effective ranks belong to the population covariance Σ, which a user does not have. Here they
are estimated from the samples, and the error of the minimum-norm interpolant is measured by leaving
out each sample in turn, which needs no assumption at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deeplin.checks import InputError, positive_number
from deeplin.door import door
from deeplin.problems import Problem
from deeplin.training.explained import leave_one_out_errors

FLAT_EDGE = 1.1
"""A tail counts as flat when its top sample eigenvalue is at most this times that of a flat one."""


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


@door
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
