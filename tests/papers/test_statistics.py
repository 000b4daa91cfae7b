import numpy as np
import pandas as pd
import pytest
from scipy import stats

from deeplin.papers.statistics import (
    curve,
    largest_difference,
    mean_interval,
    share_interval,
    slope_interval,
    trend,
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


def test_a_trend_is_kendalls_test_and_a_flat_curve_has_none():
    by = np.arange(8.0)
    assert trend(by**2, by) < 1e-4
    assert trend(-by, by) > 0.99
    assert trend(np.ones(8), by) == 1.0


def test_equivalence_bounds_the_largest_paired_difference():
    rng = np.random.default_rng(0)
    base = 10 + rng.normal(size=30)
    table = pd.DataFrame({"a": base, "b": base + 0.5, "c": base + 0.1})
    assert largest_difference(table) == pytest.approx(0.5 / table.to_numpy().mean(), rel=1e-9)
    noisy = table.assign(b=base + rng.normal(size=30))
    assert largest_difference(noisy) > abs((noisy["b"] - noisy["a"]).mean()) / 10
