"""A panel computed again with other settings shows what was asked for."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

import deeplin as dl
from deeplin.papers.setting import Setting


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def test_a_figure_is_varied():
    changes = {"depths": (3, 4), "learning_rates": (0.1, 0.3), "steps": 30, "repetitions": 2}
    ax = dl.papers.figure("fm-2", **changes, data_seeds=(5,))
    labels = [label.get_text() for label in ax.get_legend().get_texts()]
    assert labels[:2] == ["depth 3", "depth 4"]
    settings = [Setting("residual", depth=depth, data_seed=5) for depth in (3, 4)]
    critical = [setting.flattest.critical_learning_rate() for setting in settings]
    dashed = [line for line in ax.get_lines() if line.get_linestyle() == "--"]
    np.testing.assert_allclose([line.get_xdata()[0] for line in dashed[:2]], critical)


def test_it_draws_on_given_axes():
    ax = Figure().add_subplot()
    changes = {"depths": (3,), "learning_rates": (0.1, 0.3), "steps": 5, "repetitions": 2}
    assert dl.papers.figure("FM-2", ax=ax, **changes) is ax
    assert ax.get_lines()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({"name": "FM-2", "colour": 1}, "FM-2 has no colour; pass any of activation, .*depths"),
        ({"name": "FM-99"}, "there is no figure FM-99"),
        ({"name": "FM-2", "preset": "slow"}, "preset is 'slow'; pass one of quick, paper"),
    ],
)
def test_what_cannot_be_varied_is_refused(call, sentence):
    with pytest.raises(dl.InputError, match=sentence):
        dl.papers.figure(**call)
