"""Canonical form and hash of plain values, and random keys derived from coordinates."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from deeplin.errors import InputError, seed_number


def to_plain(value: Any, where: str = "config") -> Any:
    """Convert a config (or a part of one) to JSON values: dicts, lists, numbers, strings.

    A function becomes `module:name`.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry, f"{where}.{key}") for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(entry, f"{where}[{k}]") for k, entry in enumerate(value)]
    if isinstance(value, types.FunctionType):
        return f"{value.__module__}:{value.__qualname__}"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} is {value}; pass a finite number.")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(
        f"{where} is a {type(value).__name__}; pass numbers, strings, tuples or frozen dataclasses."
    )


def canonical(value: Any) -> str:
    """Return JSON with sorted keys in which equal numbers look equal: 1 and 1.0 are one."""

    def unified(text: str) -> float:
        number = float(text)
        return int(number) if number.is_integer() and abs(number) < 2**53 else number

    plain = json.loads(json.dumps(to_plain(value, "value")), parse_float=unified)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def digest(value: Any, *, size: int = 16) -> bytes:
    """Return a hash of `canonical(value)`, the same on every machine and in every process."""
    return hashlib.blake2b(canonical(value).encode(), digest_size=size).digest()


def run_key(seed: int, **coordinates: Any) -> Array:
    """Return the JAX key of one run: a hash of the seed and the run's own coordinates.

    Runs with different coordinates have independent keys, and the key of a run depends neither on
    how runs are grouped into units nor on the worker.

    ```python
    import deeplin as dl
    key = dl.sweep.run_key(0, scale=0.35, repetition=3)
    ```
    """
    return run_keys(seed, [coordinates])[0]


def run_keys(seed: int, runs: Iterable[Mapping[str, Any]]) -> Array:
    """Return the keys of many runs, each given by its coordinates: an array for `jax.vmap`."""
    words = [coordinate_words(seed, **coordinates) for coordinates in runs]
    data = jnp.asarray(np.asarray(words, dtype=np.uint32).reshape(-1, 2))
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def coordinate_words(seed: int, **coordinates: Any) -> tuple[int, int]:
    """Return the 64 bits behind `run_key` as two 32-bit words, for generators other than JAX's.

    ```python
    import deeplin as dl, numpy as np
    rng = np.random.default_rng(dl.sweep.coordinate_words(0, repetition=3))
    ```
    """
    identity = {"seed": seed_number(seed), "coordinates": coordinates}
    number = int.from_bytes(digest(identity, size=8), "big")
    return number >> 32, number & 0xFFFFFFFF
