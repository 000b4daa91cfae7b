import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deeplin as dl
from deeplin.certificates.certificate import HOLDS, UNMET, certify
from deeplin.dynamics import gradient_flow
from deeplin.theory import (
    admissible_range,
    log_failure_probability,
    noise_scale,
    product_bounds,
    product_bounds_frequency,
    residual_constants,
    residual_displacement,
    smallest_admissible_depth,
)
from deeplin.theory.residual_initialization import prefix_singular_values, suffix_singular_values


def plain_failure_probability(s, d, L, u):
    """FM-L3 before simplification, corrected, term by term in plain floats."""
    M, m = product_bounds(s, d, u)
    net = (2 * M / m + 1) ** d
    return 5.0**d * (
        np.exp(-d * u**2 / (16 * s**2)) + np.exp(-L * d * u**2 / (4 * s**4 + 4 * u * s**2))
    ) + net * (
        np.exp(-d * u**2 / (16 * s**2))
        + np.exp(-L * d**2 * u**2 / (16 * s**2 * (4 * s**2 + d * u)))
        + L * np.exp(-L * d / (32 * s**2))
    )


@given(s=st.floats(0.2, 1.5), d=st.integers(1, 8), L=st.integers(1, 40), u=st.floats(0.05, 3))
def test_failure_probability_in_log_space_is_the_plain_one(s, d, L, u):
    expected = np.log(plain_failure_probability(s, d, L, u))
    assert log_failure_probability(s, d, L, u) == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_failure_probability_survives_where_floats_do_not():
    tiny = log_failure_probability(0.01, 2000, 5000, 1.0)
    huge = log_failure_probability(3.0, 2000, 2, 50.0)
    assert np.isfinite(tiny)
    assert tiny < -1e6
    assert np.isfinite(huge)
    assert huge > 1e5


@pytest.mark.parametrize(("s", "d", "L"), [(0.05, 5, 10), (0.1, 20, 40), (0.25, 10, 200)])
def test_admissible_u_satisfy_the_lemma_and_their_neighbours_do_not(s, d, L):
    low, high = admissible_range(s, d, L)

    def claimed(u):
        return np.log(8) - d * u**2 / (32 * s**2)

    for u in np.geomspace(low, high, 50):
        assert log_failure_probability(s, d, L, u) <= claimed(u) < 0
    for u in (low / 1.01, high * 1.01):
        bound = log_failure_probability(s, d, L, u)
        assert bound > claimed(u) or claimed(u) >= 0


def test_the_papers_own_sizes_have_no_admissible_u():
    """d = 5, L = 10, s = 0.25 of the figures: the lemma needs deeper networks."""
    assert admissible_range(0.25, 5, 10) is None
    depth = smallest_admissible_depth(0.25, 5)
    assert depth > 10
    assert admissible_range(0.25, 5, depth) is not None
    assert admissible_range(0.25, 5, depth - 1) is None
    assert residual_constants(0.25, 5, 10) is None
    assert smallest_admissible_depth(0.25, 3) is None or admissible_range(0.25, 3, 50) is None


def test_narrow_networks_are_outside_the_lemma():
    assert admissible_range(0.05, 3, 1000) is None


@pytest.mark.parametrize("u", [0.05, 0.3])
def test_measured_frequency_is_at_least_what_the_bound_promises(u):
    s, d, L = 0.25, 4, 8
    frequency = product_bounds_frequency(jax.random.key(0), s, d, L, u, samples=400)
    promised = 1 - np.exp(min(log_failure_probability(s, d, L, u), 0.0))
    assert frequency.interval[1] >= promised
    assert frequency.interval[0] <= frequency.value <= frequency.interval[1]
    assert frequency.value > 0.9  # the bound says nothing here, the event is all but certain


def test_frequency_falls_where_the_bounds_are_tight():
    """With u → 0 and large noise the bounds of the lemma fail visibly often."""
    frequency = product_bounds_frequency(jax.random.key(0), 3.0, 4, 8, 1e-3, samples=200)
    assert frequency.value < 0.9


def test_product_extremes_are_those_of_the_products(rng):
    first, middle, last = weights = [rng.normal(size=(2, 4, 4)) for _ in range(3)]
    for found, products in (
        (prefix_singular_values(weights), (first, middle @ first, last @ middle @ first)),
        (suffix_singular_values(weights), (last @ middle @ first, last @ middle, last)),
    ):
        values = np.linalg.svd(np.stack(products, axis=1), compute_uv=False)
        np.testing.assert_allclose(found[..., 0], values[..., 0], rtol=1e-12)
        np.testing.assert_allclose(found[..., 1], values[..., -1], rtol=1e-9)


def test_scale_and_displacement_are_recovered_from_weights():
    key = jax.random.key(2)
    start = dl.initialize.residual(key, width=30, depth=20, scale=0.4)
    assert noise_scale(start) == pytest.approx(0.4, rel=0.02)
    theta = np.random.default_rng(0).normal(size=(20, 30, 30))
    moved = dl.Network([w + theta[k] / 20 for k, w in enumerate(start.weights)])
    np.testing.assert_allclose(residual_displacement(start, moved), theta, atol=1e-12)
    batch = dl.initialize.residual(jax.random.split(key, 3), 30, 20, np.array([0.1, 0.2, 0.4]))
    np.testing.assert_allclose(noise_scale(batch), [0.1, 0.2, 0.4], rtol=0.02)


@pytest.fixture(scope="module")
def near_start():
    """Data that the residual start explains almost perfectly: inside the radius of FM-T4."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 5))
    net = dl.initialize.residual(jax.random.key(0), 5, 10, 0.05, rng.normal(size=5))
    problem = dl.Problem.from_data(X, X @ (np.asarray(net.product) + 1e-11 * rng.normal(size=5)))
    run = gradient_flow(problem, net, until=2.0, record_every=0.25, rtol=1e-10, atol=1e-24)
    return problem, run


def test_theorem_4_and_its_corollary_hold_where_their_hypotheses_do(near_start):
    only = ["FM-grad-sandwich", "FM-L3", "FM-L9", "FM-T4", "FM-C3"]
    table = certify(*near_start, only=only, flow_tolerance=1e-13)
    assert list(table["verdict"]) == [HOLDS] * 5, table.to_string()


def test_theorem_4_is_silent_for_a_start_far_from_the_data(problem):
    net = dl.initialize.residual(jax.random.key(0), 5, 10, 0.05, np.ones(5) / np.sqrt(5))
    run = gradient_flow(problem, net, until=3.0, record_every=0.5)
    table = certify(problem, run).set_index("id")
    assert table.loc["FM-T4", "verdict"] == UNMET
    assert "C_4" in table.loc["FM-T4", "hypotheses"]
    assert not (table["verdict"] == "violated").any()


def test_multivariate_sandwich_holds_for_square_layers(rng):
    X = rng.normal(size=(30, 4))
    problem = dl.Problem.from_data(X, rng.normal(size=(30, 4)))
    net = dl.initialize.residual(jax.random.key(1), width=4, depth=5, scale=0.3)
    run = gradient_flow(problem, net, until=2.0, record_every=0.5)
    parts = certify(problem, run, only="FM-T5", parts=True).set_index("part")
    assert parts.loc["lower", "verdict"] == HOLDS
    assert parts.loc["upper", "verdict"] == HOLDS
    assert certify(problem, run).all_hold


def test_a_gaussian_start_is_not_taken_for_a_residual_one(problem):
    p = np.ones(5) / np.sqrt(5)
    net = dl.Network(dl.initialize.gaussian(jax.random.key(0), (5,) * 11, 0.3).weights, p)
    row = certify(problem, net, only="FM-L3").iloc[0]
    assert row.verdict == UNMET
    assert "residual initialisation" in row.hypotheses


@pytest.mark.parametrize("arguments", [(0.0, 5, 10, 1.0), (0.1, 0, 10, 1.0), (0.1, 5, -1, 1.0)])
def test_bad_input_is_named(arguments):
    with pytest.raises(dl.InputError):
        log_failure_probability(*arguments)
