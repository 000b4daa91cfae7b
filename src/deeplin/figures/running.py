"""Run the studies behind figures, resumably, and judge their claims."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeplin.checks import InputError, seed_number, whole_number
from deeplin.figures.claims import FAILS, HOLDS, IN_PART, Claim
from deeplin.figures.figure import PRESETS, Figure, Panel, Study, Table
from deeplin.sweep import Progress, Store, UnitsFailed, run
from deeplin.sweep.config import digest


@dataclass(frozen=True)
class StudyResult:
    """The rows of a study, and how they came about."""

    study: Study
    config: Any
    folder: Path
    table: Table
    failures: tuple[str, ...]
    seconds: float
    """Computing time of its units, whenever they were computed."""


@dataclass(frozen=True)
class PanelResult:
    """A panel with its data and judged claims."""

    panel: Panel
    data: StudyResult
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class FigureResult:
    """A figure with everything the report needs."""

    figure: Figure
    preset: str
    seed: int
    panels: tuple[PanelResult, ...]
    failures: tuple[str, ...]
    """Errors of units that could not be computed; such a figure has no panels."""
    judging_seconds: float

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims of all panels."""
        return tuple(claim for panel in self.panels for claim in panel.claims)

    @property
    def verdict(self) -> str:
        """`holds` or `fails` if every claim does, else `holds in part`; or `not computed`."""
        if self.failures:
            return "not computed"
        verdicts = {claim.verdict for claim in self.claims}
        return HOLDS if verdicts <= {HOLDS} else (FAILS if verdicts == {FAILS} else IN_PART)


def reproduce(
    figures: Sequence[Figure],
    results: Path,
    *,
    preset: str = "quick",
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[str], Progress] = lambda title: Progress(),
) -> Iterator[FigureResult]:
    """Compute what the folder `results` lacks and yield each figure as it is finished.

    A study that several figures share is computed once; `workers` studies are computed at a time,
    in threads: compiling and compiled code let them run side by side, and a process of its own
    would spend more time starting than a quick study takes. Interrupt and call again to go on.

    ```python
    from deeplin.figures import FIGURES, reproduce
    results = reproduce([FIGURES[0]], "results")  # each is computed when it is asked for
    ```
    """
    if preset not in PRESETS:
        raise InputError(f"preset is {preset!r}; pass one of {', '.join(PRESETS)}.")
    seed_number(seed)
    studies = dict.fromkeys(study for figure in figures for study in figure.studies)
    pool = ThreadPoolExecutor(whole_number("workers", workers))
    try:
        finished = {
            study: pool.submit(_run, study, results, preset, seed, progress(study.name))
            for study in studies
        }
        for figure in figures:
            yield _judge(figure, preset, seed, {s: finished[s].result() for s in figure.studies})
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _run(study: Study, results: Path, preset: str, seed: int, progress: Progress) -> StudyResult:
    config = dataclasses.replace(study.presets[preset], seed=seed)
    # The folder carries the config's hash: another seed or preset never meets these units.
    folder = results / f"{study.name}-{preset}-{digest(config, size=4).hex()}"
    try:
        outcome = run(study.experiment, config, folder, progress=progress)
    except UnitsFailed as error:
        outcome = error.outcome
    table = outcome.table()
    failures = tuple(f"{study.name}: {error}" for error in outcome.failed.values())
    return StudyResult(study, config, folder, table, failures, _computing_seconds(outcome.store))


def _computing_seconds(store: Store) -> float:
    """Time spent on the finished units, over all sessions that wrote into the folder."""
    lines = {line["unit"]: line for line in store.journal() if line.get("outcome") == "finished"}
    return sum(line["seconds"] for line in lines.values())


def _judge(
    figure: Figure, preset: str, seed: int, finished: Mapping[Study, StudyResult]
) -> FigureResult:
    started = time.perf_counter()
    failures = tuple(text for study in figure.studies for text in finished[study].failures)
    panels = ()
    if not failures:
        panels = tuple(_judge_panel(panel, finished) for panel in figure.panels)
    return FigureResult(figure, preset, seed, panels, failures, time.perf_counter() - started)


def _judge_panel(panel: Panel, finished: Mapping[Study, StudyResult]) -> PanelResult:
    data = finished[panel.study]
    others = [] if panel.beside is None else [finished[panel.beside].table]
    return PanelResult(panel, data, tuple(panel.claims(data.config, data.table, *others)))
