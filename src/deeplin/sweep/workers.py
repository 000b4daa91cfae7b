"""What is special about computing a unit in another process: precision, threads, compile cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import jax

from deeplin.kernels.compiling import share_compiled_code
from deeplin.sweep.environment import own_version, precision
from deeplin.sweep.tasks import Result, Task, execute, lost

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NPROC",  # read by XLA
)


class Settings(NamedTuple):
    """How the process that asks computes, so that its workers compute alike."""

    precision: str
    version: str

    @classmethod
    def here(cls) -> Settings:
        """The settings of this process."""
        return cls(precision(), own_version())


def execute_in_worker(settings: Settings, task: Task) -> Result:
    """Compute a unit in a process that was not set up for it."""
    settings, task = Settings(*settings), Task(*task)
    if settings.version != own_version():
        why = f"the worker has deeplin {own_version()}, the sweep {settings.version}; install one"
        return lost(task, why)
    jax.config.update("jax_enable_x64", settings.precision == "float64")
    share_compiled_code()
    return execute(task)


@contextmanager
def threads_for_children(count: int) -> Iterator[None]:
    """Processes started inside use `count` threads each: workers must not fight for the cores."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update({name: str(count) for name in THREAD_VARIABLES})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
