"""The sentences about regression in general, on many data sets: a small sweep on each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.axes import Axes

from deeplin.figures.claims import Claim, parts
from deeplin.figures.figure import Table
from deeplin.figures.scale_claims import LEARNED
from deeplin.figures.scale_sweep import ScaleSweep
from deeplin.figures.scale_sweep import run_unit as run_sweep
from deeplin.figures.setting import Setting
from deeplin.figures.style import INK, look
from deeplin.sweep import Experiment, Unit


@dataclass(frozen=True)
class DataSets:
    """Rates relative to the critical rate of each data set, from a few scales."""

    setting: Setting
    data_seeds: tuple[int, ...]
    scales: tuple[float, ...]
    relative_rates: tuple[float, ...]
    steps: int
    repetitions: int
    seed: int = 0

    def at(self, data_seed: int) -> Setting:
        """The setting on one data set."""
        return replace(self.setting, data_seed=data_seed)


def units(config: DataSets) -> list[Unit]:
    """One unit for each data set and rate."""
    runs = len(config.scales) * config.repetitions
    return [
        Unit({"data_seed": data_seed, "relative_rate": rate}, runs=runs, steps=runs * config.steps)
        for data_seed in config.data_seeds
        for rate in config.relative_rates
    ]


def run_unit(config: DataSets, unit: Unit) -> pd.DataFrame:
    """The rows of a scale sweep, with the data set, the relative rate and its S_min."""
    data_seed, relative = unit.coordinates["data_seed"], unit.coordinates["relative_rate"]
    setting = config.at(data_seed)
    flattest = setting.flattest
    coordinates = {
        "learning_rate": relative * flattest.critical_learning_rate(),
        "steps": config.steps,
        "repetitions": config.repetitions,
        "scales": config.scales,
    }
    sweep = ScaleSweep(setting, config.scales, (), seed=config.seed)
    rows = run_sweep(sweep, Unit(coordinates, runs=unit.runs, steps=unit.steps))
    return rows.assign(
        data_seed=data_seed, relative_rate=relative, minimal_sharpness=flattest.exact
    )


DATA_SETS = Experiment("data-sets", DataSets, units, run_unit, grid=("data_seeds",))


def general_claims(config: DataSets, table: Table) -> list[Claim]:
    """What FM says about any regression, on each data set."""
    by = table["data_seed"]
    below, above = table["relative_rate"] < 1, table["relative_rate"] > 1
    settled = table["status"] != "diverged"
    height = table["sharpness"] * table["learning_rate"] / 2
    survivors = table[below & settled]
    converged = table[table["status"] == "converged"]
    return [
        Claim(
            "On every data set the runs that survive below 2/S_min end at w*: largest squared "
            "distance",
            parts("data set {}", survivors["distance"].groupby(by).max()),
            upper=LEARNED,
            name="survivors learn",
            reason="As in FM-1a.",
            explanation=f"{len(survivors)} of {int(below.sum())} runs survive.",
        ),
        Claim(
            "On every data set none settles above it: share of the runs that do",
            parts("data set {}", (table["status"] == "converged")[above].groupby(by).mean()),
            upper=0.0,
            name="fails above",
            reason="No minimiser is stable there (FM-crit with X-2).",
        ),
        Claim(
            "On every data set no run below 2/S_min ends above 2/η: largest final sharpness in "
            "units of 2/η",
            parts("data set {}", height[below & settled].groupby(by).max()),
            upper=1.0,
            name="not above 2/η",
            reason="The printed threshold itself.",
            known="K-11",
        ),
        Claim(
            "On every data set no minimiser found is flatter than the exact S_min: smallest ratio",
            parts(
                "data set {}",
                (converged["sharpness"] / converged["minimal_sharpness"]).groupby(by).min(),
            ),
            lower=1 - 1e-6,
            name="S_min",
            reason="A theorem; 1e-6 is how far a converged run may be from its minimiser.",
        ),
    ]


def plot_data_sets(config: DataSets, table: Table, ax: Axes) -> None:
    """Final sharpness over S_min of each surviving run, one column for each data set."""
    for index, rate in enumerate(config.relative_rates):
        runs = table[(table["relative_rate"] == rate) & (table["status"] != "diverged")]
        places = runs["data_seed"].map({s: k for k, s in enumerate(config.data_seeds)})
        style = look(index) | {"linestyle": "", "markersize": 3, "alpha": 0.6}
        shift = (index - (len(config.relative_rates) - 1) / 2) * 0.15
        ax.plot(
            places + shift,
            runs["sharpness"] / runs["minimal_sharpness"],
            label=rf"$\eta = {rate:g}\cdot 2/S_{{\min}}$",
            **style,
        )
        if rate < 1:
            ax.axhline(1 / rate, color=style["color"], linestyle="--", linewidth=1, zorder=1)
    ax.axhline(1, color=INK, linestyle=":", linewidth=1)
    ax.set_yscale("log")
    ax.set_xticks(range(len(config.data_seeds)), [str(seed) for seed in config.data_seeds])
    ax.set(xlabel="Data set (seed)", ylabel=r"Sharpness after training over $S_{\min}$")
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.18), ncols=3)
