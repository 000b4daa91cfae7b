"""Compiled products of every shape against the dense Hessian of automatic differentiation."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.sharpness.hessian import dense, surface
from deeplin.sharpness.linear_hessian import LinearHessian, flat_weights

SHAPES = [(5, 3, 7, 2, 1), (5, 1), (5, 5, 5, 5, 1), "residual"]


def networks(shape, batch=3):
    keys = jax.random.split(jax.random.key(1), batch)
    if shape == "residual":
        return dl.initialize.residual(keys, 5, 3, np.full(batch, 0.5), np.arange(1.0, 6.0) / 7)
    return dl.initialize.gaussian(keys, shape, np.full(batch, 0.5))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_are_those_of_the_dense_hessian(problem, shape):
    nets = networks(shape)
    hessian = LinearHessian(problem, nets.widths, *flat_weights(nets.with_batch()))
    members = np.array([2, 0])
    vectors = np.random.default_rng(0).standard_normal((2, hessian.shape[1]))
    matrices = np.asarray(dense(*surface(problem, nets), nets.with_batch()))[members]
    expected = np.einsum("bij,bj->bi", matrices, vectors)
    scale = np.abs(matrices).max()
    assert np.abs(hessian(members, vectors) - expected).max() < 1e-13 * scale * hessian.shape[1]


def test_single_precision_stays_single(problem):
    nets = networks((5, 4, 1))
    weights, readouts = flat_weights(nets)
    single = LinearHessian(
        problem, nets.widths, *(a.astype(np.float32) for a in (weights, readouts))
    )
    double = LinearHessian(problem, nets.widths, weights, readouts)
    everyone, vectors = np.arange(3), np.ones_like(weights)
    images = single(everyone, vectors.astype(np.float32))
    assert images.dtype == np.float32
    np.testing.assert_allclose(images, double(everyone, vectors), rtol=1e-4, atol=1e-4)
