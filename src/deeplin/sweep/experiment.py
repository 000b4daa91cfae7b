"""What can be swept: a name, a frozen config, its units of work, and how to compute one."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from deeplin.errors import InputError, whole_number
from deeplin.sweep.config import build, digest, to_plain

BUILT_IN = {"descent": "deeplin.sweep.descent:DESCENT"}
"""Experiments that a config file may name; any other is found by its import path."""


@dataclass(frozen=True)
class Unit:
    """One piece of work, ideally one jitted batch: finished or not, never half.

    `coordinates` say what it computes (JSON values); `runs` and `steps` (network-steps in all)
    feed the progress display; units of one `bucket` have the same shapes and share a compile.
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
    unit. `grid` names the config fields that only say *which* units exist: what they decide is
    in the units' coordinates, so a sweep can grow in these fields and keep what is finished. A
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
    rehearse: Callable[[Any, Unit], float] | None = None
    """Seconds that a unit will take, measured on a few of its steps: where units take minutes, the
    running time is known before the first of them is finished."""
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
        # Hashed in two stages: a config with thousands of values is hashed once, not per unit.
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


def read_sweep(path: Path) -> tuple[Experiment, Any]:
    """Return the experiment and the config of a file; `experiment` is one of its fields.

    Without it the built-in `descent` is meant; `module:attribute` names one of your own, which is
    looked for beside the file too.
    """
    fields = _parse(path)
    reference = fields.pop("experiment", "descent")
    if not isinstance(reference, str):
        raise InputError(f"experiment is {reference!r}; pass a name or module:attribute.")
    beside = str(path.resolve().parent)
    if reference not in BUILT_IN and beside not in sys.path:
        sys.path.append(beside)
    experiment = find_experiment(reference)
    return experiment, build(experiment.config, fields, path.name)


def _parse(path: Path) -> dict[str, Any]:
    parsers = {".json": json.loads, ".toml": tomllib.loads}
    if path.suffix not in parsers:
        raise InputError(f"{path} is neither .json nor .toml; pass a config in one of these forms.")
    try:
        fields = parsers[path.suffix](path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:  # of either parser, or of the encoding
        raise InputError(f"{path} is not valid {path.suffix[1:].upper()}: {error}") from error
    if not isinstance(fields, dict):
        raise InputError(f"{path} holds a {type(fields).__name__}; pass the fields of a config.")
    return fields
