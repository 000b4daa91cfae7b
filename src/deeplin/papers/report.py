"""A reproduction as people meet it: files, a page that needs no network, lines in the terminal."""

from __future__ import annotations

import html
import json
import re
import textwrap
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from deeplin.errors import InputError
from deeplin.files import whole_file
from deeplin.papers import recorded
from deeplin.papers.errata import ERRATA, NOTES
from deeplin.papers.figure import PRESETS, FigureResult, PanelResult, StudyResult
from deeplin.papers.style import COLOURS, INK, PAPER, QUIET, draw, save
from deeplin.sources import SOURCES, reference
from deeplin.sweep.config import to_plain
from deeplin.sweep.session import environment

OUTCOME = "outcome.json"
RECOLOURED = {INK: "var(--ink)", QUIET: "var(--quiet)", PAPER: "var(--panel)"} | {
    colour: f"var(--curve-{index})" for index, colour in enumerate(COLOURS)
}
"""Colours of the pictures that follow the reader's choice of a light or dark screen."""
MARKS = {"holds": "✓", "holds in part": "◐"}


def write_figure(result: FigureResult, report: Path) -> dict[str, Any]:
    """Write the pictures and data of a figure into the report's folder; returns its outcome.

    The outcome is what `outcome.json` holds, and all that the page needs: a report can be made
    figure by figure, in any order, in any number of calls.
    """
    started = time.perf_counter()
    figure, preset, seed = result.figure, result.preset, result.seed
    home = report / figure.name
    try:
        home.mkdir(parents=True, exist_ok=True)
        studies = {panel.data.study.name: panel.data for panel in result.panels}
        data = [_write_data(study, preset, report / "data") for study in studies.values()]
        panels = [_write_panel(panel, home) for panel in result.panels]
        drawn = result.judging_seconds + time.perf_counter() - started
        outcome = {
            **{name: getattr(figure, name) for name in ("name", "title", "printed", "as_run")},
            "preset": preset,
            "seed": seed,
            "verdict": result.verdict,
            "failures": list(result.failures),
            "panels": panels,
            "data": data,
            "command": f"deeplin reproduce {figure.name} --preset {preset} --seed {seed}",
            "seconds": sum(study["seconds"] for study in data) + drawn,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": environment(),
        }
        with whole_file(home / OUTCOME) as file:
            file.write(json.dumps(outcome, indent=1, ensure_ascii=False).encode())
    except OSError as error:
        raise InputError(
            f"cannot write the report into {report}: {error.strerror}; pass --out with a folder "
            "you may write in. What was computed is kept."
        ) from error
    return outcome


def _write_panel(result: PanelResult, home: Path) -> dict[str, Any]:
    panel, data = result.panel, result.data
    figure = draw(lambda ax: panel.plot(data.config, data.table, ax), panel.size, panel.name)
    save(figure, home, panel.name)
    return {
        "name": panel.name,
        "caption": panel.caption,
        "study": panel.study.name,
        "files": {kind: f"{home.name}/{panel.name}.{kind}" for kind in ("svg", "png", "pdf")},
        "claims": [claim.to_plain() for claim in result.claims],
    }


def _write_data(study: StudyResult, preset: str, folder: Path) -> dict[str, Any]:
    """The tidy table as Parquet and CSV, and the config it came from."""
    folder.mkdir(exist_ok=True)
    name = f"{study.study.name}-{preset}"
    study.table.to_parquet(folder / f"{name}.parquet")
    study.table.to_csv(folder / f"{name}.csv", index=False, float_format="%.10g")
    return {
        "study": study.study.name,
        "rows": len(study.table),
        "seconds": study.seconds,
        "parquet": f"data/{name}.parquet",
        "csv": f"data/{name}.csv",
        "config": to_plain(study.config),
    }


def write_page(report: Path, order: Sequence[str]) -> Path:
    """Write `index.html` from the outcomes found in the folder, in the given order of figures."""
    paths = [report / name / OUTCOME for name in order]
    outcomes = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
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
        loader=PackageLoader("deeplin.papers", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"duration": duration, "reference": reference, "compared": compared}
    verdicts = recorded.verdicts(outcomes).values()
    return templates.get_template("report.html").render(
        figures=outcomes,
        errata=ERRATA,
        notes=NOTES,
        summary=recorded.tally(verdicts),
        all_hold=all(verdict == "holds" for verdict in verdicts),
        changed=_changes(outcomes),
        curves=dict(enumerate(COLOURS)),
        sources={name: source for name, source in SOURCES.items() if "url" in source},
        known={preset: recorded.tally(recorded.read(preset).values()) for preset in PRESETS},
        explanations=recorded.EXPLANATIONS,
        broken=[outcome["name"] for outcome in outcomes if outcome["failures"]],
        environment=outcomes[-1]["environment"] if outcomes else None,
    )


def compared(outcome: Mapping[str, Any]) -> str:
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
    for size in ("width", "height"):
        body = re.sub(rf'<svg([^>]*?) {size}="[^"]*"', r"<svg\1", body, count=1)
    label = html.escape(description)
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
