"""`deeplin reproduce`: run figures, judge their claims, write the report."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from deeplin.cli.app import app, prepare_computing, seed_option, text_width


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
    typer.echo("deeplin: reproducing; Ctrl-C stops, the same command goes on.", err=True)
    prepare_computing()
    from deeplin.papers import catalogue, recorded
    from deeplin.papers.report import ending, figure_lines, write_figure, write_page
    from deeplin.sweep import Board, prompt_interrupt

    chosen = catalogue.select(catalogue.FIGURES, figures)
    report = out / "report"
    board = Board("reproduce", recorded.seconds(preset))
    results = catalogue.reproduce(
        chosen,
        out / "results",
        preset=preset,
        seed=seed,
        workers=workers,
        progress=board.part,
    )
    outcomes = []
    again = shlex.join(["deeplin", *sys.argv[1:]])
    stopped = f"deeplin: interrupted. What is finished is kept; to go on: {again}"
    with prompt_interrupt(stopped), board:
        for result in results:
            outcomes.append(write_figure(result, report))
            write_page(report, [figure.name for figure in catalogue.FIGURES])
            if not as_json:
                board.say(figure_lines(outcomes[-1], text_width()))
    changes = recorded.changes(recorded.verdicts(outcomes), recorded.read(preset))
    if as_json:
        typer.echo(json.dumps([_summary(outcome) for outcome in outcomes], ensure_ascii=False))
    else:
        typer.echo(ending(outcomes, changes, report / "index.html", text_width()))
    if changes or any(outcome["failures"] for outcome in outcomes):
        raise typer.Exit(1)


def _summary(outcome: dict[str, Any]) -> dict[str, Any]:
    """The verdicts of a figure without its pictures and protocol."""
    claims = [
        {"panel": panel["name"], **claim}
        for panel in outcome["panels"]
        for claim in panel["claims"]
    ]
    kept = ("name", "title", "preset", "seed", "verdict", "failures", "seconds", "command")
    return {**{key: outcome[key] for key in kept}, "claims": claims}
