"""The cost of interpolation, from errors on samples left out and from the spectrum.

The errors of tuned ridge regression and of forward selection on samples left out show what the
interpolant of minimal norm loses. They need no assumption, while the effective ranks of BO are
those of the population covariance Σ, which is unknown and only estimated here.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from scipy.stats import ttest_1samp

from deeplin.errors import InputError, positive_number
from deeplin.problems import Problem
from deeplin.training.scores import folds, leave_one_out_errors

PENALTIES = np.logspace(-6, 3, 46)
"""Ridge penalties to try, relative to the largest eigenvalue of Σ̂."""
MAX_SELECTED_INPUTS = 20
"""Most inputs that forward selection chooses."""

FLAT_TAIL_FACTOR = 1.1
"""Largest ratio of the top sample eigenvalue of a tail to that of a flat tail to count as flat."""
BENIGN_ERROR_RATIO = 1.1
"""Interpolation is benign up to this multiple of the left-out error of the best alternative."""
BENIGN_LOST_SHARE, TEMPERED_LOST_SHARE = 0.1, 0.5
"""Largest lost shares of what the best alternative explains: benign up to the first, tempered up
to the second."""


def ridge_left_out(
    problem: Problem, *, centered: bool = False
) -> tuple[float, Float[np.ndarray, "n q"]]:
    """Return the ridge penalty (of a grid) with the smallest leave-one-out error, and the errors.

    The penalty μ is relative to the mean of squares: (1/n)‖Y − XΘ‖² + μ‖Θ‖².
    """
    from sklearn.linear_model import RidgeCV

    X, Y = problem.require_data("the error of a ridge")
    penalties = PENALTIES * problem.largest_eigenvalue
    model = RidgeCV(
        problem.samples * penalties,
        fit_intercept=centered,
        scoring="neg_mean_squared_error",  # so that it keeps predictions instead of squared errors
        store_cv_results=True,
    ).fit(X, Y)
    best = int(np.argmin(np.abs(problem.samples * penalties - cast(Any, model).alpha_)))
    predicted = np.asarray(model.cv_results_)
    return float(penalties[best]), Y - predicted[..., best].reshape(Y.shape)


def selected_left_out(problem: Problem) -> tuple[int, Float[np.ndarray, "n q"]]:
    """Return the best number of inputs of forward selection by cross-validation, and its errors.

    In each fold, orthogonal matching pursuit adds the input most correlated with the residual and
    fits all chosen inputs again, for each target. It finds a few relevant inputs among many, which
    the interpolant of minimal norm and ridge regression do not.
    """
    from sklearn.linear_model import orthogonal_mp

    X, Y = problem.require_data("the error of a few inputs")
    most = max(1, min(MAX_SELECTED_INPUTS, problem.samples // 5, problem.dimension))
    errors = np.zeros((most + 1, *Y.shape))
    for train, test in folds(problem.samples):
        size = np.linalg.norm(X[train], axis=0)
        unit = X / np.where(size > 0, size, np.inf)
        for j in range(Y.shape[1]):
            with warnings.catch_warnings():  # the rest of the path repeats its last point
                warnings.simplefilter("ignore", RuntimeWarning)
                path = orthogonal_mp(
                    unit[train], Y[train, j], n_nonzero_coefs=most, return_path=True
                )
            path = np.atleast_2d(np.asarray(path).T).T  # inputs × steps
            steps = np.minimum(np.arange(most), path.shape[1] - 1)
            errors[0, test, j] = Y[test, j]
            errors[1:, test, j] = Y[test, j] - (unit[test] @ path[:, steps]).T
    best = int(np.argmin(np.sum(errors**2, axis=(1, 2))))
    return best, errors[best]


@dataclass(frozen=True)
class TailEstimate:
    """Estimates of k, s_k, r_k and R_k of the population (BO-D2.1, BO-D2.2)."""

    index: float
    """k; infinite if no k up to n/4 leaves a tail flat enough for r_k ≥ b·n."""
    tail_sum: float
    small_rank: float
    large_rank: float


@dataclass(frozen=True)
class Overfitting:
    """Errors of the minimum-norm interpolant and of its alternatives, with BO's bounds at c = 1."""

    tail: TailEstimate
    total_rank: float
    """Estimate of r_0 = Tr Σ/λ_1."""
    interpolant_norm: float
    """‖Θ_min‖."""
    leave_one_out: float
    """Exact leave-one-out mean squared error of Θ_min, over all n samples."""
    zero_error: float
    """Mean squared error of predicting zero."""
    noise_cost: float
    """k/n + n/R_k: the fraction of the noise variance that fitting the noise adds to the risk."""
    bias: float
    """(s_k/n)‖Θ_min‖² (BO-T3.1 at c = 1, with Θ_min in place of Θ*)."""
    variance: float
    """log(q/δ) σ² (k/n + n/R_k) (BO-T3.1 at c = 1), σ² over all targets, at most leave_one_out."""

    ridge_error: float
    """Leave-one-out mean squared error of the best ridge regression (tuned on the same samples)."""
    ridge_penalty: float
    selected_error: float
    """Cross-validated mean squared error of forward selection with the best number of inputs."""
    selected_inputs: int
    beats_zero: bool = True
    """Whether the interpolant predicts samples left out better than zero (paired test, 5 %)."""
    unstandardized_error: float | None = None
    """`leave_one_out` of the table before standardization, if it was standardized."""
    standardizing_hurts: bool = False
    """Whether standardization lowered the left-out R² by more than 0.1 (paired test, 5 %)."""

    @property
    def best_error(self) -> float:
        """The smallest left-out error of the alternatives to interpolation."""
        return min(self.zero_error, self.ridge_error, self.selected_error)

    @property
    def lost(self) -> float:
        """The share of what the best alternative explains that interpolation loses."""
        explained = self.zero_error - self.best_error
        return (self.leave_one_out - self.best_error) / explained if explained > 0 else math.inf

    @property
    def verdict(self) -> str:
        """`benign`, `tempered` or `harmful`, by the errors on samples left out.

        Benign means better than predicting zero, with an error near that of the best alternative
        (at most 1.1 times it, or at most a tenth of what it explains lost). Tempered means that at
        most half is lost. The spectrum is not used: it only bounds what fitting the noise adds.
        """
        if not self.beats_zero:
            return "harmful"
        if (
            self.leave_one_out <= BENIGN_ERROR_RATIO * self.best_error
            or self.lost <= BENIGN_LOST_SHARE
        ):
            return "benign"
        return "tempered" if self.lost <= TEMPERED_LOST_SHARE else "harmful"


def estimate_overfitting(
    problem: Problem,
    *,
    b: float = 1.0,
    delta: float = 0.1,
    centered: bool = False,
    unstandardized: Problem | None = None,
) -> Overfitting:
    """Estimate effective ranks, left-out errors and the bounds of BO-T3.1 from data with d > n.

    Pass `centered=True` if the means were subtracted: each sample left out then shifts them.
    `unstandardized` is the same data before the inputs were divided by their standard deviations.

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
        beats_zero=_significantly_smaller(errors, problem.require_data("the left-out error")[1]),
        unstandardized_error=error_before,
        standardizing_hurts=error_before is not None
        and error - error_before > BENIGN_LOST_SHARE * zero
        and _significantly_smaller(before, errors),
    )


def _significantly_smaller(errors: np.ndarray, others: np.ndarray) -> bool:
    """Return whether the first squared errors are smaller, by a paired t-test at 5 %."""
    gains = np.sum(others**2 - errors**2, axis=1)
    if len(gains) < 2:
        return False
    test: Any = ttest_1samp(gains, 0, alternative="greater")
    return bool(test.pvalue < 0.05)


def tail_sum(problem: Problem, removed: int) -> float:
    """Return the estimate n/(n−j) Σ_{i>j} ℓ_i of s_j, from the sample eigenvalues ℓ.

    If the tail is spread over many directions, each of the n − j remaining sample eigenvalues is
    close to s_j/n.
    """
    eigenvalues = problem.spectrum.eigenvalues
    return problem.rank / (problem.rank - removed) * float(np.sum(eigenvalues[removed:]))


def estimate_tail(problem: Problem, *, b: float = 1.0) -> TailEstimate:
    """Return the smallest k whose tail has r_k ≥ b·n, with its s_k, r_k and R_k.

    With m = n − k tail eigenvalues ℓ, Σλ² is estimated without bias (for Gaussian rows) by
    n²/((m−1)(m+2)) · (Σℓ² − (Σℓ)²/m). λ_{k+1} is the mean eigenvalue of the tail, Σλ²/Σλ, if
    the largest ℓ is at most that of a flat tail, (s/n)(1 + √(m/R))², and ℓ_{k+1} − s/n otherwise.
    """
    n, eigenvalues = problem.samples, problem.spectrum.eigenvalues
    for k in range(max(len(eigenvalues) // 4, 1)):  # beyond that, too few remain to judge
        tail = eigenvalues[k:]
        m, s = len(tail), tail_sum(problem, k)
        spread = float(np.sum((tail - tail.mean()) ** 2))
        squares = n**2 / ((m - 1) * (m + 2)) * spread
        if squares <= 0:
            continue
        large = s**2 / squares
        flat = tail[0] <= FLAT_TAIL_FACTOR * s / n * (1 + math.sqrt(m / large)) ** 2
        top = squares / s if flat else max(float(tail[0]) - s / n, squares / s)
        if s / top >= positive_number("b", b) * n:
            return TailEstimate(k, s, s / top, large)
    return TailEstimate(math.inf, 0.0, 0.0, 0.0)
