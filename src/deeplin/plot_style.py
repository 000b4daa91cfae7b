"""The style of all figures, and elements of the papers' figures: bands, bars, legends."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

SIZE = (4.8, 3.5)
"""Size in inches: one column of a paper, with labels of ten points."""
INK, QUIET, PAPER = "#1f2328", "#6e7781", "#ffffff"
"""Text and lines, secondary lines, background; the report recolors these for dark screens."""

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Palette of Okabe and Ito, in the order of use."""
TRAINED, DIVERGED, THEORY, LIMIT = COLORS[:4]
"""Colors with a fixed meaning, as in the explorer: blue for trained networks, red for divergence,
green for theory, purple for the limit of stability 2/η."""
MARKERS = ("o", "s", "^", "D", "v", "P")

RC: dict[Any, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "font.size": 9,
    "legend.fontsize": 8,
    "legend.edgecolor": "none",
    "legend.facecolor": PAPER,
    "legend.framealpha": 0.8,
    "legend.handlelength": 1.8,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "mathtext.fontset": "dejavusans",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",  # looks the same on a machine without the font
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the figures' style within this context.

    Only the parameters that it sets are restored: a notebook's backend changes other parameters at
    the first figure, and shows no further figures without them (`rc_context` would undo them).
    """
    before = {name: mpl.rcParams[name] for name in RC}
    mpl.rcParams.update(RC)
    try:
        yield
    finally:
        mpl.rcParams.update(before)


def reference_line(ax: Axes, height: float, label: str, **style: Any) -> None:
    """Draw a horizontal line with its name beyond its right end."""
    style = {"color": INK, "linewidth": 1.0, "linestyle": ":"} | style
    ax.axhline(height, zorder=1, **style)
    ax.annotate(
        label,
        (1, height),
        xycoords=("axes fraction", "data"),
        xytext=(3, -3),
        textcoords="offset points",
        fontsize=7.5,
        color=style["color"],
        bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
    )


def plain_numbers(axis: Axis) -> None:
    """Write 20, 50, 100 on a logarithmic axis that spans too little for powers of ten alone."""
    low, high = axis.get_view_interval()
    if high / low < 100:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FormatStrFormatter("%g"))
        axis.set_minor_formatter(NullFormatter())


def draw(plot, size: tuple[float, float], salt: str) -> Figure:
    """Return a figure with one pair of axes, filled by `plot(ax)`.

    `salt` makes the ids of its SVG unique.
    """
    with mpl.rc_context({**RC, "svg.hashsalt": salt}):
        figure = Figure(figsize=size, layout="constrained")
        plot(figure.add_subplot())
    return figure


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write SVG (for the page), PDF (for papers) and PNG (for everything else)."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({**RC, "svg.hashsalt": name}):
        # Without a date, the same data give the same files.
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
        figure.savefig(folder / f"{name}.png", dpi=160)


def series(index: int, **style: Any) -> dict[str, Any]:
    """Return color and marker of the series with this index, with more of its `style`."""
    return {"color": COLORS[index % len(COLORS)], "marker": MARKERS[index % len(MARKERS)]} | style


FEW = 3
"""Number of runs below which a point is drawn open, with their number."""


def nested(index: int, **style: Any) -> dict[str, Any]:
    """Return the style of a curve that stays visible where the following ones lie on it."""
    return series(index, markersize=10 * 0.74**index, linewidth=4 * 0.7**index, **style)


def name_once(ax: Axes, label: str, **style: Any) -> None:
    """Add an entry to the legend for what several curves share, unless it is there already."""
    if label not in ax.get_legend_handles_labels()[1]:
        ax.plot([], [], label=label, gid=SHARED, **{"color": INK, "linewidth": 1} | style)


SHARED = "shared"
"""Mark of legend entries that stand behind those of the curves."""


def band(
    ax: Axes, points: Any, by: str, *, median: bool = False, floor: float = -math.inf, **style: Any
) -> None:
    """Draw means of `statistics.curve` with their 95% intervals, and the `median` as a light line.

    Values below `floor` are drawn there. Points of fewer than three runs are open, with the number
    of runs beside them. The legend explains what is drawn.
    """
    columns = (points[name].clip(lower=floor) for name in ("mean", "low", "high", "median"))
    middle, low, high, typical = columns
    color = style["color"]
    ax.plot(points[by], middle, **style)
    ax.fill_between(points[by], low, high, color=color, alpha=0.18, linewidth=0)
    if median:
        ax.plot(points[by], typical, color=color, alpha=0.55, linewidth=1, linestyle=":")
        name_once(ax, "median", color=QUIET, linestyle=":")
    open_marker = {"markerfacecolor": PAPER, "markeredgecolor": color, "zorder": 3}
    for x, y, count in zip(points[by], middle, points["settled"], strict=True):
        if 0 < count < FEW:
            ax.plot([x], [y], "o", color=color, label="_few", **open_marker)
            shown = {"textcoords": "offset points", "fontsize": 7, "color": color}
            ax.annotate(str(int(count)), (x, y), (3, 3), **shown)
            few = {"linestyle": "", "marker": "o", "markerfacecolor": PAPER}
            name_once(ax, "1 or 2 runs (number)", **few)


def bars(ax: Axes, points: Any, by: str, **style: Any) -> None:
    """Draw the means of `statistics.curve` with their intervals."""
    spread = [points["mean"] - points["low"], points["high"] - points["mean"]]
    options: dict[str, Any] = {"capsize": 2} | style
    ax.errorbar(points[by], points["mean"], spread, **options)


def place_legend(ax: Axes, **options: Any) -> None:
    """Place a legend below the axes in at most three columns, or at `loc` inside them.

    `options` are those of `Axes.legend`. What several curves share comes last.
    """
    handles: Any = options.pop("handles", None) or ax.get_legend_handles_labels()[0]
    handles = sorted(handles, key=lambda handle: _gid(handle) == SHARED)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "frameon": False}
    columns = {"ncols": min(len(handles), 3)}
    ax.legend(handles=handles, **({} if "loc" in options else below | columns) | options)


def _gid(handle: Any) -> str | None:
    return handle.get_gid() if hasattr(handle, "get_gid") else None


def ticks_at(ax: Axes, values: Sequence[float]) -> None:
    """Mark these values, and no others, on a logarithmic horizontal axis."""
    ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.minorticks_off()
