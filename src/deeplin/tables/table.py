"""Tables on disk, opened but not read: their columns, and pieces that stream on their own.

CSV, Parquet, Arrow, `.npy` and `.npz`; one file, a folder or a glob. Nothing is ever unpickled.
A piece is a plain description (file, format, part), so that another process can read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path

from deeplin.errors import InputError, readable
from deeplin.tables.csv_dialect import CSV
from deeplin.tables.formats import (
    ARROW,
    NPY,
    NPZ,
    NUMBER,
    OTHER,
    PARQUET,
    TEXT,
    WHOLE,
    Chunk,
    Column,
    Kinds,
    Part,
)

FORMATS = {"csv": CSV, "parquet": PARQUET, "arrow": ARROW, "npy": NPY, "npz": NPZ}
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".npz": "npz",
}
COMPRESSED = (".gz", ".bz2", ".zst")


@dataclass(frozen=True)
class Piece:
    """A part of a table that streams on its own: a file, or some of its rows or row groups."""

    path: str
    format: str
    part: Part = None

    def chunks(self, columns: Sequence[Column], rows: int) -> Iterator[Chunk]:
        """Chunks of at most `rows` rows of these columns; a missing value is NaN."""
        with readable(self.path):
            yield from FORMATS[self.format].stream(self.path, self.part, columns, rows)

    def texts(self, name: str) -> Iterator[list[str | None]]:
        """The values of one column as text, some at a time; a missing value is None."""
        with readable(self.path):
            yield from FORMATS[self.format].texts(self.path, name)

    def split(self) -> list[Piece]:
        """Smaller pieces of the same file, where its format has parts."""
        with readable(self.path):
            parts = FORMATS[self.format].parts(self.path)
        return [Piece(self.path, self.format, part) for part in parts]


@dataclass(frozen=True)
class Table:
    """The columns of a table (name → what it holds), its pieces in order, what to know of it."""

    columns: Kinds
    pieces: tuple[Piece, ...]
    notes: tuple[str, ...] = ()


def open_table(source: str | Path) -> Table:
    """Open a file, a folder of files or a glob; every file must have the same columns.

    ```python
    import pandas as pd
    from deeplin.tables.table import open_table
    pd.DataFrame({"age": [1, 2], "name": ["a", "b"]}).to_csv("people.csv", index=False)
    assert open_table("people.csv").columns == {"age": "whole numbers", "name": "text"}
    ```
    """
    files = _files(source)
    kinds = {_format(file) for file in files}
    if len(kinds) > 1:
        raise InputError(
            f"{str(source)!r} holds files of several formats ({', '.join(sorted(kinds))}); "
            "pass a glob for one of them, such as 'folder/*.csv'."
        )
    kind = kinds.pop()
    pieces = tuple(Piece(str(file), kind) for file in files)
    columns: Kinds = {}
    for piece in pieces:
        with readable(piece.path):
            found = FORMATS[kind].columns(piece.path)
        columns = columns or found
        if set(found) != set(columns):
            different = sorted(set(found) ^ set(columns))[:5]
            raise InputError(
                f"{piece.path!r} has other columns than {str(files[0])!r} ({', '.join(different)} "
                "is in one of them only); pass files of one table."
            )
        columns = {name: _common(found[name], kind) for name, kind in columns.items()}
    with readable(pieces[0].path):
        notes = FORMATS[kind].notes(pieces[0].path)
    return Table(columns, pieces, tuple(notes))


def _common(one: str, other: str) -> str:
    """What a column holds whose files hold these."""
    if one == other:
        return one
    if {one, other} == {NUMBER, WHOLE}:
        return NUMBER
    return TEXT if TEXT in (one, other) else OTHER


def _files(source: str | Path) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        files = sorted(f for f in path.rglob("*") if f.is_file() and not _hidden(f, path))
        files = [file for file in files if _suffix(file) in SUFFIXES]
    elif has_magic(str(source)) and not path.exists():
        files = sorted(Path(name) for name in glob(str(source), recursive=True))
    else:
        files = [path]
    if not files:
        raise InputError(f"{str(source)!r} holds no table; supported: {', '.join(SUFFIXES)}.")
    return files


def _hidden(file: Path, folder: Path) -> bool:
    """Whether writers of datasets mean the file to be ignored (`_SUCCESS`, `.crc`, ...)."""
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


def _suffix(file: Path) -> str:
    name = file.with_suffix("") if file.suffix.lower() in COMPRESSED else file
    return name.suffix.lower()


def _format(file: Path) -> str:
    if not file.is_file():
        raise InputError(f"there is no file {str(file)!r}; pass a file, a folder or a glob.")
    if _suffix(file) not in SUFFIXES:
        raise InputError(
            f"{str(file)!r} is in no format that can be read; supported: {', '.join(SUFFIXES)}."
        )
    return SUFFIXES[_suffix(file)]
