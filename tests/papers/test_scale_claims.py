"""Each claim about a sweep over scales, with data that violates it."""

from functools import partial

import pytest

from deeplin.papers import fm_1, fm_6, fm_7
from deeplin.papers.scale_claims import (
    conditioning_claim,
    distance_claims,
    divergence_claims,
    edge_claims,
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
    "whatever the scale": lambda t: diverging(t, where(t, 0.4, 0.07)),
    "does not diverge ends at w*": lambda t: changed(t, where(t, 0.4, 0.07), distance=0.3),
    "Above it training fails": lambda t: changed(t, where(t, 0.25, 0.2), status="converged"),
}


def diverging(table, chosen):
    return changed(table, chosen, status="diverged", distance=float("nan"))


@pytest.mark.parametrize("fragment", BROKEN_DISTANCE)
def test_claims_about_distance_can_fail(fragment, check_broken, sweep_config, sweep_table):
    everyone = changed(sweep_table, where(sweep_table, settled=False), status="converged")
    everyone = everyone.assign(
        status=everyone["status"].mask(everyone["learning_rate"] > 0.1, "stopped"),
        distance=(everyone["learning_rate"] > 0.1).astype(float),
    )
    bad = BROKEN_DISTANCE[fragment](everyone)
    check_broken(distance_claims, fragment, sweep_config, everyone, bad)


def test_runs_that_die_count_against_success_and_are_counted(sweep_config, sweep_table):
    claim = distance_claims(sweep_config, sweep_table)[0]
    assert claim.verdict == "holds in part"
    assert claim.part.startswith("holds for scale 0.25, scale 0.4; not for scale 0.6")
    assert "40 of 40, 40 of 40, 25 of 40" in claim.explanation
    assert claim.known == "K-1"


BROKEN_SHARPNESS = {
    "does not depend on η": lambda t: changed(t, where(t, 0.25, 0.02), sharpness=35.0),
    "between S_min and 8LΛ": lambda t: changed(t, where(t, 0.25), sharpness=200.0),
    "(catapult)": lambda t: changed(t, where(t), initial_sharpness=1.0),
    "No run ends above 2/η": lambda t: changed(
        t, where(t, 0.4, 0.07) & (t["repetition"] == 0), sharpness=29.0
    ),
    "start above 2/η end at it": lambda t: changed(t, where(t, 0.6, 0.07), sharpness=19.0),
    "No minimiser found is flatter": lambda t: changed(t, where(t, 0.4, 0.02), sharpness=18.0),
}


@pytest.mark.parametrize("fragment", BROKEN_SHARPNESS)
def test_claims_about_sharpness_can_fail(fragment, check_broken, sweep_config, sweep_table):
    claims = partial(sharpness_claims, below=0.09, upper_bound=True)
    bad = BROKEN_SHARPNESS[fragment](sweep_table)
    check_broken(claims, fragment, sweep_config, sweep_table, bad)


def settled(table, chosen):
    return changed(table, chosen, status="stopped")


BROKEN_DIVERGENCE = {
    "grows with the scale": lambda t: changed(
        t, where(t, rate=0.2, settled=False), status="stopped"
    ),
    "grows with η": lambda t: changed(t, where(t, 0.4, settled=False), status="stopped"),
    "No run diverges at the smallest": lambda t: diverging(
        t, where(t, 0.25, 0.02) & (t["repetition"] == 0)
    ),
    "runs do diverge": lambda t: settled(t, where(t, 0.6, 0.2, settled=False)),
}


@pytest.fixture
def diverging_table(sweep_table):
    """At every scale more runs diverge the larger η is, and the larger the scale."""
    rank = sweep_table["scale"].map({0.25: 0, 0.4: 4, 0.6: 8})
    rate = sweep_table["learning_rate"].map({0.02: 0, 0.07: 5, 0.2: 10})
    # none at the smallest scale below the critical rate
    lost = (sweep_table["repetition"] < rank + rate) & (rank + (rate == 10) > 0)
    return sweep_table.assign(
        status=sweep_table["status"].where(~lost, "diverged").mask(~lost, "stopped")
    )


@pytest.mark.parametrize("fragment", BROKEN_DIVERGENCE)
def test_claims_about_divergence_can_fail(fragment, check_broken, sweep_config, diverging_table):
    bad = BROKEN_DIVERGENCE[fragment](diverging_table)
    check_broken(divergence_claims, fragment, sweep_config, diverging_table, bad)


def test_a_flat_curve_does_not_grow(sweep_config, diverging_table):
    flat = diverging_table.assign(status="stopped")
    for claim in divergence_claims(sweep_config, flat)[:2]:
        assert claim.verdict == "fails"


def test_the_plateau_is_judged_at_every_rate(sweep_table):
    table = sweep_table[sweep_table["status"] != "diverged"]
    landed = changed(table, where(table, 0.6, 0.02), sharpness=44.0)
    claim = plateau_claim(landed)
    assert claim.verdict == "holds in part"
    assert "not for η = 0.02 (0.44)" in claim.part


def test_a_run_that_the_catapult_kills_is_no_success(sweep_config, sweep_table):
    table = sweep_table[sweep_table["learning_rate"] < 0.1]
    high = table["initial_sharpness"] > 100
    killed = table.assign(risk=table["risk"].mask(high, 0.97))  # the zero map's
    (first, _), (second, _) = (edge_claims(sweep_config, runs) for runs in (table, killed))
    assert (first.verdict, second.verdict) == ("holds", "fails")


def test_runs_killed_by_the_catapult_are_counted_and_named(sweep_table):
    table = sweep_table[sweep_table["status"] != "diverged"]
    fastest = table["learning_rate"].max()
    above = table.index[
        (table["learning_rate"] == fastest) & (table["initial_sharpness"] > 2 / fastest)
    ]
    assert "kills" not in plateau_claim(table).explanation
    killed = table.copy()
    killed.loc[above[:2], "sharpness"] = 0.0
    claim = plateau_claim(killed)
    assert "kills 2 of them" in claim.explanation
    assert claim.parts["η = 0.2"] < plateau_claim(table).parts["η = 0.2"]  # they stay in the mean


def test_the_claim_that_residual_starts_are_better_conditioned_can_fail(sweep_table):
    narrow = sweep_table.assign(initial_sharpness=20.0 + sweep_table["repetition"])
    assert conditioning_claim(narrow, sweep_table).verdict == "holds"
    assert conditioning_claim(sweep_table, sweep_table).verdict == "fails"


BROKEN_GENERALIZATION = {
    "as published": lambda t: changed(t, where(t), test_risk=lambda r: 5 * r),
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
    noise = 1 + 0.02 * (sweep_table["repetition"] % 5 - 2)
    good = sweep_table.assign(test_risk=0.1 + 10**-0.96 * sweep_table["sharpness"] ** 0.42 * noise)
    bad = BROKEN_GENERALIZATION[fragment](good)
    check_broken(fm_6.generalization_claims, fragment, sweep_config, good, bad)


def test_the_regression_recovers_a_known_power_law(sweep_table):
    table = sweep_table.assign(
        test_risk=sweep_table["risk"] + 0.3 * sweep_table["sharpness"] ** 0.42
    )
    _, line = fm_6.fit(table)
    assert line.slope == pytest.approx(0.42, abs=1e-12)
    assert 10**line.intercept == pytest.approx(0.3, rel=1e-12)


BROKEN_GELU = {
    "ends below 2/η": lambda t: changed(t, where(t, 0.25, 0.2), sharpness=10.0),
    "between the bounds": lambda t: changed(t, where(t, 0.25, 0.02), sharpness=3.0),
}


@pytest.mark.parametrize("fragment", BROKEN_GELU)
def test_claims_about_the_nonlinear_network_can_fail(
    fragment, check_broken, sweep_config, sweep_table
):
    good = changed(sweep_table, where(sweep_table, 0.25, 0.2), sharpness=8.9)
    good = changed(good, where(good, 0.25, 0.02), sharpness=20.0)
    if fragment == "between the bounds":
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
