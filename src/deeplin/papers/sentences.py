"""Every quoted sentence, its panel and what measures it; sentences that are left out.

`quotes.toml` has the words, the place and our reading of each sentence, `left_out.toml` those of
the sentences about experiments that are not judged.
"""

from __future__ import annotations

import tomllib
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

JUDGED: dict[str, tuple[Any, ...]] = {
    "fails above the critical value": ("FM-1a", readings.fails_above, fm_1.SWEEP),
    "learns from a wide range of scales": ("FM-1a", readings.learns_below, fm_1.SWEEP),
    "starts well over 2/η": ("FM-1b", readings.starts_above, fm_1.SWEEP),
    "one critical value for all scales": ("FM-1a", readings.one_threshold, fm_1.CRITICAL),
    "1c below the edge": ("FM-1c", readings.below_edge, fm_1.TRAINING),
    "1d at the edge": ("FM-1d", readings.at_edge, fm_1.TRAINING),
    "critical value as predicted": ("FM-2", readings.threshold_matches, fm_2.SWEEP),
    "threshold of each depth": ("FM-2", readings.succeeds_below, fm_2.SWEEP),
    "small scales near S_min": ("FM-1b", readings.near_minimum, fm_1.SWEEP),
    "interplay of scale and rate": ("FM-1b", readings.interplay, fm_1.SWEEP),
    "plateau at 2/η": ("FM-1b", readings.grows_to_plateau, fm_1.SWEEP),
    "between the black lines": ("FM-1b", readings.between_lines, fm_1.SWEEP),
    "sharpening during training": ("FM-1b", readings.sharpens, fm_1.SWEEP),
    "residual plots alike": ("FM-4b", readings.same_picture, fm_4.SWEEP),
    "less sensitive to the scale": ("FM-4b", readings.less_sensitive, fm_4.SWEEP, fm_1.SWEEP),
    "Gaussian starts may diverge": ("FM-3", readings.may_diverge, fm_1.SWEEP),
    "better conditioned": ("FM-4b", readings.better_conditioned, fm_4.SWEEP, fm_1.SWEEP),
    "residual starts may diverge": ("FM-5", readings.may_diverge, fm_4.SWEEP),
    "one critical value for all s": ("FM-4a", readings.one_threshold, fm_4.CRITICAL),
    "4c below the edge": ("FM-4c", readings.below_edge, fm_4.TRAINING),
    "4d at the edge": ("FM-4d", readings.at_edge, fm_4.TRAINING),
    "generalization correlates": ("FM-6b", readings.correlates, fm_6.SWEEP),
    "underdetermined alike": ("FM-6a", readings.same_picture, fm_6.SWEEP),
    "underdetermined alike, caption": ("FM-6a", readings.same_picture, fm_6.SWEEP),
    "slope and intercept": ("FM-6b", readings.published_fit, fm_6.SWEEP),
    "GELU alike": ("FM-7", readings.gelu_picture, fm_7.SWEEP),
    "GELU plateau at 2/η": ("FM-7", readings.gelu_plateau, fm_7.SWEEP),
    "GELU small scales": ("FM-7", readings.gelu_small, fm_7.SWEEP),
    "GELU with noise reaches 2/η": ("FM-7-noisy", readings.reaches_edge, fm_7.NOISY),
    "one trajectory": ("FM-flow", readings.same_trajectory, fm_flow.PATHS),
    "supported by Figure 1b": ("FM-1b", readings.same_at_every_rate, fm_1.SWEEP),
    "progressive sharpening": ("FM-1b", readings.sharpens, fm_1.SWEEP),
    "talk: fails above a critical value": ("FM-1a", readings.fails_above, fm_1.SWEEP),
    "talk: fails above 1/(La)": ("FM-1a", readings.fails_above, fm_1.SWEEP),
    "talk: bounds after training": ("FM-1b", readings.bounded_after_training, fm_1.SWEEP),
    "talk: no saturation": ("FM-1b", readings.not_saturated, fm_1.SWEEP),
    "talk: independent of the rate": ("FM-1b", readings.same_at_every_rate, fm_1.SWEEP),
    "BO: risk grows with the first layer": ("BO-1-top", readings.grows, bo_1.FIRST_LAYER),
    "BO: risk grows with the last layer": ("BO-1-bottom", readings.grows, bo_1.LAST_LAYER),
    "BO: approaches the interpolant": (
        "BO-1-bottom-right",
        readings.approaches,
        bo_1.FIRST_LAYER,
        bo_1.LAST_LAYER,
    ),
    "BO: close at small variance": (
        "BO-1-top-right",
        readings.close_at_zero,
        bo_1.FIRST_LAYER,
        bo_1.LAST_LAYER,
    ),
    "BO: larger outside the data": (
        "BO-1-top",
        readings.larger_outside,
        bo_1.FIRST_LAYER,
        bo_1.LAST_LAYER,
    ),
    "BO: larger at a large scale": (
        "BO-1-bottom",
        readings.grows,
        bo_1.FIRST_LAYER,
        bo_1.LAST_LAYER,
    ),
    "BO: closer as the last layer shrinks": (
        "BO-1-bottom-right",
        readings.gets_closer,
        bo_1.LAST_LAYER,
    ),
    "BO: small scale, every dimension": (
        "BO-3-distance",
        readings.small_scale_close,
        bo_3.DIMENSION,
    ),
    "BO: linear networks trained to 1e-7": (
        "BO-3-risk",
        readings.trained_to_target,
        bo_3.DIMENSION,
    ),
    "BO: ReLU: grows with the first layer only": (
        "BO-2-left",
        readings.relu_effect,
        bo_2.FIRST_LAYER,
        bo_2.LAST_LAYER,
    ),
    "BO: ReLU: smaller for smaller α": ("BO-2-left", readings.relu_effect, bo_2.FIRST_LAYER),
    "BO: ReLU: not so for β": ("BO-2-right", readings.relu_effect, bo_2.LAST_LAYER),
    "BO: ReLU: asymmetry": ("BO-2-right", readings.relu_effect, bo_2.FIRST_LAYER, bo_2.LAST_LAYER),
    "BO: ReLU: asymmetry, text": (
        "BO-2-right",
        readings.relu_effect,
        bo_2.FIRST_LAYER,
        bo_2.LAST_LAYER,
    ),
    "BO: ReLU: trained to 1e-7": (
        "BO-2-left",
        readings.relu_trained,
        bo_2.FIRST_LAYER,
        bo_2.LAST_LAYER,
    ),
}
"""For each sentence the panel that shows it, the function that measures it, and its studies."""

QUOTES = tuple(
    Quote(name=name, **words, panel=panel, measure=measure, studies=tuple(studies))
    for name, words in _prose("quotes").items()
    for panel, measure, *studies in (JUDGED[name],)
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
