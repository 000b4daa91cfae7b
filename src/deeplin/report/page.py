"""From outcomes to one HTML page: pictures inside it, nothing asked of the network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from deeplin.figures import recorded
from deeplin.figures.explanations import EXPLANATIONS
from deeplin.figures.figure import PRESETS
from deeplin.figures.style import COLOURS, INK, PAPER, QUIET
from deeplin.files import whole_file
from deeplin.report.files import read_outcomes
from deeplin.sources import SOURCES, reference
from deeplin.theory.errata import ERRATA

RECOLOURED = {INK: "var(--ink)", QUIET: "var(--quiet)", PAPER: "var(--panel)"} | {
    colour: f"var(--curve-{index})" for index, colour in enumerate(COLOURS)
}
"""Colours of the pictures that follow the reader's choice of a light or dark screen."""


def write_page(report: Path, order: Sequence[str]) -> Path:
    """Write `index.html` from the outcomes found in the folder, in the given order of figures."""
    outcomes = read_outcomes(report, list(order))
    for outcome in outcomes:
        for panel in outcome["panels"]:
            svg = (report / panel["files"]["svg"]).read_text(encoding="utf-8")
            panel["picture"] = inline_svg(svg, panel["name"], panel["caption"])
    path = report / "index.html"
    with whole_file(path) as file:
        file.write(render(outcomes).encode())
    return path


def render(outcomes: Sequence[dict[str, Any]]) -> str:
    """The page as text; panels carry their `picture`."""
    templates = Environment(
        loader=PackageLoader("deeplin.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["duration"] = duration
    templates.filters["reference"] = reference
    templates.filters["compared"] = compared
    templates.globals["curves"] = dict(enumerate(COLOURS))
    verdicts = recorded.verdicts(outcomes).values()
    return templates.get_template("template.html").render(
        figures=outcomes,
        errata=ERRATA,
        summary=recorded.tally(verdicts),
        all_hold=all(verdict == "holds" for verdict in verdicts),
        changed=_changes(outcomes),
        sources={name: source for name, source in SOURCES.items() if "url" in source},
        known={preset: recorded.tally(recorded.read(preset).values()) for preset in PRESETS},
        explanations=EXPLANATIONS,
        broken=[outcome["name"] for outcome in outcomes if outcome["failures"]],
        environment=outcomes[-1]["environment"] if outcomes else None,
    )


def compared(outcome: dict[str, Any]) -> str:
    """How many claims of a figure hold here, and what is recorded for the other presets."""
    panels = {panel["name"] for panel in outcome["panels"]}
    found = recorded.verdicts([outcome]).values()
    here = f"{outcome['preset']}: {recorded.tally(found)}"
    titles = {"quick": "the quick preset", "paper": "the full protocol"}
    others = [
        f"{titles[preset]}: {recorded.counted(preset, panels)}"
        for preset in PRESETS
        if preset != outcome["preset"]
    ]
    return "; ".join([here, *others])


def _changes(outcomes: Sequence[dict[str, Any]]) -> list[recorded.Change]:
    """Verdicts that are not the recorded ones of their preset."""
    found = []
    for preset in {outcome["preset"] for outcome in outcomes}:
        of_preset = [outcome for outcome in outcomes if outcome["preset"] == preset]
        found += recorded.changes(recorded.verdicts(of_preset), recorded.read(preset))
    return found


def inline_svg(svg: str, name: str, description: str) -> str:
    """A picture to stand inside a page: own ids, the page's colours, as wide as it may be."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    # Several pictures share the page, so every id needs the picture's name in front.
    body = re.sub(r'\bid="', f'id="{name}.', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}.", body)
    for colour, variable in RECOLOURED.items():
        body = re.sub(re.escape(colour), variable, body, flags=re.IGNORECASE)
    body = re.sub(r'<svg([^>]*?) width="[^"]*"', r"<svg\1", body, count=1)
    body = re.sub(r'<svg([^>]*?) height="[^"]*"', r"<svg\1", body, count=1)
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return body.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
