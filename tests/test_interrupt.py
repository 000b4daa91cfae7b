"""Ctrl-C ends what runs, in real processes with real signals.

Python throws away an exception raised in a callback of the garbage collector, and JAX installs one.
So the first Ctrl-C may be lost; the second one may not.
"""

import gc
import signal
import subprocess
import sys
import threading
from subprocess import PIPE

import pytest

from deeplin.execution import map_in_threads, thread_count

SAFETY_SECONDS = 120
"""For what should happen at once: only a failure takes so long."""
AGAIN_SECONDS = 30
"""A second press would kill a process that has ended its work and takes its time to exit."""


def interrupt(process: subprocess.Popen) -> None:
    """Press Ctrl-C, and once more if the process is still there after a moment."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(AGAIN_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait(SAFETY_SECONDS)


def run_and_interrupt(program: str, folder, *arguments: str) -> tuple[int, str]:
    """Interrupt a program when it prints its first line; return its exit code and stderr."""
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "computing\n", process.stderr.read()
            interrupt(process)
            return process.returncode, process.stderr.read()
        finally:
            process.kill()


LIBRARY = """
import jax
import numpy as np
import deeplin as dl
problem = dl.Problem.from_moments(np.eye(2), np.ones(2), 2.0, samples=4)
nets = dl.initialize.gaussian(
    jax.random.split(jax.random.key(0), 4000), widths=(2, 2, 1), scale=0.3
)
def watch(step, _):
    print("computing", flush=True)
try:
    dl.gradient_descent(problem, nets, 1e-12, 10**9, watch=watch, record_every=10**8)
except KeyboardInterrupt:
    raise SystemExit(7)
"""


@pytest.mark.extended
def test_ctrl_c_raises_keyboard_interrupt_from_a_descent_in_threads(tmp_path):
    """The program goes on with its own work, and its exit does not wait for 10⁹ steps."""
    code, message = run_and_interrupt(LIBRARY, tmp_path)
    assert code == 7, message


COMMAND = """
import sys
from deeplin.cli import main, tables
class Announced(tables.LiveTraining):
    def watch(self, *arguments):
        print("computing", flush=True)
tables.LiveTraining = Announced
main(sys.argv[1:])
"""


@pytest.mark.extended
def test_ctrl_c_ends_train_and_says_that_no_run_was_kept(tmp_path):
    (tmp_path / "table.csv").write_text("x,y\n1,2\n3,4\n4,4\n5,7\n")
    options = ["--learning-rate", "1e-12", "--steps", "1000000000", "--out", "mine.npz"]
    code, message = run_and_interrupt(
        COMMAND, tmp_path, "train", "table.csv", "--target", "y", *options
    )
    assert code == 130, message
    assert message.endswith("deeplin: interrupted; no run was kept\n")
    assert not (tmp_path / "mine.npz").exists()


@pytest.mark.skipif(thread_count() == 1, reason="one core computes without threads")
def test_parts_still_in_the_queue_are_not_begun_after_ctrl_c():
    released, begun = threading.Event(), []
    map_in_threads(abs, range(50))  # starts the threads

    def work(part: int) -> None:
        begun.append(part)
        if part == 0:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        released.wait(SAFETY_SECONDS)

    gc.disable()  # its callback could take the only Ctrl-C
    try:
        with pytest.raises(KeyboardInterrupt):
            map_in_threads(work, range(50))
    finally:
        gc.enable()
        released.set()
    assert len(begun) <= thread_count()
    assert map_in_threads(abs, range(50)) == list(range(50))  # the threads are still there
    assert len(begun) <= thread_count()
