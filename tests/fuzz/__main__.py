"""`python tests/fuzz`: many damaged inputs and no traceback, many true runs and no false alarm.

    python tests/fuzz --tables 100000 --runs 10000 --calls 20000 --true_runs 1000 --minutes 60
    python tests/fuzz --again tables 4711          # one case, by its number

Every case is drawn from (seed, part, number). The cases run in child processes, so that a crash of
a library is a finding too, with the number of the case. Exit code 1 if anything was found.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

PARTS = ("tables", "runs", "calls", "true_runs")
SLICE = 5000
"""Cases for one child process, at most."""


def main() -> int:
    options = _options()
    if options.again:
        part, number = options.again
        with tempfile.TemporaryDirectory() as folder:
            print(_check(part, options.seed, int(number), Path(folder)) or "nothing is wrong")
        return 0
    if options.slice:
        part, first, last = options.slice
        return _run_slice(part, options.seed, int(first), int(last))
    counts = {part: getattr(options, part) for part in PARTS}
    wanted = [part for part in PARTS if counts[part]]
    end, found = time.monotonic() + 60 * options.minutes, 0
    for k, part in enumerate(wanted):  # each with its share of the time that is left
        now = time.monotonic()
        until = now + (end - now) / (len(wanted) - k)
        found += _run_part(part, counts[part], options.seed, until, options.workers)
    return int(found > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for part, count in zip(PARTS, (10_000, 1000, 2000, 1000), strict=True):
        parser.add_argument(f"--{part}", type=int, default=count, help="number of cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=30, help="for everything together")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", nargs=2, metavar=("PART", "NUMBER"), help="one case only")
    parser.add_argument("--slice", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def _check(part: str, seed: int, number: int, folder: Path) -> str | None:
    """What is wrong with the answer to one case."""
    import jax
    import numpy as np

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng([seed, PARTS.index(part), number])
    return importlib.import_module(part).check(rng, folder)


def _run_slice(part: str, seed: int, first: int, last: int) -> int:
    """The work of a child: a line for each case, with what was found."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, last):
            print(json.dumps([number, None]), flush=True)
            if found := _check(part, seed, number, Path(folder)):
                print(json.dumps([number, found]), flush=True)
    return 0


def _run_part(part: str, count: int, seed: int, end: float, workers: int) -> int:
    """All cases of one part in child processes, until the time is over; the number of findings."""
    size = min(SLICE, -(-count // workers))
    began, waiting, running = time.monotonic(), list(range(0, count, size)), []
    done, found = 0, defaultdict(list)
    while (waiting and time.monotonic() < end) or running:
        while waiting and len(running) < workers and time.monotonic() < end:
            first = waiting.pop(0)
            running.append(_start(part, seed, first, min(first + size, count)))
        child = running.pop(0)
        lines, last = _finish(child, end)
        done += len({number for number, _ in lines})
        for number, what in lines:
            if what:
                found[what].append(number)
        if child.returncode not in (0, None) and child.returncode != -9 and lines:
            found[f"the process ended with {child.returncode}"].append(lines[-1][0])
            if lines[-1][0] + 1 < last:
                running.append(_start(part, seed, lines[-1][0] + 1, last))
    took = time.monotonic() - began
    print(f"{part}: {done} of {count} cases, seed {seed}, {took:.0f} s, {len(found)} kinds found")
    for what, numbers in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f"  {len(numbers)} × {what}\n    --seed {seed} --again {part} {numbers[0]}")
    sys.stdout.flush()
    return len(found)


def _start(part: str, seed: int, first: int, last: int) -> subprocess.Popen:
    command = [sys.executable, str(Path(__file__).parent), "--seed", str(seed)]
    command += ["--slice", part, str(first), str(last)]
    output = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (closed by _finish)
    # Small problems: threads of linear algebra would only wait for one another.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, env=environment)
    child.output, child.last = output, last
    return child


def _finish(child, end: float) -> tuple[list, int]:
    """Wait for a child, or end it when the time is over; its lines and where its slice ends."""
    try:
        child.wait(timeout=max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    child.output.seek(0)
    lines = [line for line in child.output if line.startswith("[") and line.endswith("]\n")]
    child.output.close()
    return [json.loads(line) for line in lines], child.last


if __name__ == "__main__":
    sys.exit(main())
