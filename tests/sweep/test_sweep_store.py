"""The folder of a sweep: whole files or none, nothing trusted that was not written here."""

import errno
import io
import json
import os
import resource
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow.parquet as pq
import pytest
from toy_experiment import TOY, Toy, computed, run_unit, squares, units

from deeplin import files, sweep
from deeplin.errors import InputError
from deeplin.sweep.executors import to_arrow, to_parquet

HERE = Path(__file__).parent


@pytest.fixture
def expected():
    """The table, computed without the engine."""
    return pd.concat([run_unit(Toy(), unit) for unit in units(Toy())], ignore_index=True)


def test_the_table_is_what_the_units_computed(tmp_path, expected):
    outcome = sweep.run(TOY, Toy(), tmp_path / "new" / "folder")
    assert (outcome.computed, outcome.reused, outcome.complete) == (4, 0, True)
    pd.testing.assert_frame_equal(outcome.table(), expected, check_exact=True)


def test_pandas_polars_and_duckdb_read_the_folder_directly(tmp_path, expected):
    sweep.run(TOY, Toy(), tmp_path)
    tables = [
        pd.read_parquet(tmp_path),
        pd.read_parquet(tmp_path / "units"),
        polars.read_parquet(tmp_path / "units").to_pandas(),
        duckdb.read_parquet(f"{tmp_path}/**/*.parquet").df(),
    ]
    for table in tables:
        table = table.sort_values("run", ignore_index=True)
        np.testing.assert_array_equal(table["draw"], expected["draw"])
        np.testing.assert_array_equal(table["status"], expected["status"])
    # NaN stays a value and does not become missing.
    nans = duckdb.read_parquet(f"{tmp_path}/units/*.parquet").filter("isnan(risk)")
    assert expected["risk"].isna().sum() == len(nans) > 0


def written(store):
    """Which files there are, and when each was last written or renamed."""
    found = {path.name: path.stat() for path in store.units.iterdir()}
    return {name: (s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for name, s in found.items()}


def test_a_finished_unit_is_neither_computed_nor_written_again(tmp_path):
    config = Toy(log=str(tmp_path / "log"))
    first = sweep.run(TOY, config, tmp_path / "sweep")
    before = written(first.store)
    second = sweep.run(TOY, config, tmp_path / "sweep")
    assert (second.computed, second.reused) == (0, 4)
    assert written(first.store) == before
    assert len(computed(config.log)) == 4


def test_a_folder_holds_one_sweep(tmp_path):
    sweep.run(TOY, Toy(), tmp_path)
    with pytest.raises(InputError, match=r"another config \(different: seed\).*another folder"):
        sweep.run(TOY, Toy(seed=1), tmp_path)
    with pytest.raises(InputError, match="different: count"):
        sweep.run(TOY, Toy(count=6), tmp_path)
    with pytest.raises(InputError, match="config is a dict"):
        sweep.run(TOY, {}, tmp_path)
    assert len(sweep.read_table(tmp_path)) == 12


def test_manifest_and_journal_say_where_the_results_come_from(tmp_path):
    sweep.run(TOY, Toy(seed=5), tmp_path)
    manifest = json.loads((tmp_path / "_manifest.json").read_text())
    assert sweep.from_json(Toy, json.dumps(manifest["config"])) == Toy(seed=5)
    assert (manifest["experiment"], manifest["seed"], manifest["dtype"]) == ("toy", 5, "float64")
    session, *units = sweep.Store(tmp_path).journal()
    assert session["versions"]["numpy"] == np.__version__
    assert session["machine"]["name"] == os.uname().nodename
    assert sorted(line["unit"] for line in units) == sorted(manifest["units"])
    assert {line["outcome"] for line in units} == {"finished"}
    assert sweep.status(tmp_path).unit_seconds == sum(line["seconds"] for line in units) > 0
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True)
    if (HERE.parents[1] / ".git").exists() and not head.returncode:  # git trusts the checkout
        assert session["commit"].removesuffix("-dirty") == head.stdout.strip()


def flipped(payload, position):
    return payload[:position] + bytes([payload[position] ^ 1]) + payload[position + 1 :]


DAMAGES = {
    "truncated": lambda payload: payload[: len(payload) // 2],
    "empty": lambda payload: b"",
    # Every position must be noticed: take one in the data and one in the file's footer.
    "flipped data": lambda payload: flipped(payload, 20),
    "flipped footer": lambda payload: flipped(payload, -60),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_noticed_and_computed_again(tmp_path, expected, kind):
    config = Toy(log=str(tmp_path / "log"))
    store = sweep.run(TOY, config, tmp_path / "sweep").store
    damaged = sorted(store.units.iterdir())[1]
    damaged.write_bytes(DAMAGES[kind](damaged.read_bytes()))
    assert not sweep.status(store.folder).healthy
    assert len(store.table()) == 9
    outcome = sweep.run(TOY, config, tmp_path / "sweep")
    assert outcome.damaged == [damaged.name]
    assert outcome.computed == 1
    assert len(computed(config.log)) == 5
    pd.testing.assert_frame_equal(outcome.table(), expected, check_exact=True)
    assert sweep.status(store.folder).healthy


def test_foreign_files_are_left_alone_and_never_read(tmp_path, expected):
    store = sweep.run(TOY, Toy(), tmp_path / "sweep").store
    other = sweep.run(TOY, Toy(seed=9), tmp_path / "other").store
    foreign = next(other.units.iterdir())
    (store.units / foreign.name).write_bytes(foreign.read_bytes())
    (store.units / "notes.txt").write_text("mine")
    (store.units / "folder").mkdir()
    outcome = sweep.run(TOY, Toy(), tmp_path / "sweep")
    assert (outcome.reused, outcome.computed, outcome.damaged) == (4, 0, [])
    pd.testing.assert_frame_equal(store.table(), expected, check_exact=True)
    assert sweep.status(store.folder).healthy
    assert len(list(store.units.iterdir())) == 7


def test_a_unit_cannot_pass_for_another_one(tmp_path):
    store = sweep.run(TOY, Toy(), tmp_path).store
    first, second = sorted(store.units.iterdir())[:2]
    taken = second.name.partition(".")[0]
    second.unlink()
    first.rename(store.units / f"{taken}.{first.name.partition('.')[2]}")
    assert len(store.inventory(store.manifest["units"])[0]) == 2


def test_folders_merge_by_copying(tmp_path, expected):
    stores = [
        sweep.run(TOY, Toy(), tmp_path / str(k), shard=sweep.Shard(k, 2)).store for k in (1, 2)
    ]
    for path in stores[1].units.iterdir():
        (stores[0].units / path.name).write_bytes(path.read_bytes())
    pd.testing.assert_frame_equal(stores[0].table(), expected, check_exact=True)
    assert sweep.status(stores[0].folder).complete
    # The same unit has the same bytes, and so the same name, wherever it was computed.
    stores.append(sweep.run(TOY, Toy(), tmp_path / "whole").store)
    merged, _, whole = ({path.name for path in store.units.iterdir()} for store in stores)
    assert merged == whole


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


def test_a_full_disk_stops_with_a_clear_error_and_loses_nothing(tmp_path, expected, monkeypatch):
    config = Toy(log=str(tmp_path / "log"))
    monkeypatch.setattr(files, "open", FullDisk(room=2), raising=False)
    with pytest.raises(sweep.StoreError, match=r"No space left on device.*2 finished unit"):
        sweep.run(TOY, config, tmp_path / "sweep")
    monkeypatch.undo()
    left = list((tmp_path / "sweep").rglob("*.parquet"))
    assert len(left) == 2
    assert len(sweep.read_table(tmp_path / "sweep")) == 6
    outcome = sweep.run(TOY, config, tmp_path / "sweep")
    assert (outcome.reused, outcome.computed, outcome.damaged) == (2, 2, [])
    pd.testing.assert_frame_equal(outcome.table(), expected, check_exact=True)


@contextmanager
def small_files_only():
    """This process may not write files beyond a size its table does not fit in.

    Not a fixture: the log that pytest writes its own lines to may be larger.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_the_system_refuses_leaves_no_file_behind(tmp_path):
    refusal = pytest.raises(sweep.StoreError, match=r"File too large.*0 finished unit")
    with refusal, small_files_only():
        sweep.run(TOY, Toy(count=3_001, per_unit=3_000), tmp_path)
    assert list(tmp_path.rglob("*.parquet")) == []
    assert list((tmp_path / "_temporary").rglob("*")) == []


@pytest.mark.parametrize("where", ["below a file", "not ours"])
def test_a_folder_that_cannot_be_written_is_an_input_error(tmp_path, where):
    (tmp_path / "file").write_text("")
    folder = {"below a file": tmp_path / "file" / "sweep", "not ours": Path("/proc/sweep")}[where]
    with pytest.raises(InputError, match="pass a folder you may write in"):
        sweep.run(TOY, Toy(), folder)


def test_a_read_only_folder_can_be_read_but_not_swept_into(tmp_path, monkeypatch, expected):
    store = sweep.run(TOY, Toy(), tmp_path).store
    # The superuser may write anywhere, so the system's answer is replaced, not its permissions.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(InputError, match="is read-only"):
        sweep.run(TOY, Toy(), tmp_path)
    pd.testing.assert_frame_equal(store.table(), expected)
    assert sweep.status(tmp_path).complete


def test_a_folder_without_a_sweep_is_an_input_error(tmp_path):
    for look in (sweep.read_table, sweep.status):
        with pytest.raises(InputError, match="holds no sweep"):
            look(tmp_path)


def folder_of_version_0_2(name, tmp_path):
    """A copy of a folder that deeplin 0.2 wrote."""
    return shutil.copytree(HERE / "folders_of_version_0_2" / name, tmp_path / name)


def test_a_folder_of_version_0_2_is_resumed(tmp_path):
    folder = folder_of_version_0_2("toy", tmp_path)
    outcome = sweep.run(TOY, Toy(count=6, per_unit=2), folder)
    assert (outcome.reused, outcome.computed, outcome.damaged) == (2, 1, [])
    new = sweep.run(TOY, Toy(count=6, per_unit=2), tmp_path / "new")
    pd.testing.assert_frame_equal(outcome.table(), new.table(), check_exact=True)
    assert sweep.status(folder).sessions == 2


def test_a_function_swept_by_version_0_2_is_refused_as_it_recorded_too_little(tmp_path):
    folder = folder_of_version_0_2("grid", tmp_path)
    with pytest.raises(InputError, match=r"different: code\).*pass another folder"):
        sweep.grid(squares, {"up_to": [1, 3]}, folder)
    assert len(sweep.read_table(folder)) == 4


def test_a_manifest_of_a_newer_version_is_left_alone(tmp_path):
    store = sweep.run(TOY, Toy(), tmp_path).store
    newer = store.manifest | {"format": 99}
    store.manifest_path.write_text(json.dumps(newer))
    with pytest.raises(InputError, match=r"has format 99.*use the version that wrote it"):
        sweep.run(TOY, Toy(), tmp_path)
    assert json.loads(store.manifest_path.read_text()) == newer


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
    table = to_arrow(rows, "unit")
    assert types is None or [str(field.type) for field in table.schema] == types
    assert table.schema.metadata == {b"deeplin.unit": b"unit"}
    read = pq.read_table(io.BytesIO(to_parquet(table))).to_pandas()
    for name in ("a", "b"):
        given = pd.Series(np.asarray(rows[name]))
        pd.testing.assert_series_equal(
            read[name].astype(given.dtype), given, check_names=False, check_exact=True
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
        to_arrow(rows, "unit")
