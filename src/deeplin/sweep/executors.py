"""Executors of units: this process, worker processes, or a dask cluster.

Each takes tasks and returns the bytes of Parquet files.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import platform
import signal
import threading
import time
import traceback
import uuid
import warnings
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from deeplin.errors import InputError, whole_number
from deeplin.execution import check_interrupt, share_compiled_code
from deeplin.sweep.experiment import Experiment, Unit
from deeplin.tables.table import dask_client

VERSION = metadata.version("deeplin")
TRIES = 2
"""Number of deaths of its worker process after which a unit fails."""
FAILED_STARTS = 10
"""Number of worker processes that may die in a row while starting before the sweep ends."""
POLL_SECONDS = 1.0
"""Time to wait for a result between two checks for Ctrl-C."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
"""Environment variables that set the number of threads of a process; NPROC is that of XLA."""


@dataclass(frozen=True)
class Task:
    """Data that a worker needs to compute a unit."""

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
    """Compute a unit and return its result, or its exception as a failed result."""
    started, unit = time.perf_counter(), task.identifier
    try:
        table = to_arrow(task.experiment.run_unit(task.config, task.unit), unit)
        result = Result(unit, payload=to_parquet(table), columns=describe_columns(table.schema))
    except Exception as error:
        trace = traceback.format_exc()
        result = Result(unit, error=f"{type(error).__name__}: {error}", trace=trace)
    return replace(result, seconds=time.perf_counter() - started, machine=platform.node())


def compute_in_worker(identifier: str, version: str, packed: bytes) -> Result:
    """Compute a unit in a worker process with the precision of the main process."""
    if version != VERSION:
        return failure(identifier, f"the worker has deeplin {VERSION}, the sweep {version}")
    try:
        task = pickle.loads(packed)
    except Exception as error:  # the experiment's modules may raise anything
        return failure(identifier, f"the worker cannot import the unit's function: {error!r}")
    jax.config.update("jax_enable_x64", task.precision == "float64")
    share_compiled_code()
    return compute(task)


def failure(identifier: str, why: str) -> Result:
    """Return the result of a unit that no worker could compute."""
    return Result(identifier, error=why, trace=f"{why}\n")


def to_arrow(rows: pd.DataFrame | Mapping[str, Any], identifier: str) -> pa.Table:
    """Return tidy rows as an Arrow table that carries the id of its unit.

    Columns are converted one by one: `pa.Table.from_pandas` takes three times as long for a small
    table, and turns NaN into a missing value.
    """
    names = [str(name) for name in rows]
    if not names or len(set(names)) < len(names):
        raise InputError(f"run_unit returned columns {names}; name each one once.")
    arrays = {}
    for name, column in rows.items():
        values = column.values if isinstance(column, pd.Series) else np.asarray(column)
        try:
            arrays[str(name)] = pa.array(values, from_pandas=values.dtype == object)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(f"column {name!r} mixes types Parquet cannot hold: {error}") from error
    return pa.table(arrays, metadata={"deeplin.unit": identifier})


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


class ExecutorError(RuntimeError):
    """Raised when there are no workers (any more); finished units are kept."""


class Executor(Protocol):
    """Computes tasks and yields their results as they arrive; closing the generator stops it."""

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield one result for each task, in any order."""
        ...


@dataclass(frozen=True)
class InProcess:
    """Executor in this process: one unit after the other, each batch on all cores."""

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield the results in order."""
        for task in tasks:
            yield compute(task)


@dataclass(frozen=True)
class Processes:
    """Executor in new worker processes of this machine (`spawn`).

    When a worker dies for any reason, its unit is tried again in a new one.
    """

    workers: int = 2

    def __post_init__(self):
        whole_number("workers", self.workers)

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield results as they arrive."""
        waiting, deaths = list(tasks), Counter[str]()
        any_started, failed_starts = False, 0
        threads = max(1, (os.cpu_count() or 1) // self.workers)
        workers: dict[Future, _Worker] = {}
        try:
            for task in tasks[: self.workers]:
                task.pack()  # raises InputError before any worker is started
                worker = _Worker(threads)
                workers[worker.started] = worker
            while workers:
                done, _ = wait(workers, POLL_SECONDS, FIRST_COMPLETED)
                check_interrupt()
                for future in done:
                    worker, result = workers.pop(future), None
                    task, alive = worker.task, future.exception() is None
                    if alive:
                        any_started, failed_starts = True, 0
                        result = future.result() if task else None
                    elif task is None:
                        failed_starts += 1
                        _check_starts(worker.stop(), any_started, failed_starts)
                    elif deaths[task.identifier] < TRIES - 1:
                        deaths[task.identifier] += 1
                        waiting.append(task)
                    else:
                        why = f"its worker process died {TRIES} times (killed, or out of memory)"
                        result = failure(task.identifier, why)
                    following = worker.submit(waiting) if alive and waiting else None
                    if following is None:
                        worker.stop()
                        if waiting:
                            worker = _Worker(threads)
                            following = worker.started
                    if following is not None:
                        workers[following] = worker
                    if result is not None:
                        yield result
        finally:
            for worker in workers.values():
                worker.stop()


def _check_starts(code: int, any_started: bool, failures: int) -> None:
    """Raise ExecutorError if workers do not start, after `failures` in a row.

    A killed worker (by a person, or by a system short of memory) can be replaced. A worker that
    ends by itself before any other has started has an error that all others would have too.
    """
    if code >= 0 and not any_started:
        raise ExecutorError(
            f"a worker process ended with exit code {code} while starting; its message is above. "
            "A script that sweeps with processes must do so under `if __name__ == '__main__':`"
        )
    if failures == FAILED_STARTS:
        end = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise ExecutorError(
            f"{FAILED_STARTS} worker processes in a row died while starting, the last one {end}; "
            "if memory is short, use fewer of them"
        )


class _Worker:
    """A pool of one process, so that its death affects one unit only."""

    def __init__(self, threads: int):
        self.task: Task | None = None
        spawn = multiprocessing.get_context("spawn")
        try:
            self._pool = ProcessPoolExecutor(1, spawn, _prepare_worker)
            with _threads_for_children(threads):
                self.started = self._pool.submit(bool)  # done once the process has started
        except OSError as error:
            raise ExecutorError(
                f"the system starts no worker process ({error.strerror}); use fewer of them"
            ) from error
        (self._process,) = self._pool._processes.values()
        # Only the worker writes results. Were its end of the pipe open here too, half a message of
        # a killed worker would be waited for without end.
        self._pool._result_queue._writer.close()  # pyright: ignore[reportAttributeAccessIssue]

    def submit(self, waiting: list[Task]) -> Future | None:
        """Submit the first of these tasks; return None if this worker is dead."""
        try:
            future = self._pool.submit(compute_in_worker, *waiting[0].pack())
        except RuntimeError:  # the pool is broken or stopped
            return None
        self.task = waiting.pop(0)
        return future

    def stop(self) -> int:
        """End the process at once, as it keeps no state, and return its exit code."""
        self._process.kill()
        self._pool.shutdown(cancel_futures=True)
        return self._process.exitcode or 0


@contextmanager
def _threads_for_children(count: int) -> Iterator[None]:
    """Limit processes started inside to `count` threads each, so that workers do not compete."""
    before = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(count)))
    try:
        yield
    finally:
        for name in THREAD_VARIABLES:
            del os.environ[name]
        os.environ.update(before)


def _prepare_worker() -> None:
    """Set up a worker process: ignore Ctrl-C, and end together with the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


@dataclass(frozen=True)
class Cluster:
    """A dask.distributed scheduler at `address`; its workers need deeplin, but not the folder.

    Start workers with one thread each: `dask worker tcp://… --nworkers auto --nthreads 1`.
    """

    address: str

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield results as they arrive; dask gives the units of a lost worker to another one."""
        if tasks:
            with dask_client(self.address) as client:
                if not client.nthreads():
                    warnings.warn(
                        f"no worker is connected to the scheduler at {self.address}: {len(tasks)} "
                        "unit(s) wait for one. Start it with: "
                        f"dask worker {self.address} --nthreads 1",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                yield from self._collect(client, tasks)

    def _collect(self, client: Any, tasks: Sequence[Task]) -> Generator[Result]:
        arrived, waiting = SimpleQueue(), {}

        def submit(task: Task) -> None:
            # A new key for each try: dask would reuse the result of a repeated one.
            key = f"deeplin-{uuid.uuid4().hex}-{task.identifier}"
            future = client.submit(compute_in_worker, *task.pack(), key=key, pure=False)
            waiting[future] = task
            future.add_done_callback(arrived.put)

        for task in tasks:
            submit(task)
        try:
            while waiting:
                try:
                    future = arrived.get(timeout=POLL_SECONDS)
                except Empty:
                    check_interrupt()
                    continue
                task = waiting.pop(future)  # the cluster drops results without references
                if future.status == "finished":
                    yield future.result()
                elif future.status == "error":
                    yield failure(task.identifier, f"on the cluster: {future.exception()!r}")
                elif future.status in ("lost", "pending"):
                    submit(task)  # it was finished, but lost with its worker
                else:
                    raise ExecutorError(
                        f"the scheduler at {self.address} dropped the sweep ({future.status})"
                    )
        finally:
            client.cancel(list(waiting))
