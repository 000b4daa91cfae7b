"""Where numbers come from: versions of packages, the commit of a checkout, the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("deeplin", "jax", "jaxlib", "numpy", "pandas", "pyarrow", "scipy")
"""Those behind the numbers."""


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
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    found = subprocess.run(
        [*command, "--exclude=*"], capture_output=True, encoding="utf-8", check=False
    )
    return found.stdout.strip() or None
