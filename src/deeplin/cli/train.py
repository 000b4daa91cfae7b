"""`deeplin train`, as it happens, and `deeplin predict`: a network for a table, and new rows."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import numpy as np
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from deeplin.cli import options
from deeplin.cli.app import app, prepare_computing, seed_option, text_width
from deeplin.errors import InputError, finite_array, positive_number, whole_number
from deeplin.files import whole_file
from deeplin.interrupt import prompt_interrupt

if TYPE_CHECKING:
    from deeplin.dynamics import Run
    from deeplin.tables.formats import Column
    from deeplin.tables.reading import Reading
    from deeplin.training import Optimizer

RECORDS = 400
"""Records along a run, as long as their weights together stay below `KEPT` numbers."""
KEPT = 2**25
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
        str, typer.Option(help="gaussian, zero_layer, residual, identity or balanced.")
    ] = "gaussian",
    scale: Annotated[float | None, typer.Option(help="Scale of the initialisation.")] = None,
    learning_rate: Annotated[str, typer.Option(help="A number, or auto.")] = "auto",
    steps: Annotated[int, typer.Option(help="Most steps to take.")] = 20_000,
    seed: Annotated[int, seed_option("Seed of the initialisation.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the run is kept.")] = Path("run.npz"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older run.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Train on a table, watch loss and sharpness against 2/η, and keep the run.

    The exit code is 1 when training did not settle or the prediction did not come true.
    """
    options.require_source(source)
    prepare_computing()
    from deeplin.dynamics.saved import check_run_path, save_run
    from deeplin.report.text import training_text
    from deeplin.training import Optimizer

    if check_run_path(out).exists() and not overwrite:
        raise InputError(f"{str(out)!r} holds a run already; pass another --out, or --overwrite.")
    optimizer = Optimizer(*training)
    start = {"depth": depth, "width": width, "initialization": initialization, "scale": scale}
    with prompt_interrupt("deeplin: interrupted; no run was kept"):
        reading = table.read(source)
        run, report = _train(reading, start, _rate(learning_rate), optimizer, steps, seed)
    settings = {"learning_rate": learning_rate, "seed": seed, **start, **asdict(optimizer)}
    settings |= {name: getattr(table, name) for name in ("standardize", "intercept", "missing")}
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
    optimizer: Optimizer,
    steps: int,
    seed: int,
) -> tuple[Run, dict[str, Any]]:
    """Train while showing it, compare with the prediction, and say everything in one report."""
    import jax

    from deeplin.hessian import sharpness
    from deeplin.training.diagnosis_words import conditioning
    from deeplin.training.overfitting import r_squared, r_squared_left_out
    from deeplin.training.prediction import judge, predict
    from deeplin.training.recipe import descend, starting_network

    problem = reading.problem
    problem.require_signal("what to train for")
    first, batches = jax.random.split(jax.random.key(seed))
    network = starting_network(problem, first, **start)
    size = sum(weight.size for weight in network.weights)
    records = max(2, min(KEPT // size, RECORDS))
    with LiveTraining(whole_number("steps", steps)) as live:
        run = descend(
            problem,
            network,
            rate,
            steps,
            optimizer=optimizer,
            key=batches,
            announce=live.restart,
            watch=live.watch,
            record_every=max(1, steps // records),
        )
    used = float(np.mean(np.asarray(run.learning_rate))) / optimizer.loss_factor(problem)
    prediction = predict(problem, network, used, optimizer)
    end = sharpness(problem, run.network)
    verdict = judge(prediction, run, end)
    centered = bool(np.any(reading.preparation.centre[-problem.outputs :] != 0))
    left_out = r_squared_left_out(problem, centered=centered)
    coefficients, intercepts = reading.in_table_units(run.network.product)
    return run, {
        "data": list(reading.notes),
        "advice": conditioning(problem.condition_number),
        "inputs": list(reading.inputs),
        "columns": [list(column) for column in reading.columns],
        "targets": list(reading.targets),
        "status": run.status,
        "steps": run.steps,
        "done": run.status == "converged" or (run.status == "stopped" and not prediction.settles),
        "optimizer": str(optimizer),
        "learning_rate": used,
        "critical_learning_rate": prediction.critical_learning_rate,
        "risk": run.evidence["risk"],
        "minimal_risk": problem.minimal_risk,
        "r_squared": _each(reading, r_squared(problem, run.network.product)),
        "r_squared_left_out": _each(reading, left_out),
        "sharpness": float(end.value),
        "minimal_sharpness": prediction.minimal_sharpness,
        "balanced_sharpness": prediction.balanced_sharpness,
        "prediction": str(prediction),
        "verdict": str(verdict),
        "came_true": verdict.came_true,
        "coefficients": coefficients.T.tolist(),
        "intercepts": intercepts.tolist(),
    }


def _each(reading: Reading, values: np.ndarray | None) -> dict[str, float]:
    """One value for each target by its name."""
    return {} if values is None else dict(zip(reading.targets, values.tolist(), strict=True))


class LiveTraining(Live):
    """A small table on stderr, redrawn at every record; nothing at all without a terminal.

    `watch` has the form that `gradient_descent(..., watch=...)` expects.
    """

    def __init__(self, steps: int, console: Console | None = None):
        super().__init__(console=console or Console(stderr=True), transient=True)
        self.steps = steps
        self.restart(math.nan)

    def restart(self, learning_rate: float) -> None:
        """Begin again, with this learning rate."""
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


class Model(NamedTuple):
    """The linear map that a run learned, in the units of its options."""

    columns: tuple[Column, ...]
    targets: tuple[str, ...]
    coefficients: np.ndarray
    intercepts: np.ndarray


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run saved by `deeplin train`.")],
    source: options.Source,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; none: standard output.")
    ] = None,
) -> None:
    """Predict the targets of new rows, as CSV, from the inputs that the run was trained on."""
    options.require_source(source)
    model = read_model(run)
    from deeplin.tables.reading import stream_rows

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
        options.write_file(out, write)


def read_model(run: Path) -> Model:
    """What `deeplin train` wrote beside the run; a damaged file gets one sentence."""
    from deeplin.tables.formats import Column

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
