"""FM-5: how often descent diverges, from residual initialisations."""

from __future__ import annotations

from deeplin.figures.figure import Figure, Panel
from deeplin.figures.fm_4 import SWEEP
from deeplin.figures.scale_claims import divergence_claims
from deeplin.figures.scale_plots import plot_divergence

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
