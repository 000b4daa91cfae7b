"""How figures of papers are drawn and written, in the style of `plot_style`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deeplin.plot_style import COLOURS as COLOURS
from deeplin.plot_style import INK as INK
from deeplin.plot_style import MARKERS, PAPER, RC
from deeplin.plot_style import QUIET as QUIET
from deeplin.plot_style import legend_below as legend_below
from deeplin.plot_style import plain_numbers as plain_numbers
from deeplin.plot_style import reference_line as reference_line


def draw(plot, size: tuple[float, float], salt: str) -> Figure:
    """A figure with one pair of axes, filled by `plot(ax)`; `salt` makes its SVG ids its own."""
    with mpl.rc_context({**RC, "svg.hashsalt": salt}):
        figure = Figure(figsize=size, layout="constrained")
        plot(figure.add_subplot())
    return figure


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write SVG (for the page), PDF (for papers) and PNG (for everything else)."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({**RC, "svg.hashsalt": name}):
        # No date inside: the same data give the same files.
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
        figure.savefig(folder / f"{name}.png", dpi=160)


def series(index: int, **style: Any) -> dict[str, Any]:
    """Color and marker of the series with this index, and more of its `style`."""
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]} | style


MEANS, QUARTILES = ("mean", "low", "high"), ("median", "quarter", "three quarters")
"""Columns of `statistics.curve`: a curve and the ends of its band."""


def band(
    ax: Axes, points: Any, by: str, columns: Any = MEANS, floor: float = -math.inf, **style: Any
) -> None:
    """A curve with its band, not drawn below `floor`; points of few runs are open."""
    middle, low, high = (points[name].clip(lower=floor) for name in columns)
    ax.plot(points[by], middle, **style)
    ax.fill_between(points[by], low, high, color=style["color"], alpha=0.18, linewidth=0)
    mark_few(ax, points[by], middle, points["settled"], style["color"])


def bars(ax: Axes, points: Any, by: str, **style: Any) -> None:
    """The means of `statistics.curve` with their intervals."""
    spread = [points["mean"] - points["low"], points["high"] - points["mean"]]
    style.setdefault("capsize", 2)
    ax.errorbar(points[by], points["mean"], spread, **style)


FEW = 3
"""A point that stands for fewer runs is drawn open, with their number."""


def mark_few(ax: Axes, x: Any, y: Any, runs: Any, color: str) -> None:
    """Open markers with their count where a point stands for fewer than three runs."""
    for place, height, count in zip(x, y, runs, strict=True):
        if 0 < count < FEW:
            open_marker = {"markerfacecolor": PAPER, "markeredgecolor": color, "zorder": 3}
            ax.plot([place], [height], "o", color=color, label="_few", **open_marker)
            shown = {"textcoords": "offset points", "fontsize": 6.5, "color": color}
            ax.annotate(str(int(count)), (place, height), (3, 3), **shown)


LEGENDS: dict[str, dict[str, Any]] = {
    "inside": {},
    "beside": {"loc": "center left", "bbox_to_anchor": (1, 0.5)},
    "above": {
        "loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2, "frameon": False
    },
}  # fmt: skip
"""Where a legend may stand, beside `below`."""


def finish(ax: Axes, axes: Mapping[str, Any], plain: Iterable[str], legend: Any) -> None:
    """Set the properties `axes`, write plain numbers on some axes, and place the legend.

    `legend` has the options of `Axes.legend` and `place`, the name of a usual place; None: no
    legend, or one that the plot has drawn itself.
    """
    ax.set(**axes)
    for name in plain:
        plain_numbers({"x": ax.xaxis, "y": ax.yaxis}[name])
    if legend is None:
        return
    place, options = legend.get("place", "inside"), {k: legend[k] for k in legend if k != "place"}
    if place == "below":
        legend_below(ax, **options)
    else:
        ax.legend(**LEGENDS[place] | options)


def ticks_at(ax: Axes, values: Sequence[float]) -> None:
    """Mark these values, and no others, on a logarithmic horizontal axis."""
    ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.minorticks_off()
