"""X-ratio: how much sharper than the flattest minimizer the balanced one is, at worst (X-18)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, each, extent, number
from deeplin.papers.setting import Setting
from deeplin.papers.style import COLOURS, INK, QUIET, legend_beside
from deeplin.problems import Problem
from deeplin.sweep import coordinate_words
from deeplin.theory import balanced_sharpness, minimal_sharpness, worst_sharpness_ratio

KINDS = {
    "random": (".", 3, "random data"),
    "diagonal": ("s", 4, r"$\hat\Sigma = \mathrm{diag}(c, 1)$"),
    "degenerate": ("^", 4, r"$\hat\Sigma = \mathrm{diag}(c, \nu \to 0)$"),
    "FM": ("*", 9, "data of FM-1"),
}
"""Marker, its size and the label of each kind of data."""
VANISHING = 1e-9
"""Second eigenvalue of the degenerate data, which approach r(c) as it goes to 0."""


@dataclass(frozen=True)
class Ratios:
    """Data sets with many values of Λ/a, at several depths."""

    depths: tuple[int, ...]
    draws: int
    """Random data sets at each depth."""
    spreads: tuple[float, ...] = (1.5, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    """Λ/a of the worst data."""
    seed: int = 0


def run_cell(config: Ratios, depth: int, kind: str) -> list[dict[str, float]]:
    """S_bal/S_min and Λ/a of each data set of this kind, with the bound of FM-C2."""
    rows = []
    for problem in _problems(config, depth, kind):
        minimal = minimal_sharpness(problem, depth).exact
        rows.append(
            {
                "spread": problem.largest_eigenvalue / problem.alignment,
                "ratio": balanced_sharpness(problem, depth) / minimal,
                "printed": 4 * problem.condition_number,
            }
        )
    return rows


def _problems(config: Ratios, depth: int, kind: str) -> list[Problem]:
    if kind == "FM":
        return [Setting().data.problem]
    if kind == "random":
        rng = np.random.default_rng(coordinate_words(config.seed, depth=depth, part="ratios"))
        return [_random(rng) for _ in range(config.draws)]
    return [_of_two_inputs(c, degenerate=kind == "degenerate") for c in config.spreads]


def _random(rng: np.random.Generator) -> Problem:
    """Two to five inputs of very different variances, a target in a random direction of them."""
    d = int(rng.integers(2, 6))
    sizes = 10.0 ** rng.uniform(-1.5, 0.5, d)
    target = 10.0 ** rng.uniform(-2, 1, d) * rng.choice([-1, 1], d)
    return Problem.from_moments(np.diag(sizes**2), sizes**2 * target, sizes**2 @ target**2, 100)


def _of_two_inputs(c: float, *, degenerate: bool) -> Problem:
    """Σ̂ = diag(c, ν), a = 1: with ν = 1 and w* = e_2, or with ν → 0."""
    second = VANISHING if degenerate else 1.0
    share = (1 - second) / (c - second) if degenerate else 0.0  # of w* along the first axis
    squares = np.array([share, 1 - share])
    variances = np.array([c, second])
    return Problem.from_moments(
        np.diag(variances), variances * np.sqrt(squares), variances @ squares, 100
    )


def questions(config: Ratios, table: Table) -> list[Question]:
    """Whether any data exceed the worst case, which attain it, and what it saves against FM-C2."""
    reached = table["ratio"] / _worst(table)
    drawn, built = table["kind"] == "random", table["kind"].isin(["diagonal", "degenerate"])
    attained = reached[built].groupby([table["depth"], table["spread"].round(6)]).max()
    ours = table[table["kind"] == "FM"].set_index("depth")
    worst = _worst(table[table["kind"] == "FM"])
    return [
        Question(
            "worst case",
            "Is S_bal/S_min ever above R(Λ/a, L) (X-18), and is R attained?",
            f"No: {int(drawn.sum())} random data sets have up to {number(reached[drawn].max())} of "
            f"it. The two worst kinds of data reach {extent(attained)} of it at depths "
            f"{extent(config.depths)} (R is computed, not proved, for L ≥ 3 and Λ/a > L − 1).",
        ),
        Question(
            "beside FM-C2",
            "How much does it save against the factor 4Λ/λ of FM-C2?",
            f"4Λ/λ is {extent((table['printed'] / _worst(table))[drawn])} times R on the random "
            f"data. On the data of FM-1 S_bal/S_min is {each('depth {}', ours['ratio'])}, R is "
            f"{extent(worst)}, and 4Λ/λ is {number(ours['printed'].iloc[0])}.",
        ),
    ]


def _worst(table: Table) -> np.ndarray:
    pairs = zip(table["depth"], table["spread"], strict=True)
    return np.array([worst_sharpness_ratio(int(L), max(c, 1.0)) for L, c in pairs])


def plot(config: Ratios, table: Table, ax: Axes) -> None:
    """Curves: the worst case of each depth; dots: random data; marks: the worst data; FM-C2."""
    c = np.geomspace(1, max(config.spreads), 200)
    for index, L in enumerate(config.depths):
        color, rows = COLOURS[index], table[table["depth"] == L]
        ax.plot(c, worst_sharpness_ratio(L, c), color=color, label=f"$L = {L}$")
        shown = rows[rows["spread"] <= c[-1]]
        for kind, marker, size in (
            ("random", ".", 2),
            ("diagonal", "s", 4),
            ("degenerate", "^", 4),
        ):
            some = shown[shown["kind"] == kind]
            ax.plot(some["spread"], some["ratio"], marker, color=color, markersize=size, alpha=0.6)
        own = rows[rows["kind"] == "FM"]
        ax.plot(own["spread"], own["ratio"], "*", color=color, markersize=8, markeredgecolor=INK)
    ax.plot(c, 4 * c, ":", color=INK, label=r"$4\Lambda/a \leq 4\Lambda/\lambda$ (FM-C2)")
    for marker, size, label in KINDS.values():
        ax.plot([], [], marker, color=QUIET, markersize=size, label=label)
    ax.loglog()
    ax.set(xlabel=r"$\Lambda/a$", ylabel=r"$S_{\mathrm{bal}}/S_{\min}$", ylim=(0.9, 300))
    ax.set_yticks([1, 3, 10, 30, 100, 300], ["1", "3", "10", "30", "100", "300"])
    ax.minorticks_off()
    legend_beside(ax)


AXES = {"depth": "depths", "kind": tuple(KINDS)}
RATIOS = grid_experiment("sharpness-ratios", Ratios, run_cell, AXES)
X_RATIO = Figure(
    "X-ratio",
    "How sharp small initialization can end",
    (
        our_panel(
            "X-ratio",
            "Sharpness of the balanced minimizer, where small initialization ends, over the "
            "minimal one, against Λ/a. Curves: the largest ratio that any data with this Λ/a can "
            "have (X-18); dots: random data; squares and triangles: the data that attain or "
            "approach it; stars: the data of FM-1; dotted: below the factor of FM-C2.",
            Study(
                "x-ratio",
                RATIOS,
                paper=Ratios((2, 3, 10, 30, 100), draws=2_000),
                quick=Ratios((2, 3, 10, 100), draws=100),
            ),
            plot,
            questions,
            size=(6.2, 4.0),
        ),
    ),
    printed="Not drawn; FM's Corollary 2 bounds the ratio by 4Λ/λ.",
    as_run="Both sharpnesses are exact (X-2, X-3) and need no training. Random data have two to "
    "five inputs with standard deviations and targets spread over some orders of magnitude.",
)
