"""Each claim about learning rates (FM-2, Talk-log), with data that violates it."""

import numpy as np
import pytest
from grids import grid

from deeplin.figures import critical_rates, fm_2, talk_log
from deeplin.figures.fm_2 import DepthSweep


@pytest.fixture
def depths():
    return DepthSweep(fm_2.RESIDUAL, (5, 10), fm_2.LEARNING_RATES, 100, 4, scale=0.25)


@pytest.fixture
def depth_table(depths):
    rates = depths.learning_rates
    table = grid(depth=depths.depths, learning_rate=rates, repetition=range(4), status=("stopped",))
    critical = {L: depths.at(L).flattest.critical_learning_rate() for L in depths.depths}
    below = table["learning_rate"] < table["depth"].map(critical)
    return table.assign(distance=np.where(below, 1e-20, 0.3), below=below)


def test_success_below_the_critical_rate_can_fail(check_broken, depths, depth_table):
    lost = depth_table["below"] & (depth_table["repetition"] == 0)
    bad = depth_table.assign(distance=depth_table["distance"].mask(lost, 0.3))
    check_broken(fm_2.rate_claims, "succeeds below", depths, depth_table, bad)
    diverged = depth_table.assign(status=depth_table["status"].mask(lost, "diverged"))
    check_broken(fm_2.rate_claims, "succeeds below", depths, depth_table, diverged)


def test_failure_above_the_critical_rate_can_fail(check_broken, depths, depth_table):
    lucky = ~depth_table["below"] & (depth_table["repetition"] == 0)
    bad = depth_table.assign(distance=depth_table["distance"].mask(lucky, 1e-9))
    check_broken(fm_2.rate_claims, "fails above", depths, depth_table, bad)


@pytest.fixture
def thresholds():
    table = grid(depth=SEARCH.depths, start=critical_rates.STARTS, steps=STEPS)
    table["exact"] = 1 / table["depth"]
    share = table["start"].map({"residual": 0.997, "flattest": 0.999})
    share = share - 0.02 * (table["steps"] == min(STEPS))
    return _measured(table, share * table["exact"]).assign(printed=1.01 * table["exact"])


STEPS = (100, 400)
SEARCH = critical_rates.CriticalRates(fm_2.RESIDUAL, (5, 10, 20), starts=4, steps=STEPS)


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
    chosen &= thresholds["steps"] == max(STEPS)
    bad = _measured(thresholds, thresholds["measured"].mask(chosen, share * thresholds["exact"]))
    check_broken(critical_rates.threshold_claims, fragment, SEARCH, thresholds, bad)


def test_the_claim_about_depth_can_fail(check_broken, thresholds):
    bad = _measured(thresholds, thresholds["depth"] ** -0.8)
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
