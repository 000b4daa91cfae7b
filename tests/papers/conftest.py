"""Tables in which every quote is reproduced, to be corrupted one at a time."""

import numpy as np
import pytest
from grids import grid
from matplotlib.figure import Figure

from deeplin.papers.catalogue import PANELS
from deeplin.papers.scale_sweep import Rate, ScaleSweep
from deeplin.papers.setting import Setting


@pytest.fixture
def check_changed():
    """Some answer of a panel is another one when the table is."""

    def check(panel, config, good, bad):
        asked = PANELS[panel].questions
        first, second = ([q.answer for q in asked(config, table)] for table in (good, bad))
        assert len(first) == len(second) > 0
        assert first != second

    return check


@pytest.fixture
def sweep_config():
    """Three scales and three rates; the critical rate of the data lies between the last two."""
    rates = tuple(Rate(rate, steps=100, repetitions=20) for rate in (0.02, 0.07, 0.2))
    config = ScaleSweep(Setting(), scales=(0.25, 0.4, 0.6), rates=rates)
    assert 0.07 < config.setting.flattest.critical_learning_rate() < 0.2
    return config


@pytest.fixture
def sweep_table(sweep_config):
    """What the papers describe: see each column."""
    rates = [rate.learning_rate for rate in sweep_config.rates]
    table = grid(learning_rate=rates, scale=sweep_config.scales, repetition=range(20))
    rate, scale, k = table["learning_rate"], table["scale"], table["repetition"]
    table["initial_sharpness"] = scale.map({0.25: 0.2, 0.4: 20.0, 0.6: 2000.0})
    table["sharpness"] = np.select(
        [scale == 0.25, scale == 0.4], [20.0, np.minimum(40, 1.9 / rate)], 1.96 / rate
    )
    table["distance"] = np.where(rate < 0.1, 1e-20, 0.5)
    table["risk"] = 0.075
    table["test_risk"] = 0.075 + 0.1 * table["sharpness"] ** 0.4 * (1 + 0.01 * k)
    diverges = (scale == 0.6) & (k < rate.map({0.02: 5, 0.07: 10, 0.2: 20}))
    table["status"] = np.select([diverges, rate < 0.1], ["diverged", "converged"], "stopped")
    table.loc[diverges, ["sharpness", "distance", "risk", "test_risk"]] = np.nan
    return table


@pytest.fixture
def ax():
    return Figure().add_subplot()
