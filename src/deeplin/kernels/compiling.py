"""Compiled code kept on disk: JAX programs for all processes, numba kernels under a lock."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from filelock import FileLock


@cache
def _digest() -> str:
    """Digest of the code of all kernels."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        code.update(path.read_bytes())
    return code.hexdigest()


SUMS = {"reassoc", "contract"}
"""What the compiler may do to sums: take several terms at a time. NaN stays NaN."""


def compiled(function: Callable[..., Any], sums: set[str] | bool = SUMS) -> Any:
    """Compile with numba; the result is kept on disk, in a folder for this code of all kernels.

    A kernel holds the code of those it calls, in whatever file: numba's cache would notice changes
    of its own file only. A folder chosen by the user (`NUMBA_CACHE_DIR`) gets that folder inside.
    With `sums=False` sums are taken in the order they are written in.
    """
    import numba  # slow to import: only where kernels are used

    settings: Any = numba.config  # pyright: ignore[reportPrivateImportUsage]
    folder = settings.CACHE_DIR
    base = Path(folder) if folder else compile_cache_folder()
    settings.CACHE_DIR = str(base / f"kernels-{_digest()[:16]}")
    try:
        options = {"nogil": True, "cache": True, "fastmath": sums, "error_model": "numpy"}
        return numba.njit(**options)(function)
    finally:
        settings.CACHE_DIR = folder


def call(kernel: Any, *arguments: Any) -> Any:
    """Call a compiled function; the first time for these types, compile it or load it from disk.

    That happens under a lock, because processes that save different kernels at the same moment
    can leave numba's cache on disk with one kernel under the name of another.
    """
    key = (kernel, *map(_kind, arguments))
    if key not in _READY:
        types = tuple(map(kernel.typeof_pyval, arguments))
        if types not in kernel.overloads:
            folder = Path(kernel.stats.cache_path)
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / "deeplin-kernels.lock"):
                try:
                    kernel.compile(types)
                except AttributeError:  # saved by older code, with types that have gone since
                    for index in folder.glob("*.nbi"):
                        index.unlink()
                    kernel.compile(types)
        _READY.add(key)
    return kernel(*arguments)


_READY: set[tuple[Any, ...]] = set()
"""Kernels with the kinds of arguments they are compiled for."""


def _kind(argument: Any) -> Any:
    """What decides the type numba gives to an argument; asking numba takes ten times as long."""
    if isinstance(argument, tuple):
        return type(argument), *map(_kind, argument)
    if not isinstance(argument, np.ndarray):
        return type(argument)
    flags = argument.flags
    layout = (flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned)
    return argument.dtype, argument.ndim, layout


def thread_count() -> int:
    """Threads a kernel may use: NUMBA_NUM_THREADS (sweep workers set it), else the cores."""
    import numba  # slow to import: only where kernels are used

    return numba.config.NUMBA_NUM_THREADS  # pyright: ignore


def in_threads(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """`work` of each item, in the threads a kernel may use; of a single one without them.

    Each thread takes the next item when it is ready for one: a task for every item would cost more
    than many items do.
    """
    items = list(items)
    if len(items) < 2:
        return list(map(work, items))
    results: dict[int, Any] = {}
    numbered = iter(enumerate(items))  # one for all threads; Python's lock guards it

    def some() -> None:
        for number, item in numbered:
            results[number] = work(item)

    tasks = [_threads().submit(some) for _ in range(min(thread_count(), len(items)))]
    for task in tasks:
        task.result()
    return [results[number] for number in range(len(items))]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_count(), "kernels")


def share_compiled_code() -> None:
    """Keep compiled functions on disk, so that each shape is compiled once for all processes.

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
