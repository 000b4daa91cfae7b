"""What FM and the Talk say about experiments, sentence by sentence, and how each is measured.

Readings and limits stand here before the runs that judge them. Averages are over the runs that do
not diverge, as FM, Appendix C says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from deeplin.papers import flow_and_descent, fm_1, fm_2, fm_6, fm_7
from deeplin.papers.figure import Study, Table
from deeplin.papers.fm_2 import DepthSweep
from deeplin.papers.question import number
from deeplin.papers.quote import Part, Quote, exactly, mean_of, share_of
from deeplin.papers.scale_sweep import LEARNED, ScaleSweep
from deeplin.papers.statistics import mean_interval, slope_interval
from deeplin.papers.trajectories import Trajectories, own_starts

AROUND = {"lower": 0.9, "upper": 1.1}
"""*Around*, *at*: within a tenth, where the thresholds 2/η differ by factors."""
MOST = 0.95
"""*Succeeds*, *fails*: nineteen of twenty, the printed repetitions of a cell."""
FEW = 3
"""A mean of fewer surviving runs is not judged."""


def kept(table: Table) -> Table:
    """The runs that do not diverge, with their sharpness over 2/η as `height` and `start`."""
    runs = table[table["status"] != "diverged"]
    edge = 2 / runs["learning_rate"]
    return runs.assign(height=runs["sharpness"] / edge, start=runs["initial_sharpness"] / edge)


def cells(runs: Table, *by: str) -> Iterator[tuple[str, Any]]:
    """The groups of at least FEW runs, each with its name."""
    letters = {"learning_rate": "η = {}", "scale": "scale {}", "depth": "depth {}"}
    for key, group in runs.groupby(list(by)):
        if len(group) >= FEW:
            words = (
                letters[name].format(number(value)) for name, value in zip(by, key, strict=True)
            )
            yield ", ".join(words), group


def largest(runs: Table) -> Table:
    """At each rate the runs of the largest scale that at least FEW of them survive."""
    counts = runs.groupby(["learning_rate", "scale"]).size()
    tops = counts[counts >= FEW].reset_index().groupby("learning_rate")["scale"].max()
    return runs[runs["scale"] == runs["learning_rate"].map(tops)]


def smallest(runs: Table) -> Table:
    """The runs of the smallest scale."""
    return runs[runs["scale"] == runs["scale"].min()]


def shown(table: Table) -> Table:
    """The rates of panel b."""
    return table[table["learning_rate"] < fm_1.SHOWN_BELOW]


def critical(config: ScaleSweep) -> float:
    """2/S_min of the data and depth (X-2)."""
    return config.setting.flattest.critical_learning_rate()


def fails_above(config: ScaleSweep, table: Table) -> list[Part]:
    """Share of all runs above the critical rate that do not settle at w*."""
    above = table[table["learning_rate"] > critical(config)]
    return [
        share_of(name, group["status"] != "converged", lower=MOST)
        for name, group in cells(above, "learning_rate", "scale")
    ]


def learns_below(config: ScaleSweep, table: Table) -> list[Part]:
    """At each scale the share of surviving runs below the critical rate that end at w*."""
    below = kept(table[table["learning_rate"] < critical(config)])
    return [
        share_of(name, group["distance"] < LEARNED, lower=MOST)
        for name, group in cells(below, "scale")
    ]


def one_threshold(config: ScaleSweep, table: Table) -> list[Part]:
    """At each scale, the largest rate up to which surviving runs learn, over 2/S_min."""
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
    """Where the largest scale starts, and from how high up a run still learns, over 2/η."""
    runs = shown(table)
    top = runs[runs["scale"] == runs["scale"].max()]
    edge = 2 / top["learning_rate"]
    high = (top["initial_sharpness"] / edge).groupby(top["learning_rate"]).median()
    learned = kept(runs)
    learned = learned[learned["distance"] < LEARNED].groupby("learning_rate")["start"].max()
    return [
        *(exactly(f"median start, η = {number(r)}", v, lower=2.0) for r, v in high.items()),
        *(
            exactly(f"highest that learns, η = {number(r)}", v, lower=1.0)
            for r, v in learned.items()
        ),
    ]


def near_minimum(config: ScaleSweep, table: Table) -> list[Part]:
    """From the smallest scale, S/S_min at each rate, and the difference between two rates."""
    least = config.setting.flattest.exact
    small = smallest(kept(shown(table)))
    close = [
        mean_of(f"S/S_min, {name}", group["sharpness"] / least, upper=2.0)
        for name, group in cells(small, "learning_rate")
    ]
    return close + same_at_every_rate(config, table)


def same_at_every_rate(config: ScaleSweep, table: Table) -> list[Part]:
    """From the smallest scale, relative difference of the mean sharpness between two rates."""
    small = smallest(kept(shown(table)))
    groups = [(name, group["sharpness"]) for name, group in cells(small, "learning_rate")]
    found = []
    for (first, one), (second, other) in combinations(groups, 2):
        apart = abs(one.mean() - other.mean())
        halves = [mean_interval(values)[1] for values in (one, other)]
        half, size = float(np.hypot(*halves)), (one.mean() + other.mean()) / 2
        bounds = (apart / size, max(apart - half, 0) / size, (apart + half) / size)
        found.append(Part(f"{first} and {second}", *bounds, upper=0.1, runs=len(one)))
    return found


def grows_with_scale(table: Table) -> list[Part]:
    """Mean log of the sharpness after training: largest scale less the smallest, at each rate."""
    found = []
    for name, group in cells(kept(shown(table)), "learning_rate"):
        ends = [
            np.log(end["sharpness"].clip(lower=1e-12)) for end in (smallest(group), largest(group))
        ]
        (low, a), (high, b) = (mean_interval(end) for end in ends)
        half = float(np.hypot(a, b))
        found.append(Part(f"growth, {name}", high - low, high - low - half, high - low + half, 0.0))
    return found


def plateau(table: Table) -> list[Part]:
    """Mean sharpness after training at the largest scale with surviving runs, over 2/η."""
    return [
        mean_of(f"plateau, {name}", group["height"], **AROUND)
        for name, group in cells(largest(kept(shown(table))), "learning_rate")
    ]


def grows_to_plateau(config: ScaleSweep, table: Table) -> list[Part]:
    """Both of the above."""
    return grows_with_scale(table) + plateau(table)


def same_picture(config: ScaleSweep, table: Table) -> list[Part]:
    """The order of Figure 1b: grows with the scale, never far above 2/η, less at a larger rate."""
    means = [
        mean_of(f"over 2/η, {name}", group["height"], upper=1.1)
        for name, group in cells(kept(shown(table)), "learning_rate", "scale")
    ]
    tops = largest(kept(shown(table))).groupby("learning_rate")["sharpness"].mean().sort_index()
    falls = np.diff(tops.to_numpy())
    order = exactly("sharpest at the slowest rate: largest step", falls.max(), upper=0.0)
    return [*grows_with_scale(table), *means, order]


def between_lines(config: ScaleSweep, table: Table) -> list[Part]:
    """From the smallest scale, share of the runs between 2La and 8LΛ."""
    low, high = config.setting.flattest.lower, config.setting.upper_bound
    small = smallest(kept(shown(table)))
    return [
        share_of(name, group["sharpness"].between(low, high), lower=1.0)
        for name, group in cells(small, "learning_rate")
    ]


def sharpens(config: ScaleSweep, table: Table) -> list[Part]:
    """From the smallest scale, sharpness after training over that at initialization."""
    small = smallest(kept(shown(table)))
    ratio = small["sharpness"] / small["initial_sharpness"]
    return [exactly("smallest ratio of a run", ratio.min(), lower=1.0)]


def below_edge(config: Trajectories, table: Table) -> list[Part]:
    """Largest sharpness of the authors' run, over 2/η."""
    run = own_starts(table, 0.02).query("repetition == @AUTHORS_RUN")
    return [exactly("largest", run["height"].max(), upper=1.0)]


def at_edge(config: Trajectories, table: Table) -> list[Part]:
    """Mean sharpness of the authors' run over its last third, over 2/η."""
    run = own_starts(table, 0.1).query("repetition == @AUTHORS_RUN")
    late = run[run["step"] >= 2 / 3 * run["step"].max()]["height"]
    return [exactly("mean of the last third", late.mean(), **AROUND)]


STEP_OF_GRID = 10 ** (1.7 / 24)
"""Between two of the 25 learning rates of FM-2."""


def _authors_data(config: DepthSweep, table: Table) -> Table:
    return table[table["data_seed"] == config.data_seeds[0]]


def threshold_matches(config: DepthSweep, table: Table) -> list[Part]:
    """Largest rate of the grid that learns, over the printed prediction."""
    found = []
    for depth, runs in _authors_data(config, table).groupby("depth"):
        runs = runs[runs["status"] != "diverged"]
        median = runs.groupby("learning_rate")["distance"].median()
        best = median.index[median < LEARNED].max()
        printed = config.at(int(depth)).flattest.printed_critical_learning_rate  # pyright: ignore
        limits = STEP_OF_GRID**-2, STEP_OF_GRID
        found.append(exactly(f"depth {depth}", best / printed, *limits))
    return found


def succeeds_below(config: DepthSweep, table: Table) -> list[Part]:
    """Share of runs that learn a tenth below the dashed line, and that do not a tenth above."""
    runs = _authors_data(config, table)
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
    """Decades of the median initial sharpness over the scales: residual over Gaussian starts."""
    spans = [
        np.ptp(np.log10(table.groupby("scale")["initial_sharpness"].median()))
        for table in (residual, gaussian)
    ]
    return [exactly("decades over decades", spans[0] / spans[1], upper=0.5)]


def better_conditioned(config: ScaleSweep, residual: Table, gaussian: Table) -> list[Part]:
    """Decades that hold 95% of the initial sharpnesses: Gaussian starts less residual ones."""
    decades = [
        np.ptp(np.log10(pd.Series(table["initial_sharpness"]).quantile([0.025, 0.975])))
        for table in (gaussian, residual)
    ]
    return [exactly("decades fewer", decades[0] - decades[1], lower=1.0)]


def may_diverge(config: ScaleSweep, table: Table) -> list[Part]:
    """Share of the runs of the largest scale that diverge, all rates together."""
    top = table[table["scale"] == table["scale"].max()]
    return [share_of("largest scale", top["status"] == "diverged", lower=1e-9)]


def correlates(config: ScaleSweep, table: Table) -> list[Part]:
    """Slope of log10 gap on log10 sharpness, η = 0.001."""
    points, _ = fm_6.fit(fm_6.slowest(table))
    slope, half = slope_interval(points["sharpness"], points["gap"])
    return [Part("slope", slope, slope - half, slope + half, 1e-12, runs=len(points))]


def published_fit(config: ScaleSweep, table: Table) -> list[Part]:
    """Our slope and intercept against the printed ones, two of their standard errors apart."""
    _, line = fm_6.fit(fm_6.slowest(table))
    ours = {
        "slope": (line.slope, line.stderr),
        "intercept": (line.intercept, line.intercept_stderr),
    }
    found = []
    for name, (value, error) in fm_6.PUBLISHED.items():
        mine, own = ours[name]
        # the same runs: our own error is none of the difference, unless these are fewer of them
        half = 0.0 if len(fm_6.slowest(table)) > 800 else 1.96 * own
        limits = value - 2 * error, value + 2 * error
        found.append(Part(name, mine, mine - half, mine + half, *limits, len(fm_6.slowest(table))))
    return found


def gelu_plateau(config: ScaleSweep, table: Table) -> list[Part]:
    """As in the linear case, for every rate that was run."""
    return plateau(table)


def gelu_small(config: ScaleSweep, table: Table) -> list[Part]:
    """From the smallest scale: below 2/η, and within a factor of two of the linear bounds."""
    low, high = config.setting.flattest.lower, config.setting.upper_bound
    small = smallest(kept(shown(table)))
    return [
        part
        for name, group in cells(small, "learning_rate")
        for part in (
            mean_of(f"over 2/η, {name}", group["height"], upper=1.0),
            mean_of(f"sharpness, {name}", group["sharpness"], low / 2, 2 * high),
        )
    ]


def reaches_edge(config: ScaleSweep, table: Table) -> list[Part]:
    """Mean sharpness after training of every scale and rate, over 2/η."""
    return [
        mean_of(name, group["height"], lower=AROUND["lower"])
        for name, group in cells(kept(shown(table)), "learning_rate", "scale")
    ]


def bounded_after_training(config: ScaleSweep, table: Table) -> list[Part]:
    """Runs that settled: sharpness over 2La, and over 2/η."""
    runs = table[table["status"] == "converged"]
    height = runs["sharpness"] * runs["learning_rate"] / 2
    return [
        exactly(
            "smallest over 2La", (runs["sharpness"] / config.setting.flattest.lower).min(), 1.0
        ),
        exactly("largest over 2/η", height.max(), upper=1.0 + 1e-6),
    ]


def not_saturated(config: ScaleSweep, table: Table) -> list[Part]:
    """From the smallest scale, mean sharpness after training over 2/η."""
    small = smallest(kept(shown(table)))
    return [
        mean_of(name, group["height"], upper=AROUND["lower"])
        for name, group in cells(small, "learning_rate")
    ]


IN_PART = (
    "At the smallest rates the first steps land runs in flatter minimizers, and nothing drives"
)
WHY_PLATEAU = (
    f"{IN_PART} the sharpness up again: the risk is already at its minimum. The smaller η, the "
    "wider the range between S_min and 2/η in which a run may land. At the larger rates the "
    "plateau is there."
)
BELOW = "Ours: below the critical rate 2/S_min (X-2), of the runs that do not diverge, "
SWEEP, RESIDUAL = fm_1.SWEEP, fm_1.RESIDUAL_SWEEP


def _quote(
    paper: str,
    name: str,
    place: str,
    panel: str,
    text: str,
    reading: str,
    measure: Callable[..., Sequence[Part]],
    *studies: Study,
    why: str = "",
) -> Quote:
    return Quote(name, paper, place, text, reading, panel, studies, measure, why)


fm, talk = partial(_quote, "FM"), partial(_quote, "Talk")
CAPTION = (
    "Training succeeds when the learning rate is lower than a critical value independent of the "
    "initialization scale."
)
QUALITATIVE = (
    "qualitatively observe a similar connection between learning rate, initialization scale and "
    "sharpness as"
)
ALIKE = (
    "Ours: *qualitatively similar* is the order of Figure 1b: the mean sharpness after training "
    "grows from the smallest to the largest scale with surviving runs at every rate, is nowhere "
    "more than a tenth above 2/η, and is larger at the smaller rates there."
)
INDEPENDENT = (
    "Ours: at the smallest scale the means of two rates differ by at most a tenth, where the "
    "thresholds 2/η differ by factors (95% interval of the difference)."
)

FM_QUOTES = (
    fm(
        "fails above the critical value",
        "Section 1, on Figure 1a",
        "FM-1a",
        "when the learning rate exceeds some critical value, the network fails to learn",
        "Ours: at rates above 2/S_min at least 95% of the runs of every scale do not settle.",
        fails_above,
        SWEEP,
    ),
    fm(
        "learns from a wide range of scales",
        "Section 1, on Figure 1a",
        "FM-1a",
        "this critical value does not seem to be related to the initial scale: when the learning "
        "rate is under the critical value, learning is successful for a wide range of initial "
        "scales",
        f"{BELOW}95% of those of every scale end with ‖w − w*‖² below 0.01 (the zero map has 1).",
        learns_below,
        SWEEP,
    ),
    fm(
        "starts well over 2/η",
        "Section 1, on Figure 1b",
        "FM-1b",
        "In Figure 1b, we see that the large initialization scales correspond to initial "
        "sharpnesses well over the 2/η threshold, confirming that training is possible while "
        "initializing beyond the 2/η threshold.",
        "Ours: *well over* is twice, for the median start of the largest scale at every rate of "
        "the panel; and at every rate some run that starts above 2/η ends at w*.",
        starts_above,
        SWEEP,
    ),
    fm(
        "one critical value for all scales",
        "Figure 1a, caption",
        "FM-1a",
        CAPTION,
        "Ours: at every scale with surviving runs just below 2/S_min, the largest rate of the sweep "
        "whose median run learns is the last one below 2/S_min.",
        one_threshold,
        SWEEP,
    ),
    fm(
        "1c below the edge",
        "Figure 1c, caption",
        "FM-1c",
        "for η = 0.02 and an initialization scale of 0.35. The network does not enter edge of "
        "stability.",
        "Ours: the sharpness of the authors' run never exceeds 2/η.",
        below_edge,
        fm_1.TRAINING,
    ),
    fm(
        "1d at the edge",
        "Figure 1d, caption",
        "FM-1d",
        "for η = 0.1 and an initialization scale of 0.35. The network enters edge of stability.",
        "Ours: the sharpness of the authors' run is around 2/η: its mean over the last third is "
        "within a tenth.",
        at_edge,
        fm_1.TRAINING,
    ),
    fm(
        "critical value as predicted",
        "Section 1, on Figure 2",
        "FM-2",
        "This is confirmed experimentally by Figure 2, which shows that the critical value of the "
        "learning rate matches our theoretical prediction.",
        "Ours: at every depth the largest rate of the grid whose median run learns is within one "
        "grid step (18%) above and two below the printed 1/(La); 1 000 steps end early close to it.",
        threshold_matches,
        fm_2.SWEEP,
    ),
    fm(
        "threshold of each depth",
        "Figure 2, caption",
        "FM-2",
        "For each depth, learning succeeds if the learning rate is below a threshold, which "
        "corresponds to the theoretical value […] of Theorem 1 (dashed vertical line).",
        "Ours: *corresponds* (≃) is within a tenth: 95% of the surviving runs at less than 0.9 of "
        "the dashed line end at w*, and 95% of all runs above 1.1 of it do not.",
        succeeds_below,
        fm_2.SWEEP,
    ),
    fm(
        "small scales near S_min",
        "Section 1, on Figure 1b",
        "FM-1b",
        "For small initialization scale, the sharpness after training is equal to a value "
        "relatively close to Smin and independent of the learning rate.",
        "Ours: at the smallest scale *relatively close* is within a factor of two of S_min. "
        f"{INDEPENDENT}",
        near_minimum,
        SWEEP,
    ),
    fm(
        "plateau at 2/η",
        "Section 1, on Figure 1b",
        "FM-1b",
        "As the initialization scale increases, the sharpness of the trained network also "
        "increases, and plateaus at the value 2/η.",
        "Ours: at every rate of the panel the mean grows from the smallest to the largest scale "
        "with surviving runs, and is within a tenth of 2/η there.",
        grows_to_plateau,
        SWEEP,
        why=WHY_PLATEAU,
    ),
    fm(
        "between the black lines",
        "Section 1, small-scale initialization",
        "FM-1b",
        "We observe that the sharpness after training, when starting from a small-scale "
        "initialization, is indeed situated between the black lines.",
        "Ours: every run of the smallest scale ends between 2La and 8LΛ.",
        between_lines,
        SWEEP,
    ),
    fm(
        "sharpening during training",
        "Section 1, small-scale initialization",
        "FM-1b",
        "This therefore showcases an example of sharpening during training (although we make no "
        "statement on monotonicity).",
        "Ours: every run of the smallest scale ends sharper than it began.",
        sharpens,
        SWEEP,
    ),
    fm(
        "residual plots alike",
        "Section 1, residual initialization",
        "FM-4b",
        "Experimentally, we give in Appendix C plots in the residual case that are qualitatively "
        "similar to Figure 1.",
        ALIKE,
        same_picture,
        RESIDUAL,
    ),
    fm(
        "less sensitive to the scale",
        "Section 1, residual initialization",
        "FM-4b",
        "The main difference is that the initial sharpness is less sensitive to the "
        "initialization scale s.",
        "Ours: over the range of scales the median initial sharpness spans at most half the "
        "decades that it spans in Figure 1b.",
        less_sensitive,
        RESIDUAL,
        SWEEP,
    ),
    fm(
        "Gaussian starts may diverge",
        "Appendix C, details of Figure 1",
        "FM-3",
        "For large values of the initialization scale, it may happen that the gradient descent "
        "diverges.",
        "Ours: some runs of the largest scale do.",
        may_diverge,
        SWEEP,
    ),
    fm(
        "better conditioned",
        "Appendix C, residual initialization",
        "FM-4b",
        "The plots are similar to the case of Gaussian initialization, apart from the fact that "
        "the sharpness at initialization is better conditioned.",
        "Ours: 95% of the initial sharpnesses of all scales span at least one decade less than in "
        "Figure 1b.",
        better_conditioned,
        RESIDUAL,
        SWEEP,
    ),
    fm(
        "residual starts may diverge",
        "Appendix C, residual initialization",
        "FM-5",
        "As previously, for large values of the initialization scale, it may happen that the "
        "gradient descent diverges.",
        "Ours: some runs of the largest scale do.",
        may_diverge,
        RESIDUAL,
    ),
    fm(
        "one critical value for all s",
        "Figure 4a, caption",
        "FM-4a",
        CAPTION,
        "As for Figure 1a.",
        one_threshold,
        RESIDUAL,
    ),
    fm(
        "4c below the edge",
        "Figure 4c, caption",
        "FM-4c",
        "for η = 0.02 and an initialization scale of 0.5. The network does not enter edge of "
        "stability.",
        "As for Figure 1c.",
        below_edge,
        fm_1.RESIDUAL_TRAINING,
    ),
    fm(
        "4d at the edge",
        "Figure 4d, caption",
        "FM-4d",
        "for η = 0.1 and an initialization scale of 0.5. The network enters edge of stability.",
        "As for Figure 1d.",
        at_edge,
        fm_1.RESIDUAL_TRAINING,
    ),
    fm(
        "generalization correlates",
        "Appendix C, underdetermined regression",
        "FM-6b",
        "Figure 6 shows in this case a correlation between generalization and sharpness.",
        "Ours: the slope of the regression of 6b is positive beyond its 95% interval.",
        correlates,
        fm_6.SWEEP,
    ),
    fm(
        "underdetermined alike",
        "Appendix C, underdetermined regression",
        "FM-6a",
        "We also qualitatively observe in Figure 6 a similar connection between learning rate, "
        "initialization scale and sharpness as in the case of full-rank data (Figure 1b).",
        ALIKE,
        same_picture,
        fm_6.SWEEP,
    ),
    fm(
        "underdetermined alike, caption",
        "Figure 6a, caption",
        "FM-6a",
        "We qualitatively observe a similar connection between learning rate, initialization "
        "scale and sharpness as in the case of a full rank data matrix (Figure 1b of the paper).",
        ALIKE,
        same_picture,
        fm_6.SWEEP,
    ),
    fm(
        "slope and intercept",
        "Figure 6b, caption",
        "FM-6b",
        "The line corresponds to the linear regression of the log10 of the generalization gap on "
        "the log10 of the sharpness after training (slope=0.42 ± 0.01, intercept = −0.96 ± 0.03).",
        "Ours: the same regression of the same 900 runs, within two of the printed standard "
        "errors. Fewer runs have an interval of their own.",
        published_fit,
        fm_6.SWEEP,
    ),
    fm(
        "GELU alike",
        "Appendix C, non-linear MLPs",
        "FM-7",
        "We qualitatively observe in Figure 7 a similar connection between learning rate, "
        "initialization scale and sharpness as for deep linear neural networks (Figure 1b).",
        ALIKE,
        same_picture,
        fm_7.NOISELESS,
    ),
    fm(
        "GELU plateau at 2/η",
        "Appendix C, non-linear MLPs",
        "FM-7",
        "For large initialization, the sharpness after training plateaus at 2/η, as in the linear "
        "case.",
        "Ours: at every rate the mean over the surviving runs of the largest scale is within a "
        "tenth of 2/η.",
        gelu_plateau,
        fm_7.NOISELESS,
        why="In some runs the first steps switch every unit off: their sharpness is 0, which pulls "
        "the mean below 2/η. The runs that stay alive are at 2/η (see the question of FM-7).",
    ),
    fm(
        "GELU small scales",
        "Appendix C, non-linear MLPs",
        "FM-7",
        "For small initialization, the sharpness after training is less that 2/η, and is close to "
        "the bounds in the linear case (dotted black lines).",
        "Ours: at the smallest scale the mean is below 2/η, and *close* is within a factor of two "
        "of the interval from 2La to 8LΛ.",
        gelu_small,
        fm_7.NOISELESS,
    ),
    fm(
        "GELU with noise reaches 2/η",
        "Appendix C, non-linear MLPs",
        "FM-7-noisy",
        "We observed that the sharpness of the network reaches 2/η, for every learning rate and "
        "initialization scale reported in Figure 7.",
        "Ours: the mean over the surviving runs of every rate and scale is at least nine tenths of "
        "2/η.",
        reaches_edge,
        fm_7.NOISY,
        why="Where it stays below, the sharpness still grows when training stops: the smaller η, "
        "the higher 2/η and the longer it takes.",
    ),
    fm(
        "one trajectory",
        "Appendix C, gradient flow and gradient descent",
        "FM-flow",
        "gradient flow and gradient descent up to a reasonably large learning rate should follow "
        "the same trajectory when starting from small-scale initialization",
        "Ours: *reasonably large* is half of 2/S_bal, *small-scale* the smallest start of the "
        "figure; the weights of descent stay within a twentieth of the size of the final weights "
        "from the curve of the flow.",
        flow_and_descent.same_trajectory,
        flow_and_descent.STUDY,
    ),
    fm(
        "supported by Figure 1b",
        "Appendix C, gradient flow and gradient descent",
        "FM-1b",
        "This intuition is supported by Figure 1b where we see that, for small initializations, "
        "the sharpness after training is independent of the learning rate.",
        INDEPENDENT,
        same_at_every_rate,
        SWEEP,
    ),
    fm(
        "progressive sharpening",
        "Appendix D",
        "FM-1b",
        "Our setting of small-scale initialization presents an example of such a progressive "
        "sharpening (although we make no statement on the monotonicity of the increase in "
        "sharpness).",
        "Ours: every run of the smallest scale ends sharper than it began.",
        sharpens,
        SWEEP,
    ),
    talk(
        "talk: fails above a critical value",
        "Slide “GD fails when η exceeds a critical value”",
        "FM-1a",
        "GD fails when […] exceeds a critical value",
        "As for Section 1 of FM.",
        fails_above,
        SWEEP,
    ),
    talk(
        "talk: fails above 1/(La)",
        "Slide “Back to our experiment”",
        "FM-1a",
        "Back to our experiment […] GD fails if",
        "The slide goes on with η > 1/(La‖π*‖²). Ours: as above; no rate of the experiment lies "
        "between that and 2/S_min.",
        fails_above,
        SWEEP,
    ),
    talk(
        "talk: bounds after training",
        "Slide “Back to our experiment”",
        "FM-1b",
        "Back to our experiment […] After training,",
        "The slide goes on with 2La‖π*‖² ≤ S(W) ≤ 2/η (here ‖π*‖ = 1). Ours: every run that "
        "settles ends between the two, up to how far it is from its limit (10⁻⁶).",
        bounded_after_training,
        SWEEP,
    ),
    talk(
        "talk: no saturation",
        "Slide “From a small-scale initialization”",
        "FM-1b",
        "From a small-scale initialization […] Sharpness does not saturate at",
        "The slide goes on with 2/η. Ours: at the smallest scale the mean is more than a tenth "
        "below 2/η at every rate of the panel.",
        not_saturated,
        SWEEP,
    ),
    talk(
        "talk: independent of the rate",
        "Slide “From a small-scale initialization”",
        "FM-1b",
        "The final sharpness is independent of the learning rate.",
        INDEPENDENT,
        same_at_every_rate,
        SWEEP,
    ),
)
