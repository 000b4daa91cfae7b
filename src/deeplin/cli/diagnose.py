"""`deeplin diagnose`: which learning rates can work on a table, at which depth, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deeplin.cli import options
from deeplin.cli.app import app, prepare_computing, seed_option, text_width


@app.command()
@options.grouped
def diagnose(
    source: options.Source,
    table: options.Table,
    training: options.Training,
    depth: Annotated[str, typer.Option(help="Depths: 10, or 2,5,10, or 2..40.")] = "10",
    init: Annotated[
        str, typer.Option(help="Start to simulate: torch, xavier, he, orthogonal, small or none.")
    ] = "torch",
    readout: Annotated[
        str | None, typer.Option(help="Fixed read-out p: its entries 1,0,0, or its norm.")
    ] = None,
    width: Annotated[int | None, typer.Option(help="Hidden width.")] = None,
    seed: Annotated[int, seed_option("Seed of the starts.")] = 0,
    details: Annotated[
        bool, typer.Option("--details", help="Also spectrum, sharpness and tables by depth.")
    ] = False,
    as_json: options.AsJson = False,
    html: Annotated[Path | None, typer.Option(help="Write the diagnosis as one page.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the picture (.svg, .png, .pdf).")] = None,
) -> None:
    """Say which learning rate works on a table, for amounts or classes, and what to expect.

    A few starts of the kind `--init` are simulated: the rate given works from those.
    """
    depths, vector = options.parse_depths(depth), options.parse_readout(readout)
    options.require_source(source)
    prepare_computing()
    from deeplin.report.text import diagnosis_text
    from deeplin.training import TrainingSpec
    from deeplin.training.diagnosis import diagnose as diagnose_problem

    reading = table.read(source)
    found = diagnose_problem(
        reading,
        depths,
        optimizer=TrainingSpec(*training),
        initialization=None if init == "none" else init,
        readout=vector,
        width=width,
        seed=seed,
    )
    if html is not None:
        from deeplin.report.diagnosis_page import as_page

        page = as_page(found, f"{Path(source).name}: {', '.join(reading.targets)}")
        options.write_file(html, lambda path: path.write_text(page, encoding="utf-8"))
    if plot is not None:
        from deeplin.report.diagnosis_page import draw_diagnosis

        options.write_file(plot, lambda path: draw_diagnosis(found).savefig(path, dpi=160))
    if as_json:
        typer.echo(json.dumps(found.as_json(), ensure_ascii=False, indent=2))
    else:
        typer.echo(diagnosis_text(found, text_width(), details=details))
