"""Where results come from: versions, commit, machine, precision."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax.numpy as jnp

PACKAGES = ("deeplin", "jax", "jaxlib", "numba", "numpy", "pandas", "pyarrow", "scipy")


def precision() -> str:
    """The floating type JAX uses now, `float64` or `float32`: part of every unit's identity."""
    return str(jnp.result_type(float))


@cache
def own_version() -> str:
    """The version of deeplin."""
    return metadata.version("deeplin")


@cache
def environment() -> dict[str, Any]:
    """Versions of the packages behind the numbers, the commit of a checkout, the machine."""
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
    described = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or None
