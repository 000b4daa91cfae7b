"""The classifier keeps scikit-learn's contract and ends where the theory says."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import deeplin as dl
from deeplin.sklearn import DeepLinearClassifier


@pytest.mark.extended
@parametrize_with_checks(
    [DeepLinearClassifier(max_iter=300), DeepLinearClassifier(solver="closed_form")]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_finds_nothing_wrong(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # otherwise one check skips itself
    check(estimator)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("solver", ["descent", "closed_form"])
def test_overlapping_classes_get_the_probabilities_of_logistic_regression(classes, solver):
    X, y = make_classification(
        120, 4, n_informative=3, n_redundant=0, n_classes=classes, flip_y=0.3, random_state=0
    )
    X = StandardScaler().fit_transform(X)
    model = DeepLinearClassifier(3, solver=solver, random_state=0).fit(X, y)
    assert model.status_ == "converged"
    reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(X, y)
    # R − R_min ≤ 1e-10 bounds the deviation by 1e-5 over the root of the smallest curvature, .1
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize("solver", ["descent", "closed_form"])
def test_separable_classes_are_all_classified_right(solver):
    X, y = load_iris(return_X_y=True)
    X, names = X[y < 2], np.array(["setosa", "versicolor"])[y[y < 2]]
    model = DeepLinearClassifier(solver=solver, random_state=0).fit(X, names)
    assert model.critical_learning_rate_ is None
    assert model.score(X, names) == 1


def test_weight_decay_ends_in_the_minimum_of_the_theory():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)[:, :5]
    model = DeepLinearClassifier(2, weight_decay=0.01, solver="closed_form").fit(X, y)
    rows = np.column_stack([X, np.ones(len(X))])
    problem = dl.Problem.from_data(rows, y, loss="logistic")
    minimum = dl.theory.decayed_minimum(problem, 2, 0.01)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), minimum.product)
    trained = DeepLinearClassifier(2, weight_decay=0.01, random_state=0, max_iter=5000).fit(X, y)
    np.testing.assert_allclose(trained.coef_, model.coef_, atol=1e-6)


def test_weight_decay_trains_three_classes_to_the_stationary_point():
    """Two layers with λΣ‖W‖² have the product that minimizes R + 2λ‖Θ‖_*, of which this is one."""
    X, y = load_iris(return_X_y=True)
    X, decay = StandardScaler().fit_transform(X), 0.02
    model = DeepLinearClassifier(2, weight_decay=decay, fit_intercept=False, random_state=0)
    model.fit(X, y)
    assert model.status_ == "converged"
    theta, n = model.coef_.T, len(X)
    chances = softmax(X @ theta, axis=1) - np.eye(3)[y]
    left, sizes, right = np.linalg.svd(theta, full_matrices=False)
    kept = sizes > 1e-6
    slope = left.T @ (X.T @ chances / n) @ right.T
    np.testing.assert_allclose(slope[kept][:, kept], -2 * decay * np.eye(kept.sum()), atol=1e-5)
    assert np.linalg.norm(X.T @ chances / n, 2) <= 2 * decay * (1 + 1e-4)
    assert model.score(X, y) > 0.8


def test_digits_take_few_steps_of_newton_and_all_are_classified_right():
    X, y = load_digits(return_X_y=True)
    model = DeepLinearClassifier(max_iter=20, random_state=0)
    with pytest.warns(ConvergenceWarning, match="20 steps"):
        model.fit(StandardScaler().fit_transform(X), y)
    assert model.n_iter_ == 20
    assert model.critical_learning_rate_ is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"solver": "flow"}, "solver is"), ({"weight_decay": -1}, "weight_decay is -1")],
)
def test_bad_parameters_are_refused(arguments, words):
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(dl.InputError, match=words):
        DeepLinearClassifier(**arguments).fit(X, X[:, 0] > 0)
    with pytest.raises(dl.InputError, match="one class"):
        DeepLinearClassifier().fit(X, np.ones(20))


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"batch_size": 10}])
def test_momentum_and_batches_train(options):
    X, y = load_iris(return_X_y=True)
    model = DeepLinearClassifier(random_state=0, **options).fit(X[:100], y[:100])
    assert model.status_ == "converged"
    assert model.score(X[:100], y[:100]) == 1


def test_with_fewer_samples_than_inputs_nothing_is_learned_outside_of_their_span():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15, 40))
    model = DeepLinearClassifier(3, fit_intercept=False, random_state=0).fit(X, X[:, 0] > 0)
    assert model.score(X, X[:, 0] > 0) == 1
    _, _, rows = np.linalg.svd(X, full_matrices=False)
    outside = model.coef_ - model.coef_ @ rows.T @ rows
    assert np.linalg.norm(outside) < 1e-12 * np.linalg.norm(model.coef_)
