"""A damaged manifest or journal stops nobody: the finished units speak for themselves."""

import json
import shutil

import pandas as pd
import pytest
from toy_experiment import TOY, Toy

from deeplin import sweep
from deeplin.errors import InputError
from deeplin.sweep.store import Store


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished sweep of four units, and its table."""
    outcome = sweep.run(TOY, Toy(), tmp_path_factory.mktemp("finished"))
    return outcome.store, outcome.table()


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of it to damage."""
    shutil.copytree(finished[0].folder, tmp_path / "sweep")
    return Store(tmp_path / "sweep")


def resume(store, table):
    """Go on with a finished sweep: nothing is computed, nothing is lost."""
    outcome = sweep.run(TOY, Toy(), store.folder)
    assert (outcome.reused, outcome.computed) == (4, 0)
    pd.testing.assert_frame_equal(outcome.table(), table, check_exact=True)
    assert sweep.status(store.folder).complete
    return outcome


def damages(payload, count):
    """About `count` damaged versions of a file: cut, a bit flipped, a byte that is no text."""
    for position in range(0, len(payload), max(1, 3 * len(payload) // count)):
        before, byte, after = payload[:position], payload[position], payload[position + 1 :]
        yield before
        yield before + bytes([byte ^ 1]) + after
        yield before + b"\xff" + after


def test_no_damage_to_the_manifest_stops_a_resume(finished, copy):
    payload = copy.manifest_path.read_bytes()
    for damaged in damages(payload, 60):
        shutil.rmtree(copy.sessions)
        copy.manifest_path.write_bytes(damaged)
        found = resume(copy, finished[1]).damaged
        # Only where white space was hit does the manifest still say the same.
        assert found == ["_manifest.json"] or json.loads(damaged) == json.loads(payload)


def test_no_damage_to_a_journal_stops_a_resume(finished, copy):
    (journal,) = copy.sessions.iterdir()
    for damaged in damages(journal.read_bytes(), 60):
        shutil.rmtree(copy.sessions)
        copy.sessions.mkdir()
        journal.write_bytes(damaged)
        assert resume(copy, finished[1]).damaged == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"format": 1, "exper',
        "[" * 100_000,
        '{"format": 1, "experiment": "toy", "schema": 1, "dtype": "float64", "config": {}, '
        '"units": [["a"]]}',
        '{"format": 1, "experiment": "toy", "schema": 1, "dtype": "float64", "config": [], '
        '"units": []}',
    ],
)
def test_what_is_no_manifest_is_made_again(finished, copy, text):
    copy.manifest_path.write_text(text)
    for look in (sweep.read_table, sweep.status):
        with pytest.raises(InputError, match=r"damaged.*command of the sweep makes it again"):
            look(copy.folder)
    assert resume(copy, finished[1]).damaged == ["_manifest.json"]


def test_a_manifest_without_its_checksum_is_made_again_and_loses_nothing(finished, copy):
    manifest = json.loads(copy.manifest_path.read_text())
    del manifest["seal"]
    copy.manifest_path.write_text(json.dumps(manifest))
    assert resume(copy, finished[1]).damaged == ["_manifest.json"]


@pytest.mark.parametrize(
    "line",
    [
        '{"unit": "abc", "outc',
        '{"unit": "abc", "outcome": "eaten", "seconds": 1.0}',
        '{"unit": "abc", "outcome": ["finished"], "seconds": 1.0}',
        '{"unit": "abc", "outcome": "finished", "seconds": "long"}',
        '{"unit": "abc", "outcome": "finished", "seconds": NaN}',
        '{"unit": "abc", "outcome": "finished"}',
        '{"unit": 5, "outcome": "finished", "seconds": 1.0}',
        "[1, 2]",
        "7",
        "[" * 100_000,
        '{"finished": "x", "unit_seconds": "y", "session": 5}',  # a header, which counts nothing
    ],
)
def test_a_line_that_makes_no_sense_is_left_out_of_the_journal(finished, copy, line):
    (journal,) = copy.sessions.iterdir()
    with journal.open("a") as lines:
        lines.write(line + "\n")
    assert sum("outcome" in entry for entry in copy.journal()) == 4
    seconds = sum(entry["seconds"] for entry in copy.journal() if "outcome" in entry)
    resume(copy, finished[1])
    assert sweep.status(copy.folder).unit_seconds == seconds > 0


def test_a_folder_in_place_of_a_journal_is_left_alone(finished, copy):
    (copy.sessions / "notes.jsonl").mkdir()
    assert resume(copy, finished[1]).reused == 4
    assert (copy.sessions / "notes.jsonl").is_dir()


@pytest.mark.parametrize("payload", [b"{", b"\xff\xfe", b"[]", b"", b'{"unit": ["a"]}'])
def test_a_damaged_record_of_a_failure_is_reported_and_the_unit_tried_again(copy, payload):
    lost = sorted(copy.units.iterdir())[0]
    name = lost.name.partition(".")[0]
    lost.unlink()
    (copy.failed / f"{name}.json").write_bytes(payload)
    (failure,) = sweep.status(copy.folder).failures
    assert (failure["unit"], failure["error"]) == (name, "the record of its failure is damaged")
    outcome = sweep.run(TOY, Toy(), copy.folder)
    assert (outcome.reused, outcome.computed) == (3, 1)
    assert sweep.status(copy.folder).healthy
