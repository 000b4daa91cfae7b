"""Figures of the papers, the talk and beyond: the data, the plot, and what each claims."""

from deeplin.figures import recorded
from deeplin.figures.bo_1 import BO_1, BO_3
from deeplin.figures.bo_2 import BO_2
from deeplin.figures.bo_bounds import BO_BOUNDS
from deeplin.figures.claims import Claim
from deeplin.figures.edge_early import EOS_EARLY
from deeplin.figures.edge_flow import EOS_FLOW
from deeplin.figures.edge_life import EOS_LIFE
from deeplin.figures.edge_orbits import EOS_ORBITS
from deeplin.figures.figure import PRESETS, Figure, FigureResult, Panel, Study, reproduce, select
from deeplin.figures.fm_1 import FM_1, FM_3, FM_4, FM_5
from deeplin.figures.fm_2 import FM_2
from deeplin.figures.fm_6 import FM_6
from deeplin.figures.fm_7 import FM_7, FM_7_NOISY
from deeplin.figures.fm_residual import FM_RESIDUAL
from deeplin.figures.fm_small import FM_SMALL
from deeplin.figures.talk_log import TALK_LOG
from deeplin.figures.users_batch import X_BATCH
from deeplin.figures.users_decay import X_DECAY
from deeplin.figures.users_layers import X_LAYERS
from deeplin.figures.users_outputs import X_OUTPUTS

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
