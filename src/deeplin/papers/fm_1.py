"""FM-1 and FM-3: a deep linear network from Gaussian initialisations of many scales.

FM-4 and FM-5 are the same from residual initialisations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from deeplin.papers import critical_rates, scale_claims, scale_sweep, trajectories
from deeplin.papers.claims import Claim
from deeplin.papers.critical_rates import ScaleCritical
from deeplin.papers.figure import Figure, Panel, Study, Table
from deeplin.papers.scale_sweep import DataSets, ScaleSweep, scale_study
from deeplin.papers.setting import DATA_SEEDS, Setting
from deeplin.papers.trajectories import Followed, Trajectories

STABLE, EDGE = {"learning_rate": 0.02}, {"learning_rate": 0.1}
"""The trainings of panels c and d."""


def studies(
    name: str,
    setting: Setting,
    scale: float,
    followed: tuple[Followed, ...],
    critical: tuple[float, ...],
    everywhere: tuple[tuple[float, ...], tuple[float, ...]],
) -> tuple[Study, Study, Study]:
    """What stands beside a sweep over scales, each with its scales of the start.

    Single trainings, the critical rate, and the sentences on other data sets (there of both
    presets), at rates relative to the critical one of each.
    """
    many, few = everywhere
    rates, steps = (0.05, 0.2, 0.65, 0.9, 1.3), 10_000
    return (
        Study(
            f"{name}-training",
            trajectories.TRAJECTORIES,
            paper=Trajectories(setting, scale, followed, 20),
            quick=Trajectories(setting, scale, followed, 4),
        ),
        Study(
            f"{name}-critical",
            critical_rates.SCALE_CRITICAL,
            paper=ScaleCritical(setting, critical, starts=12, steps=20_000),
            quick=ScaleCritical(setting, critical, starts=4, steps=4_000),
        ),
        Study(
            f"{name}-data-sets",
            scale_sweep.DATA_SETS,
            paper=DataSets(setting, DATA_SEEDS, many, rates, steps, 10),
            quick=DataSets(setting, DATA_SEEDS[:3], few, rates, steps, 3),
        ),
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
    sweep, training, critical, everywhere = studies
    sharpness = partial(scale_sweep.plot_sharpness, below=0.09, upper_bound=upper_bound)
    along = partial(trajectories.plot_training, upper_bound=upper_bound)
    stable, edge = trajectories.stable_claims, trajectories.edge_of_stability_claims
    a, b, c, d = captions
    return (
        Panel(f"{name}a", a, sweep, scale_sweep.plot_distance, scale_claims.distance_claims),
        Panel(
            f"{name}a-critical",
            "Beyond the paper: the critical rate from three scales, by bisection for every start, "
            "relative to the exact 2/S_min.",
            critical,
            critical_rates.plot_critical,
            critical_rates.critical_claims,
        ),
        Panel(f"{name}b", b, sweep, sharpness, sharpness_judge, beside=beside),
        Panel(f"{name}c", c, training, partial(along, **STABLE), partial(stable, **STABLE)),
        Panel(f"{name}d", d, training, partial(along, **EDGE, subsample=5), partial(edge, **EDGE)),
        Panel(
            f"{name}-data-sets",
            "Beyond the paper: the same sentences on other data sets. Dashed: 2/η of each rate; "
            "dotted: S_min.",
            everywhere,
            scale_sweep.plot_data_sets,
            scale_claims.general_claims,
            size=(5.8, 3.9),
        ),
    )


def divergence_figure(name: str, start: str, sweep: Study, printed: str, as_run: str) -> Figure:
    """The same sweep seen as how often runs diverge (FM-3, FM-5)."""
    caption = "Share of runs that diverge, with Wilson's 95% interval."
    drawn, claims = scale_sweep.plot_divergence, scale_claims.divergence_claims
    title = f"Probability of divergence, {start} initialisation"
    return Figure(name, title, (Panel(name, caption, sweep, drawn, claims),), printed, as_run)


GAUSSIAN, RESIDUAL = Setting(initialization="gaussian"), Setting(initialization="residual")
SCALES = tuple(np.linspace(0.25, 0.6, 10).tolist())
SWEEP = scale_study(
    "fm-1-scales",
    GAUSSIAN,
    SCALES,
    paper=(
        (0.005, 40_000, 20),
        (0.02, 10_000, 20),
        (0.07, 4_000, 20),
        (0.1, 4_000, 20),
        (0.2, 2_000, 80),
    ),
    quick=(
        (0.005, 20_000, 8),
        (0.02, 5_000, 8),
        (0.07, 4_000, 8),
        (0.1, 4_000, 8),
        (0.2, 1_000, 16),
    ),
)
# The slowest rate is not in the paper: beside the others it shows what vanishes with η (FM-L1).
FOLLOWED = (Followed(0.002, 4_500, 10), Followed(0.02, 450), Followed(0.1, 450))
TRAINING, CRITICAL, EVERYWHERE = studies(
    "fm-1", GAUSSIAN, 0.35, FOLLOWED, SCALES[0:7:3], ((0.3, 0.4, 0.5), (0.3, 0.4))
)

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
            (SWEEP, TRAINING, CRITICAL, EVERYWHERE),
            partial(scale_claims.sharpness_claims, below=0.09, upper_bound=True),
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

RESIDUAL_SCALES = tuple(np.linspace(0.0, 1.7, 10).tolist())
RATES = (0.005, 0.02, 0.07, 0.1, 0.2)
RESIDUAL_SWEEP = scale_study(
    "fm-4-scales",
    RESIDUAL,
    RESIDUAL_SCALES,
    paper=[(rate, 4_000, 20) for rate in RATES],
    quick=[(rate, 4_000, 8) for rate in RATES],
)
RESIDUAL_BESIDE = studies(
    "fm-4",
    RESIDUAL,
    0.5,
    (Followed(0.02, 400), Followed(0.1, 400)),
    RESIDUAL_SCALES[1:8:3],
    ((0.25, 0.5, 1.0), (0.25, 1.0)),
)


def residual_claims(config: ScaleSweep, table: Table, gaussian: Table) -> list[Claim]:
    """Those of a scale sweep, and the comparison with Gaussian starts."""
    claims = scale_claims.sharpness_claims(config, table, below=0.09)
    return [*claims, scale_claims.conditioning_claim(table, gaussian)]


FM_4 = Figure(
    "FM-4",
    "Deep linear network, residual initialisation",
    scale_panels(
        "FM-4",
        (
            "Squared distance of the trained network to the empirical risk minimiser.",
            "Sharpness at initialisation and after training. Dashed: 2/η. Dotted: the exact S_min "
            "with the printed lower bound just below it.",
            "One training with η = 0.02 from s = 0.5: it does not meet the edge of stability. "
            "Squared distances below 1e-15 are rounding.",
            "The same with η = 0.1: it enters the edge of stability (every fifth step).",
        ),
        (RESIDUAL_SWEEP, *RESIDUAL_BESIDE),
        residual_claims,
        beside=SWEEP,
    ),
    printed="W_k = I + s/√(Ld) N_k with s from 0 to 1.7 (10 values), p a random unit vector that "
    "is not trained; otherwise the setting of Figure 1. 4 000 steps and 20 repetitions for each "
    "learning rate. 4c and 4d: one run of 400 steps from s = 0.5.",
    as_run="As for FM-1: float64, true squared norm, exact or certified sharpness at the end. "
    "One read-out p for all runs. At s = 0 every repetition starts from the identity, so its "
    "intervals have no width.",
)

FM_5 = divergence_figure(
    "FM-5",
    "residual",
    RESIDUAL_SWEEP,
    printed="The runs of Figures 4a and 4b.",
    as_run="The same runs, with the criterion of FM-3.",
)
