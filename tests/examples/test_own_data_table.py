"""The table of docs/own-data.md is what its script computes."""

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.training.measured_rate import SETTLED

SCRIPT = Path(__file__).parents[2] / "examples" / "own_data_table.py"


@pytest.fixture(scope="module")
def script():
    specification = importlib.util.spec_from_file_location("own_data_table", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(script):
    table = script.PAGE.read_text().split(script.BEGIN)[1].split(script.END)[0]
    lines = [line.strip("| ").split(" | ") for line in table.strip().splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def _settled(script, problem, depth, factor, shrink=1.0):
    nets = script.gaussian_starts(problem, depth)(jax.random.split(jax.random.key(0), script.SEEDS))
    nets = jax.tree.map(lambda leaf: shrink * leaf, nets)
    rate = factor * dl.theory.critical_learning_rate(problem, depth)
    run = dl.gradient_descent(problem, nets, rate, steps=5000)
    gap = run.evidence["gap"]
    return int(np.sum(gap <= SETTLED * (problem.target_moment - problem.minimal_risk)))


def test_every_prediction_in_the_table_is_current(script, rows):
    problems = script.problems()
    assert [row["data"] for row in rows] == [n for n in problems for _ in script.DEPTHS]
    for row in rows:
        problem = problems[row["data"]]
        rate = dl.theory.critical_learning_rate(problem, int(row["depth"]))
        assert row["predicted 2/S_min"] == f"{rate:.4g}"
        assert row["Λ/λ"] == f"{problem.condition_number:.3g}"


@pytest.mark.parametrize(("name", "depth"), [("houses (synthetic)", 2), ("digits", 2)])
def test_the_counts_in_the_table_are_reproduced(script, rows, name, depth):
    problem = script.problems()[name]
    row = next(row for row in rows if row["data"] == name and row["depth"] == str(depth))
    for factor in (0.9, 1.1):
        count = _settled(script, problem, depth, factor)
        assert row[f"settled at {factor}"] == f"{count} of {script.SEEDS}"


def test_starts_of_half_the_size_all_settle_on_digits(script):
    assert _settled(script, script.problems()["digits"], 2, 0.9, shrink=0.5) == script.SEEDS


def test_the_row_of_the_script_is_the_row_of_the_table(script, rows):
    row = script.row("houses (synthetic)", script.problems()["houses (synthetic)"], 2, steps=4000)
    kept = rows[list(script.problems()).index("houses (synthetic)") * len(script.DEPTHS)]
    assert {name: row[name] for name in ("settled at 0.9", "settled at 1.1")} == {
        name: kept[name] for name in ("settled at 0.9", "settled at 1.1")
    }
    assert float(row["measured / predicted"]) == pytest.approx(
        float(kept["measured / predicted"]), abs=0.05
    )
    assert script.markdown([row]).splitlines()[0].startswith("| data | n | d |")
