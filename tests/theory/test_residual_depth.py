import jax
import numpy as np
import pytest
from scipy.special import logsumexp

import deeplin as dl
from deeplin.certificates.certificate import HOLDS, UNMET, certify
from deeplin.networks.network import host_arrays
from deeplin.theory.bounds import (
    certified_depth,
    least_margin,
    log_failure_probability,
    sharp_failure_probability,
    sharp_product_bounds,
)
from deeplin.theory.residual_initialization import (
    _chi_square,
    _growth,
    prefix_singular_values,
    product_constants,
    suffix_singular_values,
)


@pytest.mark.parametrize(
    ("d", "s", "limit", "depth", "larger", "log_gap"),
    [
        (5, 0.1, 0.2360, 2, 2, -9.10),
        (5, 0.25, 0.5871, 9, 3, -11.95),
        (5, 0.5, 1.1667, 50, 14, -17.03),
        (5, 1.0, 2.3178, 480, 79, -28.43),
        (50, 0.1, 0.1859, 2, 2, -8.72),
        (50, 0.25, 0.4644, 7, 2, -11.01),
        (50, 0.5, 0.9279, 40, 9, -15.20),
        (50, 1.0, 1.8538, 367, 49, -24.89),
    ],
)
def test_depths_are_those_of_the_reference_table(d, s, limit, depth, larger, log_gap):
    """Its depths are exact to about 0.5 %, and at least 2."""
    u = least_margin(s, d)
    assert u == pytest.approx(limit, abs=6e-5)
    assert max(2, certified_depth(s, d)) == pytest.approx(depth, rel=5e-3)
    assert max(2, certified_depth(s, d, margin=1.5)) == pytest.approx(larger, rel=5e-3)
    gap = product_constants(*sharp_product_bounds(s, 1.1 * u), depth).gap
    assert np.log10(gap) == pytest.approx(log_gap, abs=6e-3)


@pytest.mark.parametrize("freedom", [1, 2, 4, 49, 499])
def test_quadrature_has_the_moments_of_chi_square(freedom):
    nodes, log_weights = _chi_square(freedom)
    for rate in (0.0, -0.1, 0.2):  # E e^{rate χ²} = (1 − 2 rate)^{−k/2}
        found = logsumexp(log_weights + rate * nodes)
        assert found == pytest.approx(-freedom / 2 * np.log(1 - 2 * rate), abs=1e-8)


def test_growth_of_the_inverse_is_one_over_the_distance_of_a_column(rng):
    """‖(I+cN)^{−T}e_1‖ = 1/dist(a_1, span(a_2…a_d)) and n_1^{−2} = 1 + c²‖(I+cN_⊥ᵀ)^{−1}ν‖²."""
    d, c = 4, 0.1
    N = rng.normal(size=(d, d))
    A = np.eye(d) + c * N
    grown = np.linalg.norm(np.linalg.inv(A).T[:, 0])
    others = np.linalg.qr(A[:, 1:])[0]
    column = A[:, 0] - others @ (others.T @ A[:, 0])
    assert 1 / np.linalg.norm(column) == pytest.approx(grown, rel=1e-12)
    normal = np.linalg.svd(A[:, 1:].T)[2][-1]
    inner = np.linalg.solve(A[1:, 1:].T, N[0, 1:])
    assert normal[0] ** -2 == pytest.approx(1 + c**2 * inner @ inner, rel=1e-10)


@pytest.mark.parametrize(("s", "d", "L"), [(0.5, 5, 64), (0.25, 50, 64), (1.0, 5, 100)])
def test_no_draw_leaves_the_bounds(s, d, L):
    """Measured extremes are far inside, as the bound pays a factor 2 for the net."""
    u = 1.5 * least_margin(s, d)
    assert sharp_failure_probability(s, d, L, u) <= 0.01
    M, m = sharp_product_bounds(s, u)
    nets = dl.initialize.residual(jax.random.split(jax.random.key(0), 40), d, L, s)
    weights = host_arrays(nets)[0]
    for values in (prefix_singular_values(weights), suffix_singular_values(weights)):
        assert values[..., 0].max() < M
        assert values[..., 1].min() > m


@pytest.mark.parametrize("d", [2, 5, 50])
def test_quadrature_of_the_growth_has_its_moments(d):
    """Eξ = 1 + c²d and Eξ² = 1 + 4c² + 2c²d + c⁴d(d+2); the law of ζ by 200 000 inverses."""
    c, cut = 0.05, 0.9
    grown, inverse, log_weight = _growth(c, d, cut, 2.0)
    assert np.exp(logsumexp(grown + log_weight)) == pytest.approx(1 + c**2 * d, rel=1e-9)
    second = 1 + 4 * c**2 + 2 * c**2 * d + c**4 * d * (d + 2)
    assert np.exp(logsumexp(2 * grown + log_weight)) == pytest.approx(second, rel=1e-9)
    if d > 5:
        return
    layers = np.eye(d) + c * np.random.default_rng(0).normal(size=(200_000, d, d))
    lengths = np.sum(np.linalg.inv(layers).transpose(0, 2, 1)[:, :, 0] ** 2, axis=1)
    measured, error = np.mean(lengths**3), np.std(lengths**3) / np.sqrt(200_000)
    bound = np.exp(logsumexp(3 * inverse + log_weight))  # n_1 is bounded, so it is above the mean
    assert measured - 4 * error < bound
    _, tight, log_weight = _growth(c, d, 0.25, 2.0)  # and little above where the cut is low
    assert np.exp(logsumexp(3 * tight + log_weight)) == pytest.approx(measured, abs=0.03)


@pytest.mark.parametrize("d", [2, 5, 50])
@pytest.mark.parametrize("s", [0.01, 0.1, 0.5, 1.0])
def test_the_closed_form_is_weaker_than_the_quadrature_and_small_from_u_of_four_s_on(d, s):
    """2·5^d(e^{−3du²/8s²} + e^{−9du²/40s²}) + Le^{−Ld/128s²}, L ≥ max(8(u + s²), 256s²), is at
    most 4e^{−du²/9s²} + Le^{−Ld/128s²} for u ≥ 3.8s, where C_4 ≥ 2^{−25}exp(−13s²−16u)."""
    for u in (3.8 * s, 6 * s):
        L = int(np.ceil(max(8 * (u + s**2), 256 * s**2)))
        rest = L * np.exp(-L * d / (128 * s**2))
        tails = np.exp(-3 * d * u**2 / (8 * s**2)) + np.exp(-9 * d * u**2 / (40 * s**2))
        closed = min(1, 2 * 5.0**d * tails + rest)
        assert closed <= min(1, 4 * np.exp(-d * u**2 / (9 * s**2)) + rest) * (1 + 1e-12)
        # which ends at target/20
        assert sharp_failure_probability(s, d, L, u, target=0.01) <= closed + 0.01
        M, m = 2 * np.exp(s**2 / 2 + u), np.exp(-(s**2) - u) / 2
        assert product_constants(M, m, L).gap >= 2.0**-25 * np.exp(-13 * s**2 - 16 * u)


def test_limit_of_deep_networks_is_the_gaussian_one():
    """Failure → 2·5^d(e^{−d(u+s²/d)²/2s²} + e^{−du²/2s²}) + target/20, from above."""
    s, d, u, target = 0.5, 5, 1.3, 0.01
    tails = [-d * (u + s**2 / d) ** 2 / (2 * s**2), -d * u**2 / (2 * s**2)]
    limit = 2 * 5**d * np.exp(tails).sum() + target / 20
    found = [sharp_failure_probability(s, d, L, u) for L in (100, 10_000, 10**6)]
    assert found[0] > found[1] > found[2] > limit
    assert found[2] == pytest.approx(limit, rel=2e-2)


def test_the_certified_depth_is_far_below_that_of_the_paper():
    assert dl.theory.bounds.smallest_admissible_depth(1.0, 5) > 15 * certified_depth(1.0, 5)
    assert log_failure_probability(1.0, 5, 500, 2.55) > 0  # the paper's bound says nothing there


def test_certificate_judges_the_products_of_a_residual_start(problem):
    p = np.ones(5) / np.sqrt(5)
    deep = dl.initialize.residual(jax.random.key(0), 5, 20, 0.25, p)
    assert certify(problem, deep, only="X-21").iloc[0].verdict == HOLDS
    shallow = dl.initialize.residual(jax.random.key(0), 5, 20, 2.0, p)
    row = certify(problem, shallow, only="X-21").iloc[0]
    assert row.verdict == UNMET
    assert "L large enough" in row.hypotheses


@pytest.mark.parametrize(
    "arguments", [(0.0, 5, 10, 1.0), (0.1, 1, 10, 1.0), (0.1, 5, 0, 1.0), (0.1, 5, 10, -1.0)]
)
def test_bad_input_is_named(arguments):
    with pytest.raises(dl.InputError):
        sharp_failure_probability(*arguments)
    with pytest.raises(dl.InputError):
        certified_depth(0.1, 5, margin=0.5)
