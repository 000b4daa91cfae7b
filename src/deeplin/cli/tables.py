"""Commands on tables: `deeplin diagnose`, `deeplin train` and `deeplin predict`."""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import wraps
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO, get_args, get_type_hints

import numpy as np
import typer
from rich.console import Console
from rich.live import Live

from deeplin.cli.app import (
    AsJson,
    app,
    ending_on_interrupt,
    prepare_computing,
    seed_option,
    text_width,
)
from deeplin.errors import InputError, positive_number, whole_number
from deeplin.files import whole_file

if TYPE_CHECKING:
    from deeplin.tables.reading import Reading

HOLD_OUT_ROWS, HELD_OUT_SHARE = 1000, 0.2
"""Fewest rows at which some are held out, and their share; with fewer rows, cross-validation."""
MISSING_POLICIES = ("empty", "drop", "refuse")

# --- shared options ------------------------------------------------------------------------------

Source = Annotated[
    str,
    typer.Argument(help="CSV, Parquet, Feather or Excel file; - for standard input."),
]


class TableOptions(NamedTuple):
    """Options that determine which table is read, and how."""

    target: Annotated[list[str], "Column to predict (-1: the last); may be repeated."]
    task: Annotated[str, "regression, classification, or auto: classes if text or two values."] = (
        "auto"
    )
    ignore: Annotated[list[str] | None, "Column to leave out; may be repeated."] = None
    keep: Annotated[
        list[str] | None, "Column to use even if it has no name or holds row numbers."
    ] = None
    encode: Annotated[bool, "Encode text as categories: one 0/1 column for each value."] = False
    categorical: Annotated[
        list[str] | None, "Numeric column to treat as categories; may be repeated."
    ] = None
    raw: Annotated[
        bool, "Use the columns as they are; default: mean 0 and deviation 1 (StandardScaler)."
    ] = False
    intercept: Annotated[bool, "Subtract the means, which fits an intercept."] = True
    missing: Annotated[str, "Missing values: refuse, drop the rows, or median of the column."] = (
        "refuse"
    )
    decimal: Annotated[str | None, "Decimal mark of text, . or ,; default: detected."] = None
    thousands: Annotated[str | None, "Mark between groups of digits; default: detected."] = None
    memory: Annotated[int, "MiB of a table to keep in memory; of a larger one, only moments."] = 128

    def read(self, source: str, **more: Any) -> Reading:
        """Read the problem from a table; one target is a vector, several are a matrix."""
        from deeplin.tables.reading import read_problem

        options = self._asdict()
        target = options.pop("target")
        for name in ("ignore", "keep", "categorical"):
            options[name] = options[name] or ()
        options["standardize"] = options["scale_targets"] = not options.pop("raw")
        options["memory"] = whole_number("memory", self.memory) * 2**20
        wanted = target[0] if len(target) == 1 else target
        return read_problem(source, wanted, **options, **more)


class Training(NamedTuple):
    """Options of training, the fields of `deeplin.training.TrainingSpec`."""

    momentum: Annotated[float, "Heavy-ball coefficient β."] = 0.0
    nesterov: Annotated[bool, "Nesterov's form of the momentum."] = False
    batch_size: Annotated[int | None, "Rows of a mini-batch; default: all rows."] = None
    weight_decay: Annotated[float, "λ of the penalty λΣ‖W‖² (half of PyTorch's weight_decay)."] = (
        0.0
    )
    reduction: Annotated[str, "The loss over the samples: mean or sum."] = "mean"
    half: Annotated[bool, "The loss has a factor ½."] = False
    optimizer: Annotated[str, "descent, sam, adam or rmsprop."] = "descent"
    rho: Annotated[float, "ρ of SAM: the step up is ρ times the gradient."] = 0.05
    beta1: Annotated[float, "β₁ of Adam."] = 0.9
    epsilon: Annotated[float, "ε of Adam and RMSProp."] = 1e-8


def expand_option_groups(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command in which each group of options is replaced by its fields.

    Each field of a group becomes an option of the same name, with the text of its annotation as
    help; a flag has a form `--no-…` only if it is on by default.
    """
    groups: dict[str, Any] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        kind = parameter.annotation
        if not hasattr(kind, "_fields"):
            options.append(parameter)
            continue
        groups[name] = kind
        hints = get_type_hints(kind, include_extras=True)
        for member in inspect.signature(kind).parameters.values():
            type_, text = get_args(hints[member.name])
            flag = f"--{member.name.replace('_', '-')}"
            flag += f"/--no-{member.name}" if member.default is True else ""
            option = typer.Option(flag, help=text, rich_help_panel=kind.__name__)
            options.append(member.replace(annotation=Annotated[type_, option]))

    @wraps(function)
    def command(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field: values.pop(field) for field in kind._fields})
        function(**values)

    by_name = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    command.__signature__ = inspect.Signature(by_name)  # pyright: ignore
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


def require_source(source: str) -> None:
    """Raise InputError for a missing file, before any slow import."""
    if source != "-" and not Path(source).exists():
        raise InputError(f"there is no file {source!r}; pass a CSV, Parquet or Excel file.")


def parse_depths(text: str) -> list[int]:
    """Return the depths written as 10, as 2,5,10 or as 2..40."""
    try:
        depths: list[int] = []
        for part in text.split(","):
            first, dots, last = part.partition("..")
            depths += range(int(first), int(last if dots else first) + 1)
    except ValueError:
        depths = []
    if not depths or min(depths) < 1 or max(depths) > 10_000:
        raise InputError(f"depth is {text!r}; pass depths from 1, such as 10, 2,5,10 or 2..40.")
    return depths


Biases = Annotated[
    bool,
    typer.Option("--bias/--no-bias", help="Give starts of PyTorch the biases of nn.Linear."),
]

# --- diagnose -------------------------------------------------------------------------------------


@app.command()
@expand_option_groups
def diagnose(
    source: Source,
    table: TableOptions,
    training: Training,
    depth: Annotated[str, typer.Option(help="Depths: 10, or 2,5,10, or 2..40.")] = "3",
    initialization: Annotated[
        str,
        typer.Option(
            "--initialization",
            "--init",
            help="Start: torch, xavier, he, orthogonal or gaussian (simulated), another one of "
            "`train`, or none.",
        ),
    ] = "torch",
    biases: Biases = True,
    width: Annotated[int | None, typer.Option(help="Hidden width.")] = None,
    seed: Annotated[int, seed_option("Seed of the starts.")] = 0,
    details: Annotated[
        bool, typer.Option("--details", help="Also print spectrum, sharpness and tables by depth.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find the learning rate that works on a table, for regression or classification.

    Starts of the kind `--init` are simulated; the printed rate works from all of them.
    """
    depths = parse_depths(depth)
    require_source(source)
    prepare_computing()
    from deeplin.training import TrainingSpec
    from deeplin.training.diagnosis import diagnose as diagnose_problem
    from deeplin.training.text import diagnosis_text

    reading = table.read(source)
    found = diagnose_problem(
        reading,
        depths,
        optimizer=TrainingSpec(*training),
        initialization=None if initialization == "none" else initialization,
        biases=biases,
        width=width,
        seed=seed,
    )
    if as_json:
        typer.echo(json.dumps(found.as_json(), ensure_ascii=False, indent=2))
    else:
        typer.echo(diagnosis_text(found, text_width(), details=details))


# --- train ----------------------------------------------------------------------------------------


@app.command()
@expand_option_groups
def train(
    source: Source,
    table: TableOptions,
    training: Training,
    depth: Annotated[int, typer.Option(help="Number of layers.")] = 3,
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
    biases: Biases = True,
    scale: Annotated[float | None, typer.Option(help="Scale of the initialization.")] = None,
    learning_rate: Annotated[str, typer.Option(help="A number, or auto.")] = "auto",
    steps: Annotated[int, typer.Option(help="Maximum number of steps.")] = 20_000,
    test_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the rows to hold out for scoring; 0: none. Default: 0.2 from 1000 rows "
            "on, else 5-fold cross-validation."
        ),
    ] = None,
    seed: Annotated[int, seed_option("Seed of the initialization and the rows held out.")] = 0,
    out: Annotated[Path, typer.Option(help="File in which to save the run.")] = Path("run.npz"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train on a table, show loss and sharpness against 2/η, score the network, and save the run.

    The exit code is 1 if training did not settle.
    """
    require_source(source)
    prepare_computing()
    from deeplin.dynamics.saved import check_run_path, save_run
    from deeplin.training import TrainingSpec, advise_start
    from deeplin.training._train import train_on_table
    from deeplin.training.text import training_text

    if check_run_path(out).exists() and not overwrite:
        raise InputError(f"{str(out)!r} holds a run already; pass another --out, or --overwrite.")
    spec = TrainingSpec(*training)
    start = {
        "depth": depth,
        "width": width,
        "initialization": initialization,
        "biases": biases,
        "scale": scale,
    }
    rate = (
        learning_rate
        if learning_rate == "auto"
        else positive_number("learning-rate", learning_rate)
    )
    with ending_on_interrupt("deeplin: interrupted; no run was kept"):
        reading = table.read(source, seed=seed)
        first_rate = None
        if rate == "auto":  # of all rows, as `diagnose` advises it
            advice = advise_start(reading.problem, optimizer=spec, seed=seed, **start)
            first_rate = advice.learning_rate
        known = reading.problem.inputs is not None and test_share is None
        many = known and reading.problem.samples >= HOLD_OUT_ROWS
        share = HELD_OUT_SHARE if many else test_share
        if share:
            reading = table.read(source, test_share=share, seed=seed)
        with LiveTraining(whole_number("steps", steps)) as live:
            report = train_on_table(
                reading,
                spec,
                start=start,
                learning_rate=rate,
                steps=steps,
                seed=seed,
                folds=known and not share,
                first_rate=first_rate,
                announce=live.restart,
                watch=live.watch,
            )
    settings = {"learning_rate": learning_rate, "seed": seed, **start, **asdict(spec)}
    settings |= {name: getattr(table, name) for name in ("raw", "intercept", "missing")}
    values = report.as_json()
    kept = save_run(out, reading.problem, report.run, notes={"settings": settings, **values})
    if as_json:
        values["run"] = str(kept)
        typer.echo(json.dumps(values, ensure_ascii=False, indent=2))
    else:
        typer.echo(training_text(report, str(kept), text_width()))
    if not report.done:
        raise typer.Exit(1)


class LiveTraining(Live):
    """A line on stderr that is renewed at every record; not shown without a terminal.

    `watch` has the form that `gradient_descent(..., watch=...)` expects.
    """

    def __init__(self, steps: int, console: Console | None = None):
        super().__init__(console=console or Console(stderr=True), transient=True)
        self.steps = steps
        self.rate = math.nan

    def restart(self, learning_rate: float) -> None:
        """Start again with this learning rate, after a run that diverged."""
        self.rate = learning_rate

    def watch(self, step: int, quantities: Mapping[str, np.ndarray]) -> None:
        """Show the loss and the sharpness of a record."""
        risk, sharpness = (float(quantities[name][0]) for name in ("risk", "sharpness"))
        self.update(
            f"step {step} of {self.steps}: loss {risk:.4g}, sharpness {sharpness:.4g}, which is "
            f"{sharpness * self.rate / 2:.3f} times 2/η at learning rate η = {self.rate:.4g}"
        )


# --- predict --------------------------------------------------------------------------------------


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run saved by `deeplin train`.")],
    source: Source,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; default: standard output.")
    ] = None,
    missing: Annotated[
        str, typer.Option(help="Rows that cannot be predicted: empty (cell), drop, or refuse.")
    ] = "empty",
) -> None:
    """Predict the targets of new rows, one CSV line per row; for classes, also probabilities.

    Rows with a missing value or with a category unseen in training get empty cells and are listed
    on standard error. With `--missing drop` the first column holds the row numbers.
    """
    require_source(source)
    if missing not in MISSING_POLICIES:
        raise InputError(f"missing is {missing!r}; pass {', '.join(MISSING_POLICIES)}.")
    prepare_computing()
    import pandas as pd

    from deeplin.dynamics.saved import load_run
    from deeplin.tables.predictions import TablePredictions

    if not run.exists():
        raise InputError(f"there is no file {str(run)!r}; pass a run saved by `deeplin train`.")
    _, outcome = load_run(run)
    if outcome.preparation is None:
        raise InputError(
            f"{str(run)!r} does not know the table it was trained on; pass a run saved by "
            "`deeplin train`."
        )
    network, prepared = outcome.network, outcome.preparation
    found = TablePredictions(
        source, prepared, np.asarray(network.product), np.asarray(network.intercept)
    )
    names = [*prepared.targets]
    names += [f"P({names[0]}={label})" for label in prepared.classes]

    def write(file: TextIO) -> None:
        written = 0
        for values in found:
            if missing == "refuse" and (found.missing or found.unseen):
                raise InputError(f"{found.notes[0]} Pass --missing empty or drop.")
            columns = [*values.T]
            if prepared.classes:
                columns = [prepared.predictions(values), *prepared.probabilities(values).T]
            rows = pd.RangeIndex(written + 1, found.rows + 1)
            frame = pd.DataFrame(dict(zip(names, columns, strict=True)), rows)
            kept = frame[~np.isnan(values).any(axis=1)] if missing == "drop" else frame
            kept.to_csv(
                file,
                index=missing == "drop",
                index_label="row",
                header=not written,
                lineterminator="\n",
            )
            written = found.rows

    if out is None:
        write(sys.stdout)
    else:
        try:  # the whole file or nothing: a bad row must not destroy an older file
            with whole_file(out) as file, TextIOWrapper(file, "utf-8", newline="") as text:
                write(text)
        except OSError as error:
            raise InputError(f"cannot write {str(out)!r}: {error}") from error
    for note in found.notes:
        typer.echo(f"deeplin: {note}", err=True)
