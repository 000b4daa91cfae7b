"""`deeplin predict`: apply a trained network to new rows."""

from __future__ import annotations

import csv
import json
import sys
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import numpy as np
import typer

from deeplin.checks import InputError, finite_array
from deeplin.cli import options as table
from deeplin.cli.app import app
from deeplin.files import whole_file

if TYPE_CHECKING:
    from deeplin.problems.formats import Column


class Model(NamedTuple):
    """The linear map that a run learned, in the units of its table."""

    columns: tuple[Column, ...]
    targets: tuple[str, ...]
    coefficients: np.ndarray
    intercepts: np.ndarray


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run saved by `deeplin train`.")],
    source: table.Source,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; none: standard output.")
    ] = None,
) -> None:
    """Predict the targets of new rows, as CSV, from the inputs that the run was trained on."""
    table.require_source(source)
    model = read_model(run)
    from deeplin.problems.reading import stream_rows

    chunks = stream_rows(source, model.columns)
    first = next(chunks, None)
    if first is None:
        raise InputError(f"{source!r} holds no row; pass a table with at least one.")

    def write_rows(file: TextIO) -> None:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(model.targets)
        for rows in chain([first], chunks):
            writer.writerows((rows @ model.coefficients + model.intercepts).tolist())

    def write(path: Path) -> None:
        # Whole or not at all: a bad row far down must not cost an older file.
        with whole_file(path) as file, TextIOWrapper(file, "utf-8", newline="") as text:
            write_rows(text)

    if out is None:
        write_rows(sys.stdout)
    else:
        table.write_file(out, write)


def read_model(run: Path) -> Model:
    """What `deeplin train` wrote beside the run; a damaged file gets one sentence."""
    from deeplin.problems.formats import Column

    path = run.with_suffix(".json")
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        columns = tuple(Column(str(name), category) for name, category in found["columns"])
        targets = tuple(map(str, found["targets"]))
        coefficients = finite_array("coefficients", found["coefficients"], (2,)).T
        intercepts = finite_array("intercepts", found["intercepts"], (1,))
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r} ({error.strerror}); `deeplin train` writes it beside the "
            "run, pass one that has it."
        ) from error
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise InputError(
            f"{str(path)!r} does not describe a trained table ({error}); pass a run saved by "
            "`deeplin train`."
        ) from error
    if coefficients.shape != (len(columns), len(targets)) or len(intercepts) != len(targets):
        raise InputError(
            f"{str(path)!r} has {coefficients.shape} coefficients for {len(columns)} inputs and "
            f"{len(targets)} targets; pass a run saved by `deeplin train`."
        )
    return Model(columns, targets, coefficients, intercepts)
