"""Columns that are numbers but perhaps not amounts, and rows that decide everything."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from deeplin.tables.formats import Column

IDENTIFIER = re.compile(r"(.*[^a-zA-Z])?(?i:id|uuid|key|nr|no|number|code)|.*[a-z]I[dD]")
"""Names of columns that number or name their rows."""
FEWEST = 20
"""Rows below which nothing is said."""
CLASSES = 3, 12
"""So many different whole numbers may be codes of classes."""
DOMINATES = 0.5
"""Part of the squared deviations of a column that one row may have before it is named."""


def identifiers(
    rows: np.ndarray, columns: Sequence[Column], whole: Sequence[int]
) -> tuple[list[int], list[str]]:
    """Places of columns that are identifiers, to be left out, and sentences about those and others.

    Different whole numbers in every row in no order, over a range far wider than the number of
    rows: an identifier if the name says so, else worth a remark.
    """
    left, notes, suspects = [], [], []
    if len(rows) < FEWEST:
        return left, notes
    for place in whole:
        values, name = rows[:, place], columns[place].label
        if len(np.unique(values)) < len(values) or np.ptp(values) < 10 * len(values):
            continue
        if IDENTIFIER.fullmatch(name):
            left.append(place)
            notes.append(
                f"{name!r} is a different whole number in every row, so it was left out as an "
                f"identifier; to use it: --keep {name}."
            )
        else:
            suspects.append(name)
    if suspects:
        names = ", ".join(map(repr, suspects[:5]))
        notes.append(
            f"Different whole numbers in every row: {names}. If they are identifiers, leave them "
            "out (--ignore)."
        )
    return left, notes


def class_codes(
    rows: np.ndarray, columns: Sequence[Column], whole: Sequence[int], targets: int
) -> list[str]:
    """A sentence for columns of few different whole numbers, which may be codes of classes."""
    notes, inputs = [], []
    low, high = CLASSES
    for place in whole:
        values = np.unique(rows[:, place]) if len(rows) >= 10 * low else np.zeros(0)
        target = place >= len(columns) - targets
        if not low - target <= len(values) <= min(high, len(rows) // 10):
            continue
        if target:
            notes.append(
                f"The target {columns[place].name!r} holds only {len(values)} different whole "
                "numbers, which are predicted as amounts; if they are classes: --task "
                "classification."
            )
        else:
            inputs.append(columns[place].label)
    if inputs:
        names = ", ".join(map(repr, inputs[:5])) + (", …" if len(inputs) > 5 else "")
        notes.append(
            f"Few different whole numbers, taken as amounts: {names}. If they are codes of "
            "classes, pass --categorical with the name."
        )
    return notes


def outliers(rows: np.ndarray, columns: Sequence[Column], complete: bool) -> list[str]:
    """A sentence for each column in which a single row has most of the squared deviations.

    `complete` says that no row was left out, so that places are row numbers.
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
