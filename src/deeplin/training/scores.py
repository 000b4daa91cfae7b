"""Scores of linear maps on training samples and on samples left out, beside simple baselines."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplin.errors import InputError
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.problems.problem import as_columns
from deeplin.tables.preparation import Preparation

FOLDS = 5
CONSTANT = 1e-9
"""Largest deviation, relative to the largest value, of a column that counts as constant."""
MIN_ROWS = 10
"""Fewest rows for which cross-validation is used."""


def r_squared(
    problem: Problem, product: Any = None, intercept: Any = 0.0
) -> Float[np.ndarray, " q"]:
    """Return R² = 1 − R/Var(y) of a linear map for each target.

    The map is (q, d) or (d,), by default the optimum. If only second moments are known, the second
    moment of each target replaces its variance. A target that does not vary has R² = 0.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training.scores import r_squared
    X = np.random.default_rng(0).normal(size=(20, 3))
    assert np.allclose(r_squared(dl.Problem.from_data(X, X @ np.ones(3))), 1)
    ```
    """
    d = problem.dimension
    theta = problem.optimum_columns if product is None else _columns(problem, product)
    if problem.inputs is not None and problem.targets is not None:
        predicted = problem.inputs @ theta + np.asarray(intercept)
        return _r_squared_from_errors(problem, problem.target_columns - predicted)
    moments = np.asarray(problem.second_moments)
    total = np.diag(moments)[d:]
    cross = np.sum(theta * moments[:d, d:], axis=0)
    remaining = total - 2 * cross + np.sum(theta * (moments[:d, :d] @ theta), axis=0)
    return _explained_share(np.maximum(remaining, 0), total)


def r_squared_left_out(
    problem: Problem, *, centered: bool = False
) -> Float[np.ndarray, " q"] | None:
    """Return the leave-one-out R² of least squares, or None where it is not defined."""
    known = problem.inputs is not None and problem.samples > 2
    dependent = problem.dimension >= problem.samples and problem.rank < problem.samples - 1
    if not known or dependent:
        return None
    errors = leave_one_out_errors(problem, centered=centered)
    return _r_squared_from_errors(problem, errors) if np.isfinite(errors).all() else None


def _r_squared_from_errors(problem: Problem, errors: np.ndarray) -> np.ndarray:
    return _explained_share(np.mean(errors**2, axis=0), np.var(problem.target_columns, axis=0))


def _explained_share(remaining: np.ndarray, total: np.ndarray) -> np.ndarray:
    varies = total > 0
    return np.where(varies, 1 - remaining / np.where(varies, total, 1), 0.0)


def leave_one_out_errors(problem: Problem, *, centered: bool = False) -> Float[np.ndarray, "n q"]:
    """Return the leave-one-out errors of the least-squares solution of minimal norm.

    With the hat matrix H = X(XᵀX)⁺Xᵀ and the residual r, the error on sample i is r_i/(1 − H_ii);
    for an interpolant, where this is 0/0, it is (G⁺Y)_i/(G⁺)_ii with G = XXᵀ. Pass `centered=True`
    if the means were subtracted: the means then leave the sample out as well (1/n is added to H).

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training.scores import leave_one_out_errors
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
        return found  # the prediction for a sample of zeros is zero in any case
    leverage = np.sum(left**2, axis=1) + (1 / n if centered else 0.0)
    residual = Y - X @ problem.optimum_columns
    free = 1 - leverage
    alone = free <= n * np.finfo(float).eps  # only this sample determines its own fit
    return np.where(alone[:, None], np.nan, residual / np.where(alone, 1, free)[:, None])


def folds(
    samples: int, seed: int = 0, labels: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows to train on and the rows left out, `FOLDS` times; each row is left out once.

    With `labels` the folds are stratified, and the only row of a label is never left out.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    if labels is None:
        yield from KFold(min(FOLDS, samples), shuffle=True, random_state=seed).split(range(samples))
        return
    counts = np.bincount(labels)
    common = np.flatnonzero(counts[labels] > 1)
    splitter = StratifiedKFold(min(FOLDS, counts.max()), shuffle=True, random_state=seed)
    with warnings.catch_warnings():  # some classes may have fewer rows than there are folds
        warnings.simplefilter("ignore", UserWarning)
        parts = [common[test] for _, test in splitter.split(common, labels[common])]
    for part in parts:
        yield np.setdiff1d(np.arange(samples), part), part


# --- scores of a network beside a linear model and a constant ------------------------------------


@dataclass(frozen=True)
class Score:
    """A measure of the network, of a linear baseline and of a constant on the same rows."""

    measure: str
    """`R²`, `accuracy` or `log-loss` (natural logarithm, mean over the rows)."""
    target: str
    linear: float
    """Value for least squares, or for classes of scikit-learn's `LogisticRegression()`, which by
    default has a penalty."""
    constant: float
    """Value for predicting the mean, or the frequencies of the classes."""
    network: float | None = None


@dataclass(frozen=True)
class LeftOutScores:
    """Scores on rows that were not used for training, and how these rows were chosen."""

    method: str
    scores: tuple[Score, ...]


Fit = Callable[[Problem], tuple[Any, Any]]
"""Function from a problem to the linear map, (q, d) or (d,), and the intercept learned from it."""


def class_indices(problem: Problem) -> np.ndarray | None:
    """Return the index of each row's class in `problem.classes`, or None without classes."""
    if problem.classes is None or problem.targets is None:
        return None
    return _chosen(problem.target_columns).astype(int)


def constant_outputs(problem: Problem) -> np.ndarray:
    """Return the outputs (q,) of the best constant: the means, or the log-odds of the classes."""
    mean = problem.require_data("the best constant")[1].mean(axis=0)
    if problem.classes is None:
        return mean
    return 2 * np.arctanh(mean) if problem.outputs == 1 else np.log(mean)


def outputs(
    problem: Problem, rows: np.ndarray, product: Any = None, intercept: Any = 0.0
) -> dict[str, np.ndarray]:
    """Return the outputs (n×q) of the linear baseline, the best constant and a network on rows."""
    constant = np.broadcast_to(constant_outputs(problem), (len(rows), problem.outputs))
    found = {"linear": baseline(problem, rows), "constant": constant}
    if product is None:
        return found
    return found | {"network": rows @ _columns(problem, product) + np.asarray(intercept)}


def baseline(problem: Problem, rows: np.ndarray) -> np.ndarray:
    """Return the outputs (n×q) of least squares, or of scikit-learn's `LogisticRegression()`."""
    labels = class_indices(problem)
    if labels is None:
        return rows @ problem.optimum_columns
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    X, _ = problem.require_data("logistic regression")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(max_iter=1000).fit(X, labels)
    return model.decision_function(rows).reshape(len(rows), -1)


def scores(
    problem: Problem, targets: Sequence[str], Y: np.ndarray, answers: dict[str, np.ndarray]
) -> tuple[Score, ...]:
    """Score `outputs` on rows with targets Y (n×q): R², or accuracy and log-loss for classes."""
    from sklearn.metrics import accuracy_score, mean_squared_error

    if problem.classes is None:
        error = {
            k: np.asarray(mean_squared_error(Y, z, multioutput="raw_values"))
            for k, z in answers.items()
        }
        shares = {k: _explained_share(each, error["constant"]) for k, each in error.items()}
        return tuple(
            Score("R²", name, **{kind: float(values[j]) for kind, values in shares.items()})
            for j, name in enumerate(targets)
        )
    right, loss = {}, {}
    for kind, z in answers.items():
        right[kind] = float(accuracy_score(_chosen(Y), _chosen(z)))
        loss[kind] = float(np.mean(problem.convex_loss.value(z, Y)))
    return Score("accuracy", targets[0], **right), Score("log-loss", targets[0], **loss)


def _chosen(outputs: np.ndarray) -> np.ndarray:
    """Return the index of the class with the largest output."""
    return (outputs[:, 0] > 0) if outputs.shape[1] == 1 else outputs.argmax(axis=1)


def scores_on_training(
    problem: Problem, targets: Sequence[str], product: Any = None, intercept: Any = 0.0
) -> tuple[Score, ...]:
    """Score on the rows of the problem itself; R² needs only their second moments."""
    if problem.classes is None:
        best = r_squared(problem)
        own = None if product is None else r_squared(problem, product, intercept)
        return tuple(
            Score("R²", name, float(best[j]), 0.0, None if own is None else float(own[j]))
            for j, name in enumerate(targets)
        )
    X, Y = problem.require_data("the accuracy")
    return scores(problem, targets, Y, outputs(problem, X, product, intercept))


def cross_validate(
    problem: Problem,
    preparation: Preparation,
    fit: Fit | None = None,
    *,
    seed: int = 0,
) -> LeftOutScores | None:
    """Score networks by 5-fold cross-validation: trained on four folds, scored on the fifth.

    Means and standard deviations are those of the training rows. Without `fit`, only the linear
    model and the constant are scored. Return None if the rows are unknown or fewer than ten, or if
    a fold has nothing to learn.

    ```python
    import deeplin as dl, numpy as np, pandas as pd
    from deeplin.training.scores import cross_validate
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=["a", "b", "c"])
    reading = dl.read_problem(frame.assign(y=frame.sum(axis=1)), "y", intercept=True)
    found = cross_validate(reading.problem, reading.preparation, lambda part: (part.optimum, 0.0))
    assert np.isclose(found.scores[0].network, 1)
    ```
    """
    if problem.inputs is None or problem.targets is None or problem.samples < MIN_ROWS:
        return None
    Y, labels = problem.target_columns, class_indices(problem)
    centered = preparation.centered
    answers: dict[str, np.ndarray] = {}
    for train, test in folds(problem.samples, seed, labels):
        X = problem.inputs[train]
        mean, scale = np.zeros(problem.dimension), np.ones(problem.dimension)
        inputs = slice(0, len(preparation.inputs))  # without the constant
        if centered:
            mean[inputs] = X[:, inputs].mean(axis=0)
        if preparation.standardized:
            deviation = X[:, inputs].std(axis=0)  # near 0, not 0, in a column without variation
            varies = deviation > CONSTANT * np.abs(problem.inputs[:, inputs]).max(axis=0)
            scale[inputs] = np.where(varies, deviation, 1.0)
        offset = Y[train].mean(axis=0) if centered and labels is None else np.zeros(problem.outputs)
        part = Problem.from_data(
            (X - mean) / scale,
            Y[train] - offset if labels is None else np.asarray(problem.classes)[labels[train]],
            problem.loss,
        )
        if labels is None and (part.rank == 0 or not part.optimum_norm > 0):
            return None
        rows = (problem.inputs[test] - mean) / scale
        for kind, found in outputs(part, rows, *(fit(part) if fit else ())).items():
            answers.setdefault(kind, np.full(Y.shape, np.nan))[test] = offset + found
    used = np.isfinite(answers["constant"]).all(axis=1)
    answers = {kind: values[used] for kind, values in answers.items()}
    found = scores(problem, preparation.targets, Y[used], answers)
    return LeftOutScores(f"{FOLDS}-fold cross-validation", found)


def fitted(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """Return the linear map of a network, and what its biases add."""
    return np.asarray(network.product), np.asarray(network.intercept)


def _columns(problem: Problem, product: Any) -> np.ndarray:
    return as_columns(np.asarray(product), problem.outputs)
