"""Predictions of a linear map for the rows of another table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from deeplin.errors import InputError
from deeplin.tables.columns import (
    NUMERIC,
    Column,
    Kind,
    as_text,
    column_of,
    counted,
    kind_of,
    listed,
    matrix,
    survey,
)
from deeplin.tables.files import Source, Table, open_table
from deeplin.tables.preparation import Preparation

__all__ = ["TablePredictions"]

SHOWN = 10
"""Maximum number of rows that a note lists."""


@dataclass
class TablePredictions:
    """Predictions of a linear map, (q, d) or (d,), for every row of a table, chunk by chunk.

    A missing value is replaced if it was replaced in training. Otherwise the prediction is NaN, as
    for a category that is not in the training data; after the last chunk `notes` lists these rows.
    """

    source: Source
    preparation: Preparation
    product: ArrayLike
    intercept: ArrayLike = 0.0
    """What the network adds, if it has biases."""
    missing: list[int] = field(default_factory=list)
    unseen: list[int] = field(default_factory=list)
    replaced: int = 0
    """Number of rows with a missing value that was replaced."""
    rows: int = 0

    def __iter__(self) -> Iterator[np.ndarray]:
        coefficients, intercepts = self.preparation.in_table_units(self.product, self.intercept)
        decimal, thousands = self.preparation.marks
        table = open_table(self.source, None, thousands or None, usual=decimal)
        wanted = list(dict.fromkeys(column.name for column in self.preparation.inputs))
        if absent := [name for name in wanted if name not in table.columns]:
            raise InputError(
                f"{table.name!r} has no column {listed(absent)}; its columns are "
                f"{listed(table.columns)}."
            )
        known = {name: some for name, some in self.preparation.categories.items() if name in wanted}
        styled = {column.name for column in self.preparation.inputs if column.style}
        checks = [Column(name, labels=some) for name, some in known.items()]
        columns: list[Column] = []
        d = len(self.preparation.inputs)
        for frame in table.chunks(wanted, {*known, *styled}):
            if not columns:  # the first rows tell how this table writes numbers
                inputs = self.preparation.inputs
                columns = [*(_as_here(it, frame, table) for it in inputs), *checks]
            rows = matrix(frame, columns, table.decimal)
            if self.preparation.fill:
                empty = np.isnan(rows).any(axis=1)
                self.replaced += int(empty.sum())
                fill = np.r_[self.preparation.fill, np.zeros(len(checks))]
                rows = np.where(np.isnan(rows), fill, rows)
            lacking = ~np.isfinite(rows).all(axis=1)
            strange = (rows[:, d:] < 0).any(axis=1)
            self.missing += (self.rows + 1 + np.flatnonzero(lacking)).tolist()
            self.unseen += (self.rows + 1 + np.flatnonzero(strange & ~lacking)).tolist()
            self.rows += len(rows)
            rows[lacking | strange] = np.nan
            yield rows[:, :d] @ coefficients + intercepts
        if not self.rows:
            raise InputError(f"{table.name!r} holds no row; pass a table with at least one.")

    @property
    def notes(self) -> list[str]:
        """One sentence for each reason why rows are not predicted, or only in part."""
        reasons = {
            "a value is missing": self.missing,
            "a category was not there in training": self.unseen,
        }
        notes = [
            f"{len(rows)} of {counted(self.rows, 'row')} {'is' if len(rows) == 1 else 'are'} not "
            f"predicted because {why}: {'row' if len(rows) == 1 else 'rows'} "
            f"{', '.join(map(str, rows[:SHOWN]))}{', …' if len(rows) > SHOWN else ''}."
            for why, rows in reasons.items()
            if rows
        ]
        if self.replaced:
            rows = counted(self.replaced, "row")
            notes.append(f"Missing values in {rows} were replaced by those of training (medians).")
        return notes


def _as_here(column: Column, frame: pd.DataFrame, table: Table) -> Column:
    """Return an input as a column of this table, which may write numbers in another style."""
    if column.category is not None:
        return column
    cells, style = column_of(frame, column.name), column.style
    kind = kind_of(cells)
    if kind == Kind.EMPTY:
        return column
    if kind in NUMERIC:
        style = None
    elif kind != Kind.TEXT or style is None or not style.fits(as_text(cells).dropna()).all():
        found = survey(cells, table.decimal, table.thousands)
        if not found.all_numbers:
            why = found.misfit or f"it holds {found.kind}; pass numbers, as in training."
            raise InputError(f"column {column.name!r}: {why}")
        style = found.style
    here, there = (it.unit if it else "" for it in (style, column.style))
    if here != there:
        raise InputError(
            f"column {column.name!r} has the unit {here!r} here and {there!r} in training; "
            "convert it first."
        )
    return column._replace(style=style)
