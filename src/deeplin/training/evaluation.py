"""How well a linear map predicts: on the samples, on samples left out, and by interpolating them.

Least squares, logistic regression, a tuned ridge and a few best inputs are left-out scores to
compare a network with. They also decide whether interpolation is harmless: BO's effective ranks
belong to the population covariance Σ, which a user does not have, and are only estimated here; the
errors on samples left out need no assumption at all.
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
"""Rows below which nothing is left out."""
PENALTIES = np.logspace(-6, 3, 46)
"""Ridge penalties that are tried, relative to the largest eigenvalue of Σ̂."""
MAX_SELECTED_INPUTS = 20
"""Inputs that forward selection tries at most."""

FLAT_TAIL_FACTOR = 1.1
"""A tail counts as flat when its top sample eigenvalue is at most this times that of a flat one."""
BENIGN_ERROR_RATIO = 1.1
"""Interpolation is benign up to this many times the left-out error of the best alternative, …"""
BENIGN_LOST_SHARE, TEMPERED_LOST_SHARE = 0.1, 0.5
"""… or where it loses at most this share of what that explains; up to the second it is tempered."""


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
        return _r_squared_from_errors(problem, problem.targets - problem.inputs @ theta)
    moments = np.asarray(problem.second_moments)
    total = np.diag(moments)[d:]
    cross = np.sum(theta * moments[:d, d:], axis=0)
    remaining = total - 2 * cross + np.sum(theta * (moments[:d, :d] @ theta), axis=0)
    return _explained_share(np.maximum(remaining, 0), total)


def r_squared_left_out(
    problem: Problem, *, centered: bool = False
) -> Float[np.ndarray, " q"] | None:
    """R² of least squares on samples left out in turn; None where leaving one out means nothing."""
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
    """Rows to train on and rows left out, `FOLDS` times; each row is left out once.

    With `labels` every fold has its share of each, and the only row of a label is never left out.
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
    """One measure on some rows: of the network, of the best linear map, and of a constant."""

    measure: str
    """`R²`, `accuracy` or `log-loss` (natural logarithm, mean over the rows)."""
    target: str
    linear: float
    """Least squares, or logistic regression without a penalty."""
    constant: float
    """Predicting the mean, or the classes by their frequency."""
    network: float | None = None


@dataclass(frozen=True)
class LeftOut:
    """Scores on rows that were not trained on, and how these were chosen."""

    method: str
    scores: tuple[Score, ...]


Fit = Callable[[Problem], np.ndarray]
"""From a problem to the linear map (d×q) that is learned on it."""


def best_map(problem: Problem) -> np.ndarray:
    """The optimum (d×q); for classes that a hyperplane separates a map that separates them."""
    separable = isinstance(problem, GeneralizedLinearProblem)
    found = problem.last_iterate if separable else problem.optimum
    return found.reshape(problem.dimension, -1)


def class_indices(problem: Problem) -> np.ndarray | None:
    """The place of each row's class among `problem.classes`; None without classes."""
    if problem.classes is None or problem.targets is None:
        return None
    Y = problem.targets
    return (Y[:, 0] > 0).astype(int) if Y.shape[1] == 1 else Y.argmax(axis=1)


def constant_outputs(problem: Problem) -> np.ndarray:
    """The outputs (q,) of the best constant: the means, or the log-odds of the classes."""
    mean = problem.require_data("the best constant")[1].mean(axis=0)
    if problem.classes is None:
        return mean
    return 2 * np.arctanh(mean) if problem.outputs == 1 else np.log(mean)


def outputs(problem: Problem, rows: np.ndarray, product: Any = None) -> dict[str, np.ndarray]:
    """What the best linear map and constant of a problem, and a network, answer to rows (n×q)."""
    constant = np.broadcast_to(constant_outputs(problem), (len(rows), problem.outputs))
    found = {"linear": rows @ best_map(problem), "constant": constant}
    return found if product is None else found | {"network": rows @ _columns(problem, product)}


def scores(
    problem: Problem, targets: Sequence[str], Y: np.ndarray, answers: dict[str, np.ndarray]
) -> tuple[Score, ...]:
    """Score `outputs` on rows with targets Y (n×q): R² of each target, or those of classes."""
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
    """Scores on the rows of the problem itself; R² also where only their moments are known."""
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
) -> LeftOut | None:
    """Score networks trained in the same way on four fifths of the rows, on the fifth left out.

    Means and deviations are those of the rows trained on. Without a `fit` only the linear model and
    the constant are scored. None where rows are not known, are fewer than ten, or where a fold has
    nothing to learn.

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
    return LeftOut(f"{FOLDS}-fold cross-validation", found)


def score_rows(
    problem: Problem, targets: Sequence[str], product: Any, rows: np.ndarray, Y: np.ndarray
) -> LeftOut:
    """Score this network on rows that were held out of its training."""
    found = scores(problem, targets, Y, outputs(problem, rows, product))
    return LeftOut(f"{len(rows)} rows held out of training", found)


def _columns(problem: Problem, product: Any) -> np.ndarray:
    return np.asarray(product).reshape(problem.dimension, -1)


# --- is interpolation harmless? ------------------------------------------------------------------


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
    """Effective ranks, left-out errors and the bounds of BO-T3.1 for d > n, from the data.

    `centered` says that the means were subtracted: then each sample left out shifts them.
    `unstandardized` is the same data before the inputs were divided by their deviations.

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
    """Whether the first squared errors are smaller: paired t-test at 5 %."""
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
        flat = tail[0] <= FLAT_TAIL_FACTOR * s / n * (1 + math.sqrt(m / large)) ** 2
        top = squares / s if flat else max(float(tail[0]) - s / n, squares / s)
        if s / top >= positive_number("b", b) * n:
            return TailEstimate(k, s, s / top, large)
    return TailEstimate(math.inf, 0.0, 0.0, 0.0)
