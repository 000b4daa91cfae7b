"""Tables that are opened without being read, and one streamed pass over rows or moments.

CSV, Parquet, Arrow, `.npy`, `.npz` and Excel; one file, a folder or a glob; standard input; or a
table in memory. Nothing is unpickled.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa

from deeplin.errors import InputError, readable
from deeplin.problems.moments import Moments, merge_all
from deeplin.tables.formats import (
    NUMERIC,
    ArrowFile,
    Column,
    FrameTable,
    Kind,
    Kinds,
    NpyFile,
    ParquetFile,
    Survey,
    TableFile,
    excel_table,
    listed,
    npz_table,
    sniff,
    survey,
)

CONNECT_SECONDS = 15.0
"""Seconds to wait for a dask scheduler."""
FORMATS: dict[str, Any] = {
    ".csv": sniff,
    ".tsv": sniff,
    ".txt": sniff,
    ".parquet": ParquetFile,
    ".pq": ParquetFile,
    ".arrow": ArrowFile,
    ".feather": ArrowFile,
    ".ipc": ArrowFile,
    ".npy": NpyFile,
    ".npz": npz_table,
    ".xlsx": excel_table,
}
"""Function that opens a file, by its suffix."""
SIGNS = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\x93NUMPY": ".npy", b"PK": ".npz"}
"""First bytes of files of these formats; on standard input anything else is text."""
COMPRESSED = (".gz", ".bz2", ".zst")


class Frame(Protocol):
    """A table in memory that Arrow can read: of pandas, polars, Arrow, DuckDB, …"""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's interface for streams of record batches."""
        ...


Source = str | Path | Frame | np.ndarray
"""A matrix is a table whose columns are x1, x2, …"""


@dataclass(frozen=True)
class Table:
    """The columns of a table (name → kind), its files in order, and notes."""

    columns: Kinds
    pieces: tuple[TableFile, ...]
    notes: tuple[str, ...] = ()

    def survey(self, name: str, *, everything: bool = False) -> Survey:
        """Return what one column holds as text; with `everything`, judged by all of its values."""
        texts = (text for piece in self.pieces for text in piece.texts(name))
        return survey(texts, self.pieces[0].decimal, everything=everything)


def open_table(source: Source, decimal: str | None = None) -> Table:
    """Open a file, a folder of files, a glob, `-` (standard input) or a table in memory.

    Every file must have the same columns. `decimal` is the decimal mark of text; None infers it.

    ```python
    import pandas as pd
    from deeplin.tables.table import open_table
    pd.DataFrame({"age": [1, 2], "name": ["a", "b"]}).to_csv("people.csv", index=False)
    assert open_table("people.csv").columns == {"age": "whole numbers", "name": "text"}
    ```
    """
    if decimal not in (None, ".", ","):
        raise InputError(f"decimal is {decimal!r}; pass '.' or ','.")
    if not isinstance(source, str | Path):
        frame = FrameTable("the table", table=in_memory(source))
        return Table(frame.kinds(), (frame,))
    files = _files(_standard_input() if str(source) == "-" else source)
    kinds = {_opener(file) for file in files}
    if len(kinds) > 1:
        endings = sorted({_suffix(file) for file in files})
        raise InputError(
            f"{str(source)!r} holds files of several formats ({', '.join(endings)}); "
            "pass a glob for one of them, such as 'folder/*.csv'."
        )
    opener = kinds.pop()
    options = {"decimal": decimal} if opener is sniff else {}
    pieces: list[TableFile] = []
    columns: Kinds = {}
    for file in map(str, files):
        with readable(file):
            piece = opener(file, **options)
            found = piece.kinds()
        columns = columns or found
        if set(found) != set(columns):
            different = sorted(set(found) ^ set(columns))[:5]
            raise InputError(
                f"{file!r} has other columns than {str(files[0])!r} ({', '.join(different)} "
                "is in one of them only); pass files of one table."
            )
        columns = {name: _common(found[name], kind) for name, kind in columns.items()}
        pieces.append(piece)
    return Table(columns, tuple(pieces), pieces[0].notes)


def in_memory(source: Frame | np.ndarray) -> pa.Table:
    """Return a table of Arrow from anything that Arrow can read, or from a matrix."""
    if isinstance(source, np.ndarray) and source.ndim == 2:
        return pa.table({f"x{k + 1}": column for k, column in enumerate(source.T)})
    try:
        return pa.table(source)  # pyright: ignore[reportArgumentType]
    except Exception as error:
        raise InputError(
            f"the table is a {type(source).__name__} that Arrow cannot read ({error}); pass a file "
            "name, or a DataFrame with one kind of value in each column."
        ) from error


def _standard_input() -> Path:
    """Return standard input as a file that exists as long as the process."""
    data = sys.stdin.buffer.read()
    ending = next((end for sign, end in SIGNS.items() if data.startswith(sign)), ".csv")
    folder = tempfile.mkdtemp(prefix="deeplin-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, f"standard-input{ending}")
    path.write_bytes(data)
    return path


def _common(one: Kind, other: Kind) -> Kind:
    """Return the kind of a column that has these kinds in several files."""
    if one == other or other == Kind.EMPTY:
        return one
    if one == Kind.EMPTY:
        return other
    if one in NUMERIC and other in NUMERIC:
        return Kind.NUMBER
    return Kind.TEXT if Kind.TEXT in (one, other) else Kind.OTHER


def _files(source: str | Path) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        files = sorted(f for f in path.rglob("*") if f.is_file() and not _hidden(f, path))
        files = [file for file in files if _suffix(file) in FORMATS]
    elif has_magic(str(source)) and not path.exists():
        files = sorted(Path(name) for name in glob(str(source), recursive=True))
    else:
        files = [path]
    if not files:
        raise InputError(f"{str(source)!r} holds no table; supported: {', '.join(FORMATS)}.")
    return files


def _hidden(file: Path, folder: Path) -> bool:
    """Return whether writers of datasets mean the file to be ignored (`_SUCCESS`, `.crc`, ...)."""
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


def _suffix(file: Path) -> str:
    name = file.with_suffix("") if file.suffix.lower() in COMPRESSED else file
    return name.suffix.lower()


def _opener(file: Path) -> Any:
    if not file.is_file():
        raise InputError(f"there is no file {str(file)!r}; pass a file, a folder or a glob.")
    if _suffix(file) not in FORMATS:
        raise InputError(
            f"{str(file)!r} is in no format that can be read; supported: {', '.join(FORMATS)}."
        )
    return FORMATS[_suffix(file)]


# --- one pass ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Columns to read (targets last), rows per chunk, and treatment of missing values.

    `missing` is "refuse" or "drop"; `whole` holds the indices of columns of integers.
    """

    columns: tuple[Column, ...]
    targets: int
    chunk_rows: int | None
    missing: str
    whole: tuple[int, ...] = ()

    def complete_rows(
        self, pieces: Iterable[TableFile], left_out: LeftOutRows
    ) -> Iterator[np.ndarray]:
        """Yield the rows of each chunk without a missing value; count the others in `left_out`."""
        for piece in pieces:
            before = 0
            for rows in piece.chunks(self.columns, self.chunk_rows):
                before += len(rows)
                # A finite sum means finite numbers, and is much faster to check.
                with np.errstate(over="ignore", invalid="ignore"):
                    finite = np.isfinite(rows.sum())
                lacking = np.zeros(len(rows), bool) if finite else np.isnan(rows).any(axis=1)
                self._require_usable(rows, piece.path, before - len(rows), finite)
                left_out.rows += int(lacking.sum())
                left_out.missing = left_out.missing + np.isnan(rows[lacking]).sum(axis=0)
                yield rows if finite else rows[~lacking]

    def _require_usable(self, rows: np.ndarray, path: str, before: int, finite: bool) -> None:
        """Raise InputError for integers that float64 cannot represent (mostly identifiers), and
        others."""
        too_large = np.abs(rows[:, self.whole]) >= 2.0**53
        if self.whole and too_large.any():
            row, place = np.argwhere(too_large)[0]
            j = self.whole[place]
            raise InputError(
                f"column {self.columns[j].label!r} of {path!r} holds whole numbers of 2⁵³ or "
                f"more (row {before + row + 1}: about {rows[row, j]:.3g}), which float64 "
                "cannot tell apart; ignore it (--ignore) or subtract a constant first."
            )
        if finite:
            return
        wrong, kind, remedy = np.isinf(rows), "an infinite", "correct it, or ignore the column"
        if not wrong.any() and self.missing == "refuse":
            wrong, kind = np.isnan(rows), "a missing"
            remedy = "pass missing='drop' (--missing drop) or impute it first"
        if wrong.any():
            row = int(np.flatnonzero(wrong.any(axis=1))[0])
            names = listed([self.columns[j].label for j in np.flatnonzero(wrong[row])])
            raise InputError(
                f"{path!r} has {kind} value in row {before + row + 1}, column {names}; {remedy}."
            )

    def moments(self, chunks: Iterable[np.ndarray]) -> Moments | None:
        """Return the moments of all rows; None if there are no rows."""
        return merge_all(Moments.of_table(rows, self.targets) for rows in chunks if len(rows))

    def refuse_no_rows(self, left_out: LeftOutRows) -> NoReturn:
        """Raise InputError because no row is complete, naming the responsible columns."""
        counts = np.broadcast_to(left_out.missing, len(self.columns))
        labels = np.array([column.label for column in self.columns], object)
        empty = labels[(counts == left_out.rows) & (left_out.rows > 0)]
        which = f": nothing is in {listed(empty.tolist())}" if len(empty) else ""
        raise InputError(
            f"the table has no complete row ({left_out.rows} with a missing value{which}); ignore "
            "the columns that are mostly missing (--ignore)."
        )


@dataclass
class LeftOutRows:
    """Number of rows with a missing value, and of missing values in each column."""

    rows: int = 0
    missing: np.ndarray | int = 0


def gather(table: Table, plan: Plan, memory: int) -> tuple[np.ndarray | Moments, int]:
    """Return the rows if they fit into `memory` bytes, else their moments.

    The second result is the number of rows left out.
    """
    left_out = LeftOutRows()
    chunks = plan.complete_rows(table.pieces, left_out)
    kept: list[np.ndarray] = []
    size = 0
    for rows in chunks:
        kept.append(rows)
        size += rows.nbytes
        if size > memory:
            break
    else:
        return np.concatenate(kept) if size else plan.refuse_no_rows(left_out), left_out.rows
    width = len(plan.columns)
    if 8 * width**2 > memory:
        raise InputError(
            f"the table is larger than {memory / 2**20:.0f} MiB and so are the second moments of "
            f"its {width} columns; pass a larger memory (--memory), or fewer columns."
        )
    # One by one, releasing each, so that no data are in memory twice.
    emptied = (kept.pop(0) for _ in range(len(kept)))
    moments = plan.moments(chain(emptied, chunks))
    return moments or plan.refuse_no_rows(left_out), left_out.rows


def gather_on_cluster(table: Table, plan: Plan, cluster: Any) -> tuple[Moments, int]:
    """Return moments computed by dask workers on groups of files, merged in order."""
    pieces = [part for piece in table.pieces for part in piece.split()]
    with dask_client(cluster) as client:
        workers = max(1, len(client.nthreads()))
        groups = np.array_split(np.arange(len(pieces)), min(len(pieces), 8 * workers))
        tasks = [[pieces[i] for i in group] for group in groups]
        results = client.gather(client.map(_moments_of, tasks, plan=plan, pure=False))
    rows, missing = (sum(getattr(it, name) for _, it in results) for name in ("rows", "missing"))
    moments = merge_all(found for found, _ in results if found is not None)
    return moments or plan.refuse_no_rows(LeftOutRows(rows, missing)), rows


def _moments_of(pieces: list[TableFile], plan: Plan) -> tuple[Moments | None, LeftOutRows]:
    """Return the moments of the files of one worker."""
    left_out = LeftOutRows()
    return plan.moments(plan.complete_rows(pieces, left_out)), left_out


@contextmanager
def dask_client(cluster: Any) -> Iterator[Any]:
    """Return the caller's client, or a new one for the address of a scheduler."""
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
