"""kill -9 over and over, at every stage of a sweep; each table is that of a plain loop.

    python tests/sweep/torture.py --kills 1000 --seed 0

Small sweeps are killed until they are finished nevertheless: the main process before one of its
file operations, workers while they start, wait, compute and write, the main process while its
workers do so, and any of them at a random moment.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pandas as pd
import psutil
from toy_experiment import TOY, Toy, computed, run_unit, units, wait_until

from deeplin import sweep
from deeplin.sweep.executors import FAILED_STARTS
from deeplin.sweep.store import Store

HERE = Path(__file__).parent
STAGES = ("starting", "before writing", "writing", "after writing", "idle", "unit")
"""Of a worker; it writes when it is ready, and when it has a result."""
ATTEMPTS = 60
"""A sweep that is not finished after so many is taken never to be."""


@contextmanager
def launcher(tokens: Path):
    """A process that starts sweeps; `start` gives it a request and returns how the sweep ended."""
    tokens.mkdir(exist_ok=True)
    path = os.pathsep.join([str(HERE / "kill_points"), str(HERE), os.environ.get("PYTHONPATH", "")])
    variables = os.environ | {"PYTHONPATH": path, "TORTURE_TOKENS": str(tokens)}
    with (
        tempfile.TemporaryFile("w+") as said,  # what they print to stderr
        subprocess.Popen(
            [sys.executable, HERE / "launcher.py"],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
    ):
        groups = []

        def start(disturb=lambda main: None, **request) -> int:
            print(json.dumps(request), file=process.stdin, flush=True)
            main = int(process.stdout.readline())
            groups.append(main)
            with suppress(psutil.NoSuchProcess):
                main_process = psutil.Process(main)
                if (
                    main_process.ppid() == process.pid
                ):  # else it has ended, and its number is another's
                    disturb(main_process)
            ended = int(process.stdout.readline())
            wait_until(lambda: not _group_exists(main))  # its workers end with it
            groups.clear()
            if ended not in (-signal.SIGKILL, 0, 3):
                said.seek(0)
                raise AssertionError(f"a sweep ended with {ended}: {said.read()[-5000:]}")
            return ended

        try:
            yield start
        finally:
            for group in filter(_group_exists, groups):
                os.killpg(group, signal.SIGKILL)
            process.kill()


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def expected_table(config: Toy) -> pd.DataFrame:
    """The table without any sweep."""
    quiet = replace(config, log="", trouble="")
    return pd.concat([run_unit(quiet, unit) for unit in units(quiet)], ignore_index=True)


def finished_units(folder: Path, config: Toy) -> set[int]:
    """The finished units, by their `first`."""
    identified = TOY.identify(config, units(config), "float32")
    found = {path.name.partition(".")[0] for path in folder.glob("units/*.parquet")}
    return {unit.coordinates["first"] for name, unit in identified.items() if name in found}


def check_attempt(folder: Path, config: Toy, before: set[int], seen: int) -> None:
    """Nothing that was finished is lost, or was computed again."""
    log = computed(config.log) if Path(config.log).exists() else []
    assert not set(log[seen:]) & before, "finished units were computed again"
    assert before <= finished_units(folder, config), "finished units were lost"


def check_end(folder: Path, config: Toy) -> None:
    """The table is that of an undisturbed sweep, and nothing else is left."""
    pd.testing.assert_frame_equal(
        sweep.read_table(folder), expected_table(config), check_exact=True
    )
    assert sweep.status(folder).complete
    assert len(list(Store(folder).units.iterdir())) == len(units(config))
    assert list(Store(folder).temporary.iterdir()) == []


def run_until_finished(start, folder: Path, config: Toy, requests) -> int:
    """Start one sweep by the requests until it is finished; return how many were killed."""
    killed = 0
    for _, request in zip(range(ATTEMPTS), requests, strict=False):
        before = finished_units(folder, config)
        seen = len(computed(config.log)) if Path(config.log).exists() else 0
        ended = start(folder=str(folder), config=sweep.to_json(config), **request)
        killed += ended == -signal.SIGKILL
        check_attempt(folder, config, before, seen)
        if ended == 0:
            check_end(folder, config)
            return killed
    raise AssertionError(f"not finished after {ATTEMPTS} attempts")


class Torture:
    """Random sweeps and random kills, the same for the same seed but for their timing."""

    def __init__(self, seed: int, folder: Path):
        self.chance, self.folder = random.Random(seed), folder
        self.tokens, self.kills = folder / "tokens", Counter()
        self.sweeps = 0

    def run(self, kills: int) -> None:
        """Sweeps until so many processes were killed."""
        with launcher(self.tokens) as start:
            while self.kills.total() < kills:
                self.sweep(start)
                self.sweeps += 1
                print(f"{self.kills.total()} kills, {self.sweeps} sweeps", flush=True)

    def sweep(self, start) -> None:
        """One sweep from its first start to its last."""
        home = self.folder / f"sweep-{self.sweeps}"
        home.mkdir()
        draw = self.chance.randint
        config = Toy(draw(4, 12), draw(1, 3), seed=draw(0, 999), log=str(home / "log"))
        workers = self.chance.choice((0, 0, 0, 1, 2, 3))  # starting a worker takes seconds
        kind = self.chance.choice(
            ("file operations", "moments") if not workers else ("stages", "moments")
        )
        if kind == "stages":
            # After so many failed starts in a row a sweep gives up, as it says it does.
            self.lay_tokens(draw(4, FAILED_STARTS - 1))
        killed = run_until_finished(start, home / "sweep", config, self.requests(kind, workers))
        if kind == "file operations":
            self.kills["main before a file operation"] += killed
        if kind == "stages":
            self.count_tokens()

    def requests(self, kind: str, workers: int):
        """What each start requests; the last ones are not disturbed."""
        for _ in range(self.chance.randint(4, 12)):
            request = {"workers": workers}
            if kind == "file operations":
                request["operations"] = self.chance.randint(1, 60)
            if kind == "moments":
                request["disturb"] = self.kill_one
            yield request
        while True:
            yield {"workers": workers}

    def lay_tokens(self, count: int) -> None:
        """Choose the stages at which a process is killed."""
        self.laid = []
        for number in range(count):
            target = self.chance.choice(("", "", "main-")) + self.chance.choice(STAGES)
            (self.tokens / f"{target}.{number}").touch()
            self.laid.append(target)

    def count_tokens(self) -> None:
        """Each token that was taken killed a process; the others go."""
        left = [path.name.partition(".")[0] for path in self.tokens.iterdir()]
        for path in list(self.tokens.iterdir()):
            path.unlink()
        for target in (Counter(self.laid) - Counter(left)).elements():
            who = "main while a worker is" if target.startswith("main-") else "worker"
            self.kills[f"{who} {target.removeprefix('main-')}"] += 1

    def kill_one(self, main_process: psutil.Process) -> None:
        """Kill the sweep or one of its workers at some moment of the next seconds."""
        time.sleep(self.chance.choice((0.05, 0.5, 4.0)) * self.chance.random())
        workers = [p for p in main_process.children() if "--multiprocessing-fork" in p.cmdline()]
        target = self.chance.choice([main_process, *workers])
        if target.status() != psutil.STATUS_ZOMBIE:
            target.kill()
            who = "main" if target is main_process else "worker"
            self.kills[f"{who} at a random moment"] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        torture = Torture(options.seed, Path(folder))
        print(f"torture with seed {options.seed}")
        try:
            torture.run(options.kills)
        finally:
            for target, count in sorted(torture.kills.items()):
                print(f"{count:6} {target}")
            print(
                f"{torture.kills.total():6} kills over {torture.sweeps} finished sweeps, seed "
                f"{options.seed}, {time.monotonic() - started:.0f} s"
            )
    print("every table is identical to that of an undisturbed sweep")


if __name__ == "__main__":
    main()
