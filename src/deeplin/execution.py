"""Execution of long computations: cached compiled code, threads, and Ctrl-C.

JAX and NumPy release the interpreter lock while they compute, so one thread pool suffices.

Python raises KeyboardInterrupt between any two bytecode instructions. Inside a callback of the
garbage collector (JAX installs one) it is printed and discarded, and a long call of compiled code
delays it. So the library's long loops are `interruptible` and call `check_interrupt` between two
pieces of work, and commands run inside `prompt_interrupt`: Ctrl-C is never lost, and ends a command
within a second.

JAX is imported where it is used, so that commands without computations start faster.
"""

from __future__ import annotations

import contextvars
import functools
import hashlib
import os
import platform
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Part = TypeVar("Part")

IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}
"""XLA option for loops to write the new state in place instead of copying the old one first. On a
CPU these copies take a fifth of the time of a step, and XLA distributes them over several threads,
which costs as much as the step itself."""


@functools.cache
def _in_place() -> dict[str, bool] | None:
    """Return the option, or None where this version of XLA has none of that name."""
    import jax

    try:
        jax.jit(lambda x: x, compiler_options=IN_PLACE)(0.0)
    except jax.errors.JaxRuntimeError:
        return None
    return IN_PLACE


def compiled_in_place(function: Callable[..., Result], **options: Any) -> Callable[..., Result]:
    """Return `jax.jit(function)` for a program whose time is spent in loops over small arrays."""

    @functools.cache
    def program() -> Any:
        import jax

        return jax.jit(function, compiler_options=_in_place(), **options)

    @functools.wraps(function)
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


@functools.cache
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


# --- Ctrl-C ---

GRACE_SECONDS = 0.6
"""Time that Python has to react to Ctrl-C by itself."""
INTERRUPTED = 130
"""Exit code of a process ended by Ctrl-C, by convention."""
SHOW_CURSOR = "\x1b[?25h"


class _Interrupts:
    """Signal handler that calls the previous handler and stores what it raised."""

    def __init__(self, before: Callable[..., Any]):
        self.before = before
        self.raised: BaseException | None = None
        self.leaving = False

    def __call__(self, *arguments: Any) -> None:
        try:
            self.before(*arguments)
        except BaseException as error:
            self.raised = error
            if not self.leaving:
                raise

    def check(self) -> None:
        if self.raised is not None:
            raise self.raised


_INTERRUPTS: ContextVar[_Interrupts | None] = ContextVar("what interrupts raised", default=None)


def interruptible(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a long function so that an interrupt always ends it.

    If the interrupt is lost, it is raised at the next `check_interrupt`, or when the function
    returns.

    The current handler of SIGINT still decides what an interrupt means: what it raises is stored,
    and raised again if it was lost. Nothing changes in threads other than the main one, which do
    not receive interrupts, or if interrupts are ignored; but threads that an interruptible function
    starts in a copy of its context end with it.
    """

    @functools.wraps(function)
    def wrapper(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        before = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()
        if not main or not callable(before) or _INTERRUPTS.get() is not None:
            return function(*arguments, **options)
        interrupts = _Interrupts(before)
        try:  # not a context manager, which an interrupt could leave open
            _INTERRUPTS.set(interrupts)
            signal.signal(signal.SIGINT, interrupts)
            return function(*arguments, **options)
        finally:
            interrupts.leaving = True  # from here on an interrupt is raised by the last line only
            _INTERRUPTS.set(None)
            if signal.getsignal(signal.SIGINT) is interrupts:
                signal.signal(signal.SIGINT, before)
            interrupts.check()

    return wrapper


def check_interrupt() -> None:
    """Raise the exception of an interrupt since the `interruptible` function began, if it was
    lost."""
    interrupts = _INTERRUPTS.get()
    if interrupts is not None:
        interrupts.check()


@contextmanager
def prompt_interrupt(last_line: str) -> Iterator[None]:
    """Make Ctrl-C end the process within a second, and write `last_line`.

    A thread also watches the signal and ends the process if nothing has happened after a moment.
    Either way the process ends without waiting for other threads. That is safe because files are
    written atomically, but it is meant for commands: inside another program, leave Ctrl-C to that
    program.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C is delivered to the main thread only
        return
    receiving, sending = socket.socketpair()
    sending.setblocking(False)
    before = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(receiving, over, last_line), daemon=True)
    watcher.start()
    try:
        yield
    except KeyboardInterrupt:
        over.set()
        _leave(last_line)
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        sending.close()
        watcher.join()
        receiving.close()


def _watch(receiving: socket.socket, over: threading.Event, last_line: str) -> None:
    while received := receiving.recv(1):
        if received[0] == signal.SIGINT and not over.wait(GRACE_SECONDS):
            _leave(f"{SHOW_CURSOR if sys.stderr.isatty() else ''}\n{last_line}")


def _leave(last_line: str) -> NoReturn:
    """End the process without waiting for its threads, which may have hours of work left."""
    os.write(2, f"{last_line}\n".encode())
    os._exit(INTERRUPTED)
