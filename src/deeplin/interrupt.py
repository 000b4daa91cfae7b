"""Ctrl-C that is never lost, and ends a command within a second whatever the machine is doing.

Python raises KeyboardInterrupt between two of its own instructions, wherever that is. Inside a
callback of the garbage collector, and JAX installs one, it is printed and thrown away; a long call
of compiled code holds it up. So the library's long loops are `interruptible` and call
`check_interrupt` between two pieces of work, and commands run inside `prompt_interrupt`.
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, ParamSpec, TypeVar

GRACE_SECONDS = 0.6
"""How long Python may take to notice Ctrl-C by itself."""
INTERRUPTED = 130
"""Exit code of a process ended by Ctrl-C, by convention."""
SHOW_CURSOR = "\x1b[?25h"

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


class _Interrupts:
    """Calls the handler that was there before, and remembers what it raised."""

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


def interruptible(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """A long function that an interrupt ends for certain.

    Should it be lost, it is raised at the next `check_interrupt`, or when the function returns.

    Whatever handler of SIGINT is in force goes on to decide what an interrupt means: what it
    raises is remembered, and raised again should it have been lost. In other threads than the
    main one, which Python spares from interrupts, and where they are ignored nothing changes; but
    threads that an interruptible function starts in a copy of its context end with it.
    """

    @functools.wraps(function)
    def wrapper(*arguments: Parameters.args, **options: Parameters.kwargs) -> Answer:
        before = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()
        if not main or not callable(before) or _INTERRUPTS.get() is not None:
            return function(*arguments, **options)
        interrupts = _Interrupts(before)
        try:  # not a context manager: an interrupt between its two halves would leave it open
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
    """Raise what an interrupt raised since the `interruptible` function began, if it was lost."""
    interrupts = _INTERRUPTS.get()
    if interrupts is not None:
        interrupts.check()


@contextmanager
def prompt_interrupt(last_line: str) -> Iterator[None]:
    """Make Ctrl-C end the process within a second, and write `last_line`.

    The system's signal is also watched by a thread, which ends the process if nothing has happened
    after a moment. Either way the process ends without waiting for other threads. That is safe
    where files are written whole or not at all, but it is for commands: inside another program
    leave Ctrl-C to that program.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C is delivered to the main thread, whose business it then is
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
