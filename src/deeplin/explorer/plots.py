"""Figures of one look: colours safe for the colour-blind, axes that switch between linear and log.

Colours of frame and text come from CSS variables of the page, so light and dark need no redrawing
by the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
from bokeh.models import (
    BasicTicker,
    BasicTickFormatter,
    ColumnDataSource,
    Legend,
    LegendItem,
    LinearScale,
    LogScale,
    LogTicker,
    LogTickFormatter,
)
from bokeh.palettes import Plasma256
from bokeh.plotting import figure

BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#8a8a8a",
)


def picture(title: str, name: str, **options: Any) -> figure:
    """An empty figure of the common look."""
    shape = {"height": 250, "min_width": 260, "sizing_mode": "stretch_width"} | options
    shape["frame_align"] = False  # long names on one axis must not narrow the others
    plot = figure(
        title=title,
        name=name,
        tools="pan,box_zoom,wheel_zoom,reset",
        active_drag=None,
        **shape,
    )
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.title.text_font_size = "13px"  # pyright: ignore
    plot.min_border_right = 12
    return plot


def retitle(plot: figure, text: str) -> None:
    """Change the title of a figure in place."""
    plot.title.text = text  # pyright: ignore


def set_axes(plots: Iterable[figure], side: str, scale: str) -> None:
    """Make the horizontal ("x") or vertical ("y") axes linear or logarithmic, in place.

    Bokeh would go through all models of the page for each one that is replaced: once is enough.
    """
    wanted = LogScale if scale == "log" else LinearScale
    others = [plot for plot in plots if not isinstance(getattr(plot, f"{side}_scale"), wanted)]
    document = others[0].document if others else None
    with document.models.freeze() if document else nullcontext():
        for plot in others:
            _replace_axis(plot, side, logarithmic=scale == "log")


def _replace_axis(plot: figure, side: str, *, logarithmic: bool) -> None:
    setattr(plot, f"{side}_scale", LogScale() if logarithmic else LinearScale())
    ticker = LogTicker() if logarithmic else BasicTicker()
    for axis in plot.xaxis if side == "x" else plot.yaxis:
        axis.ticker = ticker
        axis.formatter = LogTickFormatter() if logarithmic else BasicTickFormatter()
    for grid in plot.xgrid if side == "x" else plot.ygrid:
        grid.ticker = ticker


def source(*columns: str) -> ColumnDataSource:
    """A data source with empty columns, to be filled by `fill`."""
    return ColumnDataSource({name: [] for name in columns})


def fill(target: ColumnDataSource, columns: Mapping[str, Any]) -> None:
    """Replace the data of a source at once."""
    target.data = dict(columns)


def empty(target: ColumnDataSource) -> None:
    """Remove all data of a source; the browser hears of it only if there were any."""
    if any(map(len, dict(target.data).values())):  # pyright: ignore[reportArgumentType]
        fill(target, {name: [] for name in target.column_names})


def shown(values: Any, scale: str) -> np.ndarray:
    """The values an axis can show: a logarithmic one leaves out zero and below."""
    array = np.asarray(values, dtype=float)
    return np.where(array > 0, array, np.nan) if scale == "log" else array


def quantiles(values: np.ndarray) -> dict[str, np.ndarray]:
    """10 %, 50 % and 90 % over the runs (last axis), without those that have diverged."""
    left = ~np.isnan(values).all(axis=-1)
    levels = np.full((3, *values.shape[:-1]), np.nan)
    levels[:, left] = np.nanquantile(values[left], [0.1, 0.5, 0.9], axis=-1)
    return dict(zip(("low", "middle", "high"), levels, strict=True))


def layer_colours(count: int) -> list[str]:
    """From the first layer (violet) to the last (yellow), all readable on white and on black."""
    return [Plasma256[int(position)] for position in np.linspace(65, 220, count)]


def legend_below(plot: figure) -> None:
    """Move the legend out of the way of the curves."""
    legend = plot.legend[0]
    legend.orientation = "horizontal"
    plot.add_layout(small(legend), "below")


def label_below(plot: figure, items: dict[str, Any]) -> None:
    """A legend of these glyphs under a plot."""
    labels = [LegendItem(label=label, renderers=[glyph]) for label, glyph in items.items()]
    plot.add_layout(small(Legend(items=labels, orientation="horizontal")), "below")


def small(legend: Legend) -> Legend:
    """Make a legend take little room, with the page's colour of text."""
    legend.update(
        label_text_font_size="11px",
        glyph_width=14,
        padding=2,
        spacing=8 if legend.orientation == "horizontal" else 2,
        margin=4,
        border_line_alpha=0,
        background_fill_color=None,
        stylesheets=[".bk-label { color: var(--text) !important; }"],
    )
    return legend
