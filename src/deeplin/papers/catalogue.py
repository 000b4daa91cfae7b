"""The list of all figures, in the order of the report, and of all quotes about them."""

import tomllib
from importlib.resources import files
from typing import Any

from deeplin.papers import bo_readings, fm_readings
from deeplin.papers.bo_1 import BO_1, BO_3
from deeplin.papers.bo_2 import BO_2
from deeplin.papers.bo_bounds import BO_BOUNDS
from deeplin.papers.eos_early import EOS_EARLY
from deeplin.papers.eos_flow import EOS_FLOW
from deeplin.papers.eos_life import EOS_LIFE
from deeplin.papers.eos_orbits import EOS_ORBITS
from deeplin.papers.figures import PRESETS, Figure, FigureResult, Panel, Study, reproduce, select
from deeplin.papers.fm_1 import FM_1, FM_3, FM_4, FM_5
from deeplin.papers.fm_2 import FM_2
from deeplin.papers.fm_6 import FM_6
from deeplin.papers.fm_7 import FM_7, FM_7_NOISY
from deeplin.papers.fm_flow import FM_FLOW
from deeplin.papers.fm_residual import FM_RESIDUAL
from deeplin.papers.fm_small import FM_SMALL
from deeplin.papers.quote import LeftOut, Quote
from deeplin.papers.talk_log import TALK_LOG
from deeplin.papers.theorems import THEOREMS
from deeplin.papers.x_batch import X_BATCH
from deeplin.papers.x_decay import X_DECAY
from deeplin.papers.x_layers import X_LAYERS
from deeplin.papers.x_losses import X_LOSSES
from deeplin.papers.x_outputs import X_OUTPUTS
from deeplin.papers.x_ratio import X_RATIO
from deeplin.papers.x_residual import X_RESIDUAL
from deeplin.papers.x_wide import X_WIDE

FLAT_MINIMA = (FM_1, FM_2, FM_3, FM_4, FM_5, FM_6, FM_7, FM_7_NOISY)
BENIGN = (BO_1, BO_2, BO_3)
OURS = (FM_FLOW, FM_SMALL, FM_RESIDUAL, EOS_LIFE, EOS_FLOW, EOS_ORBITS, EOS_EARLY, BO_BOUNDS)
USERS = (TALK_LOG, X_BATCH, X_DECAY, X_OUTPUTS, X_LAYERS, X_LOSSES, X_RATIO, X_RESIDUAL, X_WIDE)
FIGURES = (*FLAT_MINIMA, *BENIGN, THEOREMS, *OURS, *USERS)
"""In the order of the report: the papers' figures, the theorems, our own questions."""
STUDIES = {study.name: study for figure in FIGURES for study in figure.studies}


def _load(name: str) -> list[dict[str, Any]]:
    """The entries of one of the lists of sentences."""
    source = files("deeplin.papers").joinpath(f"{name}.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))[name]


def _quote(measure: str, studies: list[str], **entry: str) -> Quote:
    module = fm_readings if hasattr(fm_readings, measure) else bo_readings
    found = tuple(STUDIES[study] for study in studies)
    return Quote(**entry, measure=getattr(module, measure), studies=found)


QUOTES = tuple(_quote(**entry) for entry in _load("quotes"))
LEFT_OUT = tuple(LeftOut(**entry) for entry in _load("left_out"))
"""Sentences about experiments that are not judged, each with the reason."""


def quotes() -> list[Quote]:
    """List every quoted sentence of FM, BO and the Talk with our reading and recorded verdict.

    ```python
    import deeplin as dl
    quote = dl.papers.quotes()[0]
    print(quote.paper, quote.place, quote.text, quote.reading, quote.value, quote.verdict)
    ```
    """
    return list(QUOTES)


__all__ = [
    "FIGURES",
    "LEFT_OUT",
    "PRESETS",
    "QUOTES",
    "Figure",
    "FigureResult",
    "Panel",
    "Study",
    "quotes",
    "reproduce",
    "select",
]
