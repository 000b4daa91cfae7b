"""From a table to a problem: one streamed pass, with a sentence for everything done to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeplin.errors import InputError, whole_number
from deeplin.problems.problem import Problem
from deeplin.tables.csv_dialect import CATEGORIES, REMEDY, survey
from deeplin.tables.formats import DATE, NUMBER, OTHER, TEXT, WHOLE, Column
from deeplin.tables.gathering import Plan, gather, gather_on_cluster, parts_of
from deeplin.tables.preparation import Preparation, listed, prepare
from deeplin.tables.table import Table, open_table
from deeplin.validation import validated

MEMORY = 128 * 2**20
"""Bytes of a table that are kept; of a larger one only the second moments are."""
CHUNK = 2**21
"""Numbers in a chunk, unless the caller asks for a number of rows."""
UNNAMED = re.compile(r"\s*|Unnamed: \d+")
LEFT_OUT = {
    TEXT: ("not made of numbers", " Pass encode=True (--encode) to make categories of it."),
    DATE: ("dates", " Add numbers made from them, such as days since the first."),
    OTHER: ("not made of numbers", ""),
}
"""Why a column of this kind is no input, and what can be done about it."""


@dataclass(frozen=True)
class Reading:
    """A problem read from a table, with the names of its columns and what was done to them."""

    problem: Problem
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    preparation: Preparation
    notes: tuple[str, ...]
    """One sentence for each thing that was done to the table or is worth knowing about it."""
    columns: tuple[Column, ...] = ()
    """The columns of the table, or categories in them, behind `inputs`."""

    def in_table_units(self, coefficients: Any) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (d×q) of the prepared inputs as coefficients and intercepts of the table's.

        Of a column that was removed the coefficient is not listed; see `inputs`.
        """
        d, centre = len(self.inputs), self.preparation.centre
        original = np.asarray(coefficients).reshape(d, -1) / self.preparation.scale[:d, None]
        return original, centre[d:] - centre[:d] @ original


@validated
def read_problem(
    source: str | Path,
    target: str | Sequence[str],
    *,
    ignore: Sequence[str] = (),
    keep: Sequence[str] = (),
    encode: bool = False,
    standardize: bool = False,
    intercept: bool = False,
    missing: str = "refuse",
    memory: int = MEMORY,
    chunk_rows: int | None = None,
    cluster: Any = None,
) -> Reading:
    """Read CSV, Parquet, Arrow, `.npy` or `.npz` (a file, folder or glob) in one streamed pass.

    Tables up to `memory` bytes are kept; of larger ones only Σ̂, Xᵀy/n and ‖y‖²/n are, which do
    not depend on how the rows were cut into chunks beyond rounding. `cluster` is the address of a
    dask scheduler (or a client): its workers then read the pieces of the table in parallel.

    `intercept` subtracts the means of inputs and targets, which is the same as fitting an
    intercept; `standardize` does that and divides every input by its deviation. `missing` is
    "refuse" or "drop" (leave out rows with a missing value). Columns without a name and a first
    column that numbers the rows are left out unless `keep` names them; `encode` makes categories of
    text.

    ```python
    import deeplin as dl, numpy as np, pandas as pd
    rows = np.random.default_rng(0).normal(size=(9, 3))
    pd.DataFrame(rows, columns=["area", "age", "price"]).to_csv("houses.csv", index=False)
    reading = dl.read_problem("houses.csv", "price", standardize=True, intercept=True)
    reading.problem.optimum, reading.notes
    ```
    """
    if missing not in ("refuse", "drop"):
        raise InputError(f"missing is {missing!r}; pass 'refuse' or 'drop'.")
    table = open_table(source)
    inputs, targets, choices = _choose(table, target, ignore, keep, encode)
    columns = (*inputs, *targets)
    rows = max(1, CHUNK // len(columns)) if chunk_rows is None else chunk_rows
    whole = tuple(j for j, (name, _) in enumerate(columns) if table.columns[name] == WHOLE)
    plan = Plan(columns, len(targets), whole_number("chunk_rows", rows), missing, whole)
    if cluster is None:
        gathered, left_out = gather(table, plan, memory)
    else:
        gathered, left_out = gather_on_cluster(table, plan, cluster)
    counter = columns[0].name == next(iter(table.columns)) and columns[0].name not in keep
    problem, preparation, kept, found = prepare(
        gathered,
        [column.label for column in columns],
        len(targets),
        standardize=standardize,
        intercept=intercept,
        may_count=counter,
    )
    dropped = [f"Rows left out because a value is missing: {left_out}."] if left_out else []
    notes = (*table.notes, *choices, *dropped, *found)
    behind = tuple(column for column in inputs if column.label in kept)
    named = tuple(column.name for column in targets)
    return Reading(problem, kept, named, preparation, notes, behind)


def stream_rows(source: str | Path, columns: Sequence[Column]) -> Iterator[np.ndarray]:
    """The named columns of a table as matrices, chunk after chunk; a missing value is refused."""
    table = open_table(source)
    absent = [column.name for column in columns if column.name not in table.columns]
    if absent:
        raise InputError(
            f"{str(source)!r} has no column {listed(absent)}; its columns are "
            f"{listed(list(table.columns))}."
        )
    plan = Plan(tuple(columns), 0, max(1, CHUNK // len(columns)), "refuse")
    for part in parts_of(table.pieces, plan):
        yield part.complete_rows()


# --- which columns are inputs and which targets --------------------------------------------------


def _choose(
    table: Table,
    target: str | Sequence[str],
    ignore: Sequence[str],
    keep: Sequence[str],
    encode: bool,
) -> tuple[list[Column], list[Column], list[str]]:
    """Inputs, targets, and a sentence for every column that is neither or was changed.

    Every column of numbers that is neither target nor ignored nor without a name is an input.
    With `encode`, a column of text becomes one indicator column for each of its values but the
    first: their sum is one minus the first's, so that it would add nothing but a constant.
    """
    asked = (target,) if isinstance(target, str) else tuple(target)
    targets = list(dict.fromkeys(name for wish in asked for name in _named(table, wish)))
    kept = {name for wish in keep for name in _named(table, wish)}
    ignored = {name for wish in ignore for name in _named(table, wish)}
    for name in targets:
        _check_target(table, name, name in ignored)
    others = [name for name in table.columns if name not in ignored and name not in targets]
    unnamed = [name for name in others if UNNAMED.fullmatch(name) and name not in kept]
    others = [name for name in others if name not in unnamed]
    columns, notes = _columns(table, others, encode)
    if unnamed:
        notes.insert(0, f"Left out because without a name, like a row number: {listed(unnamed)}.")
    if not columns:
        reasons = " ".join(notes) or "The table has no other column."
        raise InputError(f"no input is left besides the target {listed(targets)}. {reasons}")
    labels = [column.label for column in columns] + targets
    if repeated := sorted({label for label in labels if labels.count(label) > 1}):
        raise InputError(f"the names of columns repeat: {listed(repeated)}; rename them first.")
    return columns, [Column(name) for name in targets], notes


def _named(table: Table, wish: str) -> list[str]:
    """The columns a user means: a name, an array of an .npz file, or -1 for the last column."""
    names = list(table.columns)
    if wish in table.columns:
        return [wish]
    members = [name for name in names if name.startswith(f"{wish}[")]
    if members:
        return members
    if re.fullmatch("-[0-9]{1,9}", wish) and 1 <= int(wish[1:]) <= len(names):
        return [names[int(wish)]]
    shown = ", ".join(map(repr, names[:12])) + (", …" if len(names) > 12 else "")
    raise InputError(f"there is no column {wish!r}; the table has {shown}.")


def _check_target(table: Table, name: str, ignored: bool) -> None:
    kind = table.columns[name]
    if ignored:
        raise InputError(f"the target {name!r} is ignored; pass another, or do not ignore it.")
    if kind in (NUMBER, WHOLE):
        return
    if kind == DATE:
        raise InputError(
            f"the target {name!r} is a date; pass a column of numbers, such as days since a day."
        )
    found = survey(_texts(table, name)) if kind == TEXT else None
    if found is not None and found.nearly_numbers:
        raise InputError(f"the target {name!r} is no column of numbers: {found}. {REMEDY}")
    example = f" ({listed(found.categories[:3])}, …)" if found is not None else ""
    raise InputError(
        f"the target {name!r} does not hold numbers{example}: to predict a class is "
        "classification, which this does not do; pass a column of numbers."
    )


def _columns(table: Table, names: list[str], encode: bool) -> tuple[list[Column], list[str]]:
    """The inputs among these columns, and what is said about the others."""
    columns: list[Column] = []
    left: dict[str, list[str]] = {kind: [] for kind in LEFT_OUT}
    notes: list[str] = []
    for name in names:
        kind = table.columns[name]
        if kind in (NUMBER, WHOLE):
            columns.append(Column(name))
            continue
        found = survey(_texts(table, name), everything=encode) if kind == TEXT else None
        if found is not None and found.nearly_numbers:
            notes.append(f"{name!r} was left out: {found}. {REMEDY}")
        elif found is not None and encode:
            indicators, note = _encoded(name, found.categories)
            columns += indicators
            notes.append(note)
        else:
            left[kind].append(name)
    for kind, (why, advice) in LEFT_OUT.items():
        if left[kind]:
            notes.append(f"Left out because {why}: {listed(left[kind])}.{advice}")
    return columns, notes


def _encoded(name: str, categories: tuple[str, ...]) -> tuple[list[Column], str]:
    if len(categories) > CATEGORIES:
        return [], f"{name!r} was left out: it has more than {CATEGORIES} different values."
    if len(categories) < 2:
        return [], f"{name!r} was left out: it has one value only."
    first, *others = categories
    return (
        [Column(name, category) for category in others],
        f"{name!r} became {len(others)} column(s) of zeros and ones, for {listed(others)} (all "
        f"zero: {first!r}).",
    )


def _texts(table: Table, name: str) -> Iterator[str | None]:
    for piece in table.pieces:
        for block in piece.texts(name):
            yield from block
