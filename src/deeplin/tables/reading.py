"""Reading of a problem from a table in one streamed pass, with notes on every change."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from deeplin.errors import InputError, positive_number, validated, whole_number
from deeplin.tables.formats import CATEGORIES, NUMERIC, REMEDY, Column, Kind, Survey, listed
from deeplin.tables.preparation import Reading, prepare
from deeplin.tables.table import (
    Plan,
    Source,
    Table,
    gather,
    gather_on_cluster,
    in_memory,
    open_table,
)

MEMORY = 128 * 2**20
"""Size in bytes up to which a table is kept in memory; larger ones only as second moments."""
TASKS = ("auto", "regression", "classification")
FEWEST_CLASSIFIED = 10
"""Number of rows from which a target with two distinct numbers is taken as classes."""
Classes = tuple[str | int | float, ...]
UNNAMED = re.compile(r"\s*|Unnamed: \d+")
LEFT_OUT = {
    Kind.TEXT: ("not made of numbers", " Pass encode=True (--encode) to make categories of it."),
    Kind.DATE: ("dates", " Add numbers made from them, such as days since the first."),
    Kind.OTHER: ("not made of numbers", ""),
    Kind.EMPTY: ("empty", ""),
}
"""Reason why a column of this kind is not an input, and advice."""

IDENTIFIER = re.compile(r"(.*[^a-zA-Z])?(?i:id|uuid|key|nr|no|number|code)|.*[a-z]I[dD]")
"""Names of columns that identify their rows."""
FEWEST = 20
"""Number of rows below which there are no notes."""
CLASSES = 3, 12
"""Range of the number of distinct integers that may be codes of classes."""
DOMINATES = 0.5
"""Fraction of the squared deviations of a column above which a single row is reported."""


@validated
def read_problem(
    source: Source,
    target: str | Sequence[str],
    *,
    task: str = "auto",
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
    to `memory` bytes are kept; for larger ones only Σ̂, Xᵀy/n and ‖y‖²/n are kept, which do not
    depend on the chunks beyond rounding. `cluster` is the address of a dask scheduler (or a
    client): its workers then read the files of the table in parallel.

    `task` is "regression" (squared loss), "classification" (logistic loss for two classes, softmax
    for more) or "auto": classification where the target is text, true or false, or has two
    different values in at least ten rows.

    `intercept` subtracts the means of inputs and targets, which is the same as fitting an
    intercept; for classes it adds a constant input. `standardize` subtracts the means and divides
    every input by its standard deviation (that of the rows, not of a population), `scale_targets`
    every target. `missing` is "refuse" or "drop" (leave out rows with a missing value). Columns
    without a name, a first column that numbers the rows and identifiers are left out unless `keep`
    names them; `encode` makes categories of text, `categorical` of the columns it names.
    `test_share` is the fraction of rows held out, at random by `seed` and from each class alike.

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
    if task not in TASKS:
        raise InputError(f"task is {task!r}; pass one of {', '.join(TASKS)}.")
    if not 0 <= positive_number("test_share", test_share, zero_allowed=True) < 1:
        raise InputError(f"test_share is {test_share:g}; pass a share from 0 to below 1.")
    table = open_table(source, decimal)
    chosen = _choose(table, target, ignore, keep, encode, categorical, task)
    columns = (*chosen.inputs, *chosen.targets)
    rows = None if chunk_rows is None else whole_number("chunk_rows", chunk_rows)
    whole = tuple(
        j for j, c in enumerate(columns) if table.columns[c.name] == Kind.WHOLE and not c.is_text
    )
    count = len(chosen.targets)
    plan = Plan(columns, count, rows, missing, whole)
    if cluster is None:
        gathered, left_out = gather(table, plan, memory)
    else:
        gathered, left_out = gather_on_cluster(table, plan, cluster)
    notes = [*table.notes, *chosen.notes]
    if left_out:
        notes.append(f"Rows left out because a value is missing: {left_out}.")
    leave: list[int] = []
    classes: Classes = ()
    test = None
    if isinstance(gathered, np.ndarray):
        classes = _classes(gathered, columns[-1], task, notes) if count == 1 else ()
        amounts = len(columns) - bool(classes)
        considered = (j for j in whole if j < amounts)
        leave, said = whole_number_notes(gathered, columns, considered, count, chosen.kept)
        notes += said + outliers(gathered, columns[:amounts], complete=left_out == 0)
        if test_share:
            test = _held_out(gathered[:, -1] if classes else gathered[:, :0], test_share, seed)
    elif test_share or columns[-1].labels or task == "classification":
        what = "no rows can be held out" if test_share else "no classes can be predicted"
        raise InputError(
            f"of this table only the second moments are kept, so that {what}; pass a larger memory "
            "(--memory)" + (", or test_share=0 (--test-share 0)." if test_share else ".")
        )
    counter = columns[0].name == next(iter(table.columns)) and columns[0].name not in chosen.kept
    return prepare(
        gathered,
        columns,
        count,
        standardize=standardize,
        intercept=intercept,
        scale_targets=scale_targets,
        may_number=counter and not columns[0].is_text,
        leave=leave,
        test=test,
        classes=classes,
        categories=chosen.categories,
        first_notes=notes,
    )


def read_data(data: Any, y: Any = None, target: Any = None, **options: Any) -> Reading:
    """Read a table with the name of its target, or inputs X (a matrix or a table) with targets y.

    The options are those of `read_problem`, with an intercept; all columns of X are used.
    """
    if y is None:
        if target is None:
            raise InputError("a table needs its target; pass target='name of a column', or y.")
        return read_problem(data, target, intercept=True, **options)
    table = in_memory(np.asarray(data) if isinstance(data, list | tuple) else data)
    columns = np.asarray(y).reshape(len(y), -1)
    names = ["y" if columns.shape[1] == 1 else f"y{k + 1}" for k in range(columns.shape[1])]
    if len(columns) != len(table):
        raise InputError(f"X has {len(table)} rows and y has {len(columns)}; pass equally many.")
    used = table.column_names
    for name, column in zip(names, columns.T, strict=True):
        table = table.append_column(name, pa.array(column.tolist()))
    return read_problem(table, names, keep=used, intercept=True, **options)


def _classes(rows: np.ndarray, column: Column, task: str, notes: list[str]) -> Classes:
    """Return the classes of the last column, replaced by their indices; () for a numeric target."""
    values, places, counts = np.unique(rows[:, -1], return_inverse=True, return_counts=True)
    two = len(values) == 2 and len(rows) >= FEWEST_CLASSIFIED
    if not column.labels and (task == "regression" or (task == "auto" and not two)):
        return ()
    if len(values) > CATEGORIES:
        raise InputError(
            f"the target {column.name!r} has {len(values)} different values; classes are at most "
            f"{CATEGORIES}. Pass task='regression' (--task regression), or another target."
        )
    labels: Classes = tuple(column.labels[int(v)] if column.labels else _label(v) for v in values)
    if len(values) < 2:
        raise InputError(
            f"the target {column.name!r} has one class only, {labels[0]!r}; pass a target with at "
            "least two."
        )
    rows[:, -1] = places
    shown = [f"{label!r} ({count} rows)" for label, count in zip(labels, counts, strict=True)]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    amount = "." if column.labels else ". To predict it as an amount: --task regression."
    listing = ", ".join(shown[:5]) + more + amount
    notes.append(f"Classification: the target {column.name!r} is one of {listing}")
    if single := [str(label) for label, count in zip(labels, counts, strict=True) if count == 1]:
        notes.append(
            f"Only one row has the class {listed(single)}: it is trained on and never left out, so "
            "that nothing is known of how well that class is predicted."
        )
    return labels


def _label(value: float) -> int | float:
    return int(value) if value.is_integer() else float(value)


def _held_out(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return which rows are held out: this share of each class, to the nearest integer.

    Without classes (no label column) this is the fraction of all rows.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    chosen = np.zeros(len(labels), bool)
    groups = [order[labels[order] == label] for label in np.unique(labels)] or [order]
    for group in groups:
        limit = len(group) - 1 if labels.size else len(group)
        chosen[group[: min(round(share * len(group)), limit)]] = True
    count, rows = int(chosen.sum()), len(labels)
    if not 1 <= count <= rows - 2:
        raise InputError(
            f"test_share is {share:g}, which leaves {rows - count} of {rows} rows to train on and "
            f"{count} to test; pass another share, or 0."
        )
    return chosen


# --- columns that are numbers but perhaps not amounts, rows that decide everything ----------------


def whole_number_notes(
    rows: np.ndarray, columns: Sequence[Column], whole: Iterable[int], targets: int, kept: list[str]
) -> tuple[list[int], list[str]]:
    """Return columns to leave out as identifiers, and notes on columns of integers.

    A column with a different integer in every row is an identifier if its name suggests it;
    otherwise there is a note if its range is far larger than the number of rows. A few distinct
    integers may be codes of classes.
    """
    left: list[str] = []
    suspects: list[str] = []
    codes: list[str] = []
    about_targets: list[str] = []
    low, high = CLASSES
    for place in whole:
        values, column = np.unique(rows[:, place]), columns[place]
        target = place >= len(columns) - targets
        few = len(rows) >= 10 * low and low - target <= len(values) <= min(high, len(rows) // 10)
        different = len(values) == len(rows) >= FEWEST
        if few and target:
            about_targets.append(
                f"The target {column.name!r} holds only {len(values)} different whole numbers, "
                "which are predicted as amounts; if they are classes: --task classification."
            )
        elif few:
            codes.append(column.label)
        elif different and not target and column.name not in kept:
            if IDENTIFIER.fullmatch(column.label):
                left.append(column.label)
            elif np.ptp(values) >= 10 * len(rows):
                suspects.append(column.label)
    if len(left) == len(columns) - targets:  # something must remain
        left, suspects = [], left
    notes = [
        f"{name!r} is a different whole number in every row, so it was left out as an identifier; "
        f"to use it: --keep {name}."
        for name in left
    ]
    if suspects:
        notes.append(
            f"Different whole numbers in every row: {listed(suspects)}. If they are identifiers, "
            "leave them out (--ignore)."
        )
    notes += about_targets
    if codes:
        notes.append(
            f"Few different whole numbers, taken as amounts: {listed(codes)}. If they are codes of "
            "classes, pass --categorical with the name."
        )
    return [place for place, column in enumerate(columns) if column.label in left], notes


def outliers(rows: np.ndarray, columns: Sequence[Column], complete: bool) -> list[str]:
    """Return a sentence for each column in which one row has most of the squared deviations.

    `complete` says that no row was left out, so that indices are row numbers.
    """
    notes: list[str] = []
    if len(rows) < FEWEST:
        return notes
    for place, column in enumerate(columns):
        if column.category is not None:
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            squares = (rows[:, place] - np.median(rows[:, place])) ** 2
            share = squares.max() / squares.sum() if squares.sum() > 0 else 0.0
            middle = np.median(squares)
        row = int(squares.argmax())
        if share > DOMINATES and squares[row] > 1e4 * middle > 0:
            where = f"row {row + 1}" if complete else "one row"
            notes.append(
                f"{column.label!r} is {rows[row, place]:.4g} in {where}, which alone has "
                f"{share:.0%} of its squared deviations and decides the fit; check it."
            )
    return notes[:5]


# --- which columns are inputs and which targets --------------------------------------------------


@dataclass
class Choice:
    """The columns of a table that are used, and notes on omitted or changed ones."""

    inputs: list[Column] = field(default_factory=list)
    targets: list[Column] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    """Columns that the caller wants to keep in any case."""


def _choose(
    table: Table,
    target: str | Sequence[str],
    ignore: Sequence[str],
    keep: Sequence[str],
    encode: bool,
    categorical: Sequence[str],
    task: str,
) -> Choice:
    """Return inputs and targets: inputs are numeric, named, not ignored and not a target.

    With `encode`, a column of text becomes one indicator column for each of its values except the
    first, whose indicator is one minus the sum of the others.
    """
    targets = _named(table, (target,) if isinstance(target, str) else target)
    kept, ignored, coded = (_named(table, wishes) for wishes in (keep, ignore, categorical))
    choice = Choice(kept=kept)
    if len(targets) > 1 and task == "classification":
        raise InputError(f"classification has one target; received {listed(targets)}.")
    task = "regression" if len(targets) > 1 else task
    for name in targets:
        choice.targets.append(_target(table, name, name in ignored, choice.notes, task))
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


def _named(table: Table, wishes: Iterable[str]) -> list[str]:
    """Return the columns that a caller names, each once."""
    return list(dict.fromkeys(name for wish in wishes for name in _meant(table, wish)))


def _meant(table: Table, wish: str) -> list[str]:
    """Return a column by name, those of an array in an .npz file, or the last for -1."""
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


def _styled(name: str, found: Survey, notes: list[str]) -> Column:
    """Return a column of text that holds numbers."""
    note = found.style.note(name, found.shown)
    notes += [note] if note else []
    return Column(name, style=found.style)


def _target(table: Table, name: str, ignored: bool, notes: list[str], task: str) -> Column:
    """Return the column of a target: numbers, or text whose values are classes."""
    kind = table.columns[name]
    if ignored:
        raise InputError(f"the target {name!r} is ignored; pass another, or do not ignore it.")
    if kind in (Kind.NUMBER, Kind.WHOLE) or (kind == Kind.BOOLEAN and task == "regression"):
        return Column(name)
    if kind in (Kind.DATE, Kind.EMPTY, Kind.OTHER):
        what = {Kind.DATE: "is a date", Kind.EMPTY: "is empty, so there is no complete row"}
        why = what.get(kind, "holds neither numbers nor text")
        such = ", such as days since a day" if kind == Kind.DATE else ""
        raise InputError(f"the target {name!r} {why}; pass a column of numbers or classes{such}.")
    found = table.survey(name, everything=task != "regression")
    if task != "classification" and found.all_numbers:
        return _styled(name, found, notes)
    if task != "classification" and found.nearly_numbers:
        raise InputError(f"the target {name!r} is not a column of numbers: {found}. {REMEDY}")
    if task == "regression":
        raise InputError(
            f"the target {name!r} does not hold numbers ({listed(found.categories[:3])}, …), so it "
            "is no amount to predict; pass task='classification' (--task classification), one "
            "target, or a column of numbers."
        )
    if len(found.categories) > CATEGORIES:
        raise InputError(
            f"the target {name!r} has more than {CATEGORIES} different values "
            f"({listed(found.categories[:3])}, …), which are not classes; pass another column."
        )
    return Column(name, labels=found.categories)


def _add_input(
    table: Table, name: str, encode: bool, coded: bool, choice: Choice, left: dict[str, list[str]]
) -> None:
    """Add a column to the inputs, or to the omitted columns."""
    kind = table.columns[name]
    if kind in NUMERIC and not coded:
        choice.inputs.append(Column(name))
        return
    text = kind == Kind.TEXT or coded
    found = table.survey(name, everything=encode or coded) if text else None
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
