"""The figures of the exact results: numbers against oracles, answers that follow the data."""

import numpy as np
import pandas as pd
import pytest
from grids import grid

from deeplin.papers import bo_1, fm_residual, fm_small, x_rates
from deeplin.papers.bo_1 import expected_law
from deeplin.papers.catalogue import PANELS
from deeplin.theory import worst_sharpness_ratio

SETS = (9, 10)


def test_X14_the_measured_rate_of_a_classifier_is_the_predicted_one():
    config = x_rates.Losses((2,), steps=400, starts=2, data_seeds=SETS)
    row = x_rates.run_losses(config, depth=2, loss="logistic", data_seed=10)[0]
    # bisection to 0.5 %; 400 steps let a mode grow that gains 0.5 % in each
    assert row["measured"] == pytest.approx(row["predicted"], rel=0.01)
    assert row["low"] <= row["residual"] <= row["high"]
    assert row["residual"] < 1.01 * row["predicted"]


@pytest.fixture
def losses():
    table = grid(depth=(2, 5), loss=("logistic", "squared"), data_seed=SETS)
    rate = np.where(table["loss"] == "squared", 1.0, 10.0) / table["depth"]
    return table.assign(predicted=rate, measured=rate, residual=rate, low=rate, high=rate)


@pytest.mark.parametrize(("column", "factor"), [("measured", 1.1), ("residual", 0.5)])
def test_answers_about_losses_follow_the_data(column, factor, check_changed, losses, ax):
    config = x_rates.Losses((2, 5), steps=10, starts=2, data_seeds=SETS)
    bad = losses.copy()
    bad.loc[bad["loss"] == "logistic", column] *= factor
    check_changed("X-losses", config, losses, bad)
    x_rates.plot_losses(config, losses, ax)
    assert ax.get_xscale() == ax.get_yscale() == "log"


@pytest.mark.parametrize("kind", ["diagonal", "degenerate"])
def test_X18_one_of_the_two_worst_kinds_of_data_attains_the_worst_ratio(kind):
    config = fm_small.WorstRatios((3,), draws=1, spreads=(1.8, 10.0))
    rows = fm_small.run_worst(config, depth=3, kind=kind)
    np.testing.assert_allclose([row["spread"] for row in rows], config.spreads, rtol=1e-8)
    worst = worst_sharpness_ratio(3, np.array(config.spreads))
    # below L the degenerate data are the worst, far above it the diagonal ones
    attained = 1 if kind == "diagonal" else 0
    assert rows[attained]["ratio"] == pytest.approx(worst[attained], rel=1e-4)
    assert all(row["ratio"] <= bound * (1 + 1e-9) for row, bound in zip(rows, worst, strict=True))


def test_answers_about_ratios_follow_the_data(check_changed, ax):
    config = fm_small.WorstRatios((2, 10), draws=3, spreads=(3.0,))
    rows = [
        row | {"depth": depth, "kind": kind}
        for depth in config.depths
        for kind in fm_small.KINDS
        for row in fm_small.run_worst(config, depth, kind)
    ]
    table = pd.DataFrame(rows)
    pairs = zip(table["depth"], table["spread"], strict=True)
    worst = np.array([worst_sharpness_ratio(L, max(c, 1.0)) for L, c in pairs])
    assert np.all(table["ratio"] <= worst * (1 + 1e-9))
    check_changed("X-ratio", config, table, table.assign(ratio=10 * table["ratio"]))
    PANELS["X-ratio"].plot(config, table, ax)
    assert ax.get_ylim()[0] < 1


def test_X21_no_draw_at_the_certified_depth_leaves_its_bounds(check_changed, ax):
    config = fm_residual.Residual((0.1, 0.25), draws=50, widths=(5,))
    rows = [
        fm_residual.run_admissible(config, 5, s)[0] | {"width": 5, "scale": s}
        for s in config.scales
    ]
    table = pd.DataFrame(rows)
    # reference values: Lemma 3 with its tails corrected, L at 1.1 and 1.5 u_∞ (one layer suffices
    # at s = 0.1, where the reference begins with two)
    np.testing.assert_array_equal(table[["corrected", "tight", "wide"]], [[3, 2, 1], [48, 9, 3]])
    assert table["outside"].sum() == 0
    assert table["used"].max() < 1
    check_changed("X-residual", config, table, table.assign(outside=20))
    fm_residual.plot_admissible(config, table, ax)


def test_X27_what_a_vanishing_last_layer_leaves_is_the_law_the_logs_and_the_simulation():
    law = [expected_law(d, 1.0, 0.0, 10 * (d + 3))["law_distance"] for d in (500, 1000, 2000)]
    np.testing.assert_allclose(law, (5.526, 2.758, 1.387), atol=6e-4)
    logs = bo_1.logged().query("beta == 0").set_index("dimension")
    np.testing.assert_allclose(logs["distance_mean"], (5.631, 2.906, 1.411), atol=6e-4)
    np.testing.assert_allclose(logs["half"], np.multiply(2, (0.117, 0.060, 0.023)), atol=1e-3)
    assert np.all(abs(logs["distance_mean"] - law) < 3 / 2 * logs["half"])


def test_answers_about_the_last_layer_follow_the_data(check_changed, ax):
    config = bo_1.LastLayers((500,), runs=2, betas=(0.0, 1e-3))
    law = [expected_law(500, 1.0, beta, 5030)["law_distance"] for beta in config.betas]
    table = grid(dimension=(500,), beta=config.betas).assign(law=law, simulated=law, half=0.1)
    bad = table.assign(simulated=2 * table["simulated"])
    check_changed("X-wide-last-layer", config, table, bad)
    bo_1.plot_last_layer(config, table, ax)


def test_X29_what_theta_perp_gains_follows_its_law_in_the_depth(check_changed, ax):
    config = bo_1.Gained((3, 4), runs=2)
    rows = [bo_1.run_gained(config, depth)[0] | {"depth": depth} for depth in config.depths]
    table = pd.DataFrame(rows)
    # reference values at L = 3: flow .00565, law .00567, ‖U‖² − b²q 1.896
    assert rows[0]["flow"] == pytest.approx(0.00565, abs=6e-6)
    assert rows[0]["law"] == pytest.approx(0.00567, abs=6e-6)
    assert rows[0]["kept"] == pytest.approx(1.896, abs=6e-4)
    # Θ_⊥ of one run is Gaussian given U: a relative deviation of √(2/64) each, two runs
    np.testing.assert_allclose(table["simulated"], table["flow"], rtol=4 * np.sqrt(2 / 64 / 2))
    check_changed("X-wide-depth", config, table, table.assign(flow=2 * table["flow"]))
    bo_1.plot_gained(config, table, ax)
