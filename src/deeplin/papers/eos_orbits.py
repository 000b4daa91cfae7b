"""EOS-orbits: how the modes of diag(10, 9.5, 9) begin to oscillate, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, each, extent, number
from deeplin.papers.style import COLOURS, INK, QUIET, legend_beside, look, reference_line
from deeplin.problems import Problem
from deeplin.theory import mode_orbits, network_orbit

MARGIN = 1e-3
"""How near to each threshold the modes are counted, on both sides."""


@dataclass(frozen=True)
class ModeOrbits:
    """A diagonal target on white inputs with the loss ½‖Θ − S‖², and learning rates."""

    targets: tuple[float, ...]
    depth: int
    rates: tuple[float, ...]
    steps: int = 4000
    seed: int = 0

    @property
    def thresholds(self) -> np.ndarray:
        """2/(Lσ^{2−2/L}) for each mode (X-12)."""
        return 2 / (self.depth * np.array(self.targets) ** (2 - 2 / self.depth))

    @property
    def all_rates(self) -> list[float]:
        """The rates, and those close to the thresholds."""
        near = [float(t) * (1 + side * MARGIN) for t in self.thresholds for side in (-1, 1)]
        return sorted({*self.rates, *near})


def run_cell(config: ModeOrbits) -> list[dict[str, float]]:
    """For each rate descent from balanced weights, then the orbit by Newton; a row a mode."""
    size, targets = len(config.targets), np.array(config.targets)
    inputs = np.sqrt(size / 2) * np.eye(size)  # Σ̂ = I/2: the risk is ½‖Θ − S‖²
    problem = Problem.from_data(inputs, inputs @ np.diag(targets))
    start = Network([np.diag(1.01 * targets ** (1 / config.depth))] * config.depth)
    rates = np.array(config.all_rates)
    run = gradient_descent(problem, start, rates, config.steps)
    rows = []
    for index, rate in enumerate(rates):
        weights = [np.asarray(weight)[index] for weight in run.network.weights]
        orbit = network_orbit(problem, Network(weights), float(rate))
        sides = [np.diag(np.asarray(network.product)) for network in orbit.networks]
        exact = mode_orbits(problem, config.depth, float(rate))
        for mode, known in enumerate(exact):
            rows.append(
                {
                    "rate": rate,
                    "mode": mode,
                    "target": targets[mode],
                    "amplitude": abs(sides[1][mode] - sides[0][mode]) / 2,
                    "exact": 0.0 if known is None else known.amplitude,
                    "modes": orbit.modes,
                    "expected": sum(other is not None for other in exact),
                    "multiplier": orbit.multiplier,
                    "residual": orbit.residual,
                }
            )
    return rows


def _crossings(config: ModeOrbits, table: Table) -> dict[str, float]:
    """For each mode, where it was found to begin, over its threshold: the middle of a bracket."""
    found = {}
    by_rate = table.groupby("rate")["modes"].first()
    for count, threshold in enumerate(config.thresholds, start=1):
        below, above = by_rate[by_rate < count].index.max(), by_rate[by_rate >= count].index.min()
        found[f"σ = {number(config.targets[count - 1])}"] = (below + above) / 2 / threshold
    return found


def questions(config: ModeOrbits, table: Table) -> list[Question]:
    """Thresholds, amplitudes and stability."""
    moving = table[table["exact"] > 0]
    apart = (moving["amplitude"] / moving["exact"] - 1).abs().max()
    by_rate = table.groupby("rate").first()
    alone, several = by_rate[by_rate["expected"] == 1], by_rate[by_rate["expected"] > 1]
    lost = alone.index[alone["multiplier"] > 1].min()
    return [
        Question(
            "thresholds",
            "Where do the modes begin to oscillate (Ghosh et al. 2025)?",
            f"At {each('{}', _crossings(config, table))} of 2/(Lσ^(2−2/L)) (X-12); the nearest "
            f"rates tried are {number(MARGIN)} away. The amplitudes are those of X-12 within "
            f"{number(apart)}.",
        ),
        Question(
            "stability",
            "Is the orbit stable in the whole network, too?",
            f"While one mode oscillates the largest multiplier of two steps is "
            f"{extent(alone['multiplier'])}, above 1 from η = {number(float(lost))} on; with "
            "several "
            f"it is {extent(several['multiplier'])}: errors that mix two modes of like size grow.",
        ),
    ]


def plot_amplitudes(config: ModeOrbits, table: Table, ax: Axes) -> None:
    """Amplitude of each mode against the rate: Newton's orbit (marks) and X-12 (lines)."""
    for mode, rows in table.groupby("mode"):
        index, target = int(mode), number(float(rows["target"].iloc[0]))  # pyright: ignore
        colour = COLOURS[index]
        ax.plot(rows["rate"], rows["exact"], color=colour, linewidth=1)
        marks = look(index, linestyle="none")
        ax.plot(rows["rate"], rows["amplitude"], label=rf"$\sigma = {target}$", **marks)
        ax.axvline(config.thresholds[index], color=colour, linestyle=":", linewidth=1)
    ax.plot([], [], color=INK, linewidth=1, label="X-12")
    ax.plot([], [], color=QUIET, linestyle=":", linewidth=1, label="threshold")
    ax.set(xlabel="Learning rate η", ylabel="Amplitude of the product of weights")
    legend_beside(ax)


def plot_multipliers(config: ModeOrbits, table: Table, ax: Axes) -> None:
    """Largest multiplier of two steps in the whole network."""
    by_rate = table.groupby("rate").first()
    for count, rows in by_rate.groupby("modes"):
        index = int(count)  # pyright: ignore
        label = f"{index} modes oscillate" if index != 1 else "1 mode oscillates"
        ax.plot(rows.index, rows["multiplier"], label=label, **look(index, linestyle="none"))
    for threshold in config.thresholds:
        ax.axvline(threshold, color=QUIET, linestyle=":", linewidth=1)
    reference_line(ax, 1.0, "stable\nbelow")
    ax.set(xlabel="Learning rate η", ylabel="Largest multiplier of two steps")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)


MODE_ORBITS = grid_experiment(
    "mode-orbits", ModeOrbits, run_cell, {}, runs="all_rates", steps="steps"
)
GRID = tuple(round(0.0302 + 2e-4 * k, 6) for k in range(36))
STUDY = Study(
    "eos-orbits",
    MODE_ORBITS,
    paper=ModeOrbits((10.0, 9.5, 9.0), 3, GRID, steps=20_000),
    quick=ModeOrbits((10.0, 9.5, 9.0), 3, GRID),
)

EOS_ORBITS = Figure(
    "EOS-orbits",
    "Period-two orbits above the critical rate",
    (
        our_panel(
            "EOS-orbits",
            "Amplitude of each mode on the orbit of the network (marks) and by X-12 (lines).",
            STUDY,
            plot_amplitudes,
            questions,
            size=(6.0, 3.5),
        ),
        our_panel(
            "EOS-orbits-stability",
            "What the slowest error beside the orbit is multiplied by in two steps.",
            STUDY,
            plot_multipliers,
            size=(5.2, 3.8),
        ),
    ),
    printed="Not drawn in the papers: target diag(10, 9.5, 9), depth 3, loss ½‖·‖², a published "
    "example of oscillations beyond the edge of stability.",
    as_run="Balanced diagonal weights, moved by a hundredth, descend at each rate; Newton's method "
    "on two steps then finds the orbit and its multipliers in the whole network.",
)
