"""The critical rate from several scales of initialisation, by bisection for every start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.figures.claims import Claim, number
from deeplin.figures.setting import Setting
from deeplin.figures.style import INK, look
from deeplin.figures.tables import Table
from deeplin.sweep import Experiment, Unit, run_key
from deeplin.training import empirical_critical_rate


@dataclass(frozen=True)
class ScaleCritical:
    """A search for the largest rate that settles, from every scale."""

    setting: Setting
    scales: tuple[float, ...]
    starts: int
    steps: int
    seed: int = 0


def units(config: ScaleCritical) -> list[Unit]:
    """One unit for each scale."""
    return [Unit({"scale": scale}, runs=config.starts) for scale in config.scales]


def run_unit(config: ScaleCritical, unit: Unit) -> pd.DataFrame:
    """One row: the measured rate with its 95% interval over the starts, and the exact one."""
    scale, setting = unit.coordinates["scale"], config.setting
    measured = empirical_critical_rate(
        setting.data.problem,
        setting.depth,
        initialization=setting.initialization,
        scale=scale,
        seeds=config.starts,
        steps=config.steps,
        key=run_key(config.seed, scale=scale, part="critical"),
    )
    exact = setting.flattest.critical_learning_rate()
    low, high = measured.interval
    row = {"scale": scale, "ratio": measured.value / exact, "low": low / exact}
    return pd.DataFrame([row | {"high": high / exact, "settled": _settled(measured)}])


def _settled(measured) -> int:
    """Starts that settled at some rate."""
    return int(np.count_nonzero(np.isfinite(np.atleast_1d(measured.rates))))


def critical_claims(config: ScaleCritical, table: Table) -> list[Claim]:
    """The scale does not move the critical rate."""
    parts = {f"scale {number(row.scale)}": row.ratio for row in table.itertuples()}
    counts = ", ".join(f"{row.settled} of {config.starts}" for row in table.itertuples())
    return [
        Claim(
            "The critical rate does not depend on the scale: measured by bisection, over the exact "
            "2/S_min",
            parts,
            lower=0.95,
            upper=1.01,
            name="the same critical rate",
            reason="The bisection stops at 1%; finitely many steps cost a few percent (K-3).",
            explanation=f"Starts that settle at some rate: {counts}.",
            known="K-1",
        )
    ]


def plot_critical(config: ScaleCritical, table: Table, ax: Axes) -> None:
    """Measured critical rate over the exact one, with its 95% interval over the starts."""
    spread = [table["ratio"] - table["low"], table["high"] - table["ratio"]]
    ax.errorbar(table["scale"], table["ratio"], spread, capsize=3, **look(0))
    ax.axhline(1, color=INK, linestyle="--", linewidth=1, label=r"exact, $2/S_{\min}$")
    ax.set(xlabel="Scale of initialization", ylabel="Critical rate over the exact one")
    ax.set_ylim(0, 1.1)
    ax.legend(loc="lower left")


SCALE_CRITICAL = Experiment("scale-critical", ScaleCritical, units, run_unit, grid=("scales",))
