"""Ctrl-C that works within a second, whatever the machine is doing."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

GRACE_SECONDS = 0.6
"""How long Python may take to notice Ctrl-C by itself."""
INTERRUPTED = 130
"""Exit code of a process ended by Ctrl-C, by convention."""
SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def prompt_interrupt(farewell: str) -> Iterator[None]:
    """Make Ctrl-C end the process within a second, with `farewell` as the last line.

    Python raises KeyboardInterrupt only between two of its own instructions; a long call of
    compiled code holds it up. The system's signal is therefore also watched by a thread, which
    ends the process if nothing has happened after a moment. Either way the process ends without
    waiting for other threads. That is safe, a sweep's folder is in order at every instant, but it
    is for commands: inside another program leave Ctrl-C to that program.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C is delivered to the main thread, whose business it then is
        return
    listener, speaker = socket.socketpair()
    speaker.setblocking(False)
    before = signal.set_wakeup_fd(speaker.fileno(), warn_on_full_buffer=False)
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(listener, over, farewell), daemon=True)
    watcher.start()
    try:
        yield
    except KeyboardInterrupt:
        over.set()
        _leave(farewell)
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        speaker.close()
        watcher.join()
        listener.close()


def _watch(listener: socket.socket, over: threading.Event, farewell: str) -> None:
    while received := listener.recv(1):
        if received[0] == signal.SIGINT and not over.wait(GRACE_SECONDS):
            _leave(f"{SHOW_CURSOR if sys.stderr.isatty() else ''}\n{farewell}")


def _leave(farewell: str) -> NoReturn:
    """End the process without waiting for its threads, which may have hours of work left."""
    os.write(2, f"{farewell}\n".encode())
    os._exit(INTERRUPTED)
