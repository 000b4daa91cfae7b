"""`deeplin train`, as it happens, and `deeplin predict`: a network for a table, and new rows."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import numpy as np
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from deeplin.cli import options
from deeplin.cli.app import app, prepare_computing, seed_option, text_width
from deeplin.errors import InputError, positive_number, whole_number
from deeplin.files import whole_file
from deeplin.interrupt import prompt_interrupt

if TYPE_CHECKING:
    from deeplin.dynamics import Run

HOLD_OUT_ROWS, HELD_OUT = 1000, 0.2
"""Rows from which some are held out, and which share; of fewer, networks of folds are scored."""
MISSING = ("empty", "drop", "refuse")
BARS = "▁▂▃▄▅▆▇█"
SHOWN = 48


@app.command()
@options.grouped
def train(
    source: options.Source,
    table: options.Table,
    training: options.Training,
    depth: Annotated[int, typer.Option(help="Number of layers.")] = 10,
    width: Annotated[int | None, typer.Option(help="Hidden width.")] = None,
    initialization: Annotated[
        str,
        typer.Option(
            "--initialization",
            "--init",
            help="auto, gaussian, zero_layer, residual, identity, balanced, torch, xavier, he or "
            "orthogonal.",
        ),
    ] = "auto",
    scale: Annotated[float | None, typer.Option(help="Scale of the initialization.")] = None,
    learning_rate: Annotated[str, typer.Option(help="A number, or auto.")] = "auto",
    steps: Annotated[int, typer.Option(help="Most steps to take.")] = 20_000,
    test_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the rows to hold out and score, 0: none. Default: 0.2 of 1000 rows or "
            "more, else 5-fold cross-validation."
        ),
    ] = None,
    seed: Annotated[int, seed_option("Seed of the initialization and the rows held out.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the run is kept.")] = Path("run.npz"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older run.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Train on a table, watch loss and sharpness against 2/η, score it, and keep the run.

    The exit code is 1 when training did not settle or the prediction did not come true.
    """
    options.require_source(source)
    prepare_computing()
    from deeplin.dynamics.saved import check_run_path, save_run
    from deeplin.report.text import training_text
    from deeplin.training import TrainingSpec
    from deeplin.training.recipe import train_on_table

    if check_run_path(out).exists() and not overwrite:
        raise InputError(f"{str(out)!r} holds a run already; pass another --out, or --overwrite.")
    spec = TrainingSpec(*training)
    start = {"depth": depth, "width": width, "initialization": initialization, "scale": scale}
    rate = (
        learning_rate
        if learning_rate == "auto"
        else positive_number("learning-rate", learning_rate)
    )
    with prompt_interrupt("deeplin: interrupted; no run was kept"):
        reading = table.read(source, test_share=test_share or 0.0, seed=seed)
        problem = reading.problem
        known = problem.inputs is not None and test_share is None
        if known and problem.samples >= HOLD_OUT_ROWS and source != "-":
            reading = table.read(source, test_share=HELD_OUT, seed=seed)
        folds = known and reading.held_out is None
        with LiveTraining(whole_number("steps", steps)) as live:
            report = train_on_table(
                reading,
                spec,
                start=start,
                learning_rate=rate,
                steps=steps,
                seed=seed,
                folds=folds,
                announce=live.restart,
                watch=live.watch,
            )
    settings = {"learning_rate": learning_rate, "seed": seed, **start, **asdict(spec)}
    settings |= {name: getattr(table, name) for name in ("standardize", "intercept", "missing")}
    values = report.as_json()
    kept = save_run(out, reading.problem, report.run, notes={"settings": settings, **values})
    if as_json:
        values["run"] = str(kept)
        typer.echo(json.dumps(values, ensure_ascii=False, indent=2))
    else:
        typer.echo(training_text(report, str(kept), text_width()))
    if report.verdict.came_true is False or not report.done:
        raise typer.Exit(1)


class LiveTraining(Live):
    """A small table on stderr, redrawn at every record; nothing at all without a terminal.

    `watch` has the form that `gradient_descent(..., watch=...)` expects.
    """

    def __init__(self, steps: int, console: Console | None = None):
        super().__init__(console=console or Console(stderr=True), transient=True)
        self.steps = steps
        self.restart(math.nan)

    def restart(self, learning_rate: float, diverged: Run | None = None) -> None:
        """Begin again, with this learning rate, after a run that diverged."""
        self.rate = learning_rate
        self.risks: list[float] = []
        self.sharpnesses: list[float] = []

    def watch(self, step: int, quantities: Mapping[str, np.ndarray]) -> None:
        """Note one record and redraw."""
        self.risks.append(float(quantities["risk"][0]))
        self.sharpnesses.append(float(quantities["sharpness"][0]))
        self.update(self.table(step))

    def table(self, step: int) -> Table:
        """Loss and sharpness now, and how they got here."""
        title = f"step {step} of {self.steps}, learning rate η = {self.rate:.4g}"
        table = Table("quantity", "now", "along the run", title=title)
        table.add_row("loss", f"{self.risks[-1]:.4g}", bars(np.log10(self.risks)))
        table.add_row("sharpness", f"{self.sharpnesses[-1]:.4g}", bars(self.sharpnesses))
        ratio = self.sharpnesses[-1] * self.rate / 2
        table.add_row("sharpness · η/2", f"{ratio:.3f}", "stable" if ratio <= 1 else "unstable")
        return table


def bars(values: Any) -> str:
    """The last values as a line of bars, from the smallest to the largest of them."""
    shown = np.asarray(values, dtype=float)[-SHOWN:]
    finite = shown[np.isfinite(shown)]
    if len(finite) == 0:
        return ""
    low, span = finite.min(), np.ptp(finite) or 1.0
    top = len(BARS) - 1
    heights = np.nan_to_num((shown - low) / span, nan=1.0, posinf=1.0, neginf=0.0)
    return "".join(BARS[int(height * top)] for height in heights)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run saved by `deeplin train`.")],
    source: options.Source,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; none: standard output.")
    ] = None,
    missing: Annotated[
        str, typer.Option(help="Rows that cannot be predicted: empty (cell), drop, or refuse.")
    ] = "empty",
    row_numbers: Annotated[
        bool, typer.Option("--row-numbers", help="A first column with the number of the row.")
    ] = False,
) -> None:
    """Predict the targets of new rows, as CSV, one line for each row; of classes, also how likely.

    Rows with a missing value or a category that was not there in training have an empty cell, and
    standard error says which. With `--missing drop` a first column has the numbers of the rows.
    """
    options.require_source(source)
    if missing not in MISSING:
        raise InputError(f"missing is {missing!r}; pass {', '.join(MISSING)}.")
    prepare_computing()
    from deeplin.dynamics.saved import load_run
    from deeplin.tables.preparation import TablePredictions

    if not run.exists():
        raise InputError(f"there is no file {str(run)!r}; pass a run saved by `deeplin train`.")
    _, outcome = load_run(run)
    if outcome.preparation is None:
        raise InputError(
            f"{str(run)!r} does not know the table it was trained on; pass a run saved by "
            "`deeplin train`."
        )
    found = TablePredictions(source, outcome.preparation, np.asarray(outcome.network.product))
    numbered = row_numbers or missing == "drop"
    chunks = iter(found)
    first = next(chunks)  # what is wrong with the columns is said before a file is opened

    def lines() -> Iterator[list[Any]]:
        prepared, row = found.preparation, 0
        names = [*prepared.targets]
        names += [f"P({names[0]}={label})" for label in prepared.classes]
        for number, values in enumerate(chain([first], chunks)):
            if missing == "refuse" and found.notes:
                raise InputError(f"{found.notes[0]} Pass --missing empty or drop.")
            if number == 0:
                yield ["row", *names] if numbered else names
            cells = values.tolist()
            if prepared.classes:
                labels = prepared.predictions(values).tolist()
                chances = prepared.probabilities(values).tolist()
                cells = [[label, *each] for label, each in zip(labels, chances, strict=True)]
            for line, lacking in zip(cells, map(np.any, np.isnan(values)), strict=True):
                row += 1
                if not (lacking and missing == "drop"):
                    line = [""] * len(names) if lacking else line
                    yield [row, *line] if numbered else line

    def write_rows(file: TextIO) -> None:
        csv.writer(file, lineterminator="\n").writerows(lines())

    def write(path: Path) -> None:
        # Whole or not at all: a bad row far down must not cost an older file.
        with whole_file(path) as file, TextIOWrapper(file, "utf-8", newline="") as text:
            write_rows(text)

    if out is None:
        write_rows(sys.stdout)
    else:
        options.write_file(out, write)
    for note in found.notes:
        typer.echo(f"deeplin: {note}", err=True)
