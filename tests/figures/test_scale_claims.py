"""Each claim about a sweep over scales, with data that violates it."""

from functools import partial

import pytest

from deeplin.figures import fm_1, fm_6, fm_7
from deeplin.figures.scale_claims import (
    distance_claims,
    divergence_claims,
    plateau_claim,
    sharpness_claims,
)


def where(table, scale=None, rate=None, settled=True):
    """Rows of a scale and a rate; with `settled`, only runs that did not diverge."""
    chosen = table["status"] != "diverged" if settled else table["status"] == table["status"]
    if scale is not None:
        chosen &= table["scale"] == scale
    if rate is not None:
        chosen &= table["learning_rate"] == rate
    return chosen


def changed(table, chosen, **columns):
    copy = table.copy()
    for name, value in columns.items():
        copy.loc[chosen, name] = value(copy.loc[chosen, name]) if callable(value) else value
    return copy


BROKEN_DISTANCE = {
    "Below the critical rate": lambda t: changed(t, where(t, 0.4, 0.07), distance=0.3),
    "Above it training fails": lambda t: changed(t, where(t, 0.25, 0.2), distance=1e-9),
    "The scale does not move": lambda t: changed(t, where(t, 0.6, 0.02), distance=0.3),
}


@pytest.mark.parametrize("fragment", BROKEN_DISTANCE)
def test_claims_about_distance_can_fail(fragment, check_broken, sweep_config, sweep_table):
    bad = BROKEN_DISTANCE[fragment](sweep_table)
    check_broken(distance_claims, fragment, sweep_config, sweep_table, bad)


BROKEN_SHARPNESS = {
    "does not depend on η": lambda t: changed(t, where(t, 0.25, 0.02), sharpness=35.0),
    "between S_min and 8LΛ": lambda t: changed(t, where(t, 0.25), sharpness=200.0),
    "(catapult)": lambda t: changed(t, where(t), initial_sharpness=1.0),
    "not end above 2/η": lambda t: changed(t, where(t, 0.4, 0.07), sharpness=40.0),
    "start above 2/η end near it": lambda t: changed(t, where(t, 0.6, 0.07), sharpness=19.0),
    "No minimiser found is flatter": lambda t: changed(t, where(t, 0.4, 0.02), sharpness=18.0),
}


@pytest.mark.parametrize("fragment", BROKEN_SHARPNESS)
def test_claims_about_sharpness_can_fail(fragment, check_broken, sweep_config, sweep_table):
    claims = partial(sharpness_claims, below=0.09, upper_bound=True)
    bad = BROKEN_SHARPNESS[fragment](sweep_table)
    check_broken(claims, fragment, sweep_config, sweep_table, bad)


def diverging(table, chosen):
    return changed(table, chosen, status="diverged")


def settled(table, chosen):
    return changed(table, chosen, status="stopped")


BROKEN_DIVERGENCE = {
    "grows with the scale": lambda t: diverging(t, where(t, 0.4, 0.2)).pipe(
        lambda u: settled(u, where(u, 0.6, 0.2, settled=False))
    ),
    "grows with η": lambda t: diverging(t, where(t, 0.6, 0.02)).pipe(
        lambda u: settled(u, where(u, 0.6, 0.07, settled=False))
    ),
    "No run diverges at the smallest": lambda t: diverging(
        t, where(t, 0.25, 0.02) & (t["repetition"] == 0)
    ),
    "runs do diverge": lambda t: settled(t, where(t, 0.6, 0.2, settled=False)),
}


@pytest.mark.parametrize("fragment", BROKEN_DIVERGENCE)
def test_claims_about_divergence_can_fail(fragment, check_broken, sweep_config, sweep_table):
    bad = BROKEN_DIVERGENCE[fragment](sweep_table)
    check_broken(divergence_claims, fragment, sweep_config, sweep_table, bad)


def test_the_printed_plateau_is_shown_with_what_was_measured(sweep_config, sweep_table):
    claims = sharpness_claims(sweep_config, sweep_table, below=0.09)
    printed = [claim.printed for claim in claims if claim.printed]
    assert len(printed) == 1
    assert "0.98 for η = 0.02" in printed[0]


def test_runs_killed_by_the_catapult_are_counted_and_named(sweep_table):
    table = sweep_table[sweep_table["status"] != "diverged"]
    fastest = table["learning_rate"].max()
    above = table.index[
        (table["learning_rate"] == fastest) & (table["initial_sharpness"] > 2 / fastest)
    ]
    assert plateau_claim(table).explanation == ""
    killed = table.copy()
    killed.loc[above[:2], "sharpness"] = 0.0
    claim = plateau_claim(killed)
    assert f"kills 2 of these {len(above)} runs" in claim.explanation
    assert claim.measured < plateau_claim(table).measured  # they stay in the mean


BROKEN_GENERALIZATION = {
    "gap grows with the sharpness": lambda t: changed(t, where(t), test_risk=lambda r: 1 / r),
    "strongly related": lambda t: changed(
        t, where(t), test_risk=lambda r: 1 + r.index.to_series() % 7
    ),
}


@pytest.mark.parametrize("fragment", BROKEN_GENERALIZATION)
def test_claims_about_generalization_can_fail(
    fragment, check_broken, sweep_config, sweep_table, monkeypatch
):
    monkeypatch.setattr(fm_6, "SLOWEST", 0.02)
    bad = BROKEN_GENERALIZATION[fragment](sweep_table)
    check_broken(fm_6.generalization_claims, fragment, sweep_config, sweep_table, bad)


def test_the_regression_recovers_a_known_power_law(sweep_table, monkeypatch):
    monkeypatch.setattr(fm_6, "SLOWEST", 0.02)
    table = sweep_table.assign(test_risk=0.1 + 0.3 * sweep_table["sharpness"] ** 0.42)
    _, line = fm_6.fit(table)
    assert line.slope == pytest.approx(0.42, abs=1e-12)
    assert 10**line.intercept == pytest.approx(0.3, rel=1e-12)


BROKEN_GELU = {
    "ends below 2/η": lambda t: changed(t, where(t, 0.25, 0.2), sharpness=10.0),
    "close to the bounds": lambda t: changed(t, where(t, 0.25, 0.02), sharpness=3.0),
}


@pytest.mark.parametrize("fragment", BROKEN_GELU)
def test_claims_about_the_nonlinear_network_can_fail(
    fragment, check_broken, sweep_config, sweep_table
):
    good = changed(sweep_table, where(sweep_table, 0.25, 0.2), sharpness=8.9)
    good = changed(good, where(good, 0.25, 0.02), sharpness=20.0)
    if fragment == "close to the bounds":
        good = changed(sweep_table, where(sweep_table, 0.25), sharpness=20.0)
    check_broken(fm_7.noiseless_claims, fragment, sweep_config, good, BROKEN_GELU[fragment](good))


def test_the_claim_about_noisy_data_can_fail(check_broken, sweep_config, sweep_table):
    good = sweep_table.assign(sharpness=1.96 / sweep_table["learning_rate"])
    bad = changed(good, where(good, 0.25, 0.02), sharpness=50.0)
    check_broken(fm_7.noisy_claims, "reaches 2/η", sweep_config, good, bad)


def test_every_rate_of_the_paper_is_on_the_side_of_the_critical_rate_it_should_be():
    critical = fm_1.GAUSSIAN.flattest.critical_learning_rate()
    rates = [rate.learning_rate for rate in fm_1.SWEEP.presets["paper"].rates]
    assert [rate < critical for rate in rates] == [True] * 4 + [False]
