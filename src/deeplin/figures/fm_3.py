"""FM-3: how often descent diverges, from Gaussian initialisations."""

from __future__ import annotations

from deeplin.figures.figure import Figure, Panel
from deeplin.figures.fm_1 import SWEEP
from deeplin.figures.scale_claims import divergence_claims
from deeplin.figures.scale_plots import plot_divergence

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
