"""How compiled work is run: kept on disk, its state in place, independent pieces on all cores.

JAX and NumPy release the interpreter lock while they compute, so one pool of threads is enough.
"""

from __future__ import annotations

import contextvars
import hashlib
import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from pathlib import Path
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


def share_compiled_code() -> None:
    """Keep compiled programs on disk.

    A folder chosen by the user (`JAX_COMPILATION_CACHE_DIR`) is respected. Where there is no home
    to write in nothing is kept: JAX would warn of every function that it compiles.
    """
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        try:
            folder = compile_cache_folder()
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError):  # RuntimeError: the user has no home
            return
        if os.access(folder, os.W_OK):
            jax.config.update("jax_compilation_cache_dir", str(folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)


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
