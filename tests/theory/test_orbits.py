"""X-12: period-two orbits of balanced modes and of networks, against long plain iteration."""

import jax
import numpy as np
import pytest
from dense_network import descend, gradients, product

import deeplin as dl
from deeplin.theory import (
    balanced_orbit,
    critical_learning_rate,
    first_doubling,
    mode_orbits,
    network_orbit,
)
from deeplin.theory.minimizers import balanced_network

SIZES = np.array([10, 9.5, 9])


def diagonal():
    X = np.sqrt(3 / 2) * np.eye(3)
    return dl.Problem.from_data(X, X @ np.diag(SIZES))


def step(x, sigma, depth, rate):
    """Descent on ½(x_1⋯x_L − σ)² where all x_k are equal."""
    return x + rate * (sigma - x**depth) * x ** (depth - 1)


def threshold(sigma, depth):
    return 2 / (depth * sigma ** (2 - 2 / depth))


@pytest.mark.parametrize("factor", [1.0001, 1.01, 1.1, 1.5, 3.0])
@pytest.mark.parametrize("depth", [2, 3, 5, 20])
def test_two_steps_return_and_the_multiplier_is_their_derivative(depth, factor):
    sigma = 3.0
    rate = factor * threshold(sigma, depth)
    orbit = balanced_orbit(sigma, depth, rate, curvature=0.5)
    assert step(orbit.low, sigma, depth, rate) == pytest.approx(orbit.high, rel=1e-13)
    assert step(orbit.high, sigma, depth, rate) == pytest.approx(orbit.low, rel=1e-12)
    assert orbit.products[0] < sigma < orbit.products[1]
    h = 1e-6 * orbit.low
    ends = [step(step(orbit.low + e, sigma, depth, rate), sigma, depth, rate) for e in (h, -h)]
    assert orbit.multiplier == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_long_iteration_ends_on_the_stable_orbit(depth):
    sigma = 3.0
    rate = 1.1 * threshold(sigma, depth)
    orbit = balanced_orbit(sigma, depth, rate, curvature=0.5)
    assert orbit.stable
    x = 1.05 * sigma ** (1 / depth)
    for _ in range(2000):
        x = step(x, sigma, depth, rate)
    both = sorted([x, step(x, sigma, depth, rate)])
    np.testing.assert_allclose(both, [orbit.low, orbit.high], rtol=1e-13)


def test_two_layers_have_the_closed_form():
    """L = 2: ησ = a + 1/a − 1, so imbalance stops shrinking at ησ = 2, where a + 1/a = 3."""
    for scaled in (1.2, 1.7, 1.999):
        orbit = balanced_orbit(4.0, 2, scaled / 4.0, curvature=0.5)
        assert orbit.ratio + 1 / orbit.ratio - 1 == pytest.approx(scaled, rel=1e-12)
        assert orbit.balance_multiplier == pytest.approx(5 - 2 * (scaled + 1), rel=1e-9)
    assert abs(balanced_orbit(4.0, 2, 2.001 / 4.0, curvature=0.5).balance_multiplier) > 1


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_balance_multiplier_is_that_of_unequal_layers(depth):
    sigma = 2.0
    rate = 1.15 * threshold(sigma, depth)
    orbit = balanced_orbit(sigma, depth, rate, curvature=0.5)

    def twice(x):
        for _ in range(2):
            others = np.array([np.prod(np.delete(x, k)) for k in range(depth)])
            x = x + rate * (sigma - np.prod(x)) * others
        return x

    difference = np.zeros(depth)
    difference[:2] = 1e-6, -1e-6
    moved = twice(orbit.low + difference) - orbit.low
    assert moved[0] - moved[1] == pytest.approx(orbit.balance_multiplier * 2e-6, rel=1e-5)


def test_rates_grow_with_the_ratio_so_that_the_orbit_is_unique():
    """η as a function of a, from the two equations of the orbit."""
    for depth in (2, 3, 4, 7, 15, 40):
        a = np.exp(np.linspace(1e-3, 40 / depth, 4000))
        share = (1 + a ** (depth - 1)) / (1 + a ** (2 * depth - 1))
        rates = (a - 1) / ((1 - share) * share ** (1 - 2 / depth))
        assert np.all(np.diff(rates) > 0)
        assert rates[0] > 2 / depth


def test_modes_of_a_network_start_to_oscillate_one_after_the_other():
    """diag(10, 9.5, 9), L = 3, loss ½‖·‖²: thresholds 0.0309439, 0.0331343 and 0.0356111."""
    problem = diagonal()
    rates = (0.0309, 0.0310, 0.0331, 0.0332, 0.0356, 0.0357)
    counts = [sum(orbit is not None for orbit in mode_orbits(problem, 3, r)) for r in rates]
    assert counts == [0, 1, 1, 2, 2, 3]
    assert mode_orbits(problem, 3, critical_learning_rate(problem, 3)) == (None, None, None)


def test_a_whole_network_ends_on_the_orbit_of_its_largest_mode():
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.normal(size=(12, 3)))[0] * np.sqrt(12)
    problem = dl.Problem.from_data(X, X @ np.diag([2.0, 1.2, 0.5]))
    rate = 1.1 * critical_learning_rate(problem, 3)
    orbits = mode_orbits(problem, 3, rate)
    assert [orbit is not None and orbit.stable for orbit in orbits] == [True, False, False]
    weights = [1.01 * np.asarray(weight) for weight in balanced_network(problem, 3).weights]
    end = descend(problem.inputs, problem.target_columns, weights, rate, 3001)
    next_one = descend(problem.inputs, problem.target_columns, end, rate, 1)
    seen = [np.diag(product(state)) for state in (end, next_one)]
    both = sorted(values[0] for values in seen)
    np.testing.assert_allclose(both, orbits[0].products, rtol=1e-10)
    np.testing.assert_allclose(seen[0][1:], [1.2, 0.5], rtol=1e-10)


def near(rate, steps, noise=0.0):
    """Some steps of plain descent at the balanced minimizer of `diagonal`, moved a little."""
    problem, rng = diagonal(), np.random.default_rng(1)
    weights = [np.diag(1.01 * np.cbrt(SIZES)) + noise * rng.normal(size=(3, 3)) for _ in range(3)]
    return dl.Network(descend(problem.inputs, problem.target_columns, weights, rate, steps))


@pytest.mark.parametrize(("rate", "modes", "stable"), [(0.032, 1, True), (0.034, 2, False)])
def test_newton_finds_the_orbits_of_balanced_modes(rate, modes, stable):
    """From a plain run that stays diagonal; two modes that oscillate at once mix (unstable)."""
    orbit = network_orbit(diagonal(), near(rate, 300), rate)
    exact = [mode.amplitude for mode in mode_orbits(diagonal(), 3, rate) if mode is not None]
    assert orbit.converged
    assert (orbit.modes, orbit.stable) == (modes, stable)
    np.testing.assert_allclose(orbit.amplitudes[:modes], exact, rtol=1e-10)
    np.testing.assert_allclose(orbit.amplitudes[modes:], 0, atol=1e-10)
    assert orbit.risks[0] <= orbit.risks[1]


@pytest.fixture(scope="module")
def settled():
    """A problem with one output, its descent at 1.1 times the critical rate, and the orbit."""
    rng = np.random.default_rng(20241)
    X = rng.normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X @ rng.normal(size=5) + rng.normal(size=50))
    rate = 1.1 * critical_learning_rate(problem, 3)
    net = dl.initialize.gaussian(jax.random.key(0), (5, 5, 5, 1), 0.5)
    run = dl.gradient_descent(problem, net, rate, 1000)
    return problem, rate, run.network, network_orbit(problem, run.network, rate)


def test_long_plain_iteration_ends_on_the_orbit_of_the_network(settled):
    problem, rate, network, orbit = settled
    assert orbit.stable
    assert orbit.modes == 1
    X, Y = problem.inputs, problem.target_columns
    end = descend(X, Y, network.weights, rate, 2998)
    maps = [product(end), product(descend(X, Y, end, rate, 1))]
    risks = [np.sum((X @ theta.T - Y) ** 2) / 50 for theta in maps]
    # 1500 times two steps at a multiplier below 0.98 leave 1e-13 of what was off
    assert orbit.amplitude == pytest.approx(np.linalg.norm(maps[1] - maps[0]) / 2, rel=1e-10)
    np.testing.assert_allclose(orbit.risks, sorted(risks), rtol=1e-10)


def test_multipliers_are_those_of_two_plain_steps(settled):
    problem, rate, _, orbit = settled
    shapes = [weight.shape for weight in orbit.networks[0].weights]
    ends = np.cumsum([m * n for m, n in shapes])[:-1]

    def twice(theta):
        for _ in range(2):
            parts = np.split(theta, ends)
            weights = [part.reshape(s) for part, s in zip(parts, shapes, strict=True)]
            slopes = gradients(problem.inputs, problem.target_columns, weights)
            theta = theta - rate * np.concatenate([slope.ravel() for slope in slopes])
        return theta

    theta = np.concatenate([np.ravel(weight) for weight in orbit.networks[0].weights])
    np.testing.assert_allclose(twice(theta), theta, atol=1e-12 * np.linalg.norm(theta))
    h = 1e-5  # central differences: 1e-10 of truncation and of rounding
    columns = [(twice(theta + h * e) - twice(theta - h * e)) / (2 * h) for e in np.eye(theta.size)]
    moduli = np.linalg.eigvals(np.stack(columns, axis=1))
    free = np.sort(np.abs(moduli[np.abs(moduli - 1) > 1e-5]))[::-1]
    assert len(free) == theta.size - orbit.neutral
    np.testing.assert_allclose(orbit.multipliers[:8], free[:8], rtol=1e-6)


def test_where_descent_settles_no_mode_oscillates():
    orbit = network_orbit(diagonal(), near(0.030, 0, noise=1e-3), 0.030)
    assert orbit.converged
    assert orbit.modes == 0
    end = product([np.asarray(weight) for weight in orbit.networks[0].weights])
    np.testing.assert_allclose(end, np.diag(SIZES), atol=1e-10)


def test_a_search_that_is_cut_short_says_so(monkeypatch):
    monkeypatch.setattr("deeplin.theory.modes.ITERATIONS", 1)
    orbit = network_orbit(diagonal(), near(0.032, 20, noise=1e-2), 0.032)
    assert orbit.residual > 1e-12
    assert not orbit.converged
    assert not orbit.stable


def test_rates_without_an_orbit_are_refused_with_a_reason():
    problem, net = diagonal(), near(0.032, 0)
    with pytest.raises(dl.InputError, match="without batch"):
        network_orbit(problem, dl.networks.stack([net, net]), 0.032)
    with pytest.raises(dl.InputError, match="learning_rate"):
        network_orbit(problem, net, -1.0)
    with pytest.raises(dl.InputError, match="not finite"):
        network_orbit(problem, dl.Network([np.full((3, 3), 1e200)] * 3), 0.032)
    wide = dl.Network([np.ones((700, 3)), np.ones((3, 700))])
    with pytest.raises(dl.InputError, match="4200 weights"):
        network_orbit(problem, wide, 0.032)


def test_unsupported_input_is_refused_with_a_reason(problem):
    with pytest.raises(dl.InputError, match="white"):
        mode_orbits(problem, 2, 0.1)
    with pytest.raises(dl.InputError, match="depth"):
        balanced_orbit(1.0, 1, 0.1)
    with pytest.raises(dl.InputError, match="target"):
        balanced_orbit(0.0, 2, 0.1)


def test_orbit_of_depth_two_doubles_at_the_golden_ratio():
    for sigma in (0.3, 1.0, 10.0):
        rate = first_doubling(sigma, 2, curvature=0.5)
        assert rate == pytest.approx((np.sqrt(5) - 1) / sigma, rel=1e-12)
        orbit = balanced_orbit(sigma, 2, rate, curvature=0.5)
        assert orbit.high / orbit.low == pytest.approx((1 + np.sqrt(5)) / 2, rel=1e-12)


def test_first_doubling_of_depth_three_is_that_of_the_reference():
    assert first_doubling(10.0, 3, curvature=0.5) == pytest.approx(0.0385130, abs=5e-8)
    assert first_doubling(10.0, 3) == pytest.approx(0.0385130 / 2, abs=3e-8)


@pytest.mark.parametrize("depth", [2, 3, 6, 20])
def test_iterates_have_period_two_below_the_first_doubling_and_four_above(depth):
    sigma = 2.0
    for factor, period in ((0.998, 2), (1.002, 4)):
        rate = factor * first_doubling(sigma, depth, curvature=0.5)
        x = 1.01 * sigma ** (1 / depth)
        for _ in range(40_000):
            x = step(x, sigma, depth, rate)
        orbit = [x]
        for _ in range(4):
            orbit.append(step(orbit[-1], sigma, depth, rate))
        assert orbit[4] == pytest.approx(x, rel=1e-6)
        assert (abs(orbit[2] - x) < 1e-6 * x) == (period == 2)
