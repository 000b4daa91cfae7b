"""FM-4 and FM-5: the same as FM-1 and FM-3 from residual initialisations."""

from __future__ import annotations

import numpy as np

from deeplin.figures import fm_1
from deeplin.figures.claims import Claim
from deeplin.figures.figure import Figure, Study, Table
from deeplin.figures.scale_claims import conditioning_claim, sharpness_claims
from deeplin.figures.scale_sweep import SCALE_SWEEP, Rate, ScaleSweep
from deeplin.figures.setting import Setting
from deeplin.figures.trajectories import Followed

RESIDUAL = Setting(initialization="residual")
SCALES = tuple(np.linspace(0.0, 1.7, 10).tolist())
RATES = (0.005, 0.02, 0.07, 0.1, 0.2)

SWEEP = Study(
    "fm-4-scales",
    SCALE_SWEEP,
    paper=ScaleSweep(RESIDUAL, SCALES, tuple(Rate(rate, 4_000, 20) for rate in RATES)),
    quick=ScaleSweep(RESIDUAL, SCALES, tuple(Rate(rate, 4_000, 8) for rate in RATES)),
)
FOLLOWED = (Followed(0.02, 400), Followed(0.1, 400))
TRAINING = fm_1.training_study("fm-4", RESIDUAL, 0.5, FOLLOWED)
CRITICAL = fm_1.critical_study("fm-4", RESIDUAL, (SCALES[1], SCALES[4], SCALES[7]))
EVERYWHERE = fm_1.data_sets_study("fm-4", RESIDUAL, (0.25, 0.5, 1.0), (0.25, 1.0))


def four_b_claims(config: ScaleSweep, table: Table, gaussian: Table) -> list[Claim]:
    """Those of a scale sweep, and the comparison with Gaussian starts."""
    claims = sharpness_claims(config, table, below=0.09)
    return [*claims, conditioning_claim(table, gaussian)]


FM_4 = Figure(
    "FM-4",
    "Deep linear network, residual initialisation",
    fm_1.scale_panels(
        "FM-4",
        (
            "Squared distance of the trained network to the empirical risk minimiser.",
            "Sharpness at initialisation and after training. Dashed: 2/η. Dotted: the exact S_min "
            "with the printed lower bound just below it.",
            "One training with η = 0.02 from s = 0.5: it does not meet the edge of stability. "
            "Squared distances below 1e-15 are rounding.",
            "The same with η = 0.1: it enters the edge of stability (every fifth step).",
        ),
        (SWEEP, CRITICAL, TRAINING, EVERYWHERE),
        four_b_claims,
        beside=fm_1.SWEEP,
    ),
    printed="W_k = I + s/√(Ld) N_k with s from 0 to 1.7 (10 values), p a random unit vector that "
    "is not trained; otherwise the setting of Figure 1. 4 000 steps and 20 repetitions for each "
    "learning rate. 4c and 4d: one run of 400 steps from s = 0.5.",
    as_run="As for FM-1: float64, true squared norm, exact or certified sharpness at the end. "
    "One read-out p for all runs. At s = 0 every repetition starts from the identity, so its "
    "intervals have no width.",
)

FM_5 = fm_1.divergence_figure(
    "FM-5",
    "residual",
    SWEEP,
    printed="The runs of Figures 4a and 4b.",
    as_run="The same runs, with the criterion of FM-3.",
)
