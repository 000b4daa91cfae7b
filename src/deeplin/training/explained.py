"""How much of the targets is explained, on the samples and on samples left out (exactly)."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from deeplin.checks import InputError
from deeplin.problems import Problem


def r_squared(problem: Problem, product: Any = None) -> Float[np.ndarray, " q"]:
    """R² = 1 − R/Var(y) of a linear map (d×q; none: the optimum), one for each target.

    Where only second moments are known, the targets count about zero instead of their mean. A
    target that does not vary has R² = 0.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training.explained import r_squared
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
    from deeplin.training.explained import leave_one_out_errors
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
