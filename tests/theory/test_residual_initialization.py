import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

import deeplin as dl
from deeplin.certificates.certificate import HOLDS, UNMET, certify
from deeplin.dynamics import gradient_flow
from deeplin.theory.bounds import (
    admissible_range,
    draw_constants,
    log_failure_probability,
    noise_scale,
    product_bounds,
    residual_constants,
    smallest_admissible_depth,
)
from deeplin.theory.residual_initialization import (
    prefix_singular_values,
    product_constants,
    suffix_singular_values,
)


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
def test_admissible_u_satisfy_the_lemma_and_their_neighbors_do_not(s, d, L):
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


def test_product_extremes_are_those_of_the_products(rng):
    first, middle, last = weights = [rng.normal(size=(2, 4, 4)) for _ in range(3)]
    for found, products in (
        (prefix_singular_values(weights), (first, middle @ first, last @ middle @ first)),
        (suffix_singular_values(weights), (last @ middle @ first, last @ middle, last)),
    ):
        values = np.linalg.svd(np.stack(products, axis=1), compute_uv=False)
        np.testing.assert_allclose(found[..., 0], values[..., 0], rtol=1e-12)
        np.testing.assert_allclose(found[..., 1], values[..., -1], rtol=1e-9)


def test_scale_is_recovered_from_weights():
    key = jax.random.key(2)
    start = dl.initialize.residual(key, width=30, depth=20, scale=0.4)
    assert noise_scale(start) == pytest.approx(0.4, rel=0.02)
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
    table = certify(*near_start, only=only)
    assert list(table["verdict"]) == [HOLDS] * 5, table.to_string()


def test_theorem_4_does_not_apply_to_a_start_far_from_the_data(problem):
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
    net = dl.Network(dl.initialize.gaussian(jax.random.key(0), (5,) * 11, 0.3).weights, readout=p)
    row = certify(problem, net, only="FM-L3").iloc[0]
    assert row.verdict == UNMET
    assert "residual initialization" in row.hypotheses


@pytest.mark.parametrize(("s", "d", "L"), [(0.05, 5, 10), (0.1, 20, 40), (0.5, 5, 600)])
def test_the_constants_close_the_proof_of_theorem_4(s, d, L):
    """E-23: L∫‖∇_kR‖ ≤ 2·(2·4·4)·√Λ…/μ ends at C_5, for λ = Λ = ‖p‖ = 1."""
    found = residual_constants(s, d, L)
    largest, smallest = 4 * np.exp(s**2 / 2 + found.u), np.exp(-2 * s**2 / d - found.u) / 4
    rate = 4 * smallest**4 * L
    assert found.rate == pytest.approx(rate, rel=1e-12)
    reached = L * 2 * largest**2 * np.sqrt(found.gap) * 2 / rate
    assert reached == pytest.approx(found.radius, rel=1e-9)


@pytest.mark.parametrize(
    ("d", "s", "limit", "least", "at_larger", "log_gap"),
    [
        (5, 0.1, 1.121, 3, 5, -21.1),
        (5, 0.25, 4.728, 48, 84, -54.2),
        (5, 0.5, 16.894, 585, 1074, -165.9),
        (5, 1.0, 65.257, 8593, 15991, -610.0),
        (50, 0.1, 1.192, 3, 6, -21.7),
        (50, 0.25, 4.854, 48, 87, -55.3),
        (50, 0.5, 17.021, 582, 1079, -166.8),
        (50, 1.0, 65.264, 8538, 15938, -608.8),
    ],
)
def test_depths_of_the_papers_lemma_are_those_of_the_reference_table(
    d, s, limit, least, at_larger, log_gap
):
    """u_∞ where 5^d + (2M/m+1)^d = 8e^{du²/32s²}; depths as finely as the table searched u."""

    def deep(u, L):
        return log_failure_probability(s, d, L, u) - np.log(8) + d * u**2 / (32 * s**2)

    u = brentq(lambda u: deep(u, 10**12), limit / 2, 2 * limit)
    assert u == pytest.approx(limit, abs=6e-4)
    assert smallest_admissible_depth(s, d) == pytest.approx(least, rel=1e-3)
    enough = next(L for L in range(1, 10**5) if deep(1.5 * u, L) <= 0)
    assert enough == pytest.approx(at_larger, rel=1e-3)
    gap = -36 * np.log(2) - 6 * s**2 - 16 * s**2 / d - 20 * 1.05 * u
    assert gap / np.log(10) == pytest.approx(log_gap, abs=0.06)


def test_explicit_conditions_suffice_for_the_papers_lemma():
    """u ≥ 70 max(s, s²), L ≥ 4(1 + u²), d ≥ 4 (X-21): no s^{−2/3}, and u up to √L/2."""
    for s in np.geomspace(1e-3, 20, 30):
        for d in (4, 5, 10, 50, 500):
            for share in (1.0, 1.7, 10.0):
                u = share * 70 * max(s, s**2)
                L = int(np.ceil(4 * (1 + u**2)))
                bound = log_failure_probability(s, d, L, u)
                assert bound <= np.log(8) - d * u**2 / (32 * s**2)


def test_constants_of_a_draw_are_the_best_over_the_radius():
    for L in (1, 2, 10, 1000):
        found = product_constants(1.0, 1.0, L)
        x = np.linspace(1e-4, 0.5, 100_001)
        tried = x * np.exp(-2 * x) * (1 - x / L) ** (4 * L)
        assert np.sqrt(found.gap) == pytest.approx(tried.max(), rel=1e-8)
        assert 0.0580 <= np.sqrt(found.gap) <= 1 / (6 * np.e)
        assert found.radius == pytest.approx(x[np.argmax(tried)], abs=1e-4)


@given(
    seed=st.integers(0, 10**6), d=st.integers(2, 4), L=st.integers(1, 12), share=st.floats(0.01, 1)
)
def test_products_stay_conditioned_inside_the_radius_of_a_draw(seed, d, L, share):
    """Lemma 9 sharpened: ‖θ_k‖ ≤ ρ keeps every product between m_0(1−x/L)^L and M_0e^x."""
    rng = np.random.default_rng(seed)
    weights = np.eye(d) + rng.normal(size=(L, d, d)) * rng.uniform(0, 0.5) / np.sqrt(L * d)
    found = draw_constants(dl.Network(list(weights)))
    theta = rng.normal(size=(L, d, d))
    theta *= share * found.radius / np.linalg.norm(theta, 2, axis=(1, 2), keepdims=True)
    moved = list(weights + theta / L)
    x = found.radius * found.largest / found.smallest
    for values in (prefix_singular_values(moved), suffix_singular_values(moved)):
        assert np.all(values[:, 0] <= found.largest * np.exp(x) * (1 + 1e-12))
        assert np.all(values[:, 1] >= found.smallest * (1 - x / L) ** L * (1 - 1e-12))


@pytest.mark.parametrize(("d", "L", "s"), [(3, 10, 0.1), (5, 20, 0.25), (3, 10, 0.5)])
@pytest.mark.parametrize("outputs", [1, 3])
def test_flow_from_the_largest_allowed_gap_stays_within_its_radius(d, L, s, outputs):
    """X-20, with R(0) − R_min exactly at C_4λ‖p‖²: converged, ‖θ‖ ≤ ρ; the paper's chain with the
    same M_0, m_0 allows a gap hundreds of times smaller."""
    rng = np.random.default_rng(5)
    X, p = rng.normal(size=(40, d)), rng.normal(size=d)
    net = dl.initialize.residual(jax.random.key(4), d, L, s, p if outputs == 1 else None)
    found = draw_constants(net)
    start = np.asarray(net.product)
    step = rng.normal(size=start.shape)
    size = 1.0 if outputs > 1 else float(p @ p)
    rough = dl.Problem.from_data(X, X @ start.T)
    allowed = found.gap * rough.smallest_eigenvalue * size * (1 - 1e-9)
    step *= np.sqrt(allowed / (np.linalg.norm(X @ step.T) ** 2 / 40))
    problem = dl.Problem.from_data(X, X @ (start + step).T)
    run = gradient_flow(problem, net, gap=1e-6 * allowed, record_every=0.05)
    assert run.status == "converged"
    pairs = zip(run.network.weights, net.weights, strict=True)
    moved = L * np.linalg.norm([np.asarray(end - start) for end, start in pairs], axis=(-1, -2))
    assert 0 < moved.max() <= found.radius
    row = certify(problem, run, only="X-20").iloc[0]
    assert row.verdict == HOLDS, row.to_string()
    paper = found.smallest**12 / found.largest**8 / 2**16  # m²/4M² · (m/2)⁴/(2M)², squared
    assert found.gap > 200 * paper  # and the paper's has a factor λ/Λ more


def test_certificate_of_a_draw_needs_data_of_full_rank_for_its_ratio():
    """X-20, corollary: with one sample S/S_min is 464 where the bound says 2.11."""
    x = np.array([[0.01, 1.0, 0.0]])
    net = dl.Network([np.eye(3)] * 3, readout=np.array([1.0, 0.0, 0.0]))
    problem = dl.Problem.from_data(x, x[:, 0])
    parts = certify(problem, net, only="X-20", parts=True).set_index("part")
    row = parts.loc["S/S_min ≤ C(Λ/a)L/G"]
    assert row.verdict == UNMET
    assert "full rank" in row.hypotheses
    assert row.left == pytest.approx(464, rel=1e-2)
    assert row.left > 100 * row.right


def test_constants_of_a_draw_need_square_layers():
    with pytest.raises(dl.InputError, match="square"):
        draw_constants(dl.initialize.gaussian(jax.random.key(0), (3, 2, 3), 0.1))


@pytest.mark.parametrize("arguments", [(0.0, 5, 10, 1.0), (0.1, 0, 10, 1.0), (0.1, 5, -1, 1.0)])
def test_bad_input_is_named(arguments):
    with pytest.raises(dl.InputError):
        log_failure_probability(*arguments)
