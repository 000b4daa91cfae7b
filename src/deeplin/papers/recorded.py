"""Verdicts and answers as they were last recorded, and the three lines that summarize them.

`recorded.json` holds, for each preset at seed 0, the figures that were run, the verdict and value
of every quote, the answer to every question, the count of theorems and the seconds of every study.
`docs/record.py` writes it from finished reports; `deeplin reproduce` compares with it. A figure
whose full protocol has not been run has only a record of its quick preset (`latest`, `provenance`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

VERDICTS = ("reproduced", "differs", "undecided")
KINDS = ("figures", "quotes", "questions", "panels", "theorems", "seconds")
SOURCE = "recorded.json"


class Change(NamedTuple):
    """A verdict that contradicts the recorded one."""

    quote: str
    recorded: str
    found: str


@cache
def everything() -> dict[str, dict[str, Any]]:
    """Read the records by preset."""
    source = files("deeplin.papers").joinpath(SOURCE)
    return json.loads(source.read_text(encoding="utf-8")) if source.is_file() else {}


def read(preset: str, kind: str) -> dict[str, Any]:
    """Return the records of one of `KINDS`."""
    return everything().get(preset, {}).get(kind, {})


def latest() -> dict[str, dict[str, Any]]:
    """Return the record of each figure: of the full protocol, or else of the quick preset."""
    return {kind: read("quick", kind) | read("paper", kind) for kind in KINDS}


def quote(name: str, preset: str = "") -> dict[str, str]:
    """Return the recorded verdict and value of a quote, by default of the full protocol."""
    presets = (preset,) if preset else ("paper", "quick")
    return next((found for p in presets if (found := read(p, "quotes").get(name))), {})


def verdict(name: str, preset: str, measured: str) -> str:
    """Return the verdict on a quote whose measurement in a preset gives `measured`.

    The quick preset differs only if the full protocol does, or has not been recorded: its few runs
    otherwise leave the sentence undecided.
    """
    full = quote(name, "paper").get("verdict", measured)
    overruled = preset == "quick" and measured == "differs" and full != "differs"
    return "undecided" if overruled else measured


def collect(outcomes: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the outcomes of figures in the form in which they are recorded."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for outcome in outcomes:
        found["figures"][outcome["name"]] = outcome["preset"]
        for quote in outcome["quotes"]:
            found["quotes"][quote["name"]] = {k: quote[k] for k in ("verdict", "value")}
        for panel in outcome["panels"]:
            about = [q["verdict"] for q in outcome["quotes"] if q["panel"] == panel["name"]]
            if not panel["ours"]:
                found["panels"][panel["name"]] = "differs" if "differs" in about else "reproduced"
            for question in panel["questions"]:
                key = f"{panel['name']}/{question['name']}"
                found["questions"][key] = question["answer"]
        found["theorems"] |= outcome["theorems"]
        for study in outcome["data"]:
            found["seconds"][study["study"]] = float(f"{study['seconds']:.2g}")
    return found


def summary(found: Mapping[str, Mapping[str, Any]]) -> tuple[str, str, str]:
    """Return the three lines that README, report, documentation and command print.

    `found` is the result of `collect` or `latest`, or the record of a preset.
    """
    panels = Counter(found.get("panels", {}).values())
    different = sorted(name for name, v in found.get("panels", {}).items() if v == "differs")
    exceptions = f" (differs: {', '.join(different)})" if different else ""
    quotes = Counter(entry["verdict"] for entry in found.get("quotes", {}).values())
    theorems = found.get("theorems", {})
    checked = theorem_count(theorems) if theorems else "none checked here"
    return (
        f"Panels: {panels['reproduced']} of {panels.total()} reproduced{exceptions}."
        if panels
        else "Panels: none of a paper here.",
        f"Quotes: {quotes['reproduced']} reproduced, {quotes['differs']} "
        f"{'differs' if quotes['differs'] == 1 else 'differ'}, {quotes['undecided']} undecided."
        if quotes
        else "Quotes: none here.",
        f"Theorems: {checked}.",
    )


def provenance(figures: Mapping[str, str]) -> str:
    """Return which figures were run with the full protocol, and which with the quick preset.

    `figures` has the preset of each, as in `latest()["figures"]`.
    """
    full, few = ([f for f, preset in figures.items() if preset == p] for p in ("paper", "quick"))
    if not few:
        return "Full protocol of the papers."
    if not full:
        return "Quick preset (few runs)."
    if len(few) <= len(full):
        return f"Full protocol; quick preset (few runs) for {', '.join(few)}."
    return f"Quick preset (few runs); full protocol for {', '.join(full)}."


def theorem_count(theorems: Mapping[str, int]) -> str:
    """Return how many statements were checked on how many runs, and how many were violated."""
    violated = theorems["violated"] or "none"
    where = f"{theorems['statements']} statements checked on {theorems['runs']} runs"
    return f"{where}, {violated} violated"


def changes(outcomes: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Return the quotes that are recorded as reproduced and differ now, or conversely.

    Undecided is not a contradiction: an interval may touch its limit on another processor. Only
    seed 0 is recorded, so other seeds are not compared.
    """
    found = []
    for outcome in (outcome for outcome in outcomes if outcome["seed"] == 0):
        known = read(outcome["preset"], "quotes")
        for quote in outcome["quotes"]:
            before = known.get(quote["name"], {}).get("verdict")
            if {before, quote["verdict"]} == {"reproduced", "differs"}:
                found.append(Change(quote["name"], before, quote["verdict"]))
    return found


def record(preset: str, found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Write the results of a preset, keeping those that were not computed now."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    mine = known.get(preset, {})
    merged = {kind: mine.get(kind, {}) | dict(entries) for kind, entries in found.items()}
    text = json.dumps(known | {preset: merged}, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")
