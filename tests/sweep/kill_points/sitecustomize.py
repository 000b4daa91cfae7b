"""Kill a process at a chosen stage of a worker: on the path of worker processes under torture.

Python imports a module of this name before anything else. The folder TORTURE_TOKENS holds files
named `stage.number`, or `main-stage.number`: a worker that comes to a stage takes away one of its
files, if there is one, and kills itself, or the process that asked for it, on the spot.
"""

import os
import signal
import sys

TOKENS = os.environ.get("TORTURE_TOKENS", "")
MAIN = os.environ.get("TORTURE_MAIN", "")
"""The main process. Once it is dead, the parent of its workers is a process of the system."""


def reach(stage):
    """Kill this process, or the main one, if there is a token for it."""
    for name in sorted(os.listdir(TOKENS)) if TOKENS else ():
        target, _, _ = name.partition(".")
        if target.removeprefix("main-") != stage:
            continue
        if target != stage and str(os.getppid()) != MAIN:
            continue
        try:
            os.unlink(os.path.join(TOKENS, name))
        except FileNotFoundError:  # taken by another worker
            continue
        os.kill(int(MAIN) if target != stage else os.getpid(), signal.SIGKILL)


def _watch_connections():
    """Between its start and its units a worker only receives and sends."""
    from multiprocessing.connection import Connection

    receive, send = Connection.recv_bytes, Connection._send

    def watched_receive(self, *limit):
        reach("idle")
        return receive(self, *limit)

    def watched_send(self, payload, *rest):
        reach("before writing")
        half = len(payload) // 2
        send(self, payload[:half], *rest)
        reach("writing")
        send(self, payload[half:], *rest)
        reach("after writing")

    Connection.recv_bytes, Connection._send = watched_receive, watched_send


if "--multiprocessing-fork" in sys.orig_argv:
    reach("starting")
    _watch_connections()
