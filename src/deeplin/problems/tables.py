"""Tables on disk, opened but not read: their columns, and pieces that stream on their own.

CSV, Parquet, Arrow, `.npy` and `.npz`; one file, a folder or a glob. Nothing is ever unpickled.
A piece is a plain description (file, format, part), so that another process can read it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import glob, has_magic
from pathlib import Path

import numpy as np
import pyarrow as pa

from deeplin.checks import InputError
from deeplin.problems.formats import FORMATS, Chunk, Part

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

    def chunks(self, columns: Sequence[str], rows: int) -> Iterator[Chunk]:
        """Chunks of at most `rows` rows of these columns; a missing value is NaN."""
        with _readable(self.path):
            for chunk in FORMATS[self.format].stream(self.path, self.part, columns, rows):
                yield chunk._replace(matrix=partial(self._read, chunk))

    def _read(self, chunk: Chunk) -> np.ndarray:
        with _readable(self.path):
            return chunk.matrix()

    def split(self) -> list[Piece]:
        """Smaller pieces of the same file, where its format has parts."""
        with _readable(self.path):
            parts = FORMATS[self.format].parts(self.path)
        return [Piece(self.path, self.format, part) for part in parts]


@dataclass(frozen=True)
class Table:
    """The columns of a table (name → whether it holds numbers) and its pieces, in order."""

    columns: dict[str, bool]
    pieces: tuple[Piece, ...]


def open_table(source: str | Path) -> Table:
    """Open a file, a folder of files or a glob; every file must have the same columns.

    ```python
    table = open_table("measurements/*.parquet")
    table.columns                                   # {"age": True, "name": False, ...}
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
    columns: dict[str, bool] = {}
    for piece in pieces:
        with _readable(piece.path):
            found = FORMATS[kind].columns(piece.path)
        columns = columns or found
        if set(found) != set(columns):
            different = sorted(set(found) ^ set(columns))[:5]
            raise InputError(
                f"{piece.path!r} has other columns than {str(files[0])!r} ({', '.join(different)} "
                "is in one of them only); pass files of one table."
            )
        columns = {name: numeric and found[name] for name, numeric in columns.items()}
    return Table(columns, pieces)


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


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn what libraries raise about a broken file into one sentence."""
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"cannot read {path!r}: {reason}") from error
