"""The list of all figures, in the order of the report, of all quotes, and a figure varied."""

from __future__ import annotations

import dataclasses
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from deeplin.errors import InputError
from deeplin.papers import readings
from deeplin.papers.bo_1 import BO_1, BO_3
from deeplin.papers.bo_2 import BO_2
from deeplin.papers.bo_bounds import BO_BOUNDS
from deeplin.papers.eos import EOS_FLOW, EOS_LIFE, EOS_ORBITS
from deeplin.papers.eos_early import EOS_EARLY
from deeplin.papers.figures import (
    PRESETS,
    Figure,
    FigureResult,
    Panel,
    Study,
    reproduce,
    select,
    toml_entries,
)
from deeplin.papers.fm_1 import FM_1, FM_3, FM_4, FM_5, FM_6, FM_7, FM_7_NOISY
from deeplin.papers.fm_2 import FM_2
from deeplin.papers.fm_residual import FM_RESIDUAL, X_RESIDUAL
from deeplin.papers.fm_small import FM_FLOW, FM_SMALL, X_RATIO
from deeplin.papers.quote import LeftOut, Quote
from deeplin.papers.talk_log import TALK_LOG
from deeplin.papers.theorems import THEOREMS
from deeplin.papers.x_batch import X_BATCH
from deeplin.papers.x_rates import X_DECAY, X_LAYERS, X_LOSSES, X_OUTPUTS
from deeplin.papers.x_wide import X_WIDE
from deeplin.plot_style import style

FLAT_MINIMA = (FM_1, FM_2, FM_3, FM_4, FM_5, FM_6, FM_7, FM_7_NOISY)
BENIGN = (BO_1, BO_2, BO_3)
OURS = (FM_FLOW, FM_SMALL, FM_RESIDUAL, EOS_LIFE, EOS_FLOW, EOS_ORBITS, EOS_EARLY, BO_BOUNDS)
USERS = (TALK_LOG, X_BATCH, X_DECAY, X_OUTPUTS, X_LAYERS, X_LOSSES, X_RATIO, X_RESIDUAL, X_WIDE)
FIGURES = (*FLAT_MINIMA, *BENIGN, THEOREMS, *OURS, *USERS)
"""In the order of the report: the papers' figures, the theorems, our own questions."""
PANELS = {panel.name: panel for figure in FIGURES for panel in figure.panels}
STUDIES = {study.name: study for figure in FIGURES for study in figure.studies}


def _quote(measure: str, studies: list[str], **entry: str) -> Quote:
    found = tuple(STUDIES[study] for study in studies)
    return Quote(**entry, measure=getattr(readings, measure), studies=found)


QUOTES = tuple(_quote(**entry) for entry in toml_entries("quotes"))
LEFT_OUT = tuple(LeftOut(**entry) for entry in toml_entries("left_out"))
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
        name: of a panel, such as FM-1a, or of a figure, whose first panel is then meant.
        preset: `quick`, or `paper` for the full protocol, from which the rest is taken.
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


__all__ = [
    "FIGURES",
    "LEFT_OUT",
    "PRESETS",
    "QUOTES",
    "Figure",
    "FigureResult",
    "Panel",
    "Study",
    "figure",
    "quotes",
    "reproduce",
    "select",
]
