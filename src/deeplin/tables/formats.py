"""The formats of tables: how each names its columns and streams them as float64 matrices.

Arrow reads all of them but `.npy`, whose rows NumPy maps. A missing value is NaN; nothing is ever
unpickled. A `TableFile` is a plain description, so that another process can read it.
`pyarrow.dataset` was measured as the alternative: Parquet 1.2 to 2 times slower with twice the
memory, Arrow files 1.4 times slower or more; its errors name no row.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from deeplin.errors import InputError, readable
from deeplin.tables.csv_dialect import MARKS, REMEDY, Dialect, NumberStyle, sniff, survey

CORES = os.cpu_count() or 1
NPY_ROWS = 1 << 20  # rows of a `.npy` file in one part
MISSING = pyarrow.csv.ConvertOptions().null_values  # as in columns of numbers: "", "NA", "nan", …
NUMBER, WHOLE, TRUTH = "numbers", "whole numbers", "true or false"
TEXT, DATE, OTHER, EMPTY = "text", "dates", "other values", "nothing"
NUMERIC = (NUMBER, WHOLE, TRUTH)
"""Kinds of columns that are numbers already."""

Part = tuple[int, int] | None  # from, to (row groups of Parquet, rows of .npy); None: all


class Column(NamedTuple):
    """A column of a table, or the indicator of one of the categories in a column of text."""

    name: str
    category: str | None = None
    style: NumberStyle | None = None
    """How numbers are written in a column of text; None: the format knows they are numbers."""
    labels: tuple[str, ...] = ()
    """With several labels: the place of the text among them, −1 where it is another."""

    @property
    def label(self) -> str:
        """How the column is called in sentences and results."""
        return self.name if self.category is None else f"{self.name}={self.category}"

    @property
    def is_text(self) -> bool:
        """Whether its values are read as text."""
        return self.category is not None or self.style is not None or bool(self.labels)


class Chunk(NamedTuple):
    """Some rows of a table, made a matrix only when asked: that is work for another thread."""

    rows: int
    matrix: Callable[[], np.ndarray]


Columns = Sequence[Column]
Batches = Iterator[pa.RecordBatch]
Kinds = dict[str, str]


@dataclass(frozen=True)
class TableFile:
    """A file, or a part of one, that streams on its own."""

    path: str
    part: Part = None

    def kinds(self) -> Kinds:
        """What each column holds."""
        raise NotImplementedError

    def batches(self, columns: Columns, rows: int) -> Batches:
        """These columns, as text where they are read as text."""
        raise NotImplementedError

    def split(self) -> list[TableFile]:
        """Smaller parts of the same file, where its format has some."""
        return [self]

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing about how it was read."""
        return ()

    @property
    def decimal(self) -> str:
        """The decimal mark of its text."""
        return "."

    def chunks(self, columns: Columns, rows: int) -> Iterator[Chunk]:
        """Chunks of at most `rows` rows of these columns; a missing value is NaN."""
        with readable(self.path):
            for batch in self.batches(columns, rows):
                for start in range(0, len(batch), rows):
                    some = batch.slice(start, rows)
                    yield Chunk(len(some), partial(_matrix, some, columns))

    def texts(self, name: str) -> Iterator[str | None]:
        """The values of one column as text; a missing value is None."""
        with readable(self.path):
            for batch in self.batches([Column(name, "")], 1 << 16):
                yield from _text(batch.column(name)).to_pylist()


def kinds_of(schema: pa.Schema) -> Kinds:
    """What each column of a schema holds."""
    repeated = [repr(name) for name, times in Counter(schema.names).items() if times > 1]
    if repeated:
        raise InputError(f"column names repeat: {', '.join(repeated[:5])}; rename them first.")
    # pandas keeps an index without a name among the columns; it is no measurement
    fields = (field for field in schema if not field.name.startswith("__index_level_"))
    return {field.name: _kind(field.type) for field in fields}


def _kind(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_null(kind):
        return EMPTY
    if types.is_integer(kind):
        return WHOLE
    if types.is_boolean(kind):
        return TRUTH
    if types.is_floating(kind) or types.is_decimal(kind):
        return NUMBER
    if types.is_temporal(kind):
        return DATE
    text = (types.is_string, types.is_large_string, types.is_string_view)
    return TEXT if any(check(kind) for check in text) else OTHER


def _matrix(batch: pa.RecordBatch, columns: Columns) -> np.ndarray:
    """A matrix whose columns are contiguous, as Arrow keeps them."""
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
        # not `to_numpy`, which imports pandas
        matrix[:, j] = np.from_dlpack(values.fill_null(np.nan)) if len(values) else ()
    return matrix


def _numbers(values: pa.Array, column: Column) -> pa.Array:
    """Text of a style as numbers."""
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
    """As text, where an empty cell and its like are missing values."""
    values = values.cast(pa.string())
    missing = pc.call_function("is_in", [values], pc.SetLookupOptions(pa.array(MISSING)))
    return pc.call_function("if_else", [missing, pa.scalar(None, pa.string()), values])


def _names(columns: Columns) -> list[str]:
    return list(dict.fromkeys(column.name for column in columns))


# --- Arrow's formats ---------------------------------------------------------------------------


@dataclass(frozen=True)
class CsvFile(TableFile):
    """Separated text, with the dialect found when it was opened."""

    dialect: Dialect | None = None

    @classmethod
    def open(cls, path: str, decimal: str | None = None) -> CsvFile:
        """Find the dialect of a file."""
        return cls(path, dialect=sniff(path, decimal))

    def _open(self, **convert) -> pyarrow.csv.CSVStreamingReader:
        assert self.dialect is not None
        return self.dialect.open(self.path, **convert)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the dialect is worth saying about."""
        return () if self.dialect is None else self.dialect.notes

    @property
    def decimal(self) -> str:
        """The decimal mark of the dialect."""
        return "." if self.dialect is None else self.dialect.decimal

    def kinds(self) -> Kinds:
        """Inferred from the first block."""
        with self._open() as reader:
            return kinds_of(reader.schema)

    def batches(self, columns: Columns, rows: int) -> Batches:
        """Every number as a double: whole numbers in one block may be fractions further on."""
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
            # No number, though all of the first block are: say which.
            found = survey(self.texts(name), self.decimal)
            raise InputError(f"column {name!r} of {self.path!r}: {found}. {REMEDY}") from error


class ParquetFile(TableFile):
    """Parquet, in parts of row groups."""

    def kinds(self) -> Kinds:
        """By its schema."""
        return kinds_of(pyarrow.parquet.read_schema(self.path))

    def split(self) -> list[TableFile]:
        """Row groups."""
        groups = pyarrow.parquet.read_metadata(self.path).num_row_groups
        return [replace(self, part=part) for part in pairwise(range(groups + 1))]

    def batches(self, columns: Columns, rows: int) -> Batches:
        """Little buffered: a row group is decoded as it is used, never held whole."""
        with pyarrow.parquet.ParquetFile(self.path, buffer_size=1 << 18, pre_buffer=False) as file:
            groups = range(*self.part) if self.part else None
            # Of two cores one decodes and the other has the numbers to work on.
            options = {"columns": _names(columns), "row_groups": groups, "use_threads": CORES > 2}
            yield from file.iter_batches(rows, **options)


class ArrowFile(TableFile):
    """Arrow's file or stream format, and Feather."""

    def kinds(self) -> Kinds:
        """By the schema of the first batch."""
        first = next(self.batches((), 0), None)
        if first is None:
            raise InputError(f"{self.path!r} holds no rows.")
        return kinds_of(first.schema)

    def batches(self, columns: Columns, rows: int) -> Batches:
        """As they lie in the file."""
        text = any(column.is_text for column in columns)
        with pa.memory_map(self.path) as source:
            if source.read(6) == b"ARROW1":
                file = pa.ipc.open_file(source)
                batches = (file.get_batch(index) for index in range(file.num_record_batches))
            else:
                source.seek(0)
                batches = iter(pa.ipc.open_stream(source))
            for batch in batches:
                batch.validate(full=text)  # offsets of damaged text would point anywhere
                yield batch


@dataclass(frozen=True)
class FrameTable(TableFile):
    """A table in memory: a DataFrame of pandas or polars, an Arrow table."""

    table: pa.Table | None = None

    def kinds(self) -> Kinds:
        """By its schema."""
        assert self.table is not None
        return kinds_of(self.table.schema)

    def batches(self, columns: Columns, rows: int) -> Batches:
        """As they lie in memory."""
        assert self.table is not None
        yield from self.table.select(_names(columns)).to_batches(rows)


def excel_table(path: str) -> FrameTable:
    """The first sheet of an Excel workbook, through pandas and openpyxl."""
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
        if dtype == np.dtype(object):  # a column of several kinds becomes text
            frame[name] = frame[name].map(str, na_action="ignore")
    return FrameTable(path, table=pa.Table.from_pandas(frame, preserve_index=False))


# --- NumPy's formats ---------------------------------------------------------------------------


def _array_kind(array: np.ndarray) -> str:
    names = {"b": TRUTH, "f": NUMBER, "i": WHOLE, "u": WHOLE, "U": TEXT, "M": DATE}
    return names.get(array.dtype.kind, OTHER)


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
        """All of one kind."""
        array = self._array()
        return {str(k): _array_kind(array) for k in range(array.shape[1])}

    def split(self) -> list[TableFile]:
        """Ranges of rows."""
        count = len(self._array())
        return [replace(self, part=p) for p in pairwise([*range(0, count, NPY_ROWS), count])]

    def batches(self, columns: Columns, rows: int) -> Batches:
        """One batch."""
        array = self._array()[slice(*self.part) if self.part else slice(None)]
        yield pa.record_batch({name: array[:, int(name)] for name in _names(columns)})

    def chunks(self, columns: Columns, rows: int) -> Iterator[Chunk]:
        """Without a way through Arrow, which would copy each column, unless some are text."""
        if any(column.is_text for column in columns):
            yield from super().chunks(columns, rows)
            return
        with readable(self.path):
            array = self._array()
            first, last = self.part or (0, len(array))
            chosen = [int(column.name) for column in columns]
            for start in range(first, last, rows):
                block = array[start : min(start + rows, last)]
                yield Chunk(len(block), lambda b=block: np.asarray(b, dtype=float)[:, chosen])


class NpzFile(TableFile):
    """Arrays in a `.npz` file: a vector `y` is the column y, a matrix `X` the columns X[0], …"""

    def _arrays(self) -> dict[str, np.ndarray]:
        held: dict[str, np.ndarray] = {}
        for name, array in self._archive().items():
            if array.ndim not in (1, 2):
                raise InputError(
                    f"array {name!r} of {self.path!r} has shape {array.shape}; "
                    "pass vectors and matrices with one row for each sample."
                )
            columns = {name: array}
            if array.ndim == 2:
                columns = {f"{name}[{k}]": column for k, column in enumerate(array.T)}
            if repeated := held.keys() & columns:
                raise InputError(
                    f"{self.path!r} has a matrix and a vector that both give the column "
                    f"{min(repeated)!r}; rename one of them."
                )
            held |= columns
        lengths = {name: len(array) for name, array in held.items()}
        if len(set(lengths.values())) != 1:
            raise InputError(f"arrays of {self.path!r} have different lengths: {lengths}.")
        return held

    def _archive(self) -> dict[str, np.ndarray]:
        with open(self.path, "rb") as file:  # which NumPy would leave open where it is damaged
            arrays = np.load(file, allow_pickle=False)
            if isinstance(arrays, np.ndarray):
                raise InputError(f"{self.path!r} is a single array; name it with the ending .npy.")
            return {name: arrays[name] for name in arrays.files}

    def kinds(self) -> Kinds:
        """By the types of the arrays."""
        return {name: _array_kind(array) for name, array in self._arrays().items()}

    def batches(self, columns: Columns, rows: int) -> Batches:
        """One batch."""
        held = self._arrays()
        text = {column.name for column in columns if column.is_text}
        yield pa.record_batch(
            {n: held[n].astype(str if n in text else float, copy=False) for n in _names(columns)}
        )
