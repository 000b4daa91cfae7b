"""The law of wide networks against the BO authors' published cells."""

import numpy as np
import pytest

from deeplin.papers.wide_sweep import compared, expected_law, published


def test_the_logs_are_the_cells_of_figures_1_and_3():
    logs = published()
    assert len(logs) == 90
    assert set(logs["figure"]) == {"BO-1-top", "BO-1-bottom", "BO-3"}
    assert np.all(logs["width"] == 10 * (logs["dimension"] + 3))


def test_the_law_agrees_with_every_stable_cell_as_far_as_chance_allows():
    """54 cells: of the 58 of the specification the four with α = 0.01 are not in the logs."""
    stable = compared().query("stable")
    z = stable["z"]
    assert len(z) == 54
    assert sorted(set(stable["dimension"])) == [200, 400, 500, 600, 800, 1000, 1200, 1400, 1600]
    # z of standard normal deviates: a mean of 54 has deviation 0.14, their sd 0.1
    assert abs(z.mean()) < 3 / np.sqrt(54)
    assert z.std() == pytest.approx(1.0, abs=3 / np.sqrt(2 * 54))
    assert abs(z).max() < 3.5
    assert (abs(z) < 2).mean() > 0.9
    ratio = (stable["added_risk"] / stable["law_added_risk"]).median()
    assert ratio == pytest.approx(1.0, abs=0.1)


def test_the_other_cells_are_those_of_an_unstable_step():
    """Past η·λ_max = 2 descent ends elsewhere, at less than the law: z from −4 to −14."""
    unstable = compared().query("not stable")
    assert set(unstable["dimension"]) == {1800, 2000}
    moved = unstable.query("beta > 0")
    assert moved["z"].max() < -4
    ratio = (moved["distance_mean"] / moved["law_distance"]).to_numpy()
    assert np.all(ratio < 0.95)


def test_X27_what_a_zero_last_layer_leaves_is_the_law_and_in_the_logs():
    law = [expected_law(d, 1.0, 0.0, 10 * (d + 3))["law_distance"] for d in (500, 1000, 2000)]
    np.testing.assert_allclose(law, (5.526, 2.758, 1.387), atol=6e-4)
    logs = published().query("figure == 'BO-1-bottom' and beta == 0").sort_values("dimension")
    error = logs["distance_sd"] / np.sqrt(logs["runs"])
    assert np.all(abs(logs["distance_mean"] - law) < 3 * error)
