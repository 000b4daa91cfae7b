"""A sweep starts or resumes: its folder opened alone, with its own config, without doubtful files.

Units whose tables are there, whole, are not computed again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from deeplin.errors import InputError
from deeplin.sweep.config import precision, to_plain
from deeplin.sweep.experiment import Experiment, Unit
from deeplin.sweep.session import Session, Shard, environment
from deeplin.sweep.store import FORMAT, OUTCOMES, DamagedManifest, Failure, Store

GATE_SECONDS = 120
"""How long to wait for another process that is just opening the folder."""


@contextmanager
def open_session(
    folder: str | os.PathLike,
    experiment: Experiment,
    config: Any,
    units: Mapping[str, Unit],
    shard: Shard,
) -> Iterator[Session]:
    """Open the folder for one shard of a sweep; work that overlaps a running one is refused."""
    store, manifest = Store(folder), _manifest(experiment, config, units)
    _make_folders(store)
    session = Session(store, shard, units)
    started = time.perf_counter()
    with ExitStack() as locks:
        with _gate(store):
            neighbours = _claim(store, shard, locks)
            _prepare(session, experiment, manifest, neighbours)
        yield session
        session.note(ended=_now(), seconds=round(time.perf_counter() - started, 3))
        with _gate(store):
            session.write_manifest({**manifest, "sessions": _sessions(store)})


def running_shards(store: Store) -> list[str]:
    """The shards that a living process is working on, as `i-of-N`."""
    paths = sorted(store.locks.glob("*-of-*.lock"))
    return [path.stem for path in paths if os.access(path, os.W_OK) and _is_held(path)]


@dataclass(frozen=True)
class Status:
    """How much of a sweep is finished, what failed, what is not to be trusted, who is at work."""

    folder: str
    experiment: str
    units: int
    finished: int
    failures: list[Failure]
    """Of units that are not finished."""
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


def _make_folders(store: Store) -> None:
    try:
        for folder in (store.units, store.failed, store.aside, store.sessions, store.locks):
            folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(store.units, os.W_OK) and os.access(store.sessions, os.W_OK)
    except OSError as error:
        raise InputError(
            f"cannot write in {store.folder}: {error.strerror}; pass a folder you may write in."
        ) from error
    if not writable:
        raise InputError(f"{store.folder} is read-only; pass a folder you may write in.")


@contextmanager
def _gate(store: Store) -> Iterator[None]:
    """Opening and closing a folder is for one process at a time."""
    try:
        with FileLock(store.locks / "gate.lock", timeout=GATE_SECONDS):
            yield
    except Timeout as error:
        raise InputError(
            f"another process has been opening {store.folder} for {GATE_SECONDS} s; try again."
        ) from error


def _claim(store: Store, shard: Shard, locks: ExitStack) -> list[str]:
    """Take the lock of this shard; returns the neighbours at work on other shards.

    The system releases the lock of a killed process, so nothing is ever locked by the dead.
    """
    running = running_shards(store)
    for name in running:
        if name == shard.name or not name.endswith(f"-of-{shard.count}"):
            raise InputError(
                f"another process is sweeping into {store.folder} (shard {name}, "
                f"{_holder(store, name)}); wait for it, or pass another folder."
            )
    for folder in store.temporary.glob("*-of-*"):
        if folder.name not in running:
            shutil.rmtree(folder)  # left by a process that was killed while writing
    locks.enter_context(FileLock(store.locks / f"{shard.name}.lock", timeout=GATE_SECONDS))
    (store.temporary / shard.name).mkdir(parents=True)
    locks.callback(shutil.rmtree, store.temporary / shard.name, ignore_errors=True)
    return running


def _is_held(path: Path) -> bool:
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True


def _holder(store: Store, shard: str) -> str:
    headers = [line for line in store.journal() if line.get("shard") == shard]
    try:
        last = headers[-1]
        return f"process {last['process']} on {last['machine']['name']} since {last['started']}"
    except (LookupError, TypeError):  # before its first line, or the line is damaged
        return "just starting"


def _manifest(experiment: Experiment, config: Any, units: Mapping[str, Unit]) -> dict[str, Any]:
    """What the sweep is."""
    return {
        "format": FORMAT,
        "experiment": experiment.name,
        "reference": experiment.reference,
        "schema": experiment.schema,
        "dtype": precision(),
        "seed": to_plain(config).get("seed"),
        "config": to_plain(config),
        "units": list(units),
    }


def _prepare(
    session: Session, experiment: Experiment, manifest: dict[str, Any], neighbours: list[str]
) -> None:
    """Check the sweep against what is there, set doubtful files aside, write the manifest."""
    store = session.store
    try:
        earlier = store.find_manifest()
    except DamagedManifest as error:
        session.move_aside(store.manifest_path, str(error))
        earlier = None
    mine = set(session.units)
    theirs = set(earlier["units"]) if earlier else set()
    inventory = store.inventory(frozenset(mine | theirs))
    if earlier:
        _check_same_sweep(store, manifest, earlier)
        others = [unit for unit in earlier["units"] if unit in inventory.finished.keys() - mine]
        kept = experiment.subsets and not _changed(experiment, manifest, earlier)
        if (others and not kept) or (neighbours and theirs != mine):
            raise InputError(_other_config(store, manifest, earlier, len(others)))
        manifest["units"] += others
    for path, reason in inventory.suspect.items():
        session.move_aside(path, reason)
    session.adopt(inventory.finished)
    who = {"process": os.getpid(), "shard": session.shard.name, "dtype": manifest["dtype"]}
    session.note(started=_now(), **who, **environment())
    session.write_manifest({**manifest, "sessions": _sessions(store)})


def _check_same_sweep(store: Store, mine: dict[str, Any], earlier: dict[str, Any]) -> None:
    for name in ("experiment", "schema", "dtype"):
        if earlier[name] != mine[name]:
            raise InputError(
                f"{store.folder} holds a sweep with {name} {earlier[name]}, not {mine[name]}; "
                "pass another folder."
            )


def _other_config(
    store: Store, mine: dict[str, Any], earlier: dict[str, Any], stranded: int
) -> str:
    changed = _differences(mine["config"], earlier["config"])
    listed = ", ".join(changed) or "the content of the data"
    return (
        f"{store.folder} holds a sweep with another config (different: {listed}), and "
        f"{stranded} finished unit(s) do not belong to this one; pass another folder."
    )


def _changed(experiment: Experiment, mine: dict[str, Any], earlier: dict[str, Any]) -> bool:
    """Whether the configs differ in more than which units there are."""
    return any(
        mine["config"].get(name) != earlier["config"].get(name)
        for name in mine["config"].keys() | earlier["config"]
        if name not in experiment.grid
    )


def _differences(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Names of the fields that differ; of a mapping from names to text, its own names."""
    listed = []
    for name in sorted(name for name in new.keys() | old if new.get(name) != old.get(name)):
        both = new.get(name), old.get(name)
        texts = all(
            isinstance(m, dict) and all(isinstance(v, str) for v in m.values()) for m in both
        )
        listed += _differences(new[name], old[name]) if texts else [name]
    return listed


def _sessions(store: Store) -> dict[str, dict[str, Any]]:
    """Every session so far: its header, how many units ended how, and the time they took."""
    journals: dict[str, list[dict[str, Any]]] = {}
    for line in store.journal():
        journals.setdefault(line.pop("session"), []).append(line)
    return {name: _summary(lines) for name, lines in journals.items()}


def _summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    ends = [line for line in lines if "outcome" in line]
    header = {k: v for line in lines if "outcome" not in line for k, v in line.items()}
    counts = {outcome: sum(end["outcome"] == outcome for end in ends) for outcome in OUTCOMES}
    return header | counts | {"unit_seconds": round(sum(end["seconds"] for end in ends), 6)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
