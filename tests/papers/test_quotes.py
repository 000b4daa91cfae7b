"""Every quote is seen reproduced and different; undecided where its interval covers both."""

import math

import numpy as np
import pandas as pd
import pytest
from grids import grid

from deeplin.papers import catalogue, fm_flow, verdicts
from deeplin.papers.bo_2 import ReluSweep
from deeplin.papers.fm_2 import DepthSweep
from deeplin.papers.scale_critical import ScaleCritical
from deeplin.papers.scale_sweep import Rate, ScaleSweep
from deeplin.papers.sentences import QUOTES
from deeplin.papers.setting import AUTHORS, Setting
from deeplin.papers.verdicts import Part, Quote, combined, exactly, median_of
from deeplin.papers.wide_sweep import WideSweep

RATES, SCALES, REPETITIONS = (0.02, 0.07, 0.2), (0.25, 0.4, 0.6), 20
SWEEP = ScaleSweep(Setting(), SCALES, tuple(Rate(rate, 100, REPETITIONS) for rate in RATES))


def sweep():
    """What FM describes: see each column."""
    table = grid(learning_rate=RATES, scale=SCALES, repetition=range(REPETITIONS))
    rate, scale, k = table["learning_rate"], table["scale"], table["repetition"]
    table["initial_sharpness"] = scale.map({0.25: 0.2, 0.4: 20.0, 0.6: 2000.0})
    noise = 1 + 1e-3 * (k - k.mean())
    plateau = np.select(
        [scale == 0.25, scale == 0.4], [20.0, np.minimum(40, 1.9 / rate)], 1.96 / rate
    )
    table["sharpness"] = noise * plateau
    table["distance"] = np.where(rate < 0.1, 1e-20, 0.5)
    diverges = (scale == 0.6) & (k < rate.map({0.02: 5, 0.07: 10, 0.2: 20}))
    table["status"] = np.select([diverges, rate < 0.1], ["diverged", "converged"], "stopped")
    table.loc[diverges, ["sharpness", "distance"]] = np.nan
    return table


CRITICAL = ScaleCritical(Setting(), SCALES, starts=12, steps=100)


def thresholds():
    return pd.DataFrame({"scale": SCALES, "ratio": 0.96}).assign(
        low=lambda table: table["ratio"] - 0.01, high=lambda table: table["ratio"] + 0.01
    )


def changed(table, where, **columns):
    """A copy with other values in some rows."""
    table = table.copy()
    rows = table.eval(where) if isinstance(where, str) else where
    for name, value in columns.items():
        table[name] = table[name].astype(type(value)) if isinstance(value, str) else table[name]
        table.loc[rows, name] = value
    return table


def training():
    table = grid(learning_rate=(0.02, 0.1), repetition=(0, 1), step=range(0, 400, 4))
    edge = 2 / table["learning_rate"]
    table["sharpness"] = np.where(table["learning_rate"] == 0.1, 1.02, 0.3) * edge
    return table.assign(status="stopped", distance=1e-6)


DEPTHS = DepthSweep(
    Setting(initialization="residual"),
    (5, 40),
    tuple(np.logspace(-2, -0.3, 25).tolist()),
    steps=10,
    repetitions=6,
    scale=0.25,
    data_seeds=(AUTHORS,),
)


def depths():
    table = grid(
        depth=DEPTHS.depths, learning_rate=DEPTHS.learning_rates, repetition=range(6)
    ).assign(data_seed=AUTHORS, status="stopped")
    below = table["learning_rate"] < DEPTHS.critical(table)
    return table.assign(distance=np.where(below, 1e-9, 0.4))


def underdetermined(slope=0.42, intercept=-0.96):
    rng = np.random.default_rng(0)
    sharpness = 10 ** rng.uniform(0.5, 2.5, 900)
    gap = 10 ** (intercept + slope * np.log10(sharpness) + 0.02 * rng.normal(size=900))
    table = pd.DataFrame({"sharpness": sharpness, "risk": 0.0, "test_risk": gap})
    return table.assign(learning_rate=0.001, status="converged")


PATHS = fm_flow.PATHS.quick


def paths():
    table = grid(scale=PATHS.scales, factor=PATHS.factors, repetition=range(3))
    return table.assign(apart=0.02 * table["factor"] * (1 + 0.01 * table["repetition"]))


WIDE = WideSweep((500, 1000), alphas=(0.0, 1e-4, 1e-3), betas=(1.0,), repetitions=8)


def wide(scale):
    """Distances and risks that grow with the variance, from Θ_min itself."""
    other = {"alpha": "beta", "beta": "alpha"}[scale]
    table = grid(dimension=(500, 1000), repetition=range(8), **{scale: (0.0, 1e-4, 1e-3)})
    noise = 1 + 0.01 * (table["repetition"] - 3.5)
    table["distance"] = noise * (table[scale] ** 2 * 1e6 * table["dimension"] / 100 + 1e-3)
    table["risk"] = 1.0 + 0.01 * table["distance"]
    return table.assign(
        **{other: 1.0},
        beside=table["distance"],
        interpolant_risk=1.0,
        interpolant_norm=8.0,
        loss=1e-8,
        dynamics="descent",
        status="converged",
    )


RELU = ReluSweep((0.0, 1e-4, 1e-3), (1.0,), repetitions=8)


def relu(scale, growth):
    other = {"alpha": "beta", "beta": "alpha"}[scale]
    table = grid(repetition=range(8), **{scale: (0.0, 1e-4, 1e-3)})
    noise = 0.01 * (table["repetition"] - 3.5)
    risk = 1.0 + (growth + noise) * (table[scale] == 1e-3)
    return table.assign(
        **{other: 1.0}, learning_rate=1e-4, risk=risk, loss=3e-8, steps=10, status="stopped"
    )


ALPHA, BETA = wide("alpha"), wide("beta")
RELU_ALPHA, RELU_BETA = relu("alpha", 0.1), relu("beta", 0.0)
TOP = "scale == 0.6"
CASES = {
    "fails_above": (
        SWEEP,
        [sweep()],
        [changed(sweep(), "learning_rate == 0.2 and scale == 0.4", distance=1e-9)],
    ),
    "learns_below": (SWEEP, [sweep()], [changed(sweep(), "scale == 0.4", distance=0.5)]),
    "one_threshold": (
        CRITICAL,
        [thresholds()],
        [changed(thresholds(), "scale == 0.6", ratio=0.3, low=0.2, high=0.4)],
    ),
    "starts_above": (SWEEP, [sweep()], [changed(sweep(), TOP, initial_sharpness=1.0)]),
    "near_minimum": (SWEEP, [sweep()], [changed(sweep(), "scale == 0.25", sharpness=90.0)]),
    "same_at_every_rate": (
        SWEEP,
        [sweep()],
        [changed(sweep(), "scale == 0.25 and learning_rate == 0.02", sharpness=30.0)],
    ),
    "grows_to_plateau": (SWEEP, [sweep()], [changed(sweep(), TOP, sharpness=20.5)]),
    "interplay": (SWEEP, [sweep()], [changed(sweep(), "scale == 0.6", sharpness=19.0)]),
    "same_picture": (SWEEP, [sweep()], [changed(sweep(), "scale == 0.4", sharpness=500.0)]),
    "gelu_picture": (SWEEP, [sweep()], [changed(sweep(), "scale == 0.6", sharpness=19.0)]),
    "gelu_plateau": (SWEEP, [sweep()], [changed(sweep(), TOP, sharpness=1.0)]),
    "between_lines": (
        SWEEP,
        [sweep()],
        [changed(sweep(), "scale == 0.25 and repetition < 10", sharpness=5.0)],
    ),
    "sharpens": (SWEEP, [sweep()], [changed(sweep(), "scale == 0.25", initial_sharpness=21.0)]),
    "below_edge": (None, [training()], [changed(training(), "step == 8", sharpness=120.0)]),
    "at_edge": (None, [training()], [changed(training(), "step > 200", sharpness=15.0)]),
    "threshold_matches": (
        DEPTHS,
        [depths()],
        [changed(depths(), "depth == 40 and learning_rate > 0.01", distance=0.4)],
    ),
    "succeeds_below": (DEPTHS, [depths()], [changed(depths(), "depth == 5", distance=0.4)]),
    "less_sensitive": (
        SWEEP,
        [sweep().assign(initial_sharpness=10 + sweep()["scale"]), sweep()],
        [sweep(), sweep()],
    ),
    "better_conditioned": (
        SWEEP,
        [sweep().assign(initial_sharpness=10 + sweep()["scale"]), sweep()],
        [sweep(), sweep()],
    ),
    "may_diverge": (SWEEP, [sweep()], [changed(sweep(), TOP, status="converged", distance=0.0)]),
    "correlates": (None, [underdetermined()], [underdetermined(slope=-0.3)]),
    "published_fit": (None, [underdetermined()], [underdetermined(slope=0.5)]),
    "gelu_small": (SWEEP, [sweep()], [changed(sweep(), "scale == 0.25", sharpness=2.0)]),
    "reaches_edge": (
        SWEEP,
        [sweep().assign(sharpness=1.96 / sweep()["learning_rate"])],
        [sweep()],
    ),
    "bounded_after_training": (
        SWEEP,
        [sweep()],
        [changed(sweep(), "scale == 0.25 and repetition == 0", sharpness=10.0)],
    ),
    "not_saturated": (
        SWEEP,
        [sweep()],
        [changed(sweep(), "scale == 0.25", sharpness=100.0)],
    ),
    "same_trajectory": (PATHS, [paths()], [changed(paths(), "factor > 0.2", apart=0.2)]),
    "grows": (WIDE, [ALPHA], [ALPHA.assign(risk=2 - ALPHA["risk"])]),
    "grows of both": (WIDE, [ALPHA, BETA], [ALPHA, BETA.assign(risk=2 - BETA["risk"])]),
    "approaches": (WIDE, [ALPHA, BETA], [ALPHA, changed(BETA, "beta == 0", distance=5.6)]),
    "close_at_zero": (WIDE, [ALPHA, BETA], [ALPHA, changed(BETA, "beta == 0", distance=5.6)]),
    "larger_outside": (WIDE, [ALPHA, BETA], [ALPHA.assign(beside=0.0), BETA]),
    "gets_closer": (WIDE, [BETA], [changed(BETA, "beta == 0", distance=500.0)]),
    "small_scale_close": (WIDE, [ALPHA], [changed(ALPHA, "alpha == 0.0001", distance=60.0)]),
    "trained_to_target": (WIDE, [ALPHA], [ALPHA.assign(loss=1e-3)]),
    "relu_effect": (RELU, [RELU_ALPHA], [relu("alpha", -0.2)]),
    "relu_effect of both": (RELU, [RELU_ALPHA, RELU_BETA], [RELU_ALPHA, relu("beta", 0.4)]),
    "relu_trained": (
        RELU,
        [RELU_ALPHA, RELU_BETA],
        [RELU_ALPHA.assign(loss=2.1), RELU_BETA.assign(loss=2.1)],
    ),
}
"""Of each measurement: a config, tables in which the sentence is true, and tables in which not."""


def case(quote):
    """The key of a quote's tables."""
    name, both = quote.measure.__name__, f"{quote.measure.__name__} of both"
    return both if len(quote.studies) == 2 and both in CASES else name


@pytest.mark.parametrize("quote", QUOTES, ids=lambda quote: quote.name)
def test_a_quote_is_reproduced_by_what_it_says_and_differs_when_that_is_not_so(quote):
    config, good, bad = CASES[case(quote)]
    assert len(good) == len(quote.studies)
    assert quote.judge(config, *good)["verdict"] == "reproduced"
    judged = quote.judge(config, *bad)
    assert judged["verdict"] == "differs"
    assert judged["value"]


def test_every_case_belongs_to_a_quote():
    assert set(CASES) == set(map(case, QUOTES))


def test_every_panel_of_a_paper_has_a_quote_or_a_caption_that_is_left_out():
    about = {quote.panel for quote in QUOTES}
    printed = {p.name for figure in catalogue.FIGURES for p in figure.panels if not p.ours}
    assert printed <= about


def test_an_interval_on_both_sides_of_a_limit_is_undecided_and_says_how_many_runs_decide():
    part = Part("", 0.97, 0.87, 1.07, lower=0.9, runs=20)
    assert part.verdict == "undecided"
    assert part.decided_by == math.ceil(20 * (0.1 / 0.07) ** 2)
    assert exactly("", 0.97, lower=0.9).verdict == "reproduced"
    assert exactly("", 0.87, lower=0.9).verdict == "differs"


def one_quote(part):
    return Quote("one", "FM", "here", "Words.", "Ours.", "P", (), lambda config: [part], "Why.")


@pytest.mark.parametrize("full", verdicts.VERDICTS)
def test_a_quick_measurement_is_shown_beside_the_record_and_not_overruled(monkeypatch, full):
    quote = one_quote(exactly("", 2.0, upper=1.0))
    known = {"paper": {"quotes": {"one": {"verdict": full, "value": "0.5"}}}}
    monkeypatch.setattr(verdicts, "everything", lambda: known)
    judged = quote.judge(None, preset="quick")
    assert judged["verdict"] == "differs"
    assert (judged["full"]["verdict"], judged["full"]["value"]) == (full, "0.5")
    assert quote.judge(None, preset="paper")["full"] == {}
    assert (quote.verdict, quote.value) == (full, "0.5")


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        (["reproduced", "reproduced"], "reproduced"),
        (["reproduced", "undecided"], "undecided"),
        (["undecided", "differs"], "differs"),
        ([], "undecided"),
    ],
)
def test_a_whole_is_reproduced_if_all_its_parts_are_and_differs_if_one_does(parts, verdict):
    assert combined(parts) == verdict


def test_the_number_that_is_decided_first_says_how_many_runs_decide():
    open_ = [Part("", 0.97, 0.87, 1.07, 0.9, runs=20), Part("", 0.91, 0.81, 1.01, 0.9, runs=20)]
    quote = Quote("one", "FM", "here", "Words.", "Ours.", "P", (), lambda config: open_)
    assert quote.judge(None)["decides"] == "About 41 runs would decide the first of 2 open numbers."
    assert one_quote(open_[0]).judge(None)["decides"] == "About 41 runs would decide."


def test_a_median_has_the_interval_of_its_order_statistics():
    part = median_of("", range(1, 21))  # the sign test of 20 values leaves out five on each side
    assert (part.value, part.low, part.high) == (10.5, 6.0, 15.0)
    few = median_of("", range(5), lower=1.0, upper=3.0)
    assert (few.verdict, few.decided_by) == ("undecided", 6)


def test_a_number_without_limits_is_shown_and_not_judged():
    beside = Part("mean", 0.2, 0.1, 0.3)
    judged = Quote(
        "one", "FM", "here", "Words.", "Ours.", "P", (),
        lambda config: [exactly("median", 1.0, 0.9, 1.1), beside],
    ).judge(None)  # fmt: skip
    assert (judged["verdict"], judged["value"]) == ("reproduced", "median: 1 (0.9 to 1.1)")
    assert judged["parts"][1] == "mean: 0.2 [0.1, 0.3]"


def test_a_quote_that_differs_says_why_and_which_part():
    judged = one_quote(exactly("depth 5", 2.0, upper=1.0)).judge(None)
    assert judged["why"] == "Why."
    assert judged["value"] == "depth 5: 2 (at most 1)"
