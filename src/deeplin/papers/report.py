"""Reports of a reproduction: files, a self-contained page, lines in the terminal."""

from __future__ import annotations

import html
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from deeplin.errors import InputError
from deeplin.files import environment, whole_file
from deeplin.papers import verdicts
from deeplin.papers.errata import ERRATA, NOTES
from deeplin.papers.figures import FigureResult, PanelResult, StudyResult
from deeplin.papers.sentences import LeftOutSentence
from deeplin.plot_style import COLORS, INK, PAPER, QUIET, draw, save
from deeplin.sources import SOURCES
from deeplin.sweep.keys import to_plain

OUTCOME = "outcome.json"
RECOLORED = {INK: "var(--ink)", QUIET: "var(--quiet)", PAPER: "var(--panel)"} | {
    color: f"var(--curve-{index})" for index, color in enumerate(COLORS)
}
"""Colors of the pictures that follow the reader's choice of a light or dark screen."""


def write_figure(result: FigureResult, report: Path) -> dict[str, Any]:
    """Write the pictures and data of a figure into the report's folder; return its outcome.

    The outcome is the content of `outcome.json` and all that the page needs, so that a report can
    be made figure by figure, in any order and any number of calls.
    """
    figure, preset, seed = result.figure, result.preset, result.seed
    home = report / figure.name
    try:
        home.mkdir(parents=True, exist_ok=True)
        studies = {panel.data.study.name: panel.data for panel in result.panels}
        data = [_write_data(study, preset, report / "data") for study in studies.values()]
        panels = [_write_panel(panel, home) for panel in result.panels]
        counts = [p.panel.theorems(p.data.config, p.data.table)
                  for p in result.panels if p.panel.theorems is not None]  # fmt: skip
        outcome = {
            **{name: getattr(figure, name) for name in ("name", "title", "printed", "as_run")},
            "preset": preset,
            "seed": seed,
            "failures": list(result.failures),
            "panels": panels,
            "quotes": list(result.quotes),
            "theorems": counts[0] if counts else {},
            "data": data,
            "command": f"deeplin reproduce {figure.name} --preset {preset} --seed {seed}",
            "seconds": sum(study["seconds"] for study in data),
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
        **{name: getattr(panel, name) for name in ("name", "caption", "ours")},
        "study": panel.study.name,
        "files": {kind: f"{home.name}/{panel.name}.{kind}" for kind in ("svg", "png", "pdf")},
        "questions": [question._asdict() for question in result.questions],
    }


def _write_data(study: StudyResult, preset: str, folder: Path) -> dict[str, Any]:
    """Write the tidy table as Parquet and CSV, and its config."""
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


def read_outcomes(report: Path, order: Sequence[str]) -> list[dict[str, Any]]:
    """Return the outcomes in a report's folder, in the given order of figures."""
    paths = [report / name / OUTCOME for name in order]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def write_page(
    report: Path, order: Sequence[str], left_out: Sequence[LeftOutSentence] = ()
) -> Path:
    """Write `index.html` from the outcomes found in the folder, in the given order of figures."""
    outcomes = read_outcomes(report, order)
    for outcome in outcomes:
        for panel in outcome["panels"]:
            svg = (report / panel["files"]["svg"]).read_text(encoding="utf-8")
            panel["picture"] = inline_svg(svg, panel["name"], panel["caption"])
            panel["again"] = repeated_svg(panel["picture"], panel["name"])
    path = report / "index.html"
    with whole_file(path) as file:
        file.write(render(outcomes, left_out).encode())
    return path


def render(outcomes: Sequence[dict[str, Any]], left_out: Sequence[LeftOutSentence] = ()) -> str:
    """Return the page of these outcomes, whose panels carry their `picture`."""
    templates = Environment(
        loader=PackageLoader("deeplin.papers", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"duration": duration, "measured": measured}
    quotes = [quote for outcome in outcomes for quote in outcome["quotes"]]
    panels = {
        panel["name"]: panel
        | {"figure": outcome["name"]}
        | _glance([q for q in outcome["quotes"] if q["panel"] == panel["name"]])
        for outcome in outcomes
        for panel in outcome["panels"]
    }
    found = verdicts.collect(outcomes)
    quick = any(run["preset"] == "quick" for run in found["figures"].values())
    quick_beside_record = quick and "paper" in verdicts.everything()
    return templates.get_template("report.html").render(
        figures=outcomes,
        quotes=quotes,
        panels=panels,
        left_out=left_out,
        errata=ERRATA,
        notes=NOTES,
        summary=verdicts.summary(found),
        provenance=verdicts.provenance(found["figures"]) if outcomes else "",
        changed=verdicts.changes(outcomes),
        curves=dict(enumerate(COLORS)),
        sources=SOURCES,
        broken=[outcome["name"] for outcome in outcomes if outcome["failures"]],
        environment=outcomes[-1]["environment"] if outcomes else None,
        full=verdicts.summary(verdicts.everything()["paper"]) if quick_beside_record else None,
    )


GLANCE = {"full": "✓", "partly": "◐", "open": "?", "differs": "≠"}
"""What is seen of a panel at a glance, and its sign."""


def _glance(quotes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what is seen of a panel at a glance, and how many of its quotes are reproduced."""
    found = [quote["verdict"] for quote in quotes]
    good = found.count(verdicts.REPRODUCED)
    words = {verdicts.REPRODUCED: "full", verdicts.DIFFERS: "differs"}
    word = words.get(verdicts.combined(found), "partly" if good else "open")
    return {"glance": word, "sign": GLANCE[word], "count": f"{good} of {len(found)} quotes"}


def inline_svg(svg: str, name: str, description: str) -> str:
    """Return an SVG to embed in a page, with unique ids, the page's colors and flexible width."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    # Several pictures share the page, so every id needs the picture's name in front.
    body = re.sub(r'\bid="', f'id="{name}.', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}.", body)
    for color, variable in RECOLORED.items():
        body = re.sub(re.escape(color), variable, body, flags=re.IGNORECASE)
    for size in ("width", "height"):
        body = re.sub(rf'<svg([^>]*?) {size}="[^"]*"', r"<svg\1", body, count=1)
    label = html.escape(description)
    return body.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def repeated_svg(picture: str, name: str) -> str:
    """Return a reference to a picture that is already in the page."""
    box = re.search(r'viewBox="[^"]*"', picture)
    label = f'aria-label="Panel {html.escape(name)}"'
    return f'<svg role="img" {label} {box[0] if box else ""}><use href="#{name}.figure_1"/></svg>'


def duration(seconds: float) -> str:
    """Return a duration in readable units."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def figure_lines(outcome: Mapping[str, Any], width: int) -> str:
    """Return one line for a figure, and below it each quote that differs, with the reason.

    A quote of the quick preset stands beside the verdict of the full protocol where that is another
    one.
    """
    quotes = outcome["quotes"]
    text = verdicts.counted([quote["verdict"] for quote in quotes])
    full = [quote["full"]["verdict"] for quote in quotes if quote["full"]]
    beside = f"; full protocol: {verdicts.counted(full)}" if full else ""
    answers = sum(len(panel["questions"]) for panel in outcome["panels"])
    theorems = outcome["theorems"]
    parts = [
        f"quotes: {text}{beside}" if quotes else "",
        verdicts.theorem_count(theorems) if theorems else "",
        f"{answers} question{'s' if answers > 1 else ''} answered" if answers else "",
        "not computed" if outcome["failures"] else "",
    ]
    head = f"{outcome['name']:<12}{'; '.join(filter(None, parts))} ({duration(outcome['seconds'])})"
    lines = [head, *(_item(failure, width) for failure in outcome["failures"])]
    for quote in quotes:
        if verdicts.DIFFERS in (quote["verdict"], quote["full"].get("verdict")):
            text = f"{quote['place']}: “{quote['text']}” {measured(quote)}"
            lines.append(_item(f"{text} {quote['why']}".rstrip(), width))
    return "\n".join(lines)


def measured(quote: Mapping[str, Any]) -> str:
    """Return what was measured on how many runs, and beside it what the full protocol found."""
    text = f"Measured on {quote['of_runs']} runs: {quote['verdict']}, {quote['value']}."
    if quote["decides"]:
        text += f" {quote['decides']}"
    if full := quote["full"]:
        text += f" Full protocol, {full['of_runs']} runs: {full['verdict']}, {full['value']}."
    return text


def ending(outcomes: Sequence[Mapping[str, Any]], page: Path, width: int) -> str:
    """Return the three summary lines, the contradictions with the record, and what to open."""
    lines = [*verdicts.summary(verdicts.collect(outcomes))]
    for change in verdicts.changes(outcomes):
        text = f"“{change.quote}” was recorded as {change.recorded} and {change.found} here."
        lines.append(_item(text.replace("and reproduced", "and is reproduced"), width))
    return "\n".join([*lines, f"Everything with its pictures: open {page}"])


def _item(text: str, width: int) -> str:
    """Return an item indented under its figure, broken between words."""
    return textwrap.fill(
        text, width, initial_indent="  – ", subsequent_indent="    ", break_on_hyphens=False
    )
