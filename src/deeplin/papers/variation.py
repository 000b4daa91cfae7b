"""A panel of a paper computed again with other settings, in one call."""

from __future__ import annotations

import dataclasses
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from deeplin.errors import InputError
from deeplin.papers import catalogue
from deeplin.plot_style import style


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
    (chosen,) = catalogue.select(catalogue.FIGURES, [name])
    named = (panel for panel in chosen.panels if panel.name.lower() == name.lower())
    panel = next(named, chosen.panels[0])
    if preset not in catalogue.PRESETS:
        raise InputError(f"preset is {preset!r}; pass one of {', '.join(catalogue.PRESETS)}.")
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
