"""Plots show the numbers of the library, on the axes that they are given."""

import jax
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

import deeplin as dl
from deeplin.plot import RUNS


@pytest.fixture(autouse=True)
def _closed():
    """Leave no figure open."""
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def problem():
    return dl.problems.synthetic.flat_minima(seed=0).problem


@pytest.fixture(scope="module")
def run(problem):
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 5, 1), scale=0.35)
    return dl.gradient_descent(
        problem, net, [0.02, 0.1], 50, record_every=1, record=["sharpness", "risk"]
    )


def drawn(ax):
    """Lines by label, without helpers."""
    return {line.get_label(): line for line in ax.get_lines()}


def test_training_draws_the_records_and_the_limit_of_stability(run):
    ax = dl.plot.training(run)
    lines = ax.get_lines()
    curves = [line for line in lines if line.get_linestyle() == "-"]
    limits = [line.get_ydata()[0] for line in lines if line.get_linestyle() == "--"]
    np.testing.assert_array_equal([c.get_ydata() for c in curves], run.records["sharpness"].T)
    assert [c.get_label() for c in curves] == ["η = 0.02", "η = 0.1"]
    np.testing.assert_allclose(limits, [100, 20])
    assert [c.get_color() for c in curves] == list(RUNS[:2])


def test_momentum_raises_the_limit_of_stability(problem, run):
    fast = dl.gradient_descent(
        problem, run[0].initial, 0.02, 5, momentum=0.5, record_every=1, record=["sharpness"]
    )
    limit = next(x for x in dl.plot.training(fast).get_lines() if x.get_linestyle() == "--")
    assert limit.get_ydata()[0] == pytest.approx(3 / 0.02)


def test_training_draws_each_layer_of_one_run(problem, run):
    one = dl.gradient_descent(
        problem, run[0].initial, 0.02, 5, record_every=1, record=["singular_values"]
    )
    ax = dl.plot.training(one, "singular_values")
    assert [line.get_label() for line in ax.get_lines()] == [
        f"singular_values {k}" for k in (1, 2, 3)
    ]


@pytest.mark.parametrize(("quantity", "sentence"), [("trace", "recorded: "), (None, "no records")])
def test_what_was_not_recorded_is_refused(problem, run, quantity, sentence):
    bare = dl.gradient_descent(problem, run[0].initial, 0.02, 5)
    with pytest.raises(dl.InputError, match=sentence):
        dl.plot.training(run if quantity else bare, quantity)


def test_critical_rates_are_the_librarys_and_lie_in_their_bracket(problem):
    depths = [2, 5, 9]
    ax = dl.plot.critical_rates(problem, depths)
    rates = drawn(ax)["$2/S_{min}$, critical"].get_ydata()
    expected = [dl.theory.critical_learning_rate(problem, depth) for depth in depths]
    np.testing.assert_allclose(rates, expected, rtol=1e-9)
    corners = ax.collections[0].get_paths()[0].vertices
    for depth, rate in zip(depths, rates, strict=True):
        heights = corners[corners[:, 0] == depth, 1]
        assert heights.min() <= rate <= heights.max()


def test_the_spectrum_of_a_problem_is_that_of_its_covariance(problem):
    ax = dl.plot.spectrum(problem, learning_rate=0.5)
    expected = np.linalg.eigvalsh(problem.inputs.T @ problem.inputs / problem.samples)[::-1]
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), expected, rtol=1e-10)
    assert 4.0 in [line.get_ydata()[0] for line in ax.get_lines()]


def test_the_spectrum_of_a_network_has_its_values(problem, run):
    found = dl.hessian_spectrum(problem, run[0].network, count=3)
    ax = dl.plot.spectrum(found)
    np.testing.assert_array_equal(ax.get_lines()[0].get_ydata(), found.values)


@pytest.mark.parametrize("values", [[], [[1.0]], [np.nan]])
def test_what_is_no_spectrum_is_refused(values):
    with pytest.raises(dl.InputError, match="eigenvalues of one matrix"):
        dl.plot.spectrum(values)


def test_the_phase_picture_changes_color_at_the_critical_rate(problem):
    depths = (2, 3)
    critical = [dl.theory.critical_learning_rate(problem, depth) for depth in depths]
    rates = [0.7 * critical[1], 1.1 * critical[0], 10.0]
    ax = dl.plot.phase(problem, depths, rates, starts=3, steps=2000)
    gaps, lost = (mesh.get_array().reshape(3, 2) for mesh in ax.collections[:2])
    assert (gaps[0] <= -8).all()
    assert (gaps[1] > -8).all()
    np.testing.assert_array_equal(np.ma.getmaskarray(lost)[[0, 2]], [[True] * 2, [False] * 2])
    np.testing.assert_allclose(drawn(ax)["critical rate $2/S_{min}$"].get_ydata(), critical)


def test_the_density_of_a_spectrum_has_mass_one_and_its_limit(problem, run):
    found = dl.spectral_density(problem, run[0].network, samples=3, steps=20)
    ax = dl.plot.spectrum(found, learning_rate=0.1)
    curve, limit = ax.get_lines()
    assert np.trapezoid(curve.get_ydata(), curve.get_xdata()) == pytest.approx(1, abs=1e-3)
    assert limit.get_xdata()[0] == 20


def test_the_spectrum_of_a_trajectory_is_drawn_against_its_records(problem, run):
    found = dl.hessian_spectrum(problem, run.network, count=2)
    lines = dl.plot.spectrum(found).get_lines()
    np.testing.assert_array_equal([line.get_ydata() for line in lines], found.values.T)


def test_a_sweep_is_drawn_by_means_with_their_intervals():
    table = pd.DataFrame(
        {"rate": [1, 1, 1, 2, 2, 2], "s": [1.0, 2.0, 3.0, 4.0, 6.0, np.inf], "kind": list("aaabbb")}
    )
    ax = dl.plot.sweep(table, x="rate", y="s")
    mean, *_ = ax.get_lines()
    assert mean.get_ydata().tolist() == [2.0, 5.0]
    low, high = ax.collections[0].get_segments()[0][:, 1]
    half = stats.t.ppf(0.975, 2) / np.sqrt(3)  # of 1, 2, 3, whose deviation is 1
    assert [low, high] == pytest.approx([2 - half, 2 + half])
    assert "1 row not finite" in ax.get_legend().get_texts()[0].get_text()
    labels = [t.get_text() for t in dl.plot.sweep(table, "rate", "s", "kind").get_legend().texts]
    assert labels[0] == "kind = a"
    with pytest.raises(dl.InputError, match="no column 'x'; its columns are rate, s, kind"):
        dl.plot.sweep(table, "x", "s")


def test_curves_of_training_are_all_named(problem, run):
    texts = [t.get_text() for t in dl.plot.training(run).get_legend().get_texts()]
    assert texts == ["η = 0.02", "limit of stability 2/η", "η = 0.1"]
    many = dl.gradient_descent(
        problem,
        dl.initialize.gaussian(jax.random.split(jax.random.key(0), 8), (5, 5, 1), 0.3),
        0.05,
        4,
        record_every=1,
        record=["risk"],
    )
    texts = [t.get_text() for t in dl.plot.training(many).get_legend().get_texts()]
    assert texts == ["η = 0.05: 8 runs"]


def test_double_descent_draws_its_table():
    population = dl.Population(np.ones(30) / 8, np.ones(30), noise=0.5)
    ax = dl.plot.double_descent(population, 10, [3, 20, 30])
    table = dl.double_descent(population, 10, [3, 20, 30])
    np.testing.assert_array_equal(drawn(ax)["excess risk"].get_ydata(), table["excess_risk"])


def test_a_curve_ends_where_its_run_diverges(problem, run):
    wild = dl.gradient_descent(problem, run[0].initial, 50.0, 40, record_every=1, record=["risk"])
    assert wild.status == "diverged"
    steps = dl.plot.training(wild, "risk").get_lines()[0].get_xdata()
    assert steps.tolist() == list(range(wild.steps))


def test_axes_that_are_given_are_used_and_settings_stay(run):
    before = mpl.rcParams.copy()
    ax = Figure().add_subplot()
    assert dl.plot.training(run, ax=ax) is ax
    assert dl.plot.spectrum([1.0, 2.0], ax=ax) is ax
    assert mpl.rcParams == before
    assert not plt.get_fignums()
