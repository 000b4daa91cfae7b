"""Reference values of the exact results that no other test has, in the order of their ids."""

from __future__ import annotations

import convex_losses as data
import numpy as np
import pytest

from deeplin import Problem, theory
from deeplin.problems import Population, synthetic
from deeplin.theory.wide_networks import zero_first_modes, zero_last_modes

OPTIMA = {
    "logistic": (1.361634, -1.188625, 0.828007),
    "poisson": (0.055368, 1.346568, 1.419013),
    "huber": (1.148152, -1.152618, 0.367426),
}


@pytest.mark.parametrize("name", OPTIMA)
def test_X14_optima(name):
    np.testing.assert_allclose(getattr(data, name)().optimum, OPTIMA[name], atol=6e-7)


def test_X17_optimum_and_squared_loss_of_several_outputs():
    theta = data.softmax().optimum
    first = theta[0] - theta.mean(axis=0)
    np.testing.assert_allclose(first, (0.58777933, 0.01168116, -0.2781711), atol=6e-8)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3)) * [1, 0.5, 1.5]
    problem = Problem.from_data(X, X @ rng.normal(size=(2, 3)).T)
    values = {2: 8.87652488, 3: 16.08548224, 5: 31.36056875}
    for depth, value in values.items():
        assert theory.minimal_sharpness(problem, depth).exact == pytest.approx(value, abs=6e-9)


def test_X18_data_ratios_and_the_worst_of_two_layers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 5)) * [2, 0.2, 1, 0.5, 1.5]
    y = X @ [0.2, 3, 0.5, 1, 0.3] + 0.5 * rng.normal(size=50)
    problem = Problem.from_data(X, y)
    found = problem.optimum_norm, problem.alignment, problem.largest_eigenvalue
    np.testing.assert_allclose(found, (3.35183404, 0.13963647, 3.25645586), atol=6e-9)
    assert 4 * problem.condition_number == pytest.approx(323.1, abs=0.06)
    ratios = {2: 3.01248040, 3: 3.36418888, 10: 2.16547972, 30: 1.32123898, 100: 1.07716096}
    for depth, ratio in ratios.items():
        sharp = theory.minimal_sharpness(problem, depth).exact
        assert theory.balanced_sharpness(problem, depth) / sharp == pytest.approx(ratio, abs=6e-9)
    spreads = np.linspace(1.01, 2.3, 400)
    closed = np.maximum((spreads + 1) / (2 * np.sqrt(spreads)), np.sqrt(np.maximum(spreads - 1, 1)))
    excess = theory.worst_sharpness_ratio(2, spreads) / closed - 1
    assert excess.max() == pytest.approx(0.01113, abs=6e-5)
    assert spreads[excess.argmax()] == pytest.approx(1 + 2 / np.sqrt(3), abs=0.005)
    assert theory.worst_sharpness_ratio(2, 1 + 2 / np.sqrt(3)) == pytest.approx(1.086526, abs=6e-7)
    assert theory.worst_sharpness_ratio(2, 2.0) == pytest.approx(1.067442, abs=6e-7)


def test_X22_to_X24_data():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(20, 3)) * [1, 0.5, 1.4]
    clean = X @ [1, -0.7, 0.4]
    noisy = Problem.from_data(X, clean + 0.2 * rng.normal(size=20))
    np.testing.assert_allclose(noisy.optimum, (0.88584769, -0.7570486, 0.44723628), atol=6e-8)
    values = {2: 8.17466858, 3: 12.27923508, 5: 20.74375308}
    for depth, value in values.items():
        exact = theory.minimal_sharpness(Problem.from_data(X, clean), depth).exact
        assert exact == pytest.approx(value, abs=6e-9)


@pytest.mark.parametrize(
    ("d", "kappa", "squared", "added"),
    [
        (500, 0.0441896, 68.089, 0.0610),
        (1000, 0.0989108, 30.430, 0.0303),
        (2000, 0.2069769, 14.544, 0.0151),
    ],
)
def test_X27_and_X32_of_the_published_data(d, kappa, squared, added):
    truth = np.full((3, d), 1 / np.sqrt(3 * d))
    risk = theory.ridgeless_risk(Population(truth, synthetic.spiked(0, d).spectrum), 100)
    assert 3 / risk.kappa + 100 / d == pytest.approx(squared, abs=6e-4)
    # added by β = 0: κn‖Θ_min‖²/(m−n−1)
    share = risk.kappa * 100 * squared / (10 * (d + 3) - 101)
    assert share == pytest.approx(added, abs=6e-5)
    totals = {500: 1.055, 1000: 0.608, 2000: 0.385}
    assert risk.total == pytest.approx(totals[d], abs=6e-4)


def test_X27_and_X28_of_spiked_data():
    problem = synthetic.spiked(3, 200, samples=50, outputs=2, spikes=5, epsilon=0.05).problem
    s = np.linalg.svd(problem.spectrum.coordinates, compute_uv=False)
    assert np.sum(zero_last_modes(s, 4.0, 3)) == pytest.approx(2.860851, abs=6e-7)
    values = {(2, 4): 10.563743, (3, 4): 17.111783, (5, 4): 28.600047, (10, 1): 35.993712}
    for (depth, b2), value in values.items():
        assert np.sum(zero_first_modes(s, b2, depth)) == pytest.approx(value, abs=6e-7)
    # with a² = α²(m−n−1), above the simulated 6.291 ± .008 and 8.2242 ± .0007 by the finite width
    for alpha, value in ((0.02, 6.337), (0.005, 8.2317)):
        found = np.sum(zero_last_modes(s, alpha**2 * (2020 - 51), 3))
        assert found == pytest.approx(value, abs=6e-4)


LAWS = [  # data, width, depth, α, β: E‖U‖² predicted, and what 8 to 24 simulated runs gave
    (1, 5030, 3, 1, 0, 0.01130, 0.01132, 0.00003),
    (1, 5030, 3, 1, 1e-3, 0.02615, 0.02619, 0.00004),
    (1, 5030, 3, 1e-3, 1, 15144, 15158, 40),
    (1, 5030, 3, 5e-4, 1, 15145, 15159, 40),
    (2, 10030, 3, 1, 5e-4, 0.01021, 0.01021, 0.00001),
    (2, 10030, 3, 1e-3, 1, 30114, 30097, 30),
    (3, 2020, 5, 0.01, 0.01, 13.552, 13.531, 0.010),
    (3, 10**6, 10, 5e-5, 0.02, 901.97, 902.15, 0.16),
    (3, 2020, 2, 0.1, 0.1, 40.25, 40.45, 0.18),
    (3, 10**4, 30, 0.1, 0.1, 199.69, 199.7, 0.8),
    (4, 120, 3, 1, 0, 0.1384, 0.1400, 0.0027),
    (4, 120, 3, 1, 1, 141.76, 141.3, 3.7),
]


@pytest.mark.parametrize(
    ("seed", "width", "depth", "alpha", "beta", "predicted", "simulated", "error"), LAWS
)
def test_X27_to_X30_of_the_table_of_simulations(
    seed, width, depth, alpha, beta, predicted, simulated, error
):
    shapes = {
        1: {"dimension": 500},
        2: {"dimension": 1000},
        3: {"dimension": 200, "samples": 50, "outputs": 2, "spikes": 5, "epsilon": 0.05},
        4: {"dimension": 100, "samples": 50, "outputs": 2, "spikes": 5, "epsilon": 0.2},
    }
    law = theory.wide_law(synthetic.spiked(seed, **shapes[seed]).problem, width, depth, alpha, beta)
    assert law.squared_product == pytest.approx(predicted, rel=5e-4)
    assert abs(law.squared_product - simulated) < 3 * error + law.error * simulated


@pytest.mark.parametrize(
    ("n", "spike", "power"), [(50, 0.769, 0.661), (100, 0.834, 0.658), (200, 0.867, 0.657)]
)
def test_X32_the_share_that_the_lower_bound_keeps(n, spike, power):
    for spectrum, share in (
        (np.where(np.arange(10 * n) < 10, 1, 0.01), spike),
        (np.arange(1, 8 * n + 1) ** -1.2, power),
    ):
        found = theory.ridgeless_risk(Population(np.zeros(len(spectrum)), spectrum), n)
        assert 1 - found.degrees_of_freedom / n == pytest.approx(share, abs=6e-4)
