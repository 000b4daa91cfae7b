"""`deeplin reproduce`: compute figures, check what the papers say about them, write a report."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from deeplin.cli.app import app, ending_on_interrupt, prepare_computing, seed_option, text_width


@app.command()
def reproduce(
    figures: Annotated[
        list[str] | None, typer.Argument(help="Figures such as FM-2 or BO-1; default: all.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="quick (seconds), or paper (the full protocol).")
    ] = "quick",
    out: Annotated[
        Path, typer.Option(help="Folder for results/ (used to resume) and report/index.html.")
    ] = Path("."),
    workers: Annotated[int, typer.Option(help="Number of studies computed in parallel.")] = 1,
    seed: Annotated[int, seed_option("Seed of the initial weights; 0: the FM authors' own.")] = 0,
    listed: Annotated[
        bool, typer.Option("--list", help="List the figures with their times; compute nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Reproduce figures of the papers and the talk; exit with 1 if a verdict has changed.

    It can be interrupted at any time: the same command resumes where it stopped.
    """
    if listed:
        return _print_list(figures)
    typer.echo("deeplin: reproducing; Ctrl-C stops, the same command goes on.", err=True)
    prepare_computing()
    from deeplin.papers import catalogue, sentences, verdicts
    from deeplin.papers.figures import reproduce as reproduced
    from deeplin.papers.figures import select
    from deeplin.papers.report import ending, figure_lines, write_figure, write_page
    from deeplin.sweep import Board

    chosen = select(catalogue.FIGURES, figures)
    report = out / "report"
    board = Board("reproduce", verdicts.read(preset, "seconds"))
    results = reproduced(
        chosen,
        out / "results",
        preset=preset,
        seed=seed,
        workers=workers,
        quotes=sentences.QUOTES,
        progress=board.part,
    )
    outcomes = []
    again = shlex.join(["deeplin", *sys.argv[1:]])
    stopped = f"deeplin: interrupted. What is finished is kept; to go on: {again}"
    with ending_on_interrupt(stopped), board:
        for result in results:
            outcomes.append(write_figure(result, report))
            write_page(report, [f.name for f in catalogue.FIGURES], sentences.LEFT_OUT)
            if not as_json:
                board.say(figure_lines(outcomes[-1], text_width()))
    if as_json:
        lines = {"summary": verdicts.summary(verdicts.collect(outcomes))}
        figures_found = [_without_panels(outcome) for outcome in outcomes]
        typer.echo(json.dumps(lines | {"figures": figures_found}, ensure_ascii=False))
    else:
        typer.echo(ending(outcomes, report / "index.html", text_width()))
    if verdicts.changes(outcomes) or any(outcome["failures"] for outcome in outcomes):
        raise typer.Exit(1)


def _print_list(names: list[str] | None) -> None:
    """Print one line per figure, with its title and the time that each preset takes."""
    from deeplin.papers import catalogue, verdicts
    from deeplin.papers.figures import PRESETS, select
    from deeplin.papers.report import duration

    for figure in select(catalogue.FIGURES, names):
        times = []
        for preset in PRESETS:
            known = verdicts.read(preset, "seconds")
            recorded = all(study.name in known for study in figure.studies)
            total = duration(sum(known[study.name] for study in figure.studies)) if recorded else ""
            times.append(f"{preset} {total or 'not recorded'}")
        typer.echo(f"{figure.name:<12}{figure.title}: {', '.join(times)}")
    typer.echo("Seconds of one core; figures that share runs compute them once.")


def _without_panels(outcome: dict[str, Any]) -> dict[str, Any]:
    """Return the verdicts and answers of a figure, without its panels and protocol."""
    kept = ("name", "title", "preset", "seed", "quotes", "theorems", "failures", "seconds")
    questions = [q for panel in outcome["panels"] for q in panel["questions"]]
    return {**{key: outcome[key] for key in kept}, "questions": questions}
