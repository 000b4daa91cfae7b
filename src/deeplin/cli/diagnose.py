"""`deeplin diagnose`: which learning rates can work on a table, at which depth, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deeplin.cli import options
from deeplin.cli.app import app, prepare_computing, seed_option, text_width


@app.command()
def diagnose(
    source: options.Source,
    target: options.Target,
    depth: Annotated[str, typer.Option(help="Depths: 10, or 2,5,10, or 2..40.")] = "2,3,5,10,20,40",
    readout: Annotated[
        str | None, typer.Option(help="Fixed read-out p: its entries 1,0,0, or its norm.")
    ] = None,
    width: Annotated[int | None, typer.Option(help="Hidden width of the scales reported.")] = None,
    momentum: options.Momentum = 0.0,
    nesterov: options.Nesterov = False,
    batch_size: options.BatchSize = None,
    weight_decay: options.WeightDecay = 0.0,
    reduction: options.Reduction = "mean",
    half: options.Half = False,
    ignore: options.Ignore = None,
    keep: options.Keep = None,
    encode: options.Encode = False,
    standardize: options.Standardize = False,
    intercept: options.Intercept = False,
    missing: options.Missing = "refuse",
    memory: options.Memory = 128,
    cluster: options.Cluster = None,
    seed: Annotated[int, seed_option("Seed of the initialisations drawn for FM-A2.")] = 0,
    as_json: options.AsJson = False,
    html: Annotated[Path | None, typer.Option(help="Write the diagnosis as one page.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the picture (.svg, .png, .pdf).")] = None,
) -> None:
    """Say which learning rates can work on a table, and whether interpolation is benign."""
    depths, vector = options.parse_depths(depth), options.parse_readout(readout)
    options.require_source(source)
    prepare_computing()
    from deeplin.report.diagnosis import as_text
    from deeplin.training import Optimizer
    from deeplin.training.diagnosis import diagnose as diagnose_problem

    optimizer = Optimizer(momentum, nesterov, batch_size, weight_decay, reduction, half)

    reading = options.read(
        source, target, ignore=ignore, keep=keep, encode=encode, standardize=standardize,
        intercept=intercept, missing=missing, memory=memory, cluster=cluster,
    )  # fmt: skip
    found = diagnose_problem(
        reading.problem,
        depths,
        optimizer=optimizer,
        readout=vector,
        names=reading.inputs,
        targets=reading.targets,
        notes=reading.notes,
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
        typer.echo(as_text(found, text_width()))
