"""X-decay: the critical learning rate against weight decay, with its jump (X-9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, each, extent
from deeplin.papers.setting import Setting
from deeplin.papers.style import COLOURS, INK, MARKERS, legend_below
from deeplin.papers.x_search import DATA_SETS, LIGHT, gaps, rate_beside
from deeplin.problems import Problem
from deeplin.sweep import run_key
from deeplin.theory import balanced_sharpness, critical_weight_decay, decayed_minimum
from deeplin.theory.minimizers import balanced_network

SEARCHED = (0.01, 100.0)
HALVINGS = 10
"""Of the interval from half to twice the exact λ_c: a width of a tenth of a percent."""
ROUNDING = 1e-12
"""A network that has collapsed to zero is not better than zero, though its last digit may be."""


@dataclass(frozen=True)
class Decays:
    """Weight decays relative to the critical one of each depth."""

    depths: tuple[int, ...]
    shares: tuple[float, ...]
    """λ/λ_c; two of them close to 1 on both sides show the jump."""
    steps: int
    data_seeds: tuple[int, ...] = DATA_SETS
    """The first is drawn in full."""
    seed: int = 0


def run_cell(config: Decays, depth: int, data_seed: int, share: float) -> list[dict[str, float]]:
    """The exact and the measured rate; at the first weight decay also λ_c by training."""
    problem = Setting(data_seed=data_seed).data.problem
    critical = critical_weight_decay(problem, depth)
    minimum = decayed_minimum(problem, depth, share * critical.value)
    key = run_key(config.seed, data_seed=data_seed, depth=depth, share=share)

    def height(problem: Problem, networks: Network) -> np.ndarray:
        """F above its minimum."""
        risk = problem.minimal_risk + gaps(problem, networks)
        return risk + minimum.weight_decay * penalty(networks) - minimum.objective

    options = {"height": height, "weight_decay": minimum.weight_decay}
    first = share == config.shares[0]
    row = {
        "decay": minimum.weight_decay,
        "norm": float(np.linalg.norm(minimum.product)),
        "exact": minimum.critical_learning_rate(),
        "measured": rate_beside(problem, minimum.network, key, SEARCHED, config.steps, **options),
        "balanced": 2 / balanced_sharpness(problem, depth),
        "critical_decay": critical.value,
        "measured_decay": _trained_collapse(problem, depth, config) if first else np.nan,
    }
    return [row]


def penalty(networks: Network) -> np.ndarray:
    """Σ_k‖W_k‖_F² of each network of a batch."""
    squares = [np.sum(np.asarray(weight) ** 2, axis=(-2, -1)) for weight in networks.weights]
    return np.sum(squares, axis=0)


def _trained_collapse(problem: Problem, depth: int, config: Decays) -> float:
    """λ at which the minimum that training from w* ends in stops being better than zero."""
    start = balanced_network(problem, depth)
    rate = 0.5 * 2 / balanced_sharpness(problem, depth)
    low, high = (factor * critical_weight_decay(problem, depth).value for factor in (0.5, 2.0))
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        run = gradient_descent(problem, start, rate, 4 * config.steps, weight_decay=middle)
        gap = float(run.evidence["gap"])
        gained = problem.zero_gap - gap - middle * float(penalty(run.network))
        better = gained > ROUNDING * problem.zero_gap
        low, high = (middle, high) if better else (low, middle)
    return float(np.sqrt(low * high))


def questions(config: Decays, table: Table) -> list[Question]:
    """X-9: the rate, the critical weight decay, the jump from depth 3 on, the limit λ → 0."""
    rates = table.pivot_table(index=["data_seed", "depth"], columns="share", values="measured")
    above = min(share for share in config.shares if share > 1)
    below = max(share for share in config.shares if share < 1)
    jumps = (rates[above] / rates[below]).groupby("depth").mean()
    least = table[table["share"] == min(config.shares)]
    collapse = table.dropna(subset=["measured_decay"])
    return [
        Question(
            "rate",
            "Up to which rate does descent settle with weight decay (X-9)?",
            f"Up to {extent(table['measured'] / table['exact'])} of 2/S_λ, and at the smallest λ "
            f"up to {extent(least['measured'] / least['balanced'])} of 2/S_bal.",
        ),
        Question(
            "jump",
            "What happens at the critical weight decay λ_c?",
            f"Training from w* stops being better than zero at "
            f"{extent(collapse['measured_decay'] / collapse['critical_decay'])} of λ_c. There the "
            f"critical rate jumps by a factor {each('depth {}', jumps)}: from depth 3 on the best "
            "network becomes zero at once.",
        ),
    ]


def plot(config: Decays, table: Table, ax: Axes) -> None:
    """Exact curves and measured points against λ/λ_c, each depth relative to its 2/S_bal."""
    first = config.data_seeds[0]
    problem = Setting(data_seed=first).data.problem
    for index, depth in enumerate(config.depths):
        colour = COLOURS[index]
        for low, high in ((min(config.shares), 1 - 1e-6), (1 + 1e-6, max(config.shares))):
            ax.plot(*_exact_curve(problem, depth, np.geomspace(low, high, 60)), color=colour)
        style: dict[str, Any] = {"color": colour, "marker": MARKERS[index]}
        for data_seed, rows in table[table["depth"] == depth].groupby("data_seed"):
            shares, measured = rows["share"], rows["measured"] / rows["balanced"]
            if data_seed == first:
                ax.plot(shares, measured, linestyle="", label=f"depth {depth}", **style)
                continue
            for side in (shares < 1, shares > 1):
                ax.plot(shares[side], measured[side], **(style | LIGHT))
    others = f"{len(config.data_seeds) - 1} other data sets"
    ax.plot([], [], color=INK, marker="o", label=others, **LIGHT)
    ax.axvline(1, color=INK, linestyle=":", linewidth=1)
    ax.loglog()
    ax.set(
        xlabel=r"Weight decay relative to the critical one, $\lambda/\lambda_c$",
        ylabel=r"Critical rate relative to $2/S_{\mathrm{bal}}$",
    )
    legend_below(ax)


def _exact_curve(problem: Problem, depth: int, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """λ/λ_c, and the exact critical rate (X-9) over 2/S_bal."""
    critical = critical_weight_decay(problem, depth).value
    minima = [decayed_minimum(problem, depth, share * critical) for share in shares]
    rates = np.array([minimum.critical_learning_rate() for minimum in minima])
    return shares, rates * balanced_sharpness(problem, depth) / 2


AXES = {"depth": "depths", "data_seed": "data_seeds", "share": "shares"}
DECAYS = grid_experiment("decays", Decays, run_cell, AXES, bucket="depth")
FEW = (1e-3, 0.1, 0.5, 0.98, 1.02, 2.0)
MANY = (1e-3, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.93, 0.98, 1.02, 1.1, 1.4, 2.0, 4.0)
X_DECAY = Figure(
    "X-decay",
    "The critical learning rate against weight decay",
    (
        our_panel(
            "X-decay",
            "Critical learning rate with weight decay: exact (lines, X-9) and measured (points). "
            "At λ_c the best network becomes the zero network; from depth 3 on this is a jump. "
            "On ten data sets (quick: three); one is drawn in full, the others lightly.",
            Study(
                "x-decay",
                DECAYS,
                paper=Decays((2, 3, 4, 10), MANY, steps=10_000),
                quick=Decays((2, 3, 4), FEW, steps=2_000, data_seeds=DATA_SETS[:3]),
            ),
            plot,
            questions,
            size=(5.2, 4.0),
        ),
    ),
    printed="Not in the papers, which train without weight decay.",
    as_run="The FM data set and others of its recipe (n = 50, d = 5). Descent on R + λΣ‖W‖² "
    "from within 1e-4 of the global minimizer, at eight rates at a time; a rate settles when the "
    "objective ends nearer to its minimum than it began. λ_c again by training from w*: where the "
    "minimum reached stops being better than the zero network.",
)
