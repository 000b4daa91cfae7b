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


@pytest.fixture
def own():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3)) * [1.0, 2.0, 0.5]
    return dl.Problem.from_data(X, X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=30))


def test_a_figure_is_drawn_on_data_of_ones_own(own):
    ax = dl.papers.figure("FM-2", problem=own, depths=(3,), steps=30, repetitions=2)
    critical = dl.theory.critical_learning_rate(own, 3)
    dashed = [line for line in ax.get_lines() if line.get_linestyle() == "--"]
    assert dashed[0].get_xdata()[0] == pytest.approx(critical, rel=1e-9)
    low, high = ax.get_xlim()
    assert low < critical < high  # the rates of the paper, times the ratio of critical rates


def test_a_training_is_drawn_on_data_of_ones_own_with_starts_of_its_size(own):
    ax = dl.papers.figure("FM-1c", problem=own, depth=3, rates=((0.02, 4, 1),), repetitions=2)
    X, y = own.require_data("the test")
    first = ax.lines[0].get_ydata()[0]
    assert 0 < first < 4 * np.sum(np.linalg.lstsq(X, y, rcond=None)[0] ** 2)


def test_a_training_from_another_scale_starts_there_and_not_where_the_authors_did():
    changes = {"scale": 0.01, "rates": ((0.05, 2, 1),), "repetitions": 1}
    for name in ("FM-1c", "FM-1d"):  # both draw the one rate that there is
        first = dl.papers.figure(name, **changes).lines[0].get_ydata()[0]
        assert first == pytest.approx(1.0, abs=1e-6)  # the map is nearly zero, ‖w*‖ = 1


@pytest.mark.parametrize(
    ("name", "problem", "sentence"),
    [
        ("BO-1", None, "BO-1-top draws its own data; problem= is for FM-1"),
        ("FM-6b", None, "FM-6b needs test data"),
        ("FM-2", "two", "2 output"),
        ("FM-2", "array", "pass a deeplin.Problem"),
    ],
)
def test_what_a_figure_cannot_draw_on_own_data_is_refused(own, name, problem, sentence):
    X, y = own.require_data("the test")
    pairs = dl.Problem.from_data(X, np.column_stack([y, y]))
    given = {"two": pairs, "array": X}.get(problem, own)
    with pytest.raises(dl.InputError, match=sentence):
        dl.papers.figure(name, problem=given)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({"name": "FM-2", "colour": 1}, "FM-2 has no colour; pass any of activation, .*depths"),
        ({"name": "FM-2", "depth": 3}, "FM-2 has no depth; pass any of .*depths"),
        ({"name": "FM-1a-critical", "activation": "gelu"}, "FM-1a-critical has no activation"),
        ({"name": "FM-2", "data_seeds": 3}, r"data_seeds is 3; pass a list, such as .*\(3,\)"),
        ({"name": "FM-2", "depths": ()}, "depths is empty"),
        ({"name": "FM-2", "depths": (0,)}, "depths"),
        ({"name": "FM-2", "learning_rates": (-0.1,)}, "learning_rates"),
        ({"name": "FM-2", "initialization": "he"}, "initialization is 'he'; pass one of gaussian"),
        ({"name": "FM-1a", "rates": ((0.1, 5),)}, r"\(learning_rate, steps, repetitions\)"),
        ({"name": "FM-1a", "scales": (0.3,), "seed": 0}, "seed is 0, which stands for"),
        ({"name": "FM-99"}, "there is no figure FM-99"),
        ({"name": 3}, "there is no figure 3"),
        ({"name": "FM-2", "preset": "slow"}, "preset is 'slow'; pass one of quick, paper"),
    ],
)
def test_what_cannot_be_varied_is_refused(call, sentence):
    with pytest.raises(dl.InputError, match=sentence):
        dl.papers.figure(**call)
