"""The built-in experiment against plain loops in NumPy and dense Hessians."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from deeplin import initialize, sweep
from deeplin.errors import InputError
from deeplin.problems import synthetic
from deeplin.sweep.descent import (
    DESCENT,
    DescentSweep,
    SyntheticData,
    TableData,
    load,
    run_unit,
    units,
)

DATA = SyntheticData(samples=20, dimension=5)  # as in other tests: one kernel for all
CONFIG = DescentSweep(
    scales=(0.5, 0.8),
    learning_rates=(0.05,),
    depths=(2,),
    repetitions=2,
    steps=40,
    data=DATA,
    runs_per_unit=4,
)


def train_plainly(weights, problem, rate, steps):
    """Two-layer descent in NumPy, one network, from the definition of the risk on the data."""
    first, last = (np.array(weight) for weight in weights)
    X, y = problem.inputs, problem.targets[:, 0]
    for _ in range(steps):
        residual = X @ (last @ first)[0] - y
        g = 2 / len(y) * X.T @ residual
        first, last = first - rate * np.outer(last[0], g), last - rate * (first @ g)[None]
    return first, last


def hessian_oracle(weights, problem):
    """Largest eigenvalue of the full Hessian, by automatic differentiation of the risk."""
    sizes = [weight.size for weight in weights]

    def risk(flat):
        first, last = flat[: sizes[0]].reshape(5, 5), flat[sizes[0] :].reshape(1, 5)
        return ((problem.inputs @ (last @ first)[0] - problem.targets[:, 0]) ** 2).mean()

    flat = np.concatenate([weight.ravel() for weight in weights])
    return np.linalg.eigvalsh(jax.jit(jax.hessian(risk))(flat))[-1]


def test_rows_are_those_of_a_plain_loop_over_the_runs():
    problem = synthetic.flat_minima(0, samples=20, dimension=5).problem
    (unit,) = units(CONFIG)
    rows = run_unit(CONFIG, unit)
    assert list(zip(rows["scale"], rows["repetition"], strict=True)) == [
        (0.5, 0),
        (0.5, 1),
        (0.8, 0),
        (0.8, 1),
    ]
    for row in rows.itertuples():
        key = sweep.run_key(0, depth=2, scale=row.scale, repetition=row.repetition)
        start = initialize.gaussian(key, widths=(5, 5, 1), scale=row.scale).weights
        first, last = train_plainly(start, problem, 0.05, 40)
        w = (last @ first)[0]
        risk = np.mean((problem.inputs @ w - problem.targets[:, 0]) ** 2)
        np.testing.assert_allclose(row.risk, risk, rtol=1e-12)
        np.testing.assert_allclose(row.distance, np.sum((w - problem.optimum) ** 2), rtol=1e-9)
        np.testing.assert_allclose(row.initial_sharpness, hessian_oracle(start, problem), rtol=1e-9)
        final = hessian_oracle((first, last), problem)
        assert abs(row.sharpness - final) <= max(row.sharpness_error, 1e-12 * abs(final))


def test_the_same_networks_start_at_every_learning_rate_and_in_every_grid():
    wider = replace(CONFIG, scales=(0.8, 0.3), learning_rates=(0.05, 0.2), steps=1)
    tables = [run_unit(wider, unit) for unit in units(wider)]
    np.testing.assert_array_equal(tables[0]["initial_sharpness"], tables[1]["initial_sharpness"])
    (unit,) = units(CONFIG)
    both = run_unit(CONFIG, unit).merge(tables[0], on=["scale", "repetition"])
    assert len(both) == 2
    np.testing.assert_allclose(both["initial_sharpness_x"], both["initial_sharpness_y"], rtol=1e-12)


@pytest.mark.parametrize(
    ("fields", "meaningful"),
    [({"network": "residual"}, True), ({"activation": "gelu", "width": 12}, False)],
)
def test_other_networks_are_swept_too(fields, meaningful):
    config = replace(CONFIG, scales=(0.4, 0.6), **fields)
    (unit,) = units(config)
    rows = run_unit(config, unit)
    assert np.isfinite(rows["distance"]).all() == meaningful
    assert np.isfinite(rows[["risk", "sharpness"]].to_numpy()).all()


def test_units_are_bucketed_by_shape_and_bounded_in_size():
    config = DescentSweep(
        scales=(0.1, 0.2, 0.3),
        learning_rates=(1.0, 2.0),
        depths=(2, 3),
        repetitions=4,
        runs_per_unit=5,
    )
    made = units(config)
    assert sum(unit.runs for unit in made) == 3 * 2 * 2 * 4
    assert max(unit.runs for unit in made) == 5
    assert {unit.bucket for unit in made} == {
        "depth 2, 5 runs",
        "depth 2, 2 runs",
        "depth 3, 5 runs",
        "depth 3, 2 runs",
    }
    assert sum(unit.steps for unit in made) == config.steps * 48


def test_a_sweep_may_grow_in_learning_rates_and_depths():
    grown = replace(CONFIG, learning_rates=(0.05, 0.1), depths=(2, 4))
    old = DESCENT.identify(CONFIG, units(CONFIG), "float64")
    new = DESCENT.identify(grown, units(grown), "float64")
    assert old.keys() < new.keys()


def test_a_table_that_changed_under_way_is_noticed(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("a,y\n1,2\n2,3.5\n3,6\n")
    data = TableData(str(path), "y")
    config = DescentSweep(scales=(0.5,), learning_rates=(0.01,), depths=(2,), data=data)
    (unit,) = units(config)
    assert load(data, unit.coordinates["data"]).samples == 3
    load.cache_clear()
    path.write_text("a,y\n1,2\n2,3.5\n3,7\n")
    with pytest.raises(InputError, match="not the table with which this sweep began"):
        run_unit(config, unit)
    assert units(config)[0].coordinates["data"] != unit.coordinates["data"]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"scales": ()}, "pass at least one"),
        ({"scales": (0.1, 0.1)}, "each once"),
        ({"scales": (0.0,)}, "above 0"),
        ({"depths": (0,)}, "whole number of at least 1"),
        ({"repetitions": 0}, "whole number of at least 1"),
        ({"network": "residual", "width": 3}, "as wide as its inputs"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        DescentSweep(**{"scales": (0.1,), "learning_rates": (0.1,), **fields})


def test_a_residual_scale_may_be_zero():
    config = DescentSweep(scales=(0.0,), learning_rates=(0.1,), network="residual")
    assert len(DESCENT.units(config)) == 1
