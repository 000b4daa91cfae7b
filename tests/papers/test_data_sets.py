"""The sentences about every data set, with one data set that violates each."""

import numpy as np
import pandas as pd
import pytest
from grids import grid

from deeplin.papers import fm_1
from deeplin.papers.critical_rates import ScaleCritical, critical_claims
from deeplin.papers.fm_6 import relation_claims
from deeplin.papers.scale_claims import general_claims
from deeplin.papers.scale_sweep import DATA_SETS, SCALE_SWEEP, DataSets, Rate, ScaleSweep
from deeplin.papers.setting import Setting

CONFIG = DataSets(Setting(), (1, 2, 3), (0.3,), (0.5, 1.3), steps=10, repetitions=4)


@pytest.fixture
def table():
    sets, rates = CONFIG.data_seeds, CONFIG.relative_rates
    table = grid(data_seed=sets, relative_rate=rates, repetition=range(8), scale=(0.3,))
    below = table["relative_rate"] < 1
    sharpness = 10.0 + table["repetition"]
    return table.assign(
        learning_rate=table["relative_rate"] * 0.2,
        minimal_sharpness=10.0,
        sharpness=sharpness,
        status=np.where(below, "converged", "stopped"),
        distance=np.where(below, 1e-9, 0.4),
        risk=0.1,
        test_risk=0.1 + 0.1 * sharpness**0.4 * (1 + 0.002 * (table["repetition"] % 3)),
    )


BROKEN = {
    "end at w*": {"distance": 0.5},
    "none settles above": {"status": "converged"},
    "no run below": {"sharpness": 30.0},
    "no minimiser found is flatter": {"sharpness": 9.0},
}


@pytest.mark.parametrize("fragment", BROKEN)
def test_one_data_set_is_enough_to_break_a_general_sentence(fragment, check_broken, table):
    bad = table.copy()
    for column, value in BROKEN[fragment].items():
        bad.loc[bad["data_seed"] == 2, column] = value
    check_broken(general_claims, fragment, CONFIG, table, bad)


def test_the_data_set_that_breaks_a_sentence_is_named(table):
    bad = table.copy()
    bad.loc[bad["data_seed"] == 2, "distance"] = 0.5
    claim = general_claims(CONFIG, bad)[0]
    assert claim.part == "holds for data set 1, data set 3; not for data set 2 (0.5)"


@pytest.mark.parametrize("fragment", ["grows with the sharpness", "strongly related"])
def test_the_relation_must_hold_on_every_data_set(fragment, check_broken, table):
    bad = table.copy()
    noise = np.random.default_rng(0).lognormal(size=16)
    bad.loc[bad["data_seed"] == 3, "test_risk"] = 0.1 + noise
    check_broken(relation_claims, fragment, CONFIG, table, bad)


def test_a_unit_is_a_scale_sweep_on_its_own_data_set():
    small = Setting(samples=12, dimension=3, depth=3)
    config = DataSets(small, (5, 6), (0.4,), (0.5,), steps=20, repetitions=2, seed=1)
    _, unit = DATA_SETS.units(config)
    table = DATA_SETS.run_unit(config, unit)
    setting = config.at(6)
    rate = 0.5 * setting.flattest.critical_learning_rate()
    sweep = ScaleSweep(setting, (0.4,), (Rate(rate, 20, 2),), seed=1)
    (other,) = SCALE_SWEEP.units(sweep)
    expected = SCALE_SWEEP.run_unit(sweep, other)
    np.testing.assert_allclose(table["sharpness"], expected["sharpness"], rtol=1e-9)
    assert set(table["data_seed"]) == {6}
    assert table["minimal_sharpness"][0] == setting.flattest.exact


def test_a_scale_that_moves_the_critical_rate_breaks_the_sentence(check_broken):
    config = ScaleCritical(Setting(), (0.25, 0.5), starts=4, steps=10)
    good = pd.DataFrame({"scale": [0.25, 0.5], "ratio": [0.98, 0.99], "settled": [4, 4]})
    bad = good.assign(ratio=[0.98, 0.6])
    check_broken(critical_claims, "does not depend on the scale", config, good, bad)


def test_residual_starts_are_judged_on_as_many_data_sets_as_gaussian_ones():
    _, critical, everywhere = fm_1.RESIDUAL_BESIDE
    presets = everywhere.presets
    assert len(presets["paper"].data_seeds) >= 10
    assert len(presets["quick"].data_seeds) == 3
    assert {config.setting.initialization for config in presets.values()} == {"residual"}
    assert {config.setting.initialization for config in critical.presets.values()} == {"residual"}
