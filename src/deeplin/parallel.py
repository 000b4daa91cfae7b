"""Independent pieces of compiled work on all cores, by one pool of threads.

JAX and NumPy release the interpreter lock while they compute, so threads are enough; nothing has to
be configured.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


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
def _pool(process: int) -> ThreadPoolExecutor:
    """Make the pool of this process: threads do not survive a fork."""
    return ThreadPoolExecutor(thread_count(), thread_name_prefix=f"deeplin-{process}")


def map_in_threads(function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Return `[function(part) for part in parts]`, computed by as many threads as there are cores.

    A single part is computed in the calling thread. Context variables (JAX's settings among them)
    are those of the caller.
    """
    if len(parts) < 2 or thread_count() == 1:
        return [function(part) for part in parts]
    contexts = [contextvars.copy_context() for _ in parts]
    pool = _pool(os.getpid())
    futures = [
        pool.submit(context.run, function, part)
        for context, part in zip(contexts, parts, strict=True)
    ]
    return [future.result() for future in futures]
