"""A reproduction in the terminal: a line for each figure, what fails in full, what to open."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deeplin.figures import recorded
from deeplin.report.page import duration

MARKS = {"holds": "✓", "holds in part": "◐"}


def figure_lines(outcome: Mapping[str, Any], width: int) -> str:
    """One line, then each claim that fails, and each unit that could not be computed, in full."""
    found = recorded.verdicts([outcome]).values()
    what = recorded.tally(found) if outcome["panels"] else outcome["verdict"]
    mark = MARKS.get(outcome["verdict"], "✗")
    lines = [f"{outcome['name']:<10} {mark} {what} ({duration(outcome['seconds'])})"]
    lines += [_item(failure, width) for failure in outcome["failures"]]
    for panel in outcome["panels"]:
        failing = [claim for claim in panel["claims"] if claim["verdict"] == "fails"]
        lines += [_item(f"{panel['name']}: {_in_full(claim)}", width) for claim in failing]
    return "\n".join(lines)


def ending(
    outcomes: Sequence[Mapping[str, Any]],
    changes: Sequence[recorded.Change],
    page: Path,
    width: int,
) -> str:
    """The count, what is not as recorded, and what to open."""
    count = recorded.tally(recorded.verdicts(outcomes).values())
    if not changes:
        lines = [f"{count}; every verdict is the recorded one."]
    else:
        lines = [f"{count}; {len(changes)} not as recorded:"]
        claims = recorded.claims(outcomes)
        for claim, known, found in changes:
            told = f"{claim}: recorded {known}, found {found}. {_in_full(claims[claim])}"
            lines.append(_item(told, width))
    return "\n".join([*lines, f"Everything with its pictures: open {page}"])


def _in_full(claim: Mapping[str, Any]) -> str:
    known = f" Known: {claim['known']}." if claim["known"] else ""
    sentence = claim["sentence"].rstrip(".")
    return f"{sentence}. Measured {claim['shown']}, limit {claim['tolerance']}.{known}"


def _item(text: str, width: int) -> str:
    """Indented under its figure, broken between words."""
    return textwrap.fill(
        text, width, initial_indent="  ✗ ", subsequent_indent="    ", break_on_hyphens=False
    )
