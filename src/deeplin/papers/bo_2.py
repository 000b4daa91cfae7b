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
from deeplin.networks import Network, landscape
from deeplin.papers.bo_1 import SCALES
from deeplin.papers.bo_2_printed import OUTPUTS, asymmetry_claim, effect, unit_layers
from deeplin.papers.bo_2_printed import PANEL as PRINTED
from deeplin.papers.claims import POSITIVE, Claim, number
from deeplin.papers.figure import Figure, Panel, Study, Table
from deeplin.papers.setting import data_seed
from deeplin.papers.statistics import curve, mean_interval
from deeplin.papers.style import QUIET, bars, look
from deeplin.papers.wide_claims import LETTER
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
    return partial(*landscape(problem, networks))


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
        words = f"{LETTER[scale]} = {number(value)}: no gradient, never trained (E-10)"
        point, shift = (value**2, dead["risk"].mean()), (12, -16)
        ax.annotate(words, point, shift, textcoords="offset points", fontsize="small")
    ax.axhline(zero, color=QUIET, linestyle=":", label="zero predictor")
    ax.set(xlabel=rf"Initialization variance $\{scale}^2$", ylabel="Excess risk", ylim=(0, None))
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    ax.legend(loc="lower right")


def first_layer_claims(config: ReluSweep, table: Table, last: Table) -> list[Claim]:
    """The risk grows with α, strongly and more than with β, among networks that were trained."""
    runs = main_runs(config, table)
    ours = effect(runs, "alpha")
    mean, half = mean_interval(ours.to_numpy())
    dead = runs[runs["alpha"] == 0]
    drawn = runs.loc[runs["alpha"] == runs["alpha"].max(), "risk"].mean() / dead["risk"].mean()
    return [
        Claim(
            "The excess risk increases when we increase α: relative increase among trained "
            "networks (α > 0), lower end of its paired 95% interval",
            mean - half,
            lower=POSITIVE,
            name="grows with α",
            known="K-15",
            reason="A paired interval over the data sets that excludes no increase.",
            explanation=f"{number(mean)} ± {number(half)} over {len(ours)} data sets. The drawn "
            f"ratio of the largest α to α = 0, {number(drawn)}, compares with an untrained one.",
        ),
        Claim(
            "The effect of α is strong: the same, upper end",
            mean + half,
            lower=0.2,
            name="strong effect of α",
            reason="A fifth of the risk, what the printed figure shows as an increase.",
            known="K-12",
        ),
        asymmetry_claim(ours, effect(main_runs(config, last), "beta")),
        Claim(
            "The network at α = 0 is trained, as it is drawn: largest number of its steps",
            dead["steps"].max(),
            lower=1,
            name="α = 0 is trained",
            reason="One step.",
            explanation="All its gradients vanish; it is the zero predictor, which here has the "
            "smallest risk of all.",
            known="E-10",
        ),
        *step_claims(config, table),
        training_claim(runs),
    ]


def last_layer_claims(config: ReluSweep, table: Table) -> list[Claim]:
    """The risk hardly depends on β."""
    runs = main_runs(config, table)
    mean, half = mean_interval(effect(runs, "beta").to_numpy())
    return [
        Claim(
            "The excess risk is largely unaffected by β, from the smallest nonzero value to the "
            f"largest: relative change with its paired 95% interval {number(half)} added",
            abs(mean) + half,
            upper=0.02,
            name="unaffected by β",
            reason="An equivalence test with a margin of a fiftieth.",
        ),
        *step_claims(config, table),
        training_claim(runs),
    ]


def training_claim(runs: Table) -> Claim:
    """Training stops far from interpolation (E-10)."""
    losses = runs.loc[runs["steps"] > 0, "loss"]
    return Claim(
        "Networks are trained until the training loss is below 1e-7: smallest loss reached "
        "(sum over the outputs)",
        losses.min(),
        upper=1e-7,
        name="trained to interpolation",
        reason="The printed number.",
        explanation="The authors' logs end at 2.1 to 3.3 after 10⁵ steps; ours are between "
        f"{number(losses.min())} and {number(losses.max())}.",
        known="E-10",
    )


def step_claims(config: ReluSweep, table: Table) -> list[Claim]:
    """With a larger step over the same time, the difference to true descent is measured."""
    if config.learning_rate == AUTHORS_STEP:
        return []
    keys = ["repetition", "alpha", "beta"]
    true = table.query("learning_rate == @AUTHORS_STEP").set_index(keys)["risk"]
    ours = main_runs(config, table).set_index(keys)["risk"].reindex(true.index)
    return [
        Claim(
            f"Quick preset: the step {number(config.learning_rate)} stands for 1e-4 over the same "
            "time: largest relative difference of the risk to true descent",
            (ours / true - 1).abs().max(),
            upper=0.05,
            name="larger step",
            reason="Half of the interval of a mean over four data sets.",
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
            first_layer_claims,
            beside=LAST_LAYER,
        ),
        Panel(
            "BO-2-right",
            "The same against the variance β² of the last layer (α = 1).",
            LAST_LAYER,
            partial(plot_risk, scale="beta"),
            last_layer_claims,
        ),
        PRINTED,
    ),
    printed="Layers 10-50-50-3 with ReLU, identity in the middle, n = 500, x ~ N(0, I), noise "
    "N(0, 1), one-hidden-layer ReLU teacher (caption: width 50; text: width 10, LeCun "
    "initialisation); step 1e-4 on the squared loss until it is below 1e-7; mean of 20 runs.",
    as_run="The authors stopped at 10⁵ steps with a training loss of 2.1 to 3.3, with a teacher of "
    "width 10 and entries uniform in ±1/√10 (E-10). Here the same, in float32, on 20 fresh data "
    "sets, each with the same draws for every scale. The quick preset takes ten times larger "
    "steps for a quarter of the time and measures the difference to true descent.",
)
