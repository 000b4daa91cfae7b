"""Experiments of sweeps: a frozen config, its units of work and how to compute one.

A unit is identified by a hash of its definition, and every run has a random key derived from its
own coordinates.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import json
import math
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from deeplin.errors import InputError, seed_number, whole_number

BUILT_IN = {"descent": "deeplin.sweep.descent:DESCENT"}
"""Experiments that a config file may name; others are given by import path."""


@dataclass(frozen=True)
class Unit:
    """One piece of work, ideally one jitted batch, that is either finished or not.

    `coordinates` define what it computes (JSON values); `runs` and `steps` (total network-steps)
    are for the progress display; units of one `bucket` have the same shapes and share a
    compilation.
    """

    coordinates: Mapping[str, Any]
    runs: int = 1
    steps: int = 0
    bucket: str = ""

    def __post_init__(self):
        object.__setattr__(self, "coordinates", to_plain(self.coordinates, "coordinates"))
        whole_number("runs of a unit", self.runs, minimum=0)
        whole_number("steps of a unit", self.steps, minimum=0)


@dataclass(frozen=True, eq=False)
class Experiment:
    """A name, the class of its config, `units(config)` and `run_unit(config, unit)`.

    `run_unit` returns tidy rows (a DataFrame, or columns by name), the same columns for every
    unit. `grid` names the config fields that only determine *which* units exist: their values are
    in the units' coordinates, so a sweep can be extended in these fields and keep finished units. A
    change of any other field makes every unit a new one. Raise `schema` when the meaning of the
    rows changes. Assign it to a module-level name, which is how workers find it.

    ```python
    from dataclasses import dataclass
    from deeplin.sweep import Experiment, Unit

    @dataclass(frozen=True)
    class Config:
        numbers: tuple[int, ...] = (1, 2, 3)

    def units(config):
        return [Unit({"number": number}) for number in config.numbers]

    def run_unit(config, unit):
        return {"square": [unit.coordinates["number"] ** 2]}

    EXPERIMENT = Experiment("squares", Config, units, run_unit, grid=("numbers",))
    assert len(EXPERIMENT.units(Config())) == 3
    ```
    """

    name: str
    config: type
    units: Callable[[Any], Sequence[Unit]]
    run_unit: Callable[[Any, Unit], pd.DataFrame | Mapping[str, Any]]
    grid: tuple[str, ...] = ()
    schema: int = 1
    home: str = ""
    """Module that holds the experiment; by default the one that defines `run_unit`."""
    subsets: bool = False
    """Whether fewer values of the `grid` fields than the folder holds may be requested."""

    def __post_init__(self):
        if not dataclasses.is_dataclass(self.config):
            raise InputError(f"config of {self.name} is {self.config!r}; pass a frozen dataclass.")
        unknown = set(self.grid) - {entry.name for entry in dataclasses.fields(self.config)}
        if unknown:
            raise InputError(f"grid of {self.name} names {sorted(unknown)}; pass config fields.")

    @property
    def reference(self) -> str:
        """`module:attribute`, where a worker imports this experiment from."""
        module = self.home or self.run_unit.__module__
        for attribute, value in vars(sys.modules[module]).items():
            if value is self:
                return f"{module}:{attribute}"
        raise InputError(
            f"workers cannot find experiment {self.name}: assign it to a name in module {module}."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the reference alone, so that units may be computed by any function."""
        return find_experiment, (self.reference,)

    def identify(self, config: Any, units: Sequence[Unit], precision: str) -> dict[str, Unit]:
        """Return units by id, a hash of name, schema, precision, config but `grid`, coordinates."""
        shared = {
            "experiment": self.name,
            "schema": self.schema,
            "precision": precision,
            "config": {k: v for k, v in to_plain(config).items() if k not in self.grid},
        }
        # Hashed in two stages, so that a config with thousands of values is hashed only once.
        common = digest(shared).hex()
        identified = {digest([common, unit.coordinates], size=12).hex(): unit for unit in units}
        if len(identified) != len(units):
            raise InputError(
                f"{len(units) - len(identified)} unit(s) of {self.name} repeat the coordinates of "
                "another; give each unit its own."
            )
        return identified


def find_experiment(reference: str) -> Experiment:
    """Return the experiment with a built-in name, or at `module:attribute`."""
    module, _, attribute = BUILT_IN.get(reference, reference).partition(":")
    if not attribute:
        raise InputError(
            f"experiment is {reference!r}; pass one of {', '.join(BUILT_IN)}, or module:attribute."
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"experiment {reference!r} cannot be imported: {error}") from error
    if not isinstance(found, Experiment):
        raise InputError(f"{reference!r} is a {type(found).__name__}, not an Experiment.")
    return found


def precision() -> str:
    """Return the floating type JAX uses now: `float64` or `float32`, part of a unit's identity."""
    return str(jnp.result_type(float))


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


def read_sweep(path: Path) -> tuple[Experiment, Any]:
    """Return the experiment and the config of a file; `experiment` is one of its fields.

    The default is the built-in `descent`; `module:attribute` names a user-defined one, whose module
    may be next to the file.
    """
    parsers = {".json": json.loads, ".toml": tomllib.loads}
    if path.suffix not in parsers:
        raise InputError(f"{path} is neither .json nor .toml; pass a config in one of these forms.")
    try:
        fields = parsers[path.suffix](path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:  # from either parser, or from decoding
        raise InputError(f"{path} is not valid {path.suffix[1:].upper()}: {error}") from error
    if not isinstance(fields, dict):
        raise InputError(f"{path} holds a {type(fields).__name__}; pass the fields of a config.")
    reference = fields.pop("experiment", "descent")
    if not isinstance(reference, str):
        raise InputError(f"experiment is {reference!r}; pass a name or module:attribute.")
    folder = str(path.resolve().parent)
    if reference not in BUILT_IN and folder not in sys.path:
        sys.path.append(folder)
    experiment = find_experiment(reference)
    return experiment, build(experiment.config, fields, path.name)


def build(kind: Any, value: Any, where: str = "config") -> Any:
    """Return an instance of the annotated type `kind` from plain JSON or TOML values."""
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, where)
    if origin in (typing.Union, types.UnionType):
        errors = []
        for member in members:
            try:
                return build(member, value, where)
            except InputError as error:
                errors += [] if member is types.NoneType else [str(error)]
        raise InputError(" Or: ".join(errors))
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} is {value!r}; pass a list.")
        kinds = members[:1] * len(value) if members[-1] is Ellipsis else members
        if len(kinds) != len(value):
            raise InputError(f"{where} has {len(value)} entries; pass {len(kinds)}.")
        return tuple(build(kinds[k], entry, f"{where}[{k}]") for k, entry in enumerate(value))
    if origin is typing.Literal:
        fits, wanted = value in members, f"one of {', '.join(map(str, members))}"
    elif isinstance(kind, type) and origin is None and kind is not tuple:
        value = float(value) if kind is float and type(value) is int else value
        fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        wanted = f"a value of type {kind.__name__}"
    else:
        raise InputError(
            f"{where} is annotated as {'tuple' if kind is tuple else kind}, which does not say how "
            "to build it from JSON; annotate numbers, strings, dataclasses, Literal, or "
            "tuple[float, ...] and the like."
        )
    if not fits:
        raise InputError(f"{where} is {value!r}; pass {wanted}.")
    return value


def _build_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise InputError(f"{where} is {value!r}; pass a table of fields.")
    signature, hints = inspect.signature(kind), typing.get_type_hints(kind)
    try:
        signature.bind(**value)
    except TypeError as error:  # a missing or unknown field
        fields = ", ".join(signature.parameters)
        raise InputError(f"{where}: {error}; its fields: {fields}.") from error
    return kind(
        **{name: build(hints[name], entry, f"{where}.{name}") for name, entry in value.items()}
    )
