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
from deeplin.sweep.config import portable_json, precision
from deeplin.sweep.executors import Executor, InProcess
from deeplin.sweep.experiment import Experiment, Unit
from deeplin.sweep.progress import Progress
from deeplin.sweep.session import Shard, open_session
from deeplin.sweep.store import Store
from deeplin.sweep.tasks import make_task

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
    dtype = precision()
    units = experiment.identify(config, experiment.units(config), dtype)
    chosen = shard.select(units)
    reference, text = experiment.reference, portable_json(experiment.config, config)
    failed: dict[str, str] = {}
    with open_session(folder, experiment, config, units, shard) as session:
        missing = {name: unit for name, unit in chosen.items() if name not in session.finished}
        tasks = [make_task(name, reference, text, unit, dtype) for name, unit in missing.items()]
        with (
            progress.over(
                missing,
                reused=len(chosen) - len(missing),
                aside=session.set_aside,
                expected=_expected_seconds(experiment, config, missing),
            ),
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
        reused=len(chosen) - len(missing),
        computed=len(missing) - len(failed),
        failed=failed,
        set_aside=session.set_aside,
        seconds=time.perf_counter() - started,
    )
    if _fail_alike(outcome):
        raise UnitsFailed(outcome)
    return outcome


def _fail_alike(outcome: Outcome) -> bool:
    """Whether nothing was ever finished and several units failed for one reason."""
    kinds = {re.sub(r"[\d.e+-]+", "", error) for error in outcome.failed.values()}
    return not outcome.reused and not outcome.computed and len(outcome.failed) > 1 == len(kinds)


def _expected_seconds(experiment: Experiment, config: Any, units: Mapping[str, Unit]) -> float:
    """Time for `units` in this process, after a rehearsal of one of them; 0 if not worth one."""
    steps = sum(unit.steps for unit in units.values())
    if experiment.rehearse is None or steps < WORTH_REHEARSING:
        return 0.0
    sample = max(units.values(), key=lambda unit: unit.steps)
    return experiment.rehearse(config, sample) * steps / sample.steps
