"""Experiments of sweeps, and the loop that computes the missing units of a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import pandas as pd

from deeplin.errors import InputError, whole_number
from deeplin.sweep.executors import Rows, compute_all
from deeplin.sweep.keys import digest, to_plain
from deeplin.sweep.progress import Progress
from deeplin.sweep.store import Store


@dataclass(frozen=True)
class Unit:
    """One piece of work, ideally one jitted batch, that is either finished or not.

    `coordinates` define what it computes (JSON values); `runs` and `steps` (total network-steps)
    are for the progress display.
    """

    coordinates: Mapping[str, Any]
    runs: int = 1
    steps: int = 0

    def __post_init__(self):
        object.__setattr__(self, "coordinates", to_plain(self.coordinates, "coordinates"))
        whole_number("runs of a unit", self.runs, minimum=0)
        whole_number("steps of a unit", self.steps, minimum=0)


@dataclass(frozen=True, eq=False)
class Experiment:
    """A name, the class of its config, `units(config)` and `run_unit(config, unit)`.

    `run_unit` returns tidy rows: a DataFrame, or columns by name.

    ```python
    from dataclasses import dataclass
    from deeplin.sweep import Experiment, Unit, run

    @dataclass(frozen=True)
    class Config:
        numbers: tuple[int, ...] = (1, 2, 3)

    def units(config):
        return [Unit({"number": number}) for number in config.numbers]

    def run_unit(config, unit):
        return {"square": [unit.coordinates["number"] ** 2]}

    squares = Experiment("squares", Config, units, run_unit)
    assert run(squares, Config(), "results/squares").table()["square"].tolist() == [1, 4, 9]
    ```
    """

    name: str
    config: type
    units: Callable[[Any], Sequence[Unit]]
    run_unit: Callable[[Any, Unit], Rows]

    def identity(self, config: Any) -> dict[str, Any]:
        """Return what determines, together with their coordinates, what units compute."""
        return {"experiment": self.name, "config": to_plain(config)}


@dataclass(frozen=True)
class Outcome:
    """Outcome of a sweep; `table()` has the rows of its units, also of earlier calls."""

    store: Store
    units: Sequence[str]
    """Names of all units, in their order."""
    reused: int
    """Units that were finished before."""
    computed: int
    """Units finished by this call."""
    failed: Mapping[str, str]
    """Units that raised, with their error; the next call tries them again."""
    traces: Mapping[str, str]
    """Tracebacks of the units that raised."""

    @property
    def complete(self) -> bool:
        """Whether no unit failed."""
        return not self.failed

    @property
    def seconds(self) -> float:
        """Computing time of the finished units, whenever they were computed."""
        return self.store.seconds(self.units)

    def table(self) -> pd.DataFrame:
        """Return one tidy table of all finished units, in their order."""
        return self.store.table(self.units)


class UnitsFailed(RuntimeError):
    """Raised when all units failed with the same error, due to the function or its arguments."""

    def __init__(self, outcome: Outcome):
        self.outcome = outcome
        unit, error = next(iter(outcome.failed.items()))
        trace = outcome.traces[unit]
        super().__init__(f"all {len(outcome.failed)} units failed alike: {error}\n{trace}".rstrip())


def precision() -> str:
    """Return the floating type JAX uses now: `float64` or `float32`, part of a unit's identity."""
    return str(jnp.result_type(float))


def name_units(identity: Mapping[str, Any], units: Sequence[Unit]) -> dict[str, Unit]:
    """Return units by name, a hash of the identity and their coordinates."""
    common = digest(identity).hex()  # a config with thousands of values is hashed only once
    named = {digest([common, unit.coordinates], size=12).hex(): unit for unit in units}
    if len(named) != len(units):
        raise InputError(
            f"{len(units) - len(named)} unit(s) repeat the coordinates of another; give each unit "
            "its own."
        )
    return named


def run(
    experiment: Experiment,
    config: Any,
    folder: str | os.PathLike,
    *,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Compute the missing units of an experiment in `folder`; see `run_units`."""
    if not isinstance(config, experiment.config):
        raise InputError(
            f"config is a {type(config).__name__}; experiment {experiment.name} takes a "
            f"{experiment.config.__name__}."
        )
    return run_units(
        experiment.identity(config),
        experiment.units(config),
        partial(experiment.run_unit, config),
        folder,
        workers=workers,
        executor=executor,
        progress=progress,
    )


def run_units(
    identity: Mapping[str, Any],
    units: Sequence[Unit],
    function: Callable[[Unit], Rows],
    folder: str | os.PathLike,
    *,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Compute the missing units in `folder`; the call can be interrupted and repeated.

    Finished units are never computed again, a unit that raises is tried again by the next call,
    and the table does not depend on the executor. If all units fail with the same error,
    `UnitsFailed` is raised.

    Args:
        identity: JSON values that determine, together with the coordinates, what units compute.
        units: all units, in the order of the table.
        function: returns the rows of a unit.
        folder: where finished units are kept.
        workers: number of worker processes; 1 computes in this process.
        executor: any `concurrent.futures.Executor` in place of `workers`.
        progress: shows what is done.
    """
    identity = {**identity, "precision": precision()}
    named = name_units(identity, units)
    store, progress = Store(folder), progress or Progress()
    store.open(identity)
    finished, damaged = store.finished(named)
    missing = {name: unit for name, unit in named.items() if name not in finished}
    failed: dict[str, str] = {}
    traces: dict[str, str] = {}
    with (
        progress.over(missing, reused=len(finished), damaged=damaged),
        closing(
            compute_all(function, missing, precision(), workers, executor, digest(identity).hex())
        ) as results,
    ):
        for result in results:
            if result.error:
                failed[result.unit], traces[result.unit] = result.error, result.trace
            else:
                store.keep(result.unit, result.payload)
            progress.advance(result.unit, result.error)
    computed = len(missing) - len(failed)
    outcome = Outcome(store, list(named), len(finished), computed, failed, traces)
    # Is there one error for all, apart from numbers, and no finished unit?
    kinds = {re.sub(r"[\d.e+-]+", "", error) for error in failed.values()}
    if not finished and len(missing) == len(failed) > 1 == len(kinds):
        raise UnitsFailed(outcome)
    return outcome
