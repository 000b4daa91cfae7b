"""X-34: the best product of a given rank."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import deeplin as dl


def reference_problem():
    """The data of the reference values."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4)) * [1, 0.8, 0.5, 1.5]
    return dl.Problem.from_data(X, X @ rng.normal(size=(4, 3)) + 0.5 * rng.normal(size=(40, 3)))


def softmax_problem():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3)) * [1, 0.5, 1.5]
    scores = X @ rng.normal(size=(3, 4)) + 2 * rng.gumbel(size=(60, 4))
    return dl.Problem.from_data(X, scores.argmax(axis=1), loss="softmax")


def least_found(problem, rank, rows, targets):
    """The least risk over factors that BFGS finds with numerical gradients, from three starts."""
    d, q = rows.shape[1], problem.outputs

    def risk(flat):
        theta = flat[: d * rank].reshape(d, rank) @ flat[d * rank :].reshape(rank, q)
        return problem.convex_loss.value(rows @ theta, targets).mean()

    starts = [np.random.default_rng(k).normal(size=rank * (d + q)) for k in range(3)]
    return min(minimize(risk, start, method="BFGS", options={"gtol": 1e-7}).fun for start in starts)


def test_the_risks_are_those_of_the_reference():
    problem = reference_problem()
    expected = {1: 3.17884334, 2: 1.70721932, 3: 0.81803576, 7: 0.81803576}
    for rank, risk in expected.items():
        assert problem.best_of_rank(rank).risk == pytest.approx(risk, rel=1e-8)
    assert problem.best_of_rank(3).excess == 0
    np.testing.assert_array_equal(problem.best_of_rank(3).product, problem.best_of_rank(7).product)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("singular", [False, True])
def test_no_product_of_this_rank_found_by_search_is_better(rank, singular):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(12, 4)) * [1, 0.8, 0.5, 1.5]
    if singular:
        X = X[:, :3] @ rng.normal(size=(3, 4))
    problem = dl.Problem.from_data(X, rng.normal(size=(12, 3)))
    product, risk = problem.best_of_rank(rank)
    assert product.shape == (3, 4)
    assert np.linalg.matrix_rank(product) == rank
    assert np.mean(np.sum((X @ product.T - problem.targets) ** 2, axis=1)) == pytest.approx(risk)
    found = least_found(problem, rank, X, problem.targets)
    assert found == pytest.approx(risk, rel=1e-6)


def test_equal_singular_values_leave_a_choice_only_at_the_cut():
    covariance, optimum = np.diag([1.0, 4.0, 1.0]), np.diag([1.0, 0.5, 0.3])  # s = 1, 1, 0.3
    cross = covariance @ optimum.T
    problem = dl.Problem.from_moments(covariance, cross, optimum @ cross + np.eye(3), samples=10)
    assert [problem.best_of_rank(r).unique for r in (1, 2, 3)] == [False, True, True]
    assert problem.best_of_rank(1).excess == pytest.approx(1.09)
    assert problem.best_of_rank(2).excess == pytest.approx(0.09)


def test_the_rank_is_at_most_that_of_the_optimum():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(10, 4))
    one = dl.Problem.from_data(X, X[:, 0])
    assert one.best_of_rank(3).rank == 1
    assert one.best_of_rank(3).product.shape == (4,)
    two = dl.Problem.from_data(X, X[:, :2] @ rng.normal(size=(2, 5)))
    best = two.best_of_rank(4)
    assert best.rank == 2
    assert best.unique
    assert best.excess == 0
    assert best.product.shape == (5, 4)


@pytest.mark.parametrize("rank", [1, 2])
def test_softmax_has_its_best_product_by_descent(rank):
    problem = softmax_problem()
    best = problem.best_of_rank(rank)
    assert not best.exact
    assert np.linalg.matrix_rank(best.product, tol=1e-9) == rank
    X, Y = problem.require_data("")
    assert least_found(problem, rank, X, Y) == pytest.approx(best.risk, rel=1e-6)
    assert best.risk - problem.minimal_risk == pytest.approx(best.excess)
    slope = X.T @ problem.convex_loss.slope(X @ best.product.T, Y) / len(X)
    assert np.abs(slope @ best.product).max() < 1e-13 > np.abs(best.product @ slope).max()
    assert problem.best_of_rank(3).exact
    assert problem.best_of_rank(3).excess == 0


@pytest.mark.parametrize("rank", [0, 1.5, "two"])
def test_a_rank_is_a_whole_number_of_at_least_one(rank):
    with pytest.raises(dl.InputError, match="rank"):
        reference_problem().best_of_rank(rank)
