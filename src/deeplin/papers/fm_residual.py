"""Residual initialization (FM Section 5), L to 1000: FM-residual and X-residual."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.hessian import sharpness
from deeplin.networks import Network, initialize
from deeplin.papers.figures import Answers, Table, define_study
from deeplin.papers.setting import ALL_DATA, FEW_DATA, Config, Setting
from deeplin.papers.statistics import power_interval, share_interval
from deeplin.plot_style import COLORS, INK, QUIET, series, ticks_at
from deeplin.sweep import coordinate_words, run_key
from deeplin.theory import (
    certified_depth,
    draw_constants,
    least_margin,
    log_failure_probability,
    product_bounds,
    residual_constants,
    residual_displacement,
    sharp_product_bounds,
    smallest_admissible_depth,
)

LEVELS = np.arange(0.0, 6.05, 0.1)
"""Values of u at which frequencies are compared with the bound of FM-L3."""
PRINTED_SCALES = (0.1, 0.25, 0.5, 1.0, 1.7)
"""s of the paper's figures (FM-2: 0.25; FM-4: 0 to 1.7), at depth 10 and, in FM-2, 5 to 40."""


@dataclass(frozen=True)
class Products(Config):
    """Products of consecutive random residual layers (θ = 0), for several s and L."""

    scales: tuple[float, ...]
    depths: tuple[int, ...]
    draws: int
    width: int = 5


def layers(words: tuple[int, ...], scale: float, depth: int, width: int, count: int):
    """Draw W_k = I + s/√(Ld) N_k for k = 1 … L, `count` networks at a time."""
    rng = np.random.default_rng(words)
    size = scale / np.sqrt(depth * width)
    return (np.eye(width) + size * rng.normal(size=(count, width, width)) for _ in range(depth))


def run_products(config: Products, scale: float, depth: int) -> pd.DataFrame:
    """Return, for each draw, the least u with which the bounds of FM-L3 (θ = 0) hold for all k."""
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


PRODUCTS = define_study(
    "fm-residual-products",
    run_products,
    {"scale": "scales", "depth": "depths"},
    paper=Products((0.05, 0.1, 0.25), (10, 100, 1000), draws=2000),
    quick={"draws": 200},
)


def bound_at(config: Products, scale: float, depth: int, u: np.ndarray) -> np.ndarray:
    """Return the failure bound of FM-L3 at θ = 0 before simplification, at most 1."""
    positive = np.maximum(u, 1e-3)  # at u = 0 the bound is above 1 anyway
    log_bound = log_failure_probability(scale, config.width, depth, positive)
    return np.exp(np.minimum(log_bound, 0.0))


def product_answers(config: Products, table: Table) -> Answers:
    """Answer how FM-L3 compares with Monte Carlo, and which networks of the paper it covers."""
    excess, factors = [], []
    for (s, L), runs in table.groupby(["scale", "depth"]):
        needed = runs["needed"].to_numpy()
        lows = [share_interval(int(np.sum(needed > u)), len(needed))[0] for u in LEVELS]
        excess.append(np.max(np.array(lows) - bound_at(config, s, int(L), LEVELS)))
        constants = residual_constants(s, config.width, int(L))
        if constants is not None:
            factors.append(float(np.exp(constants.u - np.quantile(needed, 0.99))))
    most = max(excess)
    depths = {
        s: float(smallest_admissible_depth(s, config.width) or np.inf) for s in PRINTED_SCALES
    }
    return {
        "failure probability": {"case": "exceeded", "excess": most}
        if most > 0
        else {"margin": -most},
        "looseness": {"factors": factors, "depths": depths},
    }


def plot_products(config: Products, table: Table, ax: Axes) -> None:
    """Plot how often the bounds with this u fail at the largest L, and the bound on this."""
    depth = max(config.depths)
    grid = np.linspace(-1, 4, 501)
    for color, s in zip(COLORS, config.scales, strict=False):
        runs = table[(table["scale"] == s) & (table["depth"] == depth)]
        share = np.mean(runs["needed"].to_numpy() > grid[:, None], axis=1)
        ax.plot(grid, np.where(share > 0, share, np.nan), color=color, label=f"measured, $s={s}$")
        bound = np.where(grid > 0, bound_at(config, s, depth, grid), np.nan)
        ax.plot(grid, bound, "--", color=color, label=f"bound, $s={s}$")
    ax.axhline(1 / config.draws, color=QUIET, linestyle=":", linewidth=1)
    ax.annotate("one draw", (2, 1 / config.draws), (0, 3), textcoords="offset points", ha="center")
    ax.set(yscale="log", ylim=(0.02 / config.draws, 2), xlabel=f"$u$ (depth $L = {depth}$)")


def run_subproducts(config: Products, scale: float, depth: int) -> dict[str, np.ndarray]:
    """Return, for each draw, the largest norm of all products, and M and m of those with j = 1."""
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


SUBPRODUCTS = define_study(
    "fm-residual-subproducts",
    run_subproducts,
    {"scale": "scales", "depth": "depths"},
    paper=Products((0.25, 1.0), (5, 10, 20, 50, 100, 200), draws=400),
    quick={"depths": (5, 10, 20, 50), "draws": 100},
)
ONE_IN_TWENTY = 0.95


def subproduct_answers(config: Products, table: Table) -> Answers:
    """Answer eq. (9), and how the probability of a large product changes with depth."""
    shallow, deep = min(config.depths), max(config.depths)
    shares = {}
    for column in ("first", "any"):
        levels = table[table["depth"] == shallow].groupby("scale")[column]
        above = table[column] > table["scale"].map(levels.quantile(ONE_IN_TWENTY))
        shares[column] = above.groupby(table["depth"]).mean()
    return {
        "sub-products": {
            "tight": table["any"] * table["least"] / table["first"],
            "larger": table["any"] / table["first"],
        },
        "Zhang et al.": {
            "shallow": shallow,
            "deep": deep,
            "allowed": (deep / shallow) ** 2,
            **shares,
        },
    }


def plot_subproducts(config: Products, table: Table, ax: Axes) -> None:
    """Plot 95% quantiles of the largest norms and of M/m of eq. (9)."""
    shown = table.assign(bound=table["first"] / table["least"])
    lines = {
        "first": ("-", r"$\max_k \|W_k \cdots W_1\|$"),
        "any": ("--", r"$\max_{j \leq k} \|W_k \cdots W_j\|$"),
        "bound": (":", "$M/m$ of eq. (9)"),
    }
    for color, (scale, runs) in zip(COLORS, shown.groupby("scale"), strict=False):
        for column, (line, _) in lines.items():
            height = runs.groupby("depth")[column].quantile(ONE_IN_TWENTY)
            ax.plot(height, line, marker="o", color=color)
        ax.plot([], [], "o", color=color, label=f"$s = {scale}$")
    for line, label in lines.values():
        ax.plot([], [], line, color=INK, label=label)
    ax.loglog()
    ticks_at(ax, config.depths)


STEP = 0.01
"""η·L, about a hundredth of the stability limit, so that descent approximates the flow."""


@dataclass(frozen=True)
class Displacements(Config):
    """Training from residual starts of growing depth, on several data sets."""

    depths: tuple[int, ...]
    data_seeds: tuple[int, ...]
    repetitions: int
    scale: float = 0.25
    steps: int = 4000


def run_displacement(config: Displacements, depth: int, data_seed: int) -> pd.DataFrame:
    """Return max_k ‖θ_k‖_F after training, the rate of decay, and both in the units of FM-T4."""
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


DISPLACEMENTS = define_study(
    "fm-residual-theta",
    run_displacement,
    {"depth": "depths", "data_seed": "data_seeds"},
    paper=Displacements((5, 10, 20, 50, 100, 200, 500, 1000), ALL_DATA, 10),
    quick={"depths": (5, 20, 100, 300), "data_seeds": FEW_DATA, "repetitions": 4},
    runs="repetitions",
    steps="steps",
)


def constants_of(config: Displacements) -> pd.DataFrame:
    """Return the constants of FM-T4 and FM-C3 for each depth at which FM-L3 is admissible."""
    width = Setting().dimension
    found = {L: residual_constants(config.scale, width, L) for L in config.depths}
    return pd.DataFrame({L: c._asdict() for L, c in found.items() if c is not None}).T


def displacement_answers(config: Displacements, table: Table) -> Answers:
    """Answer how far outside the constants of FM-T4 training from residual starts converges."""
    found: Answers = {
        "displacement": {
            "converged": (table["status"] == "converged").mean(),
            "runs": len(table),
            "sets": table["data_seed"].nunique(),
            "power": power_interval(table, "depth", "moved", "data_seed"),
            "most": table["moved"].max(),
            "sharpness": table["sharpness"],
        }
    }
    limits = constants_of(config)
    part = table[table["depth"].isin(limits.index)].groupby("depth")
    if len(limits):
        found["constants"] = {
            "gap": part["gap"].max() / limits["gap"],
            "radius": (part["moved"].max() / limits["radius"]).max(),
            "rate": (part["rate"].min() / limits["rate"]).min(),
        }
    return found


def plot_displacement(config: Displacements, table: Table, ax: Axes) -> None:
    """Plot largest ‖θ_k‖_F against depth, each run, with medians."""
    ax.plot(table["depth"], table["moved"], ".", color=QUIET, markersize=3, label="runs")
    ax.plot(table.groupby("depth")["moved"].median(), label="median", **series(0))
    ax.set_ylim(0, 1.15 * table["moved"].max())


MARGINS = (1.1, 1.5)
"""u over the smallest u that any depth admits."""
CURVES = {
    "printed": ("FM-L3 as printed", ":"),
    "corrected": ("FM-L3, tails corrected", "--"),
    "tight": ("X-21, $u = 1.1u_\\infty$", "-"),
    "wide": ("X-21, $u = 1.5u_\\infty$", "-."),
}


@dataclass(frozen=True)
class Residual(Config):
    """Scales s and widths d of random residual networks."""

    scales: tuple[float, ...]
    draws: int
    """Number of networks drawn at the depth that X-21 admits."""
    deepest: int = 500
    """Largest depth at which networks are drawn."""
    widths: tuple[int, ...] = (5, 50)


def run_admissible(config: Residual, width: int, scale: float) -> list[dict[str, float]]:
    """Return the smallest depths, and how many draws at that of X-21 violate its bounds."""
    tight, wide = (certified_depth(scale, width, margin=margin) for margin in MARGINS)
    assert tight is not None  # the scales are below two
    depths = {
        "printed": smallest_admissible_depth(scale, width, printed=True),
        "corrected": smallest_admissible_depth(scale, width),
        "tight": tight,
        "wide": wide,
    }
    row = {name: float(depth or np.nan) for name, depth in depths.items()}
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


def admissible_answers(config: Residual, table: Table) -> Answers:
    """Answer how much X-21 reduces the depth, and whether the draws satisfy its bounds."""
    draws, outside = int(table["drawn"].sum()), int(table["outside"].sum())
    first = table[table["width"] == config.widths[0]].set_index("scale")
    printed = first[first.index.isin(PRINTED_SCALES)]
    return {
        "admissible depth": {
            "tight": printed["tight"],
            "corrected": printed["corrected"],
            "saved": (table["corrected"] / table["tight"]).max(),
        },
        "draws": {
            "outside": outside,
            "draws": draws,
            "high": share_interval(outside, draws)[1],
            "used": table["used"],
        },
    }


def plot_admissible(config: Residual, table: Table, ax: Axes) -> None:
    """Plot smallest depth against s; one color for each width; the networks of the paper."""
    for color, width in zip(COLORS, config.widths, strict=False):
        rows = table[table["width"] == width].sort_values("scale")
        for column, (label, line) in CURVES.items():
            label = f"{label}, $d = {width}$"
            ax.plot(rows["scale"], rows[column], line, color=color, label=label)
    ax.plot(PRINTED_SCALES, [10] * len(PRINTED_SCALES), "o", color=INK, label="networks of FM-4")
    ax.plot([0.25] * 4, [5, 10, 20, 40], "x", color=INK, label="networks of FM-2")
    ax.loglog()
    ax.set_xticks([0.05, 0.1, 0.2, 0.5, 1], ["0.05", "0.1", "0.2", "0.5", "1"])
    ax.xaxis.minorticks_off()


COARSE = (0.05, *PRINTED_SCALES)
FINE = tuple(sorted({*COARSE, 0.07, 0.15, 0.2, 0.35, 0.7, 1.3}))
ADMISSIBLE = define_study(
    "x-residual",
    run_admissible,
    {"width": "widths", "scale": "scales"},
    paper=Residual(FINE, draws=400),
    quick={"scales": COARSE, "draws": 40},
    runs="draws",
)
