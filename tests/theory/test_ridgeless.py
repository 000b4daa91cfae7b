"""The expected risk of the minimum-norm interpolant, against draws of the data."""

import numpy as np
import pytest

import deeplin as dl
from deeplin.problems import synthetic
from deeplin.problems.population import Factored, Population
from deeplin.theory import ridgeless_risk


def measured(spectrum, truth, n, draws, seed=0, noise=1.0):
    """Mean and standard error of bias and variance, each given the inputs, over draws of X."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(draws):
        X = rng.normal(size=(n, len(spectrum))) * np.sqrt(spectrum)
        inverse = np.linalg.pinv(X)
        missed = truth - inverse @ (X @ truth)
        bias = np.sum(spectrum[:, None] * missed**2)
        variance = noise**2 * truth.shape[1] * np.sum(spectrum[:, None] * inverse**2)
        parts.append((bias, variance))
    parts = np.array(parts)
    return parts.mean(axis=0), parts.std(axis=0) / np.sqrt(draws)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_ridgeless_risk_agrees_with_draws_for_decaying_spectra(power):
    d, n = 300, 60
    spectrum = np.arange(1, d + 1) ** -power
    truth = np.random.default_rng(1).normal(size=(d, 2)) / np.sqrt(d)
    risk = ridgeless_risk(Population(truth.T, spectrum, noise=0.5), n)
    mean, error = measured(spectrum, truth, n, draws=100, noise=0.5)
    # the limit differs from n = 60 by terms of order 1/n
    np.testing.assert_allclose([risk.bias, risk.variance], mean, rtol=2 / n, atol=4 * error.max())
    assert not risk.exact
    shares = spectrum / (spectrum + risk.kappa)
    assert np.sum(shares) == pytest.approx(n, rel=1e-10)
    assert risk.degrees_of_freedom == pytest.approx(np.sum(shares**2), rel=1e-10)


@pytest.mark.parametrize(("n", "d"), [(3, 12), (10, 30), (12, 3), (30, 10)])
def test_ridgeless_risk_is_exact_for_isotropic_inputs_at_every_size(n, d):
    truth = np.random.default_rng(2).normal(size=(d, 1))
    spectrum = np.full(d, 0.7)
    risk = ridgeless_risk(Population(truth.T, spectrum, noise=1.0), n)
    assert risk.exact
    size = np.sum(truth**2)
    expected = (0.7 * size * (1 - n / d), n / (d - n - 1)) if n < d else (0, d / (n - d - 1))
    np.testing.assert_allclose([risk.bias, risk.variance], expected, rtol=1e-12)
    mean, error = measured(spectrum, truth, n, draws=4000)
    np.testing.assert_allclose(mean, expected, atol=4 * error.max())


def test_ridgeless_risk_with_more_samples_than_inputs_is_exact_for_any_covariance():
    spectrum = np.array([3.0, 1.0, 0.1, 0.02])
    risk = ridgeless_risk(Population(np.ones(4), spectrum, noise=2.0), 12)
    mean, error = measured(spectrum, np.ones((4, 1)), 12, draws=4000, noise=2.0)
    assert risk.exact
    assert risk.bias == 0
    assert risk.variance == pytest.approx(16 / 7)
    assert abs(mean[1] - risk.variance) < 4 * error[1]


def test_the_peak_at_n_equal_d_is_infinite_unless_the_targets_are_noise_free():
    spectrum = np.ones(5)
    for n in (4, 5, 6):
        assert ridgeless_risk(Population(np.ones(5), spectrum), n).total == np.inf
        assert np.isfinite(ridgeless_risk(Population(np.ones(5), spectrum, noise=0.0), n).total)


def test_every_form_of_the_covariance_gives_the_same_ridgeless_risk():
    rng = np.random.default_rng(3)
    factor, truth = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
    dense = factor @ factor.T + 0.1 * np.eye(40)
    eigenvalues, vectors = np.linalg.eigh(dense)
    forms = [
        Population(truth.T, Factored(factor, 0.1)),
        Population(truth.T, dense),
        Population(truth.T, Factored(factor, np.full(40, 0.1) + np.append(1e-13, np.zeros(39)))),
        Population((vectors.T @ truth).T, eigenvalues),
    ]
    risks = [ridgeless_risk(form, 10) for form in forms]
    for risk in risks[1:]:
        assert risk.bias == pytest.approx(risks[0].bias, rel=1e-9)
        assert risk.variance == pytest.approx(risks[0].variance, rel=1e-9)


def test_singular_covariances_count_by_their_rank():
    spectrum = np.append(np.ones(8), np.zeros(5))
    risk = ridgeless_risk(Population(np.ones(13), spectrum), 3)
    smaller = ridgeless_risk(Population(np.ones(8), np.ones(8)), 3)
    assert (risk.bias, risk.variance) == (smaller.bias, smaller.variance)


def test_a_given_truth_is_the_optimum():
    truth = np.array([1.0, -2.0, 0.5, 0.0])
    data = synthetic.from_spectrum(0, [4.0, 1.0, 1.0, 0.1], samples=9, noise=0.0, truth=truth)
    np.testing.assert_allclose(data.problem.optimum, truth, atol=1e-12)
    several = synthetic.from_spectrum(0, [1.0, 1.0], samples=5, noise=0.0, truth=np.eye(2))
    np.testing.assert_allclose(several.problem.optimum, np.eye(2), atol=1e-12)
    with pytest.raises(dl.InputError, match="truth has shape"):
        synthetic.from_spectrum(0, [1.0, 1.0], samples=5, truth=np.ones(3))


def test_draws_of_a_seed_are_those_of_saved_experiments():
    """The draws of a seed are part of saved experiments."""
    rng = np.random.default_rng(7)
    truth = rng.normal(size=(4, 2))
    truth /= np.linalg.norm(truth)
    data = synthetic.from_spectrum(7, np.ones(4), samples=3, outputs=2)
    np.testing.assert_array_equal(data.truth, truth.T)
    np.testing.assert_array_equal(data.problem.inputs, rng.normal(size=(3, 4)))


# --- X-32 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dimension", "kappa", "second", "variance"),
    [
        (500, 0.04418963544615129, 25.8579557588889, 0.3487623793430677),
        (1000, 0.09891079488845204, 16.62714134140292, 0.1994311051452521),
        (2000, 0.20697688841409, 11.0913326242822, 0.1247497342122),
    ],
)
def test_the_equivalents_of_the_benign_data_have_their_reference_values(
    dimension, kappa, second, variance
):
    data = synthetic.spiked(0, dimension)
    risk = ridgeless_risk(Population(data.truth, data.spectrum), 100)
    assert risk.kappa == pytest.approx(kappa, rel=1e-12)
    assert risk.degrees_of_freedom == pytest.approx(second, rel=1e-12)
    assert risk.variance == pytest.approx(3 * variance, rel=1e-12)


def test_one_more_input_than_samples_has_no_mean():
    spectrum = np.array([3.0, 1.0, 0.5, 0.1])
    assert ridgeless_risk(Population(np.ones(4), spectrum), 3).variance == np.inf
    assert np.isfinite(ridgeless_risk(Population(np.ones(4), spectrum), 2).variance)


# --- double descent --------------------------------------------------------------------------


def excess(covariance, truth, noise, n, used, draws, seed=0):
    """Mean excess risk of the minimum-norm solution on the first features, and its error."""
    rng, factor = np.random.default_rng(seed), np.linalg.cholesky(covariance)
    found = []
    for _ in range(draws):
        X = rng.normal(size=(n, len(truth))) @ factor.T
        Y = X @ truth + noise * rng.normal(size=(n, truth.shape[1]))
        theta = np.zeros_like(truth)
        theta[:used] = np.linalg.pinv(X[:, :used]) @ Y
        found.append(np.sum((theta - truth) * (covariance @ (theta - truth))))
    return np.mean(found), np.std(found) / np.sqrt(draws)


@pytest.mark.parametrize("used", [6, 12, 40, 60])
def test_double_descent_is_the_mean_over_draws_with_correlated_features(used):
    rng = np.random.default_rng(4)
    factor = rng.normal(size=(60, 60)) / 8
    covariance = factor @ factor.T + 0.3 * np.eye(60)
    truth, n = rng.normal(size=(60, 2)) / 8, 20
    table = dl.double_descent(Population(truth.T, covariance, noise=0.5), n, [used])
    mean, error = excess(covariance, truth, 0.5, n, used, draws=1500)
    row = table.iloc[0]
    # exact below n; above it the limit of many samples, which at n = 20 is 1/n off
    assert row["method"] == ("exact" if used < n else "equivalent")
    assert abs(row["excess_risk"] - mean) < 4 * error + (0 if used < n else 0.05 * mean)
    assert row["excess_risk"] == row["bias"] + row["variance"]


def test_double_descent_peaks_where_features_meet_samples():
    population = Population(np.ones(60) / 8, np.ones(60), noise=0.5)
    table = dl.double_descent(population, 20, range(1, 61)).set_index("dimension")
    assert list(table.index[np.isinf(table["excess_risk"])]) == [19, 20, 21]
    assert set(table["method"]) == {"exact"}
    assert table["excess_risk"][60] < table["excess_risk"][22]
    # isotropic features are known in closed form on both sides
    missed = 40 / 64
    assert table["bias"][20] == pytest.approx(missed)
    assert table["variance"][10] == pytest.approx((0.25 + 50 / 64) * 10 / 9)
    assert table["variance"][60] == pytest.approx(0.25 * 20 / 39)


def test_every_form_of_the_covariance_gives_the_same_double_descent():
    rng = np.random.default_rng(5)
    factor, truth = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
    forms = (Factored(factor, 0.2), factor @ factor.T + 0.2 * np.eye(40))
    tables = [dl.double_descent(Population(truth.T, form), 10, [4, 25, 40]) for form in forms]
    columns = ["excess_risk", "bias", "variance"]
    np.testing.assert_allclose(tables[0][columns], tables[1][columns], rtol=1e-8)
    diagonal = rng.uniform(0.1, 1.0, size=40)
    forms = (diagonal, np.diag(diagonal))
    tables = [dl.double_descent(Population(truth.T, form), 10, [4, 25, 40]) for form in forms]
    np.testing.assert_allclose(tables[0][columns], tables[1][columns], rtol=1e-8)


def test_more_features_than_there_are_is_refused():
    with pytest.raises(dl.InputError, match="from 1 to"):
        dl.double_descent(Population(np.ones(5), np.ones(5)), 3, [2, 6])


@pytest.mark.parametrize("used", [23, 25, 40])
def test_the_error_of_the_limit_near_the_peak_is_that_of_equal_eigenvalues(used):
    """Eigenvalues that differ by a millionth are no longer exact, but have the same risk."""
    truth, white = np.ones(used) / 8, np.ones(used)
    almost = white + 1e-6 * np.arange(used)
    exact, limit = (
        dl.double_descent(Population(truth, spectrum, noise=1.0), 20, [used]).iloc[0]
        for spectrum in (white, almost)
    )
    assert (exact["method"], exact["error"]) == ("exact", 0.0)
    assert limit["method"] == "equivalent"
    assert exact["variance"] - limit["variance"] == pytest.approx(limit["error"], rel=1e-3)
