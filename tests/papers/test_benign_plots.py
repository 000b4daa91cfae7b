"""The plots of BO-1 to BO-3 draw the means of their tables, the interpolant and the prediction."""

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas
from test_benign_claims import TOP, relu_table, wide_table

from deeplin.papers import bo_2
from deeplin.papers.bo_1 import (
    plot_distance_against_dimension,
    plot_risk_against_dimension,
    plot_risk_against_variance,
)
from deeplin.papers.bo_2 import ReluSweep
from deeplin.papers.wide_claims import expected_distance


def drawn(ax):
    """The label and the heights of every line with error bars."""
    return {bars.get_label(): np.array(bars.lines[0].get_ydata(), float) for bars in ax.containers}


def mean(table, column, **where):
    for name, value in where.items():
        table = table[table[name] == value]
    return table[column].mean()


def test_risk_is_drawn_against_the_variance_with_descent_and_flow_apart(ax):
    table = wide_table(TOP)
    plot_risk_against_variance(TOP, table, ax, scale="alpha")
    curves = drawn(ax)
    assert set(curves) == {"$d = 500$", "$d = 2000$", "_$d = 2000$, flow"}
    for alpha, height in zip(TOP.alphas, curves["$d = 2000$"], strict=True):
        expected = mean(table, "risk", alpha=alpha, dimension=2000, dynamics="descent")
        assert height == pytest.approx(expected)
    levels = {line.get_ydata()[0] for line in ax.lines if len(set(line.get_ydata())) == 1}
    interpolant = mean(table, "interpolant_risk", dimension=500)
    assert any(np.isclose(level, interpolant) for level in levels)
    assert ax.get_xlabel() == r"Initialization variance $\alpha^2$"


def test_risk_and_distance_are_drawn_against_the_dimension(ax):
    table = wide_table(TOP)
    plot_risk_against_dimension(TOP, table, ax)
    heights = drawn(ax)[r"$\alpha = 0.001$"]
    expected = [
        mean(table, "risk", alpha=1e-3, dimension=d, dynamics="descent") for d in TOP.dimensions
    ]
    np.testing.assert_allclose(heights, expected)
    other = Canvas().add_subplot()
    plot_distance_against_dimension(TOP, table, other)
    assert other.get_yscale() == "log"
    predicted = [expected_distance(1e-3, d) for d in TOP.dimensions]
    dotted = [line.get_ydata() for line in other.lines if line.get_linestyle() == ":"]
    lines = [np.asarray(heights, float) for heights in dotted]
    assert any(len(line) == 2 and np.allclose(line, predicted) for line in lines)


def test_relu_risk_is_drawn_beside_that_of_the_zero_predictor(ax):
    config = ReluSweep((0.0, 1e-4, 1e-3), (1.0,), repetitions=4)
    table = relu_table(config)
    bo_2.plot_risk(config, table, ax, scale="alpha")
    heights = drawn(ax)["trained"]
    for alpha, height in zip(config.alphas, heights, strict=True):
        assert height == pytest.approx(mean(table, "risk", alpha=alpha))
    zero = table.drop_duplicates("repetition")["zero_risk"].mean()
    assert any(np.allclose(line.get_ydata(), zero) for line in ax.lines)
    (words,) = (text.get_text() for text in ax.texts)
    assert "α = 0: no gradient" in words


def test_no_network_is_called_dead_that_was_trained(ax):
    config = ReluSweep((1.0,), (0.0, 1e-4, 1e-3), repetitions=4)
    bo_2.plot_risk(config, relu_table(config), ax, scale="beta")
    assert not ax.texts
