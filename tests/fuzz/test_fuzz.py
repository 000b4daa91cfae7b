"""A short, deterministic part of `make fuzz`: damaged inputs and no traceback."""

import calls
import numpy as np
import pytest
import runs
import tables
from answers import complaint


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
