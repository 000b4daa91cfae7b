"""Computing units: in this process, by loky's workers, or by any `concurrent.futures.Executor`.

Each way yields the bytes of Parquet files, which this process writes; workers need no access to the
folder.
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    as_completed,
    wait,
)
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeAlias

import cloudpickle
import jax
import jax.numpy as jnp
import pandas as pd

from deeplin.errors import InputError, whole_number
from deeplin.execution import share_compiled_code, thread_count
from deeplin.sweep.store import to_parquet

if TYPE_CHECKING:
    from deeplin.sweep.experiment import Unit

VERSION = metadata.version("deeplin")
Rows: TypeAlias = pd.DataFrame | Mapping[str, Any]
TRIES = 2
"""Number of times that a unit may end its worker process while it is computed alone."""
STARTS = 3
"""Number of times in a row that new worker processes may die before they compute anything."""
WATCH_SECONDS = 0.5
"""Time between two looks of a worker at whether its parent process is alive."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
"""Environment variables that set the number of threads of a process; NPROC is that of XLA."""


@dataclass(frozen=True)
class Result:
    """A computed unit (`payload`), or one that raised (`error`, `trace`)."""

    unit: str
    payload: bytes = b""
    error: str = ""
    trace: str = ""


def compute(function: Callable[[Unit], Rows], name: str, unit: Unit) -> Result:
    """Compute a unit and return its result, also if it raises an exception.

    Its seconds are those of the processor: other programs on the machine do not change them.
    """
    started = time.process_time()
    try:
        rows = function(unit)
        return Result(name, to_parquet(rows, name, time.process_time() - started))
    except Exception as error:
        return Result(name, error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())


def compute_in_worker(packed: bytes, precision: str, version: str, name: str, unit: Unit) -> Result:
    """Compute a unit in a worker, with the precision of the main process."""
    if version != VERSION:
        return Result(name, error=f"the worker has deeplin {VERSION}, the sweep {version}")
    here = str(jnp.result_type(float))
    with nullcontext() if here == precision else jax.enable_x64(precision == "float64"):
        try:
            function = _unpack(packed)
        except Exception as error:  # importing the user's modules may raise anything
            return Result(name, error=f"a worker cannot import the function: {error!r}")
        return compute(function, name, unit)


_unpack = functools.lru_cache(maxsize=4)(pickle.loads)
"""Load a function once for all its units, so that a worker compiles its programs once."""


def compute_all(
    function: Callable[[Unit], Rows],
    units: Mapping[str, Unit],
    precision: str,
    workers: int,
    executor: Executor | None,
    identity: str,
) -> Generator[Result]:
    """Yield one result for each unit, in any order; closing the generator stops the computation.

    Worker processes of an earlier call with another `identity` are not used again.
    """
    whole_number("workers", workers)
    if not units:
        return
    if executor is None and workers == 1:
        for name, unit in units.items():
            yield compute(function, name, unit)
        return
    try:
        packed = cloudpickle.dumps(function)
    except Exception as error:  # pickling may raise anything
        raise InputError(
            f"workers cannot receive the function ({error}); pass workers=1, or make what cannot "
            "be pickled inside the function."
        ) from error
    task = functools.partial(compute_in_worker, packed, precision, VERSION)
    if executor is None:
        yield from _compute_with_loky(task, units, workers, identity)
    else:
        yield from _compute_with(executor, task, units)


def _result(future: Future, name: str) -> Result:
    """Return the result of a unit; raise BrokenExecutor if its worker died."""
    try:
        return future.result()
    except BrokenExecutor:
        raise
    except Exception as error:  # of the executor, such as dask's KilledWorker
        trace = "".join(traceback.format_exception(error))
        return Result(name, error=f"{type(error).__name__}: {error}", trace=trace)


def _compute_with(
    executor: Executor, task: Callable[..., Result], units: Mapping[str, Unit]
) -> Generator[Result]:
    futures: dict[Future, str] = {}
    try:
        for name, unit in units.items():
            futures[executor.submit(task, name, unit)] = name
        for future in as_completed(list(futures)):
            yield _result(future, futures.pop(future))
    finally:
        for future in futures:
            future.cancel()


def _compute_with_loky(
    task: Callable[..., Result], units: Mapping[str, Unit], workers: int, identity: str
) -> Generator[Result]:
    """Compute units in worker processes of this machine.

    No more units than workers are in progress. When a worker dies, loky ends them all; the units
    in progress are then computed again, one at a time, to find the one that is to blame.
    """
    waiting, suspects, deaths = deque(units), deque[str](), Counter[str]()
    executor, complete = None, False
    try:
        while waiting or suspects:
            alone = bool(suspects)
            queue, width = (suspects, 1) if alone else (waiting, workers)
            executor = _working_executor(width, workers, identity)
            running: dict[Future, str] = {}
            try:
                while queue or running:
                    while queue and len(running) < width:
                        running[executor.submit(task, queue[0], units[queue[0]])] = queue[0]
                        queue.popleft()
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        result = _result(future, running[future])
                        del running[future]
                        yield result
            except BrokenExecutor:
                for future, name in running.items():
                    if future.done() and not future.exception():
                        yield future.result()
                        continue
                    deaths[name] += alone
                    if deaths[name] < TRIES:
                        suspects.append(name)
                    else:
                        yield Result(
                            name,
                            error=f"its worker process died {TRIES} times while it was computed "
                            "alone (killed, or out of memory)",
                        )
        complete = True
    finally:
        if executor is not None and not complete:
            executor.shutdown(wait=False, kill_workers=True)


def _working_executor(width: int, workers: int, identity: str) -> Any:
    """Return loky's executor with `width` workers that have started; a new one if it is broken.

    Its processes stay for some seconds for the next call with this identity. Each has the share of
    the threads of one of `workers`, and loky replaces those that have grown by 300 MB
    (`LOKY_MAX_MEMORY_LEAK_SIZE`).
    """
    from loky import get_reusable_executor

    threads = dict.fromkeys(THREAD_VARIABLES, str(max(1, thread_count() // workers)))
    for attempt in range(STARTS):
        executor = get_reusable_executor(
            width,
            initializer=_prepare_worker,
            initargs=(os.getpid(),),
            env=threads | {"DEEPLIN_SWEEP": identity},
        )
        try:
            executor.submit(os.getpid).result()
        except BrokenExecutor:
            if attempt == STARTS - 1:
                raise
            continue
        return executor
    raise AssertionError  # the last attempt returns or raises


def _prepare_worker(parent: int) -> None:
    """Set up a worker process: leave Ctrl-C to the main process, and end together with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    if os.name == "posix":
        threading.Thread(target=end_with_parent, daemon=True).start()
    share_compiled_code()
