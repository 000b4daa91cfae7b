"""Is interpolation harmless? From the data alone.

BO's effective ranks belong to the population covariance Σ, which a user does not have. Here they
are estimated from the samples. What decides is the error on samples left out, beside that of
predicting the mean, of a tuned ridge and of a few inputs, which needs no assumption at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deeplin.errors import InputError, positive_number
from deeplin.problems import Problem
from deeplin.training.evaluation import (
    leave_one_out_errors,
    ridge_left_out,
    selected_left_out,
)
from deeplin.validation import validated

FLAT_EDGE = 1.1
"""A tail counts as flat when its top sample eigenvalue is at most this times that of a flat one."""
NEAR = 1.1
"""Interpolation is benign up to this many times the left-out error of the best alternative, …"""
BENIGN, TEMPERED = 0.1, 0.5
"""… or where it loses at most this share of what that explains; up to the second it is tempered."""


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

    ridge_error: float
    """Mean squared error on samples left out of the best ridge (tuned on the same samples)."""
    ridge_penalty: float
    selected_error: float
    """The same for the best number of inputs chosen one by one, by cross-validation."""
    selected_inputs: int
    beats_zero: bool = True
    """On samples left out the interpolant is better than predicting zero: paired test, 5 %."""
    unstandardized_error: float | None = None
    """`leave_one_out` of the table before it was standardized, if it was."""
    standardizing_hurts: bool = False
    """On samples left out its R² is larger by more than 0.1: paired test, 5 %."""

    @property
    def best_error(self) -> float:
        """The smallest left-out error of the alternatives to interpolation."""
        return min(self.zero_error, self.ridge_error, self.selected_error)

    @property
    def lost(self) -> float:
        """The share of what the best alternative explains that interpolating loses."""
        explained = self.zero_error - self.best_error
        return (self.leave_one_out - self.best_error) / explained if explained > 0 else math.inf

    @property
    def verdict(self) -> str:
        """`benign`, `tempered` or `harmful`: what interpolating costs on samples left out.

        Benign is harmless: better than predicting zero, with an error near that of the best
        alternative (1.1 times, or a tenth of what it explains lost). Tempered loses up to half. The
        spectrum only bounds what fitting the noise adds; it does not decide.
        """
        if not self.beats_zero:
            return "harmful"
        if self.leave_one_out <= NEAR * self.best_error or self.lost <= BENIGN:
            return "benign"
        return "tempered" if self.lost <= TEMPERED else "harmful"


@validated
def estimate_overfitting(
    problem: Problem,
    *,
    b: float = 1.0,
    delta: float = 0.1,
    centered: bool = False,
    unstandardized: Problem | None = None,
) -> Overfitting:
    """Effective ranks, left-out errors and the bounds of BO-T3.1 for d > n, from the data.

    `centered` says that the means were subtracted: then each sample left out shifts them.
    `unstandardized` is the same data before the inputs were divided by their deviations.

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
    penalty, ridge = ridge_left_out(problem, centered=centered)
    inputs, selected = selected_left_out(problem)
    noise = min(error, zero)
    before, error_before = errors, None
    if unstandardized is not None:
        before = leave_one_out_errors(unstandardized)
        error_before = float(np.sum(before**2) / n)
    return Overfitting(
        tail=tail,
        total_rank=tail_sum(problem, 0) / top,
        interpolant_norm=problem.optimum_norm,
        leave_one_out=error,
        zero_error=zero,
        noise_cost=cost,
        bias=tail.tail_sum / n * problem.optimum_norm**2,
        variance=math.log(q / positive_number("delta", delta)) * noise * cost,
        ridge_error=float(np.sum(ridge**2) / n),
        ridge_penalty=penalty,
        selected_error=float(np.sum(selected**2) / n),
        selected_inputs=inputs,
        beats_zero=_smaller(errors, problem.require_data("the left-out error")[1]),
        unstandardized_error=error_before,
        standardizing_hurts=error_before is not None
        and error - error_before > BENIGN * zero
        and _smaller(before, errors),
    )


def _smaller(errors: np.ndarray, others: np.ndarray) -> bool:
    """Whether the first squared errors are smaller: paired t-test at 5 %."""
    from scipy.special import stdtrit

    gains = np.sum(others**2 - errors**2, axis=1)
    n, deviation = len(gains), float(np.std(gains, ddof=1)) if len(gains) > 1 else math.inf
    return bool(n > 1 and gains.mean() > stdtrit(n - 1, 0.95) * deviation / math.sqrt(n))


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
