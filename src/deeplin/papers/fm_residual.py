"""Our own questions about residual initialization (FM Section 5), L to 1000."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, each, extent, number, percent
from deeplin.papers.setting import AUTHORS, DATA_SEEDS, Setting
from deeplin.papers.statistics import power_interval, share_interval
from deeplin.papers.style import INK, QUIET, legend_below, legend_beside, look, plain_numbers
from deeplin.sweep import coordinate_words
from deeplin.theory import (
    log_failure_probability,
    product_bounds,
    residual_constants,
    residual_displacement,
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


@dataclass(frozen=True)
class SubProducts:
    """Products W_k…W_j of consecutive residual layers, for every j ≤ k."""

    scales: tuple[float, ...]
    depths: tuple[int, ...]
    draws: int
    width: int = 5
    seed: int = 0


def run_subproducts(config: SubProducts, scale: float, depth: int) -> dict[str, np.ndarray]:
    """For each draw the largest norm of all products, and M and m of those with j = 1."""
    words = coordinate_words(config.seed, scale=scale, depth=depth, part="subproducts")
    weights = np.stack([*layers(words, scale, depth, config.width, config.draws)], axis=1)
    products, longest, first = weights, np.zeros(config.draws), []
    for length in range(1, depth + 1):  # products[:, j] has layers j + 1 to j + length
        values = np.linalg.svd(products, compute_uv=False)
        longest = np.maximum(longest, values[..., 0].max(axis=1))
        first.append(values[:, 0, [0, -1]])
        if length < depth:
            products = weights[:, length:] @ products[:, :-1]
    largest, least = np.stack(first).max(axis=0)[:, 0], np.stack(first).min(axis=0)[:, 1]
    return {"first": np.maximum(largest, 1), "least": np.minimum(least, 1), "any": longest}


RESIDUAL_SUBPRODUCTS = grid_experiment(
    "residual-subproducts", SubProducts, run_subproducts, {"scale": "scales", "depth": "depths"}
)
SUBPRODUCTS = Study(
    "fm-residual-subproducts",
    RESIDUAL_SUBPRODUCTS,
    paper=SubProducts((0.25, 1.0), (5, 10, 20, 50, 100, 200), draws=400),
    quick=SubProducts((0.25, 1.0), (5, 10, 20, 50), draws=100),
)
ONE_IN_TWENTY = 0.95


def subproduct_questions(config: SubProducts, table: Table) -> list[Question]:
    """Eq. (9), and what the probability of a large product does with depth."""
    tight = table["any"] * table["least"] / table["first"]
    shares = {}
    for column in ("first", "any"):
        levels = table[table["depth"] == min(config.depths)].groupby("scale")[column]
        above = table[column] > table["scale"].map(levels.quantile(ONE_IN_TWENTY))
        shares[column] = above.groupby(table["depth"]).mean()
    shallow, deep = min(config.depths), max(config.depths)
    return [
        Question(
            "sub-products",
            "How tight is eq. (9), by which bounds on the products with j = 1 bound those with "
            "every j?",
            f"The largest ‖W_k…W_j‖ is {extent(tight)} of M/m (at most 1 by the proof of Lemma 9) "
            f"and {extent(table['any'] / table['first'])} times the largest with j = 1.",
        ),
        Question(
            "Zhang et al.",
            "Does the probability of a large product grow with depth, as the bound of Zhang et al. "
            "(2022) does, or not, as that of Lemma 3 (FM, Appendix B.8)?",
            f"A norm that one draw in twenty exceeds at depth {shallow} is exceeded in "
            f"{each('depth {}', shares['first'])} of the draws with j = 1, and in "
            f"{each('depth {}', shares['any'])} with any j. A bound that grows like L² allows "
            f"{number((deep / shallow) ** 2)} times as many at depth {deep} as at {shallow}.",
        ),
    ]


def plot_subproducts(config: SubProducts, table: Table, ax: Axes) -> None:
    """What one draw in twenty exceeds: the largest norms, and M/m of eq. (9)."""
    shown = table.assign(bound=table["first"] / table["least"])
    lines = (
        ("first", "-", r"$\max_k \|W_k \cdots W_1\|$"),
        ("any", "--", r"$\max_{j \leq k} \|W_k \cdots W_j\|$"),
        ("bound", ":", "$M/m$ of eq. (9)"),
    )
    for index, (scale, runs) in enumerate(shown.groupby("scale")):
        color = look(index)["color"]
        for column, line, _ in lines:
            height = runs.groupby("depth")[column].quantile(ONE_IN_TWENTY)
            ax.plot(height.index, height, line, marker="o", color=color)
        ax.plot([], [], "o", color=color, label=f"$s = {scale}$")
    for _, line, label in lines:
        ax.plot([], [], line, color=INK, label=label)
    ax.loglog()
    ax.set_xticks(config.depths, [str(depth) for depth in config.depths])
    ax.minorticks_off()
    plain_numbers(ax.yaxis)
    ax.set(xlabel="Depth $L$", ylabel="Norm that one draw in twenty exceeds")
    legend_beside(ax)


STEP = 0.01
"""η·L: about a hundredth of the stability limit, so that descent stands for the flow."""


@dataclass(frozen=True)
class Displacements:
    """Training from residual starts of growing depth, on several data sets."""

    depths: tuple[int, ...]
    data_seeds: tuple[int, ...]
    repetitions: int
    scale: float = 0.25
    steps: int = 4000
    seed: int = 0


def run_displacement(config: Displacements, depth: int, data_seed: int) -> pd.DataFrame:
    """max_k ‖θ_k‖_F after training, the rate of decay, and both in the units of FM-T4."""
    setting = Setting(initialization="residual", depth=depth, data_seed=data_seed)
    problem, d = setting.data.problem, setting.dimension
    words = coordinate_words(config.seed, data_seed=data_seed, depth=depth, part="residual")
    weights = list(layers(words, config.scale, depth, d, config.repetitions))
    start = Network(weights, readout=setting.readout(config.seed))
    run = gradient_descent(problem, start, STEP / depth, config.steps)
    moved = np.linalg.norm(residual_displacement(start, run.network), axis=(-1, -2)).max(axis=-1)
    away = np.asarray(start.product) - np.asarray(problem.optimum)
    gap = np.einsum("ri,ij,rj->r", away, np.asarray(problem.covariance), away)
    allowed = problem.smallest_eigenvalue**2 / problem.largest_eigenvalue
    return pd.DataFrame(
        {
            "depth": depth,
            "data_seed": data_seed,
            "repetition": np.arange(config.repetitions),
            "status": [str(status) for status in np.atleast_1d(run.status)],
            "moved": moved,
            "gap": gap / allowed,
            "rate": np.log(gap / np.asarray(run.evidence["gap"]))
            / (STEP / depth * config.steps * problem.smallest_eigenvalue),
            "sharpness": np.asarray(sharpness(problem, run.network).value) / setting.flattest.exact,
            "condition": problem.condition_number,
        }
    )


RESIDUAL_THETA = grid_experiment(
    "residual-theta",
    Displacements,
    run_displacement,
    {"depth": "depths", "data_seed": "data_seeds"},
    runs="repetitions",
    steps="steps",
)
DISPLACEMENTS = Study(
    "fm-residual-theta",
    RESIDUAL_THETA,
    paper=Displacements((5, 10, 20, 50, 100, 200, 500, 1000), (AUTHORS, *DATA_SEEDS), 10),
    quick=Displacements((5, 20, 100, 300), (AUTHORS, *DATA_SEEDS[:2]), 4),
)


def constants_of(config: Displacements) -> pd.DataFrame:
    """The constants of FM-T4 and FM-C3, one row for each depth at which FM-L3 is admissible."""
    width = Setting().dimension
    found = {L: residual_constants(config.scale, width, L) for L in config.depths}
    return pd.DataFrame({L: c._asdict() for L, c in found.items() if c is not None}).T


def displacement_questions(config: Displacements, table: Table) -> list[Question]:
    """How far outside the constants of FM-T4 training from residual starts converges."""
    by, limits = table["depth"], constants_of(config)
    mean, half = power_interval(table, "depth", "moved", "data_seed")
    converged = (table["status"] == "converged").mean()
    found = [
        Question(
            "displacement",
            "Do the layers move by θ_k/L with ‖θ_k‖ bounded, as FM-T4 says for close starts?",
            f"{percent(converged)} of {len(table)} runs on {table['data_seed'].nunique()} data "
            f"sets converge at depths {extent(config.depths)}. max_k‖θ_k‖ grows like L to the "
            f"power {number(mean)} ± {number(half)} and is at most {number(table['moved'].max())}. "
            f"They end at {extent(table['sharpness'])} of S_min.",
        )
    ]
    part = table[by.isin(limits.index)].groupby("depth")
    if len(limits):
        found.append(
            Question(
                "constants",
                "How far are these runs from the constants of the proof?",
                f"R(W(0)) − R_min is {extent(part['gap'].max() / limits['gap'])} times what the "
                "theorem allows, ‖θ_k‖ ends at up to "
                f"{number((part['moved'].max() / limits['radius']).max())} times C_5, and the "
                f"gap decays at least {number((part['rate'].min() / limits['rate']).min())} times "
                "faster than μ: the theorem is a sufficient condition, and training converges far "
                "outside it.",
            )
        )
    return found


def plot_displacement(config: Displacements, table: Table, ax: Axes) -> None:
    """Largest ‖θ_k‖_F against depth, each run, with medians."""
    ax.plot(table["depth"], table["moved"], ".", color=QUIET, markersize=3, label="runs")
    ax.plot(table.groupby("depth")["moved"].median(), label="median", **look(0))
    ax.set(xscale="log", ylim=(0, 1.15 * table["moved"].max()))
    ax.set(xlabel="Depth $L$", ylabel=r"$\max_k \|\theta_k\|_F$ after training")
    legend_below(ax)


FM_RESIDUAL = Figure(
    "FM-residual",
    "The theory of residual initialization",
    (
        our_panel(
            "FM-residual-products",
            "How often the bounds of FM-L3 with u fail for random residual layers: measured, and "
            "the bound of the lemma.",
            PRODUCTS,
            plot_products,
            product_questions,
            size=(5.8, 3.5),
        ),
        our_panel(
            "FM-residual-subproducts",
            "The largest norm of a product of consecutive residual layers that one draw in twenty "
            "exceeds, against depth: those that begin with the first layer (Lemma 3), all of them "
            "(Zhang et al. 2022), and the bound M/m of eq. (9) that links the two.",
            SUBPRODUCTS,
            plot_subproducts,
            subproduct_questions,
            size=(5.8, 3.5),
        ),
        our_panel(
            "FM-residual-theta",
            "How far training moves the layers, W_k = W_k(0) + θ_k/L, against depth.",
            DISPLACEMENTS,
            plot_displacement,
            displacement_questions,
        ),
    ),
    printed="Not drawn in the paper: Lemma 3, its comparison with Zhang et al. (2022) in Appendix "
    "B.8, eq. (9), Theorem 4, Corollary 3, with open constants.",
    as_run="d = 5. Products: s = 0.05, 0.1, 0.25 at depths 10, 100, 1000. Products of any "
    "consecutive layers: s = 0.25 and 1. The comparison with Zhang et al. is of what both bounds "
    "say; that their lower bound takes χ² variables for sub-Gaussian is a remark of FM, not "
    "measured. Training: s = 0.25, n = 50, descent with ηL = 0.01 (within about one percent of the "
    "flow), on several data sets of the recipe of FM-1. The open constants are the smallest "
    "admissible ones (`deeplin.theory.admissible_range`).",
)
