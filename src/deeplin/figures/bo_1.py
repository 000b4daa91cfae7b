"""BO-1: excess risk of wide linear networks against the variance of the first and last layer."""

from __future__ import annotations

from functools import partial

import numpy as np

from deeplin.figures.figure import Figure, Panel, Study
from deeplin.figures.wide_claims import first_layer_claims, last_layer_claims
from deeplin.figures.wide_plots import plot_risk_against_variance
from deeplin.figures.wide_sweep import WIDE_SWEEP, WideSweep

SCALES = tuple(np.linspace(0.0, 1e-3, 10).tolist())
FEWER = (SCALES[0], SCALES[5], SCALES[9])
DIMENSIONS = (500, 1000, 2000)

FIRST_LAYER = Study(
    "bo-1-first-layer",
    WIDE_SWEEP,
    {
        "paper": WideSweep(DIMENSIONS, alphas=SCALES, betas=(1.0,)),
        "quick": WideSweep(DIMENSIONS, alphas=FEWER, betas=(1.0,), repetitions=4),
    },
)
LAST_LAYER = Study(
    "bo-1-last-layer",
    WIDE_SWEEP,
    {
        "paper": WideSweep(DIMENSIONS, alphas=(1.0,), betas=SCALES),
        "quick": WideSweep(DIMENSIONS, alphas=(1.0,), betas=FEWER, repetitions=4),
    },
)

BO_1 = Figure(
    "BO-1",
    "Wide linear networks: excess risk and the scale of the first and last layer",
    (
        Panel(
            "BO-1-top",
            "Excess risk against the variance α² of the first layer (β = 1). Dashed: the "
            "minimum-norm interpolant. At d = 2000 the authors' step is unstable; the open markers "
            "show gradient flow.",
            FIRST_LAYER,
            partial(plot_risk_against_variance, scale="alpha"),
            first_layer_claims,
        ),
        Panel(
            "BO-1-bottom",
            "The same against the variance β² of the last layer (α = 1). At β = 0 the network "
            "starts at the zero function, yet does not end at the minimum-norm interpolant.",
            LAST_LAYER,
            partial(plot_risk_against_variance, scale="beta"),
            last_layer_claims,
        ),
    ),
    printed="n = 100, q = 3, Σ diagonal with 10 eigenvalues 1 and d − 10 eigenvalues 0.01, unit "
    "Θ*, noise N(0, 1), L = 3, width 10(d + q), identity in the middle; gradient descent with step "
    "1e-4 on the squared loss until it is below 1e-7; mean of 20 runs.",
    as_run="The authors' step is on the mean over the n·q entries, capped at 10⁵ steps, and their "
    "risk is measured on 10·d noise-free points. Here the risk is the exact population value, the "
    "networks are trained through their exact reduction to width n + q (X-4, X-5), and every "
    "scale is run on the same 20 draws of data and weights. From d = 1800 on the step is past the "
    "stability limit (E-11): descent as the authors ran it and gradient flow are both shown.",
)
