"""The figures of the edge of stability: each claim holds on data that keep it, fails on others."""

from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from grids import grid

from deeplin.papers import eos_early, eos_flow, eos_life, eos_orbits, eos_white
from deeplin.papers.setting import Setting
from deeplin.problems import Problem
from deeplin.theory import critical_learning_rate

SETS = (9, 10)
"""What breaks a claim is put on the second data set alone."""
LIFE = eos_life.Life(Setting(depth=3), 0.3, 0, 40, 30, SETS)
FLOW = eos_flow.FlowEnds(Setting(depth=3), 0.4, (0.3, 0.9), 10, 3, SETS)
ORBITS = eos_orbits.ModeOrbits((10.0, 9.5, 9.0), 3, ())
EARLY = eos_early.EarlySharpening(Setting(depth=4), (0.2,), (2.0, 4.0), 5, SETS)


@pytest.fixture
def life():
    tables = []
    for factor, seed in product(eos_life.PLACES, SETS):
        step = np.arange(LIFE.steps + 1)
        table = pd.DataFrame({"factor": factor, "data_seed": seed, "step": step, "gap": 0.5})
        table["eigenvalue1"] = 1 - 0.3 * np.exp(-step / 5)
        table["flow"], table["minimal"] = max(1.0, factor), factor
        table["central"] = table["eigenvalue1"].where(step <= LIFE.central_steps)
        tables.append(table.assign(modes=1, multiplier=0.9, orbit_found=True, orbit_gap=0.5))
    return pd.concat(tables)


@pytest.mark.parametrize(
    ("fragment", "rows", "column", "value"),
    [
        ("begins with sharpening", lambda t: (t["factor"] == 1.0) & (t["step"] == 0),
         "eigenvalue1", 3.0),
        ("settles below the edge", lambda t: t["step"] == LIFE.steps, "eigenvalue1", 1.1),
        ("until that is stable", lambda t: t["factor"] == 0.7, "flow", 1.2),
        ("circles the flattest", lambda t: t["factor"] == 1.1, "flow", 1.5),
        ("central flow follows", lambda t: t["factor"] == 0.7, "central", 0.5),
        ("ends on an orbit", lambda t: t["factor"] == 1.1, "orbit_gap", 0.6),
        ("orbit is stable", lambda t: t["factor"] == 1.1, "multiplier", 1.1),
    ],
)  # fmt: skip
def test_claims_about_the_life_of_a_run_can_fail(fragment, rows, column, value, check_broken, life):
    bad = life.reset_index(drop=True)
    bad.loc[rows(bad) & (bad["data_seed"] == SETS[1]), column] = value
    check_broken(eos_life.claims, fragment, LIFE, life, bad)


def ends(values, status="converged", data_seeds=SETS):
    """Runs at both rates that go through these values."""
    kinds = {"factor": FLOW.factors, "data_seed": data_seeds}
    runs = grid(**kinds, repetition=range(FLOW.repetitions), step=range(len(values)))
    return runs.assign(status=status, end=runs["step"].map(dict(enumerate(values))))


@pytest.mark.parametrize(
    ("fragment", "values"),
    [
        ("Descent lowers the sharpness", [1.5, 1.2, 1.3, 0.9, 0.8]),
        ("each iterate to the second next", [1.5, 1.2, 1.6, 1.1, 0.9]),
        ("regain is small", [1.5, 1.0, 1.4, 0.9, 0.8]),
        ("ends where the flow would end flatter", [0.8, 0.7, 0.85, 0.9, 0.95]),
        ("ends below the edge", [1.8, 1.7, 1.6, 1.5, 1.4]),
    ],
)
def test_claims_about_where_flows_end_can_fail(fragment, values, check_broken):
    good = ends([1.5, 1.3, 1.1, 1.0, 0.9])
    bad = pd.concat([good[good["data_seed"] == SETS[0]], ends(values, data_seeds=SETS[1:])])
    check_broken(eos_flow.claims, fragment, FLOW, good, bad)


def test_a_data_set_on_which_no_run_survives_breaks_the_claims_about_it():
    good = ends([1.5, 1.3, 1.1, 1.0, 0.9])
    lost = (good["data_seed"] == SETS[1]) & (good["factor"] == FLOW.factors[1])
    found = eos_flow.claims(FLOW, good.assign(status=good["status"].mask(lost, "diverged")))
    assert {claim.verdict for claim in found} == {"holds in part"}


def test_a_change_that_is_no_more_than_the_accuracy_is_no_rise():
    rises = eos_flow.rises(ends([1.5, 1.5 * (1 + 1e-8), 1.0]))
    assert (rises["share"] == 0).all()
    assert len(eos_flow.rises(ends([1.0, 2.0], status="diverged"))) == 0


@pytest.fixture
def orbits():
    rows = []
    for rate in ORBITS.all_rates:
        count = int(np.sum(rate > ORBITS.thresholds))
        for mode in range(3):
            size = np.sqrt(max(rate / ORBITS.thresholds[mode] - 1, 0))
            columns = {"rate": rate, "mode": mode, "target": ORBITS.targets[mode]}
            columns |= {"amplitude": size, "exact": size, "modes": count, "expected": count}
            rows.append(columns | {"multiplier": 0.99})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("fragment", "change"),
    [
        ("begin to oscillate", lambda t: {"modes": np.maximum(t["modes"] - 1, 0)}),
        ("amplitudes of X-12", lambda t: {"amplitude": 1.001 * t["amplitude"]}),
        ("While one mode", lambda t: {"multiplier": np.where(t["expected"] == 1, 1.1, 0.9)}),
        ("several modes", lambda t: {"multiplier": np.where(t["expected"] > 1, 1.1, 0.9)}),
    ],
)
def test_claims_about_orbits_can_fail(fragment, change, check_broken, orbits):
    check_broken(eos_orbits.claims, fragment, ORBITS, orbits, orbits.assign(**change(orbits)))


def test_the_thresholds_are_the_published_ones():
    assert ORBITS.thresholds == pytest.approx([0.0309439, 0.0331343, 0.0356111], abs=5e-8)


@pytest.fixture
def early():
    kinds = {"scale": (0.2,), "spread": EARLY.spreads, "data_seed": SETS}
    runs = grid(**kinds, repetition=range(5), halved=(True,))
    return runs.assign(growth=1.0, small=0.9, large=0.1)


WHITE = grid(share=(0.3, 0.03), time=range(4)).assign(sharpness=2.0, exact=2.02)


@pytest.mark.parametrize(
    ("fragment", "change"),
    [
        ("the sharpness grows", {"growth": -1.0}),
        ("The smaller half", {"small": 0.5}),
        ("The larger half", {"large": 0.5}),
    ],
)
def test_claims_about_early_sharpening_can_fail(fragment, change, check_broken, early):
    bad = early.copy()
    bad.loc[bad["data_seed"] != SETS[0], [*change]] = [*change.values()]
    claims = partial(eos_early.claims, white=WHITE)
    check_broken(claims, fragment, EARLY, early, bad)


def test_the_claim_about_the_exact_curve_can_fail(check_broken, early):
    bad = WHITE.assign(sharpness=WHITE["sharpness"].where(WHITE["share"] > 0.1, 3.0))
    claims = partial(eos_early.claims, EARLY)
    check_broken(claims, "On white inputs", early, WHITE, bad)


class Called(Exception):
    """Descent was called."""


@pytest.mark.parametrize(
    ("module", "experiment", "config"),
    [
        (eos_life, eos_life.LIFE, LIFE),
        (eos_flow, eos_flow.FLOW_ENDS, FLOW),
        (eos_early, eos_early.EARLY, EARLY),
    ],
    ids=["life", "flow", "early"],
)
def test_each_unit_trains_on_its_data_set_at_its_share_of_the_critical_rate_there(
    module, experiment, config, monkeypatch
):
    def descent(problem, _, rate, *rest, **options):
        raise Called(problem, float(np.unique(rate)[0]))

    monkeypatch.setattr(module, "gradient_descent", descent)
    for unit in experiment.units(config):
        seed = unit.coordinates["data_seed"]
        with pytest.raises(Called) as caught:
            experiment.run_unit(config, unit)
        problem, rate = caught.value.args
        assert problem is Setting(data_seed=seed).data.problem
        share = unit.coordinates.get("factor", eos_early.FACTOR)
        critical = critical_learning_rate(problem, config.setting.depth)
        assert rate == pytest.approx(share * critical, rel=1e-12)


def test_one_white_data_set_stands_for_all():
    inputs, outputs = Setting(data_seed=10).data.problem.require_data("the test")
    root = np.linalg.cholesky(inputs.T @ inputs / len(inputs))
    white = Problem.from_data(np.linalg.solve(root, inputs.T).T, 3 * np.asarray(outputs))
    np.testing.assert_allclose(white.covariance, np.eye(5), atol=1e-12)
    config = eos_white.White(depth=2)
    for share in config.shares:
        other, mine = (eos_white.run_cell(config, share, problem) for problem in (white, None))
        # the sharpness is known to 1e-8; the curves themselves are far apart
        ratios = (curve["sharpness"] / curve["exact"] for curve in (other, mine))
        np.testing.assert_allclose(*ratios, rtol=1e-6)
        assert other["sharpness"].max() / mine["sharpness"].max() != pytest.approx(1, rel=0.1)
