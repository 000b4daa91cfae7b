"""The style of every figure: colors that color-blind readers can tell apart, light axes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

SIZE = (4.8, 3.5)
"""Inches: one column of a paper with labels of ten points."""
INK, QUIET, PAPER = "#1f2328", "#6e7781", "#ffffff"
"""Text and lines, secondary lines, background; the report recolors these for dark screens."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Palette of Okabe and Ito, in the order of use."""
TRAINED, DIVERGED, THEORY, LIMIT = COLOURS[:4]
"""One meaning each, as in the explorer: blue is a trained network, red what diverged, green what
theory knows without training, purple the limit of stability 2/η."""
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

    Only what it sets is restored: a notebook's backend makes settings of its own at the first
    figure, without which it shows none of the following (`rc_context` would undo them).
    """
    before = {name: mpl.rcParams[name] for name in RC}
    mpl.rcParams.update(RC)
    try:
        yield
    finally:
        mpl.rcParams.update(before)


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
