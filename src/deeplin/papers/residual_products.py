"""FM-L3 against Monte Carlo: products of random residual layers, and where the lemma applies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.papers.figures import Study, Table, grid_experiment
from deeplin.papers.question import Question, each, extent, number
from deeplin.papers.statistics import share_interval
from deeplin.papers.style import INK, QUIET, legend_beside, look
from deeplin.sweep import coordinate_words
from deeplin.theory import (
    log_failure_probability,
    product_bounds,
    residual_constants,
    smallest_admissible_depth,
)

LEVELS = np.arange(0.0, 6.05, 0.1)
"""The u at which frequencies are compared with the bound of FM-L3."""
PRINTED_SCALES = (0.1, 0.25, 0.5, 1.0, 1.7)
"""s of the paper's figures (FM-2: 0.25; FM-4: 0 to 1.7), at depth 10 and, in FM-2, 5 to 40."""


@dataclass(frozen=True)
class Products:
    """Products of random residual layers (θ = 0), for several s and L."""

    scales: tuple[float, ...]
    depths: tuple[int, ...]
    draws: int
    width: int = 5
    seed: int = 0


def layers(words: tuple[int, ...], scale: float, depth: int, width: int, count: int):
    """W_k = I + s/√(Ld) N_k for k = 1 … L, `count` networks at a time."""
    rng = np.random.default_rng(words)
    size = scale / np.sqrt(depth * width)
    return (np.eye(width) + size * rng.normal(size=(count, width, width)) for _ in range(depth))


def run_products(config: Products, scale: float, depth: int) -> pd.DataFrame:
    """For each draw the least u with which the bounds of FM-L3 (θ = 0) hold for every k."""
    words = coordinate_words(config.seed, scale=scale, depth=depth, part="products")
    product, needed = np.eye(config.width), np.full(config.draws, -np.inf)
    unit_bounds = product_bounds(scale, config.width, 0.0)
    for weight in layers(words, scale, depth, config.width, config.draws):
        product = weight @ product
        values = np.linalg.svd(product, compute_uv=False)
        above = np.log(values[:, 0] / unit_bounds.largest)
        below = np.log(unit_bounds.smallest / values[:, -1])
        needed = np.maximum(needed, np.maximum(above, below))
    return pd.DataFrame({"scale": scale, "depth": depth, "needed": needed, "status": "converged"})


RESIDUAL_PRODUCTS = grid_experiment(
    "residual-products", Products, run_products, {"scale": "scales", "depth": "depths"}
)
PRODUCTS = Study(
    "fm-residual-products",
    RESIDUAL_PRODUCTS,
    paper=Products((0.05, 0.1, 0.25), (10, 100, 1000), draws=2000),
    quick=Products((0.05, 0.1, 0.25), (10, 100, 1000), draws=200),
)


def bound_at(config: Products, scale: float, depth: int, u: np.ndarray) -> np.ndarray:
    """The failure bound of FM-L3 at θ = 0 before simplification, at most 1."""
    positive = np.maximum(u, 1e-3)  # at u = 0 the bound is above 1 anyway
    log_bound = log_failure_probability(scale, config.width, depth, positive)
    return np.exp(np.minimum(log_bound, 0.0))


def product_questions(config: Products, table: Table) -> list[Question]:
    """FM-L3 against Monte Carlo, and which networks of the paper it covers."""
    excess, factors = [], []
    for (s, L), runs in table.groupby(["scale", "depth"]):
        needed = runs["needed"].to_numpy()
        lows = [share_interval(int(np.sum(needed > u)), len(needed))[0] for u in LEVELS]
        excess.append(np.max(np.array(lows) - bound_at(config, s, int(L), LEVELS)))
        constants = residual_constants(s, config.width, int(L))
        if constants is not None:
            factors.append(float(np.exp(constants.u - np.quantile(needed, 0.99))))
    depths = {
        s: float(smallest_admissible_depth(s, config.width) or np.inf) for s in PRINTED_SCALES
    }
    return [
        Question(
            "failure probability",
            "How often do the bounds of FM-L3 fail, beside the stated probability?",
            f"Never more often: the 95% interval of the frequency is below the bound by "
            f"{number(-max(excess))} or more at every u ({config.draws} draws for each s and L)."
            if max(excess) <= 0
            else f"More often by {number(max(excess))} at some u.",
        ),
        Question(
            "looseness",
            "How loose is FM-L3, and which residual networks of the paper does it cover?",
            f"Its bounds are {extent(factors)} times what 99 of 100 draws need. It has an "
            f"admissible u from depth {each('s = {}', depths)} on; the figures have depths 5 to "
            "40. The proof takes a union over a net of 5^d points.",
        ),
    ]


def plot_products(config: Products, table: Table, ax: Axes) -> None:
    """How often the bounds with this u fail: measured at the largest L, and the bound."""
    depth = max(config.depths)
    grid = np.linspace(-1, 4, 501)
    for index, s in enumerate(config.scales):
        runs = table[(table["scale"] == s) & (table["depth"] == depth)]
        share = np.mean(runs["needed"].to_numpy() > grid[:, None], axis=1)
        colour = look(index)["color"]
        ax.plot(grid, np.where(share > 0, share, np.nan), color=colour, label=f"measured, $s={s}$")
        bound = np.where(grid > 0, bound_at(config, s, depth, grid), np.nan)
        ax.plot(grid, bound, "--", color=colour, label=f"bound, $s={s}$")
    ax.axhline(1 / config.draws, color=QUIET, linestyle=":", linewidth=1)
    ax.annotate("one draw", (2, 1 / config.draws), (0, 3), textcoords="offset points", ha="center")
    ax.set(yscale="log", ylim=(0.02 / config.draws, 2))
    ax.set(xlabel=f"$u$ (depth $L = {depth}$)", ylabel="Probability that the bounds fail")
    legend_beside(ax)


def plot_admissible(config: Products, table: Table, ax: Axes) -> None:
    """The smallest depth that FM-L3 admits against s, beside the paper's networks."""
    grid = np.geomspace(0.04, 1.7, 30)
    for index, width in enumerate((5, 100)):
        depths = [smallest_admissible_depth(s, width) or np.nan for s in grid]
        style = look(index) | {"marker": None, "linestyle": ("-", "--")[index]}
        ax.plot(grid, depths, label=f"$d = {width}$", **style)
    ax.plot(PRINTED_SCALES, [10] * len(PRINTED_SCALES), "o", color=INK, label="FM-4")
    ax.plot([0.25] * 4, [5, 10, 20, 40], "x", color=INK, label="FM-2")
    ax.loglog()
    ax.set(xlabel="Scale $s$ of the start", ylabel="Smallest admissible depth $L$")
    ax.legend(loc="upper left")
