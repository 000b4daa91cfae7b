"""Errata: differences between the printed text, its algebra and the authors' data.

`errata.toml` is the only source: the page docs/errata.md, the list of the report and the tests are
made from it.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple


class Erratum(NamedTuple):
    """What is printed and what we find; `pytest -k errata_E4` shows the evidence of E-4."""

    identifier: str
    grade: str
    """One of `GRADES`."""
    title: str
    where: str
    printed: str
    """Short form of what is printed; the paragraphs quote it in full."""
    finding: str
    """Our finding in one or two sentences."""
    paragraphs: list[list[str]]
    """Label and text of each paragraph of the page."""
    tests: list[str]


GRADES = {
    "A": "Grade A: a result, or a hypothesis it needs",
    "B": "Grade B: a constant",
    "C": "Grade C: misprints",
    "note": "Notes on experiments as run",
}
"""What an entry changes, and the heading of its part of the page."""

_SOURCE = tomllib.loads(files("deeplin.papers").joinpath("errata.toml").read_text(encoding="utf-8"))

ENTRIES = tuple(Erratum(**entry) for entry in _SOURCE["errata"])

ERRATA = tuple(entry for entry in ENTRIES if entry.grade != "note")
NOTES = tuple(entry for entry in ENTRIES if entry.grade == "note")
"""Notes on the papers' experiments as run, which are not errata."""


def page() -> str:
    """Return the page docs/errata.md.

    Write it with `python -m deeplin.papers.errata docs/errata.md`.
    """
    parts = ["# Errata", _SOURCE["introduction"].strip()]
    for grade, heading in GRADES.items():
        parts.append(f"## {heading}")
        for entry in ENTRIES:
            if entry.grade != grade:
                continue
            parts += [f"### {entry.identifier} — {entry.title}", f"**Where.** {entry.where}."]
            for label, text in entry.paragraphs:
                parts.append(f"**{label}.** {text.strip()}" if label else text.strip())
            parts.append("**Tests.** " + ",\n".join(f"`{name}`" for name in entry.tests) + ".")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
