"""`deeplin train`, as it happens, and `deeplin predict`: a network for a table, and new rows."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
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
    from deeplin.tables.reading import Reading
    from deeplin.training import TrainingSpec

RECORDS = 400
"""Records along a run, as long as their weights together stay below `KEPT` numbers."""
KEPT = 2**25
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

    if check_run_path(out).exists() and not overwrite:
        raise InputError(f"{str(out)!r} holds a run already; pass another --out, or --overwrite.")
    spec = TrainingSpec(*training)
    start = {"depth": depth, "width": width, "initialization": initialization, "scale": scale}
    with prompt_interrupt("deeplin: interrupted; no run was kept"):
        reading = table.read(source, test_share=test_share or 0.0, seed=seed)
        problem = reading.problem
        known = problem.inputs is not None and test_share is None
        if known and problem.samples >= HOLD_OUT_ROWS and source != "-":
            reading = table.read(source, test_share=HELD_OUT, seed=seed)
        folds = known and reading.held_out is None
        run, report = _train(reading, start, _rate(learning_rate), spec, steps, seed, folds)
    settings = {"learning_rate": learning_rate, "seed": seed, **start, **asdict(spec)}
    settings |= {name: getattr(table, name) for name in ("standardize", "intercept", "missing")}
    run = replace(run, preparation=reading.preparation)
    kept = save_run(out, reading.problem, run, notes={"settings": settings, **report})
    report["run"] = str(kept)
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        typer.echo(training_text(report, text_width()))
    if report["came_true"] is False or not report["done"]:
        raise typer.Exit(1)


def _rate(text: str) -> Any:
    return text if text == "auto" else positive_number("learning-rate", text)


def _train(
    reading: Reading,
    start: dict[str, Any],
    rate: Any,
    spec: TrainingSpec,
    steps: int,
    seed: int,
    folds: bool,
) -> tuple[Run, dict[str, Any]]:
    """Train while showing it, compare with the prediction, score it, and report everything."""
    import jax

    from deeplin.hessian import sharpness
    from deeplin.report.text import conditioning
    from deeplin.training import descend, judge, predict, starting_network
    from deeplin.training.evaluation import cross_validate, r_squared, score_rows

    problem = reading.problem
    problem.require_signal("what to train for")
    first, batches = jax.random.split(jax.random.key(seed))
    network = starting_network(problem, first, **start)
    size = sum(weight.size for weight in network.weights)
    records = max(2, min(KEPT // size, RECORDS))
    options: dict[str, Any] = {"optimizer": spec, "key": batches}
    with LiveTraining(whole_number("steps", steps)) as live:
        run = descend(
            problem,
            network,
            rate,
            steps,
            announce=live.restart,
            watch=live.watch,
            record_every=max(1, steps // records),
            **options,
        )
    factor = spec.loss_factor(problem)
    used = float(np.mean(np.asarray(run.learning_rate))) / factor
    prediction = predict(problem, network, used, spec)
    end = sharpness(problem, run.network)
    verdict = judge(prediction, run, end)

    def fit(part: Any) -> np.ndarray:
        """The same training on other rows."""
        begin = starting_network(part, first, **start)
        return np.asarray(descend(part, begin, used, int(run.steps), **options).network.product)

    product, prepared, left = run.network.product, reading.preparation, None
    if run.status != "diverged" and reading.held_out is not None:
        targets = problem.require_data("the mean of the targets")[1]
        mean = np.zeros(problem.outputs) if prepared.centered else np.mean(targets, axis=0)
        left = score_rows(problem, product, *reading.held_out, mean)
    elif run.status != "diverged" and folds:
        flags = {"centered": prepared.centered, "standardized": prepared.standardized}
        left = cross_validate(problem, fit, seed=seed, **flags)
    coefficients, intercepts = reading.in_table_units(product)
    return run, {
        "data": list(reading.notes),
        "advice": conditioning(problem.condition_number),
        "halvings": [[rate / factor, steps] for rate, steps in live.diverged],
        "inputs": list(reading.inputs),
        "columns": [[column.name, column.category] for column in reading.columns],
        "targets": list(reading.targets),
        "status": run.status,
        "steps": run.steps,
        "done": run.status == "converged" or (run.status == "stopped" and not prediction.settles),
        "optimizer": str(spec),
        "learning_rate": used,
        "critical_learning_rate": (
            None
            if math.isnan(prediction.critical_learning_rate)
            else prediction.critical_learning_rate
        ),
        "risk": run.evidence["risk"],
        "minimal_risk": problem.minimal_risk,
        "r_squared": _each(reading, r_squared(problem, product)),
        "r_squared_at_best": _each(reading, r_squared(problem)),
        "left_out": left
        and {
            "method": left.method,
            "network": _each(reading, left.network),
            "least_squares": _each(reading, left.least_squares),
        },
        "sharpness": float(end.value),
        "minimal_sharpness": prediction.minimal_sharpness,
        "balanced_sharpness": prediction.balanced_sharpness,
        "prediction": str(prediction),
        "verdict": str(verdict),
        "came_true": verdict.came_true,
        "coefficients": coefficients.T.tolist(),
        "intercepts": intercepts.tolist(),
    }


def _each(reading: Reading, values: np.ndarray) -> dict[str, float]:
    """One value for each target by its name."""
    return dict(zip(reading.targets, values.tolist(), strict=True))


class LiveTraining(Live):
    """A small table on stderr, redrawn at every record; nothing at all without a terminal.

    `watch` has the form that `gradient_descent(..., watch=...)` expects.
    """

    def __init__(self, steps: int, console: Console | None = None):
        super().__init__(console=console or Console(stderr=True), transient=True)
        self.steps = steps
        self.diverged: list[tuple[float, int]] = []
        self.restart(math.nan)

    def restart(self, learning_rate: float, diverged: Run | None = None) -> None:
        """Begin again, with this learning rate, after a run that diverged."""
        if diverged is not None:
            self.diverged.append((float(diverged.learning_rate), int(diverged.steps)))  # pyright: ignore
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
    """Predict the targets of new rows, as CSV, one line for each row.

    Rows with a missing value or a category that was not there in training have an empty cell, and
    standard error says which. With `--missing drop` a first column has the numbers of the rows.
    """
    options.require_source(source)
    if missing not in MISSING:
        raise InputError(f"missing is {missing!r}; pass {', '.join(MISSING)}.")
    prepare_computing()
    from deeplin.dynamics.saved import load_run
    from deeplin.tables.predicting import TablePredictions

    if not run.exists():
        raise InputError(f"there is no file {str(run)!r}; pass a run saved by `deeplin train`.")
    _, outcome = load_run(run)
    if outcome.preparation is None:
        raise InputError(
            f"{str(run)!r} does not know the table it was trained on; pass a run saved by "
            "`deeplin train`."
        )
    model = np.asarray(outcome.network.product)
    found = TablePredictions(source, outcome.preparation, model)
    chunks = iter(found)
    first = next(chunks)
    numbered = row_numbers or missing == "drop"

    def write_rows(file: TextIO) -> None:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*(["row"] if numbered else []), *found.preparation.targets])
        row = 0
        for values in chain([first], chunks):
            if missing == "refuse" and found.notes:
                raise InputError(f"{found.notes[0]} Pass --missing empty or drop.")
            for line in values:
                row += 1
                lacking = np.isnan(line).any()
                if not (lacking and missing == "drop"):
                    cells = [""] * len(line) if lacking else line.tolist()
                    writer.writerow([row, *cells] if numbered else cells)

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
