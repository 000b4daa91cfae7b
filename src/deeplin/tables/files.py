"""Tables as streams of chunks that pandas reads: files, standard input, tables in memory."""

from __future__ import annotations

import atexit
import codecs
import csv
import io
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.common import get_handle

from deeplin.errors import InputError, readable
from deeplin.tables.columns import MISSING, NumberStyle, counted, listed

CHUNK = 2**21
"""Number of cells in a chunk of rows."""
SEPARATORS = "\t;|,"
"""Separators in the order in which they are tried; a comma may also be a decimal mark."""
BEGINNING = 2**20
"""Bytes of text from which its dialect is inferred."""
SNIFFED = 1000
"""Number of records from which its dialect is inferred."""
WRITTEN_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*", re.ASCII)
"""A number with a decimal point or a decimal comma."""
GROUPED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*", re.ASCII)
"""A whole number whose comma may group thousands."""
SIGNS = {b"PAR1": ".parquet", b"ARROW1": ".feather", b"PK": ".xlsx", b"\x1f\x8b": ".csv.gz"}
"""First bytes of files of these formats; on standard input anything else is text."""

Source = str | Path | pd.DataFrame | np.ndarray
"""A matrix is a table whose columns are x1, x2, …"""
Stream = Callable[[Sequence[str] | None, Collection[str], int], Iterator[pd.DataFrame]]
"""Function from names of columns (None: all), those to read as text, and rows in a chunk."""


@dataclass(frozen=True)
class Table:
    """The names of the columns of a table, how to stream it, and notes on that."""

    name: str
    columns: tuple[str, ...]
    stream: Stream
    notes: tuple[str, ...] = ()
    decimal: str = "."
    """The decimal mark of its text."""
    thousands: str = ""
    """The mark that groups thousands, if the caller names one."""
    doubtful: frozenset[str] = frozenset()
    """Columns of numbers whose decimal marks may group thousands, so that they are text."""

    def __post_init__(self) -> None:
        if repeated := [name for name, times in Counter(self.columns).items() if times > 1]:
            raise InputError(f"column names repeat: {listed(repeated)}; rename them first.")

    def chunks(
        self, names: Sequence[str] | None = None, text: Collection[str] = ()
    ) -> Iterator[pd.DataFrame]:
        """Yield chunks of these columns; the index counts the rows, those in `text` are text.

        Only a pass over all columns notices rows with too many values.
        """
        names = None if names is None else list(dict.fromkeys(names))
        size = max(1, CHUNK // len(self.columns if names is None else names))
        row = 0
        with readable(self.name):
            for frame in self.stream(names, {*text, *self.doubtful}, size):
                yield frame.set_axis(pd.RangeIndex(row, row + len(frame)))
                row += len(frame)


def open_table(
    source: Source, decimal: str | None = None, thousands: str | None = None, usual: str = "."
) -> Table:
    """Open a file, `-` (standard input) or a table in memory.

    `decimal` is the decimal mark of text, `thousands` the mark between groups of three digits; None
    infers them, with `usual` as the decimal mark where cells allow both.
    """
    if decimal not in (None, ".", ","):
        raise InputError(f"decimal is {decimal!r}; pass '.' or ','.")
    if thousands not in (None, ".", ",", " ", "'"):
        raise InputError(f"thousands is {thousands!r}; pass '.', ',', a blank or an apostrophe.")
    if thousands is not None and thousands == decimal:
        raise InputError(f"decimal and thousands are both {decimal!r}; pass different marks.")
    if thousands in (".", ","):
        decimal = "," if thousands == "." else "."
    if isinstance(source, str | Path):
        path = _spooled(sys.stdin) if str(source) == "-" else Path(source)
        return _open_file(path, decimal, thousands or "", usual)
    found = _frame_table("the table", in_memory(source))
    return replace(found, decimal=decimal or ".", thousands=thousands or "")


def _open_file(path: Path, decimal: str | None, thousands: str, usual: str) -> Table:
    """Open a file in the format that its name tells."""
    if path.is_dir():
        raise InputError(
            f"{str(path)!r} is a folder; pass one file, such as a CSV or Parquet file."
        )
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}; pass a CSV, Parquet or Excel file.")
    ending = (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()
    with readable(path):
        if ending in (".csv", ".tsv", ".txt"):
            return _text_table(str(path), decimal, thousands, usual)
        if opened := FORMATS.get(ending):
            return replace(opened(str(path)), decimal=decimal or ".", thousands=thousands)
    raise InputError(
        f"{str(path)!r} is in no format that can be read; supported: .csv, .tsv, .txt (also with "
        ".gz), .parquet, .feather, .xlsx; in Python also arrays and DataFrames."
    )


def in_memory(source: Any) -> pd.DataFrame:
    """Return a matrix or a DataFrame as a DataFrame whose names are text."""
    if isinstance(source, np.ndarray) and source.ndim == 2:
        return pd.DataFrame(source, columns=[f"x{k + 1}" for k in range(source.shape[1])])
    if not isinstance(source, pd.DataFrame):
        raise InputError(
            f"the table is a {type(source).__name__}; pass the name of a file, a matrix, or a "
            "DataFrame of pandas (polars and Arrow: table.to_pandas())."
        )
    return source.set_axis(source.columns.map(str), axis=1)


def _frame_table(name: str, frame: pd.DataFrame, *notes: str) -> Table:
    def stream(names, text, rows):
        chosen = frame if names is None else frame[names]
        for start in range(0, len(frame), rows):
            yield chosen.iloc[start : start + rows]

    return Table(name, tuple(frame.columns), stream, notes)


def _parquet_table(path: str) -> Table:
    import pyarrow.parquet

    def stream(names, text, rows):
        # One thread, and no reading ahead: row groups are decoded as they are used.
        with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 18, pre_buffer=False) as file:
            for batch in file.iter_batches(rows, columns=names, use_threads=False):
                yield batch.to_pandas(integer_object_nulls=True, use_threads=False)

    # an index of pandas is stored like a column, but is not data
    names = pyarrow.parquet.read_schema(path).names
    return Table(path, tuple(it for it in names if not it.startswith("__index_level_")), stream)


def _feather_table(path: str) -> Table:
    import pyarrow.feather

    table = pyarrow.feather.read_table(path, use_threads=False)
    table.validate(full=True)  # offsets of damaged text may be invalid
    return _frame_table(path, table.to_pandas(integer_object_nulls=True, use_threads=False))


def _excel_table(path: str) -> Table:
    """Return the first sheet of a workbook; its first line that is not empty holds the names."""
    try:
        with pd.ExcelFile(path, engine="openpyxl") as book:
            sheets = list(map(str, book.sheet_names))
            cells = pd.read_excel(book, header=None, dtype=object).dropna(how="all")
    except ImportError as error:
        raise InputError(
            f"{path!r} is an Excel workbook, which needs openpyxl; install it with: pip install "
            "'deeplin[excel]', or save the sheet as CSV."
        ) from error
    if cells.empty:
        raise InputError(f"the first sheet of {path!r} is empty; save the table in it.")
    names = ["" if pd.isna(name) else str(name) for name in cells.iloc[0]]
    frame = cells.iloc[1:].set_axis(names, axis=1)
    if frame.columns.is_unique:
        frame = frame.infer_objects()
    first = f"The first sheet, {sheets[0]!r}, was read, none of the {len(sheets) - 1} others."
    return _frame_table(path, frame, *([first] if len(sheets) > 1 else []))


FORMATS: dict[str, Callable[[str], Table]] = {
    ".parquet": _parquet_table,
    ".feather": _feather_table,
    ".xlsx": _excel_table,
}


@cache
def _spooled(stream: Any) -> Path:
    """Copy standard input to a file that exists as long as the process."""
    folder = Path(tempfile.mkdtemp(prefix="deeplin-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with open(folder / "input", "wb") as file:
        shutil.copyfileobj(stream.buffer, file)
    with open(folder / "input", "rb") as file:
        first = file.read(8)
    ending = next((end for sign, end in SIGNS.items() if first.startswith(sign)), ".csv")
    return (folder / "input").rename(folder / f"standard-input{ending}")


# --- separated text ------------------------------------------------------------------------------


def _text_table(path: str, decimal: str | None, thousands: str, usual: str) -> Table:
    """Find the dialect of separated text in its first records: separator, marks, names, …"""
    text, encoding, whole, notes = _beginning(path)
    lines = list(io.StringIO(text, newline=""))
    comments = next((k for k, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if comments:
        was = "was" if comments == 1 else "were"
        notes.append(
            f"{counted(comments, 'line')} of comment before the first record {was} skipped."
        )
    text = "".join(lines[comments:])
    if not text.strip():
        raise InputError(f"{path!r} does not begin with a line of column names.")
    separator, records = _separated(text, whole)
    first, *rest = records
    for place, record in enumerate(rest, 2):
        if len(record) != len(first):
            raise InputError(
                f"cannot read {path!r}: its line {comments + place} has "
                f"{counted(len(record), 'value')}, the first {len(first)} ({listed(first)}); "
                "correct it."
            )
    mark = decimal or _decimal(rest or [first], usual)
    if mark == "," and not thousands:
        notes.append("Decimal commas were read as such.")
    columns, named = tuple(first), True
    if all(map(WRITTEN_NUMBER.fullmatch, first)):
        numbered = tuple(str(k) for k in range(len(first)))
        named = len(first) > 2 and tuple(value.strip() for value in first) == numbered
        columns = numbered
        notes.append(
            "The first line counts 0, 1, 2, …: it was taken as the names of the columns."
            if named
            else "The first line holds numbers only: it was taken as a sample, and the columns are "
            "numbered from 0. If it names the columns, write at least one name that is no number."
        )

    def stream(names, text, rows):
        options: dict[str, Any] = {
            "sep": separator,
            "decimal": mark,
            "header": 0 if named else None,
            "names": list(columns),
            "usecols": names,
            "dtype": dict.fromkeys(columns if thousands else text, str),
            "index_col": False,
            "keep_default_na": False,
            "na_values": list(MISSING),
            "chunksize": rows,
            "engine": "c",
            "low_memory": False,  # one kind for all cells of a chunk
        }
        with get_handle(path, "r", encoding=encoding, compression="infer") as file:
            for _ in range(comments):
                file.handle.readline()
            yield from pd.read_csv(file.handle, **options)  # pyright: ignore

    cells = zip(columns, zip(*rest, strict=True), strict=False)
    doubtful = [] if thousands else [name for name, some in cells if _is_doubtful(some, mark)]
    return Table(path, columns, stream, tuple(notes), mark, thousands, frozenset(doubtful))


def _is_doubtful(cells: Sequence[str], mark: str) -> bool:
    """Return whether decimal marks of a column may group thousands: 1.595 beside 950."""
    grouped = re.compile(NumberStyle(mark).swapped.cells)
    possible = all(cell in MISSING or grouped.fullmatch(cell) for cell in cells)
    return possible and any(mark in cell for cell in cells) and any(map(str.isdigit, cells))


def _beginning(path: str) -> tuple[str, str, bool, list[str]]:
    """Return the first characters of a text, its encoding, whether that is all, and notes."""
    with get_handle(path, "rb", is_text=False, compression="infer") as file:
        block: Any = file.handle.read(BEGINNING)
    whole = len(block) < BEGINNING
    encodings = ("utf-8", "cp1252")
    if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encodings = ("utf-16",)
    elif block.startswith(codecs.BOM_UTF8):
        encodings = ("utf-8-sig",)
    for encoding in encodings:
        with suppress(UnicodeDecodeError):
            text = codecs.getincrementaldecoder(encoding)().decode(block, final=whole)
            break
    else:
        raise InputError(f"{path!r} is not UTF-8, UTF-16 or Windows text.")
    if re.search("[\x00-\x08\x0e-\x1f]", text):
        raise InputError(f"{path!r} is not text; save it as CSV (UTF-8).")
    windows = "The file is not UTF-8; it was read as Windows text (cp1252)."
    return text, encoding, whole, [windows] if encoding == "cp1252" else []


def _separated(text: str, whole: bool) -> tuple[str, list[list[str]]]:
    """Return the separator that cuts the first records alike, and these records."""
    found: dict[str, list[list[str]]] = {}
    for separator in SEPARATORS:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        records = list(islice((record for record in lines if record), SNIFFED))
        if len(records) > 1 and len(records) < SNIFFED and not whole:
            records.pop()  # it may be cut
        found[separator] = records
    able = [separator for separator in SEPARATORS if len(found[separator][0]) > 1]
    even = [it for it in able if len({len(record) for record in found[it]}) == 1]
    widest = max(able, key=lambda separator: len(found[separator][0]), default=SEPARATORS[0])
    best = even[0] if even else widest
    return best, found[best]


def _decimal(records: Sequence[Sequence[str]], usual: str) -> str:
    """Return a comma if some number must be written with one and none with a point."""
    numbers = [value for record in records for value in record if WRITTEN_NUMBER.fullmatch(value)]
    commas = any("," in number and not GROUPED.fullmatch(number) for number in numbers)
    swapped = (number.replace(".", ",") for number in numbers if "." in number)
    points = any(not GROUPED.fullmatch(number) for number in swapped)
    return "." if points else "," if commas else usual
