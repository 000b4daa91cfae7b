"""X-residual: how deep a residual network must be for its products to stay conditioned (X-21)."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from matplotlib.axes import Axes

from deeplin.networks import initialize
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.fm_residual import PRINTED_SCALES
from deeplin.papers.question import Question, each, extent, number, percent
from deeplin.papers.statistics import share_interval
from deeplin.papers.style import COLOURS, INK, legend_beside
from deeplin.sweep import run_key
from deeplin.theory import (
    certified_depth,
    draw_constants,
    least_margin,
    sharp_product_bounds,
    smallest_admissible_depth,
)

MARGINS = (1.1, 1.5)
"""u over the smallest u that any depth admits."""
CURVES = {
    "printed": ("FM-L3 as printed", ":"),
    "corrected": ("FM-L3, tails corrected", "--"),
    "tight": ("X-21, $u = 1.1u_\\infty$", "-"),
    "wide": ("X-21, $u = 1.5u_\\infty$", "-."),
}


@dataclass(frozen=True)
class Residual:
    """Scales s and widths d of random residual networks."""

    scales: tuple[float, ...]
    draws: int
    """Networks drawn at the depth that X-21 admits."""
    deepest: int = 500
    """None are drawn where that is deeper."""
    widths: tuple[int, ...] = (5, 50)
    seed: int = 0


def run_cell(config: Residual, width: int, scale: float) -> list[dict[str, float]]:
    """The smallest depths, and how many draws at that of X-21 leave its bounds."""
    tight, wide = (certified_depth(scale, width, margin=margin) for margin in MARGINS)
    assert tight is not None  # the scales are below two
    row = {
        "printed": _number(smallest_admissible_depth(scale, width, printed=True)),
        "corrected": _number(smallest_admissible_depth(scale, width)),
        "tight": _number(tight),
        "wide": _number(wide),
    }
    if tight > config.deepest:
        return [row | {"drawn": 0, "outside": 0, "used": np.nan}]
    key = run_key(config.seed, width=width, scale=scale)
    networks = initialize.residual(jax.random.split(key, config.draws), width, tight, scale)
    found = draw_constants(networks)
    bounds = sharp_product_bounds(scale, MARGINS[0] * least_margin(scale, width))
    used = np.maximum(found.largest / bounds.largest, bounds.smallest / found.smallest)
    return [
        row | {"drawn": config.draws, "outside": int(np.sum(used > 1)), "used": float(np.max(used))}
    ]


def _number(depth: int | None) -> float:
    return np.nan if depth is None else float(depth)


def questions(config: Residual, table: Table) -> list[Question]:
    """What X-21 saves, and whether the draws keep its bounds."""
    saved = (table["corrected"] / table["tight"]).groupby(table["scale"]).max()
    draws, outside = int(table["drawn"].sum()), int(table["outside"].sum())
    high = share_interval(outside, draws)[1]
    return [
        Question(
            "admissible depth",
            "From which depth on do the products of random residual layers stay conditioned?",
            f"For d = {config.widths[0]} by X-21 from "
            f"{each('s = {}', _first(config, table, 'tight'))} on, by FM-L3 (tails corrected) from "
            f"{each('s = {}', _first(config, table, 'corrected'))}: up to {number(saved.max())} "
            "times deeper.",
        ),
        Question(
            "draws",
            "How often do draws leave the bounds of X-21 at its smallest depth?",
            f"{outside} of {draws} (95 % interval up to {percent(high)}; the bound is 1 %). "
            f"The worst draws reach {extent(table['used'])} of the bounds: the union over a net of "
            "5^d points is what is lost.",
        ),
    ]


def _first(config: Residual, table: Table, column: str) -> Table:
    """A column for the first width, at the scales of the paper's figures."""
    rows = table[table["width"] == config.widths[0]].set_index("scale")[column]
    return rows[rows.index.isin(PRINTED_SCALES)]


def plot(config: Residual, table: Table, ax: Axes) -> None:
    """Smallest depth against s; one color for each width; the networks of the paper."""
    for index, width in enumerate(config.widths):
        rows = table[table["width"] == width].sort_values("scale")
        for column, (label, line) in CURVES.items():
            label = f"{label}, $d = {width}$"
            ax.plot(rows["scale"], rows[column], line, color=COLOURS[index], label=label)
    ax.plot(PRINTED_SCALES, [10] * len(PRINTED_SCALES), "o", color=INK, label="networks of FM-4")
    ax.plot([0.25] * 4, [5, 10, 20, 40], "x", color=INK, label="networks of FM-2")
    ax.loglog()
    ax.set(xlabel="Scale $s$ of the start", ylabel="Smallest admissible depth $L$")
    ax.set_xticks([0.05, 0.1, 0.2, 0.5, 1], ["0.05", "0.1", "0.2", "0.5", "1"])
    ax.xaxis.minorticks_off()
    legend_beside(ax)


AXES = {"width": "widths", "scale": "scales"}
DEPTHS = grid_experiment("admissible-depths", Residual, run_cell, AXES, runs="draws")
COARSE = (0.05, *PRINTED_SCALES)
FINE = tuple(sorted({*COARSE, 0.07, 0.15, 0.2, 0.35, 0.7, 1.3}))
X_RESIDUAL = Figure(
    "X-residual",
    "How deep a residual network must be",
    (
        our_panel(
            "X-residual",
            "The smallest depth at which the products of random residual layers are known to stay "
            "conditioned, against the scale s: Lemma 3 of FM as printed and with its tails "
            "corrected (E-1, E-2), and X-21 (failure at most 1 %). The lines of Lemma 3 for d = 5 "
            "and d = 50 nearly coincide. Marks: the residual networks of the paper's figures.",
            Study(
                "x-residual",
                DEPTHS,
                paper=Residual(FINE, draws=400),
                quick=Residual(COARSE, draws=40),
            ),
            plot,
            questions,
            size=(6.6, 4.0),
        ),
    ),
    printed="Not drawn: Lemma 3 of FM, with open constants; here they are the smallest admissible.",
    as_run="W_k = I + s/√(Ld)N_k, d = 5 and 50. X-21 is evaluated by quadrature. At its smallest "
    "depth networks are drawn, and the singular values of all their products computed.",
)
