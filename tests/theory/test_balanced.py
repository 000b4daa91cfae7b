"""The balanced minimizer against the dense Hessian and the closed form for one target."""

import numpy as np
import pytest
from dense_network import hessian
from hypothesis import given, settings
from hypothesis import strategies as st

import deeplin as dl
from deeplin.theory.minimizers import balanced_network, balanced_sharpness


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
    product = np.asarray(network.product).reshape(4, outputs)
    np.testing.assert_allclose(product, problem.optimum, rtol=1e-9, atol=1e-12)
    for first, second in zip(network.weights[:-1], network.weights[1:], strict=True):
        np.testing.assert_allclose(second.T @ second, first @ first.T, atol=1e-12)


def test_a_width_below_the_rank_of_the_solution_is_refused(rng):
    problem = dl.Problem.from_data(rng.normal(size=(30, 4)), rng.normal(size=(30, 3)))
    with pytest.raises(dl.InputError, match="rank 3"):
        balanced_network(problem, depth=2, width=2)
