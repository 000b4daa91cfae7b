"""Compiled programs kept on disk by JAX, so that each shape is compiled once for all processes."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

import jax


def share_compiled_code() -> None:
    """Keep compiled programs on disk.

    A folder chosen by the user (`JAX_COMPILATION_CACHE_DIR`) is respected. Where there is no home
    to write in nothing is kept: JAX would warn of every function that it compiles.
    """
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        try:
            folder = compile_cache_folder()
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError):  # RuntimeError: the user has no home
            return
        if os.access(folder, os.W_OK):
            jax.config.update("jax_compilation_cache_dir", str(folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)


def compile_cache_folder() -> Path:
    """One folder for each kind of processor: compiled code is not portable between them."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    try:
        processor = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
        features = [line for line in processor.splitlines() if line.startswith(("flags", "Feat"))]
    except FileNotFoundError:  # not Linux
        features = [platform.processor()]
    kind = hashlib.blake2b("".join(features).encode(), digest_size=4).hexdigest()
    return Path(base) / "deeplin" / f"compiled-{platform.machine()}-{kind}"
