"""BO-3: wide linear networks against the dimension."""

from functools import partial

from deeplin.papers.figures import define_figure, define_panel
from deeplin.papers.wide_sweep import (
    DISTANCE,
    RISK,
    WideSweep,
    log_answers,
    plot_against_dimension,
    wide_study,
)

DIMENSION = wide_study(
    "bo-3-dimension",
    paper=WideSweep(tuple(range(200, 2001, 200)), alphas=(0.0, 1e-4, 1e-3), betas=(1.0,)),
    quick={"dimensions": (200, 600, 1000, 1400, 2000), "repetitions": 3},
)
XLABEL = "Dimension $d$"
FIGURE = define_figure(
    "BO-3",
    define_panel(
        "BO-3-risk",
        DIMENSION,
        partial(plot_against_dimension, column="risk"),
        axes={"xlabel": XLABEL, "ylabel": RISK},
    ),
    define_panel(
        "BO-3-distance",
        DIMENSION,
        partial(plot_against_dimension, column="distance"),
        partial(log_answers, figure="BO-3"),
        axes={"xlabel": XLABEL, "ylabel": DISTANCE, "yscale": "log"},
    ),
)
