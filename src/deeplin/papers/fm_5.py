"""FM-5: the probability that the runs of FM-4 diverge."""

from deeplin.papers.figures import define_figure
from deeplin.papers.fm_4 import SWEEP
from deeplin.papers.scale_sweep import SCALE_S, divergence_panel

FIGURE = define_figure("FM-5", divergence_panel("FM-5", SWEEP, SCALE_S))
