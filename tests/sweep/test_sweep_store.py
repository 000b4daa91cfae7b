"""The folder of a sweep: whole files or none, nothing trusted that was not written here."""

import errno
import io
import json
import os
import subprocess
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow.parquet as pq
import pytest
from toy_experiment import computed, expected, squares, troubled

from deeplin import files, sweep
from deeplin.errors import InputError
from deeplin.sweep.store import IDENTITY, to_parquet

HERE = Path(__file__).parent
NUMBERS = range(4)


@pytest.fixture
def call(tmp_path):
    """Sweep in this process, into a new folder below a new one."""

    def run(numbers=NUMBERS, folder="new/sweep", **options):
        values = {"number": numbers, "home": [str(tmp_path)]}
        return sweep.grid(troubled, values, tmp_path / folder, workers=1, **options)

    return run


def test_the_table_is_what_the_units_computed(call, tmp_path):
    outcome = call()
    assert (outcome.computed, outcome.reused, outcome.complete) == (4, 0, True)
    pd.testing.assert_frame_equal(outcome.table(), expected(NUMBERS, tmp_path), check_exact=True)


def test_pandas_polars_and_duckdb_read_the_folder_directly(call, tmp_path):
    folder, rows = call().store.folder, expected(NUMBERS, tmp_path)
    tables = [
        pd.read_parquet(folder),
        polars.read_parquet(folder / "*.parquet").to_pandas(),
        duckdb.read_parquet(f"{folder}/*.parquet").df(),
    ]
    for table in tables:
        table = table.sort_values("number", kind="stable", ignore_index=True)
        np.testing.assert_array_equal(table["draw"], rows["draw"])
        np.testing.assert_array_equal(table["status"], rows["status"])
    # NaN stays a value and does not become missing.
    nans = duckdb.read_parquet(f"{folder}/*.parquet").filter("isnan(risk)")
    assert rows["risk"].isna().sum() == len(nans) > 0


def test_a_finished_unit_is_neither_computed_nor_written_again(call, tmp_path):
    def written(folder):
        return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}

    folder = call().store.folder
    before = written(folder)
    again = call(range(5))
    assert (again.computed, again.reused) == (1, 4)
    assert before.items() < written(folder).items()
    assert computed(tmp_path) == [0, 1, 2, 3, 4]
    assert again.seconds > 0


def test_the_folder_says_where_the_results_come_from(call):
    document = json.loads((call(seed=5).store.folder / IDENTITY).read_text())
    assert document["identity"]["seed"] == 5
    assert document["identity"]["precision"] == "float64"
    assert {"troubled", "computed"} <= document["identity"]["function"].keys()
    assert document["environment"]["versions"]["numpy"] == np.__version__
    assert document["environment"]["machine"]["name"] == os.uname().nodename
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True)
    if (HERE.parents[1] / ".git").exists() and not head.returncode:  # git trusts the checkout
        assert document["environment"]["commit"].removesuffix("-dirty") == head.stdout.strip()


def test_another_seed_is_another_sweep(call):
    call()
    with pytest.raises(InputError, match="with another seed; pass another folder"):
        call(seed=1)


def flipped(payload, position):
    return payload[:position] + bytes([payload[position] ^ 1]) + payload[position + 1 :]


DAMAGES = {
    "truncated": lambda payload: payload[: len(payload) // 2],
    "empty": lambda payload: b"",
    "flipped data": lambda payload: flipped(payload, 60),
    "flipped end": lambda payload: flipped(payload, -2),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_noticed_and_computed_again(call, tmp_path, kind):
    damaged = sorted(call().store.folder.glob("*.parquet"))[1]
    damaged.write_bytes(DAMAGES[kind](damaged.read_bytes()))
    outcome = call()
    assert (outcome.reused, outcome.computed) == (3, 1)
    assert len(computed(tmp_path)) == 5
    pd.testing.assert_frame_equal(outcome.table(), expected(NUMBERS, tmp_path), check_exact=True)


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_damaged_description_of_the_sweep_is_written_again(call, payload):
    """The names of the files contain what they were computed with; nothing else is trusted."""
    path = call().store.folder / IDENTITY
    whole = json.loads(path.read_text())["identity"]
    path.write_bytes(payload)
    assert call().reused == 4
    assert json.loads(path.read_text())["identity"] == whole
    path.unlink()
    assert call(seed=1).reused == 0


def test_foreign_files_are_left_alone_and_never_read(call, tmp_path):
    folder, other = call().store.folder, call(seed=9, folder="other").store.folder
    foreign = next(other.glob("*.parquet"))
    (folder / foreign.name).write_bytes(foreign.read_bytes())
    (folder / "notes.txt").write_text("mine")
    (folder / "folder").mkdir()
    outcome = call()
    assert (outcome.reused, outcome.computed) == (4, 0)
    pd.testing.assert_frame_equal(outcome.table(), expected(NUMBERS, tmp_path), check_exact=True)
    assert len(list(folder.iterdir())) == 8


def test_a_unit_cannot_pass_for_another_one(call):
    first, second = sorted(call().store.folder.glob("*.parquet"))[:2]
    second.unlink()
    first.rename(second)
    assert (call().reused, call().reused) == (2, 4)


class FullFile(io.FileIO):
    """A file on a disk that is full after the first bytes."""

    def write(self, payload) -> int:
        super().write(payload[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk:
    """Replaces `open` by that of a disk with room for `room` more tables."""

    def __init__(self, room: int):
        self.room = room

    def __call__(self, path, *options, **more):
        if ".parquet" in str(path):
            self.room -= 1
            if self.room < 0:
                return FullFile(path, "wb")
        return open(path, *options, **more)


def test_a_full_disk_stops_the_sweep_and_loses_nothing(call, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "open", FullDisk(room=2), raising=False)
    with pytest.raises(OSError, match="No space left on device"):
        call()
    monkeypatch.undo()
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    outcome = call()
    assert (outcome.reused, outcome.computed) == (2, 2)
    pd.testing.assert_frame_equal(outcome.table(), expected(NUMBERS, tmp_path), check_exact=True)


@pytest.mark.parametrize("where", ["below a file", "not ours"])
def test_a_folder_that_cannot_be_written_is_an_input_error(tmp_path, where):
    (tmp_path / "file").write_text("")
    folder = {"below a file": tmp_path / "file" / "sweep", "not ours": Path("/proc/sweep")}[where]
    with pytest.raises(InputError, match="pass a folder you may write in"):
        sweep.grid(squares, {"up_to": [1]}, folder, workers=1)


def test_a_read_only_folder_is_refused(call, monkeypatch):
    call()
    # The superuser may write anywhere, so the system's answer is replaced, not its permissions.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(InputError, match="is read-only"):
        call()


@pytest.mark.parametrize(
    ("rows", "types"),
    [
        ({"a": [1, 2], "b": np.array([0.5, np.nan])}, ["int64", "double"]),
        (pd.DataFrame({"a": ["x", None], "b": [True, False]}), ["large_string", "bool"]),
        ({"a": np.array(["x", "y"]), "b": np.float32([1, 2])}, ["string", "float"]),
        (pd.DataFrame({"a": pd.Categorical(["x", "y"]), "b": [1, 2]}, index=[7, 8]), None),
    ],
)
def test_rows_of_every_common_kind_can_be_kept(rows, types):
    table = pq.read_table(io.BytesIO(to_parquet(rows, "unit", 0.5)))
    assert types is None or [str(field.type) for field in table.schema] == types
    assert table.schema.metadata == {b"deeplin.unit": b"unit", b"deeplin.seconds": b"0.5"}
    for name in ("a", "b"):
        given = pd.Series(np.asarray(rows[name]))
        pd.testing.assert_series_equal(
            table.to_pandas()[name].astype(given.dtype), given, check_names=False, check_exact=True
        )


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ({}, "name each one once"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "name each one once"),
        ({"a": np.zeros((2, 2))}, "cannot hold"),
        ({"a": np.array([1, "x", {}], dtype=object)}, "cannot hold"),
    ],
)
def test_rows_that_make_no_table_are_refused(rows, sentence):
    with pytest.raises(InputError, match=sentence):
        to_parquet(rows, "unit", 0.0)


def of_several_types(kind):
    return {"int": 1, "float": 0.5, "text": "x"}[kind]


def test_integers_beside_fractions_become_fractions_and_text_beside_numbers_is_refused(tmp_path):
    def call(kinds):
        return sweep.grid(of_several_types, {"kind": kinds}, tmp_path, workers=1).table()

    assert call(["int", "float"])["value"].tolist() == [1.0, 0.5]
    with pytest.raises(InputError, match="return the same type from each call"):
        call(["int", "text"])
