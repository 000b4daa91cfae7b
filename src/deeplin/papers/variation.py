"""Settings of a figure that a user changes: checked, and replaced by data of one's own."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deeplin.errors import InputError, positive_number, shown, whole_number
from deeplin.papers.setting import AUTHORS, Setting
from deeplin.problems import Problem
from deeplin.problems.synthetic import Synthetic

FIXED = {"setting", "starts", "start"}
"""Fields that no caller changes: they name the authors' own draws."""
SEEDS = {"seed": 0, "data_seed": AUTHORS, "data_seeds": AUTHORS, "checked": 0}
"""Fields whose numbers may be below 1, with the smallest one."""


@dataclass(frozen=True)
class OwnSetting(Setting):
    """A setting with the caller's data in the place of a data set that is drawn."""

    problem: Problem | None = None

    @property
    def data(self) -> Synthetic:
        """The caller's problem, which is also its own test set."""
        assert self.problem is not None
        truth = np.asarray(self.problem.optimum)
        spectrum = np.linalg.eigvalsh(np.asarray(self.problem.covariance))[::-1]
        return Synthetic(self.problem, self.problem, truth, spectrum)


def varied(
    name: str, config: Any, changes: Mapping[str, Any], problem: Problem | None = None
) -> Any:
    """Return the config of a panel with some fields changed, each checked, or on other data."""
    setting = getattr(config, "setting", None)
    own = _fields(config)
    inner = {} if setting is None else _fields(setting)
    inner = {key: hint for key, hint in inner.items() if key not in (*own, *config.unused)}
    unknown = sorted(set(changes) - set(own) - set(inner))
    if unknown:
        known = ", ".join(sorted({*own, *inner}))
        raise InputError(f"{name} has no {', '.join(unknown)}; pass any of {known}.")
    given = {
        key: _checked(key, value, own.get(key) or inner[key], getattr(config, key, None))
        for key, value in changes.items()
    }
    if setting is not None and given.get("seed") == 0 and len(given) > 1:
        raise InputError(
            f"seed is 0, which stands for the FM authors' own starts, and {name} has other "
            "settings than theirs; pass another seed."
        )
    if given or problem is not None:
        given = {"seed": 1} | given
    if setting is not None:
        within = {key: given.pop(key) for key in list(given) if key in inner}
        given["setting"] = replace(setting, **within)
    if problem is not None:
        given = _on_own_data(name, config, given, problem)
    return replace(config, **given)


def _fields(config: Any) -> dict[str, Any]:
    """Return the type of each field that may be changed."""
    hints = typing.get_type_hints(type(config))
    names = (field.name for field in dataclasses.fields(config))
    return {name: hints[name] for name in names if name not in FIXED}


def _checked(name: str, value: Any, hint: Any, example: Any) -> Any:
    """Return the value of a field, refused with a sentence if it cannot be one."""
    if typing.get_origin(hint) is tuple:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InputError(f"{name} is {shown(value)}; pass a list, such as {name}=({value},).")
        entries = list(value)
        if not entries:
            raise InputError(f"{name} is empty; pass at least one value.")
        inner = typing.get_args(hint)[0]
        return tuple(_checked(name, entry, inner, example) for entry in entries)
    if typing.get_origin(hint) is typing.Literal:
        if value not in typing.get_args(hint):
            options = ", ".join(typing.get_args(hint))
            raise InputError(f"{name} is {shown(value)}; pass one of {options}.")
        return value
    if hint is int:
        return whole_number(name, value, minimum=SEEDS.get(name, 1))
    if dataclasses.is_dataclass(hint):
        return _entry(name, value, hint)
    return positive_number(name, value, zero_allowed=True)


def _entry(name: str, value: Any, kind: Any) -> Any:
    """Return an entry of a list such as `rates`, from its values in order."""
    parts = typing.get_type_hints(kind)
    values = dataclasses.astuple(value) if isinstance(value, kind) else value
    if not isinstance(values, Sequence) or len(values) != len(parts):
        raise InputError(
            f"{name} has the entry {shown(value)}; pass for each ({', '.join(parts)})."
        )
    pairs = zip(parts.items(), values, strict=True)
    return kind(*(_checked(f"{part} of {name}", one, hint, None) for (part, hint), one in pairs))


def _on_own_data(name: str, config: Any, given: dict[str, Any], problem: Problem) -> dict[str, Any]:
    """Return the changes that put a figure of FM on a problem of one's own."""
    setting = given.get("setting")
    if setting is None or name == "FM-6b":
        reason = "needs test data" if name == "FM-6b" else "draws its own data"
        raise InputError(f"{name} {reason}; problem= is for FM-1 to FM-5, FM-6a and FM-7.")
    if not isinstance(problem, Problem):
        raise InputError(f"problem is {shown(problem)}; pass a deeplin.Problem.")
    if problem.outputs != 1 or problem.loss != "squared":
        raise InputError(
            f"problem has {problem.outputs} output(s) and the loss {problem.loss}; the figures of "
            "FM take one output and the squared loss."
        )
    fields: dict[str, Any] = {
        field.name: getattr(setting, field.name) for field in dataclasses.fields(Setting)
    }
    fields |= {"samples": problem.samples, "dimension": problem.dimension, "data_seed": 0}
    mine = OwnSetting(**fields, problem=problem)
    theirs = replace(config.setting, depth=mine.depth)
    ratio = mine.flattest.critical_learning_rate() / theirs.flattest.critical_learning_rate()
    found: dict[str, Any] = {"setting": mine}
    if hasattr(config, "data_seeds"):
        found["data_seeds"] = (0,)
    if hasattr(config, "learning_rates"):
        found["learning_rates"] = tuple(ratio * rate for rate in config.learning_rates)
    if hasattr(config, "rates"):
        found["rates"] = tuple(
            replace(rate, learning_rate=ratio * rate.learning_rate) for rate in config.rates
        )
    return found | {key: value for key, value in given.items() if key != "setting"}
