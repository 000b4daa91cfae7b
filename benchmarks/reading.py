"""Streaming a table: memory that does not grow with it, at the pace of reading it.

`python benchmarks/reading.py 5` measures a CSV file of so many GB in the current folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from deeplin.problems import Problem

COLUMNS, BLOCK, ROWS = 101, 10_000, 100_000
STREAM = 2**20  # bytes kept: far less than the table, so that it is streamed
# Each runs in a fresh process, which reports its CPU seconds and its peak memory in GiB. The
# kernel's own high-water mark: getrusage would also count the process this one is started from.
CHILD = """
import json, re, sys, time
import numpy, pandas
from pathlib import Path
from deeplin.tables.files import CHUNK
from deeplin.tables.reading import read_problem

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 2**20

path, memory = sys.argv[1], int(sys.argv[2])
before, began = peak(), time.process_time()
if memory:
    read_problem(path, "c0", memory=memory)
else:
    with pandas.read_csv(path, chunksize=CHUNK // 101) as chunks:
        for chunk in chunks:
            pass
print(json.dumps([time.process_time() - began, before, peak()]))
"""


def write_table(path: Path, rows: int) -> None:
    """Write a CSV file of random columns that repeats a block of rows."""
    numbers = np.random.default_rng(0).normal(size=(BLOCK, COLUMNS))
    frame = pd.DataFrame(numbers, columns=[f"c{k}" for k in range(COLUMNS)])
    text = frame.to_csv(index=False).encode()
    first = text.index(b"\n") + 1
    with path.open("wb") as file:
        file.write(text[:first])
        for _ in range(rows // BLOCK):
            file.write(text[first:])


def cost(path: Path, memory: int = 0) -> tuple[float, float, float]:
    """Return CPU seconds, and GiB before and at the peak; without memory, of pandas alone."""
    answer = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(memory)],
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(json.loads(answer.stdout))


def seconds_of(action) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def solving(samples: int, dimension: int) -> dict:
    """A problem from data up to w* and R_min, against its second moments alone.

    One BLAS thread for both: on a busy machine BLAS threads wait for each other.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(samples, dimension))
    y = X @ rng.normal(size=dimension) + rng.normal(size=samples)

    def problem() -> None:
        found = Problem.from_data(X, y)
        assert found.covariance.shape == (dimension, dimension)
        assert found.optimum.shape == (dimension,)
        assert found.minimal_risk > 0

    with threadpool_limits(1, "blas"):
        times = [(seconds_of(lambda: X.T @ X), seconds_of(problem)) for _ in range(5)]
    moments, whole = (min(column) for column in zip(*times, strict=True))
    return {
        "ratio": whole / moments,
        "target": 2.0,
        "at_most": True,
        "details": {"seconds": [moments, whole], "samples": samples, "dimension": dimension},
    }


def measure() -> dict[str, dict]:
    solved = {
        f"problem of {n} × {d} against X.T @ X, seconds": solving(n, d)
        for n, d in ((100_000, 100), (10_000, 1000))
    }
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.csv"), Path(folder, "large.csv")
        write_table(small, ROWS // 2)
        write_table(large, 2 * ROWS)
        bare, _, _ = cost(large)
        seconds, before, peak = cost(large, STREAM)
        _, _, small_peak = cost(small, STREAM)
        size = large.stat().st_size / 1e9
    details = {"rows": 2 * ROWS, "columns": COLUMNS, "GB": size}
    return solved | {
        "reading a table, peak memory in GiB": {
            "ratio": peak,
            "target": 1.0,
            "at_most": True,
            "details": details | {"before": before},
        },
        "reading four times as many rows, memory": {
            "ratio": peak / small_peak,
            "target": 1.2,
            "at_most": True,
            "details": {"gib": [small_peak, peak]},
        },
        "each of two passes against pandas alone, CPU seconds": {
            "ratio": seconds / 2 / bare,
            "target": 1.5,
            "at_most": True,
            "details": details | {"seconds": [bare, seconds]},
        },
    }


def measure_large(gigabytes: float) -> dict[str, float]:
    """Return seconds and memory for a CSV file of this size."""
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        path = Path(scratch) / "table.csv"
        write_table(path, BLOCK)
        rows = BLOCK * max(1, round(1e9 * gigabytes / path.stat().st_size))
        write_table(path, rows)
        size = path.stat().st_size / 1e9
        began = time.perf_counter()
        seconds, before, peak = cost(path, STREAM)
        elapsed = time.perf_counter() - began
        bare, _, _ = cost(path)
    return {
        "GB of CSV": size,
        "rows": rows,
        "columns": COLUMNS,
        "CPU seconds of one pass of pandas alone": bare,
        "CPU seconds of both passes": seconds,
        "seconds of both passes": elapsed,
        "ratio for each pass": seconds / 2 / bare,
        "peak GiB": peak,
        "GiB before reading": before,
    }


if __name__ == "__main__":
    print(json.dumps(measure_large(float(sys.argv[1])), indent=1))
