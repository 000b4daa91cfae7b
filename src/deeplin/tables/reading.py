"""Reading of a problem from a table by pandas, in at most two passes, with notes on every change.

A table that fits into the memory limit is read once and kept; of a larger one the first pass keeps
a random sample of rows, which tells what the columns hold (which of them numbers, in which style,
which categories), and the second one accumulates the second moments.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from deeplin.errors import InputError, positive_number, seed_number, whole_number
from deeplin.tables.columns import (
    CATEGORIES,
    NUMERIC,
    Column,
    Kind,
    Survey,
    column_of,
    counted,
    listed,
    survey,
    usual_values,
)
from deeplin.tables.files import Source, Table, in_memory, open_table
from deeplin.tables.passes import MEMORY, Conversion, Gathered, filled, read_moments, scan
from deeplin.tables.preparation import Reading, prepare
from deeplin.tables.remarks import remarks

__all__ = ["read_data", "read_problem"]

TASKS = ("auto", "regression", "classification")
MISSING_POLICIES = ("refuse", "drop", "median")
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
    thousands: str | None = None,
    test_share: float = 0.0,
    seed: int = 0,
    memory: int = MEMORY,
) -> Reading:
    """Read a problem from a table: a CSV, Parquet, Feather or Excel file, or a DataFrame.

    `notes` of the result say what was done to the table.

    Args:
        source: A file name, `-` for standard input, or a table in memory.
        target: The column to predict (-1: the last), or several.
        task: "regression" (squared loss), "classification" (logistic loss for two classes, softmax
            for more) or "auto": classification where the target is text, true or false, or has two
            different values in at least ten rows.
        ignore: Columns to leave out.
        keep: Columns to use even if they have no name, number the rows or are identifiers.
        encode: Whether to make categories of text: an indicator for each value except the first.
        categorical: Columns of numbers to treat as categories.
        standardize: Whether to subtract the means and divide every input by its standard deviation
            (that of the rows, not of a population).
        intercept: Whether to subtract the means of inputs and targets, which is the same as fitting
            an intercept; for classes this adds a constant input.
        scale_targets: Whether to divide targets by their standard deviations, too.
        missing: "refuse"; "drop" (leave out rows with a missing value); or "median" (replace a
            missing input by the median of its column, a category by the most frequent one, and
            leave out rows without a target).
        decimal: The decimal mark of text, "." or ","; None finds it.
        thousands: The mark between groups of three digits; None finds it.
        test_share: The share of the rows to hold out, at random by `seed` and from each class
            alike.
        seed: Seed of the rows held out, and of the sample.
        memory: Bytes up to which a table is kept. Of a larger one only Σ̂, Xᵀy/n and ‖y‖²/n are
            kept, which do not depend on the chunks beyond rounding, and 50 000 rows as `sample`.

    ```python
    import deeplin as dl, numpy as np, pandas as pd
    rows = np.random.default_rng(0).normal(size=(9, 3))
    houses = pd.DataFrame(rows, columns=["area", "age", "price"])
    reading = dl.read_problem(houses, "price", standardize=True, intercept=True)
    reading.problem.optimum, reading.notes
    ```
    """
    if missing not in MISSING_POLICIES:
        raise InputError(f"missing is {missing!r}; pass 'refuse', 'drop' or 'median'.")
    if task not in TASKS:
        raise InputError(f"task is {task!r}; pass one of {', '.join(TASKS)}.")
    if not 0 <= positive_number("test_share", test_share, zero_allowed=True) < 1:
        raise InputError(f"test_share is {test_share:g}; pass a share from 0 to below 1.")
    seed = seed_number(seed)
    table = open_table(source, decimal, thousands)
    wishes = Wishes(
        targets=_named(table, target),
        ignored=_named(table, ignore),
        kept=_named(table, keep),
        coded=_named(table, categorical),
        encode=encode,
        task=task,
    )
    memory = whole_number("memory", memory, minimum=0)
    used = [it for it in table.columns if it in wishes.targets or it not in wishes.ignored]
    found = scan(table, used, wishes.coded, memory, seed)
    chosen = _choose(table, found.frame, wishes)
    columns = (*chosen.inputs, *chosen.targets)
    count = len(chosen.targets)
    convert = Conversion(
        table,
        columns,
        count,
        missing,
        chosen.whole,
        {} if found.keys is None else chosen.categories,
    )
    notes = [*table.notes, *chosen.notes]
    classes: Classes = ()
    if found.keys is None:
        kept, usable = convert(found.frame)
        if not len(kept):
            raise convert.no_rows()
        classes = _classes(kept, columns[-1], task, notes) if count == 1 else ()
        labels = kept[:, -1] if classes else kept[:, :0]
        test = _held_out(labels, test_share, seed) if test_share else np.zeros(len(labels), bool)
        fill = usual_values(columns, kept[~test]) if missing == "median" else None
        kept = filled(kept, fill)
        row_numbers = found.frame.index[usable].to_numpy()
        gathered = Gathered(kept[~test], kept[test] if test_share else None, None, fill)
    else:
        _require_moments(columns, task, memory)
        text = {column.name for column in columns if column.is_text}
        chunks = table.chunks([column.name for column in columns], text)
        gathered = read_moments(convert, chunks, found, test_share, seed)
        assert gathered.sample is not None
        kept, row_numbers = gathered.sample, None
        notes.append(
            "Baselines and scores on rows left out use a random sample of "
            f"{counted(len(kept), 'row')} (--seed)."
        )
    amounts = len(columns) - bool(classes)
    first = columns[0].name == table.columns[0]
    leave, said = remarks(
        kept,
        columns[:amounts],
        targets=0 if classes else count,
        kept=wishes.kept,
        total=found.rows if first else 0,
        row_numbers=row_numbers,
    )
    return prepare(
        gathered,
        columns,
        count,
        standardize=standardize,
        intercept=intercept,
        scale_targets=scale_targets,
        leave=leave,
        classes=classes,
        categories=chosen.categories,
        marks=(table.decimal, table.thousands),
        first_notes=[*notes, *said, *convert.notes],
    )


def _require_moments(columns: Sequence[Column], task: str, memory: int) -> None:
    """Raise InputError where second moments are not enough, or do not fit into the memory."""
    if columns[-1].labels or task == "classification":
        raise InputError(
            "of this table only the second moments are kept, so that no classes can be predicted; "
            "pass a larger memory (--memory)."
        )
    if 8 * len(columns) ** 2 > memory:
        raise InputError(
            f"the table is larger than {memory / 2**20:.0f} MiB and so are the second moments of "
            f"its {len(columns)} columns; pass a larger memory (--memory), or fewer columns."
        )


def read_data(data: Any, y: Any = None, target: Any = None, **options: Any) -> Reading:
    """Read a table with the name of its target, or inputs X (a matrix or a table) with targets y.

    The options are those of `read_problem`, with an intercept; all columns of X are used.
    """
    options = {"intercept": True} | options
    if y is None:
        if target is None:
            raise InputError("a table needs its target; pass target='name of a column', or y.")
        return read_problem(data, target, **options)
    if isinstance(y, str):
        raise InputError(f"y is {y!r}; pass target={y!r} for a column of the table.")
    frame = in_memory(np.asarray(data) if isinstance(data, list | tuple) else data)
    columns = np.asarray(y).reshape(len(y), -1)
    names = ["y" if columns.shape[1] == 1 else f"y{k + 1}" for k in range(columns.shape[1])]
    if len(columns) != len(frame):
        raise InputError(f"X has {len(frame)} rows and y has {len(columns)}; pass equally many.")
    targets = pd.DataFrame({name: c.tolist() for name, c in zip(names, columns.T, strict=True)})
    table = pd.concat([frame.reset_index(drop=True), targets], axis=1)
    return read_problem(table, names, keep=list(frame.columns), **options)


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


# --- which columns are inputs and which targets --------------------------------------------------


@dataclass(frozen=True)
class Wishes:
    """What the caller says about the columns, by their full names."""

    targets: list[str]
    ignored: list[str]
    kept: list[str]
    coded: list[str]
    encode: bool
    task: str


@dataclass
class Choice:
    """The columns of a table that are used, and notes on omitted or changed ones."""

    inputs: list[Column] = field(default_factory=list)
    targets: list[Column] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    whole: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """Which inputs and targets are stored as integers."""


def _choose(table: Table, frame: pd.DataFrame, wishes: Wishes) -> Choice:
    """Return inputs and targets: inputs are numeric, named, not ignored and not a target."""
    choice = Choice()
    surveys: dict[str, Survey] = {}
    for name in frame.columns:
        marks = table.decimal, table.thousands
        surveys[name] = survey(column_of(frame, name), *marks, coded=name in wishes.coded)
    if len(wishes.targets) > 1 and wishes.task == "classification":
        raise InputError(f"classification has one target; received {listed(wishes.targets)}.")
    if both := [name for name in wishes.targets if name in wishes.ignored]:
        raise InputError(f"the target {both[0]!r} is ignored; pass another, or do not ignore it.")
    task = "regression" if len(wishes.targets) > 1 else wishes.task
    for name in wishes.targets:
        choice.targets.append(_target(name, surveys[name], choice.notes, task))
    others = [name for name in surveys if name not in wishes.targets]
    unnamed = [name for name in others if UNNAMED.fullmatch(name) and name not in wishes.kept]
    if unnamed:
        choice.notes.append(
            f"Left out because without a name, like a row number: {listed(unnamed)}."
        )
    left: dict[str, list[str]] = {kind: [] for kind in LEFT_OUT}
    for name in others:
        if name not in unnamed:
            coded = name in wishes.coded
            kind = _add_input(name, surveys[name], wishes.encode, coded, choice)
            if kind is not None:
                left[kind].append(name)
    for kind, (why, advice) in LEFT_OUT.items():
        if left[kind]:
            choice.notes.append(f"Left out because {why}: {listed(left[kind])}.{advice}")
    if not choice.inputs:
        reasons = " ".join(choice.notes) or "The table has no other column."
        raise InputError(f"no input is left besides the target {listed(wishes.targets)}. {reasons}")
    labels = [column.label for column in (*choice.inputs, *choice.targets)]
    if repeated := sorted({label for label in labels if labels.count(label) > 1}):
        raise InputError(f"the names of columns repeat: {listed(repeated)}; rename them first.")
    used = (*choice.inputs, *choice.targets)
    choice.whole = np.array([surveys[it.name].kind == Kind.WHOLE and not it.is_text for it in used])
    return choice


def _named(table: Table, wishes: Any) -> list[str]:
    """Return the columns that a caller names (one, or several), each once."""
    several = [wishes] if isinstance(wishes, str | int) else wishes
    return list(dict.fromkeys(_meant(table, str(wish)) for wish in several))


def _meant(table: Table, wish: str) -> str:
    """Return a column by name, or the last for -1."""
    names = list(table.columns)
    if wish in names:
        return wish
    if re.fullmatch("-[0-9]{1,9}", wish) and 1 <= int(wish[1:]) <= len(names):
        return names[int(wish)]
    folded = {name.strip().casefold(): name for name in names}
    near = difflib.get_close_matches(wish.strip().casefold(), folded, 1)
    if near:
        raise InputError(f"there is no column {wish!r}; did you mean {folded[near[0]]!r}?")
    shown = ", ".join(map(repr, names[:12])) + (", …" if len(names) > 12 else "")
    raise InputError(f"there is no column {wish!r}; the table has {shown}.")


def _numeric(name: str, found: Survey, notes: list[str]) -> Column:
    """Return a column of numbers, which may be written as text."""
    if found.note:
        notes.append(f"In {name!r}, {found.note}")
    return Column(name, style=found.style if found.kind == Kind.TEXT else None)


def _target(name: str, found: Survey, notes: list[str], task: str) -> Column:
    """Return the column of a target: numbers, or text whose values are classes."""
    kind = found.kind
    if kind in (Kind.NUMBER, Kind.WHOLE) or (kind == Kind.BOOLEAN and task == "regression"):
        return _numeric(name, found, notes)
    if kind in (Kind.DATE, Kind.EMPTY, Kind.OTHER):
        what = {Kind.DATE: "is a date", Kind.EMPTY: "is empty, so there is no complete row"}
        why = what.get(kind, "holds neither numbers nor text")
        such = ", such as days since a day" if kind == Kind.DATE else ""
        raise InputError(f"the target {name!r} {why}; pass a column of numbers or classes{such}.")
    if task != "classification" and found.all_numbers:
        return _numeric(name, found, notes)
    if task != "classification" and found.nearly_numbers:
        raise InputError(f"the target {name!r} is not a column of numbers: {found.misfit}")
    categories = found.categories
    if task == "regression":
        raise InputError(
            f"the target {name!r} does not hold numbers ({listed(categories[:3])}, …), so it is no "
            "amount to predict; pass task='classification' (--task classification), one target, or "
            "a column of numbers."
        )
    if len(categories) > CATEGORIES:
        raise InputError(
            f"the target {name!r} has more than {CATEGORIES} different values "
            f"({listed(categories[:3])}, …), which are not classes; pass another column."
        )
    return Column(name, labels=categories)


def _add_input(name: str, found: Survey, encode: bool, coded: bool, choice: Choice) -> Kind | None:
    """Add a column to the inputs, or return its kind if it is left out."""
    kind = found.kind
    if kind in NUMERIC and not coded:
        choice.inputs.append(_numeric(name, found, choice.notes))
        return None
    if kind != Kind.TEXT:
        return kind
    if found.all_numbers and not coded:
        choice.inputs.append(_numeric(name, found, choice.notes))
    elif found.nearly_numbers and not coded:
        choice.notes.append(f"{name!r} was left out: {found.misfit}")
    elif not (encode or coded):
        return kind
    elif len(found.categories) > CATEGORIES:
        choice.notes.append(
            f"{name!r} was left out: it has more than {CATEGORIES} different values."
        )
    elif len(found.categories) < 2:
        choice.notes.append(f"{name!r} was left out: it has one value only.")
    else:
        first, *others = found.categories
        choice.inputs += [Column(name, category) for category in others]
        choice.categories[name] = (first, *others)
        choice.notes.append(
            f"{name!r} became {counted(len(others), 'column')} of zeros and ones, for "
            f"{listed(others)} (all zero: {first!r})."
        )
    return None
