"""Remarks on the numbers of a table: identifiers, codes of classes, rows that decide the fit."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np

from deeplin.tables.columns import Column, listed

IDENTIFIER = re.compile(r"(.*[^a-zA-Z])?(?i:id|uuid|key|nr|no|number|code)|.*[a-z]I[dD]")
"""Names of columns that identify their rows."""
COUNTED = 10
"""Number of rows from which a first column of 0 … n−1 or 1 … n is taken as a row number."""
FEWEST = 20
"""Number of rows below which there are no other remarks."""
CLASSES = 3, 12
"""Range of the number of distinct integers that may be codes of classes."""
DOMINATES = 0.5
"""Fraction of the squared deviations of a column above which a single row is reported."""


def remarks(
    rows: np.ndarray,
    columns: Sequence[Column],
    *,
    targets: int,
    kept: Collection[str],
    total: int,
    row_numbers: np.ndarray | None,
) -> tuple[list[int], list[str]]:
    """Return which columns to leave out since they identify rows, and sentences on the others.

    Args:
        rows: The numbers of a table, or of a sample of its rows.
        columns: Their columns, without a target that holds classes.
        targets: How many of them are targets, at the end.
        kept: Names of columns that are not to be left out.
        total: Number of rows of the table if the first column is that of the table, else 0.
        row_numbers: The place of each row in the table, from 0; None for a sample.
    """
    leave: dict[int, str] = {}
    suspects: list[str] = []
    codes: list[str] = []
    about_targets: list[str] = []
    low, high = CLASSES
    inputs = len(columns) - targets
    for place, column in enumerate(columns):
        numbers, target = rows[:, place], place >= inputs
        if column.is_text or not np.all(numbers == np.floor(numbers)):
            continue
        values = np.unique(numbers)
        different = len(values) == len(rows) and not target and column.name not in kept
        within = values[0] >= 0 and values[-1] <= total
        few = low - target <= len(values) <= min(high, len(rows) // 10) and len(rows) >= 10 * low
        if place == 0 and different and len(rows) >= COUNTED and within:
            leave[place] = "numbers the rows"
        elif few and target:
            about_targets.append(
                f"The target {column.name!r} holds only {len(values)} different whole numbers, "
                "which are predicted as amounts; if they are classes: --task classification."
            )
        elif few:
            codes.append(column.name)
        elif different and len(rows) >= FEWEST and IDENTIFIER.fullmatch(column.name):
            leave[place] = "is a different whole number in every row"
        elif different and len(rows) >= FEWEST and np.ptp(values) >= 10 * len(rows):
            suspects.append(column.name)
    if len(leave) == inputs:  # something must remain
        leave = {}
    notes = [
        f"{columns[j].name!r} {why}, so it was left out as an identifier; "
        f"to use it: --keep {columns[j].name}."
        for j, why in leave.items()
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
    if row_numbers is not None:
        notes += _outliers(rows, columns, row_numbers)
    return list(leave), notes


def _outliers(rows: np.ndarray, columns: Sequence[Column], row_numbers: np.ndarray) -> list[str]:
    """Return a sentence for each column in which one row has most of the squared deviations."""
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
            notes.append(
                f"{column.label!r} is {rows[row, place]:.4g} in row {row_numbers[row] + 1}, which "
                f"alone has {share:.0%} of its squared deviations and decides the fit; check it."
            )
    return notes[:5]
