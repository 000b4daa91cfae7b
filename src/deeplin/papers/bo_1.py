"""BO-1: wide linear networks against the scale of the first and of the last layer."""

from functools import partial

from deeplin.papers.figures import Panel, define_figure, define_panel
from deeplin.papers.wide_sweep import (
    DISTANCE,
    RISK,
    SCALES,
    WideSweep,
    log_answers,
    plot_against_variance,
    wide_study,
)

DIMENSIONS = (500, 1000, 2000)
FEWER = (SCALES[0], SCALES[5], SCALES[9])
FIRST_LAYER = wide_study(
    "bo-1-first-layer",
    paper=WideSweep(DIMENSIONS, alphas=SCALES, betas=(1.0,)),
    quick={"alphas": FEWER, "repetitions": 4},
)
LAST_LAYER = wide_study(
    "bo-1-last-layer",
    paper=WideSweep(DIMENSIONS, alphas=(1.0,), betas=SCALES),
    quick={"betas": FEWER, "repetitions": 4},
)


def _panels(figure: str, study, letter: str) -> tuple[Panel, Panel]:
    """Return the panels of risk and of distance against the variance of a layer."""
    xlabel = rf"Initialization variance $\{letter}^2$"
    plot = partial(plot_against_variance, figure=figure)
    return (
        define_panel(
            figure, study, partial(plot, column="risk"), partial(log_answers, figure=figure),
            axes={"xlabel": xlabel, "ylabel": RISK},
        ),
        define_panel(
            f"{figure}-right", study, partial(plot, column="distance"),
            axes={"xlabel": xlabel, "ylabel": DISTANCE},
        ),
    )  # fmt: skip


FIGURE = define_figure(
    "BO-1",
    *_panels("BO-1-top", FIRST_LAYER, "alpha"),
    *_panels("BO-1-bottom", LAST_LAYER, "beta"),
)
