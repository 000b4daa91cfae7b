"""The folder of a sweep: one Parquet file for each finished unit, none for any other.

```
units/<unit>.<checksum>.parquet   the tidy table, in pieces
_manifest.json                    experiment, config, seed, dtype, unit ids, summary of sessions
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
from typing import Any, TypedDict, TypeGuard

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from deeplin.errors import InputError

FORMAT = 1
FIELDS = {
    "format": int,
    "experiment": str,
    "schema": int,
    "dtype": str,
    "config": dict,
    "units": list,
}
"""What a manifest cannot do without."""
OUTCOMES = ("finished", "failed")
"""How a unit can end, as a line of the journal says it."""


class DamagedManifest(InputError):
    """The manifest cannot be read; the unit files beside it can still be trusted."""


class Failure(TypedDict):
    """Why a unit failed, as it is recorded."""

    unit: str
    coordinates: dict[str, Any]
    error: str
    trace: str
    session: str


def checksum(identifier: str, payload: bytes) -> str:
    """A hash over a unit's id and its file's bytes."""
    return hashlib.blake2b(identifier.encode() + payload, digest_size=12).hexdigest()


@dataclass(frozen=True)
class Inventory:
    """The unit files of a folder: those to trust, by unit, and the others with the reason."""

    finished: dict[str, Path]
    suspect: dict[Path, str]


class Store:
    """Read access to the folder of a sweep, finished or not; changes nothing."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.units = self.folder / "units"
        self.failed = self.folder / "_failed"
        self.aside = self.folder / "_aside"
        self.sessions = self.folder / "_sessions"
        self.locks = self.folder / "_locks"
        self.temporary = self.folder / "_temporary"
        self.manifest_path = self.folder / "_manifest.json"

    @property
    def manifest(self) -> dict[str, Any]:
        """What the folder holds: experiment, config, precision, unit ids, sessions."""
        found = self.find_manifest()
        if found is None:
            raise InputError(
                f"{self.folder} holds no sweep; pass a folder made by `deeplin sweep`."
            )
        return found

    def find_manifest(self) -> dict[str, Any] | None:
        """The manifest, or None where there is none; a damaged one is an error."""
        try:
            text = self.manifest_path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        manifest = _parsed(text)
        if manifest is None:
            raise DamagedManifest(self._damaged("is not the manifest of a sweep"))
        version = manifest.get("format")
        if isinstance(version, int) and version > FORMAT:
            raise InputError(
                f"{self.manifest_path} has format {version}, this version of deeplin knows "
                f"{FORMAT}; use the version that wrote it, or remove this file if none did."
            )
        whole = all(isinstance(manifest.get(name), kind) for name, kind in FIELDS.items())
        if not whole or not all(isinstance(unit, str) for unit in manifest["units"]):
            raise DamagedManifest(self._damaged("lacks what the manifest of a sweep holds"))
        if manifest.pop("seal", None) not in (None, seal(manifest)):
            raise DamagedManifest(self._damaged("was changed since it was written"))
        return manifest

    def _damaged(self, how: str) -> str:
        return (
            f"{self.manifest_path} is damaged: it {how}. The call or command of the sweep makes it "
            "again; finished units are kept."
        )

    def inventory(self, known: frozenset[str] | None = None) -> Inventory:
        """Check every unit file; `known` are the ids that belong here (default: the manifest's)."""
        known = frozenset(self.manifest["units"]) if known is None else known
        finished, suspect = {}, {}
        for path in sorted(self.units.iterdir()) if self.units.is_dir() else ():
            identifier, _, rest = path.name.partition(".")
            reason = _distrust(path, identifier, rest, known)
            if reason:
                suspect[path] = reason
            elif identifier in finished:
                suspect[path] = "repeats a unit that is finished already"
            else:
                finished[identifier] = path
        return Inventory(finished, suspect)

    def table(self, units: Sequence[str] | None = None) -> pd.DataFrame:
        """All rows of the finished units, in the order of the config, whoever computed them.

        `units` are the ids of those that are wanted, by default all.
        """
        order = self.manifest["units"] if units is None else units
        finished = self.inventory(frozenset(order)).finished
        tables = [_rows(finished[identifier]) for identifier in order if identifier in finished]
        if not tables:
            return pd.DataFrame()
        rows = pa.concat_tables([table.replace_schema_metadata(None) for table in tables])
        return rows.to_pandas()

    def failures(self) -> list[Failure]:
        """The recorded failures."""
        return [_read_failure(path) for path in sorted(self.failed.glob("*.json"))]

    def journal(self) -> Iterator[dict[str, Any]]:
        """Every line of every session: its header, then one line for each unit.

        A line that makes no sense is left out: a process that was killed, or found the disk full,
        leaves half a line, and the journal only tells what happened, nothing depends on it.
        """
        for path in sorted(self.sessions.glob("*.jsonl")):
            with suppress(OSError):
                lines = map(_parsed, path.read_bytes().splitlines())
                yield from (line | {"session": path.stem} for line in lines if _makes_sense(line))


def seal(manifest: Mapping[str, Any]) -> str:
    """A hash over a manifest, which tells a damaged one."""
    text = json.dumps(manifest, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _parsed(text: bytes) -> dict[str, Any] | None:
    """The JSON object that `text` is, or None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _makes_sense(line: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
    """Whether a line of the journal is whole: a header, the end of a session, or that of a unit."""
    if line is None or "outcome" not in line:
        return line is not None
    seconds = line.get("seconds")
    told = line["outcome"] in OUTCOMES and isinstance(line.get("unit"), str)
    return told and isinstance(seconds, int | float) and math.isfinite(seconds)


def _read_failure(path: Path) -> Failure:
    found: dict[str, Any] = {}
    with suppress(OSError):
        found = _parsed(path.read_bytes()) or {}
    return Failure(
        unit=path.stem,
        coordinates=found.get("coordinates", {}),
        error=found.get("error", "the record of its failure is damaged"),
        trace=found.get("trace", ""),
        session=found.get("session", ""),
    )


def _rows(path: Path) -> pa.Table:
    """The table of one unit; `pq.read_table` takes six times as long for a small one."""
    return pq.ParquetFile(pa.BufferReader(path.read_bytes())).read(use_threads=False)


def _distrust(path: Path, identifier: str, rest: str, known: frozenset[str]) -> str | None:
    """Why a file is not to be trusted, or None."""
    mark, _, suffix = rest.partition(".")
    if suffix != "parquet" or not path.is_file():
        return "not a unit file"
    if identifier not in known:
        return "a unit of another sweep"
    if checksum(identifier, path.read_bytes()) != mark:
        return "damaged: its bytes do not match its checksum"
    return None


def read_table(folder: str | os.PathLike) -> pd.DataFrame:
    """One tidy table of all finished units of a sweep's folder.

    ```python
    import deeplin as dl
    from deeplin.sweep.descent import DESCENT, DescentSweep
    config = DescentSweep(scales=(0.2,), learning_rates=(0.02,), repetitions=2, steps=100)
    dl.sweep.run(DESCENT, config, "results/mine")
    table = dl.sweep.read_table("results/mine")
    ```
    """
    return Store(folder).table()
