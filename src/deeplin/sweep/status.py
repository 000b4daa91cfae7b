"""Where a sweep stands, from its folder alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from deeplin.sweep.resume import running_shards
from deeplin.sweep.store import Store


@dataclass(frozen=True)
class Status:
    """How much of a sweep is finished, what failed, what is not to be trusted, who is at work."""

    folder: str
    experiment: str
    units: int
    finished: int
    failures: list[dict[str, Any]]
    """Of units that are not finished: unit, coordinates, error, trace."""
    suspect: dict[str, str]
    """Files that the next call will set aside, with the reason."""
    set_aside: int
    """Files that earlier calls have set aside."""
    running: list[str]
    sessions: int
    unit_seconds: float
    """Time spent on units, all sessions and workers together."""

    @property
    def complete(self) -> bool:
        """Whether every unit is finished."""
        return self.finished == self.units

    @property
    def healthy(self) -> bool:
        """Whether nothing failed and every file can be trusted."""
        return not self.failures and not self.suspect


def status(folder: str | os.PathLike) -> Status:
    """Look into the folder of a sweep; changes nothing, also while it is being computed.

    ```python
    import deeplin as dl
    from deeplin.sweep.descent import DESCENT, DescentSweep
    config = DescentSweep(scales=(0.2,), learning_rates=(0.02,), repetitions=2, steps=100)
    dl.sweep.run(DESCENT, config, "results/mine")
    assert dl.sweep.status("results/mine").complete
    ```
    """
    store = Store(folder)
    manifest, inventory = store.manifest, store.inventory()
    journal = list(store.journal())
    unfinished = set(manifest["units"]) - set(inventory.finished)
    return Status(
        folder=str(store.folder),
        experiment=manifest["experiment"],
        units=len(manifest["units"]),
        finished=len(inventory.finished),
        failures=[f for f in store.failures() if f["unit"] in unfinished],
        suspect={path.name: reason for path, reason in inventory.suspect.items()},
        set_aside=sum(1 for _ in store.aside.glob("*")),
        running=running_shards(store),
        sessions=len({line["session"] for line in journal}),
        unit_seconds=sum(line["seconds"] for line in journal if "outcome" in line),
    )
