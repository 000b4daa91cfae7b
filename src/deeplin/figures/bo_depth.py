"""Ξ against depth, with the bound of BO-T3.2 as printed and as its proof gives it (E-19)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from deeplin.figures.bo_terms import (
    ALPHA,
    WIDTH,
    draw,
    last_layer,
    population_of,
    train,
    weight_keys,
)
from deeplin.figures.claims import Claim, number, parts
from deeplin.figures.figure import Study, Table
from deeplin.figures.statistics import mean_interval
from deeplin.figures.style import QUIET, legend_beside, look, plain_numbers
from deeplin.sweep import Experiment, Unit
from deeplin.theory import random_start_bound, risk_split


@dataclass(frozen=True)
class Depths:
    """The same data trained at several depths, with β large enough for BO-T3.2 at all of them."""

    depths: tuple[int, ...]
    repetitions: int
    samples: int = 8
    dimension: int = 40
    epsilon: float = 0.2
    seed: int = 0


def depth_units(config: Depths) -> list[Unit]:
    """One unit for each depth."""
    return [Unit({"depth": L}, runs=config.repetitions, bucket=str(L)) for L in config.depths]


def run_depth(config: Depths, unit: Unit) -> pd.DataFrame:
    """Ξ, what Θ_⊥ gained on the way, and both bounds on Ξ with c = 1."""
    depth = unit.coordinates["depth"]
    sizes = config.samples, config.dimension, config.epsilon
    data = [draw(config.seed, k, *sizes) for k in range(config.repetitions)]
    beta = last_layer(data[0], max(config.depths))
    wide = train(data, depth, beta, weight_keys(config.seed, config.repetitions))
    rows = []
    for k, source in enumerate(data):
        population = population_of(source)
        theta, beside = np.asarray(wide.theta)[k], np.asarray(wide.theta_perp)[k]
        initial = np.asarray(wide.as_run(k).initial.product)
        basis = source.problem.spectrum.vectors
        start = initial - basis @ (basis.T @ initial)
        split = risk_split(source.problem, population, theta)
        scales = {"alpha": ALPHA, "beta": beta, "depth": depth, "width": WIDTH}
        bound = partial(random_start_bound, population, config.samples, **scales)
        rows.append(
            {
                "depth": depth,
                "repetition": k,
                "status": str(wide.status[k]),
                "xi": float(split.xi),
                "gained": float(np.sum((beside - start) ** 2)),
                "printed": float(bound(corrected=False).xi),
                "corrected": float(bound(corrected=True).xi),
            }
        )
    return pd.DataFrame(rows)


def law(depth, power: int):
    """L²(α + 1/L)^power, the factor of depth in the second term of BO-T3.2."""
    return depth**2 * (ALPHA + 1 / depth) ** power


def depth_claims(config: Depths, table: Table) -> list[Claim]:
    """Which law of depth describes what Θ_⊥ gains, and do the bounds hold?"""
    means = table.groupby("depth")["gained"].mean()
    lines: list[Any] = [
        stats.linregress(np.log(runs["depth"]), np.log(runs["gained"]))
        for _, runs in table.groupby("repetition")
    ]
    slopes = [line.slope for line in lines]
    mean, half = mean_interval(np.array(slopes))
    told = (
        f"It grows like L to the power {number(mean)} ± {number(half)} ({len(slopes)} data sets)."
    )
    spread = {power: (means / law(means.index, power)).to_numpy() for power in (4, 2)}
    claims = [
        Claim(
            f"What Θ_⊥ gains in training follows L²(α + 1/L){raised} of BO-T3.2 as {form}: largest "
            "over smallest ratio to this law, over the depths",
            spread[power].max() / spread[power].min(),
            upper=2.0,
            name=f"{form} law of depth",
            reason="A factor of two over the whole range of depths.",
            explanation=told,
            known="K-16",
        )
        for power, raised, form in ((4, "⁴", "printed"), (2, "²", "corrected"))
    ]
    for form in ("printed", "corrected"):
        needed = (table["xi"] / table[form]).groupby(table["depth"]).max()
        claims.append(
            Claim(
                f"The bound on Ξ as {form} holds with one constant at every depth: smallest c",
                parts("L = {}", needed),
                upper=1.0,
                name=f"{form} bound",
                reason="With c = 1, which is more than enough; whether the printed one can fail is "
                "open (E-19).",
            )
        )
    return claims


def plot_depth(config: Depths, table: Table, ax: Axes) -> None:
    """What Θ_⊥ gained, and Ξ with its two bounds, against depth."""
    means = table.groupby("depth").mean(numeric_only=True)
    ax.plot(
        means.index, means["gained"], label=r"$\|\Theta_\perp - \Theta_\perp(0)\|^2$", **look(0)
    )
    ax.plot(means.index, means["xi"], label=r"$\Xi$", **look(1))
    # wide and pale: the first term, which both share, is far larger than the second
    wide = {"color": QUIET, "linewidth": 6, "alpha": 0.4}
    ax.plot(means.index, means["printed"], label=r"bound on $\Xi$, printed", **wide)
    ax.plot(means.index, means["corrected"], "--", label=r"bound on $\Xi$, corrected", **look(3))
    ax.loglog()
    plain_numbers(ax.xaxis)
    ax.set(xlabel="Depth $L$", ylabel="Squared size")
    legend_beside(ax)


BO_DEPTH = Experiment("bo-depth", Depths, depth_units, run_depth, grid=("depths",))
DEPTHS = Study(
    "bo-depth",
    BO_DEPTH,
    paper=Depths((3, 5, 10, 20, 50, 100), repetitions=10),
    quick=Depths((3, 6, 12, 24), repetitions=3),
)
