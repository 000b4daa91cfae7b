"""What a figure is: panels, each with its study, plot and claims, and the protocol behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from matplotlib.axes import Axes

from deeplin.checks import InputError
from deeplin.figures.claims import Claim
from deeplin.sweep import Experiment

PRESETS = ("quick", "paper")
Table: TypeAlias = Any
"""A `pandas.DataFrame`, one row for each run or record. Not annotated as such: type checkers take
every selection from a DataFrame for a Series as well, and object to most that is done with it."""


@dataclass(frozen=True, eq=False)
class Study:
    """An experiment with one config for each preset: the data behind one or more panels.

    Panels that share a study share its runs: FM-1a, FM-1b and FM-3 are three views of one sweep.
    """

    name: str
    experiment: Experiment
    paper: Any
    """The config of the full protocol; it has a field `seed`."""
    quick: Any
    """The same in seconds."""

    @property
    def presets(self) -> dict[str, Any]:
        """Config by preset."""
        return {preset: getattr(self, preset) for preset in PRESETS}


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes: `plot(config, table, ax)` and `claims(config, table)` on one study."""

    name: str
    """As the paper calls it, for example FM-1a."""
    caption: str
    study: Study
    plot: Callable[[Any, Table, Axes], None]
    claims: Callable[..., Sequence[Claim]] = lambda config, table: ()
    """`claims(config, table)`; with `beside` its table comes third."""
    size: tuple[float, float] = (4.8, 3.5)
    """Width and height in inches."""
    beside: Study | None = None
    """Another study that the claims compare with."""


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure of a paper (or a new one beside it) with everything needed to reproduce it."""

    name: str
    """As the paper calls it, for example FM-1."""
    title: str
    panels: tuple[Panel, ...]
    printed: str
    """The protocol as the paper prints it."""
    as_run: str
    """The protocol as it was run by the authors, as far as it differs, and as it is run here."""

    @property
    def studies(self) -> tuple[Study, ...]:
        """The studies behind the panels, each once."""
        used = [study for panel in self.panels for study in (panel.study, panel.beside)]
        return tuple(dict.fromkeys(study for study in used if study is not None))


def select(figures: Sequence[Figure], names: Sequence[str] | None) -> list[Figure]:
    """The figures with these names or with panels of these names (any case); None selects all."""
    if not names:
        return list(figures)
    known = {figure.name.lower(): figure for figure in figures}
    known |= {panel.name.lower(): figure for figure in figures for panel in figure.panels}
    unknown = [name for name in names if name.lower() not in known]
    if unknown:
        available = ", ".join(figure.name for figure in figures)
        raise InputError(f"there is no figure {', '.join(unknown)}; there are {available}.")
    chosen = {known[name.lower()] for name in names}
    return [figure for figure in figures if figure in chosen]
