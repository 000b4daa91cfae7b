"""Linear attention and matrix completion: problems that people know from elsewhere."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.problems.synthetic import linear_attention, matrix_completion

LAMBDA = np.diag([0.4, 0.3, 0.2, 0.1])


def test_least_risk_of_linear_attention_is_the_printed_one():
    assert linear_attention(LAMBDA, 31).minimal_risk == pytest.approx(0.13599507, abs=5e-9)


def test_moments_of_linear_attention_are_those_of_simulated_prompts():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2, 2))
    covariance, N, prompts = A @ A.T, 3, 400_000
    root = np.linalg.cholesky(covariance)
    x = rng.normal(size=(prompts, N, 2)) @ root.T
    query = rng.normal(size=(prompts, 2)) @ root.T
    w = rng.normal(size=(prompts, 2))
    beta = np.einsum("pni,pn->pi", x, np.einsum("pni,pi->pn", x, w)) / N
    z = np.einsum("pi,pj->pij", beta, query).reshape(prompts, 4)
    y = np.einsum("pi,pi->p", query, w)
    problem = linear_attention(covariance, N)
    for found, draws in (
        (problem.covariance.ravel(), np.einsum("pi,pj->pij", z, z).reshape(prompts, 16)),
        (problem.cross_moment, z * y[:, None]),
        (problem.target_moment, y**2),
    ):
        error = draws.std(axis=0) / np.sqrt(prompts)
        assert np.all(np.abs(found - draws.mean(axis=0)) < 5 * error)


def test_covariance_of_linear_attention_must_be_symmetric():
    with pytest.raises(dl.InputError, match="pass a symmetric matrix"):
        linear_attention([[1.0, 0.5], [0.0, 1.0]], 10)


def test_matrix_completion_has_the_rank_and_the_share_that_were_asked_for():
    task = matrix_completion(1, 8, 6, rank=2, share=0.5)
    assert np.linalg.matrix_rank(task.truth) == 2
    assert task.observed.sum() == 24
    again = matrix_completion(1, 8, 6, rank=2, share=0.5)
    np.testing.assert_array_equal(task.truth, again.truth)


def test_loss_sees_observed_entries_alone_and_training_records_the_product():
    task = matrix_completion(0, 6, 6, rank=1, share=0.6)
    network = dl.initialize.gaussian(jax.random.key(0), widths=(6, 6, 6), scale=0.1)
    product = np.asarray(network.product)
    residuals = (product - task.truth)[task.observed]
    assert float(task.loss(network)) == pytest.approx(np.mean(residuals**2))
    record = {"product": lambda network: network.product, "error": task.error}
    run = dl.gradient_descent(task.loss, network, 1.0, 300, record=record)
    last = run.records["product"][-1]
    np.testing.assert_allclose(last, run.network.product, rtol=1e-12)
    assert np.mean((last - task.truth)[task.observed] ** 2) < 1e-3
    others = np.mean((last - task.truth)[~task.observed] ** 2)
    assert run.records["error"][-1] == pytest.approx(others)


@pytest.mark.parametrize(
    ("bad", "sentence"), [({"share": 1.5}, "share is 1.5"), ({"rank": 9}, "rank")]
)
def test_impossible_matrices_are_refused(bad, sentence):
    with pytest.raises(dl.InputError, match=sentence):
        matrix_completion(0, 4, 4, **{"rank": 1} | bad)
