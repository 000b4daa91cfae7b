"""Training as it happens, on a terminal: loss, and sharpness against 2/η."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

BARS = "▁▂▃▄▅▆▇█"
SHOWN = 48


class LiveTraining:
    """A small table on stderr, redrawn at every record; nothing at all without a terminal.

    `watch` has the form that `gradient_descent(..., watch=...)` expects.
    """

    def __init__(self, steps: int, console: Console | None = None):
        self.steps, self.rate = steps, math.nan
        self.risks: list[float] = []
        self.sharpnesses: list[float] = []
        console = console or Console(stderr=True)
        self.live = Live(console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> LiveTraining:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.live is not None:
            self.live.stop()

    def restart(self, learning_rate: float) -> None:
        """Begin again, with this learning rate."""
        self.rate, self.risks, self.sharpnesses = learning_rate, [], []

    def watch(self, step: int, quantities: Mapping[str, np.ndarray]) -> None:
        """Note one record and redraw."""
        self.risks.append(float(quantities["risk"][0]))
        self.sharpnesses.append(float(quantities["sharpness"][0]))
        if self.live is not None:
            self.live.update(self.table(step))

    def table(self, step: int) -> Table:
        """Loss and sharpness now, and how they got here."""
        table = Table(title=f"step {step} of {self.steps}, learning rate η = {self.rate:.4g}")
        for heading in ("quantity", "now", "along the run"):
            table.add_column(heading)
        table.add_row("loss", f"{self.risks[-1]:.4g}", bars(np.log10(self.risks)))
        table.add_row("sharpness", f"{self.sharpnesses[-1]:.4g}", bars(self.sharpnesses))
        ratio = self.sharpnesses[-1] * self.rate / 2
        table.add_row("sharpness · η/2", f"{ratio:.3f}", "stable" if ratio <= 1 else "unstable")
        return table


def bars(values: Any) -> str:
    """The last values as a line of bars, from the smallest to the largest of them."""
    shown = np.asarray(values, dtype=float)[-SHOWN:]
    finite = shown[np.isfinite(shown)]
    if len(finite) == 0:
        return ""
    low, span = finite.min(), np.ptp(finite) or 1.0
    top = len(BARS) - 1
    heights = np.nan_to_num((shown - low) / span, nan=1.0, posinf=1.0, neginf=0.0)
    return "".join(BARS[int(height * top)] for height in heights)
