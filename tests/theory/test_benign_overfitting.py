"""The exact risk, its parts and its bounds, against Monte Carlo and explicit matrices."""

import math

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics import simulate_wide
from deeplin.problems import Factored, Population, synthetic
from deeplin.theory.benign_overfitting import (
    conditional_variance,
    interpolation_bound,
    minimum_norm_interpolant,
    random_start_bound,
    risk_split,
    spike_bound,
)


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
    X, Y = data.problem.inputs, data.problem.targets
    assert np.allclose(minimum_norm_interpolant(data.problem), X.T @ np.linalg.inv(X @ X.T) @ Y)


def test_the_interpolant_survives_what_breaks_an_explicit_inverse(rng):
    """cond(X) = 1e9: XXᵀ has condition number 1e18 and cannot be inverted in float64."""
    left, right = (np.linalg.qr(rng.normal(size=(k, 6)))[0] for k in (6, 15))
    X = left @ np.diag(np.geomspace(1, 1e-9, 6)) @ right.T
    Y = X @ rng.normal(size=(15, 2))
    theta = minimum_norm_interpolant(dl.Problem.from_data(X, Y))
    assert np.linalg.norm(X @ theta - Y) < 1e-13 * np.linalg.norm(Y)
    explicit = X.T @ np.linalg.inv(X @ X.T) @ Y
    assert np.linalg.norm(X @ explicit - Y) > 1e-6 * np.linalg.norm(Y)


def test_the_parts_of_the_risk_are_the_printed_traces(data, population, rng):
    problem, truth = data.problem, data.truth
    projection, B, C = _matrices(problem, population)
    omega = problem.targets - problem.inputs @ truth
    perpendicular = (np.eye(20) - projection) @ rng.normal(size=(20, 2))
    split = risk_split(problem, population, problem.optimum + perpendicular)
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
    assert conditional_variance(data.problem, population) == pytest.approx(
        1.7**2 * 2 * np.trace(C), rel=1e-10
    )


def test_the_risk_of_the_interpolant_averages_to_bias_plus_variance(data, population, rng):
    """Over fresh noise on the same inputs: E Risk(Θ_min) = bias + variance."""
    X = data.problem.inputs
    risks = []
    for _ in range(4000):
        Y = X @ data.truth + rng.normal(size=(6, 2))
        risks.append(population.risk(np.linalg.pinv(X) @ Y))
    split = risk_split(data.problem, population, data.problem.optimum)
    error = np.std(risks) / math.sqrt(len(risks))
    assert abs(np.mean(risks) - split.bias - split.variance) < 5 * error


@pytest.mark.parametrize(("depth", "alpha", "beta"), [(2, 0.0, 0.5), (3, 0.1, 0.5), (4, 0.3, 0.2)])
def test_depth_and_initialisation_leave_the_conditional_variance_alone(
    data, population, depth, alpha, beta
):
    """Over fresh noise, the trained map varies on the data as Θ_min does: by σ²q·Tr(C).

    The same start and small step every time: what varies beside the data is not noise but Θ_⊥,
    which for α > 0 depends on the noise too, so the variance is that of P_XΘ.
    """
    X, n = data.problem.inputs, 150
    rng = np.random.default_rng(8)
    problems = [dl.Problem.from_data(X, X @ data.truth + rng.normal(size=(6, 2))) for _ in range(n)]
    wide = simulate_wide(
        problems, 60, depth, alpha, beta, jax.random.key(0), learning_rate=0.02, loss_target=1e-14
    )
    assert set(wide.status) == {"converged"}
    basis = data.problem.spectrum.vectors
    inside = basis @ (basis.T @ wide.theta)
    interpolants = np.stack([problem.optimum for problem in problems])
    assert np.abs(inside - interpolants).max() < 1e-5
    deviations = inside - basis @ (basis.T @ data.truth)
    costs = np.sum(deviations * population.apply(deviations), axis=(1, 2))
    expected = conditional_variance(data.problem, population)
    assert abs(costs.mean() - expected) < 5 * costs.std() / math.sqrt(n)


def test_a_batch_of_maps_splits_as_its_members(data, population, rng):
    thetas = rng.normal(size=(3, 20, 2))
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
    with pytest.raises(dl.InputError, match="XXᵀ invertible"):
        minimum_norm_interpolant(problem)
