import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minimizer_search import largest, least, make_problem, random_minimizer
from scipy.optimize import minimize_scalar

import deeplin as dl
from deeplin.theory import critical_learning_rate, minimal_sharpness
from deeplin.theory.bounds import minimizer_lower_bound
from deeplin.theory.roots import largest_eigenvalue_of_update


def dense_sharpness(problem, network):
    """The oracle: the whole Hessian by automatic differentiation."""
    return dl.sharpness(problem, network, method="dense").value


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize(
    "shape",
    [{}, {"spread": 30.0}, {"rank": 2}, {"n": 2}],
    ids=["plain", "ill-conditioned", "singular", "interpolating"],
)
def test_exact_value_is_what_direct_minimization_over_minimizers_finds(depth, shape):
    problem = make_problem(seed=3, **{"spread": 1.0} | shape)
    exact = minimal_sharpness(problem, depth).exact
    found = least(problem, depth, largest, seeds=3)
    assert found == pytest.approx(exact, rel=1e-8)
    assert found >= exact * (1 - 1e-12)


def one_dimensional_oracle(problem, depth, norm=1.0):
    """The minimum over t of X-2 as printed, with a dense eigenvalue inside."""
    values, vectors = np.linalg.eigh(problem.covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    w = problem.optimum

    def top(tau):
        weight = (depth - 1) * (norm * np.exp(-tau)) ** (2 / (depth - 1))
        inside = np.exp(2 * tau) * np.eye(len(w)) + weight * np.outer(w, w)
        return np.linalg.eigvalsh(2 * root @ inside @ root)[-1]

    return minimize_scalar(top, bracket=(-1, 1), tol=1e-12).fun


def problems(inputs):
    spreads = st.sampled_from([1.0, 10.0, 1e3])
    seeds, rows = st.integers(0, 10**6), st.integers(2, 12)
    return st.builds(make_problem, inputs, seed=seeds, n=rows, spread=spreads)


@given(problem=problems(st.integers(2, 6)), depth=st.integers(2, 12), norm=st.floats(0.1, 10))
def test_exact_value_lies_in_the_bracket_and_matches_the_formula(problem, depth, norm):
    readout = norm * np.array([0.6, 0.8])
    minimal = minimal_sharpness(problem, depth, readout)
    assert minimal.lower <= minimal.exact * (1 + 1e-12)
    assert minimal.exact <= minimal.upper * (1 + 1e-12)
    expected = one_dimensional_oracle(problem, depth, norm)
    assert minimal.exact == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("readout", [None, np.array([0.3, -1.2, 0.5])])
def test_minimizer_attains_the_exact_value(problem, depth, readout):
    minimal = minimal_sharpness(problem, depth, readout)
    for network in (minimal.minimizer, minimal.attaining(hidden=1)):
        np.testing.assert_allclose(network.product, problem.optimum, rtol=1e-12)
        assert dense_sharpness(problem, network) == pytest.approx(minimal.exact, rel=1e-10)


@given(problem=problems(st.just(4)), depth=st.sampled_from([2, 4]), seed=st.integers(0, 1000))
def test_no_minimizer_is_flatter_than_the_bounds(problem, depth, seed):
    network = random_minimizer(problem, depth, np.random.default_rng(seed))
    measured = dl.sharpness(problem, network, method="exact").value
    norms = [np.linalg.norm(weight) for weight in network.weights]
    assert measured >= minimal_sharpness(problem, depth).exact * (1 - 1e-9)
    assert measured >= minimizer_lower_bound(problem, norms) * (1 - 1e-9)


def test_printed_reference_values_of_the_bracket_are_reproduced():
    a, Lambda = 0.93281, 1.59418
    share = (a - 0.5) / (Lambda - 0.5)  # two eigenvalues that give this a and Λ
    w = np.sqrt([share, 1 - share])
    sigma = np.diag([Lambda, 0.5])
    problem = dl.Problem.from_moments(sigma, sigma @ w, 5.0, samples=50)
    minimal = {depth: minimal_sharpness(problem, depth) for depth in (2, 10)}
    assert minimal[2].lower == pytest.approx(3.7312, abs=1e-4)
    assert minimal[2].upper == pytest.approx(5.8290, abs=1e-4)
    assert minimal[10].lower == pytest.approx(18.6561, abs=2e-4)
    assert minimal[10].upper == pytest.approx(21.7961, abs=2e-4)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_signal_beside_the_top_eigenvector_is_handled_exactly(depth):
    """The optimum then sits where the two largest eigenvalues meet."""
    sigma = np.diag([3.0, 1.0, 0.1])
    problem = dl.Problem.from_moments(sigma, [0.0, 1.0, 1.0], 20.0, samples=10)
    exact = minimal_sharpness(problem, depth).exact
    assert exact == pytest.approx(one_dimensional_oracle(problem, depth), rel=1e-9)


def test_many_inputs_cost_no_square_matrix(rng):
    X = rng.normal(size=(12, 30_000))
    problem = dl.Problem.from_data(X, rng.normal(size=12))
    small = dl.Problem.from_data(*_reduced(X, problem))
    for depth in (2, 7):
        exact = minimal_sharpness(problem, depth).exact
        assert exact == pytest.approx(minimal_sharpness(small, depth).exact, rel=1e-10)
        assert exact == pytest.approx(one_dimensional_oracle(small, depth), rel=1e-9)
    assert "covariance" not in problem.__dict__


def _reduced(X, problem):
    basis = np.linalg.qr(X.T)[0]
    return X @ basis, problem.require_data("the oracle")[1][:, 0]


def test_depth_one_has_the_same_sharpness_everywhere(problem):
    p = np.array([2.0])
    assert minimal_sharpness(problem, 1, p).exact == pytest.approx(8 * problem.largest_eigenvalue)
    minimal = minimal_sharpness(problem, 1)
    assert minimal.lower <= minimal.exact <= minimal.upper * (1 + 1e-15)


def test_minimal_sharpness_grows_like_two_la_with_depth(problem):
    depth = 10**6
    leading = 2 * problem.optimum_norm**2 * depth * problem.alignment
    assert minimal_sharpness(problem, depth).exact == pytest.approx(leading, rel=1e-4)


@given(
    diagonal=st.lists(st.sampled_from([0.0, 0.1, 1.0, 1.0, 2.5]), min_size=1, max_size=6),
    seed=st.integers(0, 10**6),
)
def test_secular_equation_gives_the_largest_eigenvalue_of_an_update(diagonal, seed):
    rng = np.random.default_rng(seed)
    D = np.array(diagonal)
    b = rng.normal(size=len(D)) * rng.choice([0.0, 1e-9, 1.0], size=len(D))
    expected = np.linalg.eigvalsh(np.diag(D) + np.outer(b, b))[-1]
    assert largest_eigenvalue_of_update(D, b**2) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_secular_equation_is_solved_across_hundreds_of_orders():
    D, squares = np.array([2.0, 1.0]), np.array([1e-290, 1e-30])
    found = largest_eigenvalue_of_update(D, squares) - 2.0
    assert found == 0.0  # the distance, about 1e-290, is below the rounding of the eigenvalue
    D, squares = np.array([0.0, -1.0]), np.array([1e-290, 0.999])
    distance = largest_eigenvalue_of_update(D, squares)
    assert squares[0] / distance + squares[1] / (distance + 1) == pytest.approx(1, rel=1e-12)


def test_printed_critical_rate_is_twice_the_inverse_lower_bound(problem):
    minimal = minimal_sharpness(problem, 10)
    size, a = problem.optimum_norm, problem.alignment
    assert minimal.printed_critical_learning_rate == pytest.approx(1 / (size**1.8 * 10 * a))
    assert critical_learning_rate(problem, 10) == pytest.approx(2 / minimal.exact)
    assert critical_learning_rate(problem, 10) <= minimal.printed_critical_learning_rate


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 0}, "depth"),
        ({"depth": 2.5}, "depth"),
        ({"depth": 2, "readout": np.zeros(3)}, "readout is zero"),
        ({"depth": 2, "readout": [np.nan]}, "readout"),
        ({"depth": 2, "momentum": 1.0}, "momentum"),
        ({"depth": 2, "momentum": -0.1}, "momentum"),
    ],
)
def test_bad_input_is_named(problem, arguments, message):
    with pytest.raises(dl.InputError, match=message):
        critical_learning_rate(problem, **arguments)


def test_undefined_problems_are_named(rng):
    X = rng.normal(size=(10, 3))
    with pytest.raises(dl.InputError, match="one target"):
        minimal_sharpness(dl.Problem.from_data(X, X), 2, readout=np.ones(3))
    with pytest.raises(dl.InputError, match="undefined"):
        minimal_sharpness(dl.Problem.from_data(X, np.zeros(10)), 2)
