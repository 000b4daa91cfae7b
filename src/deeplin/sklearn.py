"""scikit-learn estimators whose coefficients are the product of a deep linear network."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import scipy.sparse
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from deeplin.compilation import share_compiled_code
from deeplin.dynamics import Run, gradient_descent, gradient_flow
from deeplin.dynamics.reduction import reduce
from deeplin.errors import InputError, positive_number, whole_number
from deeplin.hessian import sharpness
from deeplin.networks import Network, initialize
from deeplin.networks.products import product
from deeplin.problems import Problem
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.problems.moments import Moments
from deeplin.theory import critical_learning_rate, decayed_minimum
from deeplin.theory.minimizers import balanced_factors, balanced_network
from deeplin.training import TrainingSpec, advise, default_width, descend, starting_network

COLLAPSED = "With weight_decay={:g} the best network is the zero network; pass a smaller one."
SOLVERS = ("descent", "flow", "closed_form")


class DeepLinearRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Least squares by training a deep linear network, x ↦ W_L … W_1 x.

    Where the solution is unique the coefficients are those of `LinearRegression`; where it is not,
    they are the interpolant that the chosen initialisation leads to: the one of minimal norm for
    `solver="closed_form"` (the limit of vanishing initialisation) and whenever X-6 holds.

    Parameters
    ----------
    depth : number of layers L.
    width : hidden units; by default at most 32, and enough for the targets.
    initialization : "auto" (orthogonal layers of the size of the solution after a first one of
        zeros: deep networks train, and of several solutions that of minimal norm is found),
        "gaussian", "zero_layer", "residual", "identity", "balanced", "torch", "xavier", "he" or
        "orthogonal".
    scale : its scale; by default one near the size of the solution.
    learning_rate : a number, or "auto": the advised one, halved while it diverges.
    solver : "descent", "flow", or "closed_form" (the balanced minimiser, nothing is trained).
    max_iter : most steps of descent or of the flow's solver.
    tol : training ends when R − R_min is at most this part of what there is to explain.
    momentum : heavy-ball β of descent.
    batch_size : rows of a mini-batch of descent; None: all rows. Where the data cannot be
        interpolated, descent on batches does not settle at a constant rate.
    weight_decay : λ of the penalty λΣ‖W_k‖_F² on the mean squared error (X-9).
    fit_intercept : whether to subtract the means of inputs and targets first.
    random_state : seed of the initialization and the batches.
    max_steps, tolerance : the former names of `max_iter` and `tol`.

    Attributes
    ----------
    coef_, intercept_, n_features_in_, n_iter_ : as in scikit-learn.
    weights_, readout_ : the trained layers; `network_` puts them together.
    status_, gap_, learning_rate_, critical_learning_rate_ : how the training went; above the
        critical rate no solution is stable (X-7, X-9).

    Notes
    -----
    With the default tol the coefficients agree with those of `LinearRegression` to about
    1e-6·√(Λ/λ) of their size, Λ/λ the condition number of the data's covariance; `tol` is a
    bound on R − R_min, and λ‖w − w*‖² ≤ R − R_min. Sparse inputs are read through their moments,
    so a d×d matrix must fit into memory.

    Examples
    --------
    >>> import numpy as np
    >>> from deeplin.sklearn import DeepLinearRegressor
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> model = DeepLinearRegressor(depth=3, random_state=0).fit(X, X @ [1.0, 2.0, 3.0])
    >>> model.coef_.round(3)
    array([1., 2., 3.])
    """

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
        max_steps="deprecated",
        tolerance="deprecated",
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
        self.max_steps = max_steps
        self.tolerance = tolerance

    def __setstate__(self, state):
        """Estimators pickled by version 0.2 have other names of parameters, and fewer."""
        if "max_iter" not in state:
            fresh = type(self)().get_params()
            old = {"max_iter": state.pop("max_steps"), "tol": state.pop("tolerance")}
            state = fresh | state | old
        super().__setstate__(state)

    def fit(self, X, y, sample_weight=None):
        """Train on X (n×d, dense or sparse) and y (n) or Y (n×q), each sample with its weight."""
        X, Y = self._checked(X, y, reset=True)
        self._check_parameters()
        self.moments_ = weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
            if np.any(weights < 0) or not np.any(weights > 0):
                raise InputError("sample_weight must not be negative, nor zero for all samples.")
            used = weights > 0
            X, Y, weights = X[used], Y[used], weights[used] / weights[used].mean()
        if scipy.sparse.issparse(X):
            return self._fit_moments(_sparse_moments(X, Y, weights), Y.ndim == 1)
        problem, mean = _dense_problem(X, Y, weights, self.fit_intercept)
        return self._fit_problem(problem, mean)

    def partial_fit(self, X, y):
        """Add samples to those seen so far, whose moments are kept, and train on all of them."""
        earlier: Moments | None = getattr(self, "moments_", None)
        X, Y = self._checked(X, y, reset=earlier is None, accept_sparse=False)
        self._check_parameters()
        new = Moments.of_rows(X, Y.reshape(len(Y), -1))
        self.moments_ = new if earlier is None else earlier.merge(new)
        return self._fit_moments(self.moments_, Y.ndim == 1)

    def _checked(self, X, y, *, reset: bool, accept_sparse: Any = ("csr", "csc")) -> Any:
        X, Y = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            y_numeric=True,
            multi_output=True,
            accept_sparse=accept_sparse,
            reset=reset,
        )
        return X, np.asarray(Y, dtype=np.float64)

    def _fit_moments(self, moments: Moments, single: bool):
        """Train on data of which only the moments are known."""
        mean = moments.mean if self.fit_intercept else np.zeros_like(moments.shift)
        about_mean = replace(moments, shift=moments.shift - mean)
        problem = Problem.from_accumulated(about_mean, single_target=single)
        return self._fit_problem(problem, mean)

    def _fit_problem(self, problem: Problem, mean: np.ndarray):
        """Train on centred data and turn the result into coefficients and intercepts."""
        mean_x, mean_y = mean[: problem.dimension], mean[problem.dimension :]
        with jax.enable_x64(True):  # scikit-learn's users have not switched float64 on
            network = self._train(problem)
            self.weights_ = tuple(np.asarray(weight) for weight in network.weights)
            self.readout_ = None if network.readout is None else np.asarray(network.readout)
        theta = product(self.weights_, self.readout_)  # NumPy: nothing to compile
        intercept = mean_y - mean_x @ theta
        self.coef_ = theta[:, 0] if problem.single_target else theta.T
        self.intercept_ = float(intercept[0]) if problem.single_target else intercept
        return self

    def predict(self, X):
        """Predictions X·coef_ + intercept_."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False, accept_sparse=("csr", "csc"))
        return X @ self.coef_.T + self.intercept_

    @property
    def network_(self) -> Network:
        """The trained network (float64 where JAX has it switched on)."""
        check_is_fitted(self)
        return Network(self.weights_, self.readout_)

    def _check_parameters(self) -> None:
        if self.solver not in SOLVERS:
            raise InputError(f"solver is {self.solver!r}; pass one of {', '.join(SOLVERS)}.")
        if self.learning_rate != "auto":
            positive_number("learning_rate", self.learning_rate)
        for old, new in (("max_steps", "max_iter"), ("tolerance", "tol")):
            if getattr(self, old) != "deprecated":
                sentence = f"{old} is now called {new}; the old name goes in the next version."
                warnings.warn(sentence, FutureWarning, stacklevel=3)
        positive_number("tol", self._tol)
        spec = self._spec
        if (spec.momentum or spec.batch_size) and self.solver != "descent":
            raise InputError("momentum and batch_size are for solver='descent'.")
        decay = positive_number("weight_decay", self.weight_decay, zero_allowed=True)
        if decay and self.solver == "flow":
            raise InputError("weight_decay is for solver='descent' or 'closed_form'.")
        whole_number("depth", self.depth)
        whole_number("max_iter", self._max_iter)

    @property
    def _max_iter(self) -> Any:
        return self.max_iter if self.max_steps == "deprecated" else self.max_steps

    @property
    def _tol(self) -> Any:
        return self.tol if self.tolerance == "deprecated" else self.tolerance

    @property
    def _spec(self) -> TrainingSpec:
        return TrainingSpec(
            momentum=self.momentum, batch_size=self.batch_size, weight_decay=self.weight_decay
        )

    def _train(self, problem: Problem) -> Network:
        """Train as asked, keep the evidence, return the network."""
        share_compiled_code()  # every worker of a search would compile the same programs
        self.status_, self.n_iter_, self.gap_, self.learning_rate_ = "converged", 1, 0.0, None
        signal = problem.rank > 0 and problem.optimum_norm > 0
        self.critical_learning_rate_ = (
            advise(problem, self.depth, self._spec).critical_learning_rate if signal else None
        )
        width = default_width(problem) if self.width is None else self.width
        if self.weight_decay and signal:
            minimum = decayed_minimum(problem, self.depth, self.weight_decay)
            if minimum.collapsed:
                warnings.warn(COLLAPSED.format(self.weight_decay), stacklevel=4)
            if minimum.collapsed or self.solver == "closed_form":
                return minimum.attaining(width)
        if self.solver == "closed_form" or not signal:
            return balanced_network(problem, self.depth, width)
        key = jax.random.key(check_random_state(self.random_state).randint(2**31 - 1))
        start = starting_network(
            problem,
            key,
            depth=self.depth,
            width=width,
            initialization=self.initialization,
            scale=self.scale,
        )
        # Fewer samples than inputs: the same training in the span of the samples. Weight
        # decay also moves what is outside of it.
        inside = problem.samples < problem.dimension and not (self.weight_decay or self.batch_size)
        reduction = reduce(problem, start) if inside else None
        reduced = (problem, start) if reduction is None else (reduction.problem, reduction.network)
        run = self._run(*reduced, key)
        self.status_, self.n_iter_ = run.status, max(int(run.steps), 1)
        self.gap_, self.learning_rate_ = run.evidence["gap"], run.learning_rate
        if run.status != "converged":
            warnings.warn(self._advice(run), ConvergenceWarning, stacklevel=3)
        return run.network if reduction is None else reduction.lift(run.network)

    def _run(self, problem: Problem, start: Network, key: Any) -> Run:
        if self.solver == "flow":
            gap = self._tol * problem.zero_gap
            return gradient_flow(problem, start, gap=gap, max_steps=self._max_iter)
        return descend(
            problem,
            start,
            self.learning_rate,
            self._max_iter,
            optimizer=self._spec,
            key=jax.random.fold_in(key, 1),
            tolerance=self._tol,
        )

    def _advice(self, run: Run) -> str:
        if run.status == "diverged":
            known = self.critical_learning_rate_
            limit = "" if known is None else f" No minimiser is stable above {known:.3g} (2/S_min)."
            return (
                f"Descent diverged at step {run.steps} with learning rate "
                f"{run.learning_rate:.3g}.{limit} Pass a smaller one, or learning_rate='auto'."
            )
        return (
            f"Training stopped after {run.steps} steps at R − R_min = {self.gap_:.3g}. Standardize "
            "inputs and targets, raise max_iter or tol, or pass solver='closed_form'."
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.input_tags.sparse = True
        return tags


class DeepLinearClassifier(ClassifierMixin, BaseEstimator):
    """Classification by a deep linear network: logistic loss for two classes, else softmax.

    Where the risk has a minimizer the predictions are those of `LogisticRegression(penalty=None)`.
    Classes that a hyperplane separates have none (X-16): training then ends where every sample is
    classified right.

    Parameters
    ----------
    depth : number of layers L.
    width : hidden units; by default at most 32, and enough for the classes.
    scale : standard deviation of the initial weights; by default 1/√(inputs of the layer).
    learning_rate : a number, or "auto": half of the critical rate, halved while it diverges.
    solver : "descent", or "closed_form" (the balanced minimizer, found by Newton's method).
    max_steps : most steps of descent.
    tolerance : training ends when R − R_min is at most this part of R(0) − R_min.
    weight_decay : λ of the penalty λΣ‖W_k‖_F² on the mean loss (X-15), two classes only.
    fit_intercept : whether to add a constant input; its weights are penalized as all others.
    random_state : seed of the initialization.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_, n_iter_ : as in scikit-learn.
    weights_ : the trained layers, the last column of the first for the constant input.
    status_, learning_rate_, critical_learning_rate_ : how the training went; above the critical
        rate no minimizer is stable (X-14, X-15, X-17); None where it is not known.

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

    def __init__(
        self,
        depth=2,
        width=None,
        *,
        scale=None,
        learning_rate="auto",
        solver="descent",
        max_steps=10_000,
        tolerance=1e-10,
        weight_decay=0.0,
        fit_intercept=True,
        random_state=None,
    ):
        self.depth = depth
        self.width = width
        self.scale = scale
        self.learning_rate = learning_rate
        self.solver = solver
        self.max_steps = max_steps
        self.tolerance = tolerance
        self.weight_decay = weight_decay
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(self, X, y):
        """Train on X (n×d) and labels y (n)."""
        X, y = map(np.asarray, validate_data(self, X, y, dtype=np.float64))
        check_classification_targets(y)
        self._check_parameters()
        rows = np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X
        several = len(np.unique(y)) > 2
        problem = Problem.from_data(rows, y, "softmax" if several else "logistic")
        assert isinstance(problem, GeneralizedLinearProblem)
        self.classes_ = np.asarray(problem.classes)
        with jax.enable_x64(True):  # scikit-learn's users have not switched float64 on
            network = self._train(problem)
            self.weights_ = tuple(np.asarray(weight) for weight in network.weights)
        theta = product(self.weights_, None)
        self.coef_ = theta[: X.shape[1]].T
        self.intercept_ = theta[-1] if self.fit_intercept else np.zeros(theta.shape[1])
        return self

    def decision_function(self, X):
        """X·coef_ᵀ + intercept_: (n,) for two classes, else (n, classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        values = X @ self.coef_.T + self.intercept_
        return values[:, 0] if values.shape[1] == 1 else values

    def predict_proba(self, X):
        """The probability of each class, (n, classes)."""
        values = self.decision_function(X)
        return expit(np.stack([-values, values], 1)) if values.ndim == 1 else softmax(values, 1)

    def predict_log_proba(self, X):
        """The logarithm of `predict_proba`, finite also where that is 0."""
        values = self.decision_function(X)
        if values.ndim == 1:
            return log_expit(np.stack([-values, values], 1))
        return log_softmax(values, 1)

    def predict(self, X):
        """The most probable class."""
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(int) if values.ndim == 1 else values.argmax(1)]

    @property
    def network_(self) -> Network:
        """The trained network (float64 where JAX has it switched on)."""
        check_is_fitted(self)
        return Network(self.weights_)

    def _check_parameters(self) -> None:
        if self.solver not in ("descent", "closed_form"):
            raise InputError(f"solver is {self.solver!r}; pass 'descent' or 'closed_form'.")
        if self.learning_rate != "auto":
            positive_number("learning_rate", self.learning_rate)
        positive_number("tolerance", self.tolerance)
        positive_number("weight_decay", self.weight_decay, zero_allowed=True)
        whole_number("depth", self.depth)
        whole_number("max_steps", self.max_steps)

    def _train(self, problem: GeneralizedLinearProblem) -> Network:
        """Train as asked, keep the evidence, return the network."""
        share_compiled_code()
        self.status_, self.n_iter_, self.learning_rate_ = "converged", 0, None
        self.critical_learning_rate_ = None
        d, q = problem.dimension, problem.outputs
        width = max(q, min(32, d)) if self.width is None else whole_number("width", self.width)
        minimum = None
        if self.weight_decay:
            minimum = decayed_minimum(problem, self.depth, self.weight_decay)
            self.critical_learning_rate_ = minimum.critical_learning_rate()
            if minimum.collapsed:
                warnings.warn(COLLAPSED.format(self.weight_decay), stacklevel=4)
        elif problem.has_minimizer and problem.rank > 0 and problem.optimum_norm > 0 and q == 1:
            self.critical_learning_rate_ = critical_learning_rate(problem, self.depth)
        if minimum is not None and (self.solver == "closed_form" or minimum.collapsed):
            return minimum.attaining(width)
        if self.solver == "closed_form":
            found = problem.last_iterate  # on separable data it separates them
            if np.any(found):
                return balanced_factors(found, self.depth, width)
            sizes = [d, *[width] * (self.depth - 1), q]
            return Network([np.zeros((b, a)) for a, b in pairwise(sizes)])
        return self._descended(problem, width)

    def _descended(self, problem: GeneralizedLinearProblem, width: int) -> Network:
        key = jax.random.key(check_random_state(self.random_state).randint(2**31 - 1))
        sizes = (problem.dimension, *[width] * (self.depth - 1), problem.outputs)
        start = initialize.gaussian(key, sizes, scale=1.0 if self.scale is None else self.scale)
        if self.scale is None:
            start = Network([w / np.sqrt(w.shape[1]) for w in start.weights])
        automatic = self.learning_rate == "auto"
        if automatic:
            known = self.critical_learning_rate_ or np.inf
            first = float(sharpness(problem, start).value)
            rate = min(known / 2, 1 / first if first > 0 else 1.0)
        else:
            rate = float(self.learning_rate)
        gap = self.tolerance * problem.zero_gap if problem.has_minimizer else None
        # below it every sample is classified right
        target = None if problem.has_minimizer else np.log(2) / problem.samples
        for _ in range(20):
            run = gradient_descent(
                problem,
                start,
                rate,
                self.max_steps,
                weight_decay=self.weight_decay,
                gap=gap,
                loss_target=target,
            )
            if run.status != "diverged" or not automatic:
                break
            rate /= 2
        self.status_, self.n_iter_, self.learning_rate_ = run.status, int(run.steps), rate
        if run.status != "converged" and not self.weight_decay:
            warnings.warn(
                f"Descent is {run.status} after {run.steps} steps at learning rate {rate:.3g}. "
                "Standardise the inputs, raise max_steps or tolerance, or pass "
                "solver='closed_form'.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return run.network


def _dense_problem(X, Y, weights, centre: bool) -> tuple[Problem, np.ndarray]:
    """The problem of weighted rows about their mean, and that mean (inputs, then targets)."""
    columns = Y.reshape(len(Y), -1)
    mean_x, mean_y = np.zeros(X.shape[1]), np.zeros(columns.shape[1])
    if centre:
        mean_x, mean_y = (np.average(part, axis=0, weights=weights) for part in (X, columns))
    scale = 1.0 if weights is None else np.sqrt(weights)[:, None]
    targets = (scale * (columns - mean_y)).reshape(Y.shape)
    return Problem.from_data(scale * (X - mean_x), targets), np.concatenate([mean_x, mean_y])


def _sparse_moments(X, Y, weights) -> Moments:
    """The moments of weighted rows of a sparse matrix, about zero: it never becomes dense."""
    n = len(Y)
    columns = Y.reshape(n, -1)
    rows = scipy.sparse.hstack([X, columns], format="csr")
    weighted = scipy.sparse.diags(np.ones(n) if weights is None else weights) @ rows
    total = np.asarray(weighted.sum(axis=0)).ravel()
    scatter = (rows.T @ weighted).toarray()
    return Moments(n, np.zeros(len(total)), total, scatter, columns.shape[1])
