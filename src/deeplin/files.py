"""Atomic writing of files, and the provenance of numbers: commit and package versions."""

from __future__ import annotations

import os
import platform
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

PACKAGES = ("deeplin", "jax", "jaxlib", "numpy", "pandas", "pyarrow", "scipy")
"""Packages whose versions are recorded."""


@contextmanager
def whole_file(path: Path, temporary_folder: Path | None = None) -> Iterator[BinaryIO]:
    """Open a file that appears at `path`, replacing what is there, only once it is complete.

    The file is written under another name in `temporary_folder`, on the same disk (by default the
    folder of `path`), and renamed: a reader never sees an incomplete file, and an error leaves
    none. It is not synced to disk, which would be too slow for small files.
    """
    name = f".{path.name}.{os.getpid()}-{threading.get_ident()}"
    temporary = os.path.join(temporary_folder or path.parent, name)
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


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
    """Return the commit of this checkout, with `-dirty` if changed; None if installed."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    found = subprocess.run(
        [*command, "--exclude=*"], capture_output=True, encoding="utf-8", check=False
    )
    return found.stdout.strip() or None
