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
    """The floating type JAX uses now, `float64` or `float32`: part of every unit's identity."""
    return str(jnp.result_type(float))


def to_plain(value: Any, where: str = "config") -> Any:
    """Turn a config (or a part of one) into what JSON can hold: dicts, lists, numbers, strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_plain(getattr(value, field.name), f"{where}.{field.name}")
            for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry, f"{where}.{key}") for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(entry, f"{where}[{k}]") for k, entry in enumerate(value)]
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
    """The config as JSON; `from_json` gives an equal config back."""
    return json.dumps(to_plain(config), indent=indent, ensure_ascii=False)


def from_json(kind: type, text: str) -> Any:
    """The config of class `kind` that `to_json` wrote, every field checked against its type."""
    try:
        plain = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"the config is not valid JSON: {error}") from error
    return build(kind, plain)


def portable_json(kind: type, config: Any) -> str:
    """The config as JSON, from which a worker is sure to get the same config of class `kind`."""
    text = to_json(config)
    try:
        again = to_plain(from_json(kind, text))
    except Exception as error:  # whatever a class of the user's raises
        raise InputError(f"no worker could rebuild the config from JSON: {error}") from error
    changed = [name for name, value in to_plain(config).items() if again.get(name) != value]
    if changed:
        raise InputError(
            f"a worker would rebuild the config from JSON with another {_listed(changed)}; pass a "
            f"{kind.__name__} whose fields are what it was called with."
        )
    return text


def canonical(value: Any) -> str:
    """JSON with sorted keys in which equal numbers are written equally: 1 and 1.0 are one."""

    def unified(text: str) -> float:
        number = float(text)
        return int(number) if number.is_integer() and abs(number) < 2**53 else number

    plain = json.loads(json.dumps(to_plain(value, "value")), parse_float=unified)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def digest(value: Any, *, size: int = 16) -> bytes:
    """A hash of `canonical(value)`, the same on every machine and in every process."""
    return hashlib.blake2b(canonical(value).encode(), digest_size=size).digest()


def run_key(seed: int, **coordinates: Any) -> Array:
    """The JAX key of one run: a hash of the seed and the run's own coordinates.

    Two runs with different coordinates have independent keys, and a run keeps its key however
    runs are grouped into units and whichever worker computes it.

    ```python
    import deeplin as dl
    key = dl.sweep.run_key(0, scale=0.35, repetition=3)
    ```
    """
    return run_keys(seed, [coordinates])[0]


def run_keys(seed: int, runs: Iterable[Mapping[str, Any]]) -> Array:
    """The keys of many runs, each given by its coordinates: an array for `jax.vmap`."""
    words = [coordinate_words(seed, **coordinates) for coordinates in runs]
    data = jnp.asarray(np.asarray(words, dtype=np.uint32).reshape(-1, 2))
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def coordinate_words(seed: int, **coordinates: Any) -> tuple[int, int]:
    """The 64 bits behind `run_key` as two words, for generators other than JAX's.

    ```python
    import deeplin as dl, numpy as np
    rng = np.random.default_rng(dl.sweep.coordinate_words(0, repetition=3))
    ```
    """
    identity = {"seed": seed_number(seed), "coordinates": coordinates}
    number = int.from_bytes(digest(identity, size=8), "big")
    return number >> 32, number & 0xFFFFFFFF


def build(kind: Any, value: Any, where: str = "config") -> Any:
    """An instance of the annotated type `kind` from plain JSON or TOML values."""
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _build_union(arguments, value, where)
    if origin is typing.Literal:
        if value not in arguments:
            raise InputError(f"{where} is {value!r}; pass one of {_listed(arguments)}.")
        return value
    if origin is tuple:
        return _build_tuple(arguments, value, where)
    if kind is Any:
        return value
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
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise InputError(f"{where} has no field {_listed(unknown)}; its fields: {_listed(fields)}.")
    missing = [
        name
        for name, field in fields.items()
        if name not in value
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"{where} lacks {_listed(missing)}; its fields: {_listed(fields)}.")
    return kind(
        **{name: build(hints[name], entry, f"{where}.{name}") for name, entry in value.items()}
    )


def _build_union(arguments: tuple, value: Any, where: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    errors = []
    for argument in arguments:
        if argument is type(None):
            continue
        try:
            return build(argument, value, where)
        except InputError as error:
            errors.append(str(error))
    raise InputError(" Or: ".join(errors))


def _build_tuple(arguments: tuple, value: Any, where: str) -> tuple:
    if not isinstance(value, list | tuple):
        raise InputError(f"{where} is {value!r}; pass a list.")
    if arguments[-1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    if len(arguments) != len(value):
        raise InputError(f"{where} has {len(value)} entries; pass {len(arguments)}.")
    return tuple(
        build(argument, entry, f"{where}[{k}]")
        for k, (argument, entry) in enumerate(zip(arguments, value, strict=True))
    )


def _listed(names: Any) -> str:
    return ", ".join(str(name) for name in names)
