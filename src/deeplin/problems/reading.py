"""From a table to a problem: one streamed pass, with a sentence for everything done to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeplin.checks import InputError, whole_number
from deeplin.problems.gathering import Plan, gather, gather_on_cluster
from deeplin.problems.preparation import Preparation, listed, prepare
from deeplin.problems.problem import Problem
from deeplin.problems.tables import Table, open_table

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

    def in_table_units(self, coefficients: Any) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (d×q) of the prepared inputs as coefficients and intercepts of the table's.

        Of a column that was removed the coefficient is not listed; see `inputs`.
        """
        return self.preparation.undo(np.asarray(coefficients).reshape(len(self.inputs), -1))


def read_problem(
    source: str | Path,
    target: str | Sequence[str],
    *,
    ignore: Sequence[str] = (),
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

    `standardize` gives every input mean zero and variance one; `intercept` subtracts the means of
    inputs and targets, which is the same as fitting an intercept. `missing` is "refuse" or "drop"
    (leave out rows with a missing value).

    ```python
    reading = read_problem("houses.csv", "price", standardize=True, intercept=True)
    reading.problem.optimum, reading.notes
    ```
    """
    if missing not in ("refuse", "drop"):
        raise InputError(f"missing is {missing!r}; pass 'refuse' or 'drop'.")
    table = open_table(source)
    inputs, targets, notes = _choose(table, target, ignore)
    columns = (*inputs, *targets)
    rows = max(1, CHUNK // len(columns)) if chunk_rows is None else chunk_rows
    plan = Plan(columns, len(targets), whole_number("chunk_rows", rows), missing)
    if cluster is None:
        gathered, left_out = gather(table, plan, memory)
    else:
        gathered, left_out = gather_on_cluster(table, plan, cluster)
    if left_out:
        notes.append(f"Rows left out because a value is missing: {left_out}.")
    problem, preparation, kept, found = prepare(
        gathered, inputs, targets, standardize=standardize, intercept=intercept
    )
    return Reading(problem, kept, targets, preparation, (*notes, *found))


def _choose(
    table: Table, target: str | Sequence[str], ignore: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
    """Names of inputs and targets: every column of numbers that is not ignored is an input."""
    asked = (target,) if isinstance(target, str) else tuple(target)
    targets = tuple(name for wish in asked for name in _named(table, wish))
    ignored = {name for wish in ignore for name in _named(table, wish)}
    text = [name for name, numeric in table.columns.items() if not numeric and name not in ignored]
    for name in targets:
        if name in text or name in ignored:
            reason = "is ignored" if name in ignored else "does not hold numbers"
            raise InputError(f"the target {name!r} {reason}; pass a column of numbers.")
    left_out = {*targets, *ignored, *text}
    inputs = tuple(name for name in table.columns if name not in left_out)
    if not inputs:
        raise InputError(
            f"no input is left: besides the target {', '.join(targets)} the table has no column "
            "of numbers. Encode text columns as numbers first."
        )
    notes = []
    if text:
        notes.append(f"Left out because not made of numbers: {listed(text)}.")
    return inputs, targets, notes


def _named(table: Table, wish: str) -> list[str]:
    """The columns a user means: a name, an array of an .npz file, or -1 for the last column."""
    names = list(table.columns)
    if wish in table.columns:
        return [wish]
    members = [name for name in names if name.startswith(f"{wish}[")]
    if members:
        return members
    if wish.startswith("-") and wish[1:].isdigit() and 1 <= int(wish[1:]) <= len(names):
        return [names[int(wish)]]
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    raise InputError(f"there is no column {wish!r}; the table has {shown}.")
