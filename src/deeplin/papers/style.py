"""One look for every figure: colours that colour-blind readers can tell apart, quiet axes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

INK, QUIET, PAPER = "#1f2328", "#6e7781", "#ffffff"
"""Text and lines, secondary lines, background; the report recolours these for dark screens."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Palette of Okabe and Ito, in the order of use."""
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


def look(index: int, **style: Any) -> dict[str, Any]:
    """Colour and marker of the curve with this index, and more of its `style`."""
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
    ax.errorbar(points[by], points["mean"], spread, capsize=2, **style)


def reference_line(ax: Axes, height: float, label: str, **style: Any) -> None:
    """A horizontal line with its name beyond its right end."""
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


FEW = 3
"""A point that stands for fewer runs is drawn open, with their number."""


def mark_few(ax: Axes, x: Any, y: Any, runs: Any, colour: str) -> None:
    """Open markers with their count where a point stands for fewer than three runs."""
    for place, height, count in zip(x, y, runs, strict=True):
        if 0 < count < FEW:
            open_marker = {"markerfacecolor": PAPER, "markeredgecolor": colour, "zorder": 3}
            ax.plot([place], [height], "o", color=colour, label="_few", **open_marker)
            shown = {"textcoords": "offset points", "fontsize": 6.5, "color": colour}
            ax.annotate(str(int(count)), (place, height), (3, 3), **shown)


def legend_beside(ax: Axes, **options: Any) -> None:
    """The legend to the right of the axes."""
    ax.legend(loc="center left", **{"bbox_to_anchor": (1, 0.5)} | options)


def legend_below(ax: Axes, **options: Any) -> None:
    """The legend under the axes, off the data, in one or two rows."""
    entries = len(ax.get_legend_handles_labels()[0])
    options = {"ncols": entries if entries <= 3 else -(-entries // 2)} | options
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, **options)


def plain_numbers(axis: Axis) -> None:
    """Write 20, 50, 100 on a logarithmic axis that spans too little for powers of ten alone."""
    low, high = axis.get_view_interval()
    if high / low < 100:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FormatStrFormatter("%g"))
        axis.set_minor_formatter(NullFormatter())
