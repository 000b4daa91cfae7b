"""The plots of BO-1 to BO-3 draw the means of their tables, the interpolant and the prediction."""

import numpy as np
import pandas as pd
import pytest
from grids import grid
from matplotlib.figure import Figure as Canvas

from deeplin.papers import bo_2
from deeplin.papers.bo_2 import ReluSweep
from deeplin.papers.catalogue import PANELS
from deeplin.papers.wide_sweep import (
    WideSweep,
    compared_with_logs,
    expected_distance,
    expected_law,
    published,
)

TOP = WideSweep((500, 2000), alphas=(0.0, 1e-4, 1e-3), betas=(1.0,), repetitions=4)


def wide_table(config):
    table = grid(
        dimension=config.dimensions, alpha=config.alphas, dynamics=("descent", "flow"),
        repetition=range(config.repetitions),
    )  # fmt: skip
    table = table[(table["dynamics"] == "descent") | (table["dimension"] == 2000)]
    distance = expected_distance(table["alpha"], table["dimension"]) * (
        1 + 0.01 * table["repetition"]
    )
    return table.assign(
        beta=1.0, distance=distance, beside=distance, risk=1 + 0.01 * distance, status="converged",
        interpolant_risk=1 + 0.1 * table["repetition"], interpolant_norm=8.0, loss=1e-8,
        added=0.01 * distance, cross=0.0,
    )  # fmt: skip


def relu_table(config):
    table = grid(alpha=config.alphas, beta=config.betas, repetition=range(config.repetitions))
    risk = 1 + table["alpha"] + 0.1 * table["repetition"]
    steps = np.where(table["alpha"] == 0, 0, 100)
    return table.assign(risk=risk, steps=steps, zero_risk=0.5, loss=1.0, status="stopped",
                        learning_rate=config.learning_rate)  # fmt: skip


def test_a_cell_of_the_logs_is_compared_in_standard_errors():
    row = published().query("figure == 'BO-3' and dimension == 1000 and alpha == 0.001").iloc[0]
    error = row["distance_sd"] / np.sqrt(row["runs"])
    draws = row["distance_mean"] + 3 * error + row["distance_sd"] * np.array([-1.0, 1.0])
    table = pd.DataFrame({"distance": draws, "risk": row["risk_mean"], "dynamics": "descent"})
    table = table.assign(dimension=1000, alpha=1e-3, beta=1.0)
    z = compared_with_logs(table, "BO-3")["distance"].item()
    ours = draws.std(ddof=1) / np.sqrt(2)
    assert z == pytest.approx(3 * error / np.hypot(error, ours))


def test_answers_about_the_logs_follow_the_data(check_changed):
    table = wide_table(TOP)
    moved = table.assign(distance=2 * table["distance"])
    check_changed("BO-1-top", TOP, table, moved)


def drawn(ax):
    """The label and the heights of every line with error bars."""
    return {bars.get_label(): np.array(bars.lines[0].get_ydata(), float) for bars in ax.containers}


def mean(table, column, **where):
    for name, value in where.items():
        table = table[table[name] == value]
    return table[column].mean()


def test_risk_is_drawn_against_the_variance_with_descent_and_flow_apart(ax):
    table = wide_table(TOP)
    PANELS["BO-1-top"].plot(TOP, table, ax)
    curves = drawn(ax)
    assert set(curves) >= {"$d = 500$", "$d = 2000$", "_$d = 2000$, flow"}
    logged = published().query("figure == 'BO-1-top' and dimension == 2000")["risk_mean"]
    np.testing.assert_allclose(curves["_"], logged)  # the last of them
    for alpha, height in zip(TOP.alphas, curves["$d = 2000$"], strict=True):
        expected = mean(table, "risk", alpha=alpha, dimension=2000, dynamics="descent")
        assert height == pytest.approx(expected)
    levels = {line.get_ydata()[0] for line in ax.lines if len(set(line.get_ydata())) == 1}
    interpolant = mean(table, "interpolant_risk", dimension=500)
    assert any(np.isclose(level, interpolant) for level in levels)
    assert ax.get_xlabel() == r"Initialization variance $\alpha^2$"


def test_risk_and_distance_are_drawn_against_the_dimension(ax):
    table = wide_table(TOP)
    PANELS["BO-3-risk"].plot(TOP, table, ax)
    heights = drawn(ax)[r"$\alpha = 0.001$"]
    expected = [
        mean(table, "risk", alpha=1e-3, dimension=d, dynamics="descent") for d in TOP.dimensions
    ]
    np.testing.assert_allclose(heights, expected)
    other = Canvas().add_subplot()
    PANELS["BO-3-distance"].plot(TOP, table, other)
    assert other.get_yscale() == "log"
    law = expected_law(2000, 1e-3, 1.0, 20030)["law_distance"]
    dotted = [line.get_ydata() for line in other.lines if line.get_linestyle() == ":"]
    assert any(np.isclose(np.asarray(heights, float), law).any() for heights in dotted)


def test_relu_risk_is_drawn_beside_that_of_the_zero_predictor(ax):
    config = ReluSweep((0.0, 1e-4, 1e-3), (1.0,), repetitions=4)
    table = relu_table(config)
    bo_2.plot_risk(config, table, ax, scale="alpha")
    heights = drawn(ax)["trained"]
    for alpha, height in zip(config.alphas, heights, strict=True):
        assert height == pytest.approx(mean(table, "risk", alpha=alpha))
    zero = table.drop_duplicates("repetition")["zero_risk"].mean()
    assert any(np.allclose(line.get_ydata(), zero) for line in ax.lines)
    (note,) = (text.get_text() for text in ax.texts)
    assert "α = 0: no gradient" in note
