"""A process that starts sweeps to be killed, each in a child process of its own.

It has everything imported before the first child is made, so that a sweep takes milliseconds. For
every line on its standard input, a request in JSON, it starts one sweep and prints the number of
its process, then how it ended: 0 finished, 3 with units to be tried again, negative for a signal.
"""

import json
import os
import signal
import sys
import traceback

from toy_experiment import TOY, Toy

from deeplin import sweep
from deeplin.files import environment

OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}


def run_sweep(folder, config, workers=0, operations=0):
    """Run one sweep, killed before its file operation number `operations` (0: not at all)."""
    os.setsid()  # so that what it leaves behind can be found
    os.environ["TORTURE_MAIN"] = str(os.getpid())
    if operations:
        sys.addaudithook(KillAtOperation(folder, operations))
    executor = sweep.Processes(workers) if workers else None
    try:
        outcome = sweep.run(TOY, sweep.from_json(Toy, config), folder, executor=executor)
    except sweep.UnitsFailed as error:  # of a few units each may have lost its worker twice
        outcome = error.outcome
    os._exit(0 if outcome.complete else 3)


class KillAtOperation:
    """Counts the operations on files below a folder, and kills the process in time."""

    def __init__(self, folder, left):
        self.folder, self.left = folder, left

    def __call__(self, event, arguments):
        if event in OPERATIONS and str(arguments[0]).startswith(self.folder):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    environment()  # starts git, once for all
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                run_sweep(**json.loads(line))
            except BaseException:
                traceback.print_exc()
                os._exit(4)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
