"""Two passes over a table: a scan that keeps its rows or a sample, and their conversion."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from deeplin.errors import InputError
from deeplin.problems.moments import Moments, merge_all
from deeplin.tables.columns import (
    Column,
    as_text,
    column_of,
    counted,
    first_cell,
    listed,
    matrix,
    usual_values,
)
from deeplin.tables.files import Table

MEMORY = 128 * 2**20
"""Size in bytes up to which a table is kept in memory; larger ones only as second moments."""
SAMPLE, SAMPLE_CELLS = 50_000, 2**24
"""Most rows of a table larger than the memory limit that are kept for baselines and scores, and
most cells in them."""


class RowSample:
    """A random sample of the rows of a stream: those with the smallest of random keys."""

    def __init__(self, size: int, seed: int):
        self.size = size
        self.rng = np.random.default_rng(seed)
        self.limit = np.inf
        self.keys = np.zeros(0)
        self.frames: list[pd.DataFrame] = []

    def add(self, frame: pd.DataFrame) -> None:
        """Draw from the next rows of the stream."""
        keys = self.rng.random(len(frame))
        chosen = keys < self.limit
        self.keys = np.concatenate([self.keys, keys[chosen]])
        self.frames.append(frame[chosen])
        if len(self.keys) > 2 * self.size:
            self.rows()

    def rows(self) -> pd.DataFrame:
        """Return the sample, in the order of the stream."""
        smallest = np.sort(np.argsort(self.keys)[: self.size])
        self.keys, self.frames = self.keys[smallest], [pd.concat(self.frames).iloc[smallest]]
        self.limit = self.keys.max()
        return self.frames[0]


@dataclass
class Scan:
    """What the first pass over a table keeps: its rows, or a sample of them."""

    frame: pd.DataFrame
    """Rows, indexed from 0 as in the table."""
    rows: int
    """Number of rows of the table."""
    keys: np.ndarray | None = None
    """The random keys of a sample; None for all rows."""


def scan(table: Table, names: list[str], text: Collection[str], memory: int, seed: int) -> Scan:
    """Read a table once: keep its rows if they fit into `memory` bytes, else a sample of them.

    Only the named columns are kept; those in `text` are read as text.
    """
    sample = RowSample(min(SAMPLE, SAMPLE_CELLS // len(table.columns)), seed)
    frames: list[pd.DataFrame] = []
    size = rows = 0
    for whole in table.chunks(None, text):
        frame: Any = whole if len(names) == len(table.columns) else whole[names]
        rows += len(frame)
        size += int(frame.memory_usage(index=False).sum())
        frames.append(frame)
        while size > memory and frames:
            sample.add(frames.pop(0))
    if size > memory:
        return Scan(sample.rows(), rows, sample.keys)
    return Scan(pd.concat(frames) if frames else pd.DataFrame(columns=names), rows)


@dataclass
class Conversion:
    """Converts chunks to matrices of columns (targets last), and treats missing values."""

    table: Table
    columns: tuple[Column, ...]
    targets: int
    missing: str
    """The policy: refuse, drop or median."""
    whole: np.ndarray
    """Which columns hold integers."""
    categories: Mapping[str, tuple[str, ...]]
    """The categories of the columns that are encoded, where only a sample is surveyed."""
    left_out: int = 0
    """Number of rows left out."""
    filled: np.ndarray | int = 0
    """Number of missing values in each column, in the rows that are not left out."""

    def __call__(self, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of a chunk, and which of its rows these are."""
        rows = matrix(frame, self.columns, self.table.decimal)
        self._require_usable(rows, frame)
        empty = np.isnan(rows)
        judged = empty[:, -self.targets :] if self.missing == "median" else empty
        usable: Any = ~judged.any(axis=1)
        self.left_out += int(np.count_nonzero(~usable))
        self.filled = self.filled + empty[usable].sum(axis=0)
        return (rows if usable.all() else rows[usable]), usable

    def _require_usable(self, rows: np.ndarray, frame: pd.DataFrame) -> None:
        """Raise InputError for integers that float64 cannot represent (mostly identifiers), for
        infinite or missing values, and for categories that are not known."""
        wrong, kind, remedy = np.isinf(rows), "an infinite", "correct it, or ignore the column"
        if not wrong.any() and self.missing == "refuse":
            wrong, kind = np.isnan(rows), "a missing"
            remedy = (
                "leave such rows out with missing='drop' (--missing drop), or put the median of "
                "the column there with missing='median' (--missing median)"
            )
        too_large = np.abs(rows[:, self.whole]) >= 2.0**53
        if too_large.any():
            row, place = np.argwhere(too_large)[0]
            j = np.flatnonzero(self.whole)[place]
            raise InputError(
                f"column {self.columns[j].label!r} of {self.table.name!r} holds whole numbers of "
                f"2⁵³ or more (row {frame.index[row] + 1}: about {rows[row, j]:.3g}), which "
                "float64 cannot tell apart; ignore it (--ignore) or subtract a constant first."
            )
        if wrong.any():
            row = int(np.flatnonzero(wrong.any(axis=1))[0])
            names = listed([self.columns[j].label for j in np.flatnonzero(wrong[row])])
            raise InputError(
                f"{self.table.name!r} has {kind} value in row {frame.index[row] + 1}, column "
                f"{names}; {remedy}."
            )
        for name, known in self.categories.items():
            texts = as_text(column_of(frame, name))
            row, cell = first_cell(texts, ~texts.isin(known))
            if row:
                raise InputError(
                    f"column {name!r} has a category in row {row}, {cell[:40]!r}, that is not in "
                    "the sample of the rows; ignore the column (--ignore), or pass a larger memory "
                    "(--memory)."
                )

    @property
    def notes(self) -> list[str]:
        """Sentences on the values that were missing, and on what was done about it."""
        notes = []
        if self.left_out:
            what = "the target" if self.missing == "median" else "a value"
            notes.append(f"Rows left out because {what} is missing: {self.left_out}.")
        times = zip(self.columns, np.broadcast_to(self.filled, len(self.columns)), strict=True)
        replaced = [(column, int(n)) for column, n in times if n]
        for coded, what in ((False, "the median"), (True, "the most frequent category")):
            some = {c.name: n for c, n in replaced if (c.category is not None) == coded}
            listing = [f"{name!r} ({counted(n, 'row')})" for name, n in some.items()]
            more = f" and {len(listing) - 5} more" if len(listing) > 5 else ""
            if listing:
                notes.append(
                    f"Missing values were replaced by {what} of their column: "
                    f"{', '.join(listing[:5])}{more}."
                )
        return notes

    def no_rows(self) -> InputError:
        """Return the error for a table of which every row has a missing value."""
        return InputError(
            f"the table has no complete row ({self.left_out} with a missing value); ignore the "
            "columns that are mostly missing (--ignore), or pass --missing median."
        )


@dataclass
class Gathered:
    """The rows of a table or their moments, and the rows that are not among them."""

    rows: np.ndarray | Moments
    held: np.ndarray | None = None
    sample: np.ndarray | None = None
    fill: np.ndarray | None = None
    """What replaced missing values, one number per column."""


def read_moments(
    convert: Conversion, chunks: Iterable[pd.DataFrame], found: Scan, share: float, seed: int
) -> Gathered:
    """Return the moments of the rows that are not held out, and the sample."""
    assert found.keys is not None
    sample, usable = replace(convert)(found.frame)
    keys = found.keys[usable]
    if not len(keys):
        raise convert.no_rows()
    fill = usual_values(convert.columns, sample) if convert.missing == "median" else None
    count = max(1, min(round(share * found.rows), len(keys)))
    limit = np.sort(keys)[count - 1] if share else -1.0
    rng = np.random.default_rng(seed)

    def parts() -> Iterator[Moments]:
        for frame in chunks:
            rows, usable = convert(frame)
            rows = rows[rng.random(len(frame))[usable] > limit]
            if len(rows):
                yield Moments.of_table(filled(rows, fill), convert.targets)

    moments = merge_all(parts())
    if moments is None:
        raise convert.no_rows()
    sample = filled(sample, fill)
    return Gathered(moments, sample[keys <= limit] if share else None, sample, fill)


def filled(rows: np.ndarray, fill: np.ndarray | None) -> np.ndarray:
    """Return rows whose missing values are replaced."""
    return rows if fill is None else np.where(np.isnan(rows), fill, rows)
