"""One unit as a worker computes it: a task in, the bytes of a Parquet file out."""

from __future__ import annotations

import io
import pickle
import platform
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from deeplin.compilation import share_compiled_code
from deeplin.errors import InputError
from deeplin.sweep.experiment import Experiment, Unit

VERSION = metadata.version("deeplin")


@dataclass(frozen=True)
class Task:
    """What a worker needs to compute a unit."""

    identifier: str
    experiment: Experiment
    config: Any
    unit: Unit
    precision: str

    def pack(self) -> tuple[str, str, bytes]:
        """Return the arguments of `compute_in_worker`; workers import experiment and functions."""
        try:
            return self.identifier, VERSION, pickle.dumps(self)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"workers cannot import what they are to compute ({error}); define it at the top "
                "level of a module that they can import."
            ) from error


@dataclass(frozen=True)
class Result:
    """A computed unit (`payload`, `columns`) or a failed one (`error`, `trace`)."""

    identifier: str
    seconds: float = 0.0
    machine: str = ""
    payload: bytes = b""
    columns: str = ""
    error: str = ""
    trace: str = ""


def compute(task: Task) -> Result:
    """Compute a unit; an exception becomes its result, so that one failure ends no sweep."""
    started, unit = time.perf_counter(), task.identifier
    try:
        table = to_arrow(task.experiment.run_unit(task.config, task.unit), unit)
        result = Result(unit, payload=to_parquet(table), columns=describe_columns(table.schema))
    except Exception as error:
        trace = traceback.format_exc()
        result = Result(unit, error=f"{type(error).__name__}: {error}", trace=trace)
    return replace(result, seconds=time.perf_counter() - started, machine=platform.node())


def compute_in_worker(identifier: str, version: str, packed: bytes) -> Result:
    """Compute a unit in another process with the precision of the one that sweeps."""
    if version != VERSION:
        return failure(identifier, f"the worker has deeplin {VERSION}, the sweep {version}")
    try:
        task = pickle.loads(packed)
    except Exception as error:  # whatever the modules of the experiment raise
        return failure(identifier, f"the worker cannot import the unit's function: {error!r}")
    jax.config.update("jax_enable_x64", task.precision == "float64")
    share_compiled_code()
    return compute(task)


def failure(identifier: str, why: str) -> Result:
    """Return the result of a unit that no worker could compute."""
    return Result(identifier, error=why, trace=f"{why}\n")


def to_arrow(rows: pd.DataFrame | Mapping[str, Any], identifier: str) -> pa.Table:
    """Return tidy rows as an Arrow table that carries the id of its unit.

    Column by column: `pa.Table.from_pandas` takes three times as long for a small table, and
    turns NaN, which is a value, into a missing one.
    """
    columns = list(rows.items())
    arrays = {str(name): _to_array(str(name), column) for name, column in columns}
    if len(arrays) != len(columns) or not arrays:
        names = [name for name, _ in columns]
        raise InputError(f"run_unit returned columns {names}; name each one once.")
    return pa.table(arrays, metadata={"deeplin.unit": identifier})


def _to_array(name: str, column: Any) -> pa.Array:
    values = column.values if isinstance(column, pd.Series) else np.asarray(column)
    try:
        return pa.array(values, from_pandas=values.dtype == object)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"column {name!r} mixes types Parquet cannot hold: {error}") from error


def to_parquet(table: pa.Table) -> bytes:
    """Return the bytes of a Parquet file; the same rows give the same bytes."""
    buffer = io.BytesIO()
    # Smallest and largest values in the file would leave out NaN, and DuckDB would then miss the
    # NaN rows of `WHERE isnan(risk)`.
    pq.write_table(table, buffer, compression="snappy", write_statistics=False)
    return buffer.getvalue()


def describe_columns(schema: pa.Schema) -> str:
    """Return names and types of the columns in one line."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)
