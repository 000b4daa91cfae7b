"""kill -9 over and over, at every stage of a sweep's life; each table is that of a plain loop.

    python tests/sweep/torture.py --kills 1000 --seed 0

Small sweeps are killed until they are finished nevertheless: the asking process before one of its
file operations, workers while they start, wait, compute and write, the asking process while its
workers do so, and anybody at a random moment.
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
from deeplin.sweep.store import Store

HERE = Path(__file__).parent
STAGES = ("starting", "before writing", "writing", "after writing", "idle", "unit")
"""Of a worker; it writes when it is ready, and when it has a result."""
LIVES = 60
"""A sweep that is not finished after so many is taken never to be."""


@contextmanager
def nursery(tokens: Path):
    """A process that starts sweeps; `live` gives it a request and returns how the sweep ended."""
    tokens.mkdir(exist_ok=True)
    path = os.pathsep.join([str(HERE / "victims"), str(HERE), os.environ.get("PYTHONPATH", "")])
    variables = os.environ | {"PYTHONPATH": path, "TORTURE_TOKENS": str(tokens)}
    with (
        tempfile.TemporaryFile("w+") as said,  # the last words of those that are killed
        subprocess.Popen(
            [sys.executable, HERE / "nursery.py"],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
    ):
        groups = []

        def live(meddle=lambda main: None, **request) -> int:
            print(json.dumps(request), file=process.stdin, flush=True)
            main = int(process.stdout.readline())
            groups.append(main)
            with suppress(psutil.NoSuchProcess):
                asking = psutil.Process(main)
                if asking.ppid() == process.pid:  # else it has ended, and its number is another's
                    meddle(asking)
            ended = int(process.stdout.readline())
            wait_until(lambda: not _group_lives(main))  # its workers die with it
            groups.clear()
            if ended not in (-signal.SIGKILL, 0, 3):
                said.seek(0)
                raise AssertionError(f"a sweep ended with {ended}: {said.read()[-5000:]}")
            return ended

        try:
            yield live
        finally:
            for group in filter(_group_lives, groups):
                os.killpg(group, signal.SIGKILL)
            process.kill()


def _group_lives(group: int) -> bool:
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


def check_life(folder: Path, config: Toy, before: set[int], seen: int) -> None:
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
    assert list(Store(folder).aside.iterdir()) == []
    assert list(Store(folder).temporary.iterdir()) == []


def survive(live, folder: Path, config: Toy, requests) -> int:
    """Lives of one sweep, by the requests, until it is finished; returns how many were killed."""
    killed = 0
    for _, request in zip(range(LIVES), requests, strict=False):
        before = finished_units(folder, config)
        seen = len(computed(config.log)) if Path(config.log).exists() else 0
        ended = live(folder=str(folder), config=sweep.to_json(config), **request)
        killed += ended == -signal.SIGKILL
        check_life(folder, config, before, seen)
        if ended == 0:
            check_end(folder, config)
            return killed
    raise AssertionError(f"not finished after {LIVES} lives")


class Torture:
    """Random sweeps and random kills, the same for the same seed but for their timing."""

    def __init__(self, seed: int, folder: Path):
        self.chance, self.folder = random.Random(seed), folder
        self.tokens, self.kills = folder / "tokens", Counter()
        self.sweeps = 0

    def run(self, kills: int) -> None:
        """Sweeps until so many processes were killed."""
        with nursery(self.tokens) as live:
            while self.kills.total() < kills:
                self.sweep(live)
                self.sweeps += 1
                print(f"{self.kills.total()} kills, {self.sweeps} sweeps", flush=True)

    def sweep(self, live) -> None:
        """One sweep from its first life to its last."""
        home = self.folder / f"sweep-{self.sweeps}"
        home.mkdir()
        draw = self.chance.randint
        config = Toy(draw(4, 12), draw(1, 3), seed=draw(0, 999), log=str(home / "log"))
        workers = self.chance.choice((0, 0, 0, 1, 2, 3))  # starting a worker takes seconds
        kind = self.chance.choice(
            ("file operations", "moments") if not workers else ("stages", "moments")
        )
        if kind == "stages":
            self.lay_tokens(draw(4, 16))
        killed = survive(live, home / "sweep", config, self.requests(kind, workers))
        if kind == "file operations":
            self.kills["main before a file operation"] += killed
        if kind == "stages":
            self.count_tokens()

    def requests(self, kind: str, workers: int):
        """What each life is asked; the last ones are left in peace."""
        for _ in range(self.chance.randint(4, 12)):
            request = {"workers": workers}
            if kind == "file operations":
                request["operations"] = self.chance.randint(1, 60)
            if kind == "moments":
                request["meddle"] = self.kill_somebody
            yield request
        while True:
            yield {"workers": workers}

    def lay_tokens(self, count: int) -> None:
        """Choose the stages at which somebody will die."""
        self.laid = []
        for number in range(count):
            victim = self.chance.choice(("", "", "main-")) + self.chance.choice(STAGES)
            (self.tokens / f"{victim}.{number}").touch()
            self.laid.append(victim)

    def count_tokens(self) -> None:
        """The tokens that were taken killed somebody; the others go."""
        left = [path.name.partition(".")[0] for path in self.tokens.iterdir()]
        for path in list(self.tokens.iterdir()):
            path.unlink()
        for victim in (Counter(self.laid) - Counter(left)).elements():
            who = "main while a worker is" if victim.startswith("main-") else "worker"
            self.kills[f"{who} {victim.removeprefix('main-')}"] += 1

    def kill_somebody(self, asking: psutil.Process) -> None:
        """Kill the sweep or one of its workers at some moment of the next seconds."""
        time.sleep(self.chance.choice((0.05, 0.5, 4.0)) * self.chance.random())
        workers = [p for p in asking.children() if "--multiprocessing-fork" in p.cmdline()]
        victim = self.chance.choice([asking, *workers])
        if victim.status() != psutil.STATUS_ZOMBIE:
            victim.kill()
            who = "main" if victim is asking else "worker"
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
            for victim, count in sorted(torture.kills.items()):
                print(f"{count:6} {victim}")
            print(
                f"{torture.kills.total():6} kills over {torture.sweeps} finished sweeps, seed "
                f"{options.seed}, {time.monotonic() - started:.0f} s"
            )
    print("every table is identical to that of an undisturbed sweep")


if __name__ == "__main__":
    main()
