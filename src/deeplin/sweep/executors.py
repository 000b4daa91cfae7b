"""Who computes the units: this process, worker processes of its own, or a dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from deeplin.errors import whole_number
from deeplin.interrupt import check_interrupt
from deeplin.sweep.tasks import Result, Task, compute, compute_in_worker, failure
from deeplin.tables.gathering import dask_client

TRIES = 2
"""A unit whose worker process died so often is given up."""
FAILED_STARTS = 10
"""Worker processes that may die in a row, while starting, before the sweep ends."""
POLL_SECONDS = 1.0
"""How long to wait for a result between two checks for Ctrl-C."""
CLUSTER_POLL_SECONDS = 2.0
"""How long to wait for a result of a cluster between two checks that it has workers."""

LIBRARIES = ("OMP", "OPENBLAS", "MKL")
THREAD_VARIABLES = (*(f"{name}_NUM_THREADS" for name in LIBRARIES), "NPROC")  # NPROC is XLA's


class ExecutorError(RuntimeError):
    """There are no workers, or none any more; what was finished is kept."""


class Executor(Protocol):
    """Computes tasks and yields their results as they arrive; closing the generator stops it."""

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield one result for each task, in any order."""
        ...


@dataclass(frozen=True)
class InProcess:
    """Compute one unit after the other here; the batch inside a unit uses all cores."""

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield the results, one bucket after the other so that each shape compiles once."""
        for task in sorted(tasks, key=lambda task: task.unit.bucket):
            yield compute(task)


@dataclass(frozen=True)
class Processes:
    """Compute in worker processes of this machine, started fresh (`spawn`).

    When a worker dies, whatever the reason, its unit gets another try in a new one.
    """

    workers: int = 2

    def __post_init__(self):
        whole_number("workers", self.workers)

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield results as they arrive; a worker stays in its bucket while it can."""
        waiting, deaths = list(tasks), Counter[str]()
        any_started, failed_starts = False, 0
        threads = max(1, (os.cpu_count() or 1) // self.workers)
        workers: dict[Future, _Worker] = {}
        try:
            for task in tasks[: self.workers]:
                task.pack()  # an InputError before any worker is started
                worker = _Worker(threads)
                workers[worker.started] = worker
            while workers:
                done, _ = wait(workers, POLL_SECONDS, FIRST_COMPLETED)
                check_interrupt()
                for future in done:
                    worker, result = workers.pop(future), None
                    if future.exception() is None:
                        any_started, failed_starts = True, 0
                        result = future.result() if worker.task else None
                    elif worker.task is None:
                        failed_starts += 1
                        _check_starts(worker.stop(), any_started, failed_starts)
                    else:
                        worker.stop()
                        result = _try_again(worker.task, waiting, deaths)
                    if waiting:
                        future = worker.submit(waiting)
                        if future is None:  # it is dead
                            worker = _Worker(threads)
                            future = worker.started
                        workers[future] = worker
                    else:
                        worker.stop()
                    if result is not None:
                        yield result
        finally:
            for worker in workers.values():
                worker.stop()


def _try_again(task: Task, waiting: list[Task], deaths: Counter[str]) -> Result | None:
    """Give the unit of a dead worker another try, or give it up."""
    deaths[task.identifier] += 1
    if deaths[task.identifier] < TRIES:
        waiting.append(task)
        return None
    why = f"its worker process died {TRIES} times (killed, or out of memory)"
    return failure(task.identifier, why)


def _check_starts(code: int, any_started: bool, failures: int) -> None:
    """Raise if workers do not start; `failures` in a row so far.

    What kills one worker (a person, a system short of memory) may spare the next. One that ends by
    itself, before any other started, has met an error that every other would meet too.
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


class _Context(SpawnContext):
    """Keeps the process and the queue of results that a pool of one process makes."""

    def Process(self, *arguments: Any, **options: Any):
        self.process = super().Process(*arguments, **options)
        return self.process

    def SimpleQueue(self):
        self.results = super().SimpleQueue()
        return self.results


class _Worker:
    """A pool of one process, so that its death concerns one unit."""

    def __init__(self, threads: int):
        self.task: Task | None = None
        self._context = _Context()
        self._pool = ProcessPoolExecutor(1, self._context, _prepare_worker)
        try:
            with _threads_for_children(threads):
                self.started = self._pool.submit(bool)  # its answer shows that it has started
        except OSError as error:
            raise ExecutorError(
                f"the system starts no worker process ({error.strerror}); use fewer of them"
            ) from error
        # Only the worker writes results. Were its end of the pipe open here too, half a message of
        # a killed worker would be waited for without end.
        self._context.results._writer.close()  # pyright: ignore[reportAttributeAccessIssue]

    def submit(self, waiting: list[Task]) -> Future | None:
        """Take a task, of the same bucket as the last if there is one; None if this is dead."""
        bucket = self.task.unit.bucket if self.task else None
        task = next((task for task in waiting if task.unit.bucket == bucket), waiting[0])
        try:
            future = self._pool.submit(compute_in_worker, *task.pack())
        except RuntimeError:  # broken, or stopped
            return None
        waiting.remove(task)
        self.task = task
        return future

    def stop(self) -> int:
        """End the process at once, as it keeps nothing; return its exit code."""
        self._context.process.kill()
        self._pool.shutdown(cancel_futures=True)
        return self._context.process.exitcode or 0


@contextmanager
def _threads_for_children(count: int) -> Iterator[None]:
    """Processes started inside use `count` threads each: workers must not fight for the cores."""
    before = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(count)))
    try:
        yield
    finally:
        for name in THREAD_VARIABLES:
            del os.environ[name]
        os.environ.update(before)


def _prepare_worker() -> None:
    """Set up a worker process: Ctrl-C is for its parent, with which it ends even in a unit."""
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
                yield from self._collect(client, tasks)

    def _collect(self, client: Any, tasks: Sequence[Task]) -> Generator[Result]:
        arrived, waiting = SimpleQueue(), {}

        def submit(task: Task) -> None:
            # A key of its own for each try: dask would answer a repeated one from its memory.
            key = f"deeplin-{uuid.uuid4().hex}-{task.identifier}"
            future = client.submit(compute_in_worker, *task.pack(), key=key, pure=False)
            waiting[future] = task
            future.add_done_callback(arrived.put)

        for task in tasks:
            submit(task)
        try:
            while waiting:
                future = self._next(client, arrived, len(waiting))
                task = waiting.pop(future)  # the cluster forgets a result nobody holds any more
                if future.status == "finished":
                    yield future.result()
                elif future.status == "error":
                    yield failure(task.identifier, f"on the cluster: {future.exception()!r}")
                elif future.status in ("lost", "pending"):
                    submit(task)  # it was finished, but is gone with the worker that held it
                else:
                    raise ExecutorError(
                        f"the scheduler at {self.address} dropped the sweep ({future.status})"
                    )
        finally:
            client.cancel(list(waiting))

    def _next(self, client: Any, arrived: SimpleQueue, waiting: int) -> Any:
        """Return the next future that is done; warn once if there is no worker."""
        warned = False
        while True:
            try:
                return arrived.get(timeout=CLUSTER_POLL_SECONDS)
            except Empty:
                check_interrupt()
            try:
                workers = client.nthreads()
            except (OSError, TimeoutError) as error:
                raise ExecutorError(f"the scheduler at {self.address} is gone ({error})") from error
            if not workers and not warned:
                warned = True
                warnings.warn(
                    f"no worker is connected to the scheduler at {self.address}: {waiting} unit(s) "
                    f"wait for one. Start it with: dask worker {self.address} --nthreads 1",
                    RuntimeWarning,
                    stacklevel=2,
                )
