"""The cost of interpolation, from errors on samples left out.

The errors of tuned ridge regression and of forward selection on samples left out show what the
interpolant of minimal norm loses. They need no assumption, while the effective ranks of BO are
those of the population covariance Σ, which is unknown.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from scipy.stats import ttest_1samp

from deeplin.errors import InputError
from deeplin.problems import Problem
from deeplin.training.scores import folds, leave_one_out_errors

PENALTIES = np.logspace(-6, 3, 46)
"""Ridge penalties to try, relative to the largest eigenvalue of Σ̂."""
MAX_SELECTED_INPUTS = 20
"""Most inputs that forward selection chooses."""

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
class Overfitting:
    """Errors of the minimum-norm interpolant and of its alternatives on samples left out."""

    leave_one_out: float
    """Exact leave-one-out mean squared error of Θ_min, over all n samples."""
    zero_error: float
    """Mean squared error of predicting zero."""
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
        most half is lost.
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
    centered: bool = False,
    unstandardized: Problem | None = None,
) -> Overfitting:
    """Estimate what interpolation costs, from left-out errors on data with d > n.

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
    n = problem.samples
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
    errors = leave_one_out_errors(problem)
    error = float(np.sum(errors**2) / n)
    zero = problem.target_moment
    penalty, ridge = ridge_left_out(problem, centered=centered)
    inputs, selected = selected_left_out(problem)
    before, error_before = errors, None
    if unstandardized is not None:
        before = leave_one_out_errors(unstandardized)
        error_before = float(np.sum(before**2) / n)
    return Overfitting(
        leave_one_out=error,
        zero_error=zero,
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
