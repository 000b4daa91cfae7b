"""Figures: panels with a study, a plot and questions, and how they are run and judged.

A figure is defined in a module of its own, beside its studies and plots; `figures.toml` has the
prose that people read of it.
"""

from __future__ import annotations

import dataclasses
import itertools
import string
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from numbers import Integral
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import pandas as pd
from matplotlib.axes import Axes

from deeplin.errors import InputError, seed_number, whole_number
from deeplin.papers import verdicts
from deeplin.papers.statistics import each, extent, interval, number, percent
from deeplin.plot_style import SIZE, place_legend, plain_numbers
from deeplin.sweep import Experiment, Progress, Unit, UnitsFailed
from deeplin.sweep import run as run_sweep
from deeplin.sweep.keys import digest

PRESETS = ("quick", "paper")
Table: TypeAlias = Any
"""A `pandas.DataFrame`, one row for each run or record. It is not annotated as such, because type
checkers treat every selection from a DataFrame as a possible Series."""
Answers: TypeAlias = dict[str, dict[str, Any]]
"""For each question of a panel, the values that are inserted into its answer in `figures.toml`."""


class Question(NamedTuple):
    """A question of our own and its measured answer, without pass or fail.

    The answer is a sentence with numbers and their intervals. It is recorded, so that changes are
    detected.
    """

    name: str
    """Short, and unique in its panel."""
    text: str
    answer: str


class _Writer(string.Formatter):
    """Write `{x}` as a number, `{x:extent}`, `{x:percent}`, … by the functions of `statistics`."""

    kinds: Mapping[str, Callable[[Any], Any]] = {
        "": number, "extent": extent, "percent": percent, "interval": interval, "count": len
    }  # fmt: skip

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format one value; a text or an integer is unchanged."""
        kind, _, name = format_spec.partition(" ")
        if kind == "each":
            return each(name.replace("%", "{}"), value)
        plain = kind == "" and isinstance(value, str | Integral)
        return str(value if plain else self.kinds[kind](value))


def answered(name: str, entry: Mapping[str, str], **values: Any) -> Question:
    """Fill a question and its answer with the values that they name."""
    texts = entry["text"], entry["answer"]
    return Question(name, *(_Writer().format(text, **values) for text in texts))


@dataclass(frozen=True, eq=False)
class Study:
    """An experiment with one config for each preset, which provides the data of one or more panels.

    Panels that share a study share its runs: FM-1a, FM-1b and FM-3 are three views of one sweep.
    """

    name: str
    experiment: Experiment
    paper: Any
    """The config of the full protocol; it has a field `seed`."""
    quick: Any
    """The config of a run that takes seconds."""

    @property
    def presets(self) -> dict[str, Any]:
        """Config by preset."""
        return {preset: getattr(self, preset) for preset in PRESETS}

    def runs(self, config: Any) -> int:
        """Return the number of runs with a config."""
        return sum(unit.runs for unit in self.experiment.units(config))


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes: `plot(config, table, ax)` and `questions(config, table)` on one study."""

    name: str
    """Name as in the paper, for example FM-1a."""
    caption: str
    study: Study
    plot: Callable[[Any, Table, Axes], None]
    questions: Callable[..., Sequence[Question]] = lambda config, table: ()
    """The project's own questions about the same table."""
    size: tuple[float, float] = SIZE
    """Width and height in inches."""
    ours: bool = False
    """Whether this is not a panel of a paper."""
    theorems: Callable[[Any, Table], dict[str, Any]] | None = None
    """Function that counts the theorems that the table's certificates judge."""


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure of a paper (or a new one) with everything needed to reproduce it."""

    name: str
    """Name as in the paper, for example FM-1."""
    title: str
    panels: tuple[Panel, ...]
    printed: str
    """The protocol as the paper prints it."""
    as_run: str
    """The protocol as it was run by the authors, as far as it differs, and as it is run here."""

    @property
    def studies(self) -> tuple[Study, ...]:
        """The studies behind the panels, each once."""
        return tuple(dict.fromkeys(panel.study for panel in self.panels))


@cache
def prose() -> dict[str, Any]:
    """Read titles, protocols, captions and questions from `figures.toml`."""
    source = files("deeplin.papers").joinpath("figures.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))


def define_panel(
    name: str,
    study: Study,
    plot: Callable[[Any, Table, Axes], None],
    answers: Callable[[Any, Table], Answers] | None = None,
    *,
    axes: Mapping[str, Any],
    legend: Mapping[str, Any] | None = MappingProxyType({}),
    size: tuple[float, float] = SIZE,
    plain: bool = False,
    ours: bool = False,
    theorems: Callable[[Any, Table], dict[str, Any]] | None = None,
) -> Panel:
    """Return a panel with the caption and the questions that `figures.toml` has for it.

    Args:
        name: name of the panel.
        study: the study that it draws.
        plot: function that draws a table of the study.
        answers: function that returns, for each question it answers, the values that the sentence
            in `figures.toml` names.
        axes: properties of the axes, such as `xlabel`.
        legend: options of `place_legend`; None if the plot places it, or has none.
        size: width and height in inches.
        plain: whether plain numbers stand for powers of ten on the vertical axis.
        ours: whether no paper prints this panel.
        theorems: function that counts the theorems that the table judges.
    """

    def draw(config: Any, table: Table, ax: Axes) -> None:
        plot(config, table, ax)
        ax.set(**axes)
        if plain:
            plain_numbers(ax.yaxis)
        if legend is not None:
            place_legend(ax, **legend)

    def questions(config: Any, table: Table) -> list[Question]:
        found = answers(config, table) if answers else {}
        texts = prose()["questions"]
        return [
            answered(asked, texts[asked], config=config, **values)
            for asked, values in found.items()
        ]

    caption = prose()["captions"][name]
    return Panel(name, caption, study, draw, questions, size, ours, theorems)


def define_figure(name: str, *panels: Panel) -> Figure:
    """Return a figure with the title and the protocols that `figures.toml` has for it."""
    return Figure(name=name, panels=panels, **prose()["figures"][name])


def define_study(
    name: str,
    run: Callable[..., Any],
    over: Mapping[str, str | Sequence[Any]] | Callable[[Any], list[Unit]],
    *,
    paper: Any,
    quick: Mapping[str, Any],
    runs: str | Callable[[Any], int] = "",
    steps: str = "",
) -> Study:
    """Return a study with a unit for each combination of coordinates.

    Args:
        name: name of the study.
        run: `run(config, **coordinates)` returns rows or columns, to which coordinates that they
            lack are added.
        over: source of the values of each coordinate: a field of the config (an integer n stands
            for 0 … n−1), or the values themselves. Or a function that lists the units.
        paper: the config of the full protocol.
        quick: changes of it in the quick preset.
        runs: the field with the number of runs of a unit, or a function of the config.
        steps: the field with the steps of each run.
    """
    axes = {} if callable(over) else over

    def values(config: Any, where: str | Sequence[Any]) -> Sequence[Any]:
        given = getattr(config, where) if isinstance(where, str) else where
        return range(given) if isinstance(given, int) else given

    def units(config: Any) -> list[Unit]:
        count = runs(config) if callable(runs) else len(values(config, runs)) if runs else 1
        every = count * getattr(config, steps) if steps else 0
        points = itertools.product(*(values(config, where) for where in axes.values()))
        return [Unit(dict(zip(axes, point, strict=True)), count, every) for point in points]

    def run_unit(config: Any, unit: Unit) -> pd.DataFrame:
        rows = pd.DataFrame(run(config, **unit.coordinates))
        for place, coordinate in enumerate(key for key in axes if key not in rows):
            rows.insert(place, coordinate, unit.coordinates[coordinate])
        return rows

    listed = over if callable(over) else units
    experiment = Experiment(name, type(paper), listed, run_unit)
    return Study(name, experiment, paper, dataclasses.replace(paper, **quick))


def select(figures: Sequence[Figure], names: Sequence[str] | None) -> list[Figure]:
    """Return the figures with these names or panels (any case); None selects all."""
    if not names:
        return list(figures)
    known = {figure.name.lower(): figure for figure in figures}
    known |= {panel.name.lower(): figure for figure in figures for panel in figure.panels}
    unknown = [name for name in names if str(name).lower() not in known]
    if unknown:
        available = ", ".join(figure.name for figure in figures)
        raise InputError(
            f"there is no figure {', '.join(map(str, unknown))}; there are {available}."
        )
    chosen = {known[name.lower()] for name in names}
    return [figure for figure in figures if figure in chosen]


@dataclass(frozen=True)
class StudyResult:
    """The rows of a study with its config, failures and time."""

    study: Study
    config: Any
    table: Table
    failures: tuple[str, ...]
    seconds: float
    """Computing time of its units, whenever they were computed."""


@dataclass(frozen=True)
class PanelResult:
    """A panel with its data and the answers to its questions."""

    panel: Panel
    data: StudyResult
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class FigureResult:
    """A figure with everything the report needs."""

    figure: Figure
    preset: str
    seed: int
    panels: tuple[PanelResult, ...]
    quotes: tuple[dict[str, Any], ...]
    """The judged sentences about its panels (`Quote.judge`)."""
    failures: tuple[str, ...]
    """Errors of units that could not be computed; such a figure has no panels."""


def reproduce(
    figures: Sequence[Figure],
    results: Path,
    *,
    preset: str = "quick",
    seed: int = 0,
    workers: int = 1,
    quotes: Sequence[verdicts.Quote] = (),
    progress: Callable[[str], Progress] = lambda title: Progress(),
) -> Iterator[FigureResult]:
    """Compute what is missing in the folder `results` and yield each figure as it is finished.

    A study that several figures share is computed once; `workers` studies are computed at a time,
    in threads: compilation and compiled code run in parallel, and starting a process would take
    longer than a quick study. `quotes` about the figures' panels are judged with them. After an
    interruption, call it again to continue.

    ```python
    from deeplin.papers.catalogue import FIGURES
    from deeplin.papers.figures import reproduce
    results = reproduce([FIGURES[0]], "results")  # an iterator: computes on demand
    ```
    """
    if preset not in PRESETS:
        raise InputError(f"preset is {preset!r}; pass one of {', '.join(PRESETS)}.")
    seed_number(seed)
    about = {
        figure: [quote for quote in quotes if quote.panel in {p.name for p in figure.panels}]
        for figure in figures
    }
    needed = {
        figure: [*figure.studies, *(study for quote in about[figure] for study in quote.studies)]
        for figure in figures
    }
    studies = dict.fromkeys(study for figure in figures for study in needed[figure])
    pool = ThreadPoolExecutor(whole_number("workers", workers))
    try:
        finished = {
            study: pool.submit(_run, study, results, preset, seed, progress(study.name))
            for study in studies
        }
        for figure in figures:
            results_of = {study: finished[study].result() for study in needed[figure]}
            yield _judge(figure, about[figure], preset, seed, results_of)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _run(study: Study, results: Path, preset: str, seed: int, progress: Progress) -> StudyResult:
    config = dataclasses.replace(study.presets[preset], seed=seed)
    # The folder name has the config's hash: other seeds and presets use other folders.
    folder = results / f"{study.name}-{preset}-{digest(config, size=4).hex()}"
    try:
        outcome = run_sweep(study.experiment, config, folder, progress=progress)
    except UnitsFailed as error:
        outcome = error.outcome
    failures = tuple(f"{study.name}: {error}" for error in outcome.failed.values())
    return StudyResult(study, config, outcome.table(), failures, outcome.seconds)


def _judge(
    figure: Figure,
    quotes: Sequence[verdicts.Quote],
    preset: str,
    seed: int,
    finished: Mapping[Study, StudyResult],
) -> FigureResult:
    failures = tuple(text for result in finished.values() for text in result.failures)
    panels, judged = [], []
    for panel in () if failures else figure.panels:
        data = finished[panel.study]
        questions = tuple(panel.questions(data.config, data.table))
        panels.append(PanelResult(panel, data, questions))
    for quote in () if failures else quotes:
        first, *_ = data = [finished[study] for study in quote.studies]
        tables = [result.table for result in data]
        judged.append(quote.judge(first.config, *tables, preset=preset))
    return FigureResult(figure, preset, seed, tuple(panels), tuple(judged), failures)
