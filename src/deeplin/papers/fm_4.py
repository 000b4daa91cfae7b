"""FM-4: a deep linear network from residual starts of many scales."""

from deeplin.papers.figures import define_figure
from deeplin.papers.scale_critical import critical_panel, critical_study
from deeplin.papers.scale_sweep import SCALE_S, distance_panel, scale_study, sharpness_panel
from deeplin.papers.setting import RATES, Setting
from deeplin.papers.trajectories import Followed, training_panels, training_study

SETTING = Setting(initialization="residual")
SWEEP = scale_study("fm-4-scales", SETTING, "FM-4", [(rate, 4_000, 8) for rate in RATES])
TRAINING = training_study(
    "FM-4", 0.5, Followed(0.02, 400), Followed(0.1, 400), initialization="residual"
)
CRITICAL = critical_study("FM-4", SETTING, slice(1, 8, 3))

FIGURE = define_figure(
    "FM-4",
    distance_panel("FM-4a", SWEEP, SCALE_S),
    sharpness_panel("FM-4b", SWEEP, xlabel=SCALE_S, below=0.09),
    *training_panels("FM-4", TRAINING),
    critical_panel("FM-4a-critical", CRITICAL),
)
