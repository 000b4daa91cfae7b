"""Options that several commands have, and how their values are understood."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import numpy as np
import typer

from deeplin.errors import InputError, whole_number

if TYPE_CHECKING:
    from deeplin.tables.reading import Reading

Source = Annotated[
    str,
    typer.Argument(help="CSV, Parquet, Arrow, .npy, .npz, .xlsx; a folder, a glob, - for stdin."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def _named(name: str, help: str) -> Any:
    """An option by its name alone: a switch has no `--no-…`."""
    return typer.Option(f"--{name}", help=help)


class Table(NamedTuple):
    """Which table a command reads, and how."""

    target: Annotated[
        list[str], _named("target", "Column to predict (-1: the last); may be repeated.")
    ]
    task: Annotated[
        str,
        _named("task", "regression, classification, or auto: classes if text or two values."),
    ] = "auto"
    ignore: Annotated[
        list[str] | None, _named("ignore", "Column to leave out; may be repeated.")
    ] = None
    keep: Annotated[
        list[str] | None,
        _named("keep", "Column to use though it has no name or numbers the rows."),
    ] = None
    encode: Annotated[
        bool, _named("encode", "Make categories of text: one 0/1 column for each value.")
    ] = False
    categorical: Annotated[
        list[str] | None,
        _named("categorical", "Column of numbers that are codes of classes; may be repeated."),
    ] = None
    standardize: Annotated[
        bool,
        _named("standardize", "Inputs and amounts to predict with mean 0 and deviation 1."),
    ] = False
    intercept: Annotated[
        bool,
        typer.Option(
            "--intercept/--no-intercept", help="Subtract the means, which fits an intercept."
        ),
    ] = True
    missing: Annotated[str, _named("missing", "Rows with a missing value: refuse, drop.")] = (
        "refuse"
    )
    decimal: Annotated[
        str | None, _named("decimal", "Decimal mark of text, . or ,; none: found.")
    ] = None
    memory: Annotated[
        int, _named("memory", "MiB of a table to keep; of a larger one its moments are.")
    ] = 128
    cluster: Annotated[str | None, _named("cluster", "Address of a dask scheduler, tcp://…")] = None

    def read(self, source: str, **more: Any) -> Reading:
        """The problem in a table; one target is a vector, several are a matrix."""
        from deeplin.tables.reading import read_problem

        options = self._asdict()
        target = options.pop("target")
        for name in ("ignore", "keep", "categorical"):
            options[name] = options[name] or ()
        options["scale_targets"] = self.standardize
        options["memory"] = whole_number("memory", self.memory) * 2**20
        wanted = target[0] if len(target) == 1 else target
        return read_problem(source, wanted, **options, **more)


class Training(NamedTuple):
    """How a network is trained: the fields of `deeplin.training.TrainingSpec`."""

    momentum: Annotated[float, _named("momentum", "Heavy-ball coefficient β.")] = 0.0
    nesterov: Annotated[bool, _named("nesterov", "Nesterov's form of the momentum.")] = False
    batch_size: Annotated[
        int | None, _named("batch-size", "Rows of a mini-batch; none: all rows.")
    ] = None
    weight_decay: Annotated[
        float,
        _named("weight-decay", "λ of the penalty λΣ‖W‖² (half of PyTorch's weight_decay)."),
    ] = 0.0
    reduction: Annotated[str, _named("reduction", "The loss over the samples: mean or sum.")] = (
        "mean"
    )
    half: Annotated[bool, _named("half", "The loss has a factor ½.")] = False
    optimizer: Annotated[str, _named("optimizer", "descent, sam, adam or rmsprop.")] = "descent"
    rho: Annotated[float, _named("rho", "ρ of SAM: the step up is ρ times the gradient.")] = 0.05
    beta1: Annotated[float, _named("beta1", "β₁ of Adam.")] = 0.9
    epsilon: Annotated[float, _named("epsilon", "ε of Adam and RMSProp.")] = 1e-8


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """A command in which a parameter that is a group of options stands for all of them."""
    signature = inspect.signature(function, eval_str=True)
    groups: dict[str, Any] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        if not hasattr(kind, "_fields"):
            options.append(parameter)
            continue
        groups[name] = kind
        hints = get_type_hints(kind, include_extras=True)
        for member in inspect.signature(kind).parameters.values():
            annotation = hints[member.name]
            annotation.__metadata__[0].rich_help_panel = kind.__name__
            options.append(member.replace(annotation=annotation))

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
    """Answer a wrong file name at once, before anything slow is imported."""
    if source != "-" and not any(sign in source for sign in "*?[") and not Path(source).exists():
        raise InputError(f"there is no file {source!r}; pass a file, a folder or a glob.")


def parse_depths(text: str) -> list[int]:
    """Depths written as 10, as 2,5,10 or as 2..40."""
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


def parse_readout(text: str | None) -> np.ndarray | None:
    """A read-out written as its entries, 1,0,0; one number alone stands for its norm."""
    if text is None:
        return None
    try:
        return np.array([float(part) for part in text.split(",")])
    except ValueError as error:
        raise InputError(f"readout is {text!r}; pass numbers such as 0.5 or 1,0,0.") from error


def write_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write where the user asked; a folder that is missing or closed gets one sentence."""
    try:
        write(path)
    except InputError:
        raise  # what was read is wrong, not where it is written
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {str(path)!r}: {error}") from error
