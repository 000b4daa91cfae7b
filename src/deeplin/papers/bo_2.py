"""BO-2: ReLU networks, excess risk against the variance of the first and of the last layer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import Run, gradient_descent
from deeplin.networks import Network, risk_and_data
from deeplin.papers.bo_1 import SCALES
from deeplin.papers.bo_2_printed import OUTPUTS, effect, unit_layers
from deeplin.papers.bo_2_printed import PANEL as PRINTED
from deeplin.papers.figures import Figure, Panel, Study, Table
from deeplin.papers.question import Question, number
from deeplin.papers.setting import data_seed
from deeplin.papers.statistics import curve, mean_interval
from deeplin.papers.style import QUIET, bars, look
from deeplin.problems import Problem
from deeplin.problems.synthetic import Synthetic, relu_teacher
from deeplin.sweep import Experiment, Unit

AUTHORS_STEP = 1e-4
"""On the mean squared error over the n·q entries."""
REHEARSED = 1000
"""Steps after which the running time is known."""


@dataclass(frozen=True)
class ReluSweep:
    """Every pair (α, β) on `repetitions` fresh data sets of a ReLU teacher, with one step size.

    In the `checked` first repetitions the pair of largest scales is also trained with the authors'
    step over the same time η·steps, so that the difference is measured and not assumed.
    """

    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    repetitions: int = 20
    learning_rate: float = 1e-4
    steps: int = 100_000
    checked: int = 0
    seed: int = 0


def units(config: ReluSweep) -> list[Unit]:
    """One unit for each data set and step: all its scales are one batch."""
    pairs = list(product(config.alphas, config.betas))
    span = config.steps * config.learning_rate
    runs = [(r, config.learning_rate, pairs) for r in range(config.repetitions)]
    runs += [(r, AUTHORS_STEP, pairs[-1:]) for r in range(config.checked)]
    return [
        Unit(
            {"repetition": repetition, "learning_rate": rate, "pairs": chosen},
            runs=len(chosen),
            steps=len(chosen) * round(span / rate),
        )
        for repetition, rate, chosen in runs
    ]


def run_unit(config: ReluSweep, unit: Unit) -> pd.DataFrame:
    """Train in float32, as the authors did; excess risk on fresh noise-free points."""
    cell = unit.coordinates
    data, initial, alive, descend = _start(config, unit)
    run = descend(unit.steps // unit.runs)
    trained = jax.tree.map(lambda all, some: all.at[alive].set(some), initial, run.network)
    pairs = cell["pairs"]
    status, taken = np.full(len(pairs), "stopped", dtype=object), np.zeros(len(pairs), dtype=int)
    status[alive], taken[alive] = run.status, run.steps
    return pd.DataFrame(pairs, columns=["alpha", "beta"]).assign(
        repetition=cell["repetition"],
        learning_rate=cell["learning_rate"],
        status=status.astype(str),
        steps=taken,
        loss=np.asarray(jax.vmap(_risk(data.problem, trained))(trained), dtype=float),
        risk=np.asarray(jax.vmap(_risk(data.test, trained))(trained), dtype=float),
        zero_risk=data.test.target_moment,
    )


def rehearse(config: ReluSweep, unit: Unit) -> float:
    """Seconds that a unit will take, from its first steps."""
    *_, descend = _start(config, unit)
    seconds = []
    for steps in (1, REHEARSED, 2 * REHEARSED):  # the first time compiles
        began = time.perf_counter()
        descend(steps)
        seconds.append(time.perf_counter() - began)
    return (seconds[2] - seconds[1]) * unit.steps / unit.runs / REHEARSED


def _start(
    config: ReluSweep, unit: Unit
) -> tuple[Synthetic, Network, np.ndarray, Callable[[int], Run]]:
    """The data set of a unit, its networks, which of them will move, and descent of these."""
    cell, repetition = unit.coordinates, unit.coordinates["repetition"]
    data = relu_teacher(data_seed(config.seed, repetition=repetition, part="data"))
    initial = _networks(config.seed, repetition, cell["pairs"])
    gradients = jax.vmap(jax.grad(_risk(data.problem, initial)))(initial)
    size = sum(jnp.sum(jnp.abs(leaf), axis=(1, 2)) for leaf in gradients.weights)
    alive = np.asarray(size) > 0  # with α = 0 every unit is dead, for ever (E-10)
    batch = jax.tree.map(lambda leaf: leaf[np.flatnonzero(alive)], initial)
    # Descent on the mean over n·q is descent on R, the mean over n, with step η/q.
    rate = cell["learning_rate"] / OUTPUTS
    return data, initial, alive, partial(gradient_descent, data.problem, batch, rate)


def _networks(seed: int, repetition: int, pairs: list[list[float]]) -> Network:
    """One network for each pair of scales, from the same random numbers, in float32."""
    first, middle, last = (layer.astype(jnp.float32) for layer in unit_layers(seed, repetition))
    alphas, betas = jnp.asarray(pairs, jnp.float32).T[..., None, None]
    middles = jnp.broadcast_to(middle, (len(pairs), *middle.shape))
    return Network((alphas * first, middles, betas * last), activation="relu")


def _risk(problem: Problem, networks: Network) -> Callable[[Network], jax.Array]:
    """(1/n)‖Y − f(X)‖² of a network: excess risk where the targets carry no noise."""
    return partial(*risk_and_data(problem, networks))


RELU_SWEEP = Experiment(
    "relu-sweep", ReluSweep, units, run_unit, grid=("repetitions", "checked"), rehearse=rehearse
)


def main_runs(config: ReluSweep, table: Table) -> Table:
    """The runs of the figure, without those that check its step."""
    return table[table["learning_rate"] == config.learning_rate]


def plot_risk(config: ReluSweep, table: Table, ax: Axes, *, scale: str) -> None:
    """Excess risk on fresh points against α² or β², with that of the zero predictor."""
    runs = main_runs(config, table)
    points = curve(runs.assign(variance=runs[scale] ** 2), "variance", "risk")
    bars(ax, points, "variance", **look(0, label="trained"))
    zero = runs.drop_duplicates("repetition")["zero_risk"].mean()
    dead = runs[runs["steps"] == 0]
    if len(dead):
        value = dead[scale].iloc[0]
        letter = "α" if scale == "alpha" else "β"
        note = f"{letter} = {number(value)}: no gradient, never trained (E-10)"
        point, shift = (value**2, dead["risk"].mean()), (12, -16)
        ax.annotate(note, point, shift, textcoords="offset points", fontsize="small")
    ax.axhline(zero, color=QUIET, linestyle=":", label="zero predictor")
    ax.set(xlabel=rf"Initialization variance $\{scale}^2$", ylabel="Excess risk", ylim=(0, None))
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    ax.legend(loc="lower right")


def first_layer_questions(config: ReluSweep, table: Table) -> list[Question]:
    """How large the effect of α is, and what the drawn point at α = 0 is."""
    runs = main_runs(config, table)
    mean, half = mean_interval(effect(runs, "alpha").to_numpy())
    dead = runs[runs["alpha"] == 0]
    top = runs.loc[runs["alpha"] == runs["alpha"].max(), "risk"].mean()
    return [
        Question(
            "size of the effect",
            "How large is the effect of α among networks that train?",
            f"From the smallest α above 0 to the largest the risk grows by {number(mean)} ± "
            f"{number(half)} of itself. The drawn ratio of the largest α to α = 0, "
            f"{number(top / dead['risk'].mean())}, compares with a network that never moves "
            f"({dead['steps'].max()} steps: all its gradients vanish, E-10).",
        ),
        *step_questions(config, table),
    ]


def step_questions(config: ReluSweep, table: Table) -> list[Question]:
    """With a larger step over the same time, the difference to true descent is measured."""
    if config.learning_rate == AUTHORS_STEP:
        return []
    keys = ["repetition", "alpha", "beta"]
    true = table.query("learning_rate == @AUTHORS_STEP").set_index(keys)["risk"]
    ours = main_runs(config, table).set_index(keys)["risk"].reindex(true.index)
    return [
        Question(
            "larger step",
            f"What does the quick preset's step {number(config.learning_rate)} change?",
            f"The risk by {number((ours / true - 1).abs().max())} of itself, relative to true "
            "descent over the same time.",
        )
    ]


QUICK = {"repetitions": 4, "learning_rate": 1e-3, "steps": 2_500, "checked": 1}
FEWER = (SCALES[0], SCALES[1], SCALES[9])
FIRST_LAYER = Study(
    "bo-2-first-layer",
    RELU_SWEEP,
    paper=ReluSweep(SCALES, (1.0,)),
    quick=ReluSweep(FEWER, (1.0,), **QUICK),
)
LAST_LAYER = Study(
    "bo-2-last-layer",
    RELU_SWEEP,
    paper=ReluSweep((1.0,), SCALES),
    quick=ReluSweep((1.0,), FEWER, **QUICK),
)

BO_2 = Figure(
    "BO-2",
    "ReLU networks: excess risk and the scale of the first and last layer",
    (
        Panel(
            "BO-2-left",
            "Excess risk against the variance α² of the first layer (β = 1). At α = 0 the network "
            "is dead and stays the zero predictor.",
            FIRST_LAYER,
            partial(plot_risk, scale="alpha"),
            first_layer_questions,
        ),
        Panel(
            "BO-2-right",
            "The same against the variance β² of the last layer (α = 1).",
            LAST_LAYER,
            partial(plot_risk, scale="beta"),
            step_questions,
        ),
        PRINTED,
    ),
    printed="Layers 10-50-50-3 with ReLU, identity in the middle, n = 500, x ~ N(0, I), noise "
    "N(0, 1), one-hidden-layer ReLU teacher (caption: width 50; text: width 10, LeCun "
    "initialization); step 1e-4 on the squared loss until it is below 1e-7; mean of 20 runs.",
    as_run="The authors stopped at 10⁵ steps with a training loss of 2.1 to 3.3, with a teacher of "
    "width 10 and entries uniform in ±1/√10 (E-10). Here the same, in float32, on 20 fresh data "
    "sets, each with the same draws for every scale. The quick preset takes ten times larger "
    "steps for a quarter of the time and measures the difference to true descent.",
)
