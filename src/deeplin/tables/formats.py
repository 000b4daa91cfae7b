"""Formats of tables: names and kinds of columns, streamed as float64 matrices.

Arrow reads all formats except NumPy's. A missing value is NaN; nothing is unpickled. A `TableFile`
is a plain description, so that another process can read it. Encoding, separator, decimal mark and
names of separated text are found once, from its beginning. `pyarrow.dataset` was measured as the
alternative: Parquet 1.2 to 2 times slower with twice the memory, Arrow files 1.4 times slower or
more; its errors name no row.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from deeplin.errors import InputError, readable

CHUNK = 2**21
"""Number of values in a chunk of rows, unless the caller sets the number of rows."""
NPY_ROWS = 1 << 20  # rows of a `.npy` file in one part
MISSING = pyarrow.csv.ConvertOptions().null_values  # as in columns of numbers: "", "NA", "nan", …


class Kind(StrEnum):
    """Kind of the values in a column."""

    NUMBER = "numbers"
    WHOLE = "whole numbers"
    BOOLEAN = "true or false"
    TEXT = "text"
    DATE = "dates"
    OTHER = "other values"
    EMPTY = "nothing"


NUMERIC = (Kind.NUMBER, Kind.WHOLE, Kind.BOOLEAN)
"""Kinds of columns that are numbers already."""

Part = tuple[int, int] | None  # from, to (row groups of Parquet, rows of .npy); None: all
BLOCK = 1 << 20  # bytes of text read at a time; column types are inferred from the first block
SEPARATORS = "\t;|,"
"""Separators in the order in which they are tried; a comma may also be a decimal mark."""
SNIFFED = 100
"""Number of records from which separator and decimal mark are inferred."""
CATEGORIES = 50
"""Largest number of distinct values in a column of categories."""
SURVEYED = 100_000
"""Number of values after which a column with few numbers is classified."""
REMEDY = "Correct it, or leave the cell empty if it is missing."
MARKS = {".": r"\.", ",": ",", " ": "[ \u00a0\u202f]", "'": "['’]", "": ""}
WRITTEN_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")
"""A number with a decimal point or a decimal comma."""
GROUPED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*")
"""A whole number whose comma may group thousands."""
WITH_UNIT = re.compile(
    r"\s*(?P<before>[$€£¥₹]|[A-Z]{3}(?=\s))?\s*(?P<number>[+-]?[\d.,][\d.,'’ \u00a0\u202f]*"
    r"([eE][+-]?\d+)?)\s*(?P<after>[^\W\d_]{1,5}|[%‰°$€£¥₹][A-Z]?)?\s*"
)


def listed(names: Sequence[str]) -> str:
    """Return a few names, and how many more there are."""
    shown = ", ".join(repr(str(name)) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


class NumberStyle(NamedTuple):
    """Style in which the numbers in a column of text are written."""

    decimal: str = "."
    thousands: str = ""
    unit: str = ""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Numbers of this style, without their unit."""
        point, group = MARKS[self.decimal], MARKS[self.thousands]
        whole = rf"\d{{1,3}}({group}\d{{3}})+|\d+" if group else r"\d+"
        return re.compile(rf"[+-]?(({whole})({point}\d*)?|{point}\d+)([eE][+-]?\d+)?")

    def note(self, name: str, example: str) -> str | None:
        """Return a sentence on how a column's text was read as numbers, or None."""
        done = []
        if self.thousands:
            mark = {" ": "a blank"}.get(self.thousands, f"{self.thousands!r}")
            done.append(f"{mark} groups thousands")
        if self.decimal == ",":
            done.append("a comma is the decimal mark")
        if self.unit:
            done.append(f"the unit {self.unit!r} was removed")
        other = " (otherwise pass --decimal ,)" if self.thousands == "," else ""
        return f"In {name!r}, as in {example!r}, {', '.join(done)}{other}." if done else None


class Survey(NamedTuple):
    """Summary of a column of text."""

    values: int
    numbers: int
    """Number of values that are numbers in the most common style."""
    row: int
    """The first row that is not (counted from 1); `example` is its value."""
    example: str
    categories: tuple[str, ...]
    """The different values, in order; at most one more than `CATEGORIES`."""
    style: NumberStyle
    shown: str
    """A value that shows the style."""

    @property
    def nearly_numbers(self) -> bool:
        """Whether it was meant as a column of numbers."""
        return 2 * self.numbers >= self.values > 0

    @property
    def all_numbers(self) -> bool:
        """Whether every value is a number."""
        return self.numbers == self.values > 0

    def __str__(self) -> str:
        count = f"{self.numbers} of {self.values} values parse as numbers"
        return f"{count}; row {self.row} is {self.example[:40]!r}"


def survey(texts: Iterable[str | None], decimal: str = ".", *, everything: bool = False) -> Survey:
    """Determine whether a column of text holds numbers of some style, or categories."""
    other = "," if decimal == "." else "."
    marks = [(decimal, group) for group in ("", other, " ", "'")] + [(other, ""), (other, decimal)]
    patterns = [(pair, NumberStyle(*pair).pattern) for pair in marks]
    counts: Counter[NumberStyle] = Counter()
    shown: dict[NumberStyle, str] = {}
    misses: list[tuple[int, str, list[NumberStyle]]] = []
    categories: set[str] = set()
    values = 0
    for row, value in enumerate(texts, 1):
        if row > SURVEYED and 2 * max(counts.values(), default=0) < values and not everything:
            break
        if value is None:
            continue
        values += 1
        if len(categories) <= CATEGORIES:
            categories.add(value)
        found = WITH_UNIT.fullmatch(value)
        unit = (found["before"] or found["after"] or "").strip() if found else ""
        number = found["number"].strip() if found else ""
        styles = [NumberStyle(*pair, unit) for pair, form in patterns if form.fullmatch(number)]
        counts.update(styles)
        for style in styles:
            mark = style.thousands
            if style not in shown or (mark and mark in value and mark not in shown[style]):
                shown[style] = value
        if len(misses) < 1000 and len(styles) < len(patterns):
            misses.append((row, value, styles))
    best = max(counts, key=lambda it: (counts[it], -marks.index(it[:2])), default=NumberStyle())
    row, example = next(((r, v) for r, v, styles in misses if best not in styles), (0, ""))
    ordered = tuple(sorted(categories))
    return Survey(values, counts[best], row, example, ordered, best, shown.get(best, ""))


class Column(NamedTuple):
    """A column of a table, or the indicator of one of the categories in a column of text."""

    name: str
    category: str | None = None
    style: NumberStyle | None = None
    """Style of the numbers in a column of text; None if the format stores numbers."""
    labels: tuple[str, ...] = ()
    """Labels whose index replaces the text; −1 for any other text."""

    @property
    def label(self) -> str:
        """Name of the column in messages and results."""
        return self.name if self.category is None else f"{self.name}={self.category}"

    @property
    def is_text(self) -> bool:
        """Whether its values are read as text."""
        return self.category is not None or self.style is not None or bool(self.labels)


Columns = Sequence[Column]
Batches = Iterator[pa.RecordBatch]
Kinds = dict[str, Kind]


@dataclass(frozen=True)
class TableFile:
    """A file, or a part of one, that can be streamed independently."""

    path: str
    part: Part = None
    notes: tuple[str, ...] = ()
    """Notes on how it was read."""
    decimal: str = "."
    """The decimal mark of its text."""

    def kinds(self) -> Kinds:
        """Return the kind of each column."""
        raise NotImplementedError

    def batches(self, columns: Columns, rows: int) -> Batches:
        """Yield batches of these columns, as text where they are read as text."""
        raise NotImplementedError

    def split(self) -> list[TableFile]:
        """Return smaller parts of the same file, where its format has parts."""
        return [self]

    def chunks(self, columns: Columns, rows: int | None = None) -> Iterator[np.ndarray]:
        """Yield matrices of at most `rows` rows of these columns, with NaN for missing values."""
        rows = rows or max(1, CHUNK // len(columns))
        with readable(self.path):
            for batch in self.batches(columns, rows):
                for start in range(0, len(batch), rows):
                    yield _matrix(batch.slice(start, rows), columns)

    def texts(self, name: str) -> Iterator[str | None]:
        """Yield the values of one column as text, with None for missing values."""
        with readable(self.path):
            for batch in self.batches([Column(name, "")], 1 << 16):
                yield from _text(batch.column(name)).to_pylist()


def kinds_of(schema: pa.Schema) -> Kinds:
    """Return the kind of each column of a schema."""
    if repeated := [name for name, times in Counter(schema.names).items() if times > 1]:
        raise InputError(f"column names repeat: {listed(repeated)}; rename them first.")
    # the unnamed index of pandas is stored as a column, but is not data
    fields = (field for field in schema if not field.name.startswith("__index_level_"))
    return {field.name: _kind(field.type) for field in fields}


KIND_CHECKS = {
    pa.types.is_null: Kind.EMPTY,
    pa.types.is_integer: Kind.WHOLE,
    pa.types.is_boolean: Kind.BOOLEAN,
    pa.types.is_floating: Kind.NUMBER,
    pa.types.is_decimal: Kind.NUMBER,
    pa.types.is_temporal: Kind.DATE,
    pa.types.is_string: Kind.TEXT,
    pa.types.is_large_string: Kind.TEXT,
    pa.types.is_string_view: Kind.TEXT,
}


def _kind(given: pa.DataType) -> Kind:
    plain = given.value_type if pa.types.is_dictionary(given) else given
    return next((kind for check, kind in KIND_CHECKS.items() if check(plain)), Kind.OTHER)


def _matrix(batch: pa.RecordBatch, columns: Columns) -> np.ndarray:
    """Return a matrix with contiguous columns, the layout of Arrow."""
    matrix = np.empty((len(batch), len(columns)), order="F")
    for j, column in enumerate(columns):
        values = batch.column(column.name)
        if column.labels:
            texts, labels = _text(values), pc.SetLookupOptions(pa.array(column.labels))
            missing, none = pc.call_function("is_null", [texts]), pa.scalar(None, pa.int32())
            place = pc.call_function("index_in", [texts], labels).fill_null(-1)
            values = pc.call_function("if_else", [missing, none, place])
        elif column.category is not None:
            values = pc.call_function("equal", [_text(values), pa.scalar(column.category)])
        elif column.style is not None:
            values = _numbers(values, column)
        if values.type != pa.float64():
            values = values.cast(pa.float64(), safe=False)
        values = values.fill_null(np.nan) if values.null_count else values
        # not `to_numpy`, which imports pandas
        matrix[:, j] = np.from_dlpack(values) if len(values) else ()
    return matrix


def _numbers(values: pa.Array, column: Column) -> pa.Array:
    """Return text of a style as numbers."""
    assert column.style is not None
    decimal, thousands, unit = column.style
    texts = _text(values)
    marks = [(re.escape(unit), ""), (MARKS[thousands], ""), ("," if decimal == "," else "", ".")]
    for pattern, replacement in marks:
        if pattern:
            change = pc.ReplaceSubstringOptions(pattern, replacement)
            texts = pc.call_function("replace_substring_regex", [texts], change)
    texts = pc.call_function("utf8_trim_whitespace", [texts])
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise InputError(f"column {column.name!r}: {error}. {REMEDY}") from error


def _text(values: pa.Array) -> pa.Array:
    """Return values as text, where empty cells and other marks of missing values are null."""
    values = values.cast(pa.string())
    missing = pc.call_function("is_in", [values], pc.SetLookupOptions(pa.array(MISSING)))
    return pc.call_function("if_else", [missing, pa.scalar(None, pa.string()), values])


def _names(columns: Columns) -> list[str]:
    return list(dict.fromkeys(column.name for column in columns))


# --- separated text ----------------------------------------------------------------------------


@dataclass(frozen=True)
class CsvFile(TableFile):
    """Separated text, with the dialect found by `sniff`."""

    separator: str = ","
    names: tuple[str, ...] | None = None
    """Column numbers as names if the first line is a sample; None if it has the names."""
    newlines: bool = False
    """Whether a name holds a line break."""
    encoding: str = "utf-8"
    skipped: int = 0
    """Lines of comment before the first record."""

    def _open(self, **convert: Any) -> pyarrow.csv.CSVStreamingReader:
        """Open the file as a stream of record batches without comment lines."""
        return pyarrow.csv.open_csv(
            self.path,
            read_options=pyarrow.csv.ReadOptions(
                block_size=BLOCK,
                column_names=None if self.names is None else list(self.names),
                encoding=self.encoding,
                skip_rows=self.skipped,
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.separator,
                newlines_in_values=self.newlines,
                invalid_row_handler=_invalid_row,
            ),
            convert_options=pyarrow.csv.ConvertOptions(decimal_point=self.decimal, **convert),
        )

    def kinds(self) -> Kinds:
        """Return the kinds inferred from the first block."""
        with self._open() as reader:
            return kinds_of(reader.schema)

    def batches(self, columns: Columns, rows: int) -> Batches:
        """Yield batches in which every number is a double.

        Integers in one block may be followed by fractions in the next.
        """
        with self._open() as reader:
            seen = {field.name: field.type for field in reader.schema}
        kinds = {}
        for column in columns:
            truth = pa.types.is_boolean(seen[column.name])
            number = pa.bool_() if truth else pa.float64()
            kinds[column.name] = pa.string() if column.is_text else number
        options = {"column_types": kinds, "include_columns": list(kinds)}
        try:
            with self._open(**options, strings_can_be_null=True) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            place = re.search(r"column #(\d+).*conversion error", str(error))
            name = list(seen)[int(place[1])] if place else None
            if name is None or kinds[name] == pa.string():
                raise
            # Not a number, unlike the first block: name the row.
            found = survey(self.texts(name), self.decimal)
            raise InputError(f"column {name!r} of {self.path!r}: {found}. {REMEDY}") from error


def _invalid_row(row) -> str:
    return "skip" if (row.text or "").lstrip().startswith("#") else "error"


def sniff(path: str, decimal: str | None = None) -> CsvFile:
    """Find the dialect from the first records: the separator that cuts all of them alike, …"""
    text, encoding, notes = _beginning(path)
    lines = text.splitlines(keepends=True)
    skipped = next((k for k, line in enumerate(lines) if not line.startswith("#")), 0)
    if skipped:
        notes.append(f"{skipped} line(s) of comment before the first record were skipped.")
    sample = "".join(line for line in lines[skipped:] if not line.startswith("#"))
    if not sample.strip():
        raise InputError(f"{path!r} does not begin with a line of column names.")
    best = max(SEPARATORS, key=lambda separator: _evenness(_records(sample, separator)))
    first, *rest = _records(sample, best)
    mark = decimal or _decimal(rest or [first])
    if mark == ",":
        notes.append("Decimal commas were read as such.")
    names, newlines = None, any("\n" in name for name in first)
    if all(map(WRITTEN_NUMBER.fullmatch, first)):
        counted = tuple(str(k) for k in range(len(first)))
        if len(first) > 2 and tuple(value.strip() for value in first) == counted:
            notes.append(
                "The first line counts 0, 1, 2, …: it was taken as the names of the columns."
            )
        else:
            names = counted
            notes.append(
                "The first line holds numbers only: it was taken as a sample, and the columns are "
                "numbered from 0. If it names the columns, write at least one name that is no "
                "number."
            )
    return CsvFile(path, None, tuple(notes), mark, best, names, newlines, encoding, skipped)


def _beginning(path: str) -> tuple[str, str, list[str]]:
    """Return the text of the first block, its encoding, and a note about the encoding."""
    with pa.input_stream(path) as stream:
        block = stream.read(BLOCK)
    whole = len(block) < BLOCK
    marked = block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for encoding in ("utf-16",) if marked else ("utf-8", "cp1252"):
        with suppress(UnicodeDecodeError):
            text = codecs.getincrementaldecoder(encoding)().decode(block, final=whole)
            break
    else:
        raise InputError(f"{path!r} is not UTF-8, UTF-16 or Windows text.")
    windows = "The file is not UTF-8; it was read as Windows text (cp1252)."
    text = text.removeprefix("\ufeff")
    if re.search("[\x00-\x08\x0e-\x1f]", text):
        raise InputError(f"{path!r} is not text; save it as CSV (UTF-8).")
    complete = text if whole else text[: text.rfind("\n") + 1] or text
    return complete, encoding, [windows] if encoding == "cp1252" else []


def _records(text: str, separator: str) -> list[list[str]]:
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    return list(islice((record for record in lines if record), SNIFFED))


def _evenness(records: Sequence[Sequence[str]]) -> tuple[bool, int]:
    """Return whether all records have the same number of values above one, and that number."""
    counts = [len(record) for record in records]
    return len(set(counts)) == 1 < counts[0], 0 if len(set(counts)) == 1 else counts[0]


def _decimal(records: Sequence[Sequence[str]]) -> str:
    """Return a comma if some number must be written with one and none with a point."""
    numbers = [value for record in records for value in record if WRITTEN_NUMBER.fullmatch(value)]
    comma = any("," in number and not GROUPED.fullmatch(number) for number in numbers)
    return "," if comma and not any("." in number for number in numbers) else "."


# --- Arrow's formats ---------------------------------------------------------------------------


class ParquetFile(TableFile):
    """Parquet, in parts of row groups."""

    def kinds(self) -> Kinds:
        """Return the kinds of the file's schema."""
        return kinds_of(pyarrow.parquet.read_schema(self.path))

    def split(self) -> list[TableFile]:
        """Return one part for each row group."""
        groups = pyarrow.parquet.read_metadata(self.path).num_row_groups
        return [replace(self, part=part) for part in pairwise(range(groups + 1))]

    def batches(self, columns: Columns, rows: int) -> Batches:
        """Yield batches with little buffering: row groups are decoded as they are used."""
        with pyarrow.parquet.ParquetFile(self.path, buffer_size=1 << 18, pre_buffer=False) as file:
            groups = range(*self.part) if self.part else None
            yield from file.iter_batches(rows, row_groups=groups, columns=_names(columns))


class ArrowFile(TableFile):
    """Arrow's file or stream format, and Feather."""

    def kinds(self) -> Kinds:
        """Return the kinds of the schema of the first batch."""
        first = next(self.batches((), 0), None)
        if first is None:
            raise InputError(f"{self.path!r} holds no rows.")
        return kinds_of(first.schema)

    def batches(self, columns: Columns, rows: int) -> Batches:
        """Yield the batches of the file."""
        text = any(column.is_text for column in columns)
        with pa.memory_map(self.path) as source:
            if source.read(6) == b"ARROW1":
                file = pa.ipc.open_file(source)
                batches = (file.get_batch(index) for index in range(file.num_record_batches))
            else:
                source.seek(0)
                batches = iter(pa.ipc.open_stream(source))
            for batch in batches:
                batch.validate(full=text)  # offsets of damaged text may be invalid
                yield batch


@dataclass(frozen=True, kw_only=True)
class FrameTable(TableFile):
    """A table in memory: a DataFrame of pandas or polars, an Arrow table."""

    table: pa.Table

    def kinds(self) -> Kinds:
        """Return the kinds of the table's schema."""
        return kinds_of(self.table.schema)

    def batches(self, columns: Columns, rows: int) -> Batches:
        """Yield the batches of the table in memory."""
        yield from self.table.select(_names(columns)).to_batches(rows)


def excel_table(path: str) -> FrameTable:
    """Return the first sheet of an Excel workbook, read by pandas and openpyxl."""
    import pandas as pd

    try:
        frame = pd.read_excel(path)
    except ImportError as error:
        raise InputError(
            f"{path!r} is an Excel workbook, which needs openpyxl; install it with: pip install "
            "'deeplin[excel]', or save the sheet as CSV."
        ) from error
    frame.columns = frame.columns.map(str)
    for name, dtype in frame.dtypes.items():
        if dtype == np.dtype(object):  # a column of mixed types becomes text
            frame[name] = frame[name].map(str, na_action="ignore")
    return FrameTable(path, table=pa.Table.from_pandas(frame, preserve_index=False))


# --- NumPy's formats ---------------------------------------------------------------------------


class NpyFile(TableFile):
    """A matrix in a `.npy` file, mapped into memory; its columns are numbered from 0."""

    def _array(self) -> np.ndarray:
        with open(self.path, "rb") as file:
            if file.read(2) == b"PK":
                raise InputError(
                    f"{self.path!r} is an archive of arrays; name it with the ending .npz."
                )
        array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            raise InputError(
                f"{self.path!r} holds an array of shape {array.shape} and type {array.dtype}; "
                "pass a matrix of real numbers, one row for each sample."
            )
        return array

    def kinds(self) -> Kinds:
        """Return one kind for all columns."""
        array = self._array()
        return dict.fromkeys(
            map(str, range(array.shape[1])), _kind(pa.from_numpy_dtype(array.dtype))
        )

    def split(self) -> list[TableFile]:
        """Return parts by ranges of rows."""
        count = len(self._array())
        return [replace(self, part=p) for p in pairwise([*range(0, count, NPY_ROWS), count])]

    def batches(self, columns: Columns, rows: int) -> Batches:
        """Yield batches of consecutive rows."""
        array = self._array()[slice(*self.part) if self.part else slice(None)]
        for start in range(0, len(array), rows):
            block = array[start : start + rows]
            yield pa.record_batch({name: block[:, int(name)] for name in _names(columns)})


def npz_table(path: str) -> FrameTable:
    """Return the arrays of an `.npz` file as a table.

    A vector `y` is the column y, a matrix `X` the columns X[0], X[1], ….
    """
    with open(path, "rb") as file:  # NumPy would not close a damaged file
        arrays = np.load(file, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise InputError(f"{path!r} is a single array; name it with the ending .npy.")
        arrays = {name: arrays[name] for name in arrays.files}
    held: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if array.ndim not in (1, 2):
            raise InputError(
                f"array {name!r} of {path!r} has shape {array.shape}; "
                "pass vectors and matrices with one row for each sample."
            )
        columns = {name: array}
        if array.ndim == 2:
            columns = {f"{name}[{k}]": column for k, column in enumerate(array.T)}
        if repeated := held.keys() & columns:
            raise InputError(
                f"{path!r} has a matrix and a vector that both give the column "
                f"{min(repeated)!r}; rename one of them."
            )
        held |= columns
    lengths = {name: len(array) for name, array in held.items()}
    if len(set(lengths.values())) != 1:
        raise InputError(f"arrays of {path!r} have different lengths: {lengths}.")
    others = {name: array.astype(bytes) for name, array in held.items() if array.dtype.kind == "c"}
    return FrameTable(path, table=pa.table(held | others))
