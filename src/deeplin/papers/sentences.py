"""Every quoted sentence, its panel and what measures it; sentences that are left out.

`quotes.toml` has the words, the place and our reading of each sentence, `left_out.toml` those of
the sentences about experiments that are not judged.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib.resources import files
from typing import Any, NamedTuple

from deeplin.papers import (
    bo_1,
    bo_2,
    bo_3,
    fm_1,
    fm_2,
    fm_4,
    fm_6,
    fm_7,
    fm_flow,
    readings,
)
from deeplin.papers.figures import Study
from deeplin.papers.verdicts import Quote


def _prose(name: str) -> dict[str, Any]:
    source = files("deeplin.papers").joinpath(f"{name}.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))


class LeftOutSentence(NamedTuple):
    """A sentence about experiments that is not judged."""

    paper: str
    place: str
    text: str
    reason: str


LEFT_OUT = tuple(LeftOutSentence(**entry) for entry in _prose("left_out")["left_out"])

Judged = tuple[str, Callable[..., Any], tuple[Study, ...]]
"""The panel that shows a sentence, the function that measures it, and the studies it is given."""


def _judged(panel: str, measure: Callable[..., Any], *studies: Study) -> Judged:
    return panel, measure, studies


JUDGED: dict[str, Judged] = {
    "fails above the critical value": _judged("FM-1a", readings.fails_above, fm_1.SWEEP),
    "learns from a wide range of scales": _judged("FM-1a", readings.learns_below, fm_1.SWEEP),
    "starts well over 2/η": _judged("FM-1b", readings.starts_above, fm_1.SWEEP),
    "one critical value for all scales": _judged("FM-1a", readings.one_threshold, fm_1.CRITICAL),
    "1c below the edge": _judged("FM-1c", readings.below_edge, fm_1.TRAINING),
    "1d at the edge": _judged("FM-1d", readings.at_edge, fm_1.TRAINING),
    "critical value as predicted": _judged("FM-2", readings.threshold_matches, fm_2.SWEEP),
    "threshold of each depth": _judged("FM-2", readings.succeeds_below, fm_2.SWEEP),
    "small scales near S_min": _judged("FM-1b", readings.near_minimum, fm_1.SWEEP),
    "interplay of scale and rate": _judged("FM-1b", readings.interplay, fm_1.SWEEP),
    "plateau at 2/η": _judged("FM-1b", readings.grows_to_plateau, fm_1.SWEEP),
    "between the black lines": _judged("FM-1b", readings.between_lines, fm_1.SWEEP),
    "sharpening during training": _judged("FM-1b", readings.sharpens, fm_1.SWEEP),
    "residual plots alike": _judged("FM-4b", readings.same_picture, fm_4.SWEEP),
    "less sensitive to the scale": _judged(
        "FM-4b", readings.less_sensitive, fm_4.SWEEP, fm_1.SWEEP
    ),
    "Gaussian starts may diverge": _judged("FM-3", readings.may_diverge, fm_1.SWEEP),
    "better conditioned": _judged("FM-4b", readings.better_conditioned, fm_4.SWEEP, fm_1.SWEEP),
    "residual starts may diverge": _judged("FM-5", readings.may_diverge, fm_4.SWEEP),
    "one critical value for all s": _judged("FM-4a", readings.one_threshold, fm_4.CRITICAL),
    "4c below the edge": _judged("FM-4c", readings.below_edge, fm_4.TRAINING),
    "4d at the edge": _judged("FM-4d", readings.at_edge, fm_4.TRAINING),
    "generalization correlates": _judged("FM-6b", readings.correlates, fm_6.SWEEP),
    "underdetermined alike": _judged("FM-6a", readings.same_picture, fm_6.SWEEP),
    "underdetermined alike, caption": _judged("FM-6a", readings.same_picture, fm_6.SWEEP),
    "slope and intercept": _judged("FM-6b", readings.published_fit, fm_6.SWEEP),
    "GELU alike": _judged("FM-7", readings.gelu_picture, fm_7.SWEEP),
    "GELU plateau at 2/η": _judged("FM-7", readings.gelu_plateau, fm_7.SWEEP),
    "GELU small scales": _judged("FM-7", readings.gelu_small, fm_7.SWEEP),
    "GELU with noise reaches 2/η": _judged("FM-7-noisy", readings.reaches_edge, fm_7.NOISY),
    "one trajectory": _judged("FM-flow", readings.same_trajectory, fm_flow.PATHS),
    "supported by Figure 1b": _judged("FM-1b", readings.same_at_every_rate, fm_1.SWEEP),
    "progressive sharpening": _judged("FM-1b", readings.sharpens, fm_1.SWEEP),
    "talk: fails above a critical value": _judged("FM-1a", readings.fails_above, fm_1.SWEEP),
    "talk: fails above 1/(La)": _judged("FM-1a", readings.fails_above, fm_1.SWEEP),
    "talk: bounds after training": _judged("FM-1b", readings.bounded_after_training, fm_1.SWEEP),
    "talk: no saturation": _judged("FM-1b", readings.not_saturated, fm_1.SWEEP),
    "talk: independent of the rate": _judged("FM-1b", readings.same_at_every_rate, fm_1.SWEEP),
    "BO: risk grows with the first layer": _judged(
        "BO-1-top", readings.grows_with_first, bo_1.FIRST_LAYER
    ),
    "BO: risk grows with the last layer": _judged(
        "BO-1-bottom", readings.grows_with_last, bo_1.LAST_LAYER
    ),
    "BO: approaches the interpolant": _judged(
        "BO-1-bottom-right", readings.approaches, bo_1.FIRST_LAYER, bo_1.LAST_LAYER
    ),
    "BO: close at small variance": _judged(
        "BO-1-top-right", readings.close_at_zero, bo_1.FIRST_LAYER, bo_1.LAST_LAYER
    ),
    "BO: larger outside the data": _judged(
        "BO-1-top", readings.larger_outside, bo_1.FIRST_LAYER, bo_1.LAST_LAYER
    ),
    "BO: larger at a large scale": _judged(
        "BO-1-bottom", readings.grows_with_either, bo_1.FIRST_LAYER, bo_1.LAST_LAYER
    ),
    "BO: closer as the last layer shrinks": _judged(
        "BO-1-bottom-right", readings.gets_closer, bo_1.LAST_LAYER
    ),
    "BO: small scale, every dimension": _judged(
        "BO-3-distance", readings.small_scale_close, bo_3.DIMENSION
    ),
    "BO: linear networks trained to 1e-7": _judged(
        "BO-3-risk", readings.trained_to_target, bo_3.DIMENSION
    ),
    "BO: ReLU: grows with the first layer only": _judged(
        "BO-2-left", readings.relu_both, bo_2.FIRST_LAYER, bo_2.LAST_LAYER
    ),
    "BO: ReLU: smaller for smaller α": _judged("BO-2-left", readings.relu_first, bo_2.FIRST_LAYER),
    "BO: ReLU: not so for β": _judged("BO-2-right", readings.relu_last, bo_2.LAST_LAYER),
    "BO: ReLU: asymmetry": _judged(
        "BO-2-right", readings.relu_both, bo_2.FIRST_LAYER, bo_2.LAST_LAYER
    ),
    "BO: ReLU: asymmetry, text": _judged(
        "BO-2-right", readings.relu_both, bo_2.FIRST_LAYER, bo_2.LAST_LAYER
    ),
    "BO: ReLU: trained to 1e-7": _judged(
        "BO-2-left", readings.relu_trained, bo_2.FIRST_LAYER, bo_2.LAST_LAYER
    ),
}

QUOTES = tuple(
    Quote(
        name=name, **words, panel=JUDGED[name][0], measure=JUDGED[name][1], studies=JUDGED[name][2]
    )
    for name, words in _prose("quotes").items()
)


def quotes() -> list[Quote]:
    """List every quoted sentence of FM, BO and the Talk with our reading and recorded verdict.

    ```python
    import deeplin as dl
    quote = dl.papers.quotes()[0]
    print(quote.paper, quote.place, quote.text, quote.reading, quote.value, quote.verdict)
    ```
    """
    return list(QUOTES)
