"""One frozen config in all its forms: dataclass, JSON, identity of a run, key of its draws."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from deeplin.errors import InputError, seed_number


def precision() -> str:
    """Return the floating type JAX uses now: `float64` or `float32`, part of a unit's identity."""
    return str(jnp.result_type(float))


def to_plain(value: Any, where: str = "config") -> Any:
    """Turn a config (or a part of one) into what JSON can hold: dicts, lists, numbers, strings.

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


def to_json(config: Any, *, indent: int | None = None) -> str:
    """Return the config as JSON; `from_json` gives an equal config back."""
    return json.dumps(to_plain(config), indent=indent, ensure_ascii=False)


def from_json(kind: type, text: str) -> Any:
    """Return the config of class `kind` that `to_json` wrote, every field checked by its type."""
    try:
        plain = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"the config is not valid JSON: {error}") from error
    return build(kind, plain)


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

    Two runs with different coordinates have independent keys, and a run keeps its key however
    runs are grouped into units and whichever worker computes it.

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


def build(kind: Any, value: Any, where: str = "config") -> Any:
    """Return an instance of the annotated type `kind` from plain JSON or TOML values."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, where)
    if origin in (typing.Union, types.UnionType):
        return _build_union(arguments, value, where)
    if origin is typing.Literal:
        if value not in arguments:
            raise InputError(f"{where} is {value!r}; pass one of {_listed(arguments)}.")
        return value
    if origin is tuple:
        return _build_tuple(arguments, value, where)
    if not isinstance(kind, type) or origin is not None or kind is tuple:
        name = "tuple" if kind is tuple else str(kind)
        raise InputError(
            f"{where} is annotated as {name}, which does not say how to build it from JSON; "
            "annotate numbers, strings, dataclasses, Literal, or tuple[float, ...] and the like."
        )
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{where} is {value!r}; pass a value of type {kind.__name__}.")
    return value


def _build_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise InputError(f"{where} is {value!r}; pass a table of fields.")
    fields, hints = {f.name: f for f in dataclasses.fields(kind)}, typing.get_type_hints(kind)
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise InputError(f"{where} has no field {_listed(unknown)}; its fields: {_listed(fields)}.")
    missing = [
        name
        for name, field in fields.items()
        if name not in value and field.default is field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"{where} lacks {_listed(missing)}; its fields: {_listed(fields)}.")
    return kind(
        **{name: build(hints[name], entry, f"{where}.{name}") for name, entry in value.items()}
    )


def _build_union(kinds: tuple, value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    errors = []
    for kind in kinds:
        try:
            return build(kind, value, where)
        except InputError as error:
            errors += [] if kind is type(None) else [str(error)]
    raise InputError(" Or: ".join(errors))


def _build_tuple(kinds: tuple, value: Any, where: str) -> tuple:
    if not isinstance(value, list | tuple):
        raise InputError(f"{where} is {value!r}; pass a list.")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise InputError(f"{where} has {len(value)} entries; pass {len(kinds)}.")
    return tuple(build(kinds[k], entry, f"{where}[{k}]") for k, entry in enumerate(value))


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))
