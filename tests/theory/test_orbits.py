"""X-12: period-two orbits of balanced modes, against long plain iteration."""

import numpy as np
import pytest
from dense_network import descend, product

import deeplin as dl
from deeplin.theory import balanced_orbit, critical_learning_rate, first_doubling
from deeplin.theory.balanced import balanced_network

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
    rates = (0.0309, 0.0310, 0.0331, 0.0332, 0.0356, 0.0357)
    orbits = [[balanced_orbit(size, 3, rate, curvature=0.5) for size in SIZES] for rate in rates]
    assert [sum(orbit is not None for orbit in each) for each in orbits] == [0, 1, 1, 2, 2, 3]
    assert balanced_orbit(10.0, 3, critical_learning_rate(diagonal(), 3), curvature=0.5) is None


def test_a_whole_network_ends_on_the_orbit_of_its_largest_mode():
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.normal(size=(12, 3)))[0] * np.sqrt(12)
    problem = dl.Problem.from_data(X, X @ np.diag([2.0, 1.2, 0.5]))
    rate = 1.1 * critical_learning_rate(problem, 3)
    orbits = [balanced_orbit(size, 3, rate) for size in (2.0, 1.2, 0.5)]
    assert [orbit is not None and orbit.stable for orbit in orbits] == [True, False, False]
    weights = [1.01 * np.asarray(weight) for weight in balanced_network(problem, 3).weights]
    end = descend(problem.inputs, problem.target_columns, weights, rate, 3001)
    next_one = descend(problem.inputs, problem.target_columns, end, rate, 1)
    seen = [np.diag(product(state)) for state in (end, next_one)]
    both = sorted(values[0] for values in seen)
    np.testing.assert_allclose(both, orbits[0].products, rtol=1e-10)
    np.testing.assert_allclose(seen[0][1:], [1.2, 0.5], rtol=1e-10)


@pytest.mark.parametrize(("rate", "leaves"), [(0.032, False), (0.034, True)])
def test_a_network_leaves_the_orbit_of_two_modes_and_stays_on_that_of_one(rate, leaves):
    """From 1e-6 beside diagonal layers: two modes that oscillate at once mix."""
    problem, rng = diagonal(), np.random.default_rng(1)
    weights = [np.diag(1.01 * np.cbrt(SIZES)) + 1e-6 * rng.normal(size=(3, 3)) for _ in range(3)]
    end = descend(problem.inputs, problem.target_columns, weights, rate, 3000)
    mixed = np.abs(product(end) - np.diag(np.diag(product(end)))).max()
    assert (mixed > 0.1) == leaves
    assert leaves or mixed < 1e-5


@pytest.mark.parametrize(
    ("arguments", "name"), [((1.0, 1, 0.1), "depth"), ((0.0, 2, 0.1), "target")]
)
def test_what_is_no_mode_is_refused_with_a_reason(arguments, name):
    with pytest.raises(dl.InputError, match=name):
        balanced_orbit(*arguments)


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
