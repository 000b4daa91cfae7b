"""What trajectories show: distance and sharpness along training, conservation, alignment."""

from __future__ import annotations

from matplotlib.axes import Axes

from deeplin.figures.style import COLOURS, QUIET, look, plain_numbers, reference_line
from deeplin.figures.tables import Table
from deeplin.figures.trajectories import Trajectories

SHOWN = 0
"""The repetition that is drawn; the claims look at all of them."""


def plot_training(
    config: Trajectories,
    table: Table,
    ax: Axes,
    *,
    learning_rate: float,
    subsample: int = 1,
    upper_bound: bool = False,
) -> None:
    """Squared distance (left axis) and sharpness (right axis) along one run (FM-1c, 1d, 4c, 4d)."""
    run = _shown(table, learning_rate).iloc[::subsample]
    right = ax.twinx()
    right.spines["right"].set_visible(True)
    distance, sharp = COLOURS[0], COLOURS[1]
    ax.plot(run["step"], run["distance"], color=distance)
    right.plot(run["step"], run["sharpness"], color=sharp)
    reference_line(right, 2 / learning_rate, r"$2/\eta$", side="right", color=sharp, linestyle="--")
    reference_line(right, config.setting.flattest.exact, r"$S_{\min}$", side="left")
    right.axhline(config.setting.flattest.lower, color=QUIET, linestyle=":", linewidth=1)
    if upper_bound:
        bound = config.setting.upper_bound
        reference_line(right, bound, r"$8L\Lambda$", side="left", color=QUIET)
    ax.set_yscale("log")
    right.set_yscale("log")
    plain_numbers(right.yaxis)
    ax.set(xlabel="Gradient steps")
    ax.set_ylabel(r"$\|w - w^\star\|_2^2$", color=distance)
    right.set_ylabel("Sharpness", color=sharp)


def plot_conservation(config: Trajectories, table: Table, ax: Axes) -> None:
    """Drift of W_{k+1}ᵀW_{k+1} − W_kW_kᵀ, constant on the flow, against time ηt (FM-L1)."""
    _against_time(config, table, ax, "conservation")
    ax.set_yscale("log")
    ax.set_ylabel(r"$\max_k \|D_k(t) - D_k(0)\|_F$")


def plot_alignment(config: Trajectories, table: Table, ax: Axes) -> None:
    """⟨v_{k+1}, u_k⟩², averaged over neighbouring layers, against time ηt (FM-L2 c)."""
    _against_time(config, table, ax, "alignment")
    ax.set_ylim(0, 1.02)
    ax.set_ylabel(r"mean over $k$ of $\langle v_{k+1}, u_k\rangle^2$")


def _against_time(config: Trajectories, table: Table, ax: Axes, column: str) -> None:
    for index, rate in enumerate(sorted(config.rates, key=lambda rate: rate.learning_rate)):
        run = _shown(table, rate.learning_rate)
        style = look(index) | {"marker": None, "label": rf"$\eta = {rate.learning_rate:g}$"}
        time = run["step"] * rate.learning_rate
        after = time > 0
        ax.plot(time[after], run.loc[after, column], **style)
    ax.set_xscale("log")
    ax.set_xlabel(r"Time $\eta t$")
    ax.legend()


def _shown(table: Table, learning_rate: float) -> Table:
    chosen = (table["learning_rate"] == learning_rate) & (table["repetition"] == SHOWN)
    return table[chosen]
