"""Tables, opened but not read: their columns, and files that stream on their own.

CSV, Parquet, Arrow, `.npy`, `.npz` and Excel; one file, a folder or a glob; standard input; or a
table in memory. Nothing is ever unpickled.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from deeplin.errors import InputError, readable
from deeplin.tables.formats import (
    EMPTY,
    NUMBER,
    NUMERIC,
    OTHER,
    TEXT,
    ArrowFile,
    CsvFile,
    FrameTable,
    Kinds,
    NpyFile,
    NpzFile,
    ParquetFile,
    TableFile,
    excel_table,
)

FORMATS: dict[str, Any] = {
    ".csv": CsvFile.open,
    ".tsv": CsvFile.open,
    ".txt": CsvFile.open,
    ".parquet": ParquetFile,
    ".pq": ParquetFile,
    ".arrow": ArrowFile,
    ".feather": ArrowFile,
    ".ipc": ArrowFile,
    ".npy": NpyFile,
    ".npz": NpzFile,
    ".xlsx": excel_table,
}
"""What opens a file, by the ending of its name."""
SIGNS = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\x93NUMPY": ".npy", b"PK": ".npz"}
"""How files of these formats begin; on standard input anything else is text."""
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
    """The columns of a table (name → what it holds), its files in order, what to know of it."""

    columns: Kinds
    pieces: tuple[TableFile, ...]
    notes: tuple[str, ...] = ()

    def texts(self, name: str) -> Iterator[str | None]:
        """The values of one column as text; a missing value is None."""
        for piece in self.pieces:
            yield from piece.texts(name)


def open_table(source: Source, decimal: str | None = None) -> Table:
    """Open a file, a folder of files, a glob, `-` (standard input) or a table in memory.

    Every file must have the same columns. `decimal` is the decimal mark of text; None: found.

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
    options = {"decimal": decimal} if opener == CsvFile.open else {}
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
    """A table of Arrow from what Arrow can read, or from a matrix."""
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
    """What comes on standard input, as a file for as long as the process lives."""
    data = sys.stdin.buffer.read()
    ending = next((end for sign, end in SIGNS.items() if data.startswith(sign)), ".csv")
    folder = tempfile.mkdtemp(prefix="deeplin-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, f"standard-input{ending}")
    path.write_bytes(data)
    return path


def _common(one: str, other: str) -> str:
    """What a column holds whose files hold these."""
    if one == other or other == EMPTY:
        return one
    if one == EMPTY:
        return other
    if one in NUMERIC and other in NUMERIC:
        return NUMBER
    return TEXT if TEXT in (one, other) else OTHER


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
    """Whether writers of datasets mean the file to be ignored (`_SUCCESS`, `.crc`, ...)."""
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
