"""The certificate of Lanczos on matrices whose spectrum is known by construction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplin.hessian import lanczos

TOLERANCE = 1e-10


def symmetric(spectrum, seed):
    """A symmetric matrix with the given eigenvalues in a random orthonormal basis."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(len(spectrum), len(spectrum))))[0]
    return (basis * spectrum) @ basis.T, basis


def find(matrices, *, tolerance=TOLERANCE, max_products=500, **options):
    matrices = matrices[None] if matrices.ndim == 2 else matrices
    return lanczos.largest(
        lambda members, vectors: np.einsum("bij,bj->bi", matrices[members], vectors),
        matrices.shape[:2],
        matrices.dtype,
        tolerance=tolerance,
        max_products=max_products,
        **options,
    )


SPECTRA = {
    "rank one": np.r_[3.0, np.zeros(59)],
    "rank one, negative": np.r_[np.zeros(59), -3.0],
    "multiple top": np.r_[2.0, 2.0, 2.0, np.linspace(-1, 1, 57)],
    "top cluster": np.r_[1 + 1e-6 * np.arange(5), np.linspace(0, 0.99, 55)],
    "nearly equal pair": np.r_[1.0, 1.0 - 1e-9, np.linspace(-2, 0.9, 58)],
    "top hidden below the modulus": np.r_[0.1, np.linspace(-50, 0, 59)],
    "low rank with both signs": np.r_[4.0, 1.0, -4.0, np.zeros(57)],
    "identity": np.ones(60),
    "zero": np.zeros(60),
    "geometric": np.geomspace(1e-12, 1.0, 60),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_largest_eigenvalue_is_within_its_certificate(name):
    spectrum = SPECTRA[name]
    matrix, _ = symmetric(spectrum, 1)
    found = find(matrix)
    assert abs(found.value[0] - spectrum.max()) <= found.error[0]
    assert found.error[0] <= TOLERANCE * np.abs(spectrum).max()


@given(
    size=st.integers(1, 40),
    distinct=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    exponent=st.integers(-12, 12),
)
def test_repeated_eigenvalues_of_any_scale_are_within_their_certificate(
    size, distinct, seed, exponent
):
    rng = np.random.default_rng(seed)
    spectrum = 10.0**exponent * rng.choice(rng.normal(size=distinct), size=size)
    found = find(symmetric(spectrum, seed)[0], seed=seed)
    assert abs(found.value[0] - spectrum.max()) <= found.error[0]
    assert found.error[0] <= TOLERANCE * np.abs(spectrum).max()


def test_error_covers_the_truth_at_every_number_of_products():
    for seed in range(20):
        matrix, _ = symmetric(np.random.default_rng(seed).normal(size=80), seed)
        truth = np.linalg.eigvalsh(matrix)[-1]
        for products in (3, 10, 20, 40):
            found = find(matrix, max_products=products, seed=seed)
            assert truth - found.value[0] <= found.error[0]


def test_a_residual_alone_would_be_fooled_where_the_certificate_is_not():
    """Two products on a close pair: the Ritz value settles between them, and the error says so."""
    matrix, _ = symmetric(np.r_[1.0, 1 - 1e-4, np.zeros(198)], 5)
    found = find(matrix, max_products=2)
    vector = found.vector[0]
    residual = np.linalg.norm(matrix @ vector - found.value[0] * vector)
    assert residual < 1e-4
    assert 1.0 - found.value[0] <= found.error[0]
    assert found.error[0] > 100 * residual


def test_unit_eigenvector_belongs_to_the_value():
    matrix, _ = symmetric(np.random.default_rng(0).normal(size=50), 0)
    found = find(matrix)
    vector = found.vector[0]
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-12)
    assert np.linalg.norm(matrix @ vector - found.value[0] * vector) <= 1e-9


def test_result_does_not_depend_on_the_rest_of_the_batch():
    spectra = [np.r_[1.0, np.zeros(59)], np.linspace(-1, 1, 60), np.geomspace(1e-3, 1, 60)]
    matrices = np.stack([symmetric(spectrum, k)[0] for k, spectrum in enumerate(spectra)])
    together = find(matrices)
    assert len(set(together.products)) > 1  # each is left when it is done
    for index, matrix in enumerate(matrices):
        for ours, theirs in zip(find(matrix), together, strict=True):
            np.testing.assert_allclose(ours[0], theirs[index], rtol=1e-12, atol=1e-14)


def test_where_rounding_is_above_the_tolerance_it_ends_when_nothing_else_is():
    matrix = symmetric(np.r_[3.0, np.linspace(-1, 1, 199)], 2)[0].astype(np.float32)
    found = find(matrix, tolerance=1e-9)
    assert found.products[0] < 60
    assert 1e-9 * 3 < found.error[0] < 1e-3
    assert abs(float(found.value[0]) - 3) <= found.error[0]


def test_a_member_that_is_not_finite_leaves_the_others_alone():
    good, _ = symmetric(np.linspace(-1, 2, 30), 0)
    found = find(np.stack([good, np.full_like(good, np.nan), good]))
    assert np.isnan(found.value[1])
    assert found.error[1] == np.inf
    assert np.abs(found.value[[0, 2]] - 2).max() <= TOLERANCE * 2


def test_single_precision_reports_a_single_precision_error():
    spectrum = np.linspace(-1, 3, 50)
    matrix = symmetric(spectrum, 2)[0].astype(np.float32)
    found = find(matrix, tolerance=1e-4)
    assert found.value.dtype == np.float32
    assert abs(float(found.value[0]) - 3) <= found.error[0] <= 1e-4 * 3


@pytest.mark.parametrize("size", [1, 2, lanczos.DENSE, lanczos.DENSE + 1])
def test_the_top_of_many_tridiagonal_matrices_is_that_of_each(rng, size):
    diagonal, beside = rng.normal(size=(4, size)), rng.normal(size=(4, size - 1))
    diagonal[2, 0] = np.nan  # must not touch its neighbors
    values, vectors = lanczos._top_of_tridiagonal(diagonal, beside)
    assert np.isnan(values[2])
    for k in (0, 1, 3):
        matrix = np.diag(diagonal[k]) + np.diag(beside[k], 1) + np.diag(beside[k], -1)
        assert values[k] == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-13)
        np.testing.assert_allclose(matrix @ vectors[k], values[k] * vectors[k], atol=1e-13)
        assert np.linalg.norm(vectors[k]) == pytest.approx(1, rel=1e-13)


# --- from a guess of the eigenvector ---

SPECTRUM = np.r_[3.0, 2.0, np.linspace(-1, 1, 198)]


def test_a_good_guess_saves_products_and_keeps_the_certificate():
    matrix, basis = symmetric(SPECTRUM, 0)
    noise = np.random.default_rng(1).normal(size=200)
    guess = basis[:, 0] + 0.02 * noise / np.linalg.norm(noise)
    cold, warm = find(matrix, tolerance=1e-8), find(matrix, tolerance=1e-8, guess=guess[None])
    assert warm.products[0] < 0.9 * cold.products[0]
    for found in (cold, warm):
        assert abs(found.value[0] - 3) <= found.error[0] <= 3e-8


def test_a_guess_of_zero_is_no_guess():
    matrix, _ = symmetric(-np.linspace(1, 2, 60), 0)
    found = find(matrix, guess=np.zeros((1, 60)))
    assert abs(found.value[0] + 1) <= found.error[0] <= 2 * TOLERANCE


@pytest.mark.parametrize("column", [1, 150])
def test_a_guess_of_another_eigenvector_does_not_hide_the_largest(column):
    matrix, basis = symmetric(SPECTRUM, 0)
    found = find(matrix, guess=basis[:, column][None])
    assert abs(found.value[0] - 3) <= found.error[0] <= 3 * TOLERANCE


@pytest.mark.parametrize("second", [2.3, 2.6, 2.7, 2.8, 2.95])
def test_a_guess_that_was_overtaken_costs_no_more_than_a_few_products(second):
    """The guess lies between the tolerance above and below, where neither clearly wins."""
    matrix, basis = symmetric(np.r_[3.0, second, np.linspace(-1, 1, 198)], 0)
    guess = basis[:, 1] + 0.2 * basis[:, 0] + 0.3 * basis[:, 50]
    cold, warm = (find(matrix, tolerance=0.1, guess=g) for g in (None, guess[None]))
    assert abs(warm.value[0] - 3) <= warm.error[0] <= 0.3
    assert warm.products[0] <= cold.products[0] + 5


def test_guesses_in_spectra_without_a_gap_or_below_zero_are_certified():
    for spectrum in (np.ones(60), np.r_[1.0, 1.0 - 1e-9, np.zeros(58)], -np.linspace(1, 2, 60)):
        matrix, basis = symmetric(spectrum, 0)
        found = find(matrix, guess=basis[:, 0][None])
        assert abs(found.value[0] - spectrum.max()) <= found.error[0] <= 2 * TOLERANCE


def test_loose_tolerances_with_warm_starts_need_a_dozen_products_at_most():
    spectrum = np.r_[10.0, 6.0, 5.0, np.linspace(-0.5, 1, 1997)]
    rng = np.random.default_rng(0)
    guess = np.eye(2000)[0] + 0.2 * rng.normal(size=2000) / np.sqrt(2000)
    found = lanczos.largest(
        lambda members, vectors: vectors * spectrum,
        (1, 2000),
        np.dtype(float),
        guess=guess[None],
        tolerance=0.1,
        max_products=100,
        failure=1e-3,
    )
    assert found.products[0] <= 12
    assert abs(found.value[0] - 10) <= found.error[0] <= 1


def test_errors_fail_no_more_often_than_promised():
    # A guess that is orthogonal to the largest eigenvector, which only the random start can find.
    matrix, basis = symmetric(np.r_[1.2, 1.0, np.linspace(0, 0.5, 98)], 0)
    missed = 0
    for seed in range(300):
        options = {"tolerance": 0.05, "failure": 0.05, "guess": basis[:, 1][None]}
        found = find(matrix, seed=seed, **options)
        missed += abs(found.value[0] - 1.2) > found.error[0]
    assert missed <= 0.05 * 300
