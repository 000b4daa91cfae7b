import numpy as np
import pandas as pd
import pytest
from scipy import stats

from deeplin.papers.statistics import (
    curve,
    mean_interval,
    power_interval,
    share_interval,
    slope_interval,
)


def test_the_interval_of_a_mean_is_students(rng):
    values = rng.normal(size=12)
    mean, half = mean_interval(values)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose([mean - half, mean + half], [low, high], rtol=1e-12)


def test_one_value_has_no_interval_and_none_is_not_a_number():
    assert mean_interval(np.array([3.0])) == (3.0, 0.0)
    assert np.isnan(mean_interval(np.array([]))).all()


def test_the_interval_of_a_slope_is_that_of_the_normal_equations(rng):
    x, y = rng.normal(size=(2, 9))
    A = np.stack([x, np.ones(9)], axis=1)
    (slope, _), (squares,), *_ = np.linalg.lstsq(A, y)
    half = stats.t.ppf(0.975, 7) * np.sqrt(squares / 7 * np.linalg.inv(A.T @ A)[0, 0])
    np.testing.assert_allclose(slope_interval(x, y), (slope, half), rtol=1e-10)


@pytest.mark.parametrize(("successes", "trials"), [(0, 20), (7, 20), (20, 20)])
def test_the_interval_of_a_share_is_wilsons(successes, trials):
    z, p = stats.norm.ppf(0.975), successes / trials
    middle = (p + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * np.sqrt(p * (1 - p) / trials + z**2 / (4 * trials**2))
    expected = [max(middle - half, 0), min(middle + half, 1)]
    np.testing.assert_allclose(share_interval(successes, trials), expected, atol=1e-12)


def test_a_curve_averages_over_the_runs_that_do_not_diverge():
    table = pd.DataFrame(
        {
            "scale": [1, 1, 1, 2, 2],
            "value": [1.0, 3.0, 1e9, 7.0, 8.0],
            "status": ["converged", "stopped", "diverged", "diverged", "diverged"],
        }
    )
    points = curve(table, "scale", "value")
    assert points["mean"][0] == 2.0
    assert np.isnan(points["mean"][1])  # no point where every run diverged
    np.testing.assert_allclose(points["diverged"], [1 / 3, 1])
    assert points["low"][0] == 1.0  # the interval is not drawn below what was seen
    assert points["high"][0] > 3.0


def test_the_exponent_of_a_power_law_is_averaged_over_its_groups():
    x = np.array([1.0, 2.0, 4.0])
    groups = [pd.DataFrame({"x": x, "y": 3 * x**p, "set": k}) for k, p in enumerate((1, 2, 3))]
    mean, half = power_interval(pd.concat(groups, ignore_index=True), "x", "y", "set")
    np.testing.assert_allclose([mean, half], mean_interval([1.0, 2.0, 3.0]), rtol=1e-12)
