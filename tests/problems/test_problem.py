import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

import deeplin as dl
from deeplin.problems.moments import Moments

shapes = st.tuples(
    st.integers(1, 12),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(0, 2**31),
)


def rows_of(shape):
    n, d, q, seed = shape
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, q))


@given(shapes)
def test_optimum_is_the_minimum_norm_least_squares_solution(shape):
    X, Y = rows_of(shape)
    problem = dl.Problem.from_data(X, Y)
    expected, *_ = scipy.linalg.lstsq(X, Y)
    optimum = np.atleast_2d(problem.optimum).T  # (q, d), or (d,) for one output
    np.testing.assert_allclose(optimum, expected, rtol=1e-8, atol=1e-9)
    residual = np.sum((Y - X @ expected) ** 2) / len(X)
    assert problem.minimal_risk == pytest.approx(residual, rel=1e-9, abs=1e-14)
    assert problem.rank == np.linalg.matrix_rank(X)


@given(shapes)
def test_eigenvalues_are_those_of_the_covariance(shape):
    X, Y = rows_of(shape)
    problem = dl.Problem.from_data(X, Y)
    eigenvalues = np.linalg.eigvalsh(X.T @ X / len(X))[::-1][: problem.rank]
    np.testing.assert_allclose(problem.spectrum.eigenvalues, eigenvalues, rtol=1e-7)
    assert problem.largest_eigenvalue == pytest.approx(eigenvalues[0])
    assert problem.smallest_eigenvalue == pytest.approx(eigenvalues[-1], rel=1e-7)


@given(shapes, st.integers(1, 5))
def test_chunks_moments_and_data_describe_the_same_problem(shape, size):
    X, Y = rows_of(shape)
    whole = dl.Problem.from_data(X, Y)
    chunks = dl.Problem.from_chunks(
        (X[i : i + size], Y[i : i + size]) for i in range(0, len(X), size)
    )
    moments = dl.Problem.from_moments(X.T @ X / len(X), X.T @ Y / len(X), Y.T @ Y / len(X), len(X))
    for other in (chunks, moments):
        assert other.samples == whole.samples
        np.testing.assert_allclose(other.covariance, whole.covariance, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(other.cross_moment, whole.cross_moment, rtol=1e-12, atol=1e-13)
        assert other.target_moment == pytest.approx(whole.target_moment, rel=1e-12)
        if whole.condition_number < 1e3 and other.rank == whole.rank:
            np.testing.assert_allclose(other.optimum, whole.optimum, rtol=1e-8, atol=1e-9)


def test_singular_values_are_not_squared_away_from_data():
    # Condition number 1e9 of X: hopeless from XᵀX in double precision, fine from X itself.
    rng = np.random.default_rng(3)
    U, _ = np.linalg.qr(rng.normal(size=(40, 3)))
    V, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    X = U * np.array([1.0, 1e-4, 1e-9]) @ V.T
    w = rng.normal(size=3)
    problem = dl.Problem.from_data(X, X @ w)
    assert problem.rank == 3
    np.testing.assert_allclose(problem.optimum, w, rtol=1e-6)


def test_alignment_is_the_rayleigh_quotient_at_the_optimum(problem):
    direction = problem.optimum / np.linalg.norm(problem.optimum)
    assert problem.alignment == pytest.approx(direction @ problem.covariance @ direction, rel=1e-13)
    assert problem.smallest_eigenvalue <= problem.alignment <= problem.largest_eigenvalue


def test_gap_about_the_optimum_keeps_relative_accuracy_where_the_expanded_form_does_not(problem):
    step = 1e-9 * np.ones(5)
    exact = step @ problem.covariance @ step
    w = problem.optimum + step
    assert float(problem.gap(w)) == pytest.approx(exact, rel=1e-5)
    expanded = problem.target_moment - 2 * w @ problem.cross_moment + w @ problem.covariance @ w
    assert abs((expanded - problem.minimal_risk) / exact - 1) > 1e-5


def test_one_output_has_a_vector_as_its_map_and_targets_keep_their_shape(rng):
    X, y = rng.normal(size=(20, 4)), rng.normal(size=20)
    for targets in (y, y[:, None]):
        problem = dl.Problem.from_data(X, targets)
        assert problem.targets.shape == targets.shape
        assert problem.optimum.shape == problem.cross_moment.shape == (4,)
        assert dl.Problem.from_chunks([(X, targets)]).optimum.shape == (4,)
    several = dl.Problem.from_data(X, np.stack([y, 2 * y], axis=1))
    assert several.optimum.shape == (2, 4)
    assert several.value_and_gradient(several.optimum)[1].shape == (2, 4)
    np.testing.assert_allclose(several.gap(np.zeros((3, 2, 4))), several.zero_gap)


def test_accumulated_moments_survive_a_mean_far_larger_than_the_spread():
    rng = np.random.default_rng(4)
    X, y = 1e7 + rng.normal(size=(1000, 3)), rng.normal(size=1000)
    parts = [Moments.of_rows(X[i : i + 100], y[i : i + 100, None]) for i in range(0, 1000, 100)]
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    expected = np.cov(np.column_stack([X - 1e7, y]).T, bias=True)
    # 1e7 carries an absolute rounding of 2e-9, the only loss there is.
    np.testing.assert_allclose(total.centered, expected, atol=1e-8)
    np.testing.assert_allclose(total.mean[:3], X.mean(axis=0), rtol=1e-14)


def test_wide_inputs_never_need_a_square_matrix(rng):
    X, y = rng.normal(size=(5, 50_000)), rng.normal(size=5)
    problem = dl.Problem.from_data(X, y)
    np.testing.assert_allclose(X @ problem.optimum, y, rtol=1e-10)
    assert problem.rank == 5
    assert "covariance" not in vars(problem)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.array([[1.0, np.nan]]), np.ones(1), "X holds 1 NaN or infinite"),
        (np.ones((2, 2)), np.array([1.0, np.inf]), "y holds 1 NaN or infinite"),
        (np.ones((3, 2)), np.ones(2), "X has 3 rows and y has 2"),
        (np.ones((0, 2)), np.ones(0), "X is empty"),
        (np.ones((2, 0)), np.ones(2), "X is empty"),
        (np.ones(3), np.ones(3), "X has shape \\(3,\\)"),
        (np.array([["a", "b"]]), np.ones(1), "X is not an array of real numbers"),
        (np.ones((2, 2)), np.ones((2, 2, 2)), "y has shape"),
    ],
)
def test_unusable_data_are_refused_with_what_came(X, y, message):
    with pytest.raises(dl.InputError, match=message):
        dl.Problem.from_data(X, y)


def test_a_zero_target_names_the_undefined_quantity(rng):
    problem = dl.Problem.from_data(rng.normal(size=(9, 3)), np.zeros(9))
    assert problem.minimal_risk == 0
    with pytest.raises(dl.InputError, match=r"alignment a.*undefined.*w\* is zero"):
        problem.alignment


def test_zero_inputs_have_no_eigenvalues():
    problem = dl.Problem.from_data(np.zeros((4, 2)), np.ones(4))
    with pytest.raises(dl.InputError, match="eigenvalues λ and Λ are undefined"):
        problem.largest_eigenvalue
    with pytest.raises(dl.InputError, match="is zero"):
        problem.alignment


def test_quantities_of_one_target_refuse_several(rng):
    problem = dl.Problem.from_data(rng.normal(size=(9, 3)), rng.normal(size=(9, 2)))
    with pytest.raises(dl.InputError, match="one target; this problem has 2"):
        problem.alignment


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((2, 3)), np.ones(2), 1.0, 5), "pass d×d"),
        ((np.eye(2), np.ones(3), 9.0, 5), "pass d×d"),
        ((np.array([[1.0, 0.5], [0.1, 1.0]]), np.ones(2), 9.0, 5), "not symmetric"),
        ((-np.eye(2), np.ones(2), 9.0, 5), "no data set has these moments"),
        ((np.eye(2), np.ones(2), 0.5, 5), "no data set has these moments"),
        ((np.eye(2), np.ones(2), 9.0, 0), "samples is 0"),
        ((np.eye(2), np.ones((2, 2)), 9.0, 5), "YᵀY/n"),
    ],
)
def test_impossible_moments_are_refused(arguments, message):
    with pytest.raises(dl.InputError, match=message):
        dl.Problem.from_moments(*arguments)


def test_chunks_of_different_shapes_and_no_chunks_are_refused():
    with pytest.raises(dl.InputError, match="chunks disagree"):
        dl.Problem.from_chunks([(np.ones((2, 2)), np.ones(2)), (np.ones((2, 3)), np.ones(2))])
    with pytest.raises(dl.InputError, match="no chunk"):
        dl.Problem.from_chunks([])


def test_data_are_needed_only_where_moments_do_not_suffice(problem):
    moments = dl.Problem.from_moments(
        problem.covariance, problem.cross_moment, problem.target_moment, problem.samples
    )
    with pytest.raises(dl.InputError, match="needs the data themselves"):
        moments.require_data("a gelu network")


def _refined(X, y, w):
    """The least-squares solution to the last digit of float64, from a good guess.

    Residuals in extended precision: each round multiplies the error by about ε κ².
    """
    gram, wide = X.T @ X, X.astype(np.longdouble)
    solution = w.astype(np.longdouble)
    for _ in range(4):
        step = wide.T @ (y - wide @ solution)
        solution += np.linalg.solve(gram, step.astype(float))
    return solution


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_many_rows_are_solved_as_accurately_as_by_their_singular_values(condition, noise):
    rng = np.random.default_rng(5)
    n, d = 2**15, 40
    Q, _ = np.linalg.qr(rng.normal(size=(d, d)))
    X = rng.normal(size=(n, d)) * np.geomspace(1, 1 / condition, d) @ Q
    w = rng.normal(size=d)
    y = X @ w + noise * rng.normal(size=n)
    problem = dl.Problem.from_data(X, y)
    assert problem._solution is not None
    by_values = problem.spectrum.vectors @ problem.spectrum.coordinates[:, 0]
    exact = _refined(X, y, by_values)
    error = np.linalg.norm(problem.optimum - exact)
    # ε κ for the data, ε κ² for the residual: the sensitivity of the problem itself.
    rounding = np.finfo(float).eps * np.linalg.norm(w)
    assert error <= 10 * rounding * (condition + noise * condition**2)
    assert error <= 10 * np.linalg.norm(by_values - exact) + 10 * rounding
    residual = y - X @ exact
    assert problem.minimal_risk == pytest.approx(float(np.mean(residual**2)), rel=1e-12, abs=1e-25)
    assert problem.rank == d


def test_many_rows_near_a_singular_matrix_are_left_to_the_singular_values():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(2**15, 40))
    for last in (X[:, 0], X[:, 0] + 1e-7 * X[:, -1], 1e-20 * X[:, -1]):
        table = np.c_[X[:, :-1], last]
        problem = dl.Problem.from_data(table, X[:, 1])
        assert problem._solution is None
        assert problem.rank == np.linalg.matrix_rank(table)
        np.testing.assert_allclose(table @ problem.optimum, X[:, 1], atol=1e-8)
