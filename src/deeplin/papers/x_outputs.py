"""X-outputs: the critical learning rate for 1 to 10 outputs on a real table (X-7)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from matplotlib.axes import Axes

from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, extent, number
from deeplin.papers.style import INK, legend_below, look
from deeplin.papers.x_search import other_minimizers, rate_beside
from deeplin.problems import Problem
from deeplin.sweep import run_key
from deeplin.theory import minimal_sharpness

SEARCHED = (0.2, 4.0)
WIDTH = 10
"""Of the hidden layers: as many as there are digits, the largest rank of Θ*."""


@dataclass(frozen=True)
class Outputs:
    """How many of the ten digits are told apart."""

    outputs: tuple[int, ...]
    steps: int
    minimizers: int
    """Random minimizers that are compared with the flattest one."""
    depth: int = 3
    seed: int = 0


@cache
def digits(outputs: int) -> Problem:
    """The digits of scikit-learn, columns standardized; targets: is it a 0, a 1, … (centered)."""
    from sklearn.datasets import load_digits

    X, labels = load_digits(return_X_y=True)
    X = X[:, X.std(axis=0) > 0]
    Y = np.eye(10)[labels][:, :outputs]
    return Problem.from_data((X - X.mean(axis=0)) / X.std(axis=0), Y - Y.mean(axis=0))


def run_cell(config: Outputs, outputs: int) -> list[dict[str, float]]:
    """The exact and the measured rate, the sharpness of the attaining network and of others."""
    problem, L = digits(outputs), config.depth
    flattest = minimal_sharpness(problem, L)
    network = flattest.attaining(hidden=WIDTH)
    key = run_key(config.seed, outputs=outputs)

    def exact_sharpness(one: Network) -> float:
        return float(sharpness(problem, one, method="exact").value)

    spreads = np.geomspace(0.01, 1.0, config.minimizers)
    others = other_minimizers(network, config.seed, spreads)
    last = problem if outputs == 1 else problem.only_target(outputs - 1)
    row = {
        "minimal_sharpness": flattest.exact,
        "exact": flattest.critical_learning_rate(),
        "measured": rate_beside(problem, network, key, SEARCHED, config.steps),
        "attained": exact_sharpness(network),
        "flattest_other": min(exact_sharpness(other) for other in others),
        "last_alone": minimal_sharpness(last, L).critical_learning_rate(),
    }
    return [row]


def questions(config: Outputs, table: Table) -> list[Question]:
    """X-7 against descent and other minimizers, and what more outputs cost."""
    rows = table.sort_values("outputs")
    least, exact = rows["minimal_sharpness"], rows["exact"].to_numpy()
    return [
        Question(
            "rate",
            "Up to which rate does descent settle with several outputs (X-7)?",
            f"Up to {extent(rows['measured'] / rows['exact'])} of 2/S_min. The attaining network "
            f"has S_min within {number((rows['attained'] / least - 1).abs().max())}; the flattest "
            f"of {config.minimizers} random minimizers has "
            f"{extent(rows['flattest_other'] / least)} of it.",
        ),
        Question(
            "more outputs",
            "What do more outputs cost?",
            f"The exact rate falls from {number(exact[0])} to {number(exact[-1])}; all targets "
            f"together bear {extent(rows['exact'] / rows['last_alone'])} of the rate of the last "
            "one alone.",
        ),
    ]


def plot(config: Outputs, table: Table, ax: Axes) -> None:
    """Exact and measured rate against q, with that of each added target alone."""
    table = table.sort_values("outputs")
    q = table["outputs"]
    ax.plot(q, table["exact"], color=INK, label=r"exact, $2/S_{\min}$ of all q", zorder=1)
    ax.plot(q, table["measured"], linestyle="", label="measured", **look(0))
    ax.plot(q, table["last_alone"], linestyle="", label="the last target alone", **look(1))
    ax.set(
        xlabel="Number of digits told apart (outputs q)",
        ylabel="Critical learning rate",
        ylim=(0, None),
        xticks=list(range(1, 11)),
    )
    legend_below(ax)


OUTPUTS = grid_experiment("outputs", Outputs, run_cell, {"outputs": "outputs"})
X_OUTPUTS = Figure(
    "X-outputs",
    "The critical learning rate for 1 to 10 outputs on a real table",
    (
        our_panel(
            "X-outputs",
            "Critical learning rate at depth 3 against the number of outputs, on the digits of "
            "scikit-learn (1797 images of 64 pixels): exact (X-7) and measured.",
            Study(
                "x-outputs",
                OUTPUTS,
                paper=Outputs(tuple(range(1, 11)), steps=5_000, minimizers=20),
                quick=Outputs((1, 3, 10), steps=1_000, minimizers=2),
            ),
            plot,
            questions,
            size=(5.2, 4.0),
        ),
    ),
    printed="Not in the papers, whose minimal sharpness is for one output.",
    as_run="Standardized pixels (constant ones left out), targets 'is it a 0', 'is it a 1', …, "
    "centered; depth 3, hidden layers of width 10. Descent from within 1e-4 of the network of X-7; "
    "a rate settles when the gap ends smaller than it began.",
)
