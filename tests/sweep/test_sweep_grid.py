"""`sweep.grid`: a function of one's own over a grid, against a plain loop."""

import subprocess
import sys
from functools import partial
from itertools import product

import jax
import numpy as np
import pandas as pd
import pytest
from toy_experiment import draw_around, key_bits, squares

from deeplin import sweep
from deeplin.errors import InputError
from deeplin.sweep._grid import _rows

VALUES = {"center": [0.0, 10.0], "spread": np.array([1.0, 2.0, 4.0])}


def plain_loop(repetitions, seed=0):
    """The table by the definition: a call for each combination and repetition."""
    rows = []
    for center, spread, repetition in product(
        VALUES["center"], VALUES["spread"].tolist(), range(repetitions)
    ):
        run = {"center": center, "spread": spread, "repetition": repetition}
        rng = np.random.default_rng(sweep.coordinate_words(seed, **run))
        rows.append(run | draw_around(center, spread, rng))
    return pd.DataFrame(rows)


def test_the_table_is_that_of_a_plain_loop(tmp_path):
    outcome = sweep.grid(draw_around, VALUES, tmp_path, workers=1, repetitions=2, seed=3)
    assert (outcome.computed, outcome.complete) == (12, True)
    pd.testing.assert_frame_equal(outcome.table(), plain_loop(2, seed=3), check_exact=True)


def test_fewer_repetitions_or_values_than_the_folder_holds_give_the_table_of_the_call(tmp_path):
    sweep.grid(draw_around, VALUES, tmp_path, workers=1, repetitions=3)
    outcome = sweep.grid(draw_around, VALUES, tmp_path, workers=1, repetitions=2)
    assert (outcome.reused, outcome.computed) == (12, 0)
    pd.testing.assert_frame_equal(outcome.table(), plain_loop(2), check_exact=True)
    other = sweep.grid(draw_around, {"center": [0.0, 5.0], "spread": [1.0]}, tmp_path, workers=1)
    assert (other.reused, other.computed, len(other.table())) == (1, 1, 2)
    assert len(pd.read_parquet(tmp_path)) == 19  # nothing that was finished is lost
    again = sweep.grid(draw_around, VALUES, tmp_path, workers=1, repetitions=3)
    assert (again.reused, again.computed) == (18, 0)
    pd.testing.assert_frame_equal(again.table(), plain_loop(3), check_exact=True)


def test_a_function_may_return_a_number_or_several_rows(tmp_path):
    table = sweep.grid(squares, {"up_to": [1, 3]}, tmp_path / "rows", workers=1).table()
    assert table["up_to"].tolist() == [1, 3, 3, 3]
    assert table["square"].tolist() == [0, 0, 1, 4]
    values = {"center": [0.5, 1]}
    outcome = sweep.grid(key_bits, values, tmp_path / "number", repetitions=2, workers=1)
    expected = [
        int(jax.random.key_data(sweep.run_key(0, center=center, repetition=r))[1])
        for center in (0.5, 1.0)
        for r in (0, 1)
    ]
    assert outcome.table()["value"].tolist() == expected
    assert len(set(expected)) == 4


SCRIPT = """
from deeplin import sweep

offset = 1

class Doubler:
    def __call__(self, x):
        return 2 * x

double = Doubler()

def twice(x, repetition):
    return {"twice": double(x) + repetition + offset}

outcome = sweep.grid(twice, {"x": [1, 2]}, "results", repetitions=2, workers=2)
print(outcome.reused, outcome.computed, outcome.table()["twice"].tolist())
"""


@pytest.mark.extended
def test_a_script_with_worker_processes_goes_on_when_called_again(tmp_path):
    """Without a guard: workers do not run the script, they receive its function."""
    (tmp_path / "mine.py").write_text(SCRIPT)
    for expected in ("0 4 [3, 4, 5, 6]", "4 0 [3, 4, 5, 6]"):
        answer = subprocess.run(
            [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True
        )
        assert answer.stdout.strip() == expected, answer.stderr


@pytest.mark.parametrize(
    ("function", "values", "sentence"),
    [
        (squares, {}, "pass lists of values by argument"),
        (squares, [1, 2], "pass lists of values by argument"),
        (squares, {"up_to": 3}, "values of up_to are 3; pass a list"),
        (squares, {"up_to": "abc"}, "pass a list"),
        (squares, {"up_to": []}, "pass at least one"),
        (squares, {"up_to": [1, 1.0]}, "each once"),
        (squares, {"up_to": [(1, 2)]}, "pass numbers or strings"),
        (squares, {"up_to": [float("nan")]}, "finite number"),
        (squares, {"colour": [1]}, r"squares\(up_to.*cannot be called with colour"),
        (draw_around, {"center": [1.0]}, "missing a required argument: 'spread'"),
        (draw_around, {"center": [1.0], "spread": [1.0], "rng": [1]}, "every run gets of its own"),
        (lambda center: center, {"center": [1.0]}, "defined by `def`"),
        (partial(squares), {"up_to": [1]}, "defined by `def`"),
        (None, {"up_to": [1]}, "defined by `def`"),
    ],
)
def test_what_cannot_be_swept_is_an_input_error_before_anything_is_computed(
    tmp_path, function, values, sentence
):
    with pytest.raises(InputError, match=sentence):
        sweep.grid(function, values, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_a_function_without_a_source_file_is_compared_by_its_bytecode(tmp_path):
    def typed(expression):
        space = {"__name__": "prompt", "factor": 2}
        exec(f"def double(x):\n    return {expression}\n", space)
        return sweep.grid(space["double"], {"x": [1, 2]}, tmp_path, workers=1)

    assert typed("factor * x").table()["value"].tolist() == [2, 4]
    assert typed("factor  *  x").reused == 2
    with pytest.raises(InputError, match="another double; pass another folder"):
        typed("factor + x")


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        ({"up_to": 1}, "returns up_to, which it was called with"),
        (np.zeros((2, 2)), "several axes"),
        ({"a": [1, 2], "b": [1, 2, 3]}, r"lengths \[2, 3\]"),
    ],
)
def test_what_is_no_table_is_refused(returned, sentence):
    with pytest.raises(InputError, match=sentence):
        _rows({"up_to": 1}, returned)
