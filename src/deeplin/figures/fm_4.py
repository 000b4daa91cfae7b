"""FM-4 and FM-5: the same as FM-1 and FM-3 from residual initialisations."""

from __future__ import annotations

from functools import partial

import numpy as np

from deeplin.figures.claims import Claim
from deeplin.figures.critical_rates import (
    SCALE_CRITICAL,
    ScaleCritical,
    critical_claims,
    plot_critical,
)
from deeplin.figures.data_sets import DATA_SETS, DataSets, general_claims, plot_data_sets
from deeplin.figures.figure import Figure, Panel, Study, Table
from deeplin.figures.fm_1 import DATA_SEEDS, RELATIVE_RATES
from deeplin.figures.fm_1 import SWEEP as GAUSSIAN_SWEEP
from deeplin.figures.scale_claims import (
    conditioning_claim,
    distance_claims,
    divergence_claims,
    sharpness_claims,
)
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
    edge_of_stability_claims,
    plot_training,
    stable_claims,
)

RESIDUAL = Setting(initialization="residual")
SCALES = tuple(np.linspace(0.0, 1.7, 10).tolist())
RATES = (0.005, 0.02, 0.07, 0.1, 0.2)

SWEEP = Study(
    "fm-4-scales",
    SCALE_SWEEP,
    {
        "paper": ScaleSweep(RESIDUAL, SCALES, tuple(Rate(rate, 4_000, 20) for rate in RATES)),
        "quick": ScaleSweep(RESIDUAL, SCALES, tuple(Rate(rate, 4_000, 8) for rate in RATES)),
    },
)

FOLLOWED = (Followed(0.02, 400), Followed(0.1, 400))
TRAINING = Study(
    "fm-4-training",
    TRAJECTORIES,
    {
        "paper": Trajectories(RESIDUAL, 0.5, FOLLOWED, repetitions=20),
        "quick": Trajectories(RESIDUAL, 0.5, FOLLOWED, repetitions=4),
    },
)

EVERYWHERE = Study(
    "fm-4-data-sets",
    DATA_SETS,
    {
        "paper": DataSets(RESIDUAL, DATA_SEEDS, (0.25, 0.5, 1.0), RELATIVE_RATES, 10_000, 10),
        "quick": DataSets(RESIDUAL, DATA_SEEDS[:3], (0.25, 1.0), RELATIVE_RATES, 10_000, 3),
    },
)
BISECTED = (SCALES[1], SCALES[4], SCALES[7])
CRITICAL = Study(
    "fm-4-critical",
    SCALE_CRITICAL,
    {
        "paper": ScaleCritical(RESIDUAL, BISECTED, starts=12, steps=20_000),
        "quick": ScaleCritical(RESIDUAL, BISECTED, starts=4, steps=4_000),
    },
)


def four_b_claims(config: ScaleSweep, table: Table, gaussian: Table) -> list[Claim]:
    """Those of a scale sweep, and the comparison with Gaussian starts."""
    claims = sharpness_claims(config, table, below=0.09)
    return [*claims, conditioning_claim(table, gaussian)]


FM_4 = Figure(
    "FM-4",
    "Deep linear network, residual initialisation",
    (
        Panel(
            "FM-4a",
            "Squared distance of the trained network to the empirical risk minimiser.",
            SWEEP,
            plot_distance,
            distance_claims,
        ),
        Panel(
            "FM-4a-critical",
            "Beyond the paper: the critical rate from three scales, by bisection for every start, "
            "relative to the exact 2/S_min.",
            CRITICAL,
            plot_critical,
            critical_claims,
        ),
        Panel(
            "FM-4b",
            "Sharpness at initialisation and after training. Dashed: 2/η. Dotted: the exact S_min "
            "with the printed lower bound just below it.",
            SWEEP,
            partial(plot_sharpness, below=0.09),
            four_b_claims,
            beside=GAUSSIAN_SWEEP,
        ),
        Panel(
            "FM-4c",
            "One training with η = 0.02 from s = 0.5: it does not meet the edge of stability.",
            TRAINING,
            partial(plot_training, learning_rate=0.02),
            lambda config, table: stable_claims(table, 0.02),
        ),
        Panel(
            "FM-4d",
            "The same with η = 0.1: it enters the edge of stability (every fifth step).",
            TRAINING,
            partial(plot_training, learning_rate=0.1, subsample=5),
            lambda config, table: edge_of_stability_claims(table, 0.1),
        ),
        Panel(
            "FM-4-data-sets",
            "Beyond the paper: the same sentences on other data sets. Dashed: 2/η of each rate; "
            "dotted: S_min.",
            EVERYWHERE,
            plot_data_sets,
            general_claims,
            size=(5.8, 3.9),
        ),
    ),
    printed="W_k = I + s/√(Ld) N_k with s from 0 to 1.7 (10 values), p a random unit vector that "
    "is not trained; otherwise the setting of Figure 1. 4 000 steps and 20 repetitions for each "
    "learning rate. 4c and 4d: one run of 400 steps from s = 0.5.",
    as_run="As for FM-1: float64, true squared norm, exact or certified sharpness at the end. "
    "One read-out p for all runs. At s = 0 every repetition starts from the identity, so its "
    "intervals have no width.",
)


FM_5 = Figure(
    "FM-5",
    "Probability of divergence, residual initialisation",
    (
        Panel(
            "FM-5",
            "Share of runs that diverge, with Wilson's 95% interval.",
            SWEEP,
            plot_divergence,
            divergence_claims,
        ),
    ),
    printed="The runs of Figures 4a and 4b.",
    as_run="The same runs, with the criterion of FM-3.",
)
