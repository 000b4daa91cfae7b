"""A sweep starts or resumes: its folder is opened alone, checked, and written whole or not at all.

Units whose tables are there, whole, are not computed again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from deeplin.environment import environment
from deeplin.errors import InputError
from deeplin.files import whole_file
from deeplin.sweep.config import precision, to_plain
from deeplin.sweep.experiment import Experiment, Unit
from deeplin.sweep.store import FORMAT, DamagedManifest, Store, checksum, seal
from deeplin.sweep.tasks import Result, describe_columns

LOCK_SECONDS = 120
"""How long to wait for another process that is just opening the folder."""


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
        """Return the shard written as `i/N`."""
        index, _, count = text.partition("/")
        if not (index.strip().isdigit() and count.strip().isdigit()):
            raise InputError(f"shard is {text!r}; pass i/N, for example 1/4.")
        return cls(int(index), int(count))

    @property
    def name(self) -> str:
        """For file names."""
        return f"{self.index}-of-{self.count}"

    def select(self, units: Mapping[str, Unit]) -> dict[str, Unit]:
        """Return the units of this shard."""
        return dict(list(units.items())[self.index - 1 :: self.count])


class Session:
    """An open folder: what is finished in it, and how to keep what comes."""

    def __init__(self, store: Store, shard: Shard, units: Mapping[str, Unit]):
        self.store, self.shard, self.units = store, shard, units
        self.set_aside: dict[str, str] = {}
        self.finished: set[str] = set()
        self._columns = ""
        self._name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{os.getpid()}-{shard.name}"

    def keep(self, result: Result) -> str:
        """Keep a result; return the error of a failed unit, or an empty string."""
        unit, error, trace = result.identifier, result.error, result.trace
        if not error and self._columns not in ("", result.columns):
            error = trace = (
                f"its columns ({result.columns}) differ from those of the other units "
                f"({self._columns})"
            )
        record = self.store.failed / f"{unit}.json"
        with self._explained():
            if error:
                coordinates = self.units[unit].coordinates
                failure = {"unit": unit, "coordinates": coordinates, "error": error, "trace": trace}
                self._write_json(record, failure | {"session": self._name})
            else:
                name = f"{unit}.{checksum(unit, result.payload)}.parquet"
                self._write(self.store.units / name, result.payload)
                self.finished.add(unit)
                self._columns = result.columns
                record.unlink(missing_ok=True)
            self._note(
                unit=unit,
                outcome="failed" if error else "finished",
                seconds=round(result.seconds, 6),
                machine=result.machine,
            )
        return error

    def begin(self, experiment: Experiment, manifest: dict[str, Any], others: list[str]) -> None:
        """Check the sweep against what is there, set doubtful files aside, write the manifest."""
        store, mine, earlier = self.store, set(self.units), None
        with self._explained():
            try:
                earlier = store.find_manifest()
            except DamagedManifest as error:
                self._move_aside(store.manifest_path, str(error))
            theirs = earlier["units"] if earlier else []
            finished, suspect = store.inventory(frozenset(mine.union(theirs)))
            if earlier:
                more = [unit for unit in theirs if unit in finished and unit not in mine]
                clash = bool(others) and set(theirs) != mine
                _check_same(store, experiment, manifest, earlier, len(more), clash)
                manifest["units"] += more
            for path, reason in suspect.items():
                self._move_aside(path, reason)
            for path in list(finished.values())[:1]:
                self._columns = describe_columns(pq.read_schema(path))
            self.finished = set(finished)
            started = datetime.now(UTC).isoformat(timespec="seconds")
            who = {"process": os.getpid(), "shard": self.shard.name, "dtype": manifest["dtype"]}
            self._note(started=started, **who, **environment())
            self._write_json(store.manifest_path, {**manifest, "seal": seal(manifest)})

    def _note(self, **line: Any) -> None:
        """Add a line to the journal of this session."""
        with (self.store.sessions / f"{self._name}.jsonl").open("ab", buffering=0) as journal:
            journal.write((json.dumps(line, ensure_ascii=False) + "\n").encode())

    def _move_aside(self, path: Path, reason: str) -> None:
        """Take a file that is not to be trusted out of the readers' way, and report it."""
        path.rename(self.store.aside / f"{path.name}.{self._name}")
        self.set_aside[path.name] = reason

    def _write_json(self, path: Path, value: Any) -> None:
        self._write(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())

    def _write(self, path: Path, payload: bytes) -> None:
        """Write a file; one lost in a power cut is noticed by its checksum and computed again."""
        with whole_file(path, self.store.temporary) as file:
            file.write(payload)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                error.errno,
                f"cannot write {error.filename or self.store.folder}: {error.strerror}; the "
                f"{len(self.finished)} finished unit(s) are kept",
            ) from error


@contextmanager
def open_session(
    folder: str | os.PathLike,
    experiment: Experiment,
    config: Any,
    units: Mapping[str, Unit],
    shard: Shard,
) -> Iterator[Session]:
    """Open the folder for one shard of a sweep; work that overlaps a running one is refused."""
    store, plain = Store(folder), to_plain(config)
    manifest = {
        "format": FORMAT,
        "experiment": experiment.name,
        "schema": experiment.schema,
        "dtype": precision(),
        "seed": plain.get("seed"),
        "config": plain,
        "units": list(units),
    }
    _make_folders(store)
    session = Session(store, shard, units)
    with ExitStack() as held:  # the system releases the locks of a killed process
        try:
            with FileLock(store.locks / "opening.lock", timeout=LOCK_SECONDS):
                others = _claim(store, shard, held)
                session.begin(experiment, manifest, others)
        except Timeout as error:
            raise InputError(
                f"another process has been opening {folder} for {LOCK_SECONDS} s; try again."
            ) from error
        yield session


def _make_folders(store: Store) -> None:
    folders = (store.units, store.failed, store.aside, store.sessions, store.locks, store.temporary)
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write in {store.folder}: {error.strerror}; pass a folder you may write in."
        ) from error
    if not all(os.access(folder, os.W_OK) for folder in folders):
        raise InputError(f"{store.folder} is read-only; pass a folder you may write in.")


def _claim(store: Store, shard: Shard, held: ExitStack) -> list[str]:
    """Take the lock of this shard; return the other shards at work."""
    running = store.running()
    for name in running:
        if name == shard.name or not name.endswith(f"-of-{shard.count}"):
            raise InputError(
                f"another process is sweeping into {store.folder} (shard {name}, "
                f"{_holder(store, name)}); wait for it, or pass another folder."
            )
    held.enter_context(FileLock(store.locks / f"{shard.name}.lock", timeout=LOCK_SECONDS))
    if not running:  # what a process that was killed while writing has left
        for path in store.temporary.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return running


def _holder(store: Store, shard: str) -> str:
    try:
        last = [line for line in store.journal() if line.get("shard") == shard][-1]
        return f"process {last['process']} on {last['machine']['name']} since {last['started']}"
    except (LookupError, TypeError):  # before its first line, or the line is damaged
        return "just starting"


def _check_same(
    store: Store,
    experiment: Experiment,
    mine: dict[str, Any],
    earlier: dict[str, Any],
    more: int,
    clash: bool,
) -> None:
    """Refuse a folder of another sweep.

    `more` of its finished units are not requested now; `clash`: a process at work has other units.
    """
    for name in ("experiment", "schema", "dtype"):
        if earlier[name] != mine[name]:
            raise InputError(
                f"{store.folder} holds a sweep with {name} {earlier[name]}, not {mine[name]}; "
                "pass another folder."
            )
    new, old = mine["config"], earlier["config"]
    changed = {name for name in new.keys() | old if new.get(name) != old.get(name)}
    subset = experiment.subsets and changed <= set(experiment.grid)
    if clash or (more and not subset):
        differences = ", ".join(_differences(new, old)) or "the content of the data"
        raise InputError(
            f"{store.folder} holds a sweep with another config (different: {differences}), and "
            f"{more} finished unit(s) do not belong to this one; pass another folder."
        )


def _differences(new: Any, old: Any) -> list[str]:
    """Return the names of fields that differ, of those inside a field that is a mapping itself."""
    changed = sorted(name for name in new.keys() | old if new.get(name) != old.get(name))
    found = []
    for name in changed:
        inner = new.get(name), old.get(name)
        found += _differences(*inner) if all(isinstance(it, dict) for it in inner) else [name]
    return found
