"""The regressor keeps scikit-learn's contract and ends where the theory says."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import deeplin as dl
from deeplin.sklearn import DeepLinearRegressor


@pytest.mark.extended
@parametrize_with_checks([DeepLinearRegressor(), DeepLinearRegressor(solver="closed_form")])
def test_scikit_learn_finds_nothing_wrong(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # otherwise one check skips itself
    before = estimator.get_params()
    check(estimator)
    assert estimator.get_params() == before


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture
def underdetermined(rng):
    X = rng.normal(size=(6, 15))
    return X, X @ rng.normal(size=15)


def _within(model, X, y, reference):
    """λ‖w − w*‖² ≤ R − R_min (FM-L8), with the gap that the tolerance allows."""
    centred = X - X.mean(axis=0)
    smallest = np.linalg.eigvalsh(centred.T @ centred / len(X))[0]
    explained = np.sum(np.var(y, axis=0)) - np.sum(np.mean((y - reference.predict(X)) ** 2, axis=0))
    allowed = np.sqrt(model.tol * explained / smallest)
    assert np.linalg.norm(model.coef_ - reference.coef_) <= allowed
    np.testing.assert_allclose(
        model.intercept_, reference.intercept_, atol=np.abs(X.mean(axis=0)).sum() * allowed + 1e-10
    )


@pytest.mark.parametrize("depth", [1, 2, 10])
def test_a_unique_solution_is_that_of_linear_regression(diabetes, depth):
    X, y = diabetes
    model = DeepLinearRegressor(depth=depth, random_state=1).fit(X, y)
    assert model.status_ == "converged"
    _within(model, X, y, LinearRegression().fit(X, y))


@pytest.mark.parametrize("initialization", ["zero_layer", "residual", "identity", "balanced"])
def test_every_initialisation_finds_it(rng, initialization):
    X = rng.normal(size=(40, 4)) + 2
    y = X @ rng.normal(size=4) + rng.normal(size=40)
    model = DeepLinearRegressor(depth=3, initialization=initialization, random_state=0).fit(X, y)
    _within(model, X, y, LinearRegression().fit(X, y))
    layers = model.network_
    np.testing.assert_allclose(np.asarray(layers.product), model.coef_, rtol=1e-10)


def test_several_targets_are_fitted_together(rng):
    X, Y = make_regression(60, 5, n_targets=3, noise=2.0, random_state=0)
    model = DeepLinearRegressor(depth=3, random_state=0).fit(X, Y)
    assert model.coef_.shape == (3, 5)
    assert model.learning_rate_ < model.critical_learning_rate_
    _within(model, X, Y, LinearRegression().fit(X, Y))


def test_the_flow_ends_at_the_same_coefficients(rng):
    X = rng.normal(size=(40, 3))
    y = X @ rng.normal(size=3) + rng.normal(size=40)
    model = DeepLinearRegressor(solver="flow", tol=1e-9, random_state=0).fit(X, y)
    assert model.learning_rate_ is None
    _within(model, X, y, LinearRegression().fit(X, y))


@pytest.mark.parametrize("options", [{"solver": "closed_form"}, {"scale": 0.0}])
def test_the_minimum_norm_interpolant_is_found_where_the_theory_says_so(underdetermined, options):
    X, y = underdetermined
    model = DeepLinearRegressor(
        depth=3, width=20, initialization="identity", fit_intercept=False, random_state=0, **options
    ).fit(X, y)
    expected = np.linalg.pinv(X) @ y
    np.testing.assert_allclose(model.coef_, expected, atol=1e-5 * np.linalg.norm(expected))


def test_a_large_random_start_interpolates_elsewhere(underdetermined):
    X, y = underdetermined
    model = DeepLinearRegressor(
        initialization="gaussian", scale=0.5, fit_intercept=False, random_state=0
    ).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-4)
    assert np.linalg.norm(model.coef_) > 1.01 * np.linalg.norm(np.linalg.pinv(X) @ y)


def test_thousands_of_inputs_train_in_the_span_of_few_samples(rng):
    X = rng.normal(size=(10, 3000))
    y = rng.normal(size=10)
    model = DeepLinearRegressor(depth=2, width=3, random_state=0).fit(X, y)
    assert model.weights_[0].shape == (3, 3000)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-4)


def test_it_works_in_pipelines_and_grid_searches(diabetes):
    X, y = diabetes
    pipeline = make_pipeline(StandardScaler(), DeepLinearRegressor(random_state=0))
    grid = {"deeplinearregressor__depth": [1, 2], "deeplinearregressor__tol": [1e-6]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X[:100], y[:100])
    assert search.best_score_ > 0.2


def test_a_constant_target_is_its_mean():
    X = np.arange(8.0).reshape(4, 2)
    model = DeepLinearRegressor().fit(X, np.full(4, 3.0))
    np.testing.assert_array_equal(model.predict(X), np.full(4, 3.0))


def test_too_few_steps_and_too_large_rates_warn_with_advice(diabetes):
    X, y = diabetes
    with pytest.warns(ConvergenceWarning, match=r"stopped after 5 steps.*closed_form"):
        DeepLinearRegressor(max_iter=5, random_state=0).fit(X, y)
    rate = 3 * DeepLinearRegressor(solver="closed_form").fit(X, y).critical_learning_rate_
    with pytest.warns(ConvergenceWarning, match="2/S_min"):
        model = DeepLinearRegressor(learning_rate=rate, random_state=0).fit(X, y)
    assert model.status_ == "diverged"
    assert np.all(np.isfinite(model.predict(X)))


def test_the_same_seed_gives_the_same_weights_and_a_pickle_keeps_them(diabetes):
    X, y = diabetes
    one, other = (DeepLinearRegressor(max_iter=50, random_state=3) for _ in range(2))
    with pytest.warns(ConvergenceWarning):
        one.fit(X, y)
    with pytest.warns(ConvergenceWarning):
        other.fit(X, y)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.predict(X), one.predict(X))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"solver": "newton"}, "solver is 'newton'"),
        ({"depth": 0}, "depth"),
        ({"width": 0}, "width"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"tol": 0.0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"initialization": "ones"}, "initialization is 'ones'"),
        ({"scale": -1.0}, "scale"),
    ],
)
def test_bad_parameters_are_refused_when_fitting(options, sentence):
    X = np.random.default_rng(0).normal(size=(10, 2))
    with pytest.raises(dl.InputError, match=sentence):
        DeepLinearRegressor(**options).fit(X, X[:, 0])


def test_weights_are_repetitions_of_samples(diabetes):
    X, y = diabetes
    counts = np.random.default_rng(0).integers(0, 3, size=len(y))
    weighted = DeepLinearRegressor(random_state=0).fit(X, y, sample_weight=counts)
    repeated = DeepLinearRegressor(random_state=0).fit(
        np.repeat(X, counts, axis=0), np.repeat(y, counts)
    )
    reference = LinearRegression().fit(X, y, sample_weight=counts)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(weighted.predict(X), reference.predict(X), rtol=1e-4)


def test_weight_decay_ends_at_the_decayed_minimum(diabetes):
    X, y = diabetes
    target = (y - y.mean()) / y.std()
    model = DeepLinearRegressor(3, solver="closed_form", weight_decay=0.01).fit(X, target)
    problem = dl.Problem.from_data(X - X.mean(axis=0), target - target.mean())
    minimum = dl.theory.decayed_minimum(problem, 3, weight_decay=0.01)
    np.testing.assert_allclose(model.coef_, minimum.product, rtol=1e-10)
    assert model.critical_learning_rate_ == pytest.approx(2 / minimum.sharpness, rel=1e-12)
    with pytest.raises(dl.InputError, match="weight_decay is for"):
        DeepLinearRegressor(solver="flow", weight_decay=0.01).fit(X, target)


def test_the_critical_rate_is_known_for_several_targets(diabetes):
    X, y = diabetes
    Y = np.c_[y, X[:, 0] + 0.1 * y]
    model = DeepLinearRegressor(2, solver="closed_form").fit(X, Y)
    problem = dl.Problem.from_data(X - X.mean(axis=0), Y - Y.mean(axis=0))
    expected = 2 / dl.theory.minimal_sharpness(problem, 2).exact
    assert model.critical_learning_rate_ == pytest.approx(expected, rel=1e-9)


def test_too_strong_weight_decay_gives_the_zero_network_and_says_so(diabetes):
    X, target = diabetes
    with pytest.warns(UserWarning, match="zero network"):
        model = DeepLinearRegressor(3, weight_decay=1e6).fit(X, np.stack([target, -target], axis=1))
    assert not np.any(model.coef_)
    assert model.critical_learning_rate_ == pytest.approx(1e-6, rel=1e-12)  # 2/(2λ)


def test_trained_with_weight_decay_it_is_the_decayed_minimum():
    """From this start the risk falls below that of the minimum before the weights are there."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 3)), 10 * rng.normal(size=(20, 3))
    settings = {"depth": 3, "weight_decay": 1.0, "random_state": 0}
    trained = DeepLinearRegressor(**settings).fit(X, Y)
    assert trained.status_ == "converged"
    exact = DeepLinearRegressor(solver="closed_form", **settings).fit(X, Y)
    # maps agree to 1e-4 of what there is to explain, so coefficients to about its root
    np.testing.assert_allclose(trained.coef_, exact.coef_, atol=0.02 * np.abs(exact.coef_).max())


@pytest.mark.parametrize("depth", [2, 20])
def test_the_default_start_finds_the_solution_of_minimal_norm_at_any_depth(rng, depth):
    """Fewer rows than inputs: what no row sees stays zero (X-6); depth 20 does not stall."""
    X = rng.normal(size=(20, 60))
    y = X[:, 0] + 0.1 * rng.normal(size=20)
    model = DeepLinearRegressor(depth=depth, random_state=0, fit_intercept=False).fit(X, y)
    assert model.status_ == "converged"
    np.testing.assert_allclose(model.coef_, np.linalg.pinv(X) @ y, atol=1e-4)


def test_momentum_and_batches_train(rng):
    X = rng.normal(size=(60, 3))
    y = X @ [1.0, -2.0, 0.5]
    for options in ({"momentum": 0.9}, {"batch_size": 10}):
        model = DeepLinearRegressor(random_state=0, fit_intercept=False, **options).fit(X, y)
        np.testing.assert_allclose(model.coef_, [1.0, -2.0, 0.5], atol=1e-4)
    with pytest.raises(dl.InputError, match="for solver='descent'"):
        DeepLinearRegressor(solver="flow", momentum=0.5).fit(X, y)


def test_the_closed_form_and_predictions_need_no_jax(tmp_path):
    """Workers of a search import what they use: JAX takes longer than the rest."""
    code = f"""
import pickle, sys, numpy as np
from deeplin.sklearn import DeepLinearRegressor
X = np.random.default_rng(0).normal(size=(30, 3))
model = DeepLinearRegressor(3, solver="closed_form").fit(X, X @ [1.0, 2.0, 3.0])
trained = pickle.load(open({str(tmp_path / "trained")!r}, "rb"))
for each in (model, pickle.loads(pickle.dumps(model)), trained):
    assert each.score(X, X @ [1.0, 2.0, 3.0]) > 0.999
assert "jax" not in sys.modules
assert np.allclose(model.weights_[2] @ model.weights_[1] @ model.weights_[0], model.coef_)
assert "jax" in sys.modules
"""
    X = np.random.default_rng(0).normal(size=(30, 3))
    trained = DeepLinearRegressor(2, random_state=0).fit(X, X @ [1.0, 2.0, 3.0])
    (tmp_path / "trained").write_bytes(pickle.dumps(trained))
    subprocess.run([sys.executable, "-c", code], check=True)


def test_fitting_again_in_another_way_forgets_what_the_first_found(diabetes):
    X, y = diabetes
    model = DeepLinearRegressor(3, random_state=0).fit(X, y)
    rate = model.critical_learning_rate_
    model.set_params(solver="closed_form", depth=2).fit(X, y)
    assert len(model.weights_) == 2
    assert model.critical_learning_rate_ != rate
    model.set_params(solver="descent", depth=3).fit(X, y)
    assert len(model.weights_) == 3
    assert model.critical_learning_rate_ == rate
    assert not hasattr(model, "nothing_")


@pytest.mark.parametrize("depth", [20, 40])
def test_deep_networks_learn_from_raw_data_and_say_what_is_missing(depth):
    X, y = load_diabetes(return_X_y=True, scaled=False)  # columns from 0.5 to 190
    model = DeepLinearRegressor(depth, random_state=0, max_iter=5000)
    with pytest.warns(ConvergenceWarning, match="Standardize the inputs"):
        model.fit(X, y)
    assert model.score(X, y) > 0.4  # least squares: 0.518
