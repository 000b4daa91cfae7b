"""A sweep starts or resumes: its folder is opened alone, checked, and written whole or not at all.

Units whose tables are there, whole, are not computed again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from deeplin.errors import InputError
from deeplin.files import whole_file
from deeplin.sweep.config import precision, to_plain
from deeplin.sweep.experiment import Experiment, Unit
from deeplin.sweep.store import FORMAT, OUTCOMES, DamagedManifest, Failure, Store, checksum, seal
from deeplin.sweep.tasks import Result, describe_columns

LOCK_SECONDS = 120
"""How long to wait for another process that is just opening the folder."""
PACKAGES = ("deeplin", "jax", "jaxlib", "numpy", "pandas", "pyarrow", "scipy")
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
        self.finished: dict[str, Path] = {}
        self._columns: str | None = None
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        self.identifier = f"{stamp}-{os.getpid()}-{shard.name}"

    def keep(self, result: Result) -> str:
        """Keep a result; return the error of a failed unit, or an empty string."""
        unit, error, trace = result.identifier, result.error, result.trace
        if result.payload is not None and self._columns not in (None, result.columns):
            error = trace = (
                f"its columns ({result.columns}) differ from those of the other units "
                f"({self._columns})"
            )
        record = self.store.failed / f"{unit}.json"
        if error or result.payload is None:
            coordinates = self.units[unit].coordinates
            failed = Failure(
                unit=unit,
                coordinates=dict(coordinates),
                error=error,
                trace=trace,
                session=self.identifier,
            )
            self._write(record, _json_bytes(failed))
        else:
            name = f"{unit}.{checksum(unit, result.payload)}.parquet"
            self._write(self.store.units / name, result.payload)
            self.finished[unit] = self.store.units / name
            self._columns = result.columns
            with self._explained(record):
                record.unlink(missing_ok=True)
        self.note(
            unit=unit,
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
        """Replace the manifest; it summarizes all sessions so far."""
        whole = {**manifest, "sessions": _summaries(self.store)}
        self._write(self.store.manifest_path, _json_bytes({**whole, "seal": seal(whole)}))

    def move_aside(self, path: Path, reason: str) -> None:
        """Take a file that is not to be trusted out of the readers' way, and report it."""
        with self._explained(path):
            path.rename(self.store.aside / f"{path.name}.{self.identifier}")
        self.set_aside[path.name] = reason

    def adopt(self, finished: Mapping[str, Path]) -> None:
        """Take over what earlier sessions finished; new units must have the same columns."""
        self.finished = dict(finished)
        for path in list(finished.values())[:1]:
            self._columns = describe_columns(pq.read_schema(path))

    def _write(self, path: Path, payload: bytes) -> None:
        """Write a file; one lost in a power cut is noticed by its checksum and computed again."""
        temporary = self.store.temporary / self.shard.name
        with self._explained(path), whole_file(path, temporary) as file:
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
        "reference": experiment.reference,
        "schema": experiment.schema,
        "dtype": precision(),
        "seed": plain.get("seed"),
        "config": plain,
        "units": list(units),
    }
    _make_folders(store)
    session, started = Session(store, shard, units), time.perf_counter()
    with ExitStack() as locks:
        with _alone(store):
            others = _claim(store, shard, locks)
            _prepare(session, experiment, manifest, others)
        yield session
        session.note(ended=_now(), seconds=round(time.perf_counter() - started, 3))
        with _alone(store):
            session.write_manifest(manifest)


def _make_folders(store: Store) -> None:
    try:
        for folder in (store.units, store.failed, store.aside, store.sessions, store.locks):
            folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(store.units, os.W_OK) and os.access(store.sessions, os.W_OK)
    except OSError as error:
        raise InputError(
            f"cannot write in {store.folder}: {error.strerror}; pass a folder you may write in."
        ) from error
    if not writable:
        raise InputError(f"{store.folder} is read-only; pass a folder you may write in.")


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    """Open or close a folder as the only process that does."""
    try:
        with FileLock(store.locks / "gate.lock", timeout=LOCK_SECONDS):
            yield
    except Timeout as error:
        raise InputError(
            f"another process has been opening {store.folder} for {LOCK_SECONDS} s; try again."
        ) from error


def _claim(store: Store, shard: Shard, locks: ExitStack) -> list[str]:
    """Take the lock of this shard; return the other shards at work.

    The system releases the lock of a killed process.
    """
    running = store.running()
    for name in running:
        if name == shard.name or not name.endswith(f"-of-{shard.count}"):
            raise InputError(
                f"another process is sweeping into {store.folder} (shard {name}, "
                f"{_holder(store, name)}); wait for it, or pass another folder."
            )
    for folder in store.temporary.glob("*-of-*"):
        if folder.name not in running:
            shutil.rmtree(folder)  # left by a process that was killed while writing
    locks.enter_context(FileLock(store.locks / f"{shard.name}.lock", timeout=LOCK_SECONDS))
    (store.temporary / shard.name).mkdir(parents=True)
    locks.callback(shutil.rmtree, store.temporary / shard.name, ignore_errors=True)
    return running


def _holder(store: Store, shard: str) -> str:
    try:
        last = [line for line in store.journal() if line.get("shard") == shard][-1]
        return f"process {last['process']} on {last['machine']['name']} since {last['started']}"
    except (LookupError, TypeError):  # before its first line, or the line is damaged
        return "just starting"


def _prepare(
    session: Session, experiment: Experiment, manifest: dict[str, Any], others: list[str]
) -> None:
    """Check the sweep against what is there, set doubtful files aside, write the manifest."""
    store, mine = session.store, set(session.units)
    try:
        earlier = store.find_manifest()
    except DamagedManifest as error:
        session.move_aside(store.manifest_path, str(error))
        earlier = None
    theirs = earlier["units"] if earlier else []
    finished, suspect = store.inventory(frozenset(mine.union(theirs)))
    if earlier:
        more = [unit for unit in theirs if unit in finished and unit not in mine]
        _check_same(store, experiment, manifest, earlier, len(more))
        if others and set(theirs) != mine:
            raise _another_config(store, manifest, earlier, len(more))
        manifest["units"] += more
    for path, reason in suspect.items():
        session.move_aside(path, reason)
    session.adopt(finished)
    who = {"process": os.getpid(), "shard": session.shard.name, "dtype": manifest["dtype"]}
    session.note(started=_now(), **who, **environment())
    session.write_manifest(manifest)


def _check_same(
    store: Store, experiment: Experiment, mine: dict[str, Any], earlier: dict[str, Any], more: int
) -> None:
    """Refuse a folder of another sweep; `more` of its finished units are not requested now."""
    for name in ("experiment", "schema", "dtype"):
        if earlier[name] != mine[name]:
            raise InputError(
                f"{store.folder} holds a sweep with {name} {earlier[name]}, not {mine[name]}; "
                "pass another folder."
            )
    meaning = [
        {name: value for name, value in manifest["config"].items() if name not in experiment.grid}
        for manifest in (mine, earlier)
    ]
    if more and not (experiment.subsets and meaning[0] == meaning[1]):
        raise _another_config(store, mine, earlier, more)


def _another_config(
    store: Store, mine: dict[str, Any], earlier: dict[str, Any], more: int
) -> InputError:
    changed = _differences(mine["config"], earlier["config"])
    return InputError(
        f"{store.folder} holds a sweep with another config (different: "
        f"{', '.join(changed) or 'the content of the data'}), and {more} finished unit(s) do not "
        "belong to this one; pass another folder."
    )


def _differences(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Names of the fields that differ; of a field that holds texts by name, the names in it."""
    listed = []
    for name in sorted(name for name in new.keys() | old if new.get(name) != old.get(name)):
        entries = [*_values(new.get(name)), *_values(old.get(name))]
        texts = entries and all(isinstance(entry, str) for entry in entries)
        listed += _differences(new[name], old[name]) if texts else [name]
    return listed


def _values(field: Any) -> list:
    return list(field.values()) if isinstance(field, dict) else [None]


def _summaries(store: Store) -> dict[str, dict[str, Any]]:
    """Every session so far: its header, how many units ended how, and the time they took."""
    found: dict[str, dict[str, Any]] = {}
    counts, seconds = Counter(), Counter()
    for line in store.journal():
        name = line.pop("session")
        found.setdefault(name, {})
        if "outcome" in line:
            counts[name, line["outcome"]] += 1
            seconds[name] += line["seconds"]
        else:
            found[name] |= line
    return {
        name: header
        | {outcome: counts[name, outcome] for outcome in OUTCOMES}
        | {"unit_seconds": round(seconds[name], 6)}
        for name, header in found.items()
    }


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def environment() -> dict[str, Any]:
    """Return versions of the packages behind the numbers, the commit of a checkout, the machine."""
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
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    found = subprocess.run(
        [*command, "--exclude=*"], capture_output=True, encoding="utf-8", check=False
    )
    return found.stdout.strip() or None
