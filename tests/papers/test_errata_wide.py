"""E-24 and the rest of E-19: BO's Proposition 5.2 for small first layers, by X-28."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.certificates.certificate import certify
from deeplin.dynamics import simulate_wide
from deeplin.problems import synthetic
from deeplin.theory.wide_networks import learned_share, zero_first_modes

N, Q = 8, 2


@pytest.fixture(scope="module")
def data():
    return synthetic.spiked(5, 40, samples=N, outputs=Q, spikes=2, epsilon=0.2).problem


def _sizes(problem):
    """‖X‖, ‖Y‖, σ_min(X) and the singular values of Θ_min."""
    X = np.linalg.svd(problem.inputs, compute_uv=False)
    s = np.linalg.svd(problem.optimum, compute_uv=False)
    return X[0], np.linalg.norm(problem.targets), X[-1], s


def _printed_beta(problem, c, depth):
    X, Y, least, _ = _sizes(problem)
    return c * max(1.0, np.sqrt(depth * X * Y) / least)


def test_errata_E19_part_1_contradicts_part_2_at_the_start_for_deep_networks():
    """‖W_L(0)‖ > β/c of a good start against c(α + 1/L)β for S = {L}, at α = 1/L."""
    for c in (1.0, 2.0, 5.0):
        for depth in (2 * c**2 - 0.5, 2 * c**2 + 0.5):
            contradiction = 1 / c > c * (2 / depth)
            assert contradiction == (depth > 2 * c**2)


@pytest.mark.parametrize(("c", "depth"), [(1, 10**2), (3, 10**4), (10, 10**6)])
def test_errata_E24_parts_2_and_3_contradict_each_other_for_deep_networks(data, c, depth):
    """Part 3: an interpolating map has ‖Θ‖ ≥ s_1. Part 2 with all layers: ‖Θ‖ ≤ c(α + 1/L)β."""
    X, Y, least, s = _sizes(data)
    threshold = 4 * c**4 * X * Y / (least * s[0]) ** 2
    assert depth > threshold
    bound = c * (2 / depth) * _printed_beta(data, c, depth)
    assert s[0] / bound == pytest.approx(np.sqrt(depth / threshold), rel=1e-12)
    assert s[0] > 2 * bound
    # the width condition at α = 1/L asks for a finite m: L cancels
    beta = _printed_beta(data, c, depth)
    frobenius = np.linalg.norm(data.inputs)
    needed = (depth / depth * X * frobenius) ** 2 * Q * np.log(N / 0.1) / (beta**2 * least**4)
    assert needed < 40 + Q - np.log(0.1)


def test_errata_E24_the_first_layer_moves_farther_than_lemma_B5_allows(data):
    """2L‖W_1(t) − W_1(0)‖ must stay below 1; by X-28 it grows like √L for every c."""
    s = _sizes(data)[3]
    found = {}
    for c in (1, 3, 10):
        betas = {L: _printed_beta(data, c, L) for L in (3, 10, 100, 1000, 10**4)}
        found[c] = [2 * L * np.sqrt(learned_share(s, b**2, L)[0]) for L, b in betas.items()]
    np.testing.assert_allclose(found[1], (1.51, 2.65, 8.26, 26.1, 82.5), rtol=5e-3)
    np.testing.assert_allclose(found[3], (0.52, 0.94, 2.96, 9.36, 29.6), rtol=1e-2)
    np.testing.assert_allclose(found[10], (0.155, 0.284, 0.90, 2.84, 8.97), rtol=5e-3)


def test_errata_E24_a_simulated_flow_moves_as_far_as_the_law_says(data):
    """α = 0, c = 1, L = 6, width 10⁹, where W_LW_Lᵀ = b²I up to 10⁻⁴."""
    depth, m = 6, 10**9
    beta = _printed_beta(data, 1, depth)
    wide = simulate_wide(
        data, m, depth, 0.0, beta / np.sqrt(m), jax.random.key(0), dynamics="flow",
        loss_target=1e-12,
    )  # fmt: skip
    change = np.asarray(wide.network.weights[0]) - np.asarray(wide.initial.weights[0])
    law = np.sqrt(learned_share(_sizes(data)[3], beta**2, depth)[0])
    assert np.linalg.norm(change, 2) == pytest.approx(law, rel=1e-3)
    assert 2 * depth * np.linalg.norm(change, 2) > 1  # Lemma B.5: below 1
    table = certify(data, wide.as_run(), only="E-24", parts=True)
    needed = _sizes(data)[3][0] * depth / beta
    assert table["left"].iloc[0] == pytest.approx(needed, rel=1e-6)


def test_errata_E24_with_beta_proportional_to_the_depth_the_lemma_holds(data):
    X, Y, least, s = _sizes(data)
    for c, value in ((1, 0.38), (3, 0.127), (10, 0.038)):
        betas = {L: c * L * X * Y / least**2 for L in (3, 10, 100, 1000, 10**4)}
        moved = [2 * L * np.sqrt(learned_share(s, b**2, L)[0]) for L, b in betas.items()]
        np.testing.assert_allclose(moved, value, rtol=5e-3)


@pytest.mark.parametrize(
    ("c", "size", "epsilon"), [(2, 1e5, 0.03), (3, 1e6, 0.02), (5, 1e8, 0.0095), (10, 1e10, 0.0024)]
)
def test_errata_E24_the_printed_bound_on_xi_is_exceeded_with_all_hypotheses_met(c, size, epsilon):
    """lim_{α→0} ‖Θ_⊥‖²/α² by X-28, over c times the bracket of Theorem 3.2, at L = 10⁴."""
    d, n, k, delta, L = 400, 30, 2, 0.1, 10**4
    spectrum = np.where(np.arange(d) < k, 1.0, epsilon)
    truth = np.random.default_rng(6).normal(size=(d, Q)).T
    truth *= size / np.linalg.norm(truth)
    problem = synthetic.from_spectrum(6, spectrum, samples=n, truth=truth).problem
    tail = epsilon * (d - k)
    assert n >= c * max(k + tail, k, np.log(1 / delta))  # r_0 = k + s_k
    assert dl.theory.bounds.flat_tail(spectrum, n).k == k
    beta = c * max(1.0, np.sqrt(L * n / tail) * (np.sqrt(size) + Q**0.25))
    width = c * (d + Q + np.log(1 / delta))  # the other part vanishes with α
    s = np.linalg.svd(problem.optimum, compute_uv=False)
    perpendicular = (d - n) / width * np.sum(zero_first_modes(s, beta**2, L))
    bracket = Q * beta**2 + L**-2.0 * (n / tail) ** 2 * (size**2 + Q)
    assert perpendicular > 10 * c * bracket
    # the risk inequality is not contradicted: at α ≤ 1/L the bias s_k‖Θ*‖²/n is far larger
    assert perpendicular / L**2 < 1e-3 * size**2
