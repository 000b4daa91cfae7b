"""The critical learning rate as a mark under its slider."""

from __future__ import annotations

import math

from deeplin.explorer.plots import GREEN
from deeplin.explorer.state import BOUNDS
from deeplin.explorer.tab import text


class CriticalMark:
    """A small triangle where the slider would stand at 2/S_min."""

    def __init__(self):
        self.model = text("critical")

    def show(self, rate: float | None) -> None:
        """Move the mark; hide it for networks without a critical rate."""
        self.model.visible = rate is not None
        if rate is None:
            return
        share = position(rate)
        side, room = ("left", share) if share < 0.6 else ("right", 1 - share)
        self.model.text = (
            '<div style="position:relative;height:14px;font-size:11px;margin:-6px 0 0">'
            f'<span style="position:absolute;left:{share:.2%};transform:translateX(-50%);'
            f'color:{GREEN}">▲</span>'
            f'<span style="position:absolute;{side}:calc({room:.2%} + 10px);white-space:nowrap">'
            f"critical {rate:.3g}</span></div>"
        )


def position(rate: float) -> float:
    """Where a learning rate is on its logarithmic slider, from 0 to 1."""
    bound = BOUNDS["learning_rate"]
    low, high = math.log10(bound.low), math.log10(bound.high)
    return min(max((math.log10(rate) - low) / (high - low), 0.0), 1.0)
