"""Who computes the units: this process, or worker processes of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Protocol

from deeplin.checks import whole_number
from deeplin.sweep.tasks import Result, Task, execute, lost
from deeplin.sweep.workers import Settings, execute_in_worker, threads_for_children

DEATHS = 2
"""A unit whose worker process died this often is given up."""


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

    A worker that dies, whatever the reason, costs its unit another try and nothing else.
    """

    workers: int = 2

    def __post_init__(self):
        whole_number("workers", self.workers)

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield results as workers deliver them; a worker stays in its bucket while it can."""
        queue, deaths = _Buckets(tasks), Counter()
        threads = max(1, (os.cpu_count() or 1) // self.workers)
        workers = [_Worker(threads) for _ in range(min(self.workers, len(tasks)))]
        try:
            while workers:
                ready = set(wait([worker.connection for worker in workers]))
                for worker in [worker for worker in workers if worker.connection in ready]:
                    task, result = worker.task, worker.receive()
                    if not worker.alive:
                        workers.remove(worker)
                        result = _after_death(task, queue, deaths)
                        if queue:
                            workers.append(_Worker(threads))
                    elif queue:
                        worker.send(queue.take(task.bucket if task else None))
                    else:
                        workers.remove(worker)
                        worker.stop()
                    if result is not None:
                        yield result
        finally:
            for worker in workers:
                worker.stop()


def _after_death(task: Task | None, queue: _Buckets, deaths: Counter) -> Result | None:
    """Give the unit of a dead worker another try, or give it up."""
    if task is None:
        raise ExecutorError(
            "a worker process died while starting; its message is above. A script that sweeps with "
            "processes must do so under `if __name__ == '__main__':`"
        )
    deaths[task.identifier] += 1
    if deaths[task.identifier] == DEATHS:
        return lost(task, f"its worker process died {DEATHS} times (killed, or out of memory)")
    queue.add(task)
    return None


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
            target=_serve, args=(theirs, Settings.here()), daemon=True, name="deeplin-worker"
        )
        with threads_for_children(threads):
            self._process.start()
        theirs.close()

    def send(self, task: Task) -> None:
        self.task = task
        self.connection.send(task)

    def receive(self) -> Result | None:
        """The result, or None from a worker that has just started, or is found dead."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionError):
            self.stop()
            self.alive = False
            return None

    def stop(self) -> None:
        # A worker keeps nothing, so it needs no farewell.
        self._process.kill()
        self._process.join()
        self.connection.close()


def _serve(connection: Connection, settings: Settings) -> None:
    """What a worker process does until its end of the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    threading.Thread(target=_die_with_parent, daemon=True).start()
    connection.send(None)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(execute_in_worker(settings, task))


def _die_with_parent() -> None:
    """Leave when the asking process is gone, even from the middle of a unit."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
