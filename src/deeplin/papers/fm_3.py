"""FM-3: the probability that the runs of FM-1 diverge."""

from deeplin.papers.figures import define_figure
from deeplin.papers.fm_1 import SWEEP
from deeplin.papers.scale_sweep import divergence_panel

FIGURE = define_figure("FM-3", divergence_panel("FM-3", SWEEP))
