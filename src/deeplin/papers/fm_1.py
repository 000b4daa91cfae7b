"""FM-1 and FM-3: a deep linear network from Gaussian initializations of many scales.

FM-4 and FM-5 are the same from residual initializations.
"""

from __future__ import annotations

from functools import partial

from deeplin.papers import critical_rates, scale_sweep, trajectories
from deeplin.papers.critical_rates import ScaleCritical
from deeplin.papers.figures import Figure, Panel, Study, our_panel
from deeplin.papers.marion_chizat_starts import RATES, SWEEPS
from deeplin.papers.scale_sweep import DataSets, scale_study
from deeplin.papers.setting import DATA_SEEDS, Setting
from deeplin.papers.trajectories import Followed, Trajectories

STABLE, EDGE = {"learning_rate": 0.02}, {"learning_rate": 0.1}
"""The trainings of panels c and d."""
SHOWN_BELOW = 0.09
"""Panels b show the learning rates below this."""


def studies(
    name: str,
    setting: Setting,
    scale: float,
    followed: tuple[Followed, ...],
    critical: tuple[float, ...],
    everywhere: tuple[tuple[float, ...], tuple[float, ...]],
) -> tuple[Study, Study, Study]:
    """What stands beside a sweep over scales, each with its scales of the start.

    Single trainings, the critical rate, and other data sets at rates relative to the critical one
    of each.
    """
    many, few = everywhere
    rates, steps = (0.05, 0.2, 0.65, 0.9, 1.3), 10_000
    figure = name.upper()
    return (
        Study(
            f"{name}-training",
            trajectories.TRAJECTORIES,
            paper=Trajectories(setting, figure, scale, followed, 20),
            quick=Trajectories(setting, figure, scale, followed, 4),
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
    *,
    upper_bound: bool = False,
) -> tuple[Panel, ...]:
    """Panels a to d of a sweep over scales, and two of our own (FM-1, FM-4)."""
    sweep, training, critical, everywhere = studies
    sharpness = partial(scale_sweep.plot_sharpness, below=SHOWN_BELOW, upper_bound=upper_bound)
    along = partial(trajectories.plot_training, upper_bound=upper_bound)
    stable, edge = trajectories.stable_questions, trajectories.edge_questions
    a, b, c, d = captions
    return (
        Panel(f"{name}a", a, sweep, scale_sweep.plot_distance),
        Panel(f"{name}b", b, sweep, sharpness),
        Panel(f"{name}c", c, training, partial(along, **STABLE), partial(stable, **STABLE)),
        Panel(f"{name}d", d, training, partial(along, **EDGE, subsample=5), partial(edge, **EDGE)),
        our_panel(
            f"{name}a-critical",
            "The critical rate from three scales, by bisection for every start, relative to the "
            "exact 2/S_min.",
            critical,
            critical_rates.plot_critical,
            critical_rates.critical_questions,
        ),
        our_panel(
            f"{name}-data-sets",
            "Robustness: other data sets of the same recipe. Dashed: 2/η of each rate; dotted: "
            "S_min.",
            everywhere,
            scale_sweep.plot_data_sets,
            scale_sweep.data_set_questions,
            size=(5.8, 3.9),
        ),
    )


def divergence_figure(
    name: str, start: str, sweep: Study, everywhere: Study, printed: str, as_run: str
) -> Figure:
    """The same sweep seen as how often runs diverge (FM-3, FM-5)."""
    panels = (
        Panel(
            name,
            "Share of runs that diverge, with Wilson's 95% interval.",
            sweep,
            scale_sweep.plot_divergence,
            scale_sweep.divergence_questions,
        ),
        our_panel(
            f"{name}-data-sets",
            "Robustness: the same on other data sets, each a line.",
            everywhere,
            scale_sweep.plot_divergence_on_data_sets,
        ),
    )
    return Figure(
        name, f"Probability of divergence, {start} initialization", panels, printed, as_run
    )


GAUSSIAN, RESIDUAL = Setting(initialization="gaussian"), Setting(initialization="residual")
SCALES = SWEEPS["FM-1"].scales
SWEEP = scale_study(
    "fm-1-scales",
    GAUSSIAN,
    "FM-1",
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
    "Deep linear network, Gaussian initialization",
    (
        *scale_panels(
            "FM-1",
            (
                "Squared distance of the trained network to the empirical risk minimizer (median "
                "and quartiles of the runs that do not diverge).",
                "Sharpness at initialization and after training. Dashed: 2/η. Dotted: the exact "
                "S_min with the printed lower bound 2La just below it, and the upper bound 8LΛ.",
                "The authors' training with η = 0.02 from scale 0.35. Light: in float32 with 20 "
                "power iterations, as they ran it.",
                "The same with η = 0.1 (every fifth step, as in the paper).",
            ),
            (SWEEP, TRAINING, CRITICAL, EVERYWHERE),
            upper_bound=True,
        ),
        our_panel(
            "FM-1-conservation",
            "What gradient flow conserves (FM-L1), along 1c, 1d and a run with η = 0.002.",
            TRAINING,
            trajectories.plot_conservation,
            trajectories.conservation_questions,
        ),
        our_panel(
            "FM-1-alignment",
            "Alignment of neighboring layers (FM-L2) along the same runs.",
            TRAINING,
            trajectories.plot_alignment,
            trajectories.alignment_questions,
        ),
    ),
    printed="n = 50, d = 5, L = 10; weights d×d, the last 1×d; the scale is the standard deviation "
    "of their entries (10 values, 0.25 to 0.6). Steps × repetitions: 40 000×20 (η = 0.005), "
    "10 000×20 (0.02), 4 000×20 (0.07), 4 000×20 (0.1), 2 000×80 (0.2). Sharpness by 20 power "
    "iterations. 1c and 1d: one randomly chosen run of 450 steps from scale 0.35, subsampled five "
    "times.",
    as_run="The authors' own data and starts, drawn again from their keys. They ran float32, took "
    "the sharpness up to 4 steps before the end, and plotted the mean over the d = 5 coordinates "
    "under the name ‖w − w*‖² (E-9). Here: float64 from their float32 draws, sharpness at the last "
    "step, exact at minimizers (X-1) and certified elsewhere, and the true squared norm. The quick "
    "preset takes their first repetitions and, at the three slowest rates, fewer steps. Other "
    "seeds than 0 draw other starts.",
)

FM_3 = divergence_figure(
    "FM-3",
    "Gaussian",
    SWEEP,
    EVERYWHERE,
    printed="The runs of Figures 1a and 1b. Where the probability is one, Figure 1 has no point; "
    "where it is between 0 and 1, means are over the runs that do not diverge.",
    as_run="The same runs. A run counts as diverged when its risk is no longer finite, or exceeds "
    "10¹⁰ times the larger of its initial risk and the risk of the zero map.",
)

RESIDUAL_SCALES = SWEEPS["FM-4"].scales
RESIDUAL_SWEEP = scale_study(
    "fm-4-scales", RESIDUAL, "FM-4", quick=[(rate, 4_000, 8) for rate in RATES]
)
RESIDUAL_TRAINING, RESIDUAL_CRITICAL, RESIDUAL_EVERYWHERE = studies(
    "fm-4",
    RESIDUAL,
    0.5,
    (Followed(0.02, 400), Followed(0.1, 400)),
    RESIDUAL_SCALES[1:8:3],
    ((0.25, 0.5, 1.0), (0.25, 1.0)),
)

FM_4 = Figure(
    "FM-4",
    "Deep linear network, residual initialization",
    scale_panels(
        "FM-4",
        (
            "Squared distance of the trained network to the empirical risk minimizer.",
            "Sharpness at initialization and after training. Dashed: 2/η. Dotted: the exact S_min "
            "with the printed lower bound just below it.",
            "The authors' training with η = 0.02 from s = 0.5. Squared distances below 1e-15 are "
            "rounding. Light: in float32, as they ran it.",
            "The same with η = 0.1 (every fifth step).",
        ),
        (RESIDUAL_SWEEP, RESIDUAL_TRAINING, RESIDUAL_CRITICAL, RESIDUAL_EVERYWHERE),
    ),
    printed="W_k = I + s/√(Ld) N_k with s from 0 to 1.7 (10 values), p a random unit vector that "
    "is not trained; otherwise the setting of Figure 1. 4 000 steps and 20 repetitions for each "
    "learning rate. 4c and 4d: one run of 400 steps from s = 0.5.",
    as_run="As for FM-1, with the authors' own starts and read-out p. At s = 0 every repetition "
    "starts from the identity, so its intervals have no width.",
)

FM_5 = divergence_figure(
    "FM-5",
    "residual",
    RESIDUAL_SWEEP,
    RESIDUAL_EVERYWHERE,
    printed="The runs of Figures 4a and 4b.",
    as_run="The same runs, with the criterion of FM-3.",
)
