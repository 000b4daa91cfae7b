"""All figures in the order of the report, and figures varied by their settings."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from deeplin.errors import InputError
from deeplin.papers import (
    bo_1,
    bo_2,
    bo_3,
    fm_1,
    fm_2,
    fm_3,
    fm_4,
    fm_5,
    fm_6,
    fm_7,
    fm_flow,
    talk_log,
    theorems,
)
from deeplin.papers.figures import PRESETS, select
from deeplin.papers.variation import varied
from deeplin.plot_style import style
from deeplin.problems import Problem

FIGURES = (
    *(module.FIGURE for module in (fm_1, fm_2, fm_3, fm_4, fm_5, fm_6, fm_7)),
    fm_7.FIGURE_NOISY,
    *(module.FIGURE for module in (bo_1, bo_2, bo_3, theorems, fm_flow, talk_log)),
)
"""Figures in the order of the report: the papers' figures, the theorems, our own questions."""
PANELS = {panel.name: panel for figure in FIGURES for panel in figure.panels}


def figure(
    name: str,
    *,
    problem: Problem | None = None,
    preset: str = "quick",
    ax: Axes | None = None,
    **changes: Any,
) -> Axes:
    """Compute a panel of a paper with other settings or your own data, draw it, return the axes.

    Args:
        name: name of a panel, such as FM-1a, or of a figure, which stands for its first panel.
        problem: data with one output for a figure of FM. Learning rates that are not given are
            those of the paper times the ratio of the critical rates on your data and on theirs.
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
    config = varied(panel.name, study.presets[preset], changes, problem)
    tables = [study.experiment.run_unit(config, unit) for unit in study.experiment.units(config)]
    table = pd.concat(map(pd.DataFrame, tables), ignore_index=True)
    with style():
        if ax is None:
            ax = plt.subplots(figsize=panel.size, layout="constrained")[1]
        panel.plot(config, table, ax)
    return ax
