"""Independent pieces of compiled work on all cores, by one pool of threads.

JAX and NumPy release the interpreter lock while they compute, so threads are enough; nothing has to
be configured.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from typing import Any, TypeVar

import jax

Part = TypeVar("Part")
Result = TypeVar("Result")


IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}
"""An option of XLA: a loop writes its new state where the old one was, rather than copying all of
it first. On a CPU these copies take a fifth of the time of a step, and, worse, XLA gives them to
several threads at once, which costs as much as the step itself."""


@cache
def _in_place() -> dict[str, bool] | None:
    """Return the option, or None where this version of XLA has none of that name."""
    try:
        jax.jit(lambda x: x, compiler_options=IN_PLACE)(0.0)
    except jax.errors.JaxRuntimeError:
        return None
    return IN_PLACE


def compiled_in_place(function: Callable[..., Result], **options: Any) -> Callable[..., Result]:
    """Return `jax.jit(function)` for a program whose time is spent in loops over small arrays."""

    @cache
    def program() -> Any:
        return jax.jit(function, compiler_options=_in_place(), **options)

    @wraps(function)
    def call(*arguments: Any) -> Result:
        return program()(*arguments)

    return call


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
