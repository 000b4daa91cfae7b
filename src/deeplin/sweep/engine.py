"""The sweep itself: compute the units that are not finished, keep each as it comes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pandas as pd

from deeplin.errors import InputError
from deeplin.interrupt import check_interrupt, interruptible
from deeplin.sweep.executors import Executor, InProcess, Task
from deeplin.sweep.experiment import Experiment, Unit, precision
from deeplin.sweep.progress import Progress
from deeplin.sweep.store import Session, Shard, Store

WORTH_REHEARSING = 1_000_000
"""Network-steps from which on the running time is measured in advance."""


@dataclass(frozen=True)
class Outcome:
    """What a call of `run` did. The rows of its units, also of earlier calls, are in `table()`."""

    store: Store
    units: Sequence[str]
    """Ids of all units of the config, in its order."""
    reused: int
    """Units that were finished before."""
    computed: int
    """Units finished by this call."""
    failed: Mapping[str, str]
    """Units that raised, with their error; the next call tries them again."""
    set_aside: Mapping[str, str]
    """Files of the folder that were not trusted, with the reason."""
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether no unit of this call failed."""
        return not self.failed

    def table(self) -> pd.DataFrame:
        """One tidy table of all finished units, in the order of the config."""
        return self.store.table(self.units)


class UnitsFailed(RuntimeError):
    """Every unit failed, and all alike: it is the experiment or the config, not some units."""

    def __init__(self, outcome: Outcome):
        self.outcome = outcome
        unit, error = next(iter(outcome.failed.items()))
        super().__init__(
            f"all {len(outcome.failed)} units failed alike: {error} (traceback in "
            f"{outcome.store.failed / unit}.json)"
        )


@interruptible
def run(
    experiment: Experiment,
    config: Any,
    folder: str | os.PathLike,
    *,
    executor: Executor | None = None,
    shard: Shard | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Compute what `folder` lacks of a sweep; interrupt and repeat the call as often as you like.

    Finished units are never computed again, a unit that raises is recorded with its traceback and
    tried again by the next call, and the table does not depend on who computed what. When all
    units fail alike, `UnitsFailed` is raised.

    ```python
    import deeplin as dl
    from deeplin.sweep.descent import DESCENT, DescentSweep

    config = DescentSweep(scales=(0.2, 0.4), learning_rates=(0.02, 0.1), repetitions=2, steps=100)
    outcome = dl.sweep.run(DESCENT, config, "results/mine")
    outcome.table()
    ```
    """
    if not isinstance(config, experiment.config):
        raise InputError(
            f"config is a {type(config).__name__}; experiment {experiment.name} takes a "
            f"{experiment.config.__name__}."
        )
    started = time.perf_counter()
    executor, shard, progress = executor or InProcess(), shard or Shard(), progress or Progress()
    dtype, failed = precision(), {}
    units = experiment.identify(config, experiment.units(config), dtype)
    chosen = shard.select(units)
    session = Session(folder, shard, units)
    with session.open(experiment, config):
        missing = {name: unit for name, unit in chosen.items() if name not in session.finished}
        reused = len(chosen) - len(missing)
        tasks = [Task(name, experiment, config, unit, dtype) for name, unit in missing.items()]
        tasks.sort(key=lambda task: task.unit.bucket)  # so that a worker compiles few shapes
        expected = _expected_seconds(experiment, config, missing)
        with (
            progress.over(missing, reused=reused, aside=session.set_aside, expected=expected),
            closing(executor.execute(tasks)) as results,
        ):
            for result in results:
                error = session.keep(result)
                if error:
                    failed[result.identifier] = error
                progress.advance(result.identifier, error)
                check_interrupt()
    outcome = Outcome(
        session.store,
        list(units),
        reused=reused,
        computed=len(missing) - len(failed),
        failed=failed,
        set_aside=session.set_aside,
        seconds=time.perf_counter() - started,
    )
    # Numbers aside, is there one error for all, and was nothing ever finished?
    kinds = {re.sub(r"[\d.e+-]+", "", error) for error in failed.values()}
    if not reused and len(missing) == len(failed) > 1 == len(kinds):
        raise UnitsFailed(outcome)
    return outcome


def _expected_seconds(experiment: Experiment, config: Any, units: Mapping[str, Unit]) -> float:
    """Time for `units` in this process, after a rehearsal of one of them; 0 if not worth one."""
    steps = sum(unit.steps for unit in units.values())
    if experiment.rehearse is None or steps < WORTH_REHEARSING:
        return 0.0
    sample = max(units.values(), key=lambda unit: unit.steps)
    return experiment.rehearse(config, sample) * steps / sample.steps
