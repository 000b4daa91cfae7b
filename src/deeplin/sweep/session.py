"""Write access to the folder of a sweep: what comes is kept entirely or not at all."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from deeplin.errors import InputError
from deeplin.files import whole_file
from deeplin.sweep.experiment import Unit
from deeplin.sweep.store import Store, checksum, seal
from deeplin.sweep.tasks import Result, describe_columns

PACKAGES = ("deeplin", "jax", "jaxlib", "numba", "numpy", "pandas", "pyarrow", "scipy")
"""Those behind the numbers."""


class StoreError(OSError):
    """A sweep had to stop because its folder cannot be written; what was finished is kept."""


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count` of a sweep, counted from 1: every `count`-th unit."""

    index: int = 1
    count: int = 1

    def __post_init__(self):
        if not 1 <= self.index <= self.count:
            raise InputError(f"shard is {self.index}/{self.count}; pass i/N with 1 ≤ i ≤ N.")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard written as `i/N`."""
        index, _, count = text.partition("/")
        if not (index.strip().isdigit() and count.strip().isdigit()):
            raise InputError(f"shard is {text!r}; pass i/N, for example 1/4.")
        return cls(int(index), int(count))

    @property
    def name(self) -> str:
        """For file names."""
        return f"{self.index}-of-{self.count}"

    def select(self, units: Mapping[str, Unit]) -> dict[str, Unit]:
        """The units of this shard."""
        chosen = list(units.items())[self.index - 1 :: self.count]
        return dict(chosen)


class Session:
    """An open folder: what is finished in it, and how to keep what comes."""

    def __init__(self, store: Store, shard: Shard, units: Mapping[str, Unit]):
        self.store = store
        self.shard = shard
        self.units = units
        self.set_aside: dict[str, str] = {}
        self.finished: dict[str, Path] = {}
        self._failures: set[str] = set()
        self._columns: str | None = None
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        self.identifier = f"{stamp}-{os.getpid()}-{shard.name}"
        self._temporary = store.temporary / shard.name

    def keep(self, result: Result) -> str:
        """Keep a result; returns the error of a failed unit, or an empty string."""
        error, trace = result.error, result.trace
        if result.payload is not None and self._columns not in (None, result.columns):
            error = trace = (
                f"its columns ({result.columns}) differ from those of the other units "
                f"({self._columns})"
            )
        if error:
            record = {
                "unit": result.identifier,
                "coordinates": self.units[result.identifier].coordinates,
                "error": error,
                "trace": trace,
                "session": self.identifier,
            }
            self._write(self._failure_path(result.identifier), _json_bytes(record))
            self._failures.add(result.identifier)
        else:
            assert result.payload is not None
            mark = checksum(result.identifier, result.payload)
            path = self.store.units / f"{result.identifier}.{mark}.parquet"
            self._write(path, result.payload)
            self.finished[result.identifier] = path
            self._columns = result.columns
            if result.identifier in self._failures:
                with self._explained(self.store.failed):
                    self._failure_path(result.identifier).unlink(missing_ok=True)
        self.note(
            unit=result.identifier,
            outcome="failed" if error else "finished",
            seconds=round(result.seconds, 6),
            machine=result.machine,
        )
        return error

    def note(self, **line: Any) -> None:
        """Add a line to the journal of this session."""
        path = self.store.sessions / f"{self.identifier}.jsonl"
        with self._explained(path), path.open("ab", buffering=0) as journal:
            journal.write((json.dumps(line, ensure_ascii=False) + "\n").encode())

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest."""
        self._write(self.store.manifest_path, _json_bytes({**manifest, "seal": seal(manifest)}))

    def move_aside(self, path: Path, reason: str) -> None:
        """Take a file that is not to be trusted out of the readers' way, and report it."""
        target = self.store.aside / f"{path.name}.{self.identifier}"
        with self._explained(path):
            path.rename(target)
        self.set_aside[path.name] = reason

    def adopt(self, finished: Mapping[str, Path]) -> None:
        """Take over what earlier sessions left; new units must have the same columns."""
        self.finished = dict(finished)
        self._failures = {path.stem for path in self.store.failed.glob("*.json")}
        if finished:
            schema = pq.read_schema(next(iter(finished.values())))
            self._columns = describe_columns(schema)

    def _failure_path(self, identifier: str) -> Path:
        return self.store.failed / f"{identifier}.json"

    def _write(self, path: Path, payload: bytes) -> None:
        """Write a file; one lost in a power cut is noticed by its checksum and computed again."""
        with self._explained(path), whole_file(path, self._temporary) as file:
            file.write(payload)

    @contextmanager
    def _explained(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                error.errno,
                f"cannot write {path}: {error.strerror}; the {len(self.finished)} finished unit(s) "
                "are kept",
            ) from error


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


@cache
def environment() -> dict[str, Any]:
    """Versions of the packages behind the numbers, the commit of a checkout, the machine."""
    return {
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "commit": _commit(),
        "machine": {
            "name": platform.node(),
            "processor": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
    }


def _commit() -> str | None:
    """The commit of the checkout this package runs from, `-dirty` if changed; None if installed."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    described = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or None
