"""What is recorded, the three summary lines, and what counts as a contradiction."""

import json

import pytest

from deeplin.papers import recorded

OUTCOMES = [
    {
        "name": "FM-1",
        "preset": "quick",
        "quotes": [
            {"name": "a", "verdict": "reproduced", "value": "1", "panel": "FM-1a"},
            {"name": "b", "verdict": "differs", "value": "2", "panel": "FM-1b"},
            {"name": "c", "verdict": "undecided", "value": "3", "panel": "FM-1b"},
        ],
        "panels": [
            {"name": "FM-1a", "ours": False, "questions": []},
            {"name": "FM-1b", "ours": False, "questions": []},
            {"name": "FM-1x", "ours": True, "questions": [{"name": "q", "answer": "Yes."}]},
        ],
        "theorems": {"statements": 49, "runs": 5, "violated": 0},
        "data": [{"study": "s", "seconds": 12.345}],
    }
]


def test_three_lines_sum_up_a_run():
    assert recorded.summary(recorded.collect(OUTCOMES)) == (
        "Panels: 1 of 2 reproduced (differs: FM-1b).",
        "Quotes: 1 reproduced, 1 differs, 1 undecided.",
        "Theorems: 49 statements checked on 5 runs, none violated.",
    )


def test_figures_without_panels_of_a_paper_count_none():
    assert recorded.summary(recorded.collect([])) == (
        "Panels: none of a paper here.",
        "Quotes: none here.",
        "Theorems: none checked here.",
    )


def test_a_violated_theorem_is_counted():
    assert recorded.theorem_count({"statements": 2, "runs": 1, "violated": 1}).endswith(
        "1 violated"
    )


def test_what_is_recorded_sums_up_to_the_same_lines(tmp_path):
    path = tmp_path / "recorded.json"
    found = recorded.collect(OUTCOMES)
    recorded.record("quick", found, path)
    kept = json.loads(path.read_text())["quick"]
    assert recorded.summary(kept) == recorded.summary(found)
    assert kept["questions"] == {"FM-1x/q": "Yes."}
    assert kept["seconds"] == {"s": 12.0}


def test_recording_keeps_what_was_not_computed_now(tmp_path):
    path = tmp_path / "recorded.json"
    recorded.record("quick", {"quotes": {"old": {"verdict": "reproduced", "value": ""}}}, path)
    recorded.record("paper", recorded.collect(OUTCOMES), path)
    recorded.record("quick", recorded.collect(OUTCOMES), path)
    kept = json.loads(path.read_text())
    assert set(kept["quick"]["quotes"]) == {"old", "a", "b", "c"}
    assert set(kept["paper"]["quotes"]) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("known", "found", "count"),
    [
        ("reproduced", "differs", 1),
        ("differs", "reproduced", 1),
        ("reproduced", "undecided", 0),
        ("undecided", "differs", 0),
        ("differs", "differs", 0),
    ],
)
def test_only_opposite_verdicts_contradict(monkeypatch, known, found, count):
    kept = {"quick": {"quotes": {"a": {"verdict": known, "value": ""}}}}
    monkeypatch.setattr(recorded, "everything", lambda: kept)
    outcome = {"preset": "quick", "seed": 0, "quotes": [{"name": "a", "verdict": found}]}
    assert len(recorded.changes([outcome])) == count
    assert recorded.changes([outcome | {"seed": 1}]) == []
    assert recorded.changes([outcome | {"preset": "paper"}]) == []
    new = {"quotes": [{"name": "new", "verdict": found}]}
    assert recorded.changes([outcome | new]) == []


def test_the_full_protocol_is_shown_before_the_quick_one(monkeypatch):
    kept = {p: {"quotes": {"a": {"verdict": p, "value": ""}}} for p in ("quick", "paper")}
    monkeypatch.setattr(recorded, "everything", lambda: kept)
    assert recorded.quote("a")["verdict"] == "paper"
    assert recorded.quote("a", "quick")["verdict"] == "quick"
    assert recorded.quote("b") == {}


def test_a_figure_whose_full_protocol_was_not_run_is_known_by_its_quick_preset(monkeypatch):
    kept = {
        "quick": {
            "figures": {"FM-1": "quick", "FM-2": "quick"},
            "quotes": {n: {"verdict": "undecided", "value": ""} for n in ("a", "b")},
            "panels": {"FM-1a": "reproduced", "FM-2": "reproduced"},
        },
        "paper": {
            "figures": {"FM-1": "paper"},
            "quotes": {"a": {"verdict": "differs", "value": ""}},
            "panels": {"FM-1a": "differs"},
        },
    }
    monkeypatch.setattr(recorded, "everything", lambda: kept)
    known = recorded.latest()
    assert recorded.summary(known)[:2] == (
        "Panels: 1 of 2 reproduced (differs: FM-1a).",
        "Quotes: 0 reproduced, 1 differs, 1 undecided.",
    )
    assert recorded.provenance(known["figures"]) == (
        "Full protocol; quick preset (few runs) for FM-2."
    )
    more = {"FM-1": "paper", "FM-2": "quick", "FM-3": "quick"}
    assert recorded.provenance(more) == "Quick preset (few runs); full protocol for FM-1."
    assert recorded.provenance({"FM-1": "paper"}) == "Full protocol of the papers."
    assert recorded.provenance({"FM-1": "quick"}) == "Quick preset (few runs)."
