"""A function of one's own over a grid of its arguments, as a sweep that survives interruption."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from deeplin.errors import InputError, whole_number
from deeplin.sweep.config import coordinate_words, run_key
from deeplin.sweep.engine import Outcome, run
from deeplin.sweep.executors import Cluster, Executor
from deeplin.sweep.experiment import Experiment, Unit
from deeplin.sweep.fingerprint import dependencies
from deeplin.sweep.progress import Progress
from deeplin.sweep.session import Shard

OWN: dict[str, Callable[..., Any]] = {
    "key": run_key,
    "rng": lambda seed, **run: np.random.default_rng(coordinate_words(seed, **run)),
    "repetition": lambda seed, repetition, **point: repetition,
}
"""Arguments that a function gets if it has them, each run its own."""


@dataclass(frozen=True)
class Grid:
    """What to sweep: a function over all combinations of `values`."""

    function: Callable[..., Any]
    code: Any
    """What it depends on: hashes by name (see `fingerprint.py`)."""
    values: Any
    """Lists of values by argument."""
    repetitions: int = 1
    seed: int = 0


def grid(
    function: Callable[..., Any],
    values: Mapping[str, Sequence[Any]],
    folder: str | os.PathLike,
    *,
    repetitions: int = 1,
    seed: int = 0,
    executor: Executor | None = None,
    shard: Shard | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Call `function` with every combination of `values`, and keep what it returns in one table.

    It may return a number, columns by name (a dict of numbers or of equally long lists), or a
    DataFrame. The table has a row for each call, or for each row returned, with the arguments and
    the repetition beside it. An argument named `key` (JAX), `rng` (NumPy) or `repetition` gets a
    value of the run's own, which depends on `seed`, the other arguments and the repetition only.

    Finished calls are kept in `folder`: interrupt it, call it again, add values or repetitions,
    and only what is missing is computed; the table of the outcome has the rows of this call. A
    folder made with another function is refused, and so is one made with other globals, helpers,
    default arguments or package versions (see `deeplin.sweep.fingerprint`). `executor`, `shard` and
    `progress` as for `run`. Worker processes import the function: for them it must be at the top
    level of a module or script.

    ```python
    import deeplin as dl
    problem = dl.problems.synthetic.flat_minima(seed=0).problem

    def final_risk(scale, eta, key):
        net = dl.initialize.gaussian(key, widths=(5, 5, 1), scale=scale)
        return dl.gradient_descent(problem, net, eta, steps=100).evidence["risk"]

    values = {"scale": [0.1, 0.3], "eta": [0.01, 0.02]}
    outcome = dl.sweep.grid(final_risk, values, "results/mine", repetitions=2)
    outcome.table()
    ```
    """
    if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
        raise InputError(f"function is {function!r}; pass a function defined by `def`.")
    if function.__module__ == "__main__" and isinstance(executor, Cluster):
        raise InputError(
            f"workers cannot import {function.__name__} from __main__; define it at the top level "
            "of a module that they can import."
        )
    config = Grid(
        function,
        dependencies(function),
        _checked(function, values),
        whole_number("repetitions", repetitions),
        whole_number("seed", seed, minimum=0),
    )
    return run(GRID, config, folder, executor=executor, shard=shard, progress=progress)


def units(config: Grid) -> list[Unit]:
    """One unit for each combination of values and each repetition."""
    return [
        Unit({"point": dict(zip(config.values, point, strict=True)), "repetition": repetition})
        for *point, repetition in product(*config.values.values(), range(config.repetitions))
    ]


def run_unit(config: Grid, unit: Unit) -> pd.DataFrame:
    """Call the function once."""
    function = config.function
    _check_same(function, tuple(config.code.items()))
    point, repetition = unit.coordinates["point"], unit.coordinates["repetition"]
    wanted = OWN.keys() & inspect.signature(function).parameters.keys()
    own = {name: OWN[name](config.seed, **point, repetition=repetition) for name in wanted}
    return _rows({**point, "repetition": repetition}, function(**point, **own))


GRID = Experiment("grid", Grid, units, run_unit, grid=("values", "repetitions"), subsets=True)


def _rows(run: Mapping[str, Any], returned: Any) -> pd.DataFrame:
    """What a call returned as tidy rows, the run's coordinates first."""
    named = returned if isinstance(returned, Mapping | pd.DataFrame) else {"value": returned}
    columns = {str(name): np.asarray(column) for name, column in named.items()}
    clash = sorted(columns.keys() & run.keys())
    if clash:
        raise InputError(
            f"the function returns {', '.join(clash)}, which it was called with; rename."
        )
    if any(column.ndim > 1 for column in columns.values()):
        raise InputError("the function returns an array with several axes; return columns by name.")
    lengths = {len(column) for column in columns.values() if column.ndim}
    if len(lengths) > 1:
        raise InputError(
            f"the function returns columns of lengths {sorted(lengths)}; make them one."
        )
    rows = max(lengths, default=1)
    spread = {name: np.broadcast_to(column, rows) for name, column in columns.items()}
    return pd.DataFrame({**run, **spread}, index=range(rows))


@cache
def _check_same(function: Callable[..., Any], code: tuple[tuple[str, str], ...]) -> None:
    """Raise unless a worker has imported what the sweep was begun with."""
    changed = sorted({name for name, _ in set(code) ^ set(dependencies(function).items())})
    if changed:
        raise InputError(
            f"a worker that imports {function.__name__} finds another {', '.join(changed)}; "
            "pass it as an argument, or make it the same wherever the module is imported."
        )


def _checked(function: Callable[..., Any], values: Mapping[str, Sequence[Any]]) -> dict[str, list]:
    """The values by argument, as plain lists; an error unless the function takes them."""
    if not isinstance(values, Mapping) or not values:
        raise InputError(f"values is {values!r}; pass lists of values by argument.")
    taken = sorted(values.keys() & OWN.keys())
    if taken:
        raise InputError(f"values has {', '.join(taken)}, which every run gets of its own; rename.")
    lists = {str(name): _listed(str(name), column) for name, column in values.items()}
    signature = inspect.signature(function)
    own = dict.fromkeys(OWN.keys() & signature.parameters.keys())
    try:
        signature.bind(**dict.fromkeys(lists), **own)
    except TypeError as error:
        raise InputError(
            f"{getattr(function, '__name__', function)}{signature} cannot be called with "
            f"{', '.join(lists)}: {error}."
        ) from error
    return lists


def _listed(name: str, values: Any) -> list:
    """Values of one argument; numbers are all whole or all floating, for they share a column."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InputError(f"values of {name} are {values!r}; pass a list.")
    found = [value.item() if isinstance(value, np.generic) else value for value in values]
    strange = [value for value in found if not isinstance(value, bool | int | float | str)]
    if strange:
        raise InputError(f"values of {name} have {strange[0]!r}; pass numbers or strings.")
    if {type(value) for value in found} == {int, float}:
        found = [float(value) for value in found]
    if not found or any(value in found[:index] for index, value in enumerate(found)):
        raise InputError(f"values of {name} are {found}; pass at least one, each once.")
    return found
