"""Where the printed text of FM and the Talk and the algebra disagree (docs/errata.md)."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, norm

import deeplin as dl
from deeplin.certificates.certificate import certify
from deeplin.dynamics import gradient_flow
from deeplin.networks.products import backward_products, forward_products
from deeplin.papers.errata import ENTRIES, ERRATA, GRADES, NOTES, page
from deeplin.theory import minimal_sharpness
from deeplin.theory.bounds import (
    initialization_scale,
    log_failure_probability,
    minimizer_lower_bound,
    product_bounds,
    residual_constants,
    smallest_admissible_depth,
)

ROOT = Path(__file__).parents[2]

sizes = {
    "s": st.floats(0.1, 3),
    "u": st.floats(0.05, 5),
    "d": st.integers(1, 30),
    "L": st.integers(1, 100),
}


def test_the_page_is_made_from_the_one_list():
    """Make it again with `python -m deeplin.papers.errata docs/errata.md`."""
    assert (ROOT / "docs" / "errata.md").read_text(encoding="utf-8") == page()


def test_entries_are_numbered_once_and_graded():
    """E-14 is withdrawn."""
    numbers = [int(entry.identifier[2:]) for entry in ENTRIES]
    assert numbers == sorted(set(numbers))
    assert set(numbers) == set(range(1, 35)) - {14}
    assert {entry.grade for entry in ENTRIES} == set(GRADES)
    assert {entry.identifier for entry in NOTES} == {"E-9", "E-10", "E-11"}
    results = {entry.identifier for entry in ERRATA if entry.grade == "A"}
    assert results == {"E-4", "E-6", "E-19", "E-24"}


def test_every_erratum_names_exactly_its_tests():
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("test_errata*.py"))
    tests = set(re.findall(r"^def (test_errata_\w+)", source, flags=re.MULTILINE))
    for erratum in ENTRIES:
        prefix = f"test_errata_E{erratum.identifier[2:]}_"
        assert set(erratum.tests) == {name for name in tests if name.startswith(prefix)} != set()


def test_errata_E1_the_printed_bound_is_below_the_true_tail():
    """P(S_{L,1} ≥ s² + u) is a tail of χ²(Ld), known exactly."""
    s, u, d, L = 0.5, 5.0, 3, 2
    true = chi2(L * d).sf(L * d + L * d * u / s**2)
    assert true > np.exp(-L * d * u**2 / (4 * s**4 + u * s**2))
    assert true <= np.exp(-L * d * u**2 / (4 * s**4 + 4 * u * s**2))


@given(**sizes)
def test_errata_E1_the_papers_next_line_holds_for_the_corrected_bound(s, u, d, L):
    """For u ≥ s² the paper goes on with Ldu²/(8us²), which is at most the corrected exponent."""
    u = max(u, s**2)
    assert L * d * u**2 / (8 * u * s**2) <= L * d * u**2 / (4 * s**4 + 4 * u * s**2) * (1 + 1e-12)


def test_errata_E2_the_printed_bound_is_below_the_true_tail_exactly_where_the_rates_say():
    """P(S_{L,3} ≥ 4s²/d + u) = P(χ²(L) ≥ L(1+x)), x = du/4s²; its logarithm beside the bounds."""

    def logarithms(s, d, L, u):
        tail = chi2(L).logsf(L + L * d * u / (4 * s**2))
        exponent = L * d**2 * u**2 / (16 * (4 * s**2 + d * u))
        return tail, -exponent, -exponent / s**2

    true, printed, corrected = logarithms(2.0, 3, 4, 16.0)
    assert printed < true <= corrected
    for s, x, L in ((1.05, 0.1, 300_000), (1.05, 1.0, 300_000), (1.05, 1.0, 4), (1.5, 30.0, 40)):
        true, printed, corrected = logarithms(s, 3, L, 4 * s**2 * x / 3)
        below = s**2 > 2 * (1 + x) * (x - np.log1p(x)) / x**2
        assert true <= corrected
        assert (printed < true) == below == (x != 1.0)


def printed_log_failure(s, d, L, u):
    """The failure bound of FM-L3 with its second and fourth tails as printed."""
    coarse = d * np.log(5)
    fine = d * np.logaddexp(np.log(8) + s**2 / 2 + 2 * s**2 / d + 2 * u, 0)  # log(2M/m + 1)^d
    terms = [
        coarse - d * u**2 / (16 * s**2),
        coarse - L * d * u**2 / (4 * s**4 + u * s**2),
        fine - d * u**2 / (16 * s**2),
        fine - L * d**2 * u**2 / (16 * (4 * s**2 + d * u)),
        fine + np.log(L) - L * d / (32 * s**2) + 0 * u,
    ]
    return np.logaddexp.reduce(terms, axis=0)


def test_errata_E2_the_library_evaluates_the_corrected_expression():
    s, d, L, u = 3.0, 3, 4, 30.0
    assert log_failure_probability(s, d, L, u) > printed_log_failure(s, d, L, u)


@pytest.mark.parametrize(
    ("s", "corrected", "printed", "listed"), [(0.1, 3, 116, 118), (0.01, 1, 797, 822)]
)
def test_errata_E2_the_corrected_tail_strengthens_the_lemma_for_small_noise(
    s, corrected, printed, listed
):
    """X-21: s^{−2/3} came from the printed tails. The depths listed with X-21 are admissible; the
    smallest over u are a little below."""
    u = np.geomspace(1e-3, 1e3, 6001)
    claimed = np.log(8) - 5 * u**2 / (32 * s**2)

    def admissible(L):
        return np.any((printed_log_failure(s, 5, L, u) <= claimed) & (claimed < 0))

    assert smallest_admissible_depth(s, 5) == corrected
    assert not admissible(printed - 1)
    assert admissible(printed)
    assert admissible(listed)


@given(s=st.floats(0.1, 2), d=st.integers(1, 20), rate=st.floats(0.1, 3))
def test_errata_E3_the_moment_generating_function_has_a_factor_two(s, d, rate):
    spread = 2 * s / np.sqrt(d)
    x = np.linspace(-12, 12, 20_001) * spread + rate * spread**2
    density = norm.pdf(x, scale=spread)
    expectation = np.sum(np.exp(rate * x) * density) * (x[1] - x[0])
    assert expectation == pytest.approx(np.exp(2 * s**2 * rate**2 / d), rel=1e-6)


def test_errata_E3_the_larger_bound_is_the_one_called_M():
    bounds = product_bounds(0.3, 5, 0.2)
    assert bounds.largest > 1 > bounds.smallest


def test_errata_E7_the_printed_alignment_does_not_follow_from_the_lemma():
    """FM-L2 (c) at the smallest σ that FM-C1 allows is weaker than the printed bound."""
    epsilon, size, L = 1e-4, 1.5, 3
    smallest = (size / 2) ** (1 / L)
    lemma = 1 - epsilon / smallest**2
    assert lemma == pytest.approx(1 - epsilon / (size / 2) ** (2 / L))
    assert lemma < 1 - epsilon / (2 * size) ** (2 / L)


def test_errata_E8_the_printed_bound_would_exceed_the_minimal_sharpness(problem):
    minimal = minimal_sharpness(problem, 3)
    first, second, third = minimal.minimizer.weights
    for C in (1.0, 10.0, 1e4):
        stretched = dl.Network([C * first, second / C, third])
        norms = [np.linalg.norm(weight) for weight in stretched.weights]
        bound = minimizer_lower_bound(problem, norms)
        assert dl.sharpness(problem, stretched, method="exact").value >= bound * (1 - 1e-12)
    assert bound > 100 * minimal.exact  # so it cannot bound S_min from below


def test_errata_E9_the_recorded_distance_is_the_sum_over_coordinates(problem):
    net = dl.initialize.gaussian(jax.random.key(0), (5, 5, 1), 0.3)
    run = dl.gradient_descent(problem, net, 0.01, 10, record_every=10, record=("distance",))
    squares = (np.asarray(run.network.product) - problem.optimum) ** 2
    assert run.records["distance"][-1] == pytest.approx(np.sum(squares), rel=1e-12)
    assert np.sum(squares) == pytest.approx(5 * np.mean(squares))


def test_errata_E12_the_variational_formula_gives_the_largest_modulus(rng):
    """Three small scalar layers: −abc bends downwards twice as much as upwards."""
    X = rng.normal(size=(20, 1))
    problem = dl.Problem.from_data(X, X[:, 0])
    centre = np.full(3, 0.1)

    def network(point):
        return dl.Network([[[entry]] for entry in point])

    def slope(point):
        return np.ravel(dl.networks.network.linear_gradient(problem.device_risk, network(point)))

    top = dl.sharpness(problem, network(centre), method="dense").value
    bottom = dl.sharpness(problem, network(centre), method="dense", which="smallest").value
    directions = rng.normal(size=(200, 3))
    directions = np.vstack([np.ones(3), directions])
    steps = 1e-5 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    quotients = [np.linalg.norm(slope(centre + h) - slope(centre)) / 1e-5 for h in steps]
    assert max(quotients) == pytest.approx(-bottom, rel=1e-3)
    assert max(quotients) > 1.5 * top


@pytest.fixture(scope="module")
def tiny_signal():
    """32L√ε ≤ 1 and full rank, but ‖w*‖ = 1e-6; the flow to its end."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    w = np.array([0.6, 0.8]) * 1e-6
    problem = dl.Problem.from_data(X, X @ w)
    weights = [np.zeros((2, 2)), np.sqrt([[2e-5, 2e-5]])]
    start = dl.Network([jnp.asarray(weight) for weight in weights])
    assert 32 * 2 * np.sqrt(initialization_scale(start)) <= 1
    return problem, gradient_flow(problem, start, gap=1e-8 * problem.target_moment, atol=1e-16)


def test_errata_E13_without_a_lower_bound_on_the_signal_the_corollary_fails(tiny_signal):
    """A tiny w* leaves a layer above (2‖w*‖)^{1/L}."""
    problem, run = tiny_signal
    sigma = [np.linalg.norm(weight, 2) for weight in run.network.weights]
    assert run.status == "converged"
    assert max(sigma) > 2 * (2 * problem.optimum_norm) ** 0.5
    row = certify(problem, run, only="FM-C1").iloc[0]
    assert row.verdict == "hypotheses not met"
    assert row.hypotheses == "FM-A2, ‖w*‖ ≥ 1 (1e-06 < 1)"


def test_errata_E13_the_bound_on_the_sharpness_fails_there_too(tiny_signal):
    """S/S_min is twice 4Λ/λ."""
    problem, run = tiny_signal
    ratio = dl.sharpness(problem, run.network).value / minimal_sharpness(problem, 2).exact
    assert ratio > 2 * 4 * problem.condition_number


def test_errata_E15_the_derivative_in_lemma_7_has_a_square_root():
    """F(t) = √μ∫‖∇f‖ + 2√(f − f_min) on f = x², where x(t) = x_0e^{−2t} and μ = 4."""
    mu, start, step = 4.0, 3.0, 1e-6

    def F(t):
        path = start * (1 - np.exp(-2 * t))
        return np.sqrt(mu) * path + 2 * start * np.exp(-2 * t)

    measured = (F(0.5 + step) - F(0.5 - step)) / (2 * step)
    x = start * np.exp(-1.0)
    with_root = 2 * x * (np.sqrt(mu) - 2 * x / np.sqrt(x**2))
    printed = 2 * x * (np.sqrt(mu) - 2 * x / x**2)
    assert measured == pytest.approx(with_root, abs=1e-8)
    assert abs(measured - printed) > 0.1


def test_errata_E16_the_perturbation_must_be_v_times_u_transposed(problem):
    """u_k has d_{k−1} entries and v_k has d_k: only v_k u_kᵀ has the shape of W_k."""
    network = dl.initialize.gaussian(jax.random.key(0), (5, 4, 3, 1), 0.5)
    w = jnp.asarray(problem.optimum)[:, None]
    u = forward_products(network.weights, 2 * problem.covariance @ w)
    v = backward_products(network.weights)[1:]
    for weight, u_k, v_k in zip(network.weights, u, v, strict=True):
        assert (v_k @ u_k.T).shape == weight.shape
    assert (u[0] @ v[0].T).shape != network.weights[0].shape


def test_errata_E17_the_union_is_the_intersection_with_the_first_event():
    """P(Ā ∪ B̄) = P(Ā) + P(B̄ ∩ A); with a union on the right it would exceed one."""
    rng = np.random.default_rng(0)
    A, B = rng.random(1000) < 0.9, rng.random(1000) < 0.8
    assert np.mean(~A | ~B) == pytest.approx(np.mean(~A) + np.mean(~B & A))
    assert np.mean(~A) + np.mean(~B | A) > 1 > np.mean(~A | ~B)


def test_errata_E18_the_multivariate_risk_compares_transposed_targets(rng):
    """X, Y are n×d and W_L…W_1Xᵀ is d×n: the risk needs Yᵀ, and no p is left to appear."""
    X, Y = rng.normal(size=(12, 3)), rng.normal(size=(12, 3))
    network = dl.initialize.residual(jax.random.key(0), width=3, depth=2, scale=0.1)
    product = np.asarray(network.weights[1] @ network.weights[0])
    problem = dl.Problem.from_data(X, Y)
    expected = np.linalg.norm(Y.T - product @ X.T) ** 2 / 12
    assert dl.networks.network.linear_risk(problem.device_risk, network) == pytest.approx(expected)
    assert network.readout is None
    with pytest.raises(ValueError, match="broadcast"):
        Y - product @ X.T


def test_errata_E22_a_step_of_the_first_layer_alone_counts(problem):
    """Eq. (21) bounds ‖∇R¹‖ after a step of all layers; summed from k = 2 a step of W_1 costs 0."""
    network = dl.initialize.rank_one(problem.optimum, 3)
    step = 1e-6 * np.ones_like(network.weights[0])
    moved = dl.Network([network.weights[0] + step, *network.weights[1:]])
    slope = 2 * problem.covariance @ (np.asarray(moved.product) - problem.optimum)
    others = np.prod([np.linalg.norm(np.asarray(w), 2) for w in network.weights[1:]])
    from_one = 2 * problem.largest_eigenvalue * np.linalg.norm(step, 2) * others
    assert 0 < np.linalg.norm(slope) <= from_one * (1 + 1e-9)  # and the sum from 2 is zero


@given(s=st.floats(0.01, 2), u=st.floats(0.1, 5))
def test_errata_E23_the_bounds_multiply_to_thirty_two(s, u):
    """(43) with both products at the bound of (39)."""
    product = 4 * np.exp(s**2 / 2 + u)
    assert 2 * product * product == pytest.approx(32 * np.exp(s**2 + 2 * u), rel=1e-12)


@pytest.mark.parametrize(("s", "d", "L"), [(0.05, 5, 10), (0.25, 5, 60), (0.5, 5, 600)])
def test_errata_E23_only_the_corrected_constant_ends_below_the_radius(s, d, L):
    """2^{12}exp(s² + 8s²/d + 6u)√C_4 against C_5; with the printed 2^{11} it also misses C_5/2."""
    corrected = residual_constants(s, d, L)
    printed = 2.0**-36 * np.exp(-4 * s**2 - 16 * s**2 / d - 20 * corrected.u)  # C_4
    factor = 2**12 * np.exp(s**2 + 8 * s**2 / d + 6 * corrected.u)
    assert factor * np.sqrt(corrected.gap) <= corrected.radius * (1 + 1e-9)
    assert factor * np.sqrt(printed) == pytest.approx(np.exp(s**2) * corrected.radius, rel=1e-9)
    assert factor / 2 * np.sqrt(printed) > corrected.radius / 2


@given(C=st.floats(0.1, 10), u=st.floats(0.01, 100))
def test_errata_E25_the_sum_is_bounded_by_the_smaller_constant(C, u):
    total = C**2 / 2 + C / 2 * u
    assert total >= min(C, C**2) / 2 * (1 + u) * (1 - 1e-12)
    assert total < (C**2 + C) / 2 * (1 + u)


def test_errata_E26_the_transposed_layer_has_its_vectors_in_the_other_order(rng):
    W = np.outer(rng.normal(size=4), rng.normal(size=3)) + 1e-6 * rng.normal(size=(4, 3))
    left, values, right = np.linalg.svd(W)
    u, v = left[:, 0], right[0]
    assert np.linalg.norm(W.T - values[0] * np.outer(v, u)) < 1e-5
    assert np.outer(u, v).shape != W.T.shape


def test_errata_E27_the_smallest_singular_value_scales_like_a_root(rng):
    """s_k is a sum of variances: σ_min/√s_k does not change with the unit of the inputs."""
    X, variances = rng.normal(size=(10, 400)), np.full(400, 1.0)
    smallest, tail = np.linalg.svd(X, compute_uv=False)[-1], variances.sum()
    scaled = np.linalg.svd(0.01 * X, compute_uv=False)[-1], 1e-4 * tail
    assert scaled[0] / np.sqrt(scaled[1]) == pytest.approx(smallest / np.sqrt(tail), rel=1e-9)
    assert scaled[0] / scaled[1] == pytest.approx(100 * smallest / tail, rel=1e-9)
    assert 0.5 < smallest / np.sqrt(tail) < 1
    assert smallest < tail / 10  # so s_k/c is no lower bound with a moderate c


@given(alpha=st.floats(0.01, 1), beta=st.floats(1.5, 50), L=st.integers(2, 100))
def test_errata_E28_the_square_of_the_bound_has_the_square_of_beta(alpha, beta, L):
    Lambda = (alpha + 1 / L) * beta
    assert Lambda**2 == pytest.approx((alpha + 1 / L) ** 2 * beta**2, rel=1e-12)
    assert Lambda**2 > (alpha + 1 / L) ** 2 * beta


@pytest.mark.parametrize("depth", [2, 5, 20])
def test_errata_E29_the_flattest_minimizer_of_white_data_is_below_the_printed_bound(depth):
    X = np.sqrt(3) * np.eye(3)  # Σ̂ = I, a = 1
    problem = dl.Problem.from_data(X, X @ np.array([2.0, 1.0, 2.0]))
    reached = dl.sharpness(problem, minimal_sharpness(problem, depth).minimizer).value
    assert reached == pytest.approx(2 * depth * 3 ** (2 - 2 / depth), rel=1e-9)
    assert reached * 3 ** (2 / depth) == pytest.approx(2 * depth * 9, rel=1e-9)
    assert reached < 2 * depth * problem.alignment * problem.optimum_norm**2


@pytest.mark.parametrize("s", [0.1, 0.5, 1.0])
def test_errata_E32_the_printed_constant_falls_with_the_width(s):
    """C = 2⁸exp(2s² + 4C̃_3)C'^{−2}; with C̃_2 ≤ d in the place of d it is one number above all."""
    least, u = 4, 1.0

    def constant(d):
        root = 2**-18 * np.exp(-3 * s**2 - 8 * s**2 / least - 10 * u)  # √C_4, corrected (E-23)
        return 2**8 * np.exp(2 * s**2 + 4 * u) * (np.exp(-2 * s**2 / d - u) / 4 - root) ** -2

    values = np.array([constant(d) for d in (4, 8, 16, 1000)])
    assert (np.diff(values) < 0).all()
    assert values.max() == constant(least)


def test_errata_E33_the_risk_of_the_authors_data_is_bounded_away_from_zero(rng):
    problem = dl.problems.synthetic.marion_chizat("linear").problem
    assert problem.minimal_risk == pytest.approx(0.36822, abs=1e-5)
    X, y = problem.require_data("the test")
    for w in rng.normal(size=(20, problem.dimension)):
        risk = np.mean((y[:, 0] - X @ w) ** 2)
        away = np.mean((X @ (w - np.ravel(problem.optimum))) ** 2)
        assert risk == pytest.approx(problem.minimal_risk + away, rel=1e-9)


def test_errata_E34_a_sum_of_k_squares_has_k_degrees_of_freedom(rng):
    s, L, d, k, draws = 0.7, 12, 5, 4, 20_000
    terms = 2 * s / np.sqrt(L * d) * rng.normal(size=(draws, L))
    scaled = L * d / (4 * s**2) * np.sum(terms[:, :k] ** 2, axis=1)
    assert abs(scaled.mean() - k) < 5 * np.sqrt(2 * k / draws)
    assert abs(scaled.mean() - L) > 100 * np.sqrt(2 * L / draws)
