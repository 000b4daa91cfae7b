"""The critical learning rate measured at several depths, beside the exact and the printed one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.figures.claims import Claim
from deeplin.figures.setting import Setting
from deeplin.figures.style import INK, look
from deeplin.figures.tables import Table
from deeplin.sweep import Experiment, Unit, run_key
from deeplin.training import empirical_critical_rate

STARTS = {
    "residual": "from residual initialisations",
    "flattest": "from next to the flattest minimiser",
}


@dataclass(frozen=True)
class CriticalRates:
    """A search for the largest rate that settles, at every depth and from both kinds of start."""

    setting: Setting
    """Its own depth is not used."""
    depths: tuple[int, ...]
    starts: int
    steps: int
    seed: int = 0


def units(config: CriticalRates) -> list[Unit]:
    """One unit for each depth and kind of start."""
    return [
        Unit({"depth": depth, "start": start}, runs=config.starts, bucket=str(depth))
        for depth, start in product(config.depths, STARTS)
    ]


def run_unit(config: CriticalRates, unit: Unit) -> pd.DataFrame:
    """One row: the measured rate with its confidence interval, the exact and the printed one."""
    depth, start = unit.coordinates["depth"], unit.coordinates["start"]
    setting = replace(config.setting, depth=depth)
    measured = empirical_critical_rate(
        setting.data.problem,
        depth,
        initialization=start,
        seeds=config.starts,
        steps=config.steps,
        key=run_key(config.seed, depth=depth, start=start),
    )
    low, high = measured.interval
    flattest = setting.flattest
    row = {
        "depth": depth,
        "start": start,
        "measured": measured.value,
        "low": low,
        "high": high,
        "exact": flattest.critical_learning_rate(),
        "printed": flattest.printed_critical_learning_rate,
    }
    return pd.DataFrame([row])


def plot_thresholds(config: CriticalRates, table: Table, ax: Axes) -> None:
    """Measured and printed critical rates relative to the exact 2/S_min."""
    for index, (start, label) in enumerate(STARTS.items()):
        rows = table[table["start"] == start]
        ratio, low, high = (
            (rows[name] / rows["exact"]).to_numpy() for name in ("measured", "low", "high")
        )
        spread = [ratio - low, high - ratio]
        shift = 0.97 if index else 1.03
        ax.errorbar(
            rows["depth"] * shift,
            ratio,
            spread,
            linestyle="",
            capsize=3,
            label=label,
            **look(index),
        )
    printed = table.drop_duplicates("depth")
    ratio = printed["printed"] / printed["exact"]
    ax.plot(printed["depth"], ratio, ":", label="printed, $1/(La)$", **look(2))
    ax.axhline(1, color=INK, linestyle="--", linewidth=1, label=r"exact, $2/S_{\min}$")
    ax.set_xscale("log")
    ax.set_xticks(config.depths, [str(depth) for depth in config.depths])
    ax.minorticks_off()
    ax.set(xlabel="Depth", ylabel="Critical rate relative to the exact one")
    ax.legend(loc="best")


def threshold_claims(config: CriticalRates, table: Table) -> list[Claim]:
    """The measured threshold of every depth agrees with 2/S_min."""
    ratio = (table["measured"] / table["exact"]).groupby(table["start"])
    residual, flattest = ratio.get_group("residual"), ratio.get_group("flattest")
    slope = np.polyfit(np.log(table["depth"]), np.log(table["measured"]), 1)[0]
    printed = (table["printed"] / table["exact"]).max()
    return [
        Claim(
            "Started next to the flattest minimiser, descent settles up to 2/S_min at every depth: "
            "measured critical rate over the exact one, farthest from 1",
            flattest.iloc[(flattest - 1).abs().argmax()],
            lower=0.98,
            upper=1.02,
            printed="The threshold corresponds to 2/S_min ≃ 1/(La). This approximation is up to "
            f"{100 * (printed - 1):.1f}% above the exact value on these data, most at small depth.",
        ),
        Claim(
            "Started from residual initialisations it settles almost as far: smallest measured "
            "critical rate over the exact one",
            residual.min(),
            lower=0.9,
            explanation="Close to the edge of stability descent settles ever more slowly; more "
            "steps bring the measured rate closer to the exact one.",
        ),
        Claim(
            "No start settles above 2/S_min: largest measured critical rate over the exact one",
            (table["measured"] / table["exact"]).max(),
            upper=1.01,
        ),
        Claim(
            "The critical rate falls like 1/L: slope of its logarithm against that of the depth",
            slope,
            lower=-1.05,
            upper=-0.95,
        ),
    ]


CRITICAL_RATES = Experiment("critical-rates", CriticalRates, units, run_unit, grid=("depths",))
