"""The folder of a sweep: one Parquet file for each finished unit.

```
<unit>.parquet   its rows, with the seconds that it took in the metadata
_sweep.json      what the units are computed with, and the packages and machine of the first call
```

Files are written atomically, and the name of a unit is a hash of all that it is computed with: a
file is either complete and valid or absent, whenever a process is killed. Pages of a file have
checksums; a damaged file is removed and its unit computed again. Other files are ignored, and
pandas reads the whole folder: `pd.read_parquet(folder)`.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from deeplin.errors import InputError
from deeplin.files import environment, whole_file
from deeplin.sweep.keys import to_plain

IDENTITY = "_sweep.json"


class Store:
    """Finished units in a folder."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)

    def open(self, identity: Mapping[str, Any]) -> None:
        """Make the folder, or raise InputError if it belongs to a sweep with another identity."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK):
                raise PermissionError(13, "it is read-only")
        except OSError as error:
            raise InputError(
                f"cannot write in {self.folder}: {error.strerror}; pass a folder you may write in."
            ) from error
        mine = to_plain(identity, "identity")
        path = self.folder / IDENTITY
        try:
            theirs = json.loads(path.read_bytes())["identity"]
        except (OSError, ValueError, TypeError, LookupError):  # absent or damaged
            document = {"identity": mine, "environment": environment()}
            with whole_file(path) as file:
                file.write(json.dumps(document, indent=1, ensure_ascii=False).encode())
            return
        different = list(_differences(mine, theirs))
        if different:
            raise InputError(
                f"the results in {self.folder} were computed with another {', '.join(different)}; "
                "pass another folder, or what was there before: the same function, helpers, "
                "globals, seed, version= and deeplin."
            )

    def finished(self, units: Iterable[str]) -> tuple[set[str], list[str]]:
        """Return which of these units are finished, and which had damaged files, now removed."""
        wanted, finished, damaged = frozenset(units), set(), []
        for entry in list(os.scandir(self.folder)):
            unit, _, kind = entry.name.partition(".")
            if unit in wanted and kind == "parquet":
                if self._read(unit) is not None:
                    finished.add(unit)
                else:
                    damaged.append(unit)
                    os.unlink(entry)
        return finished, damaged

    def keep(self, unit: str, payload: bytes) -> None:
        """Write the file of a unit."""
        with whole_file(self.folder / f"{unit}.parquet") as file:
            file.write(payload)

    def table(self, units: Sequence[str]) -> pd.DataFrame:
        """Return the rows of those of these units that are finished, in their order."""
        found = [table for table in map(self._read, units) if table is not None]
        if not found:
            return pd.DataFrame()
        tables = [table.replace_schema_metadata() for table in found]
        try:
            return pa.concat_tables(tables, promote_options="permissive").to_pandas()
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(
                f"the units in {self.folder} have columns of different types ({error}); return the "
                "same type from each call."
            ) from error

    def seconds(self, units: Iterable[str]) -> float:
        """Return the computing time of the finished ones of these units."""
        tables = (table for table in map(self._read, units) if table is not None)
        return sum(float(table.schema.metadata[b"deeplin.seconds"]) for table in tables)

    def _read(self, unit: str) -> pa.Table | None:
        """Return the rows of a unit, or None if its file is absent or damaged."""
        try:
            # `pq.read_table` takes six times as long for a small file.
            buffer = pa.BufferReader((self.folder / f"{unit}.parquet").read_bytes())
            file = pq.ParquetFile(buffer, page_checksum_verification=True)
            table = file.read(use_threads=False)
        except (OSError, pa.ArrowException):
            return None
        return (
            table if (table.schema.metadata or {}).get(b"deeplin.unit") == unit.encode() else None
        )


def _differences(mine: Any, theirs: Any, name: str = "") -> Iterator[str]:
    """Yield the names of the entries in which two identities differ."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key in sorted(mine.keys() | theirs):
            yield from _differences(mine.get(key), theirs.get(key), key)
    elif mine != theirs:
        yield name


def to_parquet(rows: pd.DataFrame | Mapping[str, Any], unit: str, seconds: float) -> bytes:
    """Return tidy rows as the content of a unit's file.

    Columns are converted one by one: `pa.Table.from_pandas` takes three times as long for a small
    table, and turns NaN into a missing value. Smallest and largest values in the file would leave
    out NaN, and DuckDB would then miss the NaN rows of `WHERE isnan(risk)`.
    """
    names = [str(name) for name in rows]
    if not names or len(set(names)) < len(names):
        raise InputError(f"the unit returned columns {names}; name each one once.")
    arrays = {}
    for name, column in rows.items():
        values = column.values if isinstance(column, pd.Series) else np.asarray(column)
        try:
            arrays[str(name)] = pa.array(values, from_pandas=values.dtype == object)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(f"column {name!r} mixes types Parquet cannot hold: {error}") from error
    metadata = {"deeplin.unit": unit, "deeplin.seconds": repr(seconds)}
    buffer = io.BytesIO()
    pq.write_table(
        pa.table(arrays, metadata=metadata),
        buffer,
        write_statistics=False,
        write_page_checksum=True,
    )
    return buffer.getvalue()
