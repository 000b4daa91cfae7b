"""The list of all figures, in the order of the report."""

from deeplin.papers import recorded
from deeplin.papers.bo_1 import BO_1, BO_3
from deeplin.papers.bo_2 import BO_2
from deeplin.papers.bo_bounds import BO_BOUNDS
from deeplin.papers.claims import Claim
from deeplin.papers.eos_early import EOS_EARLY
from deeplin.papers.eos_flow import EOS_FLOW
from deeplin.papers.eos_life import EOS_LIFE
from deeplin.papers.eos_orbits import EOS_ORBITS
from deeplin.papers.figure import PRESETS, Figure, FigureResult, Panel, Study, reproduce, select
from deeplin.papers.fm_1 import FM_1, FM_3, FM_4, FM_5
from deeplin.papers.fm_2 import FM_2
from deeplin.papers.fm_6 import FM_6
from deeplin.papers.fm_7 import FM_7, FM_7_NOISY
from deeplin.papers.fm_residual import FM_RESIDUAL
from deeplin.papers.fm_small import FM_SMALL
from deeplin.papers.talk_log import TALK_LOG
from deeplin.papers.x_batch import X_BATCH
from deeplin.papers.x_decay import X_DECAY
from deeplin.papers.x_layers import X_LAYERS
from deeplin.papers.x_outputs import X_OUTPUTS

FLAT_MINIMA = (FM_1, FM_2, FM_3, FM_4, FM_5, FM_6, FM_7, FM_7_NOISY, FM_SMALL, FM_RESIDUAL)
EDGE = (EOS_LIFE, EOS_FLOW, EOS_ORBITS, EOS_EARLY)
USERS = (X_BATCH, X_DECAY, X_OUTPUTS, X_LAYERS)
FIGURES = (*FLAT_MINIMA, *EDGE, BO_1, BO_2, BO_3, BO_BOUNDS, TALK_LOG, *USERS)
"""In the order of the report."""

__all__ = [
    "FIGURES",
    "PRESETS",
    "Claim",
    "Figure",
    "FigureResult",
    "Panel",
    "Study",
    "recorded",
    "reproduce",
    "select",
]
