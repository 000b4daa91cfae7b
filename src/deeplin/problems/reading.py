"""From a table to a problem: one streamed pass, with a sentence for everything done to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeplin.checks import InputError, whole_number
from deeplin.door import door
from deeplin.problems.choosing import choose, listed
from deeplin.problems.formats import WHOLE, Column
from deeplin.problems.gathering import Plan, gather, gather_on_cluster, parts_of
from deeplin.problems.preparation import Preparation, prepare
from deeplin.problems.problem import Problem
from deeplin.problems.tables import open_table

MEMORY = 128 * 2**20
"""Bytes of a table that are kept; of a larger one only the second moments are."""
CHUNK = 2**21
"""Numbers in a chunk, unless the caller asks for a number of rows."""


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
        return self.preparation.undo(np.asarray(coefficients).reshape(len(self.inputs), -1))


@door
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
    choice = choose(table, target, ignore=ignore, keep=keep, encode=encode)
    columns = (*choice.inputs, *choice.targets)
    rows = max(1, CHUNK // len(columns)) if chunk_rows is None else chunk_rows
    whole = tuple(j for j, (name, _) in enumerate(columns) if table.columns[name] == WHOLE)
    plan = Plan(columns, len(choice.targets), whole_number("chunk_rows", rows), missing, whole)
    if cluster is None:
        gathered, left_out = gather(table, plan, memory)
    else:
        gathered, left_out = gather_on_cluster(table, plan, cluster)
    inputs, targets = ([c.label for c in part] for part in (choice.inputs, choice.targets))
    counter = columns[0].name == next(iter(table.columns)) and columns[0].name not in keep
    problem, preparation, kept, found = prepare(
        gathered,
        inputs,
        targets,
        standardize=standardize,
        intercept=intercept,
        may_count=counter,
    )
    dropped = [f"Rows left out because a value is missing: {left_out}."] if left_out else []
    notes = (*table.notes, *choice.notes, *dropped, *found)
    behind = tuple(column for column in choice.inputs if column.label in kept)
    return Reading(problem, kept, tuple(targets), preparation, notes, behind)


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
