"""Scores of linear maps on training samples and on samples left out, and the cost of interpolation.

The left-out scores of least squares, logistic regression, tuned ridge regression and forward
selection are the baselines for a network. They also decide whether interpolation is harmless: the
effective ranks of BO are those of the population covariance Σ, which is unknown and only estimated
here, while the errors on samples left out need no assumption.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from deeplin.errors import InputError, positive_number, validated
from deeplin.problems import Problem
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.tables.preparation import Preparation

FOLDS = 5
MIN_ROWS = 10
"""Fewest rows for which cross-validation is used."""
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


def r_squared(problem: Problem, product: Any = None) -> Float[np.ndarray, " q"]:
    """Return R² = 1 − R/Var(y) of a linear map (d×q; by default the optimum) for each target.

    If only second moments are known, the second moment of each target replaces its variance. A
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
        return _r_squared_from_errors(problem, problem.targets - problem.inputs @ theta)
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
    return _explained_share(np.mean(errors**2, axis=0), np.var(np.asarray(problem.targets), axis=0))


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
        return found  # the prediction for a sample of zeros is zero in any case
    leverage = np.sum(left**2, axis=1) + (1 / n if centered else 0.0)
    residual = Y - X @ problem.optimum.reshape(problem.dimension, -1)
    free = 1 - leverage
    alone = free <= n * np.finfo(float).eps  # only this sample determines its own fit
    return np.where(alone[:, None], np.nan, residual / np.where(alone, 1, free)[:, None])


def ridge_left_out(
    problem: Problem, *, centered: bool = False
) -> tuple[float, Float[np.ndarray, "n q"]]:
    """Return the ridge penalty (of a grid) with the smallest leave-one-out error, and the errors.

    With X = U diag(s) Vᵀ the hat matrix is U diag(s²/(s²+nμ)) Uᵀ, and the error on sample i is
    r_i/(1 − H_ii) (with 1/n added to H if the means were subtracted).
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
    """Return the best number of inputs of forward selection by cross-validation, and its errors.

    In each fold, orthogonal matching pursuit adds the input most correlated with the residual and
    fits all chosen inputs again. It finds a few relevant inputs among many, which the interpolant
    of minimal norm and ridge regression do not.
    """
    X, Y = problem.require_data("the error of a few inputs")
    most = max(1, min(MAX_SELECTED_INPUTS, problem.samples // 5, problem.dimension))
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


def folds(
    samples: int, seed: int = 0, labels: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows to train on and the rows left out, `FOLDS` times; each row is left out once.

    With `labels` the folds are stratified, and the only row of a label is never left out.
    """
    order = np.random.default_rng(seed).permutation(samples)
    parts = np.array_split(order, min(FOLDS, samples))
    if labels is not None:
        order = order[np.argsort(labels[order], kind="stable")]
        single = np.bincount(labels)[labels] == 1
        parts = [order[k::FOLDS][~single[order[k::FOLDS]]] for k in range(FOLDS)]
    for part in parts:
        yield np.setdiff1d(order, part), part


# --- scores of a network beside a linear model and a constant ------------------------------------


@dataclass(frozen=True)
class Score:
    """A measure of the network, of the best linear map and of a constant on the same rows."""

    measure: str
    """`R²`, `accuracy` or `log-loss` (natural logarithm, mean over the rows)."""
    target: str
    linear: float
    """Value for least squares, or for logistic regression without a penalty."""
    constant: float
    """Value for predicting the mean, or the frequencies of the classes."""
    network: float | None = None


@dataclass(frozen=True)
class LeftOutScores:
    """Scores on rows that were not used for training, and how these rows were chosen."""

    method: str
    scores: tuple[Score, ...]


Fit = Callable[[Problem], np.ndarray]
"""Function from a problem to the linear map (d×q) learned from it."""


def best_map(problem: Problem) -> np.ndarray:
    """Return the optimum (d×q); for separable classes, a linear map that separates them."""
    separable = isinstance(problem, GeneralizedLinearProblem)
    found = problem.last_iterate if separable else problem.optimum
    return found.reshape(problem.dimension, -1)


def class_indices(problem: Problem) -> np.ndarray | None:
    """Return the index of each row's class in `problem.classes`, or None without classes."""
    if problem.classes is None or problem.targets is None:
        return None
    Y = problem.targets
    return (Y[:, 0] > 0).astype(int) if Y.shape[1] == 1 else Y.argmax(axis=1)


def constant_outputs(problem: Problem) -> np.ndarray:
    """Return the outputs (q,) of the best constant: the means, or the log-odds of the classes."""
    mean = problem.require_data("the best constant")[1].mean(axis=0)
    if problem.classes is None:
        return mean
    return 2 * np.arctanh(mean) if problem.outputs == 1 else np.log(mean)


def outputs(problem: Problem, rows: np.ndarray, product: Any = None) -> dict[str, np.ndarray]:
    """Return the outputs (n×q) of the best linear map, the best constant and a network on rows."""
    constant = np.broadcast_to(constant_outputs(problem), (len(rows), problem.outputs))
    found = {"linear": rows @ best_map(problem), "constant": constant}
    return found if product is None else found | {"network": rows @ _columns(problem, product)}


def scores(
    problem: Problem, targets: Sequence[str], Y: np.ndarray, answers: dict[str, np.ndarray]
) -> tuple[Score, ...]:
    """Score `outputs` on rows with targets Y (n×q): R², or accuracy and log-loss for classes."""
    if problem.classes is None:
        apart = np.mean((Y - answers["constant"]) ** 2, axis=0)
        found = {
            k: _explained_share(np.mean((Y - z) ** 2, axis=0), apart) for k, z in answers.items()
        }
        return tuple(
            Score("R²", name, **{kind: float(values[j]) for kind, values in found.items()})
            for j, name in enumerate(targets)
        )
    right, loss = {}, {}
    for kind, z in answers.items():
        chosen = z * Y > 0 if Y.shape[1] == 1 else z.argmax(axis=1) == Y.argmax(axis=1)
        right[kind] = float(np.mean(chosen))
        loss[kind] = float(np.mean(problem.convex_loss.value(z, Y)))
    return Score("accuracy", targets[0], **right), Score("log-loss", targets[0], **loss)


def scores_on_training(
    problem: Problem, targets: Sequence[str], product: Any = None
) -> tuple[Score, ...]:
    """Score on the rows of the problem itself; R² needs only their second moments."""
    if problem.classes is None:
        best = r_squared(problem)
        own = None if product is None else r_squared(problem, product)
        return tuple(
            Score("R²", name, float(best[j]), 0.0, None if own is None else float(own[j]))
            for j, name in enumerate(targets)
        )
    X, Y = problem.require_data("the accuracy")
    return scores(problem, targets, Y, outputs(problem, X, product))


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
    from deeplin.training.evaluation import cross_validate
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=["a", "b", "c"])
    reading = dl.read_problem(frame.assign(y=frame.sum(axis=1)), "y", intercept=True)
    found = cross_validate(reading.problem, reading.preparation, lambda part: part.optimum)
    assert np.isclose(found.scores[0].network, 1)
    ```
    """
    if problem.inputs is None or problem.targets is None or problem.samples < MIN_ROWS:
        return None
    Y, labels = problem.targets, class_indices(problem)
    centered = preparation.centered
    answers: dict[str, np.ndarray] = {}
    for train, test in folds(problem.samples, seed, labels):
        X = problem.inputs[train]
        mean, scale = np.zeros(problem.dimension), np.ones(problem.dimension)
        inputs = slice(0, len(preparation.inputs))  # without the constant
        if centered:
            mean[inputs] = X[:, inputs].mean(axis=0)
        if preparation.standardized:
            deviation = X[:, inputs].std(axis=0)
            scale[inputs] = np.where(deviation > 0, deviation, 1.0)
        offset = Y[train].mean(axis=0) if centered and labels is None else np.zeros(problem.outputs)
        part = Problem.from_data(
            (X - mean) / scale,
            Y[train] - offset if labels is None else np.asarray(problem.classes)[labels[train]],
            problem.loss,
        )
        if labels is None and (part.rank == 0 or not part.optimum_norm > 0):
            return None
        rows = (problem.inputs[test] - mean) / scale
        for kind, found in outputs(part, rows, fit and fit(part)).items():
            answers.setdefault(kind, np.full(Y.shape, np.nan))[test] = offset + found
    used = np.isfinite(answers["constant"]).all(axis=1)
    answers = {kind: values[used] for kind, values in answers.items()}
    found = scores(problem, preparation.targets, Y[used], answers)
    return LeftOutScores(f"{FOLDS}-fold cross-validation", found)


def score_rows(
    problem: Problem, targets: Sequence[str], product: Any, rows: np.ndarray, Y: np.ndarray
) -> LeftOutScores:
    """Score this network on rows that were held out of its training."""
    found = scores(problem, targets, Y, outputs(problem, rows, product))
    return LeftOutScores(f"{len(rows)} rows held out of training", found)


def _columns(problem: Problem, product: Any) -> np.ndarray:
    return np.asarray(product).reshape(problem.dimension, -1)


# --- the cost of interpolation -------------------------------------------------------------------


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


@validated
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
    from deeplin.training.evaluation import estimate_overfitting
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
    n, deviation = len(gains), float(np.std(gains, ddof=1)) if len(gains) > 1 else math.inf
    return bool(n > 1 and gains.mean() > stdtrit(n - 1, 0.95) * deviation / math.sqrt(n))


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
