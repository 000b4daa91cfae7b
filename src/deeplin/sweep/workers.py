"""What is special about computing a unit in another process: precision, threads, compile cache."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jax

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


def share_compiled_code() -> None:
    """Keep compiled functions on disk, so that each shape is compiled once for all processes.

    A folder chosen by the user (`JAX_COMPILATION_CACHE_DIR`) is respected.
    """
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(compile_cache_folder()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def compile_cache_folder() -> Path:
    """One folder for each kind of processor: compiled code is not portable between them."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    try:
        processor = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
        features = [line for line in processor.splitlines() if line.startswith(("flags", "Feat"))]
    except FileNotFoundError:  # not Linux
        features = [platform.processor()]
    kind = hashlib.blake2b("".join(features).encode(), digest_size=4).hexdigest()
    return Path(base) / "deeplin" / f"compiled-{platform.machine()}-{kind}"


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
