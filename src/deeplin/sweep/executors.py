"""Who computes the units: this process, or worker processes of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Protocol

from deeplin.errors import whole_number
from deeplin.interrupt import check_interrupt
from deeplin.sweep.tasks import Result, Task, execute, execute_in_worker, lost

DEATHS = 2
"""A unit whose worker process died this often is given up."""
STILLBIRTHS = 10
"""Worker processes that may be killed in a row, while starting, before the sweep ends."""
LOOK_SECONDS = 1.0
"""How long nothing may come before a look at the keyboard (Ctrl-C)."""
FAREWELL_SECONDS = 10
"""How long a worker that closed its pipe may take to end by itself."""

LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMBA")
THREAD_VARIABLES = (*(f"{name}_NUM_THREADS" for name in LIBRARIES), "NPROC")  # NPROC is XLA's


class ExecutorError(RuntimeError):
    """The workers are gone or never came; what was finished is kept."""


class Executor(Protocol):
    """Computes tasks and yields their results as they come; closing the generator stops it."""

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield one result for each task, in any order."""
        ...


@dataclass(frozen=True)
class InProcess:
    """One unit after the other here; the batch inside a unit is what spreads over the cores."""

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield the results, one bucket after the other so that each shape compiles once."""
        for task in sorted(tasks, key=lambda task: task.bucket):
            yield execute(task)


@dataclass(frozen=True)
class Processes:
    """Worker processes of this machine, started fresh (`spawn`): JAX does not survive a fork.

    A worker that dies, whatever the reason, costs its unit another try and nothing else; one that
    is killed while it starts is replaced.
    """

    workers: int = 2

    def __post_init__(self):
        whole_number("workers", self.workers)

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield results as workers deliver them; a worker stays in its bucket while it can."""
        queue, deaths = _Buckets(tasks), Counter()
        any_came, stillborn = False, 0
        threads = max(1, (os.cpu_count() or 1) // self.workers)
        workers: list[_Worker] = []
        try:
            for _ in range(min(self.workers, len(tasks))):
                workers.append(_Worker(threads))
            while workers:
                ready = set(wait([worker.connection for worker in workers], LOOK_SECONDS))
                check_interrupt()
                for worker in [worker for worker in workers if worker.connection in ready]:
                    task, result = worker.task, worker.receive()
                    if worker.alive:
                        any_came, stillborn = True, 0
                    elif task is None:
                        stillborn += 1
                        _require_hope(worker.exit_code, any_came, stillborn)
                    else:
                        result = _after_death(task, queue, deaths)
                    if worker.alive and queue:
                        worker.take_from(queue)
                    else:
                        workers.remove(worker)
                        worker.stop()
                        if queue:
                            workers.append(_Worker(threads))
                    if result is not None:
                        yield result
        finally:
            for worker in workers:
                worker.stop()


def _after_death(task: Task, queue: _Buckets, deaths: Counter) -> Result | None:
    """Give the unit of a dead worker another try, or give it up."""
    deaths[task.identifier] += 1
    if deaths[task.identifier] == DEATHS:
        return lost(task, f"its worker process died {DEATHS} times (killed, or out of memory)")
    queue.add(task)
    return None


def _require_hope(code: int, any_came: bool, deaths: int) -> None:
    """Raise after a death without a unit, unless it was bad luck; `deaths` so far, in a row.

    What kills one worker (a person, a system short of memory) may spare the next. One that ends by
    itself, before any other came, has met an error that every other would meet too.
    """
    if code >= 0 and not any_came:
        raise ExecutorError(
            f"a worker process ended with exit code {code} while starting; its message is above. "
            "A script that sweeps with processes must do so under `if __name__ == '__main__':`"
        )
    if deaths == STILLBIRTHS:
        end = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise ExecutorError(
            f"{STILLBIRTHS} worker processes in a row died while starting, the last one {end}; "
            "if memory is short, use fewer of them"
        )


class _Buckets:
    """Tasks that wait, by bucket."""

    def __init__(self, tasks: Sequence[Task]):
        self._waiting: defaultdict[str, deque[Task]] = defaultdict(deque)
        for task in tasks:
            self.add(task)

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def add(self, task: Task) -> None:
        self._waiting[task.bucket].append(task)

    def take(self, preferred: str | None) -> Task:
        """A task of the bucket a worker has compiled, else of the one with most left to do."""
        if preferred is None or not self._waiting[preferred]:
            preferred = max(self._waiting, key=lambda bucket: len(self._waiting[bucket]))
        return self._waiting[preferred].popleft()


class _Worker:
    """One worker process at the other end of a pipe."""

    def __init__(self, threads: int):
        self.task: Task | None = None
        self.alive = True
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs,), daemon=True, name="deeplin-worker"
        )
        try:
            with _threads_for_children(threads):
                self._process.start()
        except OSError as error:
            self.connection.close()
            raise ExecutorError(
                f"the system starts no worker process ({error.strerror}); use fewer of them"
            ) from error
        finally:
            theirs.close()

    @property
    def exit_code(self) -> int:
        """Of a stopped worker; negative for the signal that killed it."""
        return self._process.exitcode or 0

    def take_from(self, queue: _Buckets) -> None:
        """Give it a task, of the bucket it is in if there is one."""
        task, self.task = queue.take(self.task.bucket if self.task else None), None
        try:
            self.connection.send(task)
            self.task = task
        except OSError:  # it has just died, as the next `receive` will notice
            queue.add(task)

    def receive(self) -> Result | None:
        """The result, or None from a worker that has just started, or is found dead."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):  # between two messages, or in the middle of one
            self._process.join(FAREWELL_SECONDS)
            self.stop()
            self.alive = False
            return None

    def stop(self) -> None:
        # A worker keeps nothing, so it needs no farewell.
        self._process.kill()
        self._process.join()
        self.connection.close()


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


def _serve(connection: Connection) -> None:
    """What a worker process does until its end of the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    threading.Thread(target=_die_with_parent, daemon=True).start()
    connection.send(None)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(execute_in_worker(task))


def _die_with_parent() -> None:
    """Leave when the asking process is gone, even from the middle of a unit."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
