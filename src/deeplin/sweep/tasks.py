"""One unit as a worker sees it: plain text in, the bytes of a Parquet file out."""

from __future__ import annotations

import io
import json
import platform
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from deeplin.compilation import share_compiled_code
from deeplin.errors import InputError
from deeplin.sweep.config import from_json
from deeplin.sweep.experiment import Experiment, Unit, find_experiment

VERSION = metadata.version("deeplin")


class Task(NamedTuple):
    """What a worker needs to compute a unit, as text: nothing is pickled but strings."""

    identifier: str
    reference: str
    config: str
    unit: str
    bucket: str
    precision: str
    version: str = VERSION


@dataclass(frozen=True)
class Result:
    """A computed unit (`payload`, `columns`) or a failed one (`error`, `trace`)."""

    identifier: str
    seconds: float
    machine: str
    payload: bytes | None = None
    columns: str = ""
    error: str = ""
    trace: str = ""


def make_task(identifier: str, reference: str, config: str, unit: Unit, precision: str) -> Task:
    """Make the task of one unit."""
    fields = {"coordinates": unit.coordinates, "runs": unit.runs, "steps": unit.steps}
    return Task(identifier, reference, config, json.dumps(fields), unit.bucket, precision)


def execute(task: Task) -> Result:
    """Compute a unit; an exception becomes its result, so that one failure ends no sweep."""
    started, machine = time.perf_counter(), platform.node()
    try:
        experiment, config = _load(task.reference, task.config)
        rows = experiment.run_unit(config, Unit(**json.loads(task.unit), bucket=task.bucket))
        table = to_arrow(rows, task.identifier)
        payload = to_parquet(table)
    except Exception as error:
        seconds, text = time.perf_counter() - started, f"{type(error).__name__}: {error}"
        trace = traceback.format_exc()
        return Result(task.identifier, seconds, machine, error=text, trace=trace)
    seconds = time.perf_counter() - started
    return Result(task.identifier, seconds, machine, payload, describe_columns(table.schema))


def execute_in_worker(task: Task) -> Result:
    """Compute a unit in another process with the precision of the one that sweeps."""
    task = Task(*task)
    if task.version != VERSION:
        why = f"the worker has deeplin {VERSION}, the sweep {task.version}; install one"
        return failure(task, why)
    jax.config.update("jax_enable_x64", task.precision == "float64")
    share_compiled_code()
    return execute(task)


def failure(task: Task, why: str) -> Result:
    """Make the result of a unit that no worker could compute."""
    return Result(task.identifier, 0.0, "", error=why, trace=f"{why}\n")


@cache
def _load(reference: str, config: str) -> tuple[Experiment, Any]:
    experiment = find_experiment(reference)
    return experiment, from_json(experiment.config, config)


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
