"""Which columns of a table are inputs and which targets: a sentence for each that is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deeplin.checks import InputError
from deeplin.problems.csv_text import CATEGORIES, REMEDY, survey
from deeplin.problems.formats import DATE, NUMBER, OTHER, TEXT, WHOLE, Column
from deeplin.problems.tables import Table

UNNAMED = re.compile(r"\s*|Unnamed: \d+")


@dataclass(frozen=True)
class Choice:
    """Inputs, targets, and a sentence for every column that is neither or was changed."""

    inputs: tuple[Column, ...]
    targets: tuple[Column, ...]
    notes: tuple[str, ...]


def listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(repr(str(name)) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def choose(
    table: Table,
    target: str | Sequence[str],
    *,
    ignore: Sequence[str] = (),
    keep: Sequence[str] = (),
    encode: bool = False,
) -> Choice:
    """Every column of numbers that is neither target nor ignored nor without a name is an input.

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
    return Choice(tuple(columns), tuple(map(Column, targets)), tuple(notes))


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
    left: dict[str, list[str]] = {TEXT: [], DATE: [], OTHER: []}
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
    if left[TEXT]:
        advice = "Pass encode=True (--encode) to make categories of it."
        notes.append(f"Left out because not made of numbers: {listed(left[TEXT])}. {advice}")
    if left[DATE]:
        advice = "Add numbers made from them, such as days since the first."
        notes.append(f"Left out because dates: {listed(left[DATE])}. {advice}")
    if left[OTHER]:
        notes.append(f"Left out because not made of numbers: {listed(left[OTHER])}.")
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
