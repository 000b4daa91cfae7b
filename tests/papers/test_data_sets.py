"""The robustness panels: other data sets of the same recipe."""

import numpy as np
import pandas as pd
import pytest
from grids import grid

from deeplin.papers import fm_1, fm_2
from deeplin.papers.fm_1 import DataSets, Rate, ScaleSweep
from deeplin.papers.setting import Setting

CONFIG = DataSets(Setting(), (0.3,), (0.5, 1.3), steps=10, repetitions=4, data_seeds=(1, 2, 3))


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


def test_a_unit_is_a_scale_sweep_on_its_own_data_set():
    small = Setting(samples=12, dimension=3, depth=3)
    config = DataSets(small, (0.4,), (0.5,), steps=20, repetitions=2, data_seeds=(5, 6), seed=1)
    _, unit = fm_1.EVERYWHERE.experiment.units(config)
    table = fm_1.EVERYWHERE.experiment.run_unit(config, unit)
    setting = config.at(6)
    rate = 0.5 * setting.flattest.critical_learning_rate()
    sweep = ScaleSweep(setting, (0.4,), (Rate(rate, 20, 2),), seed=1)
    (other,) = fm_1.SWEEP.experiment.units(sweep)
    expected = fm_1.SWEEP.experiment.run_unit(sweep, other)
    np.testing.assert_allclose(table["sharpness"], expected["sharpness"], rtol=1e-9)
    assert set(table["data_seed"]) == {6}
    assert table["minimal_sharpness"][0] == setting.flattest.exact


def test_residual_starts_are_judged_on_as_many_data_sets_as_gaussian_ones():
    critical, everywhere = fm_2.RESIDUAL_CRITICAL, fm_1.RESIDUAL_EVERYWHERE
    presets = everywhere.presets
    assert len(presets["paper"].data_seeds) >= 10
    assert len(presets["quick"].data_seeds) == 3
    assert {config.setting.initialization for config in presets.values()} == {"residual"}
    assert {config.setting.initialization for config in critical.presets.values()} == {"residual"}


def test_answers_about_other_data_sets_follow_the_data(check_changed, table):
    bad = table.copy()
    chosen = (bad["data_seed"] == bad["data_seed"].max()) & (bad["relative_rate"] < 1)
    bad.loc[chosen, "distance"] = 0.5
    check_changed("FM-1-data-sets", CONFIG, table, bad)
    bad = table.assign(test_risk=table["risk"] + 1 / table["sharpness"])
    check_changed("FM-6-data-sets", CONFIG, table, bad)


def test_the_answer_about_the_critical_rate_follows_the_data(check_changed):
    config = fm_2.ScaleCritical(Setting(), (0.25, 0.4), starts=4, steps=100)
    good = pd.DataFrame({"scale": (0.25, 0.4), "ratio": 0.97, "settled": 4})
    bad = good.assign(ratio=[0.97, 0.6])
    check_changed("FM-1a-critical", config, good, bad)
