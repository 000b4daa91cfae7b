"""The folder of a sweep: one Parquet file for each finished unit, none for any other.

```
units/<unit>.<checksum>.parquet   the tidy table, in pieces
_manifest.json                    experiment, config, seed, dtype, unit ids
_sessions/<session>.jsonl         who computed what, where, with which versions, in what time
_failed/<unit>.json               traceback of a unit that raised; gone once it succeeds
_aside/                           files that were found here and not trusted
_locks/, _temporary/              of running sweeps
```

A file is written under a temporary name and renamed, so it is there entirely or not at all. Its
name carries a checksum over its unit and its bytes: a damaged, renamed or foreign file is noticed
without trusting anything inside it, and the same unit computed twice has the same name, so that
folders can be merged by copying. Readers such as pandas skip names with a leading underscore.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from deeplin.errors import InputError
from deeplin.files import environment, whole_file
from deeplin.sweep.executors import Result, describe_columns
from deeplin.sweep.experiment import Experiment, Unit, precision, to_plain

FORMAT = 1


class StoreError(OSError):
    """A sweep had to stop because its folder cannot be written; what was finished is kept."""


class DamagedManifest(InputError):
    """The manifest cannot be read; the unit files beside it can still be trusted."""


class Store:
    """Read access to the folder of a sweep, finished or not; changes nothing."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.units, self.manifest_path = self.folder / "units", self.folder / "_manifest.json"
        names = ("failed", "aside", "sessions", "locks", "temporary")
        self.failed, self.aside, self.sessions, self.locks, self.temporary = (
            self.folder / f"_{name}" for name in names
        )

    @property
    def manifest(self) -> dict[str, Any]:
        """Experiment, config, precision and unit ids of the folder."""
        found = self.find_manifest()
        if found is None:
            raise InputError(
                f"{self.folder} holds no sweep; pass a folder made by `deeplin sweep`."
            )
        return found

    def find_manifest(self) -> dict[str, Any] | None:
        """Return the manifest, or None where there is none; a damaged one is an error."""
        try:
            manifest = _parse(self.manifest_path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        version = manifest.get("format")
        if isinstance(version, int) and version > FORMAT:
            raise InputError(
                f"{self.manifest_path} has format {version}, this version of deeplin knows "
                f"{FORMAT}; use the version that wrote it, or remove this file if none did."
            )
        if manifest.pop("seal", None) != _seal(manifest):
            raise DamagedManifest(
                f"{self.manifest_path} is damaged, or was changed since it was written. The call "
                "or command of the sweep makes it again; finished units are kept."
            )
        return manifest

    def inventory(
        self, known: frozenset[str] | None = None
    ) -> tuple[dict[str, Path], dict[Path, str]]:
        """Check every unit file: return those to trust, by unit, and the others with the reason.

        `known` are the ids that belong here, by default those of the manifest.
        """
        known = frozenset(self.manifest["units"]) if known is None else known
        finished, suspect = {}, {}
        for path in sorted(self.units.iterdir()) if self.units.is_dir() else ():
            unit, _, rest = path.name.partition(".")
            mark, _, suffix = rest.partition(".")
            if suffix != "parquet" or not path.is_file():
                suspect[path] = "not a unit file"
            elif unit not in known:
                suspect[path] = "a unit of another sweep"
            elif _checksum(unit, path.read_bytes()) != mark:
                suspect[path] = "damaged: its bytes do not match its checksum"
            elif unit in finished:
                suspect[path] = "repeats a unit that is finished already"
            else:
                finished[unit] = path
        return finished, suspect

    def table(self, units: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the rows of the finished units among `units`, by default all, in their order."""
        order = self.manifest["units"] if units is None else units
        finished, _ = self.inventory(frozenset(order))
        # `pq.read_table` takes six times as long for a small file.
        tables = [
            pq.ParquetFile(pa.BufferReader(finished[unit].read_bytes())).read(use_threads=False)
            for unit in order
            if unit in finished
        ]
        if not tables:
            return pd.DataFrame()
        return pa.concat_tables([table.replace_schema_metadata() for table in tables]).to_pandas()

    def failures(self) -> list[dict[str, Any]]:
        """Return unit, coordinates, error and trace of each recorded failure."""
        damaged = {"coordinates": {}, "error": "the record of its failure is damaged", "trace": ""}
        found = []
        for path in sorted(self.failed.glob("*.json")):
            with suppress(FileNotFoundError):  # it succeeds at this moment
                found.append(damaged | _parse(path.read_bytes()) | {"unit": path.stem})
        return found

    def journal(self) -> Iterator[dict[str, Any]]:
        """Yield every line of every session: its header, then one line for each unit.

        A line that makes no sense is left out: a process that was killed, or found the disk full,
        leaves half a line. Nothing depends on the journal.
        """
        for path in sorted(self.sessions.glob("*.jsonl")):
            with suppress(OSError):
                for line in map(_parse, path.read_bytes().splitlines()):
                    of_unit = (
                        line.get("outcome") in ("finished", "failed")
                        and isinstance(line.get("unit"), str)
                        and isinstance(line.get("seconds"), float)
                        and line["seconds"] >= 0  # and so no NaN
                    )
                    if line and ("outcome" not in line or of_unit):
                        yield line | {"session": path.stem}

    def running(self) -> list[str]:
        """Return the shards that a living process is working on, as `i-of-N`."""
        found = []
        for path in sorted(self.locks.glob("*-of-*.lock")):
            try:
                if os.access(path, os.W_OK):
                    FileLock(path).acquire(timeout=0).lock.release()
            except Timeout:
                found.append(path.stem)
        return found


def read_table(folder: str | os.PathLike) -> pd.DataFrame:
    """Read one tidy table of all finished units of a sweep's folder.

    ```python
    import deeplin as dl
    from deeplin.sweep.descent import DESCENT, DescentSweep
    config = DescentSweep(scales=(0.2,), learning_rates=(0.02,), repetitions=2, steps=100)
    dl.sweep.run(DESCENT, config, "results/mine")
    table = dl.sweep.read_table("results/mine")
    ```
    """
    return Store(folder).table()


@dataclass(frozen=True)
class Status:
    """How much of a sweep is finished, what failed, what is not to be trusted, who is at work."""

    folder: str
    experiment: str
    units: int
    finished: int
    failures: list[dict[str, Any]]
    """Of units that are not finished."""
    suspect: dict[str, str]
    """Files that the next call will set aside, with the reason."""
    set_aside: int
    """Files that earlier calls have set aside."""
    running: list[str]
    sessions: int
    unit_seconds: float
    """Time spent on units, all sessions and workers together."""

    @property
    def complete(self) -> bool:
        """Whether every unit is finished."""
        return self.finished == self.units

    @property
    def healthy(self) -> bool:
        """Whether nothing failed and every file can be trusted."""
        return not self.failures and not self.suspect


def status(folder: str | os.PathLike) -> Status:
    """Inspect the folder of a sweep; changes nothing, also while it is being computed.

    ```python
    import deeplin as dl
    from deeplin.sweep.descent import DESCENT, DescentSweep
    config = DescentSweep(scales=(0.2,), learning_rates=(0.02,), repetitions=2, steps=100)
    dl.sweep.run(DESCENT, config, "results/mine")
    assert dl.sweep.status("results/mine").complete
    ```
    """
    store = Store(folder)
    manifest, (finished, suspect), journal = store.manifest, store.inventory(), [*store.journal()]
    unfinished = set(manifest["units"]) - set(finished)
    return Status(
        folder=str(store.folder),
        experiment=manifest["experiment"],
        units=len(manifest["units"]),
        finished=len(finished),
        failures=[failure for failure in store.failures() if failure["unit"] in unfinished],
        suspect={path.name: reason for path, reason in suspect.items()},
        set_aside=sum(1 for _ in store.aside.glob("*")),
        running=store.running(),
        sessions=len({line["session"] for line in journal}),
        unit_seconds=sum(line["seconds"] for line in journal if "outcome" in line),
    )


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
    """A folder in which one shard of a sweep is computed: what is finished, and how to keep more.

    Units whose tables are there, whole, are not computed again.
    """

    def __init__(self, folder: str | os.PathLike, shard: Shard, units: Mapping[str, Unit]):
        self.store, self.shard, self.units = Store(folder), shard, units
        self.set_aside: dict[str, str] = {}
        self.finished: set[str] = set()
        self._columns = ""
        self._name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{os.getpid()}-{shard.name}"
        self._temporary = self.store.temporary / shard.name

    @contextmanager
    def open(self, experiment: Experiment, config: Any) -> Iterator[None]:
        """Work in the folder, alone: work that overlaps a running one is refused."""
        store, shard = self.store, self.shard
        folders = (store.units, store.failed, store.aside, store.sessions, store.locks)
        try:
            for folder in (*folders, store.temporary):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot write in {store.folder}: {error.strerror}; pass a folder you may write in."
            ) from error
        if not all(os.access(folder, os.W_OK) for folder in folders):
            raise InputError(f"{store.folder} is read-only; pass a folder you may write in.")
        running = store.running()
        for name in running:
            if name == shard.name or not name.endswith(f"-of-{shard.count}"):
                raise InputError(
                    f"another process is sweeping into {store.folder} (shard {name}, "
                    f"{self._holder(name)}); wait for it, or pass another folder."
                )
        with FileLock(store.locks / f"{shard.name}.lock"):  # released when the process is killed
            shutil.rmtree(self._temporary, ignore_errors=True)  # of one that was killed
            try:
                with self._explained():
                    self._temporary.mkdir()
                    self._begin(experiment, to_plain(config), bool(running))
                yield
            finally:
                shutil.rmtree(self._temporary, ignore_errors=True)

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
                name = f"{unit}.{_checksum(unit, result.payload)}.parquet"
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

    def _begin(self, experiment: Experiment, config: dict[str, Any], others: bool) -> None:
        """Check the sweep against what is there, set doubtful files aside, write the manifest.

        `others`: another shard is at work.
        """
        store, earlier = self.store, None
        try:
            earlier = store.find_manifest()
        except DamagedManifest as error:
            self._move_aside(store.manifest_path, str(error))
        theirs = earlier["units"] if earlier else []
        finished, suspect = store.inventory(frozenset(self.units) | frozenset(theirs))
        more = [unit for unit in theirs if unit not in self.units and (unit in finished or others)]
        manifest = {
            "format": FORMAT,
            "experiment": experiment.name,
            "schema": experiment.schema,
            "dtype": precision(),
            "seed": config.get("seed"),
            "config": config,
            "units": [*self.units, *more],
        }
        if earlier:
            _check_same(store, experiment, manifest, earlier, len(more))
        for path, reason in suspect.items():
            self._move_aside(path, reason)
        for path in list(finished.values())[:1]:
            self._columns = describe_columns(pq.read_schema(path))
        self.finished = set(finished)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        who = {"process": os.getpid(), "shard": self.shard.name, "dtype": manifest["dtype"]}
        self._note(started=started, **who, **environment())
        self._write_json(store.manifest_path, {**manifest, "seal": _seal(manifest)})

    def _holder(self, shard: str) -> str:
        """Return which process works on a shard, since when."""
        try:
            last = [line for line in self.store.journal() if line.get("shard") == shard][-1]
            return f"process {last['process']} on {last['machine']['name']} since {last['started']}"
        except (LookupError, TypeError):  # before its first line, or the line is damaged
            return "just starting"

    def _note(self, **line: Any) -> None:
        """Add a line to the journal of this session."""
        with (self.store.sessions / f"{self._name}.jsonl").open("ab", buffering=0) as journal:
            journal.write((json.dumps(line, ensure_ascii=False) + "\n").encode())

    def _move_aside(self, path: Path, reason: str) -> None:
        """Take a file that is not to be trusted out of the readers' way, and report it."""
        with suppress(FileNotFoundError):  # another shard that is just starting has done it
            path.rename(self.store.aside / f"{path.name}.{self._name}")
        self.set_aside[path.name] = reason

    def _write_json(self, path: Path, value: Any) -> None:
        self._write(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())

    def _write(self, path: Path, payload: bytes) -> None:
        """Write a file; one lost in a power cut is noticed by its checksum and computed again."""
        with whole_file(path, self._temporary) as file:
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


def _check_same(
    store: Store,
    experiment: Experiment,
    mine: dict[str, Any],
    earlier: dict[str, Any],
    more: int,
) -> None:
    """Refuse a folder of another sweep; `more` of its units are not requested now."""
    for name in ("experiment", "schema", "dtype"):
        if earlier[name] != mine[name]:
            raise InputError(
                f"{store.folder} holds a sweep with {name} {earlier[name]}, not {mine[name]}; "
                "pass another folder."
            )
    new, old = mine["config"], earlier["config"]
    changed = {name for name in new.keys() | old if new.get(name) != old.get(name)}
    subset = experiment.subsets and changed <= set(experiment.grid)
    if more and not subset:
        differences = ", ".join(_differences(new, old)) or "the content of the data"
        raise InputError(
            f"{store.folder} holds a sweep with another config (different: {differences}), and "
            f"{more} of its unit(s) do not belong to this one; pass another folder."
        )


def _differences(new: Any, old: Any) -> list[str]:
    """Return the names of fields that differ, of those inside a field that is a mapping itself."""
    changed = sorted(name for name in new.keys() | old if new.get(name) != old.get(name))
    found = []
    for name in changed:
        inner = new.get(name), old.get(name)
        found += _differences(*inner) if all(isinstance(it, dict) for it in inner) else [name]
    return found


def _checksum(identifier: str, payload: bytes) -> str:
    """Return a hash over a unit's id and its file's bytes."""
    return hashlib.blake2b(identifier.encode() + payload, digest_size=12).hexdigest()


def _seal(manifest: Mapping[str, Any]) -> str:
    """Return a hash over a manifest, by which a damaged one is noticed."""
    return _checksum("", json.dumps(manifest, sort_keys=True).encode())


def _parse(text: bytes) -> dict[str, Any]:
    """Return the JSON object that `text` is; an empty one if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
