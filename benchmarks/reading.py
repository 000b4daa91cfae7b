"""Streaming a table: memory that does not grow with it, at the pace of reading it.

`python benchmarks/reading.py 10000000` measures a folder of so many rows (in files of a million,
all links to one) in the current folder, instead of the small table of `deeplin bench reading`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from threadpoolctl import threadpool_limits

from deeplin.problems import Problem
from deeplin.tables.formats import CHUNK
from deeplin.tables.reading import read_problem

COLUMNS, ROWS, GROUP, MILLION = 101, 400_000, 100_000, 1_000_000
STREAM = 2**20  # bytes kept: far less than the table, so that it is streamed
# The kernel's own high-water mark: getrusage would also count the process this one is started from.
CHILD = """
import json, re, sys
from pathlib import Path
from deeplin.tables.reading import read_problem

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 2**20

before = peak()
read_problem(sys.argv[1], "c0", memory=int(sys.argv[2]))
print(json.dumps([before, peak()]))
"""


def write_table(path: Path, rows: int, group: int = GROUP) -> None:
    """Random columns, a row group at a time."""
    rng = np.random.default_rng(0)
    names = [f"c{k}" for k in range(COLUMNS)]
    schema = pa.schema([(name, pa.float64()) for name in names])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, group):
            block = rng.normal(size=(COLUMNS, min(group, rows - start)))
            writer.write_table(pa.table(dict(zip(names, block, strict=True)), schema=schema))


def peak_memory(path: Path) -> tuple[float, float]:
    """GiB of a fresh process before and after reading the table, at its peak."""
    answer = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(STREAM)],
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = json.loads(answer.stdout)
    return before, after


def seconds(action) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def only_read(source: Path) -> None:
    """Decode every value on all cores, into matrices, and do nothing with them."""
    for path in sorted(source.iterdir()) if source.is_dir() else [source]:
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(CHUNK // COLUMNS):
                matrix = np.empty((len(batch), COLUMNS), order="F")
                for j, column in enumerate(batch.columns):
                    matrix[:, j] = column


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
        times = [(seconds(lambda: X.T @ X), seconds(problem)) for _ in range(5)]
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
        small, large, usual = (Path(folder) / f"{name}.parquet" for name in range(3))
        # The smaller table has two row groups as well: while one is summed, the next is decoded.
        write_table(small, ROWS // 4, GROUP // 2)
        write_table(large, ROWS, GROUP // 2)
        write_table(usual, ROWS)
        times = [
            (
                seconds(lambda: only_read(usual)),
                seconds(lambda: read_problem(usual, "c0", memory=STREAM)),
            )
            for _ in range(5)
        ]
        reading, whole = (statistics.median(column) for column in zip(*times, strict=True))
        before, peak = peak_memory(large)
        _, small_peak = peak_memory(small)
    details = {"rows": ROWS, "columns": COLUMNS, "rows_per_second": ROWS / whole}
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
        "moments of a table against reading it, seconds": {
            "ratio": whole / reading,
            "target": 2.0,
            "at_most": True,
            "details": details | {"seconds": [reading, whole]},
        },
    }


def measure_large(rows: int) -> dict[str, float]:
    """Seconds to read a folder of `rows` rows, and to a problem; peak memory of the latter."""
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        first, folder = Path(scratch) / "one.parquet", Path(scratch) / "table"
        write_table(first, MILLION)
        folder.mkdir()
        for k in range(rows // MILLION):
            (folder / f"{k}.parquet").hardlink_to(first)
        size = rows // MILLION * first.stat().st_size / 2**30
        reading = seconds(lambda: only_read(folder))
        whole = seconds(lambda: read_problem(folder, "c0", memory=STREAM))
        before, peak = peak_memory(folder)
    return {
        "rows": rows,
        "columns": COLUMNS,
        "GiB of Parquet": size,
        "seconds to read": reading,
        "seconds to a problem": whole,
        "ratio": whole / reading,
        "rows per second": rows / whole,
        "peak GiB": peak,
        "GiB before reading": before,
    }


if __name__ == "__main__":
    print(json.dumps(measure_large(int(sys.argv[1])), indent=1))
