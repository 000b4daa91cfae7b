"""Eigenvalues, vectors and blocks against dense automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.hessian import (
    hessian_spectrum,
    spectrum,
)
from deeplin.networks import stack


def networks(widths=(5, 4, 3, 1), batch=3):
    return dl.initialize.gaussian(
        jax.random.split(jax.random.key(2), batch), widths, np.full(batch, 0.6)
    )


def one(nets, index):
    return jax.tree.map(lambda leaf: leaf[index], nets)


def check(problem, net, found, hessian, count):
    matrix = hessian(problem, net)
    values = np.linalg.eigvalsh(matrix)[::-1]
    assert np.all(np.abs(found.values - values[:count]) <= found.errors)
    residuals = found.vectors @ matrix - found.values[:, None] * found.vectors
    scale = np.abs(values).max()
    assert np.linalg.norm(residuals, axis=1).max() <= 1e-7 * scale  # Lanczos: the tolerance
    np.testing.assert_allclose(found.vectors @ found.vectors.T, np.eye(count), atol=1e-6)
    assert found.trace == pytest.approx(np.trace(matrix), rel=1e-10)


@pytest.mark.parametrize("way", ["dense", "lanczos"])
def test_eigenvalues_and_vectors_are_those_of_the_dense_hessian(problem, hessian, way, monkeypatch):
    if way == "lanczos":
        monkeypatch.setattr(spectrum, "DENSE_SPECTRUM_LIMIT", 2)
    nets = networks()
    found = hessian_spectrum(problem, nets, count=4)
    assert found.method == way
    assert found.values.shape == (3, 4)
    for index in range(3):
        check(problem, one(nets, index), found.member(index), hessian, 4)


def test_at_minimizers_all_nonzero_eigenvalues_are_exact(problem, hessian, minimizer):
    readout = np.arange(1.0, 4.0) / 3
    keys = jax.random.split(jax.random.key(0), 2)
    nets = stack([minimizer(problem, key, (5, 4, 3), readout) for key in keys])
    found = hessian_spectrum(problem, nets, count=5)
    assert found.method == "exact"
    for index in range(2):
        check(problem, one(nets, index), found.member(index), hessian, 5)
        values = np.linalg.eigvalsh(hessian(problem, one(nets, index)))[::-1]
        assert np.abs(values[5:]).max() < 1e-9 * values[0]
    assert found.errors.max() < 1e-10 * found.values.max()


def test_several_outputs_and_activations_have_a_spectrum(rng, hessian):
    X = rng.normal(size=(30, 4))
    problem = dl.Problem.from_data(X, rng.normal(size=(30, 2)))
    for activation in ("linear", "gelu"):
        net = one(networks((4, 3, 2), 1), 0)
        net = dl.Network(net.weights, activation=activation)
        found = hessian_spectrum(problem, net, count=3)
        check(problem, net, found, hessian, 3)
        assert found.values.shape == (3,)
        largest = np.linalg.eigvalsh(hessian(problem, net))[-1]
        np.testing.assert_allclose(found.values[0], largest, rtol=1e-8)


def test_blocks_of_the_layers_are_blocks_of_the_hessian(problem, hessian):
    linear = one(networks(), 0)
    for net in (linear, dl.Network(linear.weights, activation="gelu")):
        matrix = hessian(problem, net)
        cuts = np.cumsum([0, *(w.size for w in net.weights)])
        found = hessian_spectrum(problem, net, count=1)
        tops = [np.linalg.eigvalsh(matrix[a:b, a:b])[-1] for a, b in zip(cuts, cuts[1:])]  # noqa: B905, RUF007
        np.testing.assert_allclose(found.layers, tops, rtol=1e-10)


def test_a_loss_of_ones_own_has_a_spectrum():
    curvature = np.diag([3.0, 2.0, -1.0])

    def loss(tree):
        return 0.5 * tree["x"] @ curvature @ tree["x"]

    found = hessian_spectrum(loss, {"x": jnp.ones(3)}, count=2)
    np.testing.assert_allclose(found.values, [3, 2])
    np.testing.assert_allclose(np.abs(found.vectors), np.eye(3)[:2], atol=1e-12)
    assert found.trace == pytest.approx(4)


def test_too_many_eigenvalues_are_named(problem):
    with pytest.raises(dl.InputError, match="has 35 eigenvalues"):
        hessian_spectrum(problem, networks(), count=40)


def test_a_network_that_is_not_finite_leaves_the_others_alone(problem):
    nets = networks()
    lost = dl.Network([w.at[1].set(jnp.nan) for w in nets.weights])
    found, whole = (hessian_spectrum(problem, some, count=2) for some in (lost, nets))
    assert np.isnan(found.values[1]).all()
    assert np.isinf(found.errors[1]).all()
    for index in (0, 2):
        np.testing.assert_allclose(found.values[index], whole.values[index], rtol=1e-12)
        np.testing.assert_allclose(found.layers[index], whole.layers[index], rtol=1e-12)
