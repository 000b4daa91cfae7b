"""Options that several commands have, and how their values are understood."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from deeplin.checks import InputError, whole_number

if TYPE_CHECKING:
    from deeplin.problems.reading import Reading

Source = Annotated[str, typer.Argument(help="CSV, Parquet, Arrow, .npy, .npz; a folder or a glob.")]
Target = Annotated[
    list[str],
    typer.Option("--target", help="Column to predict (-1: the last); may be repeated."),
]
Ignore = Annotated[
    list[str] | None, typer.Option("--ignore", help="Column to leave out; may be repeated.")
]
Keep = Annotated[
    list[str] | None,
    typer.Option("--keep", help="Column to use though it has no name or numbers the rows."),
]
Encode = Annotated[
    bool, typer.Option("--encode", help="Make categories of text: one 0/1 column for each value.")
]
Standardize = Annotated[
    bool,
    typer.Option(
        "--standardize", help="Inputs with mean zero and variance one, targets with mean zero."
    ),
]
Intercept = Annotated[
    bool, typer.Option("--intercept", help="Subtract the means, which fits an intercept.")
]
Missing = Annotated[str, typer.Option("--missing", help="Rows with a missing value: refuse, drop.")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", help="Address of a dask scheduler, tcp://…")
]
Memory = Annotated[
    int, typer.Option("--memory", help="MiB of a table to keep; of a larger one its moments are.")
]
Momentum = Annotated[float, typer.Option("--momentum", help="Heavy-ball coefficient β.")]
Nesterov = Annotated[bool, typer.Option("--nesterov", help="Nesterov's form of the momentum.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="Rows of a mini-batch; none: all rows.")
]
WeightDecay = Annotated[
    float,
    typer.Option(
        "--weight-decay", help="λ of the penalty λΣ‖W‖² (half of PyTorch's weight_decay)."
    ),
]
Reduction = Annotated[
    str, typer.Option("--reduction", help="The loss over the samples: mean or sum.")
]
Half = Annotated[bool, typer.Option("--half", help="The loss has a factor ½.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def read(
    source: str,
    target: list[str],
    *,
    ignore: list[str] | None,
    keep: list[str] | None,
    memory: int,
    **options: Any,
) -> Reading:
    """The problem in a table; one target is a vector, several are a matrix."""
    from deeplin.problems.reading import read_problem

    return read_problem(
        source,
        target[0] if len(target) == 1 else target,
        ignore=ignore or (),
        keep=keep or (),
        memory=whole_number("memory", memory) * 2**20,
        **options,
    )


def require_source(source: str) -> None:
    """Answer a wrong file name at once, before anything slow is imported."""
    if not any(sign in source for sign in "*?[") and not Path(source).exists():
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
