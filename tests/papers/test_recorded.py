"""Recorded verdicts: a change is noticed, a known failure is not."""

import csv
import json
import sys
from pathlib import Path

import pytest

from deeplin.papers import recorded
from deeplin.papers.catalogue import FIGURES, PRESETS
from deeplin.papers.errata import ENTRIES

ROOT = Path(__file__).parents[2]


def test_a_change_is_found_whatever_its_direction():
    known = {"a/x": "holds", "a/y": "fails"}
    assert recorded.changes({"a/x": "holds", "a/y": "fails"}, known) == []
    assert recorded.changes({"a/y": "holds"}, known) == [("a/y", "fails", "holds")]
    assert recorded.changes({"a/z": "holds"}, known) == [("a/z", "not recorded", "holds")]


def test_the_tally_counts_every_verdict():
    found = ["holds"] * 3 + ["holds in part"] * 2 + ["fails"]
    assert recorded.tally(found) == "3 of 6 claims hold, 2 in part, 1 fails"
    assert recorded.tally(["holds"]) == "1 of 1 claims hold"


def test_a_chaotic_claim_has_every_verdict_that_was_seen(tmp_path):
    recorded.record("quick", {"a/x": "holds", "a/y": "fails"}, tmp_path)
    recorded.record("quick", {"a/x": "fails"}, tmp_path, also=True)
    recorded.record("quick", {"a/x": "holds in part", "a/y": "fails"}, tmp_path, also=True)
    known = json.loads((tmp_path / "quick.json").read_text())
    assert known == {"a/x": "fails or holds in part or holds", "a/y": "fails"}
    assert recorded.changes({"a/x": "holds", "a/y": "fails"}, known) == []
    assert recorded.changes({"a/y": "holds"}, known) == [("a/y", "fails", "holds")]
    assert recorded.tally(known.values()) == "0 of 2 claims hold, 2 fail"


def test_recording_keeps_what_was_not_judged(tmp_path):
    recorded.record("quick", {"a/x": "holds"}, tmp_path)
    recorded.record("quick", {"a/y": "fails"}, tmp_path)
    assert json.loads((tmp_path / "quick.json").read_text()) == {"a/x": "holds", "a/y": "fails"}


@pytest.mark.parametrize("preset", PRESETS)
def test_the_recorded_claims_are_about_panels_that_exist(preset):
    panels = {panel.name for figure in FIGURES for panel in figure.panels}
    known = recorded.read(preset)
    assert {claim.split("/")[0] for claim in known} <= panels
    verdicts = {verdict for found in known.values() for verdict in found.split(recorded.OR)}
    assert verdicts <= {"holds", "holds in part", "fails"}


def test_times_of_studies_are_kept(tmp_path):
    outcomes = [{"data": [{"study": "a", "seconds": 1.234}, {"study": "b", "seconds": 98.7}]}]
    recorded.record_seconds("paper", [{"data": [{"study": "a", "seconds": 7.0}]}], tmp_path)
    recorded.record_seconds("quick", outcomes, tmp_path)
    kept = json.loads((tmp_path / "seconds.json").read_text())
    assert kept == {"paper": {"a": 7.0}, "quick": {"a": 1.2, "b": 99.0}}
    studies = {study.name for figure in FIGURES for study in figure.studies}
    assert all(set(recorded.seconds(preset)) <= studies for preset in PRESETS)


def test_explanations_have_ids_of_their_own():
    ids = [erratum.identifier for erratum in ENTRIES]
    assert not set(ids) & set(recorded.EXPLANATIONS)
    assert all(len(text) > 40 for text in recorded.EXPLANATIONS.values())


def test_the_readme_has_the_recorded_counts():
    """Made by `python docs/record.py report`."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import record
    finally:
        sys.path.pop(0)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.split(record.START)[1].split(record.END)[0] == record.table()


def test_every_kept_failure_is_understood():
    known = {erratum.identifier for erratum in ENTRIES} | set(recorded.EXPLANATIONS)
    with (ROOT / "docs" / "reproduction" / "claims.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 50
    for row in rows:
        assert row["verdict"] == "holds" or row["known"] in known, row["name"]
