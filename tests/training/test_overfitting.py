"""What the samples say about interpolation, against known populations and brute force."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import deeplin as dl
from deeplin.training.overfitting import estimate_overfitting
from deeplin.training.scores import leave_one_out_errors


def _samples(rng, spectrum, n=100, noise=0.3):
    spectrum = np.asarray(spectrum)
    X = rng.normal(size=(n, len(spectrum))) * np.sqrt(spectrum)
    optimum = np.zeros(len(spectrum))
    optimum[:3] = 1.0
    return X, X @ optimum + noise * rng.normal(size=n)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("samples", [9, 30])
def test_leaving_one_out_needs_no_refitting(rng, samples, centred):
    X, y = rng.normal(size=(samples, 14)) + 1, rng.normal(size=samples) + 1
    mean_x, mean_y = (X.mean(axis=0), y.mean()) if centred else (0.0, 0.0)
    problem = dl.Problem.from_data(X - mean_x, y - mean_y)
    errors = leave_one_out_errors(problem, centered=centred)[:, 0]
    for i in range(samples):
        rest = np.arange(samples) != i
        model = LinearRegression(fit_intercept=centred).fit(X[rest], y[rest])
        assert errors[i] == pytest.approx(y[i] - model.predict(X[[i]])[0], rel=1e-8)


def test_a_sample_of_zeros_is_predicted_as_zero(rng):
    X, y = rng.normal(size=(9, 14)), rng.normal(size=9)
    X[4] = 0
    errors = leave_one_out_errors(dl.Problem.from_data(X, y))[:, 0]
    assert errors[4] == y[4]
    model = LinearRegression(fit_intercept=False).fit(X[1:], y[1:])
    assert errors[0] == pytest.approx(y[0] - model.predict(X[:1])[0], rel=1e-8)


def test_the_verdict_follows_the_measured_risk(rng):
    benign = estimate_overfitting(dl.Problem.from_data(*_samples(rng, [1.0] * 5 + [1e-3] * 3000)))
    assert benign.verdict == "benign"
    # For a benign problem the error is nearly the noise itself, 0.09.
    assert benign.leave_one_out < 2 * 0.09 < benign.zero_error
    harmful = estimate_overfitting(dl.Problem.from_data(*_samples(rng, [1.0] * 120)))
    assert harmful.verdict != "benign"
    assert harmful.leave_one_out > harmful.zero_error / 5


def test_more_samples_than_inputs_are_refused(problem):
    with pytest.raises(dl.InputError, match="more inputs than samples"):
        estimate_overfitting(problem)


def test_pure_noise_is_not_called_benign_whatever_the_spectrum(rng):
    X, y = rng.normal(size=(50, 2000)), rng.normal(size=50)
    report = estimate_overfitting(dl.Problem.from_data(X, y))
    assert not report.beats_zero
    assert report.verdict == "harmful"


def test_a_sample_that_decides_its_own_fit_has_no_left_out_error():
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    errors = leave_one_out_errors(dl.Problem.from_data(X, np.array([1.0, 2.0, 1.0])))
    assert np.isnan(errors[0, 0])
    assert np.isfinite(errors[1:]).all()
