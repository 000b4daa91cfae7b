"""A recipe that trains: a starting network and a learning rate chosen from the problem itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from deeplin.dynamics import Run, gradient_descent
from deeplin.errors import InputError, positive_number, validated, whole_number
from deeplin.networks import Network
from deeplin.networks.initialize import (
    FRAMEWORK_STARTS,
    STARTS,
    default_width,
    framework_layers,
    start_by_name,
)
from deeplin.problems import Problem
from deeplin.tables.reading import Reading, read_data
from deeplin.theory import decayed_minimum
from deeplin.theory.minimizers import balanced_network
from deeplin.theory.weight_decay import DecayedMinimum
from deeplin.training.advice import advise
from deeplin.training.spec import TrainingSpec

INITIALIZATIONS = ("auto", *STARTS, *FRAMEWORK_STARTS, "balanced")
TOLERANCE = 1e-10
"""Training ends when R − R_min is at most this part of what there is to explain."""
SETTLED = 1e-4
"""Part of what there is to explain by which a map may differ from that with weight decay."""
RETRIES = 20
"""How often an automatic learning rate that diverged is halved."""


@validated
def starting_network(
    problem: Problem,
    key: Array,
    *,
    depth: int,
    width: int | None = None,
    initialization: str = "auto",
    scale: float | None = None,
) -> Network:
    """A network for this problem; without a scale, one near the size of the solution.

    `auto`: a first layer of zeros, and orthogonal layers of the size of the solution's,
    ‖W*‖^{1/L} each (times `scale`; 1 where there is no solution). Nothing vanishes or grows with
    depth on the way through them, and as the first layer moves in the span of the samples only, the
    solution is that of minimal norm where there are several (FM-A1, X-6).

    `balanced`: the balanced solution shrunk by the factor `scale` (default 0.1). The others are
    those of `initialize.start_by_name` with their defaults.

    ```python
    import deeplin as dl, jax, numpy as np
    from deeplin.training.recipe import starting_network
    X = np.random.default_rng(0).normal(size=(50, 5))
    net = starting_network(dl.Problem.from_data(X, X[:, 0]), jax.random.key(0), depth=3)
    ```
    """
    if initialization not in INITIALIZATIONS:
        raise InputError(
            f"initialization is {initialization!r}; pass one of {', '.join(INITIALIZATIONS)}."
        )
    if initialization not in ("auto", "balanced"):
        return start_by_name(initialization, problem, key, depth=depth, width=width, scale=scale)
    L = whole_number("depth", depth)
    m = whole_number("width", default_width(problem) if width is None else width)
    if initialization == "balanced":
        shrink = positive_number("scale", 0.1 if scale is None else scale) ** (1 / L)
        return jax.tree.map(lambda leaf: shrink * leaf, balanced_network(problem, L, m))
    size = positive_number("scale", 1.0 if scale is None else scale)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    widths = (problem.dimension, *[m] * (L - 1), problem.outputs)
    first, *others = framework_layers("orthogonal", rng, widths)
    if problem.has_minimizer:
        problem.require_signal("a scale that fits the solution")
        size *= problem.optimum_norm ** (1 / L)
    return Network([np.zeros_like(first), *(size * layer for layer in others)])


def train(
    problem: Any,
    y: Any = None,
    depth: int | None = None,
    *,
    target: str | Sequence[str] | None = None,
    task: str = "auto",
    learning_rate: float | str = "auto",
    optimizer: TrainingSpec | None = None,
    steps: int = 20_000,
    seed: int = 0,
    width: int | None = None,
    initialization: str = "auto",
    scale: float | None = None,
    **options: Any,
) -> Run:
    """Train a deep linear network on a problem or a table without knowing the theory.

    The start fits the size of the solution (`starting_network`), the learning rate is the advised
    one (`advise`), and training ends when R − R_min is 1e-10 of what there is to explain; where
    classes can be separated, when every row is classified right.
    `options` are those of `gradient_descent`, such as `record_every`.

    Pass a `Problem`, followed by the depth (10 by default), a table with its `target`, or inputs X
    and targets y, which `read_problem` makes a regression or a classification of (`task`): the run
    then predicts other tables (`run.predict`).

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 3))
    run = dl.train(dl.Problem.from_data(X, X @ np.ones(3)), depth=3)
    assert run.status == "converged"
    ```
    """
    if depth is None and (target is not None or isinstance(problem, Problem | Reading)):
        y, depth = None, y
    reading = None
    if not isinstance(problem, Problem):
        given = isinstance(problem, Reading)
        reading = problem if given else read_data(problem, y, target, task=task)
        problem = reading.problem
    start, batches = jax.random.split(jax.random.key(whole_number("seed", seed, minimum=0)))
    network = starting_network(
        problem,
        start,
        depth=10 if depth is None else depth,
        width=width,
        initialization=initialization,
        scale=scale,
    )
    run = descend(
        problem, network, learning_rate, steps, optimizer=optimizer, key=batches, **options
    )
    return run if reading is None else replace(run, preparation=reading.preparation)


@validated
def descend(
    problem: Problem,
    network: Network,
    learning_rate: Any,
    steps: int,
    *,
    optimizer: TrainingSpec | None = None,
    key: Any = None,
    announce: Callable[[float, Run | None], None] = lambda rate, diverged: None,
    tolerance: float = TOLERANCE,
    **options: Any,
) -> Run:
    """Descent with a given rate, or with "auto": the advised one, halved while it diverges.

    Rates are in the units of the optimizer's loss. `run.evidence["halvings"]` says how often an
    automatic rate was halved, because the start was far sharper than where training ends.
    `announce` is called with every rate that is tried, and the run that diverged at the one before.
    Without a `gap` or `loss_target` of its own in
    `options` a run ends when R is as good as at the minimum (`goal`), to this `tolerance`; with
    weight decay it takes all steps where the map is not that of the minimum then.
    """
    chosen = optimizer or TrainingSpec()
    rates = [learning_rate]
    if isinstance(learning_rate, str) and learning_rate == "auto":
        first = advise(problem, network.depth, chosen, readout=network.readout).learning_rate
        rates = [first / 2**halvings for halvings in range(RETRIES + 1)]
    minimum = _minimum(problem, network, chosen)
    own_goal = {"gap", "loss_target"} & options.keys()
    if not own_goal and minimum is None and not problem.has_minimizer:
        options["loss_target"] = math.log(2) / problem.samples  # every row is right below it
    elif not own_goal and (minimum is not None or not chosen.weight_decay):
        options["gap"] = goal(problem, minimum, tolerance)
    settings = chosen.settings(problem, key)
    factor = chosen.rate_factor(problem)

    def descent(rate: float) -> Run:
        return gradient_descent(problem, network, rate * factor, steps, **settings, **options)

    run = None
    for rate in rates:
        announce(rate, run)
        run = descent(rate)
        if run.status != "diverged":
            break
    assert run is not None
    if minimum is not None and not own_goal and run.status != "diverged":
        if not _reached(problem, run, minimum) and options.pop("gap") is not None:
            run = descent(rate)
        if _reached(problem, run, minimum):
            run = replace(run, status="converged")
    return replace(run, evidence={**run.evidence, "halvings": rates.index(rate)})


def _minimum(problem: Problem, network: Network, optimizer: TrainingSpec) -> DecayedMinimum | None:
    """Where training with weight decay goes (X-9, X-15), if that is known."""
    if not optimizer.weight_decay or problem.loss == "softmax":
        return None
    return decayed_minimum(problem, network.depth, optimizer.decay(problem), network.readout)


def _reached(problem: Problem, run: Run, minimum: DecayedMinimum) -> bool:
    """Whether the map is that of the minimum: R alone passes its value on the way there.

    The weights need not be: what no sample sees decays at the slow pace ηλ.
    """
    apart = np.asarray(run.network.product).reshape(minimum.product.shape) - minimum.product
    if problem.loss != "squared":
        X, _ = problem.require_data("the predictions")
        size = np.linalg.norm(X @ minimum.product)
        return bool(np.linalg.norm(X @ apart) ** 2 <= SETTLED * max(size**2, 1.0))
    eigenvalues, vectors, _ = problem.spectrum
    distance = eigenvalues @ np.sum((vectors.T @ apart) ** 2, axis=1)
    return bool(distance <= SETTLED * problem.zero_gap)


def goal(
    problem: Problem, minimum: DecayedMinimum | None, tolerance: float = TOLERANCE
) -> float | None:
    """The gap R − R_min at which training is done: that of the minimum it goes to, nearly.

    None where that is the zero network: networks far from zero have its risk, too.
    """
    if minimum is not None and minimum.collapsed:
        return None
    there = 0.0 if minimum is None else max(minimum.risk - problem.minimal_risk, 0.0)
    return there + tolerance * (problem.zero_gap - there)
