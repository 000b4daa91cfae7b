"""The formats of tables: how each names its columns and streams them as float64 matrices.

A missing value is NaN. Nothing is ever unpickled.
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
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from deeplin.checks import InputError

CORES = os.cpu_count() or 1
BLOCK = 1 << 20  # bytes of text read at a time; column types are inferred from the first block
NPY_ROWS = 1 << 20  # rows of a `.npy` file in one part

Part = tuple[int, int] | None  # from, to (row groups of Parquet, rows of .npy); None: all
Columns = Sequence[str]


class Chunk(NamedTuple):
    """Some rows of a table, made a matrix only when asked: that is work for another thread."""

    rows: int
    matrix: Callable[[], np.ndarray]


Chunks = Iterator[Chunk]

# --- Arrow's formats ---------------------------------------------------------------------------


def _numeric(kind: pa.DataType) -> bool:
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(check(kind) for check in (*checks, pa.types.is_decimal, pa.types.is_null))


def _schema_columns(schema: pa.Schema) -> dict[str, bool]:
    repeated = [name for name, times in Counter(schema.names).items() if times > 1]
    if repeated:
        raise InputError(f"column names repeat: {', '.join(repeated[:5])}; rename them first.")
    # pandas keeps an index without a name among the columns; it is no measurement
    fields = (field for field in schema if not field.name.startswith("__index_level_"))
    return {field.name: _numeric(field.type) for field in fields}


def _cut(batch: pa.RecordBatch, columns: Columns, rows: int) -> Chunks:
    """Cut a record batch into chunks of at most so many rows."""
    places = [batch.schema.get_field_index(name) for name in columns]
    for start in range(0, len(batch), rows):
        part = batch.slice(start, rows)
        yield Chunk(len(part), partial(_matrix, part, places))


def _matrix(batch: pa.RecordBatch, places: Sequence[int]) -> np.ndarray:
    """A matrix whose columns are contiguous, as Arrow keeps them."""
    matrix = np.empty((len(batch), len(places)), order="F")
    for j, place in enumerate(places):
        values = batch.column(place)
        if values.type != pa.float64():
            values = values.cast(pa.float64(), safe=False)
        matrix[:, j] = values.to_numpy(zero_copy_only=False)
    return matrix


def _parquet_columns(path: str) -> dict[str, bool]:
    return _schema_columns(pyarrow.parquet.read_schema(path))


def _parquet_parts(path: str) -> list[Part]:
    groups = pyarrow.parquet.read_metadata(path).num_row_groups
    return list(pairwise(range(groups + 1)))


def _parquet_stream(path: str, part: Part, columns: Columns, rows: int) -> Chunks:
    # A small buffer and no pre-buffering: a row group is decoded as it is used, never held whole.
    with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 18, pre_buffer=False) as file:
        groups = range(*part) if part else None
        # Of two cores one decodes and the other has the numbers to work on.
        options = {"columns": list(columns), "row_groups": groups, "use_threads": CORES > 2}
        for batch in file.iter_batches(rows, **options):
            yield from _cut(batch, columns, rows)


def _arrow_batches(path: str) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(path) as source:
        if source.read(6) == b"ARROW1":
            file = pa.ipc.open_file(source)
            yield from (file.get_batch(index) for index in range(file.num_record_batches))
        else:
            source.seek(0)
            yield from pa.ipc.open_stream(source)


def _arrow_columns(path: str) -> dict[str, bool]:
    first = next(_arrow_batches(path), None)
    if first is None:
        raise InputError(f"{path!r} holds no rows.")
    return _schema_columns(first.schema)


def _arrow_stream(path: str, part: Part, columns: Columns, rows: int) -> Chunks:
    for batch in _arrow_batches(path):
        yield from _cut(batch, columns, rows)


# --- text --------------------------------------------------------------------------------------


def _csv_layout(path: str) -> tuple[pyarrow.csv.ReadOptions, pyarrow.csv.ParseOptions]:
    """Delimiter from the first line; a first line of numbers only means that names are missing."""
    with pa.input_stream(path) as stream:
        line = stream.read(BLOCK).decode("utf-8-sig", errors="replace").partition("\n")[0].strip()
    if not line:
        raise InputError(f"{path!r} does not begin with a line of column names.")
    delimiter = max("\t,;|", key=line.count)
    values = line.split(delimiter)
    names = [str(k) for k in range(len(values))] if all(map(_is_number, values)) else None
    options = pyarrow.csv.ReadOptions(block_size=BLOCK, column_names=names)
    return options, pyarrow.csv.ParseOptions(delimiter=delimiter)


def _is_number(text: str) -> bool:
    try:
        float(text.strip().strip('"'))
    except ValueError:
        return False
    return True


def _csv_columns(path: str) -> dict[str, bool]:
    read, parse = _csv_layout(path)
    with pyarrow.csv.open_csv(path, read_options=read, parse_options=parse) as reader:
        return _schema_columns(reader.schema)


def _csv_stream(path: str, part: Part, columns: Columns, rows: int) -> Chunks:
    read, parse = _csv_layout(path)
    with pyarrow.csv.open_csv(path, read_options=read, parse_options=parse) as reader:
        seen = {field.name: field.type for field in reader.schema}
    # Whole numbers in the first block may be fractions further on, so every number is a double.
    kinds = {n: pa.bool_() if pa.types.is_boolean(seen[n]) else pa.float64() for n in columns}
    convert = pyarrow.csv.ConvertOptions(column_types=kinds, include_columns=list(columns))
    with pyarrow.csv.open_csv(
        path, read_options=read, parse_options=parse, convert_options=convert
    ) as reader:
        for batch in reader:
            yield from _cut(batch, columns, rows)


# --- NumPy's formats ---------------------------------------------------------------------------


def _array(path: str) -> np.ndarray:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise InputError(
            f"{path!r} holds an array of shape {array.shape} and type {array.dtype}; "
            "pass a matrix of real numbers, one row for each sample."
        )
    return array


def _npy_columns(path: str) -> dict[str, bool]:
    return {str(k): True for k in range(_array(path).shape[1])}


def _npy_parts(path: str) -> list[Part]:
    count = len(_array(path))
    return list(pairwise([*range(0, count, NPY_ROWS), count]))


def _npy_stream(path: str, part: Part, columns: Columns, rows: int) -> Chunks:
    array = _array(path)
    first, last = part or (0, len(array))
    chosen = [int(name) for name in columns]
    for start in range(first, last, rows):
        cut = array[start : min(start + rows, last)]
        yield Chunk(len(cut), lambda cut=cut: np.asarray(cut, dtype=float)[:, chosen])


def _npz_columns(path: str) -> dict[str, bool]:
    """A vector `y` is the column y, a matrix `X` the columns X[0], X[1], …; all of one length."""
    columns: dict[str, bool] = {}
    lengths = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            array = arrays[name]
            if array.ndim not in (1, 2):
                raise InputError(
                    f"array {name!r} of {path!r} has shape {array.shape}; "
                    "pass vectors and matrices with one row for each sample."
                )
            lengths[name] = len(array)
            names = [name] if array.ndim == 1 else [f"{name}[{k}]" for k in range(array.shape[1])]
            columns |= dict.fromkeys(names, array.dtype.kind in "biuf")
    if len(set(lengths.values())) != 1:
        raise InputError(f"arrays of {path!r} have different lengths: {lengths}.")
    return columns


def _npz_stream(path: str, part: Part, columns: Columns, rows: int) -> Chunks:
    with np.load(path, allow_pickle=False) as arrays:
        held = {name: arrays[name] for name in arrays.files}
    parts = []
    for column in columns:
        name, _, index = column.partition("[")
        parts.append(held[column] if column in held else held[name][:, int(index[:-1])])
    for start in range(0, len(parts[0]), rows):
        cut = [part[start : start + rows] for part in parts]
        yield Chunk(len(cut[0]), lambda cut=cut: np.stack(cut, axis=1).astype(float))


class Format(NamedTuple):
    """What a format can do: name its columns, stream them, name parts that stream on their own."""

    columns: Callable[[str], dict[str, bool]]
    stream: Callable[[str, Part, Columns, int], Chunks]
    parts: Callable[[str], list[Part]] = lambda _: [None]


FORMATS = {
    "csv": Format(_csv_columns, _csv_stream),
    "parquet": Format(_parquet_columns, _parquet_stream, _parquet_parts),
    "arrow": Format(_arrow_columns, _arrow_stream),
    "npy": Format(_npy_columns, _npy_stream, _npy_parts),
    "npz": Format(_npz_columns, _npz_stream),
}
