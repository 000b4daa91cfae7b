"""Execution of long computations: cached compiled code and threads.

JAX and NumPy release the interpreter lock while they compute, so one thread pool suffices.

JAX is imported where it is used, so that commands without computations start faster.
"""

from __future__ import annotations

import contextvars
import functools
import hashlib
import os
import platform
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
Part = TypeVar("Part")


def thread_count() -> int:
    """Return the number of cores this process may use; `OMP_NUM_THREADS` lowers it.

    Sweeps set it for their workers, so that several of them share the cores.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(wanted)) if wanted.isdecimal() and int(wanted) > 0 else cores


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Make the pool of this process: threads do not survive a fork.

    Its threads start at once: the pool would lose sight of one that Ctrl-C interrupts in starting.
    """
    pool = ThreadPoolExecutor(thread_count(), thread_name_prefix=f"deeplin-{process}")
    all_started = threading.Barrier(thread_count())
    wait([pool.submit(all_started.wait) for _ in range(thread_count())])
    return pool


def map_in_threads(function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Return `[function(part) for part in parts]`, computed by as many threads as there are cores.

    A single part is computed in the calling thread. Context variables (JAX's settings among them)
    are those of the caller. After an error or Ctrl-C no further part is begun.
    """
    if len(parts) < 2 or thread_count() == 1:
        return [function(part) for part in parts]
    contexts = [contextvars.copy_context() for _ in parts]
    ended = threading.Event()

    def run(part: Part) -> Result:
        # Canceling would miss the future that Ctrl-C kept `submit` from returning.
        if ended.is_set():
            raise CancelledError
        return function(part)

    pool = _pool(os.getpid())
    futures = []
    try:
        for context, part in zip(contexts, parts, strict=True):
            futures.append(pool.submit(context.run, run, part))
        unfinished = set(futures)
        while unfinished:
            # Bounded, because a signal that comes just before a wait is handled only after it.
            done, unfinished = wait(unfinished, timeout=1, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        return [future.result() for future in futures]
    finally:
        ended.set()


def share_compiled_code() -> None:
    """Keep compiled programs on disk.

    A folder chosen by the user (`JAX_COMPILATION_CACHE_DIR`) is respected. Without a writable home
    directory nothing is cached: JAX would warn about every function it compiles.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        try:
            folder = compile_cache_folder()
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError):  # RuntimeError: no home directory
            return
        if os.access(folder, os.W_OK):
            jax.config.update("jax_compilation_cache_dir", str(folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)


def compile_cache_folder() -> Path:
    """Return the cache folder for this kind of processor, since compiled code is not portable."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    try:
        processor = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
        features = [line for line in processor.splitlines() if line.startswith(("flags", "Feat"))]
    except FileNotFoundError:  # not Linux
        features = [platform.processor()]
    kind = hashlib.blake2b("".join(features).encode(), digest_size=4).hexdigest()
    return Path(base) / "deeplin" / f"compiled-{platform.machine()}-{kind}"
