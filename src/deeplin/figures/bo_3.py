"""BO-3: excess risk and distance to the minimum-norm interpolant against the dimension."""

from __future__ import annotations

from deeplin.figures.bo_1 import BO_1
from deeplin.figures.figure import Figure, Panel, Study
from deeplin.figures.wide_claims import dimension_claims
from deeplin.figures.wide_plots import plot_distance_against_dimension, plot_risk_against_dimension
from deeplin.figures.wide_sweep import WIDE_SWEEP, WideSweep

ALPHAS = (0.0, 1e-4, 1e-3)
STUDY = Study(
    "bo-3-dimension",
    WIDE_SWEEP,
    {
        "paper": WideSweep(tuple(range(200, 2001, 200)), alphas=ALPHAS, betas=(1.0,)),
        "quick": WideSweep(
            (200, 600, 1000, 1400, 2000), alphas=ALPHAS, betas=(1.0,), repetitions=3
        ),
    },
)

BO_3 = Figure(
    "BO-3",
    "Wide linear networks: excess risk and distance against the dimension",
    (
        Panel(
            "BO-3-risk",
            "Excess risk against the dimension d for three scales of the first layer. Open "
            "markers: gradient flow, where the authors' step is unstable.",
            STUDY,
            plot_risk_against_dimension,
        ),
        Panel(
            "BO-3-distance",
            "Squared distance to the minimum-norm interpolant. Dotted: α²(d−n)mq. What is left at "
            "α = 0 is what the loss target leaves untrained.",
            STUDY,
            plot_distance_against_dimension,
            dimension_claims,
        ),
    ),
    printed=BO_1.printed + " d from 200 to 2000 in steps of 200; α = 0, 1e-4, 1e-3; β = 1.",
    as_run=BO_1.as_run,
)
