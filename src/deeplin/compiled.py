"""Numba kernels kept on disk: what their cache does not look after by itself."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock


@cache
def digest(folder: Path, pattern: str) -> str:
    """Digest of the kernels' code in `folder` and of the lanes they are written with.

    A kernel holds it in its closure: numba's cache on disk would notice changes of one file only.
    """
    code = hashlib.sha256()
    for path in [Path(__file__).with_name("lanes.py"), *sorted(folder.glob(pattern))]:
        code.update(path.read_bytes())
    return code.hexdigest()


def call(kernel: Any, *arguments: Any) -> Any:
    """Call a compiled function; the first time for these types, compile it or load it from disk.

    That happens under a lock, because processes that save different kernels at the same moment
    can leave numba's cache on disk with one kernel under the name of another.
    """
    types = tuple(map(kernel.typeof_pyval, arguments))
    if types not in kernel.overloads:
        folder = Path(kernel.stats.cache_path)
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "deeplin-kernels.lock"):
            kernel.compile(types)
    return kernel(*arguments)
