"""kill -9 over and over: each table is that of a plain loop.

    python tests/sweep/torture.py --kills 200 --seed 0

Small sweeps, in a process of their own, are started until they are finished; at random moments
they, or one of their workers, are killed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from pathlib import Path

import pandas as pd
import psutil
from toy_experiment import computed, expected, troubled, wait_until

from deeplin import sweep
from deeplin.files import environment

GO_ON, FINISHED = 3, 0
"""Exit codes: units are left because their workers were killed, or none."""


def start(home: Path, numbers: int, workers: int) -> int:
    """Start a sweep in a child process, the leader of a group, and return its number."""
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        values = {"number": range(numbers), "home": [str(home)]}
        try:
            complete = sweep.grid(troubled, values, home / "sweep", workers=workers).complete
        except (BrokenExecutor, sweep.UnitsFailed):  # its workers were killed too often
            complete = False
        os._exit(FINISHED if complete else GO_ON)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(4)


def group_exists(group: int) -> bool:
    """Return whether any process of a sweep is left."""
    with suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


def kill_one(child: int, chance: random.Random, delay: float) -> str:
    """Kill a sweep or one of its workers after a moment; return which, or nothing if it ended."""
    time.sleep(delay)
    with suppress(psutil.NoSuchProcess):
        main = psutil.Process(child)
        if main.status() == psutil.STATUS_ZOMBIE:
            return ""
        workers = [it for it in main.children() if "loky.backend.popen" in str(it.cmdline())]
        target = chance.choice([main, *workers])
        target.send_signal(signal.SIGKILL)
        return "main process" if target is main else "worker"
    return ""


def torture(kills: int, seed: int, folder: Path) -> Counter[str]:
    """Sweep until so many processes were killed; return how many of each kind."""
    chance, killed, sweeps = random.Random(seed), Counter[str](), 0
    environment()  # starts git, once for all
    while killed.total() < kills:
        home, sweeps = folder / str(sweeps), sweeps + 1
        home.mkdir()
        numbers, workers = chance.randint(4, 12), chance.choice((1, 1, 1, 2))
        ended, left = GO_ON, chance.randint(4, 12)
        while ended != FINISHED:
            kept, seen = set(home.glob("sweep/*.parquet")), len(computed(home))
            finished = set(pd.read_parquet(home / "sweep")["number"]) if kept else set()
            child = start(home, numbers, workers)
            if left > 0:
                left -= 1
                longest = 0.15 if workers == 1 else 8.0  # workers start for seconds
                what = kill_one(child, chance, longest * chance.random())
                killed.update([what] if what else [])
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert ended in (-signal.SIGKILL, FINISHED, GO_ON), f"a sweep ended with {ended}"
            wait_until(lambda group=child: not group_exists(group))  # its workers end with it
            assert kept <= set(home.glob("sweep/*.parquet")), "finished units were lost"
            assert not finished & set(computed(home)[seen:]), "finished units were computed again"
        table = sweep.grid(
            troubled, {"number": range(numbers), "home": [str(home)]}, home / "sweep", workers=1
        )
        assert (table.reused, table.computed) == (numbers, 0)
        pd.testing.assert_frame_equal(
            table.table(), expected(range(numbers), home), check_exact=True
        )
        print(f"{killed.total()} kills, {sweeps} sweeps", flush=True)
    return killed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        killed = torture(options.kills, options.seed, Path(folder))
    for target, count in sorted(killed.items()):
        print(f"{count:6} {target}")
    print("every table is identical to that of an undisturbed sweep")


if __name__ == "__main__":
    main()
