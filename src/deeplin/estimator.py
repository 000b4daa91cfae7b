"""A scikit-learn regressor whose coefficients are the product of a deep linear network."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from deeplin.checks import InputError, positive_number, whole_number
from deeplin.dynamics import Run, gradient_flow
from deeplin.dynamics.reduction import reduce
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.theory import critical_learning_rate
from deeplin.theory.minimizers import balanced_network
from deeplin.training.recipe import default_width, descend, starting_network

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
    initialization : "gaussian", "zero_layer", "residual", "identity" or "balanced".
    scale : its scale; by default one near the size of the solution.
    learning_rate : a number, or "auto": 1/S_bal, halved while it diverges.
    solver : "descent", "flow", or "closed_form" (the balanced minimiser, nothing is trained).
    max_steps : most steps of descent or of the flow's solver.
    tolerance : training ends when R − R_min is at most this part of what there is to explain.
    fit_intercept : whether to subtract the means of inputs and targets first.
    random_state : seed of the initialisation.

    Attributes
    ----------
    coef_, intercept_, n_features_in_, n_iter_ : as in scikit-learn.
    weights_, readout_ : the trained layers; `network_` puts them together.
    status_, gap_, learning_rate_, critical_learning_rate_ : how the training went (2/S_min for one
        target).

    Examples
    --------
    >>> import numpy as np
    >>> from deeplin.estimator import DeepLinearRegressor
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
        initialization="gaussian",
        scale=None,
        learning_rate="auto",
        solver="descent",
        max_steps=100_000,
        tolerance=1e-12,
        fit_intercept=True,
        random_state=None,
    ):
        self.depth = depth
        self.width = width
        self.initialization = initialization
        self.scale = scale
        self.learning_rate = learning_rate
        self.solver = solver
        self.max_steps = max_steps
        self.tolerance = tolerance
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(self, X, y):
        """Train on X (n×d) and y (n) or Y (n×q)."""
        checked = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True)
        X, Y = (np.asarray(values, dtype=np.float64) for values in checked)
        self._check_parameters()
        mean_x = X.mean(axis=0) if self.fit_intercept else np.zeros(X.shape[1])
        mean_y = Y.mean(axis=0) if self.fit_intercept else np.zeros(Y.shape[1:])
        problem = Problem.from_data(X - mean_x, Y - mean_y)
        with jax.enable_x64(True):  # scikit-learn's users have not switched float64 on
            network = self._train(problem)
            self.weights_ = tuple(np.asarray(weight) for weight in network.weights)
            self.readout_ = None if network.readout is None else np.asarray(network.readout)
            product = np.asarray(network.product).reshape(problem.dimension, -1)
        self.coef_ = product[:, 0] if Y.ndim == 1 else product.T
        intercept = mean_y - mean_x @ self.coef_.T
        self.intercept_ = float(intercept) if Y.ndim == 1 else intercept
        return self

    def predict(self, X):
        """Predictions X·coef_ + intercept_."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
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
        positive_number("tolerance", self.tolerance)
        whole_number("depth", self.depth)
        whole_number("max_steps", self.max_steps)

    def _train(self, problem: Problem) -> Network:
        """Train as asked, keep the evidence, return the network."""
        self.status_, self.n_iter_, self.gap_, self.learning_rate_ = "converged", 0, 0.0, None
        signal = problem.rank > 0 and problem.optimum_norm > 0
        self.critical_learning_rate_ = (
            critical_learning_rate(problem, self.depth) if signal and problem.outputs == 1 else None
        )
        width = default_width(problem) if self.width is None else self.width
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
        # Fewer samples than inputs: the same training in the span of the samples.
        reduction = reduce(problem, start) if problem.samples < problem.dimension else None
        run = (
            self._run(problem, start)
            if reduction is None
            else self._run(reduction.problem, reduction.network)
        )
        self.status_, self.n_iter_ = run.status, int(run.steps)
        self.gap_, self.learning_rate_ = run.evidence["gap"], run.learning_rate
        if run.status != "converged":
            warnings.warn(self._advice(run), ConvergenceWarning, stacklevel=3)
        return run.network if reduction is None else reduction.lift(run.network)

    def _run(self, problem: Problem, start: Network) -> Run:
        goal = self.tolerance * problem.zero_gap
        if self.solver == "flow":
            return gradient_flow(problem, start, gap=goal, max_steps=self.max_steps)
        return descend(problem, start, self.learning_rate, self.max_steps, gap=goal)

    def _advice(self, run: Run) -> str:
        if run.status == "diverged":
            known = self.critical_learning_rate_
            limit = "" if known is None else f" No minimiser is stable above {known:.3g} (2/S_min)."
            return (
                f"Descent diverged at step {run.steps} with learning rate "
                f"{run.learning_rate:.3g}.{limit} Pass a smaller one, or learning_rate='auto'."
            )
        return (
            f"Training stopped after {run.steps} steps at R − R_min = {self.gap_:.3g}. Standardise "
            "the inputs, raise max_steps or tolerance, or pass solver='closed_form'."
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        return tags
