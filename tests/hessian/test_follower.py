"""Eigenvalues of moving matrices against NumPy at every step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplin.hessian.follower import Follower
from deeplin.kernels.pursuit import LOOK_EVERY, MAX_PRODUCTS


def block(size, batch=1):
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((size, 2)))[0].T
    return np.repeat(vectors[None], batch, axis=0)


def follow(matrices, tolerance=1e-3):
    """Follow (steps, batch, N, N), with values, errors and products (steps, batch)."""
    follower = Follower(block(matrices.shape[-1], matrices.shape[1]), tolerance)
    found = [
        follower(lambda members, vectors, at=at: np.einsum("bij,bj->bi", at[members], vectors))
        for at in matrices
    ]
    return (np.stack(column) for column in zip(*found, strict=True))


def rotated(spectra, seed=0, angle=0.0):
    """diag(spectrum) in a basis that turns by `angle` in a plane of each neighbour at each step."""
    size = spectra.shape[1]
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]
    generator = angle * (np.eye(size, k=1) - np.eye(size, k=-1))
    turn = np.linalg.solve(np.eye(size) + generator / 2, np.eye(size) - generator / 2)
    matrices = []
    for spectrum in spectra:
        matrices.append((basis * spectrum) @ basis.T)
        basis = basis @ turn
    return np.stack(matrices)[:, None]


@given(seed=st.integers(0, 10_000), jump=st.floats(0, 3), tolerance=st.sampled_from([1e-1, 1e-3]))
def test_error_covers_an_eigenvalue_however_far_the_matrix_jumps(seed, jump, tolerance):
    rng = np.random.default_rng(seed)
    moves = rng.standard_normal((12, 2, 9, 9)) * np.array([1, *[jump] * 11])[:, None, None, None]
    matrices = np.cumsum(moves + moves.swapaxes(2, 3), axis=0)
    values, errors, products = follow(matrices, tolerance)
    spectra = np.linalg.eigvalsh(matrices)
    nearest = np.abs(spectra - values[:, :, None]).min(axis=2)
    assert np.all(nearest <= errors)
    assert np.all(values <= spectra[:, :, -1] + errors.min() * 1e-6 + 1e-9 * np.abs(spectra).max())
    assert products.max() < MAX_PRODUCTS


def test_value_is_accurate_to_the_square_of_the_tolerance():
    spectra = np.linspace(0.1, 1, 20) * np.ones((30, 1))
    matrices = rotated(spectra, angle=0.03)
    values, errors, _ = follow(matrices)
    assert np.abs(values - 1).max() < 2e-5  # residual² over the gap of 1/21, plus a little
    assert errors.max() <= 1.01e-3


def test_a_second_eigenvalue_that_overtakes_the_first_is_found_at_once():
    """The first stands still: only a look at the second can tell."""
    spectra = np.tile([1.0, 0, 0.3, 0.2, 0.1, 0, -0.2, -3], (60, 1))
    spectra[:, 1] = np.linspace(0.4, 1.6, 60)
    values, errors, products = follow(rotated(spectra, angle=0.01))
    assert np.all(np.abs(values[:, 0] - spectra.max(axis=1)) <= errors[:, 0])
    assert products.min() == 1


@pytest.mark.parametrize("rising", [1, 2])
def test_an_eigenvalue_that_comes_from_below_the_second_is_found_soon(rising):
    spectra = np.tile([1.0, 0.6, 0.5, 0.3, 0.2, 0.1, 0, -0.2, -3], (30, 1))
    spectra[:, rising] = np.linspace(0.4, 1.6, 30)
    values, errors, _ = follow(rotated(spectra, angle=0.01))
    assert np.sum(np.abs(values[:, 0] - spectra.max(axis=1)) > errors[:, 0]) <= 1


def test_a_matrix_that_stands_still_costs_less_than_two_products():
    matrices = rotated(np.linspace(0, 1, 15) ** 3 * np.ones((41, 1)))
    _, _, products = follow(matrices)
    assert products[1:].mean() < 1.5
    assert products[1:].max() <= 2


def test_a_basis_that_turns_evenly_is_predicted():
    """The vector moves 0.05 a step, 50 times the tolerance: to stay would take three products."""
    matrices = rotated(np.array([0, 0.1, 0.2, 2]) * np.ones((40, 1)), angle=0.05)
    _, _, products = follow(matrices)
    assert products[10:].mean() < 2.5


def test_an_oscillation_of_period_two_is_predicted():
    spectrum = np.linspace(0, 1, 12) ** 2
    ends = rotated(np.stack([spectrum, spectrum]), angle=0.4)
    matrices = np.concatenate([ends] * 15)
    _, _, products = follow(matrices)
    assert products[6:].mean() <= 2


def test_members_do_not_touch_each_other_and_a_lost_one_is_found_again():
    matrices = rotated(np.linspace(0, 1, 8) * np.ones((12, 1)), angle=0.02)
    both = np.concatenate([matrices, matrices[:, ::-1] * 1.0], axis=1)
    both[4, 1] = np.nan
    values, errors, products = follow(both)
    alone = next(iter(follow(matrices)))
    assert np.array_equal(values[:, 0], alone[:, 0])
    assert np.isnan(values[4, 1])
    assert np.isnan(errors[4, 1])
    assert np.abs(values[5:, 1] - 1).max() < 1e-5
    assert products[5, 1] <= 4


def test_single_precision_is_enough():
    matrices = rotated(np.linspace(0, 1, 8) * np.ones((6, 1)), angle=0.02).astype(np.float32)
    follower = Follower(block(8).astype(np.float32), 1e-2)
    for matrix in matrices:
        found = follower(lambda members, vectors, at=matrix: vectors @ at[0])
        assert found.value.dtype == np.float32
        assert abs(found.value[0] - 1) <= found.error[0] < 0.02


def test_an_eigenvalue_from_far_below_that_meets_neither_vector_is_found_by_the_next_look():
    """The basis stands still: no product with the two vectors says anything of the third."""
    spectra = np.tile([1.0, 0.9, 0.5, 0.3, 0.2, 0.1, 0, -0.2, -3], (3 * LOOK_EVERY, 1))
    spectra[:, -1] = np.linspace(-3, 5, len(spectra))
    values, errors, products = follow(rotated(spectra))
    missed = np.flatnonzero(np.abs(values[:, 0] - spectra.max(axis=1)) > errors[:, 0])
    crossing = int(np.argmax(spectra[:, -1] > 1))
    assert missed.min() >= crossing
    assert missed.max() <= 2 * LOOK_EVERY + 2  # the next look; the first two come one call later
    assert products[1:].mean() < 2
