"""The folder of a sweep: one Parquet file for each finished unit, none for any other.

```
units/<unit>.<checksum>.parquet   the tidy table, in pieces
_manifest.json                    experiment, config, seed, dtype, unit ids
_sessions/<session>.jsonl         who computed what, where, with which versions, in what time
_failed/<unit>.json               traceback of a unit that raised; gone once it succeeds
_locks/, _temporary/              of running sweeps
```

Files are written atomically, under a temporary name and then renamed. The name contains a checksum
of its unit and its bytes: a damaged or renamed file is detected without trusting its content, and
its unit is computed again; files of other sweeps are not read. The same unit computed twice has the
same name, so that folders can be merged by copying. Readers such as pandas skip names with a
leading underscore.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from deeplin.errors import InputError
from deeplin.execution import check_interrupt, interruptible
from deeplin.files import environment, whole_file
from deeplin.sweep.executors import Executor, InProcess, Result, Task, describe_columns
from deeplin.sweep.experiment import Experiment, Unit, precision, to_plain
from deeplin.sweep.progress import Progress

FORMAT = 1


class StoreError(OSError):
    """Raised when the folder of a sweep cannot be written; finished units are kept."""


class DamagedManifest(InputError):
    """Raised when the manifest cannot be read; the unit files can still be trusted."""


class Store:
    """Read-only access to the folder of a sweep, finished or not."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.units, self.manifest_path = self.folder / "units", self.folder / "_manifest.json"
        self.failed, self.sessions, self.locks, self.temporary = (
            self.folder / f"_{name}" for name in ("failed", "sessions", "locks", "temporary")
        )

    @property
    def manifest(self) -> dict[str, Any]:
        """Experiment, config, precision and unit ids of the folder."""
        try:
            manifest = _parse(self.manifest_path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(
                f"{self.folder} holds no sweep; pass a folder made by `deeplin sweep`."
            ) from None
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

    def inventory(self, units: Iterable[str]) -> tuple[dict[str, Path], list[Path]]:
        """Return the files of those of these units that are finished, and files that are damaged.

        Files of other sweeps, and any other files, are ignored.
        """
        known, finished, damaged = frozenset(units), {}, []
        for path in sorted(self.units.glob("*.parquet")):
            unit, _, mark = path.stem.partition(".")
            if unit in known and _checksum(unit, path.read_bytes()) == mark:
                finished.setdefault(unit, path)
            elif unit in known:
                damaged.append(path)
        return finished, damaged

    def table(self, units: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the rows of the finished units among `units`, by default all, in their order."""
        order = self.manifest["units"] if units is None else units
        finished, _ = self.inventory(order)
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
            with suppress(FileNotFoundError):  # the unit has just succeeded
                found.append(damaged | _parse(path.read_bytes()) | {"unit": path.stem})
        return found

    def journal(self) -> Iterator[dict[str, Any]]:
        """Yield every line of every session: its header, then one line for each unit.

        Invalid lines are skipped: a process that was killed, or found the disk full, leaves an
        incomplete line. Nothing depends on the journal.
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
    """Status of a sweep: finished units, failures, damaged files, running processes."""

    folder: str
    experiment: str
    units: int
    finished: int
    failures: list[dict[str, Any]]
    """Failures of units that are not finished."""
    damaged: list[str]
    """Files whose bytes do not match their checksum; the next call computes their units again."""
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
        """Whether nothing failed and no file is damaged."""
        return not self.failures and not self.damaged


def status(folder: str | os.PathLike) -> Status:
    """Return the status of a sweep's folder, also while it is being computed.

    ```python
    import deeplin as dl
    from deeplin.sweep.descent import DESCENT, DescentSweep
    config = DescentSweep(scales=(0.2,), learning_rates=(0.02,), repetitions=2, steps=100)
    dl.sweep.run(DESCENT, config, "results/mine")
    assert dl.sweep.status("results/mine").complete
    ```
    """
    store = Store(folder)
    manifest, journal = store.manifest, list(store.journal())
    finished, damaged = store.inventory(manifest["units"])
    unfinished = set(manifest["units"]) - set(finished)
    return Status(
        folder=str(store.folder),
        experiment=manifest["experiment"],
        units=len(manifest["units"]),
        finished=len(finished),
        failures=[failure for failure in store.failures() if failure["unit"] in unfinished],
        damaged=[path.name for path in damaged],
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
        numbers = re.fullmatch(r"(\d+)/(\d+)", text)
        if not numbers:
            raise InputError(f"shard is {text!r}; pass i/N, for example 1/4.")
        return cls(*map(int, numbers.groups()))

    @property
    def name(self) -> str:
        """Name for files."""
        return f"{self.index}-of-{self.count}"

    def select(self, units: Mapping[str, Unit]) -> dict[str, Unit]:
        """Return the units of this shard."""
        return dict(list(units.items())[self.index - 1 :: self.count])


@dataclass(frozen=True)
class Outcome:
    """Outcome of a call of `run`; `table()` has the rows of its units, also of earlier calls."""

    store: Store
    units: Sequence[str]
    """Ids of all units of the config, in its order."""
    reused: int
    """Units that were finished before."""
    computed: int
    """Units finished by this call."""
    failed: Mapping[str, str]
    """Units that raised, with their error; the next call tries them again."""
    damaged: Sequence[str]
    """Files that were damaged and computed again."""
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether no unit of this call failed."""
        return not self.failed

    @property
    def set_aside(self) -> Sequence[str]:
        """The name of `damaged` in version 0.2."""
        warnings.warn("set_aside is now called damaged", DeprecationWarning, stacklevel=2)
        return self.damaged

    def table(self) -> pd.DataFrame:
        """Return one tidy table of all finished units, in the order of the config."""
        return self.store.table(self.units)


class UnitsFailed(RuntimeError):
    """Raised when all units failed with the same error, due to the experiment or the config."""

    def __init__(self, outcome: Outcome):
        self.outcome = outcome
        unit, error = next(iter(outcome.failed.items()))
        super().__init__(
            f"all {len(outcome.failed)} units failed alike: {error} (traceback in "
            f"{outcome.store.failed / unit}.json)"
        )


@interruptible
def run(
    experiment: Experiment,
    config: Any,
    folder: str | os.PathLike,
    *,
    executor: Executor | None = None,
    shard: Shard | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Compute the missing units of a sweep in `folder`; the call can be interrupted and repeated.

    Finished units are never computed again, a unit that raises is recorded with its traceback and
    tried again by the next call, and the table does not depend on the executor. If all units fail
    with the same error, `UnitsFailed` is raised.

    ```python
    import deeplin as dl
    from deeplin.sweep.descent import DESCENT, DescentSweep

    config = DescentSweep(scales=(0.2, 0.4), learning_rates=(0.02, 0.1), repetitions=2, steps=100)
    outcome = dl.sweep.run(DESCENT, config, "results/mine")
    outcome.table()
    ```
    """
    if not isinstance(config, experiment.config):
        raise InputError(
            f"config is a {type(config).__name__}; experiment {experiment.name} takes a "
            f"{experiment.config.__name__}."
        )
    started, dtype, failed = time.perf_counter(), precision(), {}
    executor, shard, progress = executor or InProcess(), shard or Shard(), progress or Progress()
    units = experiment.identify(config, experiment.units(config), dtype)
    session = Session(folder, shard, units)
    with session.open(experiment, to_plain(config)):
        chosen = shard.select(units)
        missing = {name: unit for name, unit in chosen.items() if name not in session.finished}
        reused = len(chosen) - len(missing)
        tasks = [Task(name, experiment, config, unit, dtype) for name, unit in missing.items()]
        tasks.sort(key=lambda task: task.unit.bucket)  # a worker then compiles few shapes
        with (
            progress.over(missing, reused=reused, damaged=session.damaged),
            closing(executor.execute(tasks)) as results,
        ):
            for result in results:
                error = session.keep(result)
                failed |= {result.identifier: error} if error else {}
                progress.advance(result.identifier, error)
                check_interrupt()
    outcome = Outcome(
        session,
        list(units),
        reused=reused,
        computed=len(missing) - len(failed),
        failed=failed,
        damaged=session.damaged,
        seconds=time.perf_counter() - started,
    )
    # Is there one error for all, apart from numbers, and no finished unit?
    kinds = {re.sub(r"[\d.e+-]+", "", error) for error in failed.values()}
    if not reused and len(missing) == len(failed) > 1 == len(kinds):
        raise UnitsFailed(outcome)
    return outcome


class Session(Store):
    """Write access to the folder of a sweep for one shard.

    Units with an intact table are not computed again.
    """

    def __init__(self, folder: str | os.PathLike, shard: Shard, wanted: Mapping[str, Unit]):
        super().__init__(folder)
        self.shard, self.wanted = shard, wanted
        self.finished: set[str] = set()
        self.damaged: list[str] = []
        self._columns = ""
        self._name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{os.getpid()}-{shard.name}"
        self._temporary = self.temporary / shard.name

    @contextmanager
    def open(self, experiment: Experiment, config: dict[str, Any]) -> Iterator[None]:
        """Open the folder exclusively; raise InputError if another process works on the same
        shard."""
        try:
            for part in (self.units, self.failed, self.sessions, self.locks, self.temporary):
                part.mkdir(parents=True, exist_ok=True)
                if not os.access(part, os.W_OK):
                    raise PermissionError(errno.EROFS, "it is read-only")
        except OSError as error:
            raise InputError(
                f"cannot write in {self.folder}: {error.strerror}; pass a folder you may write in."
            ) from error
        running = self.running()
        for name in running:
            if name == self.shard.name or not name.endswith(f"-of-{self.shard.count}"):
                raise InputError(
                    f"another process is sweeping into {self.folder} (shard {name}, "
                    f"{self._holder(name)}); wait for it, or pass another folder."
                )
        with FileLock(self.locks / f"{self.shard.name}.lock"):  # released if the process is killed
            shutil.rmtree(self._temporary, ignore_errors=True)  # of one that was killed
            try:
                with self._explained():
                    self._temporary.mkdir()
                    self._begin(experiment, config, bool(running))
                yield
            finally:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def _begin(self, experiment: Experiment, config: dict[str, Any], others: bool) -> None:
        """Check the sweep against the folder, remove damaged files, write the manifest.

        `others` says whether another shard is running.
        """
        manifest = {
            "format": FORMAT,
            "experiment": experiment.name,
            "schema": experiment.schema,
            "dtype": precision(),
            "seed": config.get("seed"),
            "config": config,
            "units": list(self.wanted),
        }
        earlier = manifest
        if self.manifest_path.exists():
            try:
                earlier = self.manifest
            except DamagedManifest:
                self.damaged.append(self.manifest_path.name)
        theirs = [unit for unit in earlier["units"] if unit not in self.wanted]
        finished, damaged = self.inventory([*self.wanted, *theirs])
        theirs = [unit for unit in theirs if unit in finished or others]
        self._require_same(experiment, manifest, earlier, len(theirs))
        for path in damaged:
            path.unlink(missing_ok=True)  # another shard that is just starting may have done it
            self.damaged.append(path.name)
        for path in list(finished.values())[:1]:
            self._columns = describe_columns(pq.read_schema(path))
        self.finished = set(finished)
        manifest["units"] += theirs
        started = datetime.now(UTC).isoformat(timespec="seconds")
        who = {"process": os.getpid(), "shard": self.shard.name, "dtype": manifest["dtype"]}
        self._note(started=started, **who, **environment())
        self._write_json(self.manifest_path, {**manifest, "seal": _seal(manifest)})

    def _require_same(
        self, experiment: Experiment, mine: dict[str, Any], earlier: dict[str, Any], more: int
    ) -> None:
        """Raise InputError for a folder of another sweep; `more` is its number of other units."""
        for name in ("experiment", "schema", "dtype"):
            if earlier[name] != mine[name]:
                raise InputError(
                    f"{self.folder} holds a sweep with {name} {earlier[name]}, not {mine[name]}; "
                    "pass another folder."
                )
        changed = _differences(mine["config"], earlier["config"])
        if more and not (experiment.subsets and changed.keys() <= set(experiment.grid)):
            different = ", ".join(changed.values()) or "the content of the data"
            raise InputError(
                f"{self.folder} holds a sweep with another config (different: {different}), and "
                f"{more} of its unit(s) do not belong to this one; pass another folder."
            )

    def keep(self, result: Result) -> str:
        """Keep a result; return the error of a failed unit, or an empty string."""
        unit, error, trace = result.identifier, result.error, result.trace
        if not error and self._columns not in ("", result.columns):
            error = trace = (
                f"its columns ({result.columns}) differ from those of the other units "
                f"({self._columns})"
            )
        record = self.failed / f"{unit}.json"
        with self._explained():
            if error:
                failed = {
                    "unit": unit,
                    "coordinates": self.wanted[unit].coordinates,
                    "error": error,
                }
                self._write_json(record, failed | {"trace": trace, "session": self._name})
            else:
                name = f"{unit}.{_checksum(unit, result.payload)}.parquet"
                self._write(self.units / name, result.payload)
                self.finished.add(unit)
                self._columns = result.columns
                record.unlink(missing_ok=True)
            outcome, seconds = "failed" if error else "finished", round(result.seconds, 6)
            self._note(unit=unit, outcome=outcome, seconds=seconds, machine=result.machine)
        return error

    def _holder(self, shard: str) -> str:
        """Return which process works on a shard, since when."""
        try:
            last = [line for line in self.journal() if line.get("shard") == shard][-1]
            return f"process {last['process']} on {last['machine']['name']} since {last['started']}"
        except (LookupError, TypeError):  # before its first line, or the line is damaged
            return "just starting"

    def _note(self, **line: Any) -> None:
        """Add a line to the journal of this session."""
        with (self.sessions / f"{self._name}.jsonl").open("ab", buffering=0) as journal:
            journal.write((json.dumps(line, ensure_ascii=False) + "\n").encode())

    def _write_json(self, path: Path, value: Any) -> None:
        self._write(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())

    def _write(self, path: Path, payload: bytes) -> None:
        """Write a file; one damaged by a power failure is detected by its checksum."""
        with whole_file(path, self._temporary) as file:
            file.write(payload)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                error.errno,
                f"cannot write {error.filename or self.folder}: {error.strerror}; the "
                f"{len(self.finished)} finished unit(s) are kept",
            ) from error


def _differences(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of fields that differ, with those inside a field that is a mapping."""
    found = {}
    for name in sorted(new.keys() | old):
        mine, theirs = new.get(name), old.get(name)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            inner = _differences(mine, theirs)
            found |= {name: ", ".join(inner.values())} if inner else {}
        elif mine != theirs:
            found[name] = name
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
