"""How well a linear map predicts: R² on the samples, and on samples left out.

Least squares, a tuned ridge and a few best inputs are left-out scores to compare a network with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplin.errors import InputError
from deeplin.problems import Problem

FOLDS = 5
FEWEST_ROWS = 10
"""Rows below which nothing is left out."""
PENALTIES = np.logspace(-6, 3, 46)
"""Ridge penalties that are tried, relative to the largest eigenvalue of Σ̂."""
MOST_INPUTS = 20
"""Inputs that forward selection tries at most."""


def r_squared(problem: Problem, product: Any = None) -> Float[np.ndarray, " q"]:
    """R² = 1 − R/Var(y) of a linear map (d×q; none: the optimum), one for each target.

    Where only second moments are known, the targets count about zero instead of their mean. A
    target that does not vary has R² = 0.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training.evaluation import r_squared
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
    from deeplin.training.evaluation import leave_one_out_errors
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


def ridge_left_out(
    problem: Problem, *, centered: bool = False
) -> tuple[float, Float[np.ndarray, "n q"]]:
    """The best ridge penalty (of a grid) by its errors on samples left out in turn, and these.

    With X = U diag(s) Vᵀ the hat matrix is U diag(s²/(s²+nμ)) Uᵀ, and the error on sample i is
    r_i/(1 − H_ii) (plus 1/n in H where the means were subtracted).
    """
    X, Y = problem.require_data("the error of a ridge")
    n = problem.samples
    eigenvalues, vectors, _ = problem.spectrum
    left = X @ vectors / np.sqrt(n * eigenvalues)
    along = left.T @ Y
    best: tuple[float, np.ndarray] | None = None
    for penalty in PENALTIES * problem.largest_eigenvalue:
        kept = eigenvalues / (eigenvalues + penalty)
        leverage = left**2 @ kept + (1 / n if centered else 0.0)
        errors = (Y - left @ (kept[:, None] * along)) / np.maximum(1 - leverage, 1e-12)[:, None]
        if best is None or np.sum(errors**2) < np.sum(best[1] ** 2):
            best = float(penalty), errors
    assert best is not None
    return best


def selected_left_out(problem: Problem) -> tuple[int, Float[np.ndarray, "n q"]]:
    """The best number of inputs chosen one by one, by cross-validation, and the errors there.

    Orthogonal matching pursuit in each fold: the input most correlated with what is left is added
    and all chosen ones are fitted again. Few true inputs among many are found this way, which the
    interpolant of minimal norm and a ridge miss.
    """
    X, Y = problem.require_data("the error of a few inputs")
    most = max(1, min(MOST_INPUTS, problem.samples // 5, problem.dimension))
    errors = np.zeros((most + 1, *Y.shape))
    for train, test in folds(problem.samples):
        errors[0, test] = Y[test]
        size = np.linalg.norm(X[train], axis=0)
        chosen: list[int] = []
        left = Y[train]
        for k in range(1, most + 1):
            fit = np.linalg.norm(X[train].T @ left, axis=1) / np.where(size > 0, size, np.inf)
            fit[chosen] = -1.0
            chosen.append(int(np.argmax(fit)))
            weights = np.linalg.lstsq(X[train][:, chosen], Y[train], rcond=None)[0]
            left = Y[train] - X[train][:, chosen] @ weights
            errors[k, test] = Y[test] - X[test][:, chosen] @ weights
    best = int(np.argmin(np.sum(errors**2, axis=(1, 2))))
    return best, errors[best]


def folds(samples: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows to train on and rows left out, `FOLDS` times; each row is left out once."""
    order = np.random.default_rng(seed).permutation(samples)
    for part in np.array_split(order, min(FOLDS, samples)):
        yield np.setdiff1d(order, part), part


@dataclass(frozen=True)
class LeftOut:
    """R² on rows that were not trained on, one for each target; predicting the mean has R² = 0."""

    method: str
    network: np.ndarray
    least_squares: np.ndarray


Fit = Callable[[Problem], np.ndarray]
"""From a problem to the linear map (d×q) that is learned on it."""


def cross_validate(
    problem: Problem, fit: Fit, *, centered: bool, standardized: bool = False, seed: int = 0
) -> LeftOut | None:
    """Score networks trained in the same way on four fifths of the rows, on the fifth left out.

    Means and deviations are those of the rows trained on. None where rows are not known, are fewer
    than ten, or where a fold has nothing to learn.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training.evaluation import cross_validate
    X = np.random.default_rng(0).normal(size=(50, 3))
    problem = dl.Problem.from_data(X, X @ np.ones(3))
    found = cross_validate(problem, lambda part: part.optimum, centered=False)
    assert np.allclose(found.network, 1)
    ```
    """
    if problem.inputs is None or problem.targets is None or problem.samples < FEWEST_ROWS:
        return None
    errors, simple, apart = (np.empty_like(problem.targets) for _ in range(3))
    for train, test in folds(problem.samples, seed):
        X, Y = problem.inputs[train], problem.targets[train]
        mean = X.mean(axis=0) if centered else np.zeros(problem.dimension)
        offset = Y.mean(axis=0) if centered else np.zeros(problem.outputs)
        scale = X.std(axis=0) if standardized else np.ones(problem.dimension)
        scale = np.where(scale > 0, scale, 1.0)
        targets = Y - offset
        part = Problem.from_data((X - mean) / scale, targets)
        if part.rank == 0 or not part.optimum_norm > 0:
            return None
        rows = (problem.inputs[test] - mean) / scale
        for held, product in ((errors, fit(part)), (simple, part.optimum)):
            theta = np.asarray(product).reshape(problem.dimension, -1)
            held[test] = problem.targets[test] - offset - rows @ theta
        apart[test] = problem.targets[test] - Y.mean(axis=0)
    return LeftOut(
        f"{min(FOLDS, problem.samples)}-fold cross-validation",
        *(_ratio(np.mean(e**2, axis=0), np.mean(apart**2, axis=0)) for e in (errors, simple)),
    )


def score_rows(
    problem: Problem, product: Any, rows: np.ndarray, targets: np.ndarray, train_mean: np.ndarray
) -> LeftOut:
    """Score this network on rows that were held out of its training."""
    d = problem.dimension
    spread = np.mean((targets - train_mean) ** 2, axis=0)
    scores = (
        _ratio(np.mean((targets - rows @ np.asarray(it).reshape(d, -1)) ** 2, axis=0), spread)
        for it in (product, problem.optimum)
    )
    return LeftOut(f"{len(rows)} rows held out of training", *scores)
