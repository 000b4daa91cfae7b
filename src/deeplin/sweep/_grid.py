"""Sweeps of a function over a grid of arguments, which can be interrupted and repeated."""

from __future__ import annotations

import functools
import inspect
import os
import types
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from deeplin.errors import InputError, whole_number
from deeplin.execution import thread_count
from deeplin.sweep.executors import VERSION
from deeplin.sweep.experiment import Outcome, Unit, run_units
from deeplin.sweep.identity import dependencies, is_named
from deeplin.sweep.keys import coordinate_words, run_key
from deeplin.sweep.progress import Progress

OWN: dict[str, Callable[..., Any]] = {
    "key": run_key,
    "rng": lambda seed, **run: np.random.default_rng(coordinate_words(seed, **run)),
    "repetition": lambda seed, repetition, **point: repetition,
}
"""Arguments that are passed to a function if it has them, different for each run."""


def grid(
    function: Callable[..., Any],
    values: Mapping[str, Sequence[Any]],
    folder: str | os.PathLike,
    *,
    repetitions: int = 1,
    seed: int = 0,
    version: str | int | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Call a function with every combination of values and collect the results in one table.

    The table has a row for each call, or for each row returned, together with the arguments and
    the repetition. It does not depend on workers, executor or interruptions. Finished calls are
    kept: after an interruption, or with more values or repetitions, only missing calls are
    computed. A call that raises an exception does not stop the others.

    Args:
        function: returns a number, columns by name (a dict of numbers or of equally long lists),
            or a DataFrame. An argument named `key` (JAX), `rng` (NumPy) or `repetition` gets a
            value for each run, which depends only on `seed`, the other arguments and the
            repetition.
        values: numbers or strings by argument.
        folder: where finished calls are kept. One made with another function raises `InputError`,
            as does one made with other helpers, globals or default arguments, another seed, version
            of deeplin, or `version`.
        repetitions: number of calls for each combination.
        seed: seed of all random numbers.
        version: to be changed whenever something changes that deeplin does not compare, such as
            the content of a file that the function reads.
        workers: number of worker processes; by default one for each core. 1 computes in this
            process.
        executor: any `concurrent.futures.Executor`, such as `client.get_executor()` of
            dask.distributed, in place of worker processes of this machine.
        progress: shows what is done, for example `sweep.show_progress("mine")`.

    Returns:
        An outcome with `table()`, and the errors of calls that `failed`.

    ```python
    import deeplin as dl
    problem = dl.problems.synthetic.flat_minima(seed=0).problem

    def final_risk(scale, learning_rate, key):
        network = dl.initialize.gaussian(key, widths=(5, 5, 1), scale=scale)
        return dl.gradient_descent(problem, network, learning_rate, steps=100).evidence["risk"]

    values = {"scale": [0.1, 0.3], "learning_rate": [0.01, 0.02]}
    outcome = dl.sweep.grid(final_risk, values, "results/mine", repetitions=2, workers=1)
    outcome.table()
    ```
    """
    if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
        raise InputError(f"function is {function!r}; pass a function defined by `def`.")
    whole_number("repetitions", repetitions)
    whole_number("seed", seed, minimum=0)
    lists = _checked(function, values)
    code = dependencies(function)
    imported = function.__module__ != "__main__" and is_named(function)  # by workers
    identity = {"function": code, "seed": seed, "version=": version, "deeplin": VERSION}
    units = [
        Unit({"point": dict(zip(lists, point, strict=True)), "repetition": repetition})
        for *point, repetition in product(*lists.values(), range(repetitions))
    ]
    return run_units(
        identity,
        units,
        functools.partial(_call, function, seed, tuple(code.items()) if imported else ()),
        folder,
        workers=thread_count() if workers is None else workers,
        executor=executor,
        progress=progress,
    )


def _call(
    function: types.FunctionType, seed: int, code: tuple[tuple[str, str], ...], unit: Unit
) -> pd.DataFrame:
    """Call the function once and return tidy rows; `code` is empty if workers do not import it."""
    if code:
        _require_same(function, code)
    point, repetition = unit.coordinates["point"], unit.coordinates["repetition"]
    wanted = OWN.keys() & inspect.signature(function).parameters.keys()
    own = {name: OWN[name](seed, **point, repetition=repetition) for name in wanted}
    return _rows({**point, "repetition": repetition}, function(**point, **own))


@functools.cache
def _require_same(function: types.FunctionType, expected: tuple[tuple[str, str], ...]) -> None:
    """Raise InputError unless a worker has imported the function with which the sweep began."""
    if dependencies(function) != dict(expected):
        raise InputError(
            f"a worker that imports {function.__name__} finds another function, or other globals "
            "or helpers; pass what differs as an argument, or make it the same wherever the module "
            "is imported."
        )


def _rows(run: Mapping[str, Any], returned: Any) -> pd.DataFrame:
    """Return the result of a call as tidy rows, with the run's coordinates first."""
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


def _checked(function: Callable[..., Any], values: Mapping[str, Sequence[Any]]) -> dict[str, list]:
    """Return the values by argument as lists, or raise InputError if the function rejects them."""
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
            f"{function.__name__}{signature} cannot be called with {', '.join(lists)}: {error}."
        ) from error
    return lists


def _listed(name: str, values: Any) -> list:
    """Return the values of one argument, all of them integers or all floats."""
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
