"""What trajectories show: distance and sharpness along training, conservation, alignment."""

from __future__ import annotations

from matplotlib.axes import Axes

from deeplin.figures.scale_plots import SAME
from deeplin.figures.style import COLOURS, INK, QUIET, look, plain_numbers
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
    flattest = config.setting.flattest
    level = {"linewidth": 1, "zorder": 1}
    edge = right.axhline(2 / learning_rate, color=sharp, linestyle="--", label=r"$2/\eta$", **level)
    least = right.axhline(flattest.exact, color=INK, linestyle=":", label=r"$S_{\min}$", **level)
    named = [edge, least]
    if flattest.lower < SAME * flattest.exact:
        right.axhline(flattest.lower, color=QUIET, linestyle=":", **level)
    else:
        least.set_label(r"$S_{\min} \approx 2La$")
    if upper_bound:
        bound = config.setting.upper_bound
        style = {"color": QUIET, "linestyle": "-.", "label": r"$8L\Lambda$"}
        named.append(right.axhline(bound, **style, **level))
    ax.legend(
        handles=named, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False
    )
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
