"""Every plot draws on the axes it is given, with the lines and names a reader expects."""

import numpy as np
import pytest
from grids import grid
from matplotlib.figure import Figure

from deeplin.papers import fm_1, fm_2, talk_log
from deeplin.papers.catalogue import PANELS
from deeplin.papers.fm_2 import STARTS, plot_thresholds
from deeplin.papers.trajectories import plot_training
from deeplin.plot_style import COLORS, draw, save


def levels(ax):
    """Heights of the horizontal lines."""
    flat = [line.get_ydata() for line in ax.lines if len(line.get_ydata())]
    return {float(values[0]) for values in flat if len(set(values)) == 1}


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_the_sharpness_panel_has_the_thresholds_and_bounds(ax, sweep_config, sweep_table):
    PANELS["FM-1b"].plot(sweep_config, sweep_table, ax)
    flattest = sweep_config.setting.flattest
    expected = {2 / 0.02, 2 / 0.07, flattest.exact, sweep_config.setting.upper_bound}
    assert flattest.lower > 0.97 * flattest.exact  # drawn as one line with S_min
    assert any("2La" in text.get_text() for text in ax.texts)
    assert expected <= levels(ax)
    assert 2 / 0.2 not in levels(ax)  # only the rates the paper draws
    assert ax.get_yscale() == "log"
    assert len(legend(ax)) == 4


def test_the_legend_explains_open_points_medians_the_floor_and_dead_networks(
    ax, sweep_config, sweep_table
):
    few = (sweep_table["scale"] == 0.6) & (sweep_table["repetition"] < 18)
    table = sweep_table.assign(status=sweep_table["status"].mask(few, "diverged"))
    PANELS["FM-1a"].plot(sweep_config, table, ax)
    named = legend(ax)
    assert named[:3] == [rf"$\eta = {rate}$" for rate in (0.02, 0.07, 0.2)]
    assert {"median", "1 or 2 runs (number)", r"$\leq 10^{-15}$: rounding"} == set(named[3:])
    other = Figure().add_subplot()
    dead = sweep_table["sharpness"].mask(sweep_table.index == 0, 0.0)
    PANELS["FM-7"].plot(sweep_config, sweep_table.assign(sharpness=dead), other)
    assert "runs with all units off" in legend(other)
    crosses = next(line for line in other.lines if line.get_label() == "_dead")
    assert list(crosses.get_xdata()) == [0.25]


def test_generalization_is_a_dot_for_each_run_and_a_line(ax, sweep_config, sweep_table):
    PANELS["FM-6b"].plot(sweep_config, sweep_table.assign(added_by_start=0.1), ax)
    settled = (sweep_table["learning_rate"] == 0.02) & (sweep_table["status"] != "diverged")
    assert len(ax.collections[0].get_offsets()) == settled.sum()
    assert "slope" in legend(ax)[0]
    assert len(ax.lines[-1].get_xdata()) == 3  # the law, once for each scale


@pytest.fixture
def training():
    config = fm_1.TRAINING.presets["quick"]
    rates = [rate.learning_rate for rate in config.rates]
    table = grid(learning_rate=rates, repetition=range(2), step=range(21))
    step, k = table["step"], table["repetition"]
    return config, table.assign(distance=np.exp(-step) + k, sharpness=20.0 + k)


def test_a_training_shows_one_run_on_two_axes(ax, training):
    config, table = training
    plot_training(config, table, ax, rate=-1, subsample=5, upper_bound=True)
    right = next(other for other in ax.figure.axes if other is not ax)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0, 5, 10, 15, 20])
    flattest = config.setting.flattest
    expected = {2 / 0.1, flattest.exact, config.setting.upper_bound}
    assert expected <= levels(right)


def test_the_rates_panel_marks_the_critical_rate_of_each_depth(ax):
    config = fm_2.SWEEP.presets["quick"]
    table = grid(
        depth=config.depths, data_seed=config.data_seeds, learning_rate=config.learning_rates
    )
    table = table.assign(distance=1.0, status="stopped")
    fm_2.plot_rates(config, table, ax)
    upright = {float(x[0]) for x in (line.get_xdata() for line in ax.lines) if len(x) == 2}
    for depth in config.depths:
        flattest = config.at(depth=depth).flattest
        assert {flattest.critical_learning_rate(), 2 / flattest.lower} <= upright


def test_measured_thresholds_are_drawn_relative_to_the_exact_one(ax):
    config = fm_2.THRESHOLDS.presets["quick"]
    sets = config.data_seeds
    table = grid(depth=config.depths, start=STARTS, steps=config.steps, data_seed=sets)
    shares = {"measured": 0.9, "low": 0.8, "high": 1.1, "exact": 1.0, "printed": 1.02}
    table = table.assign(**{name: share / table["depth"] for name, share in shares.items()})
    plot_thresholds(config, table, ax)
    np.testing.assert_allclose(np.asarray(ax.lines[0].get_ydata(), float), 0.9)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["5", "10", "20", "40"]


def test_the_contrast_marks_runs_that_diverged(ax):
    config = talk_log.Contrast((0.5, 2.0), steps=1)
    table = grid(problem=talk_log.LABELS, relative_rate=config.relative_rates)
    table = table.assign(loss=0.1, status="stopped", data_seed=config.data_seeds[0])
    table.loc[3, ["loss", "status"]] = [np.nan, "diverged"]
    talk_log.plot_contrast(config, table, ax)
    crosses = [line for line in ax.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in crosses] == [[2.0]]


def test_pictures_are_the_same_files_every_time(tmp_path):
    for folder in ("first", "second"):
        figure = draw(lambda ax: ax.plot([1, 2], color=COLORS[0]), (3, 2), "name")
        save(figure, tmp_path / folder, "name")
    for kind in ("svg", "pdf", "png"):
        first, second = (tmp_path / folder / f"name.{kind}" for folder in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
