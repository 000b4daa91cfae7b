"""Settings of a figure that a user changes: checked, and replaced by data of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, is_dataclass, replace
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
CHOICES = {"initialization": ("gaussian", "residual"), "activation": ("linear", "gelu")}
"""Fields whose values are names."""


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
    own = _changeable(config)
    inner = {} if setting is None else _changeable(setting)
    inner = {key: value for key, value in inner.items() if key not in (*own, *config.unused)}
    known = inner | own
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise InputError(
            f"{name} has no {', '.join(unknown)}; pass any of {', '.join(sorted(known))}."
        )
    given = {key: _checked(key, value, known[key]) for key, value in changes.items()}
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


def _changeable(config: Any) -> dict[str, Any]:
    """Return the present value of each field that may be changed."""
    return {
        field.name: getattr(config, field.name)
        for field in fields(config)
        if field.name not in FIXED
    }


def _checked(name: str, value: Any, present: Any) -> Any:
    """Return a value of the kind of the present one, refused with a sentence if it is not."""
    if isinstance(present, tuple):
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InputError(f"{name} is {shown(value)}; pass a list, such as {name}=({value},).")
        entries = tuple(_checked(name, entry, present[0]) for entry in value)
        if not entries:
            raise InputError(f"{name} is empty; pass at least one value.")
        return entries
    if is_dataclass(present) and not isinstance(present, type):
        # an entry of `rates`, from its values in order
        parts = [field.name for field in fields(present)]
        values = astuple(value) if isinstance(value, type(present)) else value
        if not isinstance(values, Sequence) or len(values) != len(parts):
            raise InputError(
                f"{name} has the entry {shown(value)}; pass for each ({', '.join(parts)})."
            )
        pairs = zip(parts, values, astuple(present), strict=True)
        return type(present)(*(_checked(f"{part} of {name}", *both) for part, *both in pairs))
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise InputError(f"{name} is {shown(value)}; pass one of {', '.join(CHOICES[name])}.")
        return value
    if isinstance(present, int):
        return whole_number(name, value, minimum=SEEDS.get(name, 1))
    return positive_number(name, value, zero_allowed=True)


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
    data = {"samples": problem.samples, "dimension": problem.dimension, "data_seed": 0}
    mine = OwnSetting(**vars(setting) | data, problem=problem)
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
