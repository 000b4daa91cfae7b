"""A recipe that trains: a starting network and a learning rate chosen from the problem itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from deeplin.checks import InputError, positive_number, whole_number
from deeplin.dynamics import Run, gradient_descent
from deeplin.networks import Network, initialize
from deeplin.problems import Problem
from deeplin.theory.minimizers import balanced_network, balanced_sharpness

INITIALIZATIONS = ("gaussian", "zero_layer", "residual", "identity", "balanced")
RETRIES = 20
"""How often an automatic learning rate that diverged is halved."""


def starting_network(
    problem: Problem,
    key: Array,
    *,
    depth: int,
    width: int | None = None,
    initialization: str = "gaussian",
    scale: float | None = None,
) -> Network:
    """A network for this problem; without a scale, one near the size of the solution.

    - `gaussian`: entries N(0, scale²), by default half of ‖W*‖^{1/L}/√width;
    - `zero_layer`: the same with a first layer of zeros (meets FM-A1);
    - `residual`: identity plus noise of this scale (default 0.25) and a random unit read-out;
    - `identity`: BO-D2.3 with α = scale (default 0.01) and β = 1;
    - `balanced`: the balanced solution shrunk by this factor (default 0.1).

    ```python
    import deeplin as dl, jax, numpy as np
    from deeplin.training.recipe import starting_network
    X = np.random.default_rng(0).normal(size=(50, 5))
    net = starting_network(dl.Problem.from_data(X, X[:, 0]), jax.random.key(0), depth=3)
    ```
    """
    d, q, L = problem.dimension, problem.outputs, whole_number("depth", depth)
    m = whole_number("width", default_width(problem) if width is None else width)
    widths = (d, *[m] * (L - 1), q)
    if scale is None:
        scale = _default_scale(problem, initialization, L, m)
    if initialization in ("gaussian", "zero_layer"):
        return getattr(initialize, initialization)(key, widths, scale)
    if initialization == "identity":
        return initialize.identity_middle(key, d, m, q, L, alpha=scale, beta=1.0)
    if initialization == "balanced":
        shrink = positive_number("scale", scale) ** (1 / L)
        return jax.tree.map(lambda leaf: shrink * leaf, balanced_network(problem, L, m))
    if initialization == "residual":
        problem.require_single_target("the residual network")
        draw, readout = jax.random.split(key)
        return initialize.residual(draw, d, L, scale, initialize.unit_readout(readout, d))
    raise InputError(
        f"initialization is {initialization!r}; pass one of {', '.join(INITIALIZATIONS)}."
    )


def default_width(problem: Problem) -> int:
    """At most 32 hidden units, and never fewer than the solution may need."""
    return max(min(problem.dimension, 32), min(problem.dimension, problem.outputs))


def automatic_learning_rate(problem: Problem, network: Network) -> float:
    """1/S_bal: half of the largest rate that is stable where small initialisations end (X-3)."""
    if network.readout is None:
        return 1 / balanced_sharpness(problem, network.depth)
    return 1 / balanced_sharpness(problem, network.depth, np.asarray(network.readout))


def descend(
    problem: Problem,
    network: Network,
    learning_rate: Any,
    steps: int,
    *,
    announce: Callable[[float], None] = lambda rate: None,
    **options: Any,
) -> Run:
    """Gradient descent with a given rate, or with "auto": 1/S_bal, halved while it diverges.

    `options` are those of `gradient_descent`; `run.evidence["halvings"]` says how often an
    automatic rate was halved, because the start was far sharper than where training ends.
    `announce` is told every rate that is tried.
    """
    rates = [learning_rate]
    if learning_rate == "auto":
        first = automatic_learning_rate(problem, network)
        rates = [first / 2**halvings for halvings in range(RETRIES + 1)]
    for rate in rates:
        announce(rate)
        run = gradient_descent(problem, network, rate, steps, **options)
        if run.status != "diverged":
            break
    return replace(run, evidence={**run.evidence, "halvings": rates.index(rate)})


def _default_scale(problem: Problem, initialization: str, depth: int, width: int) -> float:
    match initialization:
        case "gaussian" | "zero_layer":
            problem.require_signal("a scale that fits the solution")
            return 0.5 * problem.optimum_norm ** (1 / depth) / np.sqrt(width)
        case "residual":
            return 0.25
        case "identity":
            return 0.01
        case _:
            return 0.1
