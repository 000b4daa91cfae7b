"""The list of all figures, in the order of the report, of all quotes, and varied figures.

`figures.toml` has the texts of a figure, and names the study, the plot and the answers of each of
its panels; `quotes.toml` names the studies and the measurement of each sentence.
"""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from functools import partial
from importlib import import_module
from importlib.resources import files
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from deeplin.errors import InputError
from deeplin.papers import readings
from deeplin.papers.figures import PRESETS, Figure, Panel, Question, Study, Table, answered, select
from deeplin.papers.figures import FigureResult as FigureResult
from deeplin.papers.figures import reproduce as reproduce
from deeplin.papers.quote import LeftOutSentence, Quote
from deeplin.plot_style import SIZE, finish, style

MODULES = (
    *("fm_1", "fm_2", "fm_residual", "fm_small", "trajectories", "bo_1", "bo_2", "bo_bounds"),
    *("eos", "theorems", "x_batch", "x_rates"),
)
"""Modules of this package that define studies, with the functions that draw and judge them."""
STUDIES = {
    found.name: found
    for module in MODULES
    for found in vars(import_module(f"deeplin.papers.{module}")).values()
    if isinstance(found, Study)
}


def toml_entries(name: str) -> list[dict[str, Any]]:
    """Read one of this package's lists of entries, `name.toml`."""
    source = files("deeplin.papers").joinpath(f"{name}.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))[name]


def _define_panel(entry: dict[str, Any]) -> Panel:
    """Return the panel of an entry, with the functions it names in the module of its study."""
    study = STUDIES[entry["study"]]
    module = sys.modules[study.experiment.home]

    def function(name: str) -> Any:
        """Return the function that the entry names, with the options next to its name."""
        given = entry[name] if isinstance(entry[name], dict) else {"function": entry[name]}
        options = {key: value for key, value in given.items() if key != "function"}
        return partial(getattr(module, given["function"]), **options)

    def plot(config: Any, table: Table, ax: Axes) -> None:
        function("plot")(config, table, ax)
        finish(ax, entry["axes"], entry.get("plain_numbers", ()), entry.get("legend"))

    def questions(config: Any, table: Table, *beside: Table) -> list[Question]:
        found = function("answers")(config, table, *beside) if entry.get("answers") else {}
        return [
            answered(name, entry["questions"][name], config=config, **values)
            for name, values in found.items()
        ]

    return Panel(
        entry["name"],
        entry["caption"],
        study,
        plot,
        questions,
        tuple(entry.get("size", SIZE)),
        beside=STUDIES[entry["beside"]] if "beside" in entry else None,
        ours=entry.get("ours", False),
        theorems=function("theorems") if "theorems" in entry else None,
    )


def _define_figures() -> tuple[Figure, ...]:
    """Return the figures of `figures.toml`; a panel `like` another inherits its other fields."""
    known, figures = {}, []
    for entry in toml_entries("figures"):
        for panel in entry["panels"]:
            model = known.get(panel.get("like", ""), {})
            axes = model.get("axes", {}) | panel.get("axes", {})
            known[panel["name"]] = model | panel | {"axes": axes}
        entry["panels"] = tuple(_define_panel(known[panel["name"]]) for panel in entry["panels"])
        figures.append(Figure(**entry))
    return tuple(figures)


FIGURES = _define_figures()
"""Figures in the order of the report: the papers' figures, the theorems, our own questions."""
PANELS = {panel.name: panel for figure in FIGURES for panel in figure.panels}


def _quote(measure: str, studies: list[str], **entry: str) -> Quote:
    found = tuple(STUDIES[study] for study in studies)
    return Quote(**entry, measure=getattr(readings, measure), studies=found)


QUOTES = tuple(_quote(**entry) for entry in toml_entries("quotes"))
LEFT_OUT = tuple(LeftOutSentence(**entry) for entry in toml_entries("left_out"))
"""Sentences about experiments that are not judged, each with the reason."""


def quotes() -> list[Quote]:
    """List every quoted sentence of FM, BO and the Talk with our reading and recorded verdict.

    ```python
    import deeplin as dl
    quote = dl.papers.quotes()[0]
    print(quote.paper, quote.place, quote.text, quote.reading, quote.value, quote.verdict)
    ```
    """
    return list(QUOTES)


def figure(name: str, *, preset: str = "quick", ax: Axes | None = None, **changes: Any) -> Axes:
    """Compute a panel of a paper with some of its settings changed, draw it, and return the axes.

    Args:
        name: name of a panel, such as FM-1a, or of a figure, which stands for its first panel.
        preset: `quick`, or `paper` for the full protocol; it provides all other fields.
        ax: axes to draw on.
        changes: fields of the study's config (`depths`, `learning_rates`, `steps`, …) or of its
            setting (`samples`, `noise`, `data_seed`, …). Unless `seed` is among them it becomes 1:
            the initial weights of seed 0 are the FM authors', drawn for their settings alone.

    ```python
    import deeplin as dl
    ax = dl.papers.figure("FM-2", depths=(3,), learning_rates=(0.1, 0.3), steps=50, repetitions=2)
    ```
    """
    (chosen,) = select(FIGURES, [name])
    named = (panel for panel in chosen.panels if panel.name.lower() == name.lower())
    panel = next(named, chosen.panels[0])
    if preset not in PRESETS:
        raise InputError(f"preset is {preset!r}; pass one of {', '.join(PRESETS)}.")
    study = panel.study
    given = {"seed": 1} | changes if changes else {}
    config = _changed(study.presets[preset], given, name)
    tables = [study.experiment.run_unit(config, unit) for unit in study.experiment.units(config)]
    table = pd.concat(map(pd.DataFrame, tables), ignore_index=True)
    with style():
        if ax is None:
            ax = plt.subplots(figsize=panel.size, layout="constrained")[1]
        panel.plot(config, table, ax)
    return ax


def _changed(config: Any, changes: dict[str, Any], name: str) -> Any:
    """Replace fields of the config, and of its setting where that has them."""
    own = {field.name for field in dataclasses.fields(config)}
    setting = getattr(config, "setting", None)
    inner = set() if setting is None else {f.name for f in dataclasses.fields(setting)} - own
    unknown = set(changes) - own - inner
    if unknown:
        known = ", ".join(sorted((own | inner) - {"setting"}))
        raise InputError(f"{name} has no {', '.join(sorted(unknown))}; pass any of {known}.")
    mine = {key: value for key, value in changes.items() if key in own}
    if setting is not None:
        within = {key: value for key, value in changes.items() if key in inner}
        mine["setting"] = dataclasses.replace(mine.get("setting") or setting, **within)
    return dataclasses.replace(config, **mine)
