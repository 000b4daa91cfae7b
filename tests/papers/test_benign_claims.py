"""The claims of BO-1 to BO-3 hold on data that follow the theory and fail on others."""

import numpy as np
import pandas as pd
import pytest
from grids import grid

from deeplin.papers import bo_2
from deeplin.papers.bo_1 import WIDE_SWEEP, WideSweep
from deeplin.papers.bo_2 import RELU_SWEEP, ReluSweep
from deeplin.papers.wide_claims import (
    dimension_claims,
    expected_distance,
    first_layer_claims,
    flow_claims,
    last_layer_claims,
    published_claims,
)


def wide_table(config, catapult=1.0):
    """Rows as theory has them: risk and distance grow with the variance of the swept layer."""
    scales = {"alpha": config.alphas, "beta": config.betas}
    draws = {"dimension": config.dimensions, "repetition": range(config.repetitions)}
    bases = grid(**draws)
    bases["base"] = 1 + 0.1 * np.random.default_rng(0).normal(size=len(bases))
    table = grid(**draws, dynamics=("descent", "flow"), **scales).merge(bases)
    descent, dimension = table["dynamics"] == "descent", table["dimension"]
    table = table[descent | (dimension >= config.flow_from)]
    swept = table["alpha"] if len(config.alphas) > 1 else 1e-3 + table["beta"]
    beside = expected_distance(swept, table["dimension"])
    beside = beside.mask(descent & (dimension > 1700), catapult * beside)
    return table.assign(
        status="converged",
        risk=table["base"] + 0.01 * beside,
        interpolant_risk=table["base"],
        beside=beside,
        distance=beside + 1e-6,
        interpolant_norm=10.0,
    )


TOP = WideSweep((500, 2000), alphas=(0.0, 1e-4, 1e-3), betas=(1.0,), repetitions=5)
BOTTOM = WideSweep((500, 2000), alphas=(1.0,), betas=(0.0, 1e-3), repetitions=5)


def failing(claims):
    return [claim.sentence for claim in claims if not claim.holds]


@pytest.mark.parametrize(("config", "claims"), [(TOP, first_layer_claims), (TOP, dimension_claims)])
def test_claims_hold_on_data_that_follow_the_theory(config, claims):
    # theory has the flow; the published distance at d = 2000 is that of unstable descent (E-11)
    assert failing(claims(config, wide_table(config, catapult=0.614))) == [
        claim.sentence for claim in flow_claims(wide_table(config, catapult=0.614))
    ]


def test_of_the_claims_at_beta_zero_only_the_printed_equality_fails():
    failed = failing(last_layer_claims(BOTTOM, wide_table(BOTTOM)))
    assert len(failed) == 3  # beta = 0 is far from Θ_min in this table, in distance and in risk
    near = wide_table(BOTTOM).assign(distance=1e-9)
    near["risk"] = near["interpolant_risk"] + 0.01 * (near["beta"] > 0)
    (left,) = failing(last_layer_claims(BOTTOM, near))
    assert "authors' logs" in left  # they are not at Θ_min


@pytest.mark.parametrize(("config", "scale", "mean"), [(TOP, "alpha", 70.0), (BOTTOM, "beta", 5.6)])
def test_published_distances_are_compared_in_standard_errors(config, scale, mean):
    table = wide_table(config)
    spread = 0.1 * (table["repetition"] - 2) / np.sqrt(2.5)  # standard deviation 0.1 of five draws
    (same,) = published_claims(table.assign(distance=mean + spread), scale)
    (other,) = published_claims(table.assign(distance=mean + 2 + spread), scale)
    assert (same.verdict, other.verdict) == ("holds", "fails")
    rounding = 0.5 if scale == "alpha" else 0.05
    error = np.sqrt(0.1**2 * (1 / 5 + 1 / 20) + rounding**2 / 3)
    assert other.measured == pytest.approx(2 / error)
    assert f"published {mean:g}" in other.explanation


@pytest.mark.parametrize(
    ("claims", "spoil", "broken"),
    [
        (first_layer_claims, {"risk": lambda t: t["interpolant_risk"]}, "grows with α²"),
        (first_layer_claims, {"risk": lambda t: 1.05 * t["risk"]}, "α = 0 produces"),
        (first_layer_claims, {"beside": lambda t: 2 * t["beside"]}, "follows α²(d−n)mq"),
        (dimension_claims, {"risk": lambda t: 1.03 * t["risk"]}, "scale is small"),
        (dimension_claims, {"risk": lambda t: t["interpolant_risk"]}, "costs more the larger d"),
    ],
)
def test_each_claim_of_the_first_layer_fails_on_data_that_violate_it(claims, spoil, broken):
    table = wide_table(TOP).assign(**spoil)
    assert any(broken in sentence for sentence in failing(claims(TOP, table)))


def test_descent_that_catapults_does_not_stand_for_flow():
    (claim,) = flow_claims(wide_table(TOP, catapult=0.6))
    assert (claim.verdict, claim.known) == ("fails", "E-11")
    assert flow_claims(wide_table(TOP))[0].holds


def test_the_claim_about_growth_with_beta_can_fail():
    table = wide_table(BOTTOM).assign(risk=lambda t: t["interpolant_risk"])
    assert any("grows with β²" in s for s in failing(last_layer_claims(BOTTOM, table)))


def test_a_wide_unit_has_the_distance_that_theory_predicts():
    config = WideSweep((300,), alphas=(0.0, 1e-3), betas=(1.0,), repetitions=2, flow_from=9999)
    (unit,) = WIDE_SWEEP.units(config)
    table = pd.DataFrame(WIDE_SWEEP.run_unit(config, unit))
    assert set(table["status"]) == {"converged"}
    moved = table[table["alpha"] > 0]
    ratio = moved["beside"] / expected_distance(1e-3, 300)
    np.testing.assert_allclose(ratio, 1.0, atol=0.1)
    assert table.loc[table["alpha"] == 0, "beside"].max() == 0.0


def relu_table(config, alpha_effect=0.3, beta_effect=0.0):
    table = grid(repetition=range(4), alpha=config.alphas, beta=config.betas)
    alpha, beta, dead = table["alpha"], table["beta"], table["alpha"] == 0
    effect = 1 + alpha_effect * alpha / 1e-3 * (beta == 1) + beta_effect * beta / 1e-3
    return table.assign(
        learning_rate=config.learning_rate,
        status="stopped",
        steps=np.where(dead, 0, config.steps),
        loss=2.5,
        risk=np.where(dead, 0.1, 0.5 * (1 + 0.01 * table["repetition"]) * effect),
        zero_risk=0.1,
    )


LEFT = ReluSweep((0.0, 3e-4, 1e-3), (1.0,))
RIGHT = ReluSweep((1.0,), (0.0, 3e-4, 1e-3))


def relu_failing(left, right):
    claims = [*bo_2.first_layer_claims(LEFT, left, right), *bo_2.last_layer_claims(RIGHT, right)]
    return {claim.name for claim in claims if not claim.holds}


def test_relu_claims_hold_on_data_that_follow_them():
    trained = relu_table(LEFT, alpha_effect=0.5).assign(steps=10, loss=1e-8)
    flat = relu_table(RIGHT, alpha_effect=0.0).assign(loss=1e-8)
    assert relu_failing(trained, flat) == set()


def test_relu_claims_fail_on_data_that_violate_them():
    flat = relu_table(RIGHT, alpha_effect=0.0)
    dead = relu_failing(relu_table(LEFT, alpha_effect=0.5), flat)
    assert dead == {"α = 0 is trained", "trained to interpolation"}  # E-10
    none = relu_failing(relu_table(LEFT, alpha_effect=0.0), flat)
    assert {"grows with α", "strong effect of α", "asymmetry"} <= none
    steep = relu_table(RIGHT, alpha_effect=0.0, beta_effect=0.5)
    both = relu_failing(relu_table(LEFT, alpha_effect=0.3), steep)
    assert {"asymmetry", "unaffected by β"} <= both


def test_the_claim_about_a_larger_step_fails_when_the_risk_differs():
    config = ReluSweep((0.0, 1e-3), (1.0,), learning_rate=1e-3, steps=10, checked=1)
    table = relu_table(config)
    true = table[table["alpha"] == 1e-3].assign(learning_rate=1e-4)
    close = pd.concat([table, true])
    assert failing(bo_2.step_claims(config, close)) == []
    far = pd.concat([table, true.assign(risk=2 * true["risk"])])
    assert len(failing(bo_2.step_claims(config, far))) == 1


def test_a_dead_network_takes_no_step_and_a_live_one_follows_plain_descent():
    config = ReluSweep((0.0, 0.5), (1.0,), repetitions=1, learning_rate=1e-3, steps=20)
    (unit,) = RELU_SWEEP.units(config)
    table = pd.DataFrame(RELU_SWEEP.run_unit(config, unit)).set_index("alpha")
    assert table.loc[0.0, "steps"] == 0
    assert table.loc[0.0, "risk"] == pytest.approx(table.loc[0.0, "zero_risk"], rel=1e-6)
    assert table.loc[0.5, "steps"] == 20
    assert table.loc[0.5, "loss"] != table.loc[0.0, "loss"]


def test_a_rehearsal_tells_the_time_of_a_unit_without_that_of_compiling(monkeypatch):
    config = ReluSweep((0.0, 1e-3), (1.0,), repetitions=1, steps=70_000)
    (unit,) = RELU_SWEEP.units(config)
    now, calls = [0.0], []

    def descent(problem, batch, rate, steps):
        calls.append(batch.batch)
        now[0] += 0.01 * steps + (60.0 if len(calls) == 1 else 2.0)

    monkeypatch.setattr(bo_2, "gradient_descent", descent)
    monkeypatch.setattr(bo_2.time, "perf_counter", lambda: now[0])
    assert RELU_SWEEP.rehearse(config, unit) == pytest.approx(700.0)
    assert set(calls) == {1}  # the network with α = 0 takes no step
