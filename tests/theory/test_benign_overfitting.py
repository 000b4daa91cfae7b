"""The exact risk, its parts and its bounds, against Monte Carlo and explicit matrices."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

import deeplin as dl
from deeplin.dynamics import simulate_wide
from deeplin.problems import Factored, Population, Problem, synthetic
from deeplin.theory import ridgeless_risk
from deeplin.theory.benign_overfitting import (
    best_interpolant,
    degrees_of_freedom_bounds,
    interpolation_bound,
    noise_cost,
    noise_cost_bound,
    random_start_bound,
    risk_split,
    spike_bound,
    unseen_trace,
)
from deeplin.theory.wide_networks import zero_first_modes


@pytest.fixture
def data():
    return synthetic.spiked(2, 20, samples=6, outputs=2, spikes=3, epsilon=0.2)


@pytest.fixture
def population(data):
    return Population(data.truth, data.spectrum)


def _matrices(problem, population):
    """P_X, B and C of BO-L4.2 by their printed formulas, with explicit inverses."""
    X = problem.inputs
    sigma = population.apply(np.eye(population.dimension))
    inverse = np.linalg.inv(X @ X.T)
    projection = X.T @ inverse @ X
    beside = np.eye(len(sigma)) - projection
    return projection, beside @ sigma @ beside, inverse @ X @ sigma @ X.T @ inverse


def test_the_interpolant_is_the_printed_formula(data):
    X, Y = data.problem.inputs, data.problem.target_columns
    assert np.allclose(data.problem.optimum, (X.T @ np.linalg.inv(X @ X.T) @ Y).T)


def test_the_interpolant_survives_what_breaks_an_explicit_inverse(rng):
    """cond(X) = 1e9: XXᵀ has condition number 1e18 and cannot be inverted in float64."""
    left, right = (np.linalg.qr(rng.normal(size=(k, 6)))[0] for k in (6, 15))
    X = left @ np.diag(np.geomspace(1, 1e-9, 6)) @ right.T
    Y = X @ rng.normal(size=(15, 2))
    theta = dl.Problem.from_data(X, Y).optimum
    assert np.linalg.norm(X @ theta.T - Y) < 1e-13 * np.linalg.norm(Y)
    explicit = X.T @ np.linalg.inv(X @ X.T) @ Y
    assert np.linalg.norm(X @ explicit - Y) > 1e-6 * np.linalg.norm(Y)


def test_the_parts_of_the_risk_are_the_printed_traces(data, population, rng):
    problem, truth = data.problem, data.truth.T
    projection, B, C = _matrices(problem, population)
    omega = problem.target_columns - problem.inputs @ truth
    perpendicular = (np.eye(20) - projection) @ rng.normal(size=(20, 2))
    split = risk_split(problem, population, problem.optimum + perpendicular.T)
    missed = truth - perpendicular
    assert split.bias == pytest.approx(np.trace(truth.T @ B @ truth))
    assert split.noise == pytest.approx(np.trace(omega.T @ C @ omega))
    assert split.xi == pytest.approx(np.trace(perpendicular.T @ B @ perpendicular))
    assert split.variance == pytest.approx(2 * np.trace(C))
    assert split.bound == pytest.approx(2 * np.trace(missed.T @ B @ missed) + 2 * split.noise)
    assert split.total <= split.bound


@pytest.mark.parametrize("kind", ["dense", "factor"])
def test_the_conditional_variance_is_a_trace_for_every_covariance(data, kind, rng):
    root = rng.normal(size=(20, 20))
    covariance = root @ root.T if kind == "dense" else Factored(root[:, :4], 0.3)
    population = Population(data.truth, covariance, noise=1.7)
    _, _, C = _matrices(data.problem, population)
    split = risk_split(data.problem, population, data.problem.optimum)
    assert split.variance == pytest.approx(1.7**2 * 2 * np.trace(C), rel=1e-10)


def test_the_risk_of_the_interpolant_averages_to_bias_plus_variance(data, population, rng):
    """Over fresh noise on the same inputs: E Risk(Θ_min) = bias + variance."""
    X = data.problem.inputs
    risks = []
    for _ in range(4000):
        Y = X @ data.truth.T + rng.normal(size=(6, 2))
        risks.append(population.risk((np.linalg.pinv(X) @ Y).T))
    split = risk_split(data.problem, population, data.problem.optimum)
    error = np.std(risks) / math.sqrt(len(risks))
    assert abs(np.mean(risks) - split.bias - split.variance) < 5 * error


@pytest.mark.parametrize(("depth", "alpha", "beta"), [(2, 0.0, 0.5), (3, 0.1, 0.5), (4, 0.3, 0.2)])
def test_depth_and_initialization_leave_the_conditional_variance_alone(
    data, population, depth, alpha, beta
):
    """Over fresh noise, the trained map varies on the data as Θ_min does: by σ²q·Tr(C).

    The same start and small step every time: what varies beside the data is not noise but Θ_⊥,
    which for α > 0 depends on the noise too, so the variance is that of P_XΘ.
    """
    X, n = data.problem.inputs, 150
    rng = np.random.default_rng(8)
    problems = [
        dl.Problem.from_data(X, X @ data.truth.T + rng.normal(size=(6, 2))) for _ in range(n)
    ]
    wide = simulate_wide(
        problems, 60, depth, alpha, beta, jax.random.key(0), learning_rate=0.02, loss_target=1e-14
    )
    assert set(wide.status) == {"converged"}
    basis = data.problem.spectrum.vectors
    inside = wide.theta @ basis @ basis.T
    interpolants = np.stack([problem.optimum for problem in problems])
    assert np.abs(inside - interpolants).max() < 1e-5
    deviations = (inside - data.truth @ basis @ basis.T).mT
    costs = np.sum(deviations * population.apply(deviations), axis=(1, 2))
    expected = 2 * noise_cost(data.problem, population)
    assert abs(costs.mean() - expected) < 5 * costs.std() / math.sqrt(n)


def test_a_batch_of_maps_splits_as_its_members(data, population, rng):
    thetas = rng.normal(size=(3, 20, 2)).mT
    batch = risk_split(data.problem, population, thetas)
    for k in range(3):
        single = risk_split(data.problem, population, thetas[k])
        assert batch.total[k] == pytest.approx(single.total)
        assert batch.xi[k] == pytest.approx(single.xi)
        assert batch.bound[k] == pytest.approx(single.bound)


def test_the_bound_of_theorem_3_1_is_its_formula():
    d, n, q, delta = 500, 100, 3, 0.05
    data = synthetic.spiked(0, d, samples=n, outputs=q)
    population = Population(data.truth, data.spectrum)
    bound = interpolation_bound(population, n, 2.0, delta=delta)
    assert bound.bias == pytest.approx(4.9 / n)  # s_k = 0.01·490, ‖Θ*‖ = 1
    assert bound.variance == pytest.approx(q * math.log(q / delta) * (10 / n + n / 490))
    assert bound.xi == pytest.approx(4.9 / n * 4)
    assert bound.total == bound.bias + bound.variance + bound.xi


def test_the_bound_of_theorem_3_2_is_its_formula():
    d, n, q, L, m, alpha, beta, delta = 500, 100, 3, 3, 5030, 0.1, 2.0, 0.05
    data = synthetic.spiked(0, d, samples=n, outputs=q)
    population = Population(data.truth, data.spectrum)
    bound = random_start_bound(population, n, alpha=alpha, beta=beta, depth=L, width=m, delta=delta)
    s_0, s_k = 14.9, 4.9
    start = 1 + q + alpha**2 * beta**2 * s_0 * q * math.log(n / delta) / m
    inner = q * beta**2 + L**2 * (alpha + 1 / L) ** 4 * n**2 / s_k**2 * start
    assert bound.xi == pytest.approx(alpha**2 * s_k / n * inner)
    assert random_start_bound(population, n, alpha=0.0, beta=1.0, depth=L, width=m).xi == 0


def test_the_bound_of_corollary_3_4_is_its_formula():
    data = synthetic.spiked(0, 500)
    population = Population(data.truth, data.spectrum)
    log = 3 * math.log(3 / 0.1)
    assert spike_bound(population, 100) == pytest.approx((5 + 10 * log) / 100 + 100 * log / 500)
    with pytest.raises(dl.InputError, match="not a \\(k, ε\\)-spike"):
        spike_bound(Population(np.zeros(3), np.array([3.0, 2.0, 1.0])), 2)


def test_no_flat_tail_means_no_bound():
    population = Population(np.zeros(5), np.geomspace(1, 1e-6, 5))
    assert not np.isfinite(interpolation_bound(population, 3, 1.0).total)


def test_singular_data_have_no_split(problem):
    population = Population(np.zeros(5), np.ones(5))
    with pytest.raises(dl.InputError, match="XXᵀ invertible"):
        risk_split(problem, population, np.zeros(5))


# --- the variance from both sides ------------------------------------------------------


def test_X32_has_the_reference_values():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 20))
    problem = dl.Problem.from_data(X, 2 * rng.standard_normal((8, 2)))
    population = Population(np.zeros((2, 20)), np.array([1.0, 1.0] + [0.2] * 18))
    assert noise_cost(problem, population) == pytest.approx(0.19696220892027527, rel=1e-12)
    assert noise_cost_bound(problem, population) == pytest.approx(0.11773705801323457, rel=1e-12)
    assert unseen_trace(problem, population) == pytest.approx(3.530129845804561, rel=1e-12)


def test_X32_bounds_every_draw_from_below_by_about_one_minus_df2_over_n():
    n, d = 50, 500
    spectrum = np.where(np.arange(d) < 10, 1.0, 0.01)
    population = Population(np.zeros(d), spectrum)
    rng, ratios = np.random.default_rng(0), []
    for _ in range(40):
        X = rng.normal(size=(n, d)) * np.sqrt(spectrum)
        problem = dl.Problem.from_data(X, np.ones(n))
        ratios.append(noise_cost_bound(problem, population) / noise_cost(problem, population))
    assert max(ratios) <= 1
    share = ridgeless_risk(population, n).degrees_of_freedom / n
    assert np.mean(ratios) == pytest.approx(0.780, abs=0.01)
    assert 1 - share == pytest.approx(0.769, abs=1e-3)


def test_X32_does_not_depend_on_the_form_of_the_covariance(data, rng):
    turn = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    turned = dl.Problem.from_data(data.problem.inputs @ turn.T, data.problem.target_columns)
    spectrum = np.linspace(0.1, 1, 20)
    plain = noise_cost_bound(data.problem, Population(data.truth, spectrum))
    dense = Population(data.truth @ turn.T, turn @ np.diag(spectrum) @ turn.T)
    assert noise_cost_bound(turned, dense) == pytest.approx(plain, rel=1e-10)


def test_X32_leaves_out_directions_that_no_sample_sees():
    X = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0]])
    problem = dl.Problem.from_data(X, np.ones(2))
    population = Population(np.zeros(3), np.ones(3))
    least, cost = noise_cost_bound(problem, population), noise_cost(problem, population)
    assert least == pytest.approx(1 + 1 / 5)
    assert cost == pytest.approx(np.trace(np.linalg.inv(X @ X.T)))


@given(st.integers(0, 10**6), st.integers(2, 40), st.floats(1.01, 10))
def test_X32_brackets_the_degrees_of_freedom_by_k_and_its_rank(seed, n, b):
    rng = np.random.default_rng(seed)
    spectrum = np.sort(rng.lognormal(0, rng.uniform(0, 3), size=rng.integers(n + 1, 400)))[::-1]
    population = Population(np.zeros(len(spectrum)), spectrum)
    bounds = degrees_of_freedom_bounds(population, n, b)
    if bounds is not None:
        share = ridgeless_risk(population, n).degrees_of_freedom / n
        assert bounds[0] * (1 - 1e-12) <= share <= bounds[1] * (1 + 1e-12)


def test_X32_says_nothing_without_a_flat_tail():
    population = Population(np.zeros(20), 2.0 ** -np.arange(20))
    assert degrees_of_freedom_bounds(population, 10) is None
    with pytest.raises(dl.InputError, match="above 1"):
        degrees_of_freedom_bounds(population, 10, b=1.0)


# --- when initialization lowers the risk -----------------------------------------------


def test_X33_the_best_interpolant_is_the_constrained_minimum(data, population):
    """Against the null space: Θ_min + N(NᵀΣN)^{-1}NᵀΣ(Θ*−Θ_min), and the trace of its risk."""
    problem, truth, X = data.problem, data.truth.T, data.problem.inputs
    null = np.linalg.svd(X)[2][6:].T
    sigma = np.diag(data.spectrum)
    inner = null.T @ sigma @ null
    pull = null.T @ sigma @ (truth - problem.optimum.T)
    expected = problem.optimum.T + null @ np.linalg.solve(inner, pull)
    found = best_interpolant(problem, population)
    np.testing.assert_allclose(found, expected.T, atol=1e-12)
    np.testing.assert_allclose(X @ found.T, problem.target_columns, atol=1e-12)
    noise = problem.target_columns - X @ truth
    least = np.trace(noise.T @ np.linalg.solve(X @ np.diag(1 / data.spectrum) @ X.T, noise))
    assert population.risk(found) == pytest.approx(least, rel=1e-12)
    with pytest.raises(dl.InputError, match="invertible"):
        best_interpolant(problem, Population(truth.T, np.append(data.spectrum[:-1], 0.0)))


def test_X33_the_least_risk_has_its_mean_whatever_the_covariance():
    """σ²qn/(d−n−1) by the inverse Wishart mean."""
    n, d, q = 10, 40, 2
    spectrum, truth = np.linspace(0.05, 2, d), np.ones((q, d))
    population = Population(truth, spectrum)
    risks = []
    for seed in range(600):
        problem = synthetic.from_spectrum(seed, spectrum, samples=n, truth=truth).problem
        risks.append(population.risk(best_interpolant(problem, population)))
    assert abs(np.mean(risks) - q * n / (d - n - 1)) < 4 * np.std(risks) / np.sqrt(600)


def test_X33_the_chance_of_a_lower_risk_is_that_of_draws(rng):
    """The normal approximation, and Chernoff's bound as the least of a grid of exponents."""
    data = synthetic.spiked(31, 120, samples=30, outputs=3)
    population, X = Population(data.truth, data.spectrum), data.problem.inputs
    least = population.risk(data.problem.optimum)
    null = np.linalg.svd(X)[2][30:].T
    e, basis = np.linalg.eigh(null.T * data.spectrum @ null)
    pulls = basis.T @ null.T @ population.apply((data.truth - data.problem.optimum).T)
    pulls = np.sum(pulls**2, axis=1)
    for scale in (0.001, 0.03, 0.1):
        outside = scale * rng.normal(size=(4000, 3, 90)) @ null.T
        measured = np.mean(population.risk(data.problem.optimum + outside) < least)
        mean = scale**2 * 3 * np.sum(e)
        variance = 2 * scale**4 * 3 * np.sum(e**2) + 4 * scale**2 * np.sum(pulls)
        s = mean / variance * np.geomspace(1e-4, 1e4, 2001)[:, None]
        shrink = 1 + 2 * s * scale**2 * e
        exponents = -1.5 * np.log(shrink) + 2 * s**2 * scale**2 * pulls / shrink
        error = 4 * np.sqrt(max(measured, 1e-3) / 4000)
        # the normal approximation is good to a few hundredths at d − n = 90
        normal = ndtr(-mean / np.sqrt(variance))
        assert normal == pytest.approx(measured, abs=error + 0.02)
        assert measured <= min(0.5, np.exp(exponents.sum(axis=1).min())) + error


@pytest.mark.parametrize(("d", "expected"), [(500, 0.0084), (1000, 0.0163), (2000, 0.0269)])
def test_X33_the_share_that_a_first_guess_can_gain_is_the_bias(d, expected):
    """In the mean over BO's data, by deterministic equivalents and over draws of X and Θ*.

    The specification gives .8, 1.8 and 3.0 %; the last is four deviations of a single draw above
    what both ways give here.
    """
    # Θ* in no direction in particular: its mean square in each
    truth = np.full((3, d), 1 / np.sqrt(3 * d))
    risk = ridgeless_risk(Population(truth, synthetic.spiked(0, d).spectrum), 100)
    share = risk.bias / risk.total
    assert share == pytest.approx(expected, abs=6e-5)
    shares = []
    for seed in range(12_000 // d):
        data = synthetic.spiked(seed, d)
        population = Population(data.truth, data.spectrum)
        split = risk_split(data.problem, population, data.problem.optimum)
        shares.append(split.bias / (split.bias + split.variance))
    # 4 standard errors, and the 2 % by which deterministic equivalents err at n = 100
    error = np.std(shares, ddof=1) / np.sqrt(len(shares))
    assert abs(np.mean(shares) - share) < 4 * error + 0.02 * share


def test_X33_a_guess_gains_what_the_mean_over_the_noise_says(data, population, rng):
    """Against draws of the noise on the same inputs: 2⟨Θ_0, Θ*⟩_B − ⟨Θ_0, Θ_0⟩_B of the bias."""
    X, truth = data.problem.inputs, data.truth
    _, B, C = _matrices(data.problem, population)
    guess = truth + 0.3 * rng.normal(size=truth.T.shape).T
    gain = 2 * np.trace(guess @ B @ truth.T) - np.trace(guess @ B @ guess.T)
    kept = data.problem.spectrum.orthogonal_part(guess.T)
    noise = population.noise * rng.normal(size=(4000, *data.problem.targets.shape))
    maps = np.linalg.pinv(X) @ (X @ truth.T + noise) + kept
    risks = population.risk(maps.mT)
    expected = np.trace(truth @ B @ truth.T) + 2 * np.trace(C) - gain
    assert abs(np.mean(risks) - expected) < 4 * np.std(risks) / np.sqrt(len(risks))


def test_X33_a_random_direction_gains_little(rng):
    """BO's data, d = 500: ‖v‖²/(qT) is between .0011 and .0015 of the risk; against draws."""
    data = synthetic.spiked(31, 500)
    population, problem = Population(data.truth, data.spectrum), data.problem
    pull = population.apply((data.truth - problem.optimum).T)
    size = np.sum(problem.spectrum.orthogonal_part(pull) ** 2)
    gain = size / (3 * unseen_trace(problem, population))
    assert 0.0008 < gain < 0.002  # the two figures are of two draws of the data
    G = problem.spectrum.orthogonal_part(rng.normal(size=(2000, 500, 3)))
    gains = np.sum(G * pull, axis=(1, 2)) ** 2 / np.sum(G * population.apply(G), axis=(1, 2))
    # leading order in 1/(d − n): the quotient of means is off by about 2/(q(d − n))
    assert abs(np.mean(gains) - gain) < 4 * np.std(gains) / np.sqrt(2000) + 2 / 1200 * gain


@pytest.mark.parametrize(("depth", "power"), [(2, 4), (3, 2), (6, 2)])
def test_X33_a_guess_is_kept_up_to_one_over_b_squared(depth, power):
    """Exact for one output and a guess beside the data, by the root of X-28."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 9))
    y = rng.normal(size=4)
    problem = Problem.from_data(X, y / np.linalg.norm(np.linalg.pinv(X) @ y))
    guess = problem.spectrum.orthogonal_part(rng.normal(size=(9, 1)))
    changes = []
    for b in (3.0, 10.0, 30.0)[: 2 if depth == 2 else 3]:  # 1/30⁴ is near the solver's error
        last = np.eye(12)[11:]
        start = dl.Network([last.T @ guess.T / b, *[np.eye(12)] * (depth - 2), b * last])
        run = dl.gradient_flow(problem, start, gap=1e-12, keep_weights=False, rtol=1e-9, atol=1e-12)
        end = problem.spectrum.orthogonal_part(np.asarray(run.network.product)[:, None])
        changes.append(b**power * (np.linalg.norm(end) / np.linalg.norm(guess) - 1))
        kept = np.sqrt(np.sum(zero_first_modes(np.ones(1), b**2, depth))) / b
        assert changes[-1] == pytest.approx(b**power * (kept - 1), rel=2e-4)
    # ½(L−2) for ‖Θ_min‖ = 1, and ½ for two layers
    assert changes[-1] == pytest.approx(max(depth - 2, 1) / 2, rel=0.01)


def test_the_cross_term_completes_the_risk_of_an_interpolator(data, population, rng):
    outside = data.problem.spectrum.orthogonal_part(rng.normal(size=(5, 20, 2)))
    split = risk_split(data.problem, population, data.problem.optimum + outside.mT)
    least = population.risk(data.problem.optimum)
    np.testing.assert_allclose(split.total, least + split.xi + split.cross, rtol=1e-12)
    mirrored = risk_split(data.problem, population, data.problem.optimum - outside.mT)
    np.testing.assert_allclose(mirrored.cross, -split.cross, rtol=1e-12)
