"""Eigenvalues of moving matrices against NumPy at every step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplin.hessian import lobpcg

run = jax.jit(lobpcg.follow, static_argnums=0)


def operator(_data, matrices):
    return lambda vectors: jnp.einsum("bij,jb->ib", matrices, vectors)


def follow(matrices, tolerance=1e-6, every=1, fresh=64):
    """Follow (steps, batch, N, N), with a search at every so many steps: (steps, batch) each."""
    batch, size = matrices.shape[1:3]
    rng = np.random.default_rng(0)
    dtype = matrices.dtype
    state = lobpcg.begin(jnp.asarray(rng.normal(size=(2, size)), dtype), batch)
    found = []
    for clock, record in enumerate(matrices):
        draw = rng.normal(size=size)
        direction = draw / np.linalg.norm(draw) if clock % fresh == 0 else np.zeros(size)
        state, result, _ = run(
            operator, None, record[None], np.int32(1), state, direction.astype(dtype),
            np.int32(clock % every == 0), np.asarray(tolerance, dtype),
        )  # fmt: skip
        found.append([np.asarray(column)[0] for column in result])
    values, residuals, scales, products = map(np.stack, zip(*found, strict=True))
    return values, residuals + lobpcg.rounding(dtype, size) * scales, products


def rotated(spectra, seed=0, angle=0.0):
    """diag(spectrum) in a basis that turns by `angle` in a plane of each neighbor at each step."""
    size = spectra.shape[1]
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]
    generator = angle * (np.eye(size, k=1) - np.eye(size, k=-1))
    turn = np.linalg.solve(np.eye(size) + generator / 2, np.eye(size) - generator / 2)
    matrices = []
    for spectrum in spectra:
        matrices.append((basis * spectrum) @ basis.T)
        basis = basis @ turn
    return np.stack(matrices)[:, None]


@given(seed=st.integers(0, 10_000), jump=st.floats(0, 3), tolerance=st.sampled_from([1e-2, 1e-6]))
def test_error_covers_an_eigenvalue_however_far_the_matrix_jumps(seed, jump, tolerance):
    rng = np.random.default_rng(seed)
    moves = rng.standard_normal((12, 2, 9, 9)) * np.array([1, *[jump] * 11])[:, None, None, None]
    matrices = np.cumsum(moves + moves.swapaxes(2, 3), axis=0)
    values, errors, products = follow(matrices, tolerance)
    spectra = np.linalg.eigvalsh(matrices)
    nearest = np.abs(spectra - values[:, :, None]).min(axis=2)
    assert np.all(nearest <= errors)
    assert np.all(values <= spectra[:, :, -1] + errors.min() * 1e-6 + 1e-9 * np.abs(spectra).max())
    assert products.max() < lobpcg.MAX_PRODUCTS


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-12])
def test_value_is_as_accurate_as_the_tolerance_says(tolerance):
    matrices = rotated(np.linspace(0.1, 1, 20) * np.ones((30, 1)), angle=0.03)
    values, errors, _ = follow(matrices, tolerance)
    assert np.abs(values - 1).max() < tolerance + 1e-14  # rounding
    assert errors.max() <= np.sqrt(tolerance) + 1e-13


def test_a_second_eigenvalue_that_overtakes_the_first_is_found_at_once():
    """The first stands still: only a look at the second can tell."""
    spectra = np.tile([1.0, 0, 0.3, 0.2, 0.1, 0, -0.2, -3], (60, 1))
    spectra[:, 1] = np.linspace(0.4, 1.6, 60)
    values, errors, _ = follow(rotated(spectra, angle=0.01))
    assert np.all(np.abs(values[:, 0] - spectra.max(axis=1)) <= errors[:, 0])


@pytest.mark.parametrize("rising", [1, 2])
def test_an_eigenvalue_that_comes_from_below_the_second_is_found_soon(rising):
    spectra = np.tile([1.0, 0.6, 0.5, 0.3, 0.2, 0.1, 0, -0.2, -3], (30, 1))
    spectra[:, rising] = np.linspace(0.4, 1.6, 30)
    values, errors, _ = follow(rotated(spectra, angle=0.01))
    assert np.sum(np.abs(values[:, 0] - spectra.max(axis=1)) > errors[:, 0]) <= 1


def test_a_matrix_that_stands_still_costs_less_than_two_products():
    matrices = rotated(np.linspace(0, 1, 15) ** 3 * np.ones((41, 1)))
    products = follow(matrices, every=100)[2]
    assert products[1:].mean() < 1.5
    assert products[1:].max() <= 2


def test_a_basis_that_turns_evenly_is_predicted():
    """The vector moves 0.05 a step, 50 times what is allowed: to stay would take three products."""
    matrices = rotated(np.array([0, 0.1, 0.2, 2]) * np.ones((40, 1)), angle=0.05)
    products = follow(matrices, every=100)[2]
    assert products[10:].mean() < 2.5


def test_an_oscillation_of_period_two_is_predicted():
    spectrum = np.linspace(0, 1, 12) ** 2
    ends = rotated(np.stack([spectrum, spectrum]), angle=0.4)
    matrices = np.concatenate([ends] * 15)
    products = follow(matrices, every=100)[2]
    assert products[6:].mean() <= 2


def test_members_do_not_touch_each_other_and_a_lost_one_is_found_again():
    matrices = rotated(np.linspace(0, 1, 8) * np.ones((12, 1)), angle=0.02)
    both = np.concatenate([matrices, matrices[:, ::-1] * 1.0], axis=1)
    twice = np.concatenate([matrices, matrices], axis=1)
    both[4, 1] = np.nan
    values, errors, _ = follow(both)
    assert np.array_equal(values[:, 0], follow(twice)[0][:, 0])
    assert np.isnan(values[4, 1])
    assert np.isnan(errors[4, 1])
    assert np.abs(values[5:, 1] - 1).max() < 1e-6


def test_single_precision_is_enough():
    matrices = rotated(np.linspace(0, 1, 8) * np.ones((6, 1)), angle=0.02).astype(np.float32)
    values, errors, _ = follow(matrices, 1e-4)
    assert values.dtype == np.float32
    assert np.all(np.abs(values - 1) <= errors)
    assert errors.max() < 0.02


def test_an_eigenvalue_from_far_below_that_meets_neither_vector_is_found_by_the_next_search():
    """The basis stands still: no product with the two vectors says anything of the third."""
    fresh = 32
    spectra = np.tile([1.0, 0.9, 0.5, 0.3, 0.2, 0.1, 0, -0.2, -3], (3 * fresh, 1))
    spectra[:, -1] = np.linspace(-3, 5, len(spectra))
    values, errors, _ = follow(rotated(spectra), fresh=fresh)
    missed = np.flatnonzero(np.abs(values[:, 0] - spectra.max(axis=1)) > errors[:, 0])
    crossing = int(np.argmax(spectra[:, -1] > 1))
    assert len(missed) == 0 or (missed.min() >= crossing and missed.max() < 2 * fresh)
