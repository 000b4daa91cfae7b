"""Predictions for the rows of a table, aligned with them: what cannot be predicted is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import InputError, readable
from deeplin.tables.csv_dialect import REMEDY, survey
from deeplin.tables.formats import TEXT, Column
from deeplin.tables.preparation import Preparation, listed
from deeplin.tables.table import Source, open_table

CHUNK = 2**21
"""Numbers in a chunk."""
SHOWN = 10
"""Rows that a sentence names."""


@dataclass
class TablePredictions:
    """The predictions of a linear map (d×q) for every row of a table, chunk after chunk.

    A row with a missing value, or with a category that was not there in training, is NaN; after
    the last chunk `notes` says which rows these are.
    """

    source: Source
    preparation: Preparation
    product: ArrayLike
    missing: list[int] = field(default_factory=list)
    unseen: list[int] = field(default_factory=list)
    rows: int = 0

    def __iter__(self) -> Iterator[np.ndarray]:
        coefficients, intercepts = self.preparation.in_table_units(self.product)
        table = open_table(self.source)
        name = self.source if isinstance(self.source, str) else "the table"
        wanted = [column.name for column in self.preparation.inputs]
        if absent := [column for column in dict.fromkeys(wanted) if column not in table.columns]:
            raise InputError(
                f"{str(name)!r} has no column {listed(absent)}; its columns are "
                f"{listed(list(table.columns))}."
            )
        known = self.preparation.categories.items()
        checks = [Column(name, labels=some) for name, some in known if name in wanted]
        columns = [*self._columns(table), *checks]
        d = len(wanted)
        for piece in table.pieces:
            for chunk in piece.chunks(columns, max(1, CHUNK // len(columns))):
                with readable(piece.path):
                    matrix = chunk.matrix()
                lacking = ~np.isfinite(matrix).all(axis=1)
                strange = (matrix[:, d:] < 0).any(axis=1)
                self.missing += (self.rows + 1 + np.flatnonzero(lacking)).tolist()
                self.unseen += (self.rows + 1 + np.flatnonzero(strange & ~lacking)).tolist()
                self.rows += len(matrix)
                matrix[lacking | strange] = np.nan
                yield matrix[:, :d] @ coefficients + intercepts
        if not self.rows:
            raise InputError(f"{str(name)!r} holds no row; pass a table with at least one.")

    def _columns(self, table) -> Iterator[Column]:
        """The inputs as this table writes them: the style of its numbers may be another."""
        for column in self.preparation.inputs:
            if column.category is not None:
                yield column
                continue
            style = None
            if table.columns[column.name] == TEXT:
                found = survey(table.texts(column.name), table.pieces[0].decimal)
                if not found.all_numbers:
                    raise InputError(f"column {column.name!r}: {found}. {REMEDY}")
                style = found.style
            here, there = (it.unit if it else "" for it in (style, column.style))
            if here != there:
                raise InputError(
                    f"column {column.name!r} has the unit {here!r} here and {there!r} in training; "
                    "convert it first."
                )
            yield column._replace(style=style)

    @property
    def notes(self) -> list[str]:
        """One sentence for each reason why rows are not predicted."""
        reasons = {
            "a value is missing": self.missing,
            "a category was not there in training": self.unseen,
        }
        return [
            f"{len(rows)} of {self.rows} rows are not predicted because {why}: row(s) "
            f"{', '.join(map(str, rows[:SHOWN]))}{', …' if len(rows) > SHOWN else ''}."
            for why, rows in reasons.items()
            if rows
        ]
