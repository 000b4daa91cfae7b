"""A short, deterministic part of `make fuzz`: no traceback, and no false alarm."""

import warnings

import calls
import numpy as np
import pytest
import runs
import tables
import true_runs
from answers import complaint


def test_damaged_tables_are_read_or_answered_with_a_sentence(tmp_path):
    found = [
        (number, what)
        for number in range(300)
        if (what := tables.check_reading(np.random.default_rng([0, 4, number]), tmp_path))
    ]
    assert found == []


@pytest.mark.extended
@pytest.mark.parametrize(
    ("part", "module", "count"), [(0, tables, 120), (1, runs, 40), (2, calls, 150)]
)
def test_damaged_inputs_are_answered_with_sentences(tmp_path, part, module, count):
    found = [
        (number, what)
        for number in range(count)
        if (what := module.check(np.random.default_rng([0, part, number]), tmp_path))
    ]
    assert found == []


OFTEN = (
    "FM-grad FM-L8 FM-L1 FM-L2 FM-T3 FM-L7 FM-A2 FM-crit FM-sharp FM-T1 FM-T2 FM-T4 FM-C3 Talk-res "
    "X-1 X-2 X-4 X-7 X-20 X-27 X-28 X-35 BO-L4.5 BO-L5.4"
)
"""Statements whose hypotheses some of the sixty runs meet."""


@pytest.mark.extended
def test_no_theorem_is_violated_by_sixty_true_runs():
    """Over cond(X) up to 1e6, 2 to 200 layers, n < d, one input, settled, cut off and diverged."""
    found, held = [], set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # unstable rates are wanted here
        for number in range(60):
            table = true_runs.certified(np.random.default_rng([0, 3, number]))
            if what := true_runs.complaint(table):
                found.append((number, what))
            held |= set(table.loc[table["verdict"] == "holds", "id"])
    assert found == []
    assert set(OFTEN.split()) <= held


@pytest.mark.extended
@pytest.mark.parametrize("number", [267, 1033, 1822, 1895])
def test_runs_that_were_called_violated_are_not(number):
    """Squares that underflow, losses and conserved differences close to the error of the solver."""
    assert true_runs.check(np.random.default_rng([4141, 3, number])) is None


def test_the_fuzz_can_fail(tmp_path, monkeypatch):
    (tmp_path / "table.csv").write_text("x,y\n1,2\n2,3\n3,5\n")
    command = ["diagnose", tmp_path / "table.csv", "--target", "y"]
    assert complaint(command) is None

    def broken(*_, **__):
        raise KeyError("lost")

    monkeypatch.setattr("deeplin.tables.reading.open_table", broken)
    assert "KeyError at tables/reading.py" in complaint(command)
    monkeypatch.setattr("deeplin.tables.reading.open_table", lambda *_: print("nan") or exit(0))
    assert "nan in an answer" in complaint(command)
