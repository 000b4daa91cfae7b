"""Compiled products of every shape against the dense Hessian of automatic differentiation."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.sharpness.hessian import dense, surface
from deeplin.sharpness.linear_hessian import LinearHessian, ReducedHessian, flat_weights

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


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_reduced_hessian_has_the_eigenvalues_of_the_dense_one(problem, shape):
    nets = networks(shape)
    reduced = ReducedHessian(problem, nets.widths, *flat_weights(nets.with_batch()))
    matrices = np.asarray(dense(*surface(problem, nets), nets.with_batch()))
    size, full = reduced.shape[1], matrices.shape[1]
    for member, matrix in enumerate(matrices):
        small = reduced(np.full(size, member), np.eye(size))
        np.testing.assert_allclose(small, small.T, atol=1e-12)
        # Both are filled up with zeros, to the same length.
        ours = np.sort(np.r_[np.linalg.eigvalsh(small), np.zeros(full)])
        theirs = np.sort(np.r_[np.linalg.eigvalsh(matrix), np.zeros(size)])
        np.testing.assert_allclose(ours, theirs, atol=1e-12 * np.abs(theirs).max())
    assert reduced.zero_is_theirs == (shape != (5, 1))


def test_coordinates_of_the_range_keep_lengths_and_lose_nothing_of_an_image(problem, rng):
    nets = networks((5, 3, 7, 2, 1))
    reduced = ReducedHessian(problem, nets.widths, *flat_weights(nets))
    everyone = np.arange(3)
    images = reduced.full(everyone, rng.normal(size=reduced.full.shape))
    coordinates = reduced.project(everyone, images)
    np.testing.assert_allclose(reduced.expand(everyone, coordinates), images, atol=1e-12)
    lengths = np.linalg.norm(images, axis=1)
    np.testing.assert_allclose(np.linalg.norm(coordinates, axis=1), lengths, rtol=1e-12)


def test_a_reduced_hessian_without_directions_is_zero(problem):
    nets = jax.tree.map(np.zeros_like, networks((5, 4, 4, 1)))
    reduced = ReducedHessian(problem, nets.widths, *flat_weights(nets))
    images = reduced(np.arange(3), np.ones(reduced.shape))
    np.testing.assert_array_equal(images, 0)
