"""Execution of long computations: cached compiled code and threads.

JAX and NumPy release the interpreter lock while they compute, so threads suffice.

JAX is imported where it is used, so that commands without computations start faster.
"""

from __future__ import annotations

import atexit
import contextvars
import hashlib
import os
import platform
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from deeplin.problems import Problem

Result = TypeVar("Result")
Part = TypeVar("Part")

LARGEST_SINGLE_THREADED = 10**6
"""Most numbers in a table up to which its products are computed by one thread."""


def few_threads(problem: Problem) -> threadpool_limits:
    """Return a context in which BLAS computes the products of a small problem by one thread.

    Several threads take longer for them, up to a hundred times: they wait for each other by
    spinning.
    """
    numbers = problem.samples if problem.inputs is not None else problem.dimension
    small = numbers * problem.dimension <= LARGEST_SINGLE_THREADED
    return threadpool_limits(1 if small else None, "blas")


def thread_count() -> int:
    """Return the number of cores this process may use; `OMP_NUM_THREADS` lowers it.

    Sweeps set it for their workers, so that several of them share the cores.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(wanted)) if wanted.isdecimal() and int(wanted) > 0 else cores


@cache
def _queue(process: int) -> SimpleQueue[Callable[[], object] | None]:
    """Start the threads of this process, which call what is put on the queue.

    They do not survive a fork, so every process has its own.
    """
    calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def work() -> None:
        for call in iter(calls.get, None):
            call()
            del call  # while the thread waits for the next one, nothing keeps its arrays

    threads = [threading.Thread(target=work, daemon=True) for _ in range(thread_count())]
    for thread in threads:
        thread.start()

    @atexit.register
    def end() -> None:
        """Wait for parts that are still computed: compiled code must not outlive Python."""
        for _ in threads:
            calls.put(None)
        for thread in threads:
            thread.join()

    return calls


def map_in_threads(function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Return `[function(part) for part in parts]`, computed by as many threads as there are cores.

    A single part is computed in the calling thread. Context variables (JAX's settings among them)
    are those of the caller. After an error or Ctrl-C no further part is begun.

    Python raises KeyboardInterrupt between any two operations of the main thread, also while this
    thread holds a lock inside of `concurrent.futures`, which would then never be released. So the
    main thread calls only operations that cannot be divided: those of `SimpleQueue` and `deque`.
    """
    if len(parts) < 2 or thread_count() == 1:
        return [function(part) for part in parts]
    waiting = deque(enumerate(parts))
    results: dict[int, Result] = {}
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def work() -> None:
        error = None
        try:
            while waiting:
                try:
                    index, part = waiting.popleft()
                except IndexError:  # another thread took the last one
                    break
                results[index] = function(part)
        except BaseException as raised:  # the caller raises it
            waiting.clear()
            error = raised
        ended.put(error)

    calls = _queue(os.getpid())
    workers = range(min(thread_count(), len(parts)))
    try:
        for _ in workers:
            calls.put(partial(contextvars.copy_context().run, work))
        for _ in workers:
            if error := _get(ended):
                raise error
    finally:
        waiting.clear()
    return [results[index] for index in range(len(parts))]


def _get(queue: SimpleQueue[Result]) -> Result:
    """Return the next entry of a queue; Ctrl-C ends the wait at once, at most 0.1 s later."""
    while True:
        # A signal that comes just before a wait is handled only after it.
        with suppress(Empty):
            return queue.get(timeout=0.1)


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
