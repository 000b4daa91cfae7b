"""The balanced minimizer against the dense Hessian and the closed form for one target."""

import numpy as np
import pytest
from dense_network import hessian
from hypothesis import given, settings
from hypothesis import strategies as st

import deeplin as dl
from deeplin.theory.balanced import balanced_network, balanced_sharpness


@pytest.mark.parametrize(
    ("n", "d", "q", "depth"),
    [(20, 4, 1, 3), (20, 3, 2, 2), (3, 5, 2, 3), (20, 2, 3, 3), (20, 3, 3, 1), (20, 3, 3, 4)],
)
def test_the_balanced_curvature_is_the_top_of_the_dense_hessian(rng, n, d, q, depth):
    problem = dl.Problem.from_data(rng.normal(size=(n, d)), rng.normal(size=(n, q)))
    network = balanced_network(problem, depth)
    expected = np.linalg.eigvalsh(hessian(problem, network))[-1]
    assert balanced_sharpness(problem, depth) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=settings.default.max_examples // 3)
@given(depth=st.integers(1, 5), outputs=st.integers(1, 3), seed=st.integers(0, 1000))
def test_balanced_networks_are_balanced_minimizers(depth, outputs, seed):
    rng = np.random.default_rng(seed)
    problem = dl.Problem.from_data(rng.normal(size=(12, 4)), rng.normal(size=(12, outputs)))
    network = balanced_network(problem, depth, width=3)
    np.testing.assert_allclose(network.product, problem.optimum, rtol=1e-9, atol=1e-12)
    for first, second in zip(network.weights[:-1], network.weights[1:], strict=True):
        np.testing.assert_allclose(second.T @ second, first @ first.T, atol=1e-12)


def test_a_width_below_the_rank_of_the_solution_is_refused(rng):
    problem = dl.Problem.from_data(rng.normal(size=(30, 4)), rng.normal(size=(30, 3)))
    with pytest.raises(dl.InputError, match="rank 3"):
        balanced_network(problem, depth=2, width=2)


def test_the_balanced_curvature_at_a_product_follows_the_formula_and_the_dense_hessian():
    """White inputs: 2L‖w‖^{2−2/L}; several outputs: the Gauss-Newton part at balanced layers."""
    rng = np.random.default_rng(0)
    white = dl.Problem.from_moments(np.eye(3), np.ones(3), 4.0, samples=9)
    w = np.array([0.5, -1.0, 2.0])
    expected = 2 * 3 * np.linalg.norm(w) ** (4 / 3)
    assert dl.theory.balanced_sharpness(white, 3, at=w) == pytest.approx(expected)
    X = rng.normal(size=(20, 3))
    theta = rng.normal(size=(2, 3))
    several = dl.Problem.from_data(X, rng.normal(size=(20, 2)))
    fitted = dl.Problem.from_data(X, X @ theta.T)  # the same inputs, with this optimum
    expected = dl.theory.balanced_sharpness(fitted, 3)
    assert dl.theory.balanced_sharpness(several, 3, at=theta) == pytest.approx(expected)
    with pytest.raises(dl.InputError, match="at has shape"):
        dl.theory.balanced_sharpness(several, 3, at=theta.T)
