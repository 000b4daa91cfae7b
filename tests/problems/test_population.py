"""Exact population risk against sampling-free oracles, for every way to write Σ."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplin.errors import InputError
from deeplin.problems import Factored, Population, population_risk
from deeplin.problems.population import apply_covariance, check_covariance, covariance_spectrum


def _dense(covariance, d):
    """Σ column by column."""
    return apply_covariance(check_covariance(covariance), np.eye(d))


def _covariances(rng, d):
    root = rng.normal(size=(d, d))
    return {
        "diagonal": rng.uniform(0.1, 2, d),
        "dense": root @ root.T,
        "factor": Factored(rng.normal(size=(d, 2))),
        "factor and constant": Factored(rng.normal(size=(d, 3)), 0.5),
        "factor and diagonal": Factored(rng.normal(size=(d, 3)), rng.uniform(0, 1, d)),
        "bare factor": rng.normal(size=(d, 3)),
        "wide factor": Factored(rng.normal(size=(d, 2 * d))),
    }


@pytest.mark.parametrize("kind", _covariances(np.random.default_rng(0), 4))
def test_risk_is_the_quadratic_form_of_the_dense_matrix(kind, rng):
    d, q = 6, 3
    covariance = _covariances(rng, d)[kind]
    theta, optimum = rng.normal(size=(2, q, d))
    sigma = _dense(covariance, d)
    expected = np.trace((theta - optimum) @ sigma @ (theta - optimum).T)
    assert np.allclose(sigma, sigma.T)
    risk = population_risk(theta, optimum=optimum, covariance=covariance)
    assert risk == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("kind", _covariances(np.random.default_rng(0), 4))
def test_spectrum_is_that_of_the_dense_matrix(kind, rng):
    covariance = check_covariance(_covariances(rng, 7)[kind])
    expected = np.linalg.eigvalsh(_dense(covariance, 7))[::-1]
    assert np.allclose(covariance_spectrum(covariance), expected, atol=1e-12 * expected[0])


def test_risk_is_the_mean_squared_error_of_fresh_samples(rng):
    d, q, n = 5, 2, 400_000
    covariance = rng.uniform(0.1, 2, d)
    theta, optimum = rng.normal(size=(2, q, d))
    X = rng.normal(size=(n, d)) * np.sqrt(covariance)
    squares = np.sum((X @ (theta - optimum).T) ** 2, axis=1)
    risk = population_risk(theta, optimum=optimum, covariance=covariance)
    assert abs(risk - squares.mean()) < 5 * squares.std() / np.sqrt(n)


@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 4), st.integers(0, 2**31))
def test_a_batch_has_the_risks_of_its_members(d, q, runs, seed):
    rng = np.random.default_rng(seed)
    thetas, optima = rng.normal(size=(2, runs, q, d))
    covariance = rng.uniform(0, 1, d)
    one_each = population_risk(thetas, optimum=optima, covariance=covariance)
    shared = population_risk(thetas, optimum=optima[0], covariance=covariance)
    for run in range(runs):
        single = population_risk(thetas[run], optimum=optima[run], covariance=covariance)
        assert one_each[run] == pytest.approx(single, rel=1e-14)
        single = population_risk(thetas[run], optimum=optima[0], covariance=covariance)
        assert shared[run] == pytest.approx(single, rel=1e-14)


def test_one_output_has_vectors_and_a_batch_of_them_is_a_matrix(rng):
    theta, optimum, covariance = rng.normal(size=5), rng.normal(size=5), rng.uniform(0, 1, 5)
    as_vector = population_risk(theta, optimum=optimum, covariance=covariance)
    batch = population_risk(jnp.stack([theta, 0 * theta]), optimum=optimum, covariance=covariance)
    assert isinstance(as_vector, float)
    assert batch.shape == (2,)
    assert batch[0] == as_vector
    assert as_vector == population_risk(theta, optimum=optimum[None], covariance=covariance)


def test_the_risk_at_the_optimum_is_exactly_zero(rng):
    population = Population(rng.normal(size=(3, 8)), np.ones(8))
    assert population.risk(population.optimum) == 0.0


def test_a_hundred_thousand_inputs_need_no_square_matrix(rng):
    d = 100_000
    population = Population(np.zeros((2, d)), Factored(rng.normal(size=(d, 3)) / np.sqrt(d), 0.01))
    assert len(population.spectrum) == d
    assert population.spectrum[3] == 0.01
    theta = np.zeros((2, d))
    theta[1, 7] = 2.0
    expected = 4 * (np.sum(population.covariance.factor[7] ** 2) + 0.01)
    assert population.risk(theta) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("theta", "optimum", "covariance", "words"),
    [
        (np.zeros((2, 3)), np.zeros((2, 3)), np.ones(4), "4 inputs"),
        (np.zeros((2, 4)), np.zeros((3, 4)), np.ones(4), "same number of outputs"),
        (np.zeros((5, 2, 4)), np.zeros((6, 2, 4)), np.ones(4), "one for each run"),
        (np.zeros(4), np.zeros(4), -np.ones(4), "positive semi-definite"),
        (np.ones(2), np.zeros(2), np.diag([1.0, -1.0])[::-1], "symmetric"),
        (np.ones(2), np.zeros(2), np.diag([1.0, -2.0]), "positive semi-definite"),
        (np.zeros(4), np.zeros(4), np.ones((3, 4)), "3 inputs"),
        (np.full(4, np.nan), np.zeros(4), np.ones(4), "NaN"),
        (np.zeros(4), np.zeros(4), Factored(np.ones((4, 2)), np.ones(3)), "one entry for each"),
        (np.zeros(4), np.zeros(4), Factored(np.ones((4, 2)), -1.0), "positive semi-definite"),
    ],
)
def test_bad_input_is_refused_with_what_to_pass(theta, optimum, covariance, words):
    with pytest.raises(InputError, match=words):
        population_risk(theta, optimum=optimum, covariance=covariance)


def test_a_population_has_one_optimum():
    with pytest.raises(InputError, match="pass \\(d,\\)"):
        Population(np.zeros((2, 3, 4)), np.ones(4))
    with pytest.raises(InputError, match="noise"):
        Population(np.zeros(4), np.ones(4), noise=-1.0)


def test_a_large_varying_diagonal_asks_for_its_spectrum():
    population = Population(
        np.zeros(6000), Factored(np.ones((6000, 1)), np.linspace(0.0, 1.0, 6000))
    )
    with pytest.raises(InputError, match="pass the eigenvalues"):
        _ = population.spectrum
