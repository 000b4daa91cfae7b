"""What is recorded, the three summary lines, and what counts as a contradiction."""

import json

import pytest

from deeplin.papers import verdicts

THEOREMS = {
    "theorems": ["FM-T1", "BO-T3.1"],
    "unmet": ["FM-T4"],
    "runs": 5,
    "violated": [],
    "lemmas": 40,
    "exact": 9,
}
OUTCOMES = [
    {
        "name": "FM-1",
        "preset": "quick",
        "environment": {"commit": "0123456789abcdef"},
        "quotes": [
            {"name": "a", "verdict": "reproduced", "value": "1", "panel": "FM-1a"},
            {"name": "b", "verdict": "differs", "value": "2", "panel": "FM-1b"},
            {"name": "c", "verdict": "undecided", "value": "3", "panel": "FM-1b"},
            {"name": "d", "verdict": "undecided", "value": "3", "panel": "FM-1c"},
        ],
        "panels": [
            {"name": "FM-1a", "ours": False, "questions": []},
            {"name": "FM-1b", "ours": False, "questions": []},
            {"name": "FM-1c", "ours": False, "questions": []},
            {"name": "FM-1d", "ours": False, "questions": []},
            {"name": "FM-1x", "ours": True, "questions": [{"name": "q", "answer": "Yes."}]},
        ],
        "theorems": THEOREMS,
        "data": [{"study": "s", "seconds": 12.345}],
    }
]


def test_three_lines_sum_up_a_run():
    assert verdicts.summary(verdicts.collect(OUTCOMES)) == (
        "Panels: 1 of 4 reproduced, 1 differs (FM-1b), 2 undecided (FM-1c, FM-1d).",
        "Quotes: 1 reproduced, 1 differs, 2 undecided.",
        "Theorems: judged 2 of the papers' 3 theorems (no run meets the hypotheses of FM-T4) on 5 "
        "runs, none violated; apart from these 40 lemmas, definitions and other statements and 9 "
        "exact results.",
    )


def test_what_is_recorded_sums_up_to_the_same_lines(tmp_path):
    path = tmp_path / "verdicts.json"
    found = verdicts.collect(OUTCOMES)
    verdicts.record("quick", found, path)
    kept = json.loads(path.read_text())["quick"]
    assert verdicts.summary(kept) == verdicts.summary(found)
    assert kept["questions"] == {"FM-1x/q": "Yes."}
    assert kept["seconds"] == {"s": 12.0}
    assert kept["figures"] == {"FM-1": {"preset": "quick", "commit": "0123456789ab"}}
    assert kept["quotes"]["a"] == {"verdict": "reproduced", "value": "1", "commit": "0123456789ab"}


def test_recording_keeps_what_was_not_computed_now(tmp_path):
    path = tmp_path / "verdicts.json"
    verdicts.record("quick", {"quotes": {"old": {"verdict": "reproduced", "value": ""}}}, path)
    verdicts.record("paper", verdicts.collect(OUTCOMES), path)
    verdicts.record("quick", verdicts.collect(OUTCOMES), path)
    kept = json.loads(path.read_text())
    assert set(kept["quick"]["quotes"]) == {"old", "a", "b", "c", "d"}
    assert set(kept["paper"]["quotes"]) == {"a", "b", "c", "d"}


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
    monkeypatch.setattr(verdicts, "everything", lambda: kept)
    outcome = {"preset": "quick", "seed": 0, "quotes": [{"name": "a", "verdict": found}]}
    assert len(verdicts.changes([outcome])) == count
    assert verdicts.changes([outcome | {"seed": 1}]) == []
    assert verdicts.changes([outcome | {"preset": "paper"}]) == []
    new = {"quotes": [{"name": "new", "verdict": found}]}
    assert verdicts.changes([outcome | new]) == []


def test_the_full_protocol_is_shown_before_the_quick_one(monkeypatch):
    kept = {p: {"quotes": {"a": {"verdict": p, "value": ""}}} for p in ("quick", "paper")}
    monkeypatch.setattr(verdicts, "everything", lambda: kept)
    assert verdicts.recorded_quote("a")["verdict"] == "paper"
    assert verdicts.recorded_quote("a", "quick")["verdict"] == "quick"
    assert verdicts.recorded_quote("b") == {}


def test_a_figure_whose_full_protocol_was_not_run_is_known_by_its_quick_preset(monkeypatch):
    kept = {
        "quick": {
            "figures": {name: {"preset": "quick"} for name in ("FM-1", "FM-2")},
            "quotes": {n: {"verdict": "undecided", "value": ""} for n in ("a", "b")},
            "panels": {"FM-1a": "reproduced", "FM-2": "reproduced"},
        },
        "paper": {
            "figures": {"FM-1": {"preset": "paper"}},
            "quotes": {"a": {"verdict": "differs", "value": ""}},
            "panels": {"FM-1a": "differs"},
        },
    }
    monkeypatch.setattr(verdicts, "everything", lambda: kept)
    known = verdicts.latest()
    assert verdicts.summary(known)[:2] == (
        "Panels: 1 of 2 reproduced, 1 differs (FM-1a).",
        "Quotes: 0 reproduced, 1 differs, 1 undecided.",
    )
    assert verdicts.provenance(known["figures"]) == (
        "Full protocol; quick preset (few runs) for FM-2."
    )
    presets = {"FM-1": "paper", "FM-2": "quick", "FM-3": "quick"}
    more = {name: {"preset": preset} for name, preset in presets.items()}
    assert verdicts.provenance(more) == "Quick preset (few runs); full protocol for FM-1."
    assert verdicts.provenance({"FM-1": {"preset": "paper"}}) == "Full protocol of the papers."
    assert verdicts.provenance({"FM-1": {"preset": "quick"}}) == "Quick preset (few runs)."
