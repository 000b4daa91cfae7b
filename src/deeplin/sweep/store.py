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
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from deeplin.errors import InputError

FORMAT = 1
FIELDS = {
    "format": int, "experiment": str, "schema": int, "dtype": str, "config": dict, "units": list
}  # fmt: skip
"""What a manifest cannot do without."""


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
            manifest = parse(self.manifest_path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        version = manifest.get("format")
        if isinstance(version, int) and version > FORMAT:
            raise InputError(
                f"{self.manifest_path} has format {version}, this version of deeplin knows "
                f"{FORMAT}; use the version that wrote it, or remove this file if none did."
            )
        whole = all(isinstance(manifest.get(name), kind) for name, kind in FIELDS.items())
        whole = whole and all(isinstance(unit, str) for unit in manifest["units"])
        if not whole or manifest.pop("seal", None) not in (None, seal(manifest)):
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
            elif checksum(unit, path.read_bytes()) != mark:
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
                found.append(damaged | parse(path.read_bytes()) | {"unit": path.stem})
        return found

    def journal(self) -> Iterator[dict[str, Any]]:
        """Yield every line of every session: its header, then one line for each unit.

        A line that makes no sense is left out: a process that was killed, or found the disk full,
        leaves half a line. Nothing depends on the journal.
        """
        for path in sorted(self.sessions.glob("*.jsonl")):
            with suppress(OSError):
                for line in map(parse, path.read_bytes().splitlines()):
                    if line and ("outcome" not in line or _says_outcome(line)):
                        yield line | {"session": path.stem}

    def running(self) -> list[str]:
        """Return the shards that a living process is working on, as `i-of-N`."""
        paths = sorted(self.locks.glob("*-of-*.lock"))
        return [path.stem for path in paths if os.access(path, os.W_OK) and _is_held(path)]


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


def checksum(identifier: str, payload: bytes) -> str:
    """Return a hash over a unit's id and its file's bytes."""
    return hashlib.blake2b(identifier.encode() + payload, digest_size=12).hexdigest()


def seal(manifest: Mapping[str, Any]) -> str:
    """Return a hash over a manifest, by which a damaged one is noticed."""
    return checksum("", json.dumps(manifest, sort_keys=True).encode())


def parse(text: bytes) -> dict[str, Any]:
    """Return the JSON object that `text` is; an empty one if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _says_outcome(line: dict[str, Any]) -> bool:
    """Whether a line of the journal says how a unit ended, and in what time."""
    known = line["outcome"] in ("finished", "failed") and isinstance(line.get("unit"), str)
    seconds = line.get("seconds")
    return known and isinstance(seconds, int | float) and math.isfinite(seconds)


def _is_held(path: Path) -> bool:
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
