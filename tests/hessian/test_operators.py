"""Products against the dense Hessian of automatic differentiation; operators of other packages."""

import jax
import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import deeplin as dl
from deeplin.hessian.operators import AutodiffHessian, ReducedHessian, dense, hessian_of, surface

SHAPES = [(5, 3, 7, 2, 1), (5, 1), (5, 5, 5, 5, 1), "residual"]


def networks(shape, batch=3):
    keys = jax.random.split(jax.random.key(1), batch)
    if shape == "residual":
        return dl.initialize.residual(keys, 5, 3, np.full(batch, 0.5), np.arange(1.0, 6.0) / 7)
    return dl.initialize.gaussian(keys, shape, np.full(batch, 0.5))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_are_those_of_the_dense_hessian(problem, shape):
    """H v = E(H_reduced(P v)): the range of H holds every image, and Hv sees v through it."""
    nets = networks(shape)
    hessian = ReducedHessian(problem, nets)
    members = np.array([2, 0])
    matrices = np.asarray(dense(*surface(problem, nets), nets.with_batch()))[members]
    vectors = np.random.default_rng(0).standard_normal(matrices.shape[:2])
    images = hessian(members, hessian.project(members, vectors))
    expected = np.einsum("bij,bj->bi", matrices, vectors)
    scale = np.abs(matrices).max() * matrices.shape[1]
    assert np.abs(hessian.expand(members, images) - expected).max() < 1e-13 * scale


def test_single_precision_stays_single(problem):
    nets = networks((5, 4, 1))
    single = ReducedHessian(problem, jax.tree.map(lambda leaf: leaf.astype(np.float32), nets))
    double = ReducedHessian(problem, nets)
    everyone, vectors = np.arange(3), np.ones(double.shape)
    images = single(everyone, vectors.astype(np.float32))
    assert images.dtype == np.float32
    np.testing.assert_allclose(images, double(everyone, vectors), rtol=1e-4, atol=1e-4)


def test_the_reduced_form_is_chosen_where_it_adds_no_eigenvalue(problem):
    """A Hessian that has a kernel anyway may get more of it; others are taken as they are."""
    assert isinstance(hessian_of(problem, networks((5, 4, 1))), ReducedHessian)
    assert isinstance(hessian_of(problem, networks((5, 1))), AutodiffHessian)
    assert isinstance(hessian_of(problem, networks((5, 1, 1))), AutodiffHessian)
    gelu = dl.Network(networks((5, 4, 1)).weights, activation="gelu")
    assert isinstance(hessian_of(problem, gelu), AutodiffHessian)
    assert isinstance(hessian_of(lambda x: x @ x, jax.numpy.ones((1, 3))), AutodiffHessian)


def test_coordinates_of_the_range_keep_lengths_and_lose_nothing_of_an_image(problem, rng):
    nets = networks((5, 3, 7, 2, 1))
    reduced = ReducedHessian(problem, nets)
    everyone = np.arange(3)
    matrices = np.asarray(dense(*surface(problem, nets), nets))
    images = np.einsum("bij,bj->bi", matrices, rng.normal(size=matrices.shape[:2]))
    coordinates = reduced.project(everyone, images)
    np.testing.assert_allclose(reduced.expand(everyone, coordinates), images, atol=1e-12)
    lengths = np.linalg.norm(images, axis=1)
    np.testing.assert_allclose(np.linalg.norm(coordinates, axis=1), lengths, rtol=1e-12)


def test_a_reduced_hessian_without_directions_is_zero(problem):
    nets = jax.tree.map(np.zeros_like, networks((5, 4, 4, 1)))
    reduced = ReducedHessian(problem, nets)
    images = reduced(np.arange(3), np.ones(reduced.shape))
    np.testing.assert_array_equal(images, 0)


def test_operators_have_the_sharpness_and_spectrum_of_their_matrix():
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(500, 500)))[0]
    matrix = (basis * np.r_[3.0, 2.0, np.linspace(-4, 1, 498)]) @ basis.T
    operator = aslinearoperator(matrix)
    found = dl.sharpness(operator)
    assert found.method == "lanczos"
    assert found.converged
    assert abs(found.value - 3) <= found.error
    again = dl.sharpness(operator, start=found.vector)
    assert again.products < found.products
    assert dl.sharpness(operator, which="smallest").value == pytest.approx(-4, rel=1e-8)
    spectrum = dl.hessian_spectrum(operator, count=2)
    np.testing.assert_allclose(spectrum.values, [3, 2], rtol=1e-8)
    trace = dl.hessian_trace(operator, samples=500)
    assert trace.value == pytest.approx(np.trace(matrix))
    assert trace.error == 0
    small = dl.sharpness(aslinearoperator(np.diag([1.0, 5.0])))
    assert small.value == pytest.approx(5)
    assert small.method == "dense"


def test_operators_that_are_not_square_or_not_alone_are_refused():
    with pytest.raises(dl.InputError, match="symmetric"):
        dl.sharpness(LinearOperator((2, 3), matvec=lambda v: v, dtype=float))
    with pytest.raises(dl.InputError, match="passed alone"):
        dl.sharpness(aslinearoperator(np.eye(2)), np.zeros(2))
    with pytest.raises(dl.InputError, match="real"):
        dl.sharpness(aslinearoperator(1j * np.eye(2)))


def test_a_spectrum_may_start_from_a_vector():
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(500, 500)))[0]
    matrix = (basis * np.r_[3.0, 2.0, np.linspace(-4, 1, 498)]) @ basis.T
    counts, products = [], []

    def multiply(vector):
        products.append(vector)
        return matrix @ vector

    operator = LinearOperator(matrix.shape, matvec=multiply, dtype=matrix.dtype)
    for start in (None, basis[:, 5], basis[:, 0]):  # none, a poor one and a good one
        products.clear()
        found = dl.hessian_spectrum(operator, count=2, start=start)
        counts.append(len(products))
        assert np.all(np.abs(found.values - [3, 2]) <= found.errors)
    assert counts[2] < counts[0]
    with pytest.raises(dl.InputError, match="500 flattened parameters"):
        dl.hessian_spectrum(operator, count=2, start=basis[:3, 0])
