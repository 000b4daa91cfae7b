"""Each claim about learning rates (FM-2, Talk-log), with data that violates it."""

import numpy as np
import pytest
from grids import grid

from deeplin.papers import critical_rates, fm_2, talk_log
from deeplin.papers.fm_2 import DepthSweep
from deeplin.problems.synthetic import flat_minima
from deeplin.theory import critical_learning_rate


@pytest.fixture
def depths():
    return DepthSweep(fm_2.RESIDUAL, (5, 10), fm_2.LEARNING_RATES, 100, 4, 0.25, (9, 10))


@pytest.fixture
def depth_table(depths):
    table = grid(
        depth=depths.depths,
        data_seed=depths.data_seeds,
        learning_rate=depths.learning_rates,
        repetition=range(4),
        status=("stopped",),
    )
    below = table["learning_rate"] < depths.critical(table)
    return table.assign(distance=np.where(below, 1e-20, 0.3), below=below)


def one_of(table):
    """The first repetition on the second data set: what breaks a claim there, breaks it."""
    return (table["repetition"] == 0) & (table["data_seed"] == 10)


def test_the_critical_rate_is_that_of_the_depth_and_data_set_of_each_row(depths, depth_table):
    row = depth_table[(depth_table["depth"] == 10) & (depth_table["data_seed"] == 10)].iloc[[0]]
    problem = flat_minima(10, samples=50, dimension=5, noise=1.0).problem
    assert depths.critical(row) == pytest.approx([critical_learning_rate(problem, 10)])


def test_success_below_the_critical_rate_can_fail(check_broken, depths, depth_table):
    lost = depth_table["below"] & one_of(depth_table)
    bad = depth_table.assign(distance=depth_table["distance"].mask(lost, 0.3))
    check_broken(fm_2.rate_claims, "succeeds below", depths, depth_table, bad)
    diverged = depth_table.assign(status=depth_table["status"].mask(lost, "diverged"))
    check_broken(fm_2.rate_claims, "succeeds below", depths, depth_table, diverged)


def test_failure_above_the_critical_rate_can_fail(check_broken, depths, depth_table):
    lucky = ~depth_table["below"] & one_of(depth_table)
    bad = depth_table.assign(distance=depth_table["distance"].mask(lucky, 1e-9))
    check_broken(fm_2.rate_claims, "fails above", depths, depth_table, bad)


@pytest.fixture
def thresholds():
    sets = SEARCH.data_seeds
    table = grid(depth=SEARCH.depths, start=critical_rates.STARTS, steps=STEPS, data_seed=sets)
    table["exact"] = 1 / table["depth"]
    share = table["start"].map({"residual": 0.997, "flattest": 0.999})
    share = share - 0.02 * (table["steps"] == min(STEPS))
    return _measured(table, share * table["exact"]).assign(printed=1.01 * table["exact"])


STEPS = (100, 400)
SEARCH = critical_rates.CriticalRates(fm_2.RESIDUAL, (5, 10, 20), 4, STEPS, data_seeds=(9, 10))


def _measured(table, measured):
    """With intervals of half a percent."""
    return table.assign(measured=measured, low=0.995 * measured, high=1.005 * measured)


BROKEN_THRESHOLDS = {
    "next to the flattest": ("flattest", 0.97),
    "threshold of every depth agrees": ("residual", 0.99),
    "shrinks with the steps": ("residual", 0.975),
    "No start settles above": ("residual", 1.05),
}


@pytest.mark.parametrize("fragment", BROKEN_THRESHOLDS)
def test_claims_about_thresholds_can_fail(fragment, check_broken, thresholds):
    start, share = BROKEN_THRESHOLDS[fragment]
    chosen = (thresholds["start"] == start) & (thresholds["depth"] == 20)
    chosen &= (thresholds["steps"] == max(STEPS)) & (thresholds["data_seed"] == 10)
    bad = _measured(thresholds, thresholds["measured"].mask(chosen, share * thresholds["exact"]))
    check_broken(critical_rates.threshold_claims, fragment, SEARCH, thresholds, bad)


def test_the_claim_about_depth_can_fail(check_broken, thresholds):
    slow = thresholds["measured"].where(thresholds["data_seed"] == 9, thresholds["depth"] ** -0.8)
    bad = _measured(thresholds, slow)
    check_broken(critical_rates.threshold_claims, "falls like 1/L", SEARCH, thresholds, bad)


@pytest.fixture
def contrast():
    return talk_log.Contrast((0.1, 0.3, 0.5, 2.0, 10.0), steps=10, data_seeds=(1, 2))


@pytest.fixture
def contrast_table(contrast):
    losses = {
        "logistic": [0.1, 0.07, 0.05, 0.03, 0.01],
        "linear": [1e-9, 1e-9, 1e-9, np.nan, np.nan],
        "deep": [1e-9, 1e-9, 1e-9, 0.3, np.nan],
    }
    table = grid(
        data_seed=contrast.data_seeds, problem=losses, relative_rate=contrast.relative_rates
    )
    return table.assign(loss=np.tile(np.concatenate([*losses.values()]), 2), status="stopped")


BROKEN_CONTRAST = {
    "trains at any learning rate": ("logistic", 10.0, np.nan),
    "the larger the rate": ("logistic", 10.0, 0.09),
    "has a critical rate": ("deep", 2.0, 1e-30),
    "Below it regression trains": ("linear", 0.5, 0.2),
}


@pytest.mark.parametrize("fragment", BROKEN_CONTRAST)
def test_claims_about_the_contrast_can_fail(fragment, check_broken, contrast, contrast_table):
    problem, rate, loss = BROKEN_CONTRAST[fragment]
    chosen = (contrast_table["problem"] == problem) & (contrast_table["relative_rate"] == rate)
    chosen &= contrast_table["data_seed"] == 2
    settles = chosen & (loss < 1e-20)
    bad = contrast_table.assign(
        loss=contrast_table["loss"].mask(chosen, loss),
        status=contrast_table["status"].mask(settles, "converged"),
    )
    check_broken(talk_log.claims, fragment, contrast, contrast_table, bad)
