"""FM-1: a deep linear network from Gaussian starts of many scales."""

from deeplin.papers.figures import define_figure
from deeplin.papers.scale_critical import critical_panel, critical_study
from deeplin.papers.scale_sweep import distance_panel, scale_study, sharpness_panel
from deeplin.papers.setting import Setting
from deeplin.papers.trajectories import Followed, training_panels, training_study

SETTING = Setting(initialization="gaussian")
SWEEP = scale_study(
    "fm-1-scales",
    SETTING,
    "FM-1",
    [(0.005, 20_000, 8), (0.02, 5_000, 8), (0.07, 4_000, 8), (0.1, 4_000, 8), (0.2, 1_000, 16)],
)
TRAINING = training_study("FM-1", 0.35, Followed(0.02, 450), Followed(0.1, 450))
CRITICAL = critical_study("FM-1", SETTING, slice(0, 7, 3))

FIGURE = define_figure(
    "FM-1",
    distance_panel("FM-1a", SWEEP),
    sharpness_panel("FM-1b", SWEEP, below=0.09, upper_bound=True),
    *training_panels("FM-1", TRAINING, upper_bound=True),
    critical_panel("FM-1a-critical", CRITICAL),
)
