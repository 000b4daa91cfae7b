"""The teaching file and the library must say the same."""

import importlib.util

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl


@pytest.fixture(scope="module")
def minimal(pytestconfig):
    path = pytestconfig.rootpath / "examples" / "minimal.py"
    specification = importlib.util.spec_from_file_location("minimal", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data(minimal):
    return minimal.make_data(seed=0)


def test_its_data_have_an_optimum_of_norm_one(data):
    assert dl.Problem.from_data(*data).optimum_norm == pytest.approx(1.0)


def test_its_descent_is_the_librarys(minimal, data):
    weights = minimal.make_weights(1, scale=0.35)
    plain = minimal.descent(*data, weights, learning_rate=0.02, steps=200)
    run = dl.gradient_descent(
        dl.Problem.from_data(*data), dl.Network(weights), learning_rate=0.02, steps=200
    )
    for ours, theirs in zip(run.network.weights, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def test_its_sharpness_is_the_librarys_and_that_of_the_dense_hessian(minimal, data):
    X, y = data
    problem = dl.Problem.from_data(X, y)
    net = dl.initialize.rank_one(problem.optimum, 4)
    plain = minimal.sharpness_at_minimizer(X, [np.asarray(w) for w in net.weights])
    assert dl.sharpness(problem, net).value == pytest.approx(plain, rel=1e-10)
    flat, unravel = jax.flatten_util.ravel_pytree(net)
    hessian = jax.jit(jax.hessian(lambda f: jnp.mean((unravel(f)(X)[:, 0] - y) ** 2)))(flat)
    assert plain == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=1e-10)


@pytest.mark.parametrize("depth", [2, 3, 10])
def test_its_minimal_sharpness_is_the_librarys(minimal, data, depth):
    problem = dl.Problem.from_data(*data)
    plain = minimal.minimal_sharpness(*data, depth)
    assert dl.theory.minimal_sharpness(problem, depth).exact == pytest.approx(plain, rel=1e-6)
