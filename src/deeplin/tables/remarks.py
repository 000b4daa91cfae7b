"""Remarks on the numbers of a table: identifiers, codes of classes, rows that decide the fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from deeplin.tables.columns import Column, listed

IDENTIFIER = re.compile(r"(.*[^a-zA-Z])?(?i:id|uuid|key|nr|no|number|code)|.*[a-z]I[dD]")
"""Names of columns that identify their rows."""
FEWEST = 20
"""Number of rows below which there are no notes."""
CLASSES = 3, 12
"""Range of the number of distinct integers that may be codes of classes."""
DOMINATES = 0.5
"""Fraction of the squared deviations of a column above which a single row is reported."""


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
