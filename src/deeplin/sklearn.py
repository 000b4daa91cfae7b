"""scikit-learn estimators whose coefficients are the product of a deep linear network.

Importing this module, predicting, and fitting with the closed form do not import JAX (public names
of `deeplin` are imported on first use), so that worker processes of a search start quickly.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

import deeplin as dl
from deeplin.errors import InputError, positive_number, whole_number

__all__ = ["DeepLinearClassifier", "DeepLinearRegressor"]

PIECE = 1000
"""Steps after which training with weight decay and three or more classes looks at its progress."""
COLLAPSED_WARNING = (
    "With weight_decay={:g} the best network is the zero network; pass a smaller one."
)


class _DeepLinearModel(BaseEstimator):
    """Base class of both estimators: parameters, their validation, and the outcome of training."""

    _solvers: tuple[str, ...]

    def __init__(
        self,
        depth=2,
        width=None,
        *,
        initialization="auto",
        scale=None,
        learning_rate="auto",
        solver="descent",
        max_iter=100_000,
        tol=1e-12,
        momentum=0.0,
        batch_size=None,
        weight_decay=0.0,
        fit_intercept=True,
        random_state=None,
    ):
        self.depth = depth
        self.width = width
        self.initialization = initialization
        self.scale = scale
        self.learning_rate = learning_rate
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.momentum = momentum
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    @property
    def network_(self) -> dl.Network:
        """The trained network (float64 if it is enabled in JAX)."""
        check_is_fitted(self)
        return dl.Network(self.weights_, readout=self.readout_)

    def _check_parameters(self) -> None:
        if self.solver not in self._solvers:
            raise InputError(f"solver is {self.solver!r}; pass one of {', '.join(self._solvers)}.")
        if self.learning_rate != "auto":
            positive_number("learning_rate", self.learning_rate)
        positive_number("tol", self.tol)
        whole_number("max_iter", self.max_iter)
        whole_number("depth", self.depth)
        if self.width is not None:
            whole_number("width", self.width)
        if (self.momentum or self.batch_size) and self.solver != "descent":
            raise InputError("momentum and batch_size are for solver='descent'.")
        decay = positive_number("weight_decay", self.weight_decay, zero_allowed=True)
        if decay and self.solver == "flow":
            raise InputError("weight_decay is for solver='descent' or 'closed_form'.")

    def _spec(self) -> dl.training.TrainingSpec:
        return dl.training.TrainingSpec(
            momentum=self.momentum, batch_size=self.batch_size, weight_decay=self.weight_decay
        )

    def _fit_network(self, problem: Any) -> np.ndarray:
        """Train on a problem, store the layers and the outcome, and return the product Θ."""
        import jax

        from deeplin.execution import share_compiled_code

        share_compiled_code()  # or every worker of a search would compile the same programs
        self._set_outcome("converged", 1, 0.0, None)
        self.critical_learning_rate_: float | None = None
        key = jax.random.key(check_random_state(self.random_state).randint(2**31 - 1))
        from deeplin.networks import products
        from deeplin.networks.network import host_arrays

        weights, readout = host_arrays(self._train(problem, key))
        self.weights_, self.readout_ = tuple(weights), readout
        return products.product(self.weights_, readout)  # NumPy, without compilation

    def _train(self, problem: Any, key: Any) -> dl.Network:
        raise NotImplementedError

    def _set_outcome(self, status: Any, steps: int, gap: Any, rate: Any) -> None:
        self.status_, self.n_iter_, self.gap_, self.learning_rate_ = status, steps, gap, rate

    def _record_run(self, run: Any, *, may_stop: bool = False) -> None:
        """Store the outcome of a run, and warn if it did not converge."""
        rate = run.learning_rate
        self._set_outcome(run.status, max(int(run.steps), 1), run.evidence["gap"], rate)
        if run.status == "converged" or (may_stop and run.status != "diverged"):
            return
        if run.status == "diverged":
            known = self.critical_learning_rate_
            limit = "" if known is None else f" No minimizer is stable above {known:.3g} (2/S_min)."
            advice = (
                f"Descent diverged at step {run.steps} with learning rate {rate:.3g}.{limit} Pass "
                "a smaller one, or learning_rate='auto'."
            )
        else:
            advice = (
                f"Training stopped after {run.steps} steps at R − R_min = {self.gap_:.3g}. "
                "Standardize the inputs (StandardScaler in a pipeline), raise max_iter or tol, or "
                "pass solver='closed_form'."
            )
        warnings.warn(advice, ConvergenceWarning, stacklevel=5)

    def _start(self, problem: Any, key: Any, width: int, name: str) -> dl.Network:
        return dl.training.starting_network(
            problem, key, depth=self.depth, width=width, initialization=name, scale=self.scale
        )

    def _descend(self, problem: Any, start: dl.Network, key: Any, **options: Any) -> Any:
        options |= {"optimizer": self._spec(), "tolerance": self.tol, "key": key}
        return dl.training.descend(problem, start, self.learning_rate, self.max_iter, **options)

    def _decayed_network(self, problem: dl.Problem, width: int) -> dl.Network | None:
        """Return the minimum with weight decay (X-9, X-15) if requested or zero, else None."""
        minimum = dl.theory.decayed_minimum(problem, self.depth, self.weight_decay)
        self.critical_learning_rate_ = minimum.critical_learning_rate(self.momentum)
        if minimum.collapsed:
            warnings.warn(COLLAPSED_WARNING.format(self.weight_decay), stacklevel=5)
        wanted = minimum.collapsed or self.solver == "closed_form"
        return minimum.attaining(width) if wanted else None


class DeepLinearRegressor(MultiOutputMixin, RegressorMixin, _DeepLinearModel):
    """Least squares by training a deep linear network, x ↦ W_L … W_1 x.

    If the solution is unique, the coefficients are those of `LinearRegression`. Otherwise they are
    the interpolant that the initialization leads to: the one of minimal norm by default, for
    `solver="closed_form"` (the limit of vanishing initialization), and whenever X-6 holds.

    Parameters
    ----------
    depth : number of layers L.
    width : number of hidden units; by default at most 32, but enough for the targets.
    initialization : "auto" (a first layer of zeros, then orthogonal layers of the size of the
        solution: deep networks train well, and the solution of minimal norm is found),
        "gaussian", "zero_layer", "residual", "identity", "balanced", "torch", "xavier", "he" or
        "orthogonal".
    scale : scale of the initialization; by default near the size of the solution.
    learning_rate : a number, or "auto": the advised rate, halved while training diverges.
    solver : "descent", "flow", or "closed_form" (the balanced minimizer, without training).
    max_iter : maximum number of steps of descent or of the solver of the flow.
    tol : training ends when R − R_min is at most this fraction of R_0 − R_min.
    momentum : heavy-ball β of descent.
    batch_size : number of rows in a mini-batch of descent; None: all rows. If the data cannot be
        interpolated, descent on mini-batches does not settle at a constant rate.
    weight_decay : λ of the penalty λΣ‖W_k‖_F² on the mean squared error (X-9).
    fit_intercept : whether to subtract the means of inputs and targets first.
    random_state : seed of the initialization and the batches.

    Attributes
    ----------
    coef_, intercept_, n_features_in_, n_iter_ : as in scikit-learn.
    weights_, readout_ : the trained layers; `network_` combines them.
    status_, gap_, learning_rate_, critical_learning_rate_ : outcome of the training; above the
        critical rate no solution is stable (X-7, X-9).

    Notes
    -----
    With the default tol the coefficients agree with those of `LinearRegression` to a relative
    accuracy of about 1e-6·√(Λ/λ), where Λ/λ is the condition number of the covariance of the data:
    `tol` bounds R − R_min, and λ‖w − w*‖² ≤ R − R_min. Descent takes about Λ/λ steps or more, so
    inputs of very different sizes should be standardized; a warning reports training that did not
    converge.

    Examples
    --------
    >>> import numpy as np
    >>> from deeplin.sklearn import DeepLinearRegressor
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> model = DeepLinearRegressor(depth=3, random_state=0).fit(X, X @ [1.0, 2.0, 3.0])
    >>> model.coef_.round(3)
    array([1., 2., 3.])
    """

    _solvers = ("descent", "flow", "closed_form")

    def fit(self, X, y, sample_weight=None):
        """Train on X (n×d) and y (n) or Y (n×q), with optional sample weights."""
        X, Y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True)
        Y = np.asarray(Y, dtype=np.float64)
        self._check_parameters()
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
            if np.any(weights < 0) or not np.any(weights > 0):
                raise InputError("sample_weight must not be negative, nor zero for all samples.")
            used = weights > 0
            X, Y, weights = X[used], Y[used], weights[used] / weights[used].mean()
        X, Y, mean = _centered(X, Y, weights, self.fit_intercept)
        if self.solver == "closed_form" and not self.weight_decay:
            theta = self._solve(X, Y.reshape(len(Y), -1))
        else:
            theta = self._fit_network(dl.Problem.from_data(X, Y))
        return self._set_coefficients(theta, mean, Y.ndim == 1)

    def predict(self, X):
        """Return the predictions X·coef_ᵀ + intercept_."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return X @ self.coef_.T + self.intercept_

    def _set_coefficients(self, theta: np.ndarray, mean: np.ndarray, single: bool):
        """Set coefficients and intercepts from the product for centered data."""
        intercept = mean[len(theta) :] - mean[: len(theta)] @ theta
        self.coef_ = theta[:, 0] if single else theta.T
        self.intercept_ = float(intercept[0]) if single else intercept
        return self

    # --- the closed form: layers and critical rate are computed on first access ------------------

    def _solve(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """Return the solution of minimal norm, Θ* = V S⁺ Uᵀ Y with X = U S Vᵀ."""
        left, singular, right = np.linalg.svd(X, full_matrices=False)
        keep = singular > np.finfo(np.float64).eps * max(X.shape) * singular[0]
        coordinates = left[:, keep].T @ Y / singular[keep, None]
        for name in ("weights_", "critical_learning_rate_"):  # of an earlier fit
            vars(self).pop(name, None)
        self._set_outcome("converged", 1, 0.0, None)
        self.readout_ = None
        self._spectrum = (singular[keep] ** 2 / len(X), coordinates)
        theta = right[keep].T @ coordinates
        if self.width is not None and self.width < min(Y.shape[1], X.shape[1]):
            self._factors(theta)  # raises if the width is too small
        return theta

    @cached_property
    def weights_(self) -> tuple[np.ndarray, ...]:
        """The layers; those of the closed form are computed on first access."""
        return self._factors(np.atleast_2d(self.coef_).T)

    @cached_property
    def critical_learning_rate_(self) -> float | None:
        """The critical rate; that of the closed form is computed on first access."""
        eigenvalues, coordinates = self._spectrum
        if not np.any(coordinates):
            return None
        cross = eigenvalues[:, None] * coordinates
        power = coordinates.T @ cross
        problem = dl.Problem.from_moments(np.diag(eigenvalues), cross, power, len(eigenvalues))
        return dl.theory.critical_learning_rate(problem, self.depth)

    def _factors(self, theta: np.ndarray) -> tuple[np.ndarray, ...]:
        from deeplin.theory.balanced import balanced_factors

        d, q = theta.shape
        width = max(min(d, 32), min(d, q)) if self.width is None else self.width
        return tuple(map(np.asarray, balanced_factors(theta, self.depth, width).weights))

    # --- training --------------------------------------------------------------------------------

    def _train(self, problem: dl.Problem, key: Any) -> dl.Network:
        import jax

        from deeplin.networks.initialize import default_width
        from deeplin.theory.balanced import balanced_network

        width = default_width(problem) if self.width is None else self.width
        if problem.rank == 0 or problem.optimum_norm == 0:
            return balanced_network(problem, self.depth, width)
        advice = dl.training.advise(problem, self.depth, self._spec())
        self.critical_learning_rate_ = advice.critical_learning_rate
        found = self._decayed_network(problem, width) if self.weight_decay else None
        if found is not None:
            return found
        if self.solver == "closed_form":
            return balanced_network(problem, self.depth, width)
        start = self._start(problem, key, width, self.initialization)
        # With fewer samples than inputs, training in the span of the samples is equivalent,
        # except with weight decay, which also changes the weights outside of the span.
        inside = problem.samples < problem.dimension and not (self.weight_decay or self.batch_size)
        reduction = dl.reduce(problem, start) if inside else None
        reduced = (problem, start) if reduction is None else (reduction.problem, reduction.network)
        if self.solver == "flow":
            gap = self.tol * problem.zero_gap
            run = dl.gradient_flow(*reduced, gap=gap, max_steps=self.max_iter)
        else:
            run = self._descend(*reduced, jax.random.fold_in(key, 1))
        self._record_run(run)
        return run.network if reduction is None else reduction.lift(run.network)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        return tags


class DeepLinearClassifier(ClassifierMixin, _DeepLinearModel):
    """Classification by a deep linear network: logistic loss for two classes, else softmax.

    If the risk has a minimizer, the predictions are those of `LogisticRegression(C=np.inf)`. It has
    none if a hyperplane separates the classes (X-16): training then ends when every sample is
    classified correctly.

    Parameters
    ----------
    depth : number of layers L.
    width : number of hidden units; by default at most 32, but enough for the classes.
    initialization : "auto" (a first layer of zeros, then orthogonal layers), or a name that
        `DeepLinearRegressor` accepts.
    scale : scale of the initialization.
    learning_rate : a number, or "auto": at most half of the critical rate, halved while
        training diverges.
    solver : "descent", or "closed_form" (the balanced minimizer, found by Newton's method).
    max_iter : maximum number of steps of descent.
    tol : training ends when R − R_min is at most this fraction of R_0 − R_min, R_0 = R(0).
    momentum : heavy-ball β of descent.
    batch_size : number of rows in a mini-batch of descent; None: all rows. If the classes
        overlap, descent on mini-batches does not settle at a constant rate.
    weight_decay : λ of the penalty λΣ‖W_k‖_F² on the mean loss (X-15). For three or more classes
        the minimum is not known beforehand: training ends when 1000 steps lower the objective by at
        most `tol` times the loss of equal chances.
    fit_intercept : whether to add a constant input; its weights are penalized like all others.
    random_state : seed of the initialization and the batches.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_, n_iter_ : as in scikit-learn.
    weights_ : the trained layers; the last column of the first belongs to the constant input.
    status_, gap_, learning_rate_, critical_learning_rate_ : outcome of the training; above the
        critical rate no minimizer is stable (X-14, X-15, X-17); None if it is not known.

    Examples
    --------
    >>> import numpy as np
    >>> from deeplin.sklearn import DeepLinearClassifier
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> y = np.where(X[:, 0] + np.random.default_rng(1).normal(size=50) > 0, "yes", "no")
    >>> model = DeepLinearClassifier(depth=3, random_state=0).fit(X, y)
    >>> model.predict_proba(X).shape
    (50, 2)
    """

    _solvers = ("descent", "closed_form")

    def fit(self, X, y):
        """Train on X (n×d) and labels y (n)."""
        X, y = map(np.asarray, validate_data(self, X, y, dtype=np.float64))
        check_classification_targets(y)
        self._check_parameters()
        rows = np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X
        several = len(np.unique(y)) > 2
        problem: Any = dl.Problem.from_data(rows, y, "softmax" if several else "logistic")
        self.classes_ = np.asarray(problem.classes)
        theta = self._fit_network(problem)
        self.coef_ = theta[: X.shape[1]].T
        self.intercept_ = theta[-1] if self.fit_intercept else np.zeros(theta.shape[1])
        return self

    def decision_function(self, X):
        """Return X·coef_ᵀ + intercept_, of shape (n,) for two classes, else (n, classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        values = X @ self.coef_.T + self.intercept_
        return values[:, 0] if values.shape[1] == 1 else values

    def predict_proba(self, X):
        """Return the probability of each class, of shape (n, classes)."""
        values = self.decision_function(X)
        return expit(np.stack([-values, values], 1)) if values.ndim == 1 else softmax(values, 1)

    def predict_log_proba(self, X):
        """Return the logarithm of `predict_proba`, finite even where that rounds to 0."""
        values = self.decision_function(X)
        if values.ndim == 1:
            return log_expit(np.stack([-values, values], 1))
        return log_softmax(values, 1)

    def predict(self, X):
        """Return the most probable class of each sample."""
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(int) if values.ndim == 1 else values.argmax(1)]

    def _train(self, problem: Any, key: Any) -> dl.Network:
        import jax

        from deeplin.theory.balanced import balanced_factors

        q = problem.outputs
        width = max(q, min(32, problem.dimension)) if self.width is None else self.width
        softmax_decay = self.weight_decay > 0 and q > 1
        if softmax_decay and self.solver == "closed_form":
            raise InputError(
                "solver='closed_form' knows no minimum with weight_decay for three or more "
                "classes; pass solver='descent', or weight_decay=0."
            )
        found = self._decayed_network(problem, width) if self.weight_decay and q == 1 else None
        if found is not None:
            return found
        solvable = problem.has_minimizer and problem.rank > 0 and problem.optimum_norm > 0
        if solvable and q == 1 and not self.weight_decay:
            self.critical_learning_rate_ = dl.theory.critical_learning_rate(
                problem, self.depth, momentum=self.momentum
            )
        if self.solver == "closed_form":  # the last iterate separates separable classes
            from deeplin.problems.problem import as_columns  # its package imports JAX

            return balanced_factors(as_columns(problem.last_iterate, q), self.depth, width)
        automatic = self.initialization == "auto"
        name = "orthogonal" if automatic else self.initialization
        start = self._start(problem, key, width, name)
        if automatic:
            start = dl.Network([0 * start.weights[0], *start.weights[1:]])
        options: dict[str, Any] = {"gap": None} if self.weight_decay else {}
        if self.learning_rate == "auto":
            # Twice this rate is stable at the start. The rate of the regressor, from S_bal, would
            # take two to five times as many steps if the classes are separable.
            sharp = float(dl.sharpness(problem, start).value)
            limits = [(self.critical_learning_rate_ or np.inf) / 2, 1 / sharp if sharp > 0 else 1]
            options["first_rate"] = (1 - self.momentum) * min(limits)
        key = jax.random.fold_in(key, 1)
        if softmax_decay:
            run = self._descend_until_still(problem, start, key, **options)
        else:
            run = self._descend(problem, start, key, **options)
        self._record_run(run, may_stop=self.weight_decay > 0)
        return run.network

    def _descend_until_still(self, problem: Any, network: Any, key: Any, **options: Any) -> Any:
        """Descend until PIECE steps lower R + λΣ‖W_k‖² by at most `tol` of R(0).

        With weight decay and three or more classes the minimum is not known beforehand.
        """
        rate, taken, before, still = self.learning_rate, 0, np.inf, False
        options |= {"optimizer": self._spec(), "key": key}
        while not still and taken < self.max_iter:
            steps = min(PIECE, self.max_iter - taken)
            run = dl.training.descend(problem, network, rate, steps, **options)
            rate, network, taken = run.learning_rate, run.network, taken + int(run.steps)
            if run.status == "diverged":
                break
            decay = self.weight_decay * sum(float(np.sum(np.square(w))) for w in network.weights)
            objective = float(run.evidence["risk"]) + decay
            still = before - objective <= self.tol * problem.zero_risk
            before = objective
        status = "converged" if still else run.status
        return replace(run, steps=taken, status=status)


def _centered(X, Y, weights, center: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows minus their mean, times the square roots of their weights, and the mean."""
    columns = Y.reshape(len(Y), -1)
    mean_x, mean_y = np.zeros(X.shape[1]), np.zeros(columns.shape[1])
    if center:
        mean_x, mean_y = (np.average(part, axis=0, weights=weights) for part in (X, columns))
    scale = 1.0 if weights is None else np.sqrt(weights)[:, None]
    targets = (scale * (columns - mean_y)).reshape(Y.shape)
    return scale * (X - mean_x), targets, np.concatenate([mean_x, mean_y])
