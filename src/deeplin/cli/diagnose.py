"""`deeplin diagnose`: which learning rates can work on a table, at which depth, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deeplin.cli.app import app
from deeplin.cli.table_options import (
    AsJson,
    Cluster,
    Ignore,
    Intercept,
    Missing,
    Source,
    Standardize,
    Target,
    parse_depths,
    parse_readout,
    read_table,
    write_file,
)


@app.command()
def diagnose(
    source: Source,
    target: Target,
    depth: Annotated[str, typer.Option(help="Depths: 10, or 2,5,10, or 2..40.")] = "2,3,5,10,20,40",
    readout: Annotated[
        str | None, typer.Option(help="Fixed read-out p: its entries 1,0,0, or its norm.")
    ] = None,
    width: Annotated[int | None, typer.Option(help="Hidden width of the scales reported.")] = None,
    ignore: Ignore = None,
    standardize: Standardize = False,
    intercept: Intercept = False,
    missing: Missing = "refuse",
    cluster: Cluster = None,
    seed: Annotated[int, typer.Option(help="Seed of the initialisations drawn for FM-A2.")] = 0,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option(help="Write the diagnosis as one page.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the picture (.svg, .png, .pdf).")] = None,
) -> None:
    """Say which learning rates can work on a table, and whether interpolation is benign."""
    from deeplin.report.diagnosis import as_page, as_text, draw_diagnosis
    from deeplin.theory.diagnosis import diagnose as diagnose_problem

    depths, vector = parse_depths(depth), parse_readout(readout)
    reading = read_table(
        source,
        target,
        ignore,
        standardize=standardize,
        intercept=intercept,
        missing=missing,
        cluster=cluster,
    )
    found = diagnose_problem(
        reading.problem,
        depths,
        readout=vector,
        names=reading.inputs,
        notes=reading.notes,
        width=width,
        seed=seed,
    )
    if html is not None:
        page = as_page(found, f"{Path(source).name}: {reading.targets[0]}")
        write_file(html, lambda path: path.write_text(page, encoding="utf-8"))
    if plot is not None:
        write_file(plot, lambda path: draw_diagnosis(found).savefig(path, dpi=160))
    values = found.as_json()
    typer.echo(json.dumps(values, ensure_ascii=False, indent=2) if as_json else as_text(found))
