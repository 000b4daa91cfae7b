"""The linear algebra of linear networks: plain loops, in NumPy and in JAX."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.networks import products
from deeplin.networks.network import distance_to_optimum, gap_and_gradient
from deeplin.problems.problem import LeastSquares


def layers(widths, axes=(), seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(*axes, m, n)) for n, m in pairwise(widths)]


@pytest.mark.parametrize("readout", [None, np.arange(1.0, 3.0)])
@pytest.mark.parametrize("axes", [(), (3,), (4, 3)])
def test_products_are_plain_matrix_products_for_any_leading_axes(axes, readout):
    weights = layers((4, 3, 2), axes)
    last = np.eye(2) if readout is None else readout[:, None]
    backward = products.backward_products(weights, readout)
    forward = products.forward_products(weights, np.ones((4, 1)))
    for index in np.ndindex(*axes):
        W1, W2 = (w[index] for w in weights)
        np.testing.assert_allclose(backward[0][index], W1.T @ W2.T @ last, rtol=1e-12)
        np.testing.assert_allclose(backward[1][index], W2.T @ last, rtol=1e-12)
        np.testing.assert_allclose(backward[2][index], last)
        np.testing.assert_allclose(forward[1][index], W1 @ np.ones((4, 1)), rtol=1e-12)
    np.testing.assert_array_equal(products.product(weights, readout), backward[0])


def test_jax_and_numpy_agree_inside_jit():
    weights, readout = layers((4, 3, 2), (5,)), np.array([0.3, -1.0])
    ours = products.backward_products(weights, readout)
    theirs = jax.jit(products.backward_products)(list(map(jnp.asarray, weights)), readout)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_gap_in_the_eigenbasis_is_the_gap():
    rng = np.random.default_rng(1)
    root, difference = rng.normal(size=(4, 4)), rng.normal(size=(3, 4, 2))
    covariance = root @ root.T
    eigenvalues, vectors = np.linalg.eigh(covariance)
    expected = [np.trace(D.T @ covariance @ D) for D in difference]
    risk = LeastSquares(np.diag(eigenvalues), np.zeros((4, 2)), np.zeros(()))
    gaps, slopes = risk.value_and_gradient(vectors.T @ difference)
    np.testing.assert_allclose(gaps, expected, rtol=1e-11)
    np.testing.assert_allclose(vectors @ slopes, 2 * covariance @ difference, rtol=1e-11)


def test_gap_and_gradient_are_those_of_automatic_differentiation(problem):
    net = dl.initialize.gaussian(jax.random.key(0), (5, 4, 1), 0.7)
    inputs, targets = jnp.asarray(problem.inputs), jnp.asarray(problem.target_columns)

    def risk(weights):
        return jnp.sum((inputs @ weights[0].T @ weights[1].T - targets) ** 2) / len(inputs)

    gap, gradient = gap_and_gradient(problem.device_risk, net)
    assert float(gap) == pytest.approx(float(risk(net.weights)) - problem.minimal_risk, rel=1e-11)
    for ours, theirs in zip(gradient, jax.grad(risk)(net.weights), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("width", [2, 8, 9])
def test_imbalance_is_that_of_numpy_for_every_width(width):
    weights = layers((3, width, 2), (6,))
    expected = np.stack([B.T @ B - A @ A.T for A, B in zip(*weights, strict=True)])
    (found,) = products.imbalance(weights)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    (single,) = products.imbalance([w.astype(np.float32) for w in weights])
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-4)


def test_the_zero_map_is_as_far_as_its_risk_says(problem):
    assert problem.zero_gap == pytest.approx(
        problem.target_moment - problem.minimal_risk, rel=1e-10
    )


def test_distance_is_squared_and_means_nothing_for_nonlinear_networks(problem):
    nets = dl.initialize.gaussian(jax.random.split(jax.random.key(0), 2), (5, 3, 1), 0.5)
    found = distance_to_optimum(problem, nets)
    for index in range(2):
        w = np.asarray(nets.weights[1][index] @ nets.weights[0][index])[0]
        assert found[index] == pytest.approx(np.sum((w - problem.optimum) ** 2), rel=1e-12)
    gelu = dl.Network(nets.weights, activation="gelu")
    assert np.isnan(distance_to_optimum(problem, gelu)).all()
