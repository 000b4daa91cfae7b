"""From a table to a problem: one streamed pass, with a sentence for everything done to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from threadpoolctl import threadpool_limits

from deeplin.checks import InputError, whole_number
from deeplin.problems.moments import Moments, merge_all
from deeplin.problems.preparation import Preparation, listed, prepare
from deeplin.problems.problem import Problem
from deeplin.problems.tables import Piece, Table, open_table

MEMORY = 128 * 2**20
"""Bytes of a table that are kept; of a larger one only the second moments are."""
CHUNK = 2**21
"""Numbers in a chunk, unless the caller asks for a number of rows."""
PATIENCE = 10.0
"""Seconds to wait for a dask scheduler."""


@dataclass(frozen=True)
class Reading:
    """A problem read from a table, with the names of its columns and what was done to them."""

    problem: Problem
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    preparation: Preparation
    notes: tuple[str, ...]
    """One sentence for each thing that was done to the table or is worth knowing about it."""

    def in_table_units(self, coefficients: Any) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (d×q) of the prepared inputs as coefficients and intercepts of the table's.

        Of a column that was removed the coefficient is not listed; see `inputs`.
        """
        return self.preparation.undo(np.asarray(coefficients).reshape(len(self.inputs), -1))


def read_problem(
    source: str | Path,
    target: str | Sequence[str],
    *,
    ignore: Sequence[str] = (),
    standardize: bool = False,
    intercept: bool = False,
    missing: str = "refuse",
    memory: int = MEMORY,
    chunk_rows: int | None = None,
    cluster: Any = None,
) -> Reading:
    """Read CSV, Parquet, Arrow, `.npy` or `.npz` (a file, folder or glob) in one streamed pass.

    Tables up to `memory` bytes are kept; of larger ones only Σ̂, Xᵀy/n and ‖y‖²/n are, which do
    not depend on how the rows were cut into chunks beyond rounding. `cluster` is the address of a
    dask scheduler (or a client): its workers then read the pieces of the table in parallel.

    `standardize` gives every input mean zero and variance one; `intercept` subtracts the means of
    inputs and targets, which is the same as fitting an intercept. `missing` is "refuse" or "drop"
    (leave out rows with a missing value).

    ```python
    reading = read_problem("houses.csv", "price", standardize=True, intercept=True)
    reading.problem.optimum, reading.notes
    ```
    """
    if missing not in ("refuse", "drop"):
        raise InputError(f"missing is {missing!r}; pass 'refuse' or 'drop'.")
    table = open_table(source)
    inputs, targets, notes = _choose(table, target, ignore)
    columns = (*inputs, *targets)
    rows = max(1, CHUNK // len(columns)) if chunk_rows is None else chunk_rows
    plan = _Plan(columns, len(targets), whole_number("chunk_rows", rows), missing)
    if cluster is None:
        complete = _CompleteRows(table.pieces, plan)
        gathered, left_out = _gather(complete, memory), complete.left_out
    else:
        gathered, left_out = _gather_on_cluster(table, plan, cluster)
    if left_out:
        notes.append(f"Rows left out because a value is missing: {left_out}.")
    problem, preparation, kept, found = prepare(
        gathered, inputs, targets, standardize=standardize, intercept=intercept
    )
    return Reading(problem, kept, targets, preparation, (*notes, *found))


def _choose(
    table: Table, target: str | Sequence[str], ignore: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
    """Names of inputs and targets: every column of numbers that is not ignored is an input."""
    asked = (target,) if isinstance(target, str) else tuple(target)
    targets = tuple(name for wish in asked for name in _named(table, wish))
    ignored = {name for wish in ignore for name in _named(table, wish)}
    text = [name for name, numeric in table.columns.items() if not numeric and name not in ignored]
    for name in targets:
        if name in text or name in ignored:
            reason = "is ignored" if name in ignored else "does not hold numbers"
            raise InputError(f"the target {name!r} {reason}; pass a column of numbers.")
    left_out = {*targets, *ignored, *text}
    inputs = tuple(name for name in table.columns if name not in left_out)
    if not inputs:
        raise InputError(
            f"no input is left: besides the target {', '.join(targets)} the table has no column "
            "of numbers. Encode text columns as numbers first."
        )
    notes = []
    if text:
        notes.append(f"Left out because not made of numbers: {listed(text)}.")
    return inputs, targets, notes


def _named(table: Table, wish: str) -> list[str]:
    """The columns a user means: a name, an array of an .npz file, or -1 for the last column."""
    names = list(table.columns)
    if wish in table.columns:
        return [wish]
    members = [name for name in names if name.startswith(f"{wish}[")]
    if members:
        return members
    if wish.startswith("-") and wish[1:].isdigit() and 1 <= int(wish[1:]) <= len(names):
        return [names[int(wish)]]
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    raise InputError(f"there is no column {wish!r}; the table has {shown}.")


@dataclass(frozen=True)
class _Plan:
    """Which columns to read (targets last), in chunks of how many rows, and what is missing."""

    columns: tuple[str, ...]
    targets: int
    chunk_rows: int
    missing: str


class _CompleteRows:
    """The complete rows of some pieces, chunk by chunk; `left_out` counts the others."""

    def __init__(self, pieces: Iterable[Piece], plan: _Plan):
        self.pieces, self.plan, self.left_out = pieces, plan, 0

    def __iter__(self) -> Iterator[np.ndarray]:
        for piece in self.pieces:
            before = 0
            for chunk in piece.batches(self.plan.columns, self.plan.chunk_rows):
                # The sum of finite numbers is finite, and far quicker to check than each of them.
                complete = chunk if np.isfinite(chunk.sum()) else self._check(chunk, piece, before)
                before += len(chunk)
                self.left_out += len(chunk) - len(complete)
                if len(complete):
                    yield complete

    def _check(self, chunk: np.ndarray, piece: Piece, before: int) -> np.ndarray:
        infinite, lacking = np.isinf(chunk), np.isnan(chunk)
        if not infinite.any() and (self.plan.missing == "drop" or not lacking.any()):
            return chunk[~lacking.any(axis=1)]
        wrong, kind, remedy = (
            (infinite, "an infinite", "correct it, or ignore the column")
            if infinite.any()
            else (lacking, "a missing", "pass missing='drop' (--missing drop) or impute it first")
        )
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        names = [repr(self.plan.columns[j]) for j in np.flatnonzero(wrong[row])]
        raise InputError(
            f"{piece.path!r} has {kind} value in row {before + row + 1}, column "
            f"{', '.join(names[:5])}; {remedy}."
        )


def _gather(rows: _CompleteRows, memory: int) -> np.ndarray | Moments:
    """The rows themselves while they fit into `memory` bytes, else their moments."""
    kept: list[np.ndarray] = []
    size, stream = 0, iter(rows)
    for chunk in stream:
        kept.append(chunk)
        size += chunk.nbytes
        if size > memory:
            break
    else:
        return np.concatenate(kept) if kept else _refuse_no_rows(rows.left_out)
    width = len(rows.plan.columns)
    if 8 * width**2 > memory:
        raise InputError(
            f"the table is larger than {memory / 2**20:.0f} MiB and so are the second moments of "
            f"its {width} columns; pass a larger memory (--memory), or fewer columns."
        )
    return _moments(chain(_emptying(kept), stream), rows.plan)


def _emptying(chunks: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The chunks one by one, forgetting each, so that nothing is held twice."""
    while chunks:
        yield chunks.pop(0)


def _moments(chunks: Iterator[np.ndarray], plan: _Plan) -> Moments:
    """Moments of chunks: this thread multiplies while another reads ahead.

    One BLAS thread: the other cores decode, and on a busy machine BLAS threads wait for each other.
    """
    with threadpool_limits(1, "blas"):
        return merge_all(Moments.of_table(chunk, plan.targets) for chunk in _one_ahead(chunks))


def _one_ahead(chunks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """The same chunks, the next one being read while one is used."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            yield chunk


def _refuse_no_rows(left_out: int) -> NoReturn:
    raise InputError(
        f"the table has no complete row ({left_out} with a missing value); ignore the columns "
        "that are mostly missing."
    )


# --- in parallel -------------------------------------------------------------------------------


def _gather_on_cluster(table: Table, plan: _Plan, cluster: Any) -> tuple[Moments, int]:
    """Moments of groups of pieces, computed by dask workers, merged in the order of the table."""
    pieces = [part for piece in table.pieces for part in piece.split()]
    with _client(cluster) as client:
        workers = max(1, len(client.nthreads()))
        groups = np.array_split(np.arange(len(pieces)), min(len(pieces), 8 * workers))
        tasks = [[pieces[i] for i in group] for group in groups]
        results = client.gather(client.map(_moments_of, tasks, plan=plan, pure=False))
    parts = [moments for moments, _ in results if moments is not None]
    left_out = sum(count for _, count in results)
    return merge_all(parts) if parts else _refuse_no_rows(left_out), left_out


def _moments_of(pieces: list[Piece], plan: _Plan) -> tuple[Moments | None, int]:
    """The moments of some pieces (None without a complete row), and how many rows were left out."""
    rows = _CompleteRows(pieces, plan)
    stream = iter(rows)
    first = next(stream, None)
    moments = None if first is None else _moments(chain([first], stream), plan)
    return moments, rows.left_out


@contextmanager
def _client(cluster: Any) -> Iterator[Any]:
    """The caller's client, or a new one for the address of a scheduler."""
    if not isinstance(cluster, str):
        yield cluster
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(
            "reading on a cluster needs dask; install it with: pip install 'deeplin[cluster]'."
        ) from error
    try:
        client = Client(cluster, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise InputError(f"no dask scheduler answers at {cluster!r}: {error}") from error
    with client:
        yield client
