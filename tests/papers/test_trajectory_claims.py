"""Each claim about single trainings, with data that violates it."""

from functools import partial

import numpy as np
import pytest
from grids import grid

from deeplin.papers.setting import Setting
from deeplin.papers.trajectories import (
    Followed,
    Trajectories,
    alignment_claims,
    conservation_claims,
    edge_of_stability_claims,
    stable_claims,
)

SLOW, MIDDLE, FAST = 0.002, 0.02, 0.1


@pytest.fixture
def config():
    rates = (Followed(SLOW, 300), Followed(MIDDLE, 300), Followed(FAST, 300))
    return Trajectories(Setting(), 0.35, rates, repetitions=2)


@pytest.fixture
def table():
    """Runs that converge at the slow rates and swing around 2/η at the fast one."""
    table = grid(learning_rate=(SLOW, MIDDLE, FAST), repetition=range(2), step=range(301))
    rate, step = table["learning_rate"], table["step"]
    swing = np.where(step > 20, np.where(step % 2, 1.3, 0.7), 0.1)
    drift = rate.map({SLOW: 1e-3, MIDDLE: 1e-2, FAST: 0.5})
    return table.assign(
        status="stopped",
        sharpness=np.where(rate == FAST, swing, 0.3) * 2 / rate,
        distance=np.exp(-step / 10),
        conservation=drift * step / 300,
        alignment=0.2 + 0.5 * step / 300,
    )


stable = partial(stable_claims, learning_rate=MIDDLE)
edge = partial(edge_of_stability_claims, learning_rate=FAST)


def one_run(table, rate, column, value):
    chosen = (table["learning_rate"] == rate) & (table["repetition"] == 1)
    return table.assign(**{column: table[column].mask(chosen, value)})


BROKEN = {
    "does not enter the edge": (stable, lambda t: one_run(t, MIDDLE, "sharpness", 101.0)),
    "reaches w*": (stable, lambda t: one_run(t, MIDDLE, "distance", 0.1)),
    "crosses 2/η": (edge, lambda t: one_run(t, FAST, "sharpness", 20.5)),
    "oscillates around it": (edge, lambda t: one_run(t, FAST, "sharpness", 15.0)),
    "proportional to η": (conservation_claims, lambda t: one_run(t, MIDDLE, "conservation", 0.02)),
    "leaves the conserved surface": (
        conservation_claims,
        lambda t: one_run(t, FAST, "conservation", 0.06),
    ),
    "Layers align": (alignment_claims, lambda t: t.assign(alignment=0.2)),
}


@pytest.mark.parametrize("fragment", BROKEN)
def test_claims_about_trainings_can_fail(fragment, check_broken, config, table):
    claims, breaking = BROKEN[fragment]
    check_broken(claims, fragment, config, table, breaking(table))


def test_a_start_above_the_threshold_makes_the_sentence_true_in_part(config, table):
    started = (table["learning_rate"] == MIDDLE) & (table["repetition"] == 1) & (table["step"] < 9)
    claim = stable(config, table.assign(sharpness=table["sharpness"].mask(started, 120.0)))[0]
    assert claim.verdict == "holds in part"
    assert claim.part == "holds for run 0; not for run 1 (1.2)"
    assert claim.known == "K-8"


def test_claims_about_runs_that_all_diverged_fail(config, table):
    gone = table.assign(status="diverged")
    assert not any(claim.holds for claim in edge(config, gone))
