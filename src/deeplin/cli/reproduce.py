"""`deeplin reproduce`: run figures, judge their claims, write the report."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from deeplin.cli.app import app, prepare_computing, seed_option


@app.command()
def reproduce(
    figures: Annotated[
        list[str] | None, typer.Argument(help="Figures such as FM-2 or BO-1; none means all.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="quick (seconds), or paper (the full protocol).")
    ] = "quick",
    out: Annotated[
        Path, typer.Option(help="Folder for results/ (to go on from) and report/index.html.")
    ] = Path("."),
    workers: Annotated[int, typer.Option(help="Studies computed at a time.")] = 1,
    seed: Annotated[int, seed_option("Seed of the initial weights.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Reproduce figures of the papers and the talk; exit 1 when a verdict is not the recorded one.

    Interrupt it when you like: the same command goes on where it stopped.
    """
    prepare_computing()
    from deeplin import figures as catalogue
    from deeplin.figures import recorded
    from deeplin.report.files import write_figure
    from deeplin.report.page import write_page
    from deeplin.sweep import Lines, prompt_interrupt, show_progress

    chosen = catalogue.select(catalogue.FIGURES, figures)
    report = out / "report"
    page = report / "index.html"
    results = catalogue.reproduce(
        chosen,
        out / "results",
        preset=preset,
        seed=seed,
        workers=workers,
        progress=show_progress if workers == 1 else Lines,  # a terminal has room for one bar
    )
    outcomes = []
    again = shlex.join(["deeplin", *sys.argv[1:]])
    with prompt_interrupt(f"deeplin: interrupted. What is finished is kept; to go on: {again}"):
        for result in results:
            outcomes.append(write_figure(result, report))
            write_page(report, [figure.name for figure in catalogue.FIGURES])
    found = recorded.verdicts(outcomes)
    changes = recorded.changes(found, recorded.read(preset))
    if as_json:
        typer.echo(json.dumps([_summary(outcome) for outcome in outcomes], ensure_ascii=False))
    else:
        _print_verdicts(outcomes)
        typer.echo(recorded.tally(found.values()) + "; " + _compared(changes))
        typer.echo(f"report: {page}")
    if changes or any(outcome["failures"] for outcome in outcomes):
        raise typer.Exit(1)


def _compared(changes: list) -> str:
    """How the verdicts compare with the recorded ones."""
    if not changes:
        return "every verdict is the recorded one."
    rows = "\n".join(f"  {c.claim}: recorded {c.recorded}, found {c.found}" for c in changes)
    return f"{len(changes)} not as recorded:\n{rows}"


def _summary(outcome: dict[str, Any]) -> dict[str, Any]:
    """The verdicts of a figure without its pictures and protocol."""
    claims = [
        {"panel": panel["name"], **claim}
        for panel in outcome["panels"]
        for claim in panel["claims"]
    ]
    kept = ("name", "title", "preset", "seed", "verdict", "failures", "seconds", "command")
    return {**{key: outcome[key] for key in kept}, "claims": claims}


def _print_verdicts(outcomes: list[dict[str, Any]]) -> None:
    table = Table("panel", "verdict", "claim", "measured", "limit")
    for outcome in outcomes:
        for failure in outcome["failures"]:
            table.add_row(outcome["name"], "[red]not computed[/red]", failure, "", "")
        for claim in _summary(outcome)["claims"]:
            colour = {"holds": "green", "holds in part": "yellow"}.get(claim["verdict"], "red")
            verdict = f"[{colour}]{claim['verdict']}[/{colour}]"
            row = (claim["panel"], verdict, claim["sentence"], claim["shown"], claim["tolerance"])
            table.add_row(*row)
    Console().print(table)
