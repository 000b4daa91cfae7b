"""From a table to a problem: one streamed pass, with a sentence for everything done to it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import InputError, positive_number, whole_number
from deeplin.problems.problem import Problem
from deeplin.tables.csv_dialect import CATEGORIES, REMEDY, Survey, survey
from deeplin.tables.formats import DATE, EMPTY, NUMBER, OTHER, TEXT, WHOLE, Column
from deeplin.tables.gathering import Plan, gather, gather_on_cluster
from deeplin.tables.inspection import class_codes, identifiers, outliers
from deeplin.tables.preparation import Preparation, listed, prepare
from deeplin.tables.table import Frame, Table, open_table
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
    EMPTY: ("empty", ""),
}
"""Why a column of this kind is no input, and what can be done about it."""


@dataclass(frozen=True)
class Reading:
    """A problem read from a table, with its preparation and what was done to the table."""

    problem: Problem
    preparation: Preparation
    notes: tuple[str, ...]
    """One sentence for each thing that was done to the table or is worth knowing about it."""
    held_out: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)
    """Inputs and targets, prepared, of rows that are not in the problem."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return self.preparation.labels

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return self.preparation.targets

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the table, or categories in them, behind `inputs`."""
        return self.preparation.inputs

    def in_table_units(self, coefficients: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (d×q) of the prepared inputs as coefficients and intercepts of the table's.

        Of a column that was removed the coefficient is not listed; see `inputs`.
        """
        return self.preparation.in_table_units(coefficients)


@validated
def read_problem(
    source: str | Path | Frame,
    target: str | Sequence[str],
    *,
    ignore: Sequence[str] = (),
    keep: Sequence[str] = (),
    encode: bool = False,
    categorical: Sequence[str] = (),
    standardize: bool = False,
    intercept: bool = False,
    scale_targets: bool = False,
    missing: str = "refuse",
    decimal: str | None = None,
    test_share: float = 0.0,
    seed: int = 0,
    memory: int = MEMORY,
    chunk_rows: int | None = None,
    cluster: Any = None,
) -> Reading:
    """Read a table (CSV, Parquet, Arrow, `.npy`, `.npz`, Excel; a file, folder or glob) once.

    `source` may also be `-` (standard input) or a table in memory, such as a DataFrame. Tables up
    to `memory` bytes are kept; of larger ones only Σ̂, Xᵀy/n and ‖y‖²/n are, which do not depend on
    how the rows were cut into chunks beyond rounding. `cluster` is the address of a dask scheduler
    (or a client): its workers then read the files of the table in parallel.

    `intercept` subtracts the means of inputs and targets, which is the same as fitting an
    intercept; `standardize` does that and divides every input by its deviation, `scale_targets`
    every target. `missing` is "refuse" or "drop" (leave out rows with a missing value). Columns
    without a name, a first column that numbers the rows and identifiers are left out unless `keep`
    names them; `encode` makes categories of text, `categorical` of the columns it names.
    `test_share` holds rows out, at random by `seed`.

    ```python
    import deeplin as dl, numpy as np, pandas as pd
    rows = np.random.default_rng(0).normal(size=(9, 3))
    houses = pd.DataFrame(rows, columns=["area", "age", "price"])
    reading = dl.read_problem(houses, "price", standardize=True, intercept=True)
    reading.problem.optimum, reading.notes
    ```
    """
    if missing not in ("refuse", "drop"):
        raise InputError(f"missing is {missing!r}; pass 'refuse' or 'drop'.")
    if not 0 <= positive_number("test_share", test_share, zero_allowed=True) < 1:
        raise InputError(f"test_share is {test_share:g}; pass a share from 0 to below 1.")
    table = open_table(source, decimal)
    chosen = _choose(table, target, ignore, keep, encode, categorical)
    columns = (*chosen.inputs, *chosen.targets)
    rows = max(1, CHUNK // len(columns)) if chunk_rows is None else chunk_rows
    whole = tuple(
        j for j, c in enumerate(columns) if table.columns[c.name] == WHOLE and not c.is_text
    )
    count = len(chosen.targets)
    plan = Plan(columns, count, whole_number("chunk_rows", rows), missing, whole)
    if cluster is None:
        gathered, left_out = gather(table, plan, memory)
    else:
        gathered, left_out = gather_on_cluster(table, plan, cluster)
    notes = [*table.notes, *chosen.notes]
    if left_out.rows:
        notes.append(f"Rows left out because a value is missing: {left_out.rows}.")
    leave: list[int] = []
    test = None
    if isinstance(gathered, np.ndarray):
        kept = {name for wish in keep for name in _named(table, wish)}
        places = [j for j in whole if j < len(columns) - count and columns[j].name not in kept]
        leave, said = identifiers(gathered, columns, places)
        leave = leave if len(leave) < len(chosen.inputs) else []
        considered = [j for j in whole if j not in leave]
        said += class_codes(gathered, columns, considered, count)
        notes += said + outliers(gathered, columns, complete=left_out.rows == 0)
        if test_share:
            test = _held_out(len(gathered), test_share, seed)
    elif test_share:
        raise InputError(
            "of this table only the second moments are kept, so that no rows can be held out; pass "
            "a larger memory (--memory), or test_share=0 (--test-share 0)."
        )
    counter = columns[0].name == next(iter(table.columns)) and columns[0].name not in keep
    made = prepare(
        gathered,
        columns,
        count,
        standardize=standardize,
        intercept=intercept,
        scale_targets=scale_targets,
        may_count=counter and not columns[0].is_text,
        leave=leave,
        test=test,
    )
    preparation = replace(made.preparation, categories=chosen.categories)
    return Reading(made.problem, preparation, (*notes, *made.notes), made.held_out)


def _held_out(rows: int, share: float, seed: int) -> np.ndarray:
    """Which rows are held out: the nearest whole number to this share of them."""
    count = round(share * rows)
    if not 1 <= count <= rows - 2:
        raise InputError(
            f"test_share is {share:g}, which leaves {rows - count} of {rows} rows to train on and "
            f"{count} to test; pass another share, or 0."
        )
    chosen = np.zeros(rows, bool)
    chosen[np.random.default_rng(seed).permutation(rows)[:count]] = True
    return chosen


# --- which columns are inputs and which targets --------------------------------------------------


@dataclass
class Choice:
    """The columns of a table that are used, and a sentence for every other or changed one."""

    inputs: list[Column] = field(default_factory=list)
    targets: list[Column] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)


def _choose(
    table: Table,
    target: str | Sequence[str],
    ignore: Sequence[str],
    keep: Sequence[str],
    encode: bool,
    categorical: Sequence[str],
) -> Choice:
    """Every column of numbers that is neither target nor ignored nor without a name is an input.

    With `encode`, a column of text becomes one indicator column for each of its values but the
    first: their sum is one minus the first's, so that it would add nothing but a constant.
    """
    choice = Choice()
    wishes = (target,) if isinstance(target, str) else tuple(target)
    targets = list(dict.fromkeys(name for wish in wishes for name in _named(table, wish)))
    kept, ignored, coded = (
        {name for wish in wishes for name in _named(table, wish)}
        for wishes in (keep, ignore, categorical)
    )
    for name in targets:
        choice.targets.append(_target(table, name, name in ignored, choice.notes))
    others = [name for name in table.columns if name not in ignored and name not in targets]
    unnamed = [name for name in others if UNNAMED.fullmatch(name) and name not in kept]
    if unnamed:
        choice.notes.append(
            f"Left out because without a name, like a row number: {listed(unnamed)}."
        )
    left: dict[str, list[str]] = {kind: [] for kind in LEFT_OUT}
    for name in others:
        if name not in unnamed:
            _add_input(table, name, encode, name in coded, choice, left)
    for kind, (why, advice) in LEFT_OUT.items():
        if left[kind]:
            choice.notes.append(f"Left out because {why}: {listed(left[kind])}.{advice}")
    if not choice.inputs:
        reasons = " ".join(choice.notes) or "The table has no other column."
        raise InputError(f"no input is left besides the target {listed(targets)}. {reasons}")
    labels = [column.label for column in (*choice.inputs, *choice.targets)]
    if repeated := sorted({label for label in labels if labels.count(label) > 1}):
        raise InputError(f"the names of columns repeat: {listed(repeated)}; rename them first.")
    return choice


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
    folded = {name.strip().casefold(): name for name in names}
    near = difflib.get_close_matches(wish.strip().casefold(), folded, 1)
    if near:
        raise InputError(f"there is no column {wish!r}; did you mean {folded[near[0]]!r}?")
    shown = ", ".join(map(repr, names[:12])) + (", …" if len(names) > 12 else "")
    raise InputError(f"there is no column {wish!r}; the table has {shown}.")


def _survey(table: Table, name: str, *, everything: bool = False) -> Survey:
    return survey(table.texts(name), table.pieces[0].decimal, everything=everything)


def _styled(name: str, found: Survey, notes: list[str]) -> Column:
    """A column of text that holds numbers."""
    note = found.style.note(name, found.shown)
    notes += [note] if note else []
    return Column(name, style=found.style)


def _target(table: Table, name: str, ignored: bool, notes: list[str]) -> Column:
    kind = table.columns[name]
    if ignored:
        raise InputError(f"the target {name!r} is ignored; pass another, or do not ignore it.")
    if kind in (NUMBER, WHOLE):
        return Column(name)
    if kind == DATE:
        raise InputError(
            f"the target {name!r} is a date; pass a column of numbers, such as days since a day."
        )
    found = _survey(table, name) if kind == TEXT else None
    if found is not None and found.all_numbers:
        return _styled(name, found, notes)
    if found is not None and found.nearly_numbers:
        raise InputError(f"the target {name!r} is no column of numbers: {found}. {REMEDY}")
    if kind == EMPTY:
        raise InputError(
            f"the target {name!r} is empty, so there is no complete row; pass a column of numbers."
        )
    example = f" ({listed(found.categories[:3])}, …)" if found is not None else ""
    raise InputError(
        f"the target {name!r} does not hold numbers{example}: to predict a class is "
        "classification, which this does not do; pass a column of numbers."
    )


def _add_input(
    table: Table, name: str, encode: bool, coded: bool, choice: Choice, left: dict[str, list[str]]
) -> None:
    """Add a column to the inputs, or to those left out."""
    kind = table.columns[name]
    if kind in (NUMBER, WHOLE) and not coded:
        choice.inputs.append(Column(name))
        return
    text = kind == TEXT or coded
    found = _survey(table, name, everything=encode or coded) if text else None
    if found is None:
        left[kind].append(name)
    elif found.all_numbers and not coded:
        choice.inputs.append(_styled(name, found, choice.notes))
    elif found.nearly_numbers and not coded:
        choice.notes.append(f"{name!r} was left out: {found}. {REMEDY}")
    elif not (encode or coded):
        left[kind].append(name)
    elif len(found.categories) > CATEGORIES:
        choice.notes.append(
            f"{name!r} was left out: it has more than {CATEGORIES} different values."
        )
    elif len(found.categories) < 2:
        choice.notes.append(f"{name!r} was left out: it has one value only.")
    else:
        first, *others = found.categories
        choice.inputs += [Column(name, category) for category in others]
        choice.categories[name] = found.categories
        choice.notes.append(
            f"{name!r} became {len(others)} column(s) of zeros and ones, for {listed(others)} (all "
            f"zero: {first!r})."
        )
