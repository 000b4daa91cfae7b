"""The formats of tables: how each names its columns and streams them as float64 matrices.

A missing value is NaN. Nothing is ever unpickled. Each format is read file by file with the reader
made for it. `pyarrow.dataset` was measured as the alternative (200 000 rows of 101 columns, same
batches): Parquet 1.2 to 2 times slower with twice the memory (0.59 to 0.77 GiB against 0.39), Arrow
files 1.4 times slower or more, CSV alike; it knows neither `.npy` and `.npz` nor globs, and its
errors name no row.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from deeplin.errors import InputError

CORES = os.cpu_count() or 1
NPY_ROWS = 1 << 20  # rows of a `.npy` file in one part
MISSING = pyarrow.csv.ConvertOptions().null_values  # as in columns of numbers: "", "NA", "nan", …
NUMBER, WHOLE, TEXT, DATE, OTHER = "numbers", "whole numbers", "text", "dates", "other values"

Part = tuple[int, int] | None  # from, to (row groups of Parquet, rows of .npy); None: all


class Column(NamedTuple):
    """A column of a table, or the indicator of one of the categories in a column of text."""

    name: str
    category: str | None = None

    @property
    def label(self) -> str:
        """How the column is called in sentences and results."""
        return self.name if self.category is None else f"{self.name}={self.category}"


class Chunk(NamedTuple):
    """Some rows of a table, made a matrix only when asked: that is work for another thread."""

    rows: int
    matrix: Callable[[], np.ndarray]


Columns = Sequence[Column]
Chunks = Iterator[Chunk]
Batches = Iterator[pa.RecordBatch]
Kinds = dict[str, str]
Texts = Iterator[list[str | None]]


class Format(NamedTuple):
    """What a format can do: name its columns, stream them or one as text, name its parts."""

    columns: Callable[[str], Kinds]
    stream: Callable[[str, Part, Columns, int], Chunks]
    texts: Callable[[str, str], Texts]
    parts: Callable[[str], list[Part]] = lambda _: [None]
    notes: Callable[[str], list[str]] = lambda _: []


# --- Arrow's formats ---------------------------------------------------------------------------


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
    if types.is_integer(kind):
        return WHOLE
    if any(c(kind) for c in (types.is_floating, types.is_boolean, types.is_decimal, types.is_null)):
        return NUMBER
    if types.is_temporal(kind):
        return DATE
    return TEXT if types.is_string(kind) or types.is_large_string(kind) else OTHER


def of_batches(
    columns: Callable[[str], Kinds], batches: Callable[[str, Part, Columns, int], Batches], **more
) -> Format:
    """A format that Arrow reads: `batches` of some columns, as text where they have a category."""

    def stream(path: str, part: Part, wanted: Columns, rows: int) -> Chunks:
        for batch in batches(path, part, wanted, rows):
            for start in range(0, len(batch), rows):
                some = batch.slice(start, rows)
                yield Chunk(len(some), partial(_matrix, some, wanted))

    def texts(path: str, name: str) -> Texts:
        for batch in batches(path, None, [Column(name, "")], 1 << 16):
            yield _text(batch.column(name)).to_pylist()

    return Format(columns, stream, texts, **more)


def _matrix(batch: pa.RecordBatch, columns: Columns) -> np.ndarray:
    """A matrix whose columns are contiguous, as Arrow keeps them."""
    matrix = np.empty((len(batch), len(columns)), order="F")
    for j, column in enumerate(columns):
        values = batch.column(column.name)
        if column.category is not None:
            values = pc.call_function("equal", [_text(values), pa.scalar(column.category)])
        if values.type != pa.float64():
            values = values.cast(pa.float64(), safe=False)
        matrix[:, j] = values.to_numpy(zero_copy_only=False)
    return matrix


def _text(values: pa.Array) -> pa.Array:
    """As text, where an empty cell and its like are missing values."""
    values = values.cast(pa.string())
    missing = pc.call_function("is_in", [values], pc.SetLookupOptions(pa.array(MISSING)))
    return pc.call_function("if_else", [missing, pa.scalar(None, pa.string()), values])


def _parquet_parts(path: str) -> list[Part]:
    groups = pyarrow.parquet.read_metadata(path).num_row_groups
    return list(pairwise(range(groups + 1)))


def _parquet_batches(path: str, part: Part, columns: Columns, rows: int) -> Batches:
    names = list(dict.fromkeys(column.name for column in columns))
    # A small buffer and no pre-buffering: a row group is decoded as it is used, never held whole.
    with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 18, pre_buffer=False) as file:
        groups = range(*part) if part else None
        # Of two cores one decodes and the other has the numbers to work on.
        options = {"columns": names, "row_groups": groups, "use_threads": CORES > 2}
        yield from file.iter_batches(rows, **options)


def _arrow_batches(path: str, part: Part, columns: Columns, rows: int) -> Batches:
    text = any(column.category is not None for column in columns)
    with pa.memory_map(path) as source:
        if source.read(6) == b"ARROW1":
            file = pa.ipc.open_file(source)
            batches = (file.get_batch(index) for index in range(file.num_record_batches))
        else:
            source.seek(0)
            batches = iter(pa.ipc.open_stream(source))
        for batch in batches:
            batch.validate(full=text)  # offsets of damaged text would point anywhere
            yield batch


def _arrow_columns(path: str) -> Kinds:
    first = next(_arrow_batches(path, None, (), 0), None)
    if first is None:
        raise InputError(f"{path!r} holds no rows.")
    return kinds_of(first.schema)


# --- NumPy's formats ---------------------------------------------------------------------------


def _array(path: str) -> np.ndarray:
    with open(path, "rb") as file:
        if file.read(2) == b"PK":
            raise InputError(f"{path!r} is an archive of arrays; name it with the ending .npz.")
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise InputError(
            f"{path!r} holds an array of shape {array.shape} and type {array.dtype}; "
            "pass a matrix of real numbers, one row for each sample."
        )
    return array


def _array_kind(array: np.ndarray) -> str:
    names = {"b": NUMBER, "f": NUMBER, "i": WHOLE, "u": WHOLE, "U": TEXT, "M": DATE}
    return names.get(array.dtype.kind, OTHER)


def _npy_columns(path: str) -> Kinds:
    array = _array(path)
    return {str(k): _array_kind(array) for k in range(array.shape[1])}


def _npy_parts(path: str) -> list[Part]:
    count = len(_array(path))
    return list(pairwise([*range(0, count, NPY_ROWS), count]))


def _npy_stream(path: str, part: Part, columns: Columns, rows: int) -> Chunks:
    array = _array(path)
    first, last = part or (0, len(array))
    chosen = [int(column.name) for column in columns]
    for start in range(first, last, rows):
        block = array[start : min(start + rows, last)]
        yield Chunk(len(block), lambda block=block: np.asarray(block, dtype=float)[:, chosen])


def _npz_arrays(path: str) -> dict[str, np.ndarray]:
    """A vector `y` is the column y, a matrix `X` the columns X[0], X[1], …; all of one length."""
    held: dict[str, np.ndarray] = {}
    for name, array in _archive(path).items():
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
    return held


def _archive(path: str) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:  # which NumPy would leave open where it is damaged
        arrays = np.load(file, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise InputError(f"{path!r} is a single array; name it with the ending .npy.")
        return {name: arrays[name] for name in arrays.files}


def _npz_columns(path: str) -> Kinds:
    return {name: _array_kind(array) for name, array in _npz_arrays(path).items()}


def _npz_batches(path: str, part: Part, columns: Columns, rows: int) -> Batches:
    held = _npz_arrays(path)
    as_wanted = {
        name: held[name].astype(float if category is None else str, copy=False)
        for name, category in columns
    }
    yield pa.record_batch(as_wanted)


PARQUET = of_batches(
    lambda path: kinds_of(pyarrow.parquet.read_schema(path)), _parquet_batches, parts=_parquet_parts
)
ARROW = of_batches(_arrow_columns, _arrow_batches)
NPY = Format(_npy_columns, _npy_stream, lambda path, name: iter(()), _npy_parts)
NPZ = of_batches(_npz_columns, _npz_batches)
