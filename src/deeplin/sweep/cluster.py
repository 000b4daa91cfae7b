"""Units on a dask cluster, on this machine or on many."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from deeplin.interrupt import check_interrupt
from deeplin.sweep.executors import ExecutorError
from deeplin.sweep.tasks import Result, Task, execute_in_worker, lost
from deeplin.tables.gathering import dask_client

LOOK_SECONDS = 2.0
"""How long nothing may arrive before a look at whether there is a worker at all."""


@dataclass(frozen=True)
class Cluster:
    """A dask.distributed scheduler at `address`; its workers need deeplin, but not the folder.

    Start workers with one thread each: `dask worker tcp://… --nworkers auto --nthreads 1`.
    """

    address: str

    def execute(self, tasks: Sequence[Task]) -> Generator[Result]:
        """Yield results as they arrive; dask gives the units of a lost worker to another one."""
        if not tasks:
            return
        with dask_client(self.address) as client:
            yield from self._collect(client, tasks)

    def _next(self, client, arrived: SimpleQueue, waiting: int):
        """The next future to arrive; says so once if there is nobody to compute it."""
        silent = True
        while True:
            try:
                return arrived.get(timeout=LOOK_SECONDS)
            except Empty:
                check_interrupt()
            try:
                alone = not client.nthreads()
            except (OSError, TimeoutError) as error:
                raise ExecutorError(f"the scheduler at {self.address} is gone ({error})") from error
            if alone and silent:
                silent = False
                warnings.warn(
                    f"no worker is connected to the scheduler at {self.address}: {waiting} unit(s) "
                    f"wait for one. Start it with: dask worker {self.address} --nthreads 1",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _collect(self, client, tasks: Sequence[Task]) -> Generator[Result]:
        arrived, waiting = SimpleQueue(), {}

        def submit(task: Task) -> None:
            # A name of its own for each try: dask would answer a repeated one from its memory.
            name = f"deeplin-{uuid.uuid4().hex}-{task.identifier}"
            future = client.submit(execute_in_worker, tuple(task), key=name, pure=False)
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
                    yield lost(task, f"on the cluster: {future.exception()!r}")
                elif future.status in ("lost", "pending"):
                    submit(task)  # it was finished, but is gone with the worker that held it
                else:
                    raise ExecutorError(
                        f"the scheduler at {self.address} dropped the sweep ({future.status})"
                    )
        finally:
            client.cancel(list(waiting))
