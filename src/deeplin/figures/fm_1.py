"""FM-1 and FM-3: a deep linear network from Gaussian initialisations of many scales."""

from __future__ import annotations

from functools import partial

import numpy as np

from deeplin.figures.critical_rates import (
    SCALE_CRITICAL,
    ScaleCritical,
    critical_claims,
    plot_critical,
)
from deeplin.figures.data_sets import DATA_SETS, DataSets, general_claims, plot_data_sets
from deeplin.figures.figure import Figure, Panel, Study
from deeplin.figures.scale_claims import distance_claims, divergence_claims, sharpness_claims
from deeplin.figures.scale_sweep import (
    SCALE_SWEEP,
    Rate,
    ScaleSweep,
    plot_distance,
    plot_divergence,
    plot_sharpness,
)
from deeplin.figures.setting import Setting
from deeplin.figures.trajectories import (
    TRAJECTORIES,
    Followed,
    Trajectories,
    alignment_claims,
    conservation_claims,
    edge_of_stability_claims,
    plot_alignment,
    plot_conservation,
    plot_training,
    stable_claims,
)

GAUSSIAN = Setting(initialization="gaussian")
SCALES = tuple(np.linspace(0.25, 0.6, 10).tolist())

SWEEP = Study(
    "fm-1-scales",
    SCALE_SWEEP,
    {
        "paper": ScaleSweep(
            GAUSSIAN,
            SCALES,
            (
                Rate(0.005, 40_000, 20),
                Rate(0.02, 10_000, 20),
                Rate(0.07, 4_000, 20),
                Rate(0.1, 4_000, 20),
                Rate(0.2, 2_000, 80),
            ),
        ),
        "quick": ScaleSweep(
            GAUSSIAN,
            SCALES,
            (
                Rate(0.005, 20_000, 8),
                Rate(0.02, 5_000, 8),
                Rate(0.07, 4_000, 8),
                Rate(0.1, 4_000, 8),
                Rate(0.2, 1_000, 16),
            ),
        ),
    },
)

# The slowest rate is not in the paper: beside the others it shows what vanishes with η (FM-L1).
FOLLOWED = (Followed(0.002, 4_500, 10), Followed(0.02, 450), Followed(0.1, 450))
TRAINING = Study(
    "fm-1-training",
    TRAJECTORIES,
    {
        "paper": Trajectories(GAUSSIAN, 0.35, FOLLOWED, repetitions=20),
        "quick": Trajectories(GAUSSIAN, 0.35, FOLLOWED, repetitions=4),
    },
)

DATA_SEEDS = tuple(range(10, 20))
"""Data sets of the same recipe, none of them the one of the figures."""
RELATIVE_RATES = (0.05, 0.2, 0.65, 0.9, 1.3)
EVERYWHERE = Study(
    "fm-1-data-sets",
    DATA_SETS,
    {
        "paper": DataSets(GAUSSIAN, DATA_SEEDS, (0.3, 0.4, 0.5), RELATIVE_RATES, 10_000, 10),
        "quick": DataSets(GAUSSIAN, DATA_SEEDS[:3], (0.3, 0.4), RELATIVE_RATES, 10_000, 3),
    },
)
CRITICAL = Study(
    "fm-1-critical",
    SCALE_CRITICAL,
    {
        "paper": ScaleCritical(
            GAUSSIAN, (SCALES[0], SCALES[3], SCALES[6]), starts=12, steps=20_000
        ),
        "quick": ScaleCritical(GAUSSIAN, (SCALES[0], SCALES[3], SCALES[6]), starts=4, steps=4_000),
    },
)

FM_1 = Figure(
    "FM-1",
    "Deep linear network, Gaussian initialisation",
    (
        Panel(
            "FM-1a",
            "Squared distance of the trained network to the empirical risk minimiser. Training "
            "succeeds below a critical learning rate that does not depend on the scale.",
            SWEEP,
            plot_distance,
            distance_claims,
        ),
        Panel(
            "FM-1a-critical",
            "Beyond the paper: the critical rate from three scales, by bisection for every start, "
            "relative to the exact 2/S_min.",
            CRITICAL,
            plot_critical,
            critical_claims,
        ),
        Panel(
            "FM-1b",
            "Sharpness at initialisation and after training. Dashed: 2/η. Dotted: the exact S_min "
            "with the printed lower bound 2La just below it, and the upper bound 8LΛ.",
            SWEEP,
            partial(plot_sharpness, below=0.09, upper_bound=True),
            partial(sharpness_claims, below=0.09, upper_bound=True),
        ),
        Panel(
            "FM-1c",
            "One training with η = 0.02 from scale 0.35: it does not meet the edge of stability.",
            TRAINING,
            partial(plot_training, learning_rate=0.02, upper_bound=True),
            lambda config, table: stable_claims(table, 0.02),
        ),
        Panel(
            "FM-1d",
            "The same with η = 0.1: it enters the edge of stability (every fifth step, as in the "
            "paper).",
            TRAINING,
            partial(plot_training, learning_rate=0.1, subsample=5, upper_bound=True),
            lambda config, table: edge_of_stability_claims(table, 0.1),
        ),
        Panel(
            "FM-1-data-sets",
            "Beyond the paper: the same sentences on other data sets. Dashed: 2/η of each rate; "
            "dotted: S_min.",
            EVERYWHERE,
            plot_data_sets,
            general_claims,
            size=(5.8, 3.9),
        ),
        Panel(
            "FM-1-conservation",
            "Beyond the paper: what gradient flow conserves (FM-L1), along 1c, 1d and a run with "
            "η = 0.002.",
            TRAINING,
            plot_conservation,
            conservation_claims,
        ),
        Panel(
            "FM-1-alignment",
            "Beyond the paper: alignment of neighbouring layers (FM-L2) along the same runs.",
            TRAINING,
            plot_alignment,
            alignment_claims,
        ),
    ),
    printed="n = 50, d = 5, L = 10; weights d×d, the last 1×d; the scale is the standard deviation "
    "of their entries (10 values, 0.25 to 0.6). Steps × repetitions: 40 000×20 (η = 0.005), "
    "10 000×20 (0.02), 4 000×20 (0.07), 4 000×20 (0.1), 2 000×80 (0.2). Sharpness by 20 power "
    "iterations. 1c and 1d: one randomly chosen run of 450 steps from scale 0.35, subsampled five "
    "times.",
    as_run="The authors ran float32, took the sharpness up to 4 steps before the end, and plotted "
    "the mean over the d = 5 coordinates under the name ‖w − w*‖² (E-9). Here: float64, sharpness "
    "at the last step, exact at minimisers (X-1) and certified elsewhere, the true squared norm, "
    "and the same initial weights for every learning rate. Their data set is not published; ours "
    "(seed 9 of the same recipe) also has its critical rate between 0.1 and 0.2.",
)


FM_3 = Figure(
    "FM-3",
    "Probability of divergence, Gaussian initialisation",
    (
        Panel(
            "FM-3",
            "Share of runs that diverge, with Wilson's 95% interval.",
            SWEEP,
            plot_divergence,
            divergence_claims,
        ),
    ),
    printed="The runs of Figures 1a and 1b. Where the probability is one, Figure 1 has no point; "
    "where it is between 0 and 1, means are over the runs that do not diverge.",
    as_run="The same runs. A run counts as diverged when its risk is no longer finite, or exceeds "
    "10¹⁰ times the larger of its initial risk and the risk of the zero map.",
)
