"""ReLU networks from small first or last layers, on targets of a ReLU teacher (BO-2)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from deeplin.dynamics import Run, gradient_descent
from deeplin.figures.setting import data_seed
from deeplin.networks import Network, data_risk, initialize, landscape
from deeplin.problems import Problem
from deeplin.problems.synthetic import Synthetic, relu_teacher
from deeplin.sweep import Experiment, Unit, run_key

INPUTS, WIDTH, OUTPUTS, DEPTH = 10, 50, 3, 3


@dataclass(frozen=True)
class ReluSweep:
    """Every pair (α, β) on `repetitions` fresh data sets, with one step size.

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


AUTHORS_STEP = 1e-4
"""On the mean squared error over the n·q entries."""
REHEARSED = 1000
"""Steps after which the running time is known."""


def units(config: ReluSweep) -> list[Unit]:
    """One unit for each data set and step: all its scales are one batch."""
    pairs = [(alpha, beta) for alpha in config.alphas for beta in config.betas]
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
    data, initial, alive = _start(config, unit)
    run = _descend(data, initial, alive, cell["learning_rate"], unit.steps // unit.runs)
    trained = jax.tree.map(lambda all, some: all.at[alive].set(some), initial, run.network)
    pairs = cell["pairs"]
    status, taken = np.full(len(pairs), "stopped", dtype=object), np.zeros(len(pairs), dtype=int)
    status[alive], taken[alive] = run.status, run.steps
    return pd.DataFrame(pairs, columns=["alpha", "beta"]).assign(
        repetition=cell["repetition"],
        learning_rate=cell["learning_rate"],
        status=status.astype(str),
        steps=taken,
        loss=_risks(data.problem, trained),
        risk=_risks(data.test, trained),
        zero_risk=data.test.target_moment,
    )


def rehearse(config: ReluSweep, unit: Unit) -> float:
    """Seconds that a unit will take, from its first steps."""
    data, initial, alive = _start(config, unit)
    seconds = []
    for steps in (1, REHEARSED, 2 * REHEARSED):  # the first time compiles
        began = time.perf_counter()
        _descend(data, initial, alive, unit.coordinates["learning_rate"], steps)
        seconds.append(time.perf_counter() - began)
    return (seconds[2] - seconds[1]) * unit.steps / unit.runs / REHEARSED


def _start(config: ReluSweep, unit: Unit) -> tuple[Synthetic, Network, np.ndarray]:
    """The data set of a unit, its networks, and which of them will move."""
    repetition = unit.coordinates["repetition"]
    data = relu_teacher(data_seed(config.seed, repetition=repetition, part="data"))
    initial = _networks(config.seed, repetition, unit.coordinates["pairs"])
    return data, initial, _moves(data.problem, initial)


def _descend(data: Synthetic, initial: Network, alive, rate: float, steps: int) -> Run:
    """Train those that move."""
    batch = jax.tree.map(lambda leaf: leaf[np.flatnonzero(alive)], initial)
    # Descent on the mean over n·q is descent on R, the mean over n, with step η/q.
    return gradient_descent(data.problem, batch, rate / OUTPUTS, steps)


def unit_layers(seed: int, repetition: int) -> Sequence[jax.Array]:
    """The random numbers behind all scales of a repetition: layers with α = β = 1."""
    key = run_key(seed, repetition=repetition, part="weights")
    scales = {"alpha": 1.0, "beta": 1.0}
    return initialize.identity_middle(key, INPUTS, WIDTH, OUTPUTS, DEPTH, **scales).weights


def _networks(seed: int, repetition: int, pairs: Sequence[Sequence[float]]) -> Network:
    """One network for each pair of scales, from the same random numbers, in float32."""
    first, middle, last = (layer.astype(jnp.float32) for layer in unit_layers(seed, repetition))
    alphas, betas = (jnp.asarray(values, jnp.float32) for values in zip(*pairs, strict=True))
    weights = (
        alphas[:, None, None] * first,
        jnp.broadcast_to(middle, (len(pairs), *middle.shape)),
        betas[:, None, None] * last,
    )
    return Network(weights, activation="relu")


def _moves(problem: Problem, networks: Network) -> np.ndarray:
    """Which networks have a gradient at all: with α = 0 every unit is dead, for ever (E-10)."""
    risk, data = landscape(problem, networks)
    gradients = jax.vmap(jax.grad(partial(risk, data)))(networks)
    size = sum(jnp.sum(jnp.abs(leaf), axis=(1, 2)) for leaf in gradients.weights)
    return np.asarray(size) > 0


def _risks(problem: Problem, networks: Network) -> np.ndarray:
    """(1/n)‖Y − f(X)‖² of every network: excess risk where the targets carry no noise."""
    _, data = landscape(problem, networks)
    return np.asarray(jax.vmap(partial(data_risk, data))(networks), dtype=float)


RELU_SWEEP = Experiment(
    "relu-sweep", ReluSweep, units, run_unit, grid=("repetitions", "checked"), rehearse=rehearse
)
