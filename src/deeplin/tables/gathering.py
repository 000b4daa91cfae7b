"""One streamed pass over the files of a table: its complete rows, or only their moments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from deeplin.errors import InputError, readable
from deeplin.problems.moments import Moments, merge_all
from deeplin.tables.formats import Chunk, Column, TableFile
from deeplin.tables.table import Table

CONNECT_SECONDS = 15.0
"""Seconds to wait for a dask scheduler."""


@dataclass(frozen=True)
class Plan:
    """Which columns to read (targets last), in chunks of how many rows, and what is missing.

    `missing` is "refuse" or "drop"; `whole` are the places of columns of whole numbers.
    """

    columns: tuple[Column, ...]
    targets: int
    chunk_rows: int
    missing: str
    whole: tuple[int, ...] = ()


@dataclass
class LeftOut:
    """How many rows were left out, and how many values are missing in each column."""

    rows: int = 0
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, int))

    def add(self, rows: np.ndarray) -> None:
        """Count rows with a missing value."""
        self.rows += len(rows)
        self.values = np.isnan(rows).sum(axis=0) + (self.values if self.values.size else 0)

    def __add__(self, other: LeftOut) -> LeftOut:
        if not self.values.size or not other.values.size:
            return LeftOut(self.rows + other.rows, max(self.values, other.values, key=len))
        return LeftOut(self.rows + other.rows, self.values + other.values)


Sum = tuple[Moments | None, LeftOut]
"""Moments of the complete rows, if there are any, and what was left out."""


@dataclass(frozen=True)
class _Part:
    """A chunk of a file, and how many of its rows come before it."""

    piece: TableFile
    before: int
    chunk: Chunk
    plan: Plan

    def complete_rows(self, left_out: LeftOut) -> np.ndarray:
        """The rows without a missing value, where those with one may be left out."""
        with readable(self.piece.path):
            rows = self.chunk.matrix()
        self._check_whole(rows)
        # A finite sum means finite numbers, and is far quicker to check than each of them.
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(rows.sum())
        return rows if finite else self._check(rows, left_out)

    def _check_whole(self, rows: np.ndarray) -> None:
        """Refuse whole numbers that float64 cannot tell apart; mostly they are identifiers."""
        whole = self.plan.whole
        too_large = np.abs(rows[:, whole]) >= 2.0**53 if whole else np.zeros((0, 0), bool)
        if too_large.any():
            row, place = np.argwhere(too_large)[0]
            name = self.plan.columns[whole[place]].label
            raise InputError(
                f"column {name!r} of {self.piece.path!r} holds whole numbers of 2⁵³ or more (row "
                f"{self.before + row + 1}: about {rows[row, whole[place]]:.3g}), which float64 "
                f"cannot tell apart; ignore it (--ignore) or subtract a constant first."
            )

    def _check(self, rows: np.ndarray, left_out: LeftOut) -> np.ndarray:
        infinite, lacking = np.isinf(rows), np.isnan(rows)
        if not infinite.any() and (self.plan.missing == "drop" or not lacking.any()):
            incomplete = lacking.any(axis=1)
            left_out.add(rows[incomplete])
            return rows[~incomplete]
        wrong, kind, remedy = (
            (infinite, "an infinite", "correct it, or ignore the column")
            if infinite.any()
            else (lacking, "a missing", "pass missing='drop' (--missing drop) or impute it first")
        )
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        names = [repr(self.plan.columns[j].label) for j in np.flatnonzero(wrong[row])]
        raise InputError(
            f"{self.piece.path!r} has {kind} value in row {self.before + row + 1}, column "
            f"{', '.join(names[:5])}; {remedy}."
        )


def parts_of(pieces: Iterable[TableFile], plan: Plan) -> Iterator[_Part]:
    """The files of a table, chunk by chunk."""
    for piece in pieces:
        before = 0
        for chunk in piece.chunks(plan.columns, plan.chunk_rows):
            yield _Part(piece, before, chunk, plan)
            before += chunk.rows


def gather(table: Table, plan: Plan, memory: int) -> tuple[np.ndarray | Moments, LeftOut]:
    """The rows themselves while they fit into `memory` bytes, else their moments."""
    parts = parts_of(table.pieces, plan)
    kept: list[np.ndarray] = []
    left_out, size = LeftOut(), 0
    for part in parts:
        kept.append(part.complete_rows(left_out))
        size += kept[-1].nbytes
        if size > memory:
            break
    else:
        return np.concatenate(kept) if size else _refuse_no_rows(plan, left_out), left_out
    width = len(plan.columns)
    if 8 * width**2 > memory:
        raise InputError(
            f"the table is larger than {memory / 2**20:.0f} MiB and so are the second moments of "
            f"its {width} columns; pass a larger memory (--memory), or fewer columns."
        )
    # One by one, forgetting each, so that nothing is held twice.
    emptied = (kept.pop(0) for _ in range(len(kept)))
    sums = ((Moments.of_table(rows, plan.targets), LeftOut()) for rows in emptied if len(rows))
    moments, more = _merged(chain(sums, _summed(parts)))
    return moments or _refuse_no_rows(plan, left_out + more), left_out + more


def _summed(parts: Iterator[_Part]) -> Iterator[Sum]:
    """The sum of each part: this thread reads the next one while another multiplies."""
    with ThreadPoolExecutor(1) as pool:
        ahead = None
        for part in parts:
            current = pool.submit(_sum, part)
            if ahead is not None:
                yield ahead.result()
            ahead = current
        if ahead is not None:
            yield ahead.result()


def _sum(part: _Part) -> Sum:
    left_out = LeftOut()
    rows = part.complete_rows(left_out)
    return Moments.of_table(rows, part.plan.targets) if len(rows) else None, left_out


def _merged(sums: Iterator[Sum]) -> Sum:
    """The sum of all sums."""
    total = LeftOut()

    def present() -> Iterator[Moments]:
        nonlocal total
        for moments, left_out in sums:
            total += left_out
            if moments is not None:
                yield moments

    return merge_all(present()), total


def _refuse_no_rows(plan: Plan, left_out: LeftOut) -> NoReturn:
    empty = [
        repr(column.label)
        for column, count in zip(plan.columns, left_out.values, strict=False)
        if count == left_out.rows
    ]
    which = f": nothing is in {', '.join(empty[:5])}" if empty else ""
    raise InputError(
        f"the table has no complete row ({left_out.rows} with a missing value{which}); ignore the "
        "columns that are mostly missing (--ignore)."
    )


# --- in parallel -------------------------------------------------------------------------------


def gather_on_cluster(table: Table, plan: Plan, cluster: Any) -> tuple[Moments, LeftOut]:
    """Moments of groups of files, computed by dask workers, merged in the order of the table."""
    pieces = [part for piece in table.pieces for part in piece.split()]
    with dask_client(cluster) as client:
        workers = max(1, len(client.nthreads()))
        groups = np.array_split(np.arange(len(pieces)), min(len(pieces), 8 * workers))
        tasks = [[pieces[i] for i in group] for group in groups]
        results = client.gather(client.map(_sum_of, tasks, plan=plan, pure=False))
    moments, left_out = _merged(iter(results))
    return moments or _refuse_no_rows(plan, left_out), left_out


def _sum_of(pieces: list[TableFile], plan: Plan) -> Sum:
    """What one worker does."""
    return _merged(_summed(parts_of(pieces, plan)))


@contextmanager
def dask_client(cluster: Any) -> Iterator[Any]:
    """The caller's client, or a new one for the address of a scheduler."""
    if not isinstance(cluster, str):
        yield cluster
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(
            "work on a cluster needs dask; install it with: pip install 'deeplin[cluster]'."
        ) from error
    try:
        client = Client(cluster, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no dask scheduler answers at {cluster} ({error}); pass its address, for example "
            "tcp://127.0.0.1:8786."
        ) from error
    with client:
        yield client
