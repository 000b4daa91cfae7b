"""FM-1 and FM-3: a deep linear network from Gaussian initialisations of many scales."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from deeplin.figures import critical_rates, data_sets, trajectories
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
from deeplin.figures.trajectories import Followed, Trajectories

GAUSSIAN = Setting(initialization="gaussian")
SCALES = tuple(np.linspace(0.25, 0.6, 10).tolist())
DATA_SEEDS = tuple(range(10, 20))
"""Data sets of the same recipe, none of them the one of the figures."""


def training_study(name: str, setting: Setting, scale: float, rates: tuple[Followed, ...]) -> Study:
    """Single trainings from one scale."""
    configs = (Trajectories(setting, scale, rates, repetitions) for repetitions in (20, 4))
    return Study(f"{name}-training", trajectories.TRAJECTORIES, *configs)


def critical_study(name: str, setting: Setting, scales: tuple[float, ...]) -> Study:
    """The critical rate from three scales."""
    return Study(
        f"{name}-critical",
        critical_rates.SCALE_CRITICAL,
        paper=critical_rates.ScaleCritical(setting, scales, starts=12, steps=20_000),
        quick=critical_rates.ScaleCritical(setting, scales, starts=4, steps=4_000),
    )


def data_sets_study(
    name: str, setting: Setting, scales: tuple[float, ...], fewer: tuple[float, ...]
) -> Study:
    """The sentences on other data sets, at rates relative to the critical one of each."""
    rates, steps = (0.05, 0.2, 0.65, 0.9, 1.3), 10_000
    return Study(
        f"{name}-data-sets",
        data_sets.DATA_SETS,
        paper=data_sets.DataSets(setting, DATA_SEEDS, scales, rates, steps, 10),
        quick=data_sets.DataSets(setting, DATA_SEEDS[:3], fewer, rates, steps, 3),
    )


def scale_panels(
    name: str,
    captions: tuple[str, str, str, str],
    studies: tuple[Study, Study, Study, Study],
    sharpness_judge: Callable,
    *,
    upper_bound: bool = False,
    beside: Study | None = None,
) -> tuple[Panel, ...]:
    """Panels a to d of a sweep over scales, and two beyond the paper (FM-1, FM-4)."""
    sweep, critical, training, everywhere = studies
    drawn = partial(trajectories.plot_training, upper_bound=upper_bound)
    return (
        Panel(f"{name}a", captions[0], sweep, plot_distance, distance_claims),
        Panel(
            f"{name}a-critical",
            "Beyond the paper: the critical rate from three scales, by bisection for every start, "
            "relative to the exact 2/S_min.",
            critical,
            critical_rates.plot_critical,
            critical_rates.critical_claims,
        ),
        Panel(
            f"{name}b",
            captions[1],
            sweep,
            partial(plot_sharpness, below=0.09, upper_bound=upper_bound),
            sharpness_judge,
            beside=beside,
        ),
        Panel(
            f"{name}c",
            captions[2],
            training,
            partial(drawn, learning_rate=0.02),
            lambda config, table: trajectories.stable_claims(table, 0.02),
        ),
        Panel(
            f"{name}d",
            captions[3],
            training,
            partial(drawn, learning_rate=0.1, subsample=5),
            lambda config, table: trajectories.edge_of_stability_claims(table, 0.1),
        ),
        Panel(
            f"{name}-data-sets",
            "Beyond the paper: the same sentences on other data sets. Dashed: 2/η of each rate; "
            "dotted: S_min.",
            everywhere,
            data_sets.plot_data_sets,
            data_sets.general_claims,
            size=(5.8, 3.9),
        ),
    )


def divergence_figure(name: str, start: str, sweep: Study, printed: str, as_run: str) -> Figure:
    """The same sweep seen as how often runs diverge (FM-3, FM-5)."""
    caption = "Share of runs that diverge, with Wilson's 95% interval."
    panel = Panel(name, caption, sweep, plot_divergence, divergence_claims)
    title = f"Probability of divergence, {start} initialisation"
    return Figure(name, title, (panel,), printed, as_run)


SWEEP = Study(
    "fm-1-scales",
    SCALE_SWEEP,
    paper=ScaleSweep(
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
    quick=ScaleSweep(
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
)

# The slowest rate is not in the paper: beside the others it shows what vanishes with η (FM-L1).
FOLLOWED = (Followed(0.002, 4_500, 10), Followed(0.02, 450), Followed(0.1, 450))
TRAINING = training_study("fm-1", GAUSSIAN, 0.35, FOLLOWED)
CRITICAL = critical_study("fm-1", GAUSSIAN, (SCALES[0], SCALES[3], SCALES[6]))
EVERYWHERE = data_sets_study("fm-1", GAUSSIAN, (0.3, 0.4, 0.5), (0.3, 0.4))

FM_1 = Figure(
    "FM-1",
    "Deep linear network, Gaussian initialisation",
    (
        *scale_panels(
            "FM-1",
            (
                "Squared distance of the trained network to the empirical risk minimiser. Training "
                "succeeds below a critical learning rate that does not depend on the scale.",
                "Sharpness at initialisation and after training. Dashed: 2/η. Dotted: the exact "
                "S_min with the printed lower bound 2La just below it, and the upper bound 8LΛ.",
                "One training with η = 0.02 from scale 0.35: it does not meet the edge of "
                "stability.",
                "The same with η = 0.1: it enters the edge of stability (every fifth step, as in "
                "the paper).",
            ),
            (SWEEP, CRITICAL, TRAINING, EVERYWHERE),
            partial(sharpness_claims, below=0.09, upper_bound=True),
            upper_bound=True,
        ),
        Panel(
            "FM-1-conservation",
            "Beyond the paper: what gradient flow conserves (FM-L1), along 1c, 1d and a run with "
            "η = 0.002.",
            TRAINING,
            trajectories.plot_conservation,
            trajectories.conservation_claims,
        ),
        Panel(
            "FM-1-alignment",
            "Beyond the paper: alignment of neighbouring layers (FM-L2) along the same runs.",
            TRAINING,
            trajectories.plot_alignment,
            trajectories.alignment_claims,
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

FM_3 = divergence_figure(
    "FM-3",
    "Gaussian",
    SWEEP,
    printed="The runs of Figures 1a and 1b. Where the probability is one, Figure 1 has no point; "
    "where it is between 0 and 1, means are over the runs that do not diverge.",
    as_run="The same runs. A run counts as diverged when its risk is no longer finite, or exceeds "
    "10¹⁰ times the larger of its initial risk and the risk of the zero map.",
)
