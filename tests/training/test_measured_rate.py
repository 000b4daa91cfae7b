import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.theory import critical_learning_rate
from deeplin.training import empirical_critical_rate
from deeplin.training.measured_rate import CriticalRate


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_beside_the_flattest_minimiser_the_measured_rate_is_the_predicted_one(problem, momentum):
    flattest = dl.theory.minimal_sharpness(problem, 3).minimizer

    def beside(keys):
        nearby = dl.initialize.gaussian(keys, flattest.widths, 1e-3)
        return dl.Network([w + n for w, n in zip(flattest.weights, nearby.weights, strict=True)])

    measured = empirical_critical_rate(
        problem, 3, initialization=beside, seeds=3, steps=6000, momentum=momentum
    )
    assert measured.predicted == critical_learning_rate(problem, 3, momentum=momentum)
    assert measured.ratio == pytest.approx(1, abs=0.015)
    low, high = measured.interval
    assert low <= measured.value <= high
    assert low <= measured.predicted <= high * 1.005


@pytest.mark.parametrize("initialization", ["residual", "gaussian"])
def test_from_random_starts_no_seed_settles_above_the_prediction(initialization):
    problem = dl.problems.synthetic.flat_minima(seed=1).problem
    measured = empirical_critical_rate(
        problem, 3, initialization=initialization, seeds=4, steps=4000
    )
    assert np.all(measured.rates <= measured.predicted * 1.005)
    assert measured.ratio > 0.8
    assert measured.rates.shape == (4,)


def test_the_rate_of_a_quadratic_is_found_to_the_resolution(problem):
    """Depth 1 is least squares itself: the threshold 1/Λ is exact for every start."""
    measured = empirical_critical_rate(
        problem, 1, initialization="gaussian", seeds=3, steps=20_000, resolution=2e-3
    )
    np.testing.assert_allclose(measured.rates, 1 / problem.largest_eigenvalue, rtol=4e-3)


def test_a_start_of_ones_own_is_used(problem):
    def draw(keys):
        return dl.initialize.gaussian(keys, (5, 2, 1), 0.3)

    measured = empirical_critical_rate(
        problem, 2, initialization=draw, seeds=2, steps=3000, key=jax.random.key(4)
    )
    assert 0.5 < measured.ratio < 1.005


def test_seeds_that_never_settle_are_reported_not_averaged():
    rate = CriticalRate(np.array([0.1, np.nan, 0.4]), 0.5, 0.01, 100)
    assert rate.value == pytest.approx(0.2)
    with pytest.raises(dl.InputError, match="no run settled"):
        CriticalRate(np.array([np.nan]), 0.5, 0.01, 100).value
    assert "predicted" in repr(rate)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": 0}, "seeds"),
        ({"initialization": "lucky"}, "initialization"),
        ({"resolution": 0.0}, "resolution"),
        ({"steps": 0}, "steps"),
        ({"momentum": 1.0}, "momentum"),
    ],
)
def test_bad_input_is_named(problem, arguments, message):
    with pytest.raises(dl.InputError, match=message):
        empirical_critical_rate(problem, 2, **arguments)
