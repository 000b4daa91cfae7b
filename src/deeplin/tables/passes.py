"""Two passes over a table: a survey of its columns, and their conversion to rows or moments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from deeplin.errors import InputError
from deeplin.problems.moments import Moments, merge_all
from deeplin.tables.columns import Column, Kind, Survey, column_of, listed, matrix, usual_values
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
        self.total = 0
        self.keys = np.zeros(0)
        self.frames: list[pd.DataFrame] = []

    def add(self, frame: pd.DataFrame) -> None:
        """Draw from the next rows of the stream."""
        keys = self.rng.random(len(frame))
        chosen = keys < self.limit
        self.total += len(frame)
        self.keys = np.concatenate([self.keys, keys[chosen]])
        self.frames.append(frame[chosen])
        if len(self.keys) > 2 * self.size:
            self._prune()

    def _prune(self) -> None:
        rows = pd.concat(self.frames, ignore_index=True)
        smallest = np.argsort(self.keys)[: self.size]
        self.keys, self.frames = self.keys[smallest], [rows.iloc[smallest]]
        self.limit = self.keys[-1]

    def rows(self) -> pd.DataFrame:
        """Return the sample."""
        self._prune()
        return self.frames[0]


@dataclass
class Scan:
    """What the first pass over a table found."""

    surveys: dict[str, Survey]
    rows: int
    frames: list[pd.DataFrame] | None
    """The chunks of the table, if they fit into the memory limit."""
    sample: RowSample | None
    """Some of the rows, if not."""


def scan(
    table: Table,
    names: Iterable[str],
    *,
    coded: Collection[str] = (),
    text: Collection[str] = (),
    memory: int = MEMORY,
    chunk_rows: int | None = None,
    seed: int | None = None,
) -> Scan:
    """Survey the named columns in one pass over the table.

    Those in `coded` are categories, whatever they hold; of files, those in `text` are read as text,
    too. Chunks are kept as long as they fit into `memory` bytes; after that, if there is a seed, a
    sample of the rows.
    """
    surveys = {name: Survey(table.decimal, table.thousands) for name in names}
    kept: list[pd.DataFrame] | None = []
    size = rows = 0
    sample = None
    for frame in table.chunks(None, {*coded, *text}, chunk_rows):
        for name, survey in surveys.items():
            survey.add(column_of(frame, name), rows, Kind.TEXT if name in coded else None)
        rows += len(frame)
        size += int(frame.memory_usage(index=False).sum())
        if kept is not None:
            kept.append(frame)
            if size <= memory:
                continue
        if seed is not None:
            most = min(SAMPLE, SAMPLE_CELLS // len(table.columns))
            sample = sample or RowSample(most, seed)
            for chunk in kept or [frame]:
                sample.add(chunk)
        kept = None
    return Scan(surveys, rows, kept, sample)


@dataclass
class Conversion:
    """Converts chunks to matrices of columns (targets last), and treats missing values."""

    name: str
    columns: tuple[Column, ...]
    targets: int
    missing: str
    """The policy: refuse, drop or median."""
    whole: np.ndarray
    """Which columns hold integers."""
    rows: int = 0
    left_out: int = 0
    """Number of rows left out."""
    filled: np.ndarray | int = 0
    """Number of missing values in each column, in the rows that are not left out."""

    def __call__(
        self, frame: pd.DataFrame, *, counting: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of a chunk, and which of its rows these are."""
        rows = matrix(frame, self.columns)
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(rows.sum())  # much faster than looking at every number
        if finite:
            lacking: Any = np.zeros(len(rows), bool)
        else:
            empty: Any = np.isnan(rows)
            if self.missing == "median":
                lacking = empty[:, -self.targets :].any(axis=1)
                self.filled = self.filled + counting * empty[~lacking].sum(axis=0)
            else:
                lacking = empty.any(axis=1)
        self._require_usable(rows, bool(finite))
        if counting:
            self.rows += len(rows)
            self.left_out += int(lacking.sum())
        usable = np.logical_not(lacking)
        return (rows if finite else rows[usable]), usable

    def _require_usable(self, rows: np.ndarray, finite: bool) -> None:
        """Raise InputError for integers that float64 cannot represent (mostly identifiers), and
        for infinite or missing values."""
        too_large = np.abs(rows[:, self.whole]) >= 2.0**53
        if too_large.any():
            row, place = np.argwhere(too_large)[0]
            j = np.flatnonzero(self.whole)[place]
            raise InputError(
                f"column {self.columns[j].label!r} of {self.name!r} holds whole numbers of 2⁵³ or "
                f"more (row {self.rows + row + 1}: about {rows[row, j]:.3g}), which float64 "
                "cannot tell apart; ignore it (--ignore) or subtract a constant first."
            )
        if finite:
            return
        wrong, kind, remedy = np.isinf(rows), "an infinite", "correct it, or ignore the column"
        if not wrong.any() and self.missing == "refuse":
            wrong, kind = np.isnan(rows), "a missing"
            remedy = (
                "leave such rows out with missing='drop' (--missing drop), or put the median of "
                "the column there with missing='median' (--missing median)"
            )
        if wrong.any():
            row = int(np.flatnonzero(wrong.any(axis=1))[0])
            names = listed([self.columns[j].label for j in np.flatnonzero(wrong[row])])
            raise InputError(
                f"{self.name!r} has {kind} value in row {self.rows + row + 1}, column {names}; "
                f"{remedy}."
            )


@dataclass
class Gathered:
    """The rows of a table or their moments, and the rows that are not among them."""

    rows: np.ndarray | Moments
    held: np.ndarray | None = None
    sample: np.ndarray | None = None
    fill: np.ndarray | None = None


def read_rows(convert: Conversion, chunks: Iterable[pd.DataFrame]) -> np.ndarray:
    """Return all rows as one matrix."""
    rows = np.concatenate([convert(frame)[0] for frame in chunks] or [np.empty((0, 1))])
    if not len(rows):
        raise no_rows(convert)
    return rows


def no_rows(convert: Conversion) -> InputError:
    """Return the error for a table of which every row has a missing value."""
    return InputError(
        f"the table has no complete row ({convert.left_out} with a missing value); ignore the "
        "columns that are mostly missing (--ignore), or pass --missing median."
    )


def read_moments(
    convert: Conversion, chunks: Iterable[pd.DataFrame], found: RowSample, share: float, seed: int
) -> Gathered:
    """Return the moments of the rows that are not held out, and the sample."""
    sample, usable = convert(found.rows(), counting=False)
    keys = found.keys[usable]
    if not len(keys):
        raise no_rows(convert)
    fill = usual_values(convert.columns, sample) if convert.missing == "median" else None
    count = max(1, min(round(share * found.total), len(keys)))
    limit = np.sort(keys)[count - 1] if share else -1.0
    rng = np.random.default_rng(seed)

    def parts() -> Iterator[Moments]:
        for frame in chunks:
            rows, usable = convert(frame)
            if share:
                rows = rows[rng.random(len(frame))[usable] > limit]
            if len(rows):
                yield Moments.of_table(filled(rows, fill), convert.targets)

    moments = merge_all(parts())
    if moments is None:
        raise no_rows(convert)
    sample = filled(sample, fill)
    return Gathered(moments, sample[keys <= limit] if share else None, sample, fill)


def filled(rows: np.ndarray, fill: np.ndarray | None) -> np.ndarray:
    """Return rows whose missing values are replaced."""
    return rows if fill is None else np.where(np.isnan(rows), fill, rows)
