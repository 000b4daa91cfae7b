"""Training with automatic initialization and learning rate, and what came of it on a table: the
sharpness beside the theory's, and scores on rows left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from deeplin.dynamics import Run, gradient_descent
from deeplin.errors import whole_number
from deeplin.execution import few_threads, share_compiled_code
from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.networks.initialize import default_width
from deeplin.problems import Problem
from deeplin.problems.problem import as_columns
from deeplin.tables.reading import Reading, read_data
from deeplin.theory import decayed_minimum, stability_limit
from deeplin.theory.weight_decay import DecayedMinimum
from deeplin.training.diagnosis import DEFAULT_DEPTH, plain_values
from deeplin.training.learning_rate import Advice, TrainingSpec, advise
from deeplin.training.scores import (
    LeftOutScores,
    Score,
    cross_validate,
    fitted,
    outputs,
    scores,
    scores_on_training,
)
from deeplin.training.text import conditioning
from deeplin.training.trials import (
    TRIED_STARTS,
    advise_start,
    starting_network,
)

TOLERANCE = 1e-10
"""Training ends when R − R_min is at most this fraction of R_0 − R_min."""
MAP_TOLERANCE = 1e-4
"""Relative squared distance of predictions from those of the minimum with weight decay up to which
training counts as converged."""
MORE_STEPS, STILL = 1000, 1e-6
"""A run towards an unknown minimum has converged if so many steps more change its linear map by at
most this fraction."""
MAX_HALVINGS = 20
"""Most times that an automatic learning rate is halved after divergence."""

MAX_RECORDS = 400
"""Most records kept along a run."""
MAX_RECORDED_NUMBERS = 2**25
"""Most weights kept in all records of a run together; larger networks are recorded less often."""


def train(
    problem: Any,
    y: Any = None,
    depth: int | None = None,
    *,
    target: str | Sequence[str] | None = None,
    task: str = "auto",
    standardize: bool = True,
    learning_rate: float | str = "auto",
    optimizer: TrainingSpec | None = None,
    steps: int = 20_000,
    seed: int = 0,
    width: int | None = None,
    initialization: str = "auto",
    biases: bool = True,
    scale: float | None = None,
    **options: Any,
) -> Run:
    """Train a deep linear network on a problem or a table with automatic settings.

    By default the initialization matches the size of the solution (`starting_network`), the
    learning rate is the advised one for this start (`advise_start`, as in `diagnose`), and training
    ends when R − R_min is at most 1e-10 of R_0 − R_min; without a minimizer, when R is within
    log(2)/n of its infimum, so that every row of separable classes is classified correctly.

    Args:
        problem: a `Problem`, followed by the depth; or a table with its `target`, or inputs X and
            targets y, which are read with `read_problem`. The run can then predict other tables
            (`run.predict`).
        y: the targets of inputs X.
        depth: the number of layers; default: 3.
        target: the name of the target in a table, or of several.
        task: "regression", "classification" or "auto".
        standardize: whether to standardize the columns of a table.
        learning_rate: a number, or "auto": the advised rate, halved while training diverges.
        optimizer: the optimizer and the loss.
        steps: the maximum number of steps.
        seed: the seed of the start and of mini-batches.
        width: the hidden width; default: that of the inputs, at most 32.
        initialization: the kind of start.
        biases: whether starts of PyTorch have its biases.
        scale: the scale of the initialization.
        options: those of `gradient_descent`, such as `record_every`.

    Returns:
        The `Run`.

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
        scaled = {"standardize": standardize, "scale_targets": standardize}
        reading = problem if given else read_data(problem, y, target, task=task, **scaled)
        problem = reading.problem
    share_compiled_code()  # compilation often takes longer than training
    start, batches = jax.random.split(jax.random.key(whole_number("seed", seed, minimum=0)))
    kind: Any = {"depth": DEFAULT_DEPTH if depth is None else depth, "width": width}
    kind |= {"initialization": initialization, "biases": biases, "scale": scale}
    network = starting_network(problem, start, **kind)
    if learning_rate == "auto" and initialization in TRIED_STARTS and "first_rate" not in options:
        options["first_rate"] = advise_start(
            problem, optimizer=optimizer, seed=seed, **kind
        ).learning_rate
    run = descend(
        problem, network, learning_rate, steps, optimizer=optimizer, key=batches, **options
    )
    return run if reading is None else replace(run, preparation=reading.preparation)


def descend(
    problem: Problem,
    network: Network,
    learning_rate: Any,
    steps: int,
    *,
    optimizer: TrainingSpec | None = None,
    key: Any = None,
    announce: Callable[[float], None] = lambda rate: None,
    tolerance: float = TOLERANCE,
    first_rate: float | None = None,
    **options: Any,
) -> Run:
    """Run gradient descent at a given rate, or for "auto" at the advised one, halved on divergence.

    Rates are in the units of the optimizer's loss; `first_rate` replaces the advised rate.
    `run.evidence["halvings"]` counts how often an automatic rate was halved, which happens if the
    start is far sharper than the solution. `announce` is called with the rate before each attempt.
    Unless `options` contain `gap` or `loss_target`, a run ends when R is within `tolerance` of its
    value at the minimum (`goal`); with weight decay, it takes all steps if the linear map then
    differs from that of the minimum. Where that minimum is unknown (three or more classes), a run
    takes all steps and has converged if its linear map no longer moves.
    """
    chosen = optimizer or TrainingSpec()
    rates = [learning_rate]
    if isinstance(learning_rate, str) and learning_rate == "auto":
        if first_rate is None:
            first_rate = advise(problem, network.depth, chosen).learning_rate
        rates = [first_rate / 2**halvings for halvings in range(MAX_HALVINGS + 1)]
    minimum = _known_minimum(problem, network, chosen)
    own_goal = {"gap", "loss_target"} & options.keys()
    if not own_goal and minimum is None and not problem.has_minimizer:
        # then every row of classes that can be separated is classified correctly
        options["gap"] = math.log(2) / problem.samples
    elif not own_goal and (minimum is not None or not chosen.weight_decay):
        options["gap"] = goal(problem, minimum, tolerance)
    settings = chosen.settings(problem, key)
    factor = chosen.rate_factor(problem)

    def descent(rate: float) -> Run:
        return gradient_descent(problem, network, rate * factor, steps, **settings, **options)

    run = None
    for rate in rates:
        announce(rate)
        run = descent(rate)
        if run.status != "diverged":
            break
    assert run is not None
    if minimum is not None and not own_goal and run.status != "diverged":
        if not _reached_minimum(problem, run, minimum) and options.pop("gap") is not None:
            run = descent(rate)
        if _reached_minimum(problem, run, minimum):
            run = replace(run, status="converged")
    elif chosen.weight_decay and not own_goal and run.status == "stopped" and "key" not in settings:
        more = gradient_descent(problem, run.network, rate * factor, MORE_STEPS, **settings)
        before, after = np.asarray(run.network.product), np.asarray(more.network.product)
        if np.linalg.norm(after - before) <= STILL * np.linalg.norm(before):
            run = replace(run, status="converged")
    return replace(run, evidence={**run.evidence, "halvings": rates.index(rate)})


def _known_minimum(
    problem: Problem, network: Network, optimizer: TrainingSpec
) -> DecayedMinimum | None:
    """Return the minimum with weight decay (X-9, X-15), or None without one or if it is unknown."""
    if not optimizer.weight_decay or problem.loss == "softmax":
        return None
    return decayed_minimum(problem, network.depth, optimizer.decay(problem), network.readout)


def _reached_minimum(problem: Problem, run: Run, minimum: DecayedMinimum) -> bool:
    """Return whether the linear map is that of the minimum.

    R alone is not enough: it can pass its value at the minimum earlier. The weights themselves may
    differ, because directions outside the span of the samples decay only at the slow rate ηλ.
    """
    apart = as_columns(np.asarray(run.network.product) - minimum.product, problem.outputs)
    if problem.loss != "squared":
        X, _ = problem.require_data("the predictions")
        size = np.linalg.norm(X @ minimum.product.T)
        return bool(np.linalg.norm(X @ apart) ** 2 <= MAP_TOLERANCE * max(size**2, 1.0))
    eigenvalues, vectors, _ = problem.spectrum
    distance = eigenvalues @ np.sum((vectors.T @ apart) ** 2, axis=1)
    return bool(distance <= MAP_TOLERANCE * problem.zero_gap)


def goal(
    problem: Problem, minimum: DecayedMinimum | None, tolerance: float = TOLERANCE
) -> float | None:
    """Return the gap R − R_min at which training ends, slightly above that of the minimum.

    Return None if the minimum is the zero network: networks far from zero can have the same risk.
    """
    if minimum is not None and minimum.collapsed:
        return None
    there = 0.0 if minimum is None else max(minimum.risk - problem.minimal_risk, 0.0)
    return there + tolerance * (problem.zero_gap - there)


# --- training on a table -------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingReport:
    """Results of a finished training: the run, its scores, and the learned formula."""

    reading: Reading
    spec: TrainingSpec
    initialization: str
    run: Run
    learning_rate: float
    """The learning rate that was used, in the units of the optimizer's loss."""
    advice: Advice
    """The critical rate for this optimizer and loss, S_min and S_bal."""
    sharpness: float
    """The sharpness of R where the run ended."""
    scores: tuple[Score, ...]
    left_out: LeftOutScores | None

    @property
    def done(self) -> bool:
        """Whether training settled, or took all steps where it is not expected to settle."""
        settling = self.advice.settles and not self.spec.adaptive
        return self.run.status == "converged" or (self.run.status == "stopped" and not settling)

    @property
    def largest_stable_sharpness(self) -> float:
        """The sharpness above which minimizers of R are unstable: 2/η, or (2 + 2β)/η with momentum.

        NaN on batches, with weight decay, and for Adam, where 2/η is no bound.
        """
        problem, spec = self.reading.problem, self.spec
        if spec.batches(problem) or spec.weight_decay or spec.adaptive or self.separable:
            return math.nan
        limit = stability_limit(spec.momentum, nesterov=spec.nesterov)
        plain = limit / (self.learning_rate * spec.loss_factor(problem))
        # S(1 + ρS) is at most the plain limit
        return 2 * plain / (1 + math.sqrt(1 + 4 * spec.radius(problem) * plain))

    @property
    def separable(self) -> bool:
        """Whether the risk has no minimizer, since a hyperplane separates classes (X-16)."""
        return not self.reading.problem.has_minimizer and not self.spec.weight_decay

    @property
    def optimizer(self) -> str:
        """Description of the optimizer and the loss."""
        return self.spec.described(self.reading.problem.loss)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on this optimizer and these data."""
        problem, prepared = self.reading.problem, self.reading.preparation
        condition = problem.condition_number if problem.has_minimizer else math.nan
        found = conditioning(condition, standardized=prepared.standardized)
        return (*self.advice.remarks, *found)

    @property
    def formulas(self) -> list[tuple[str, list[float], float]]:
        """Each output with its coefficients and intercept, in the units of the table."""
        prepared = self.reading.preparation
        coefficients, intercepts = prepared.in_table_units(*fitted(self.run.network))
        each = np.broadcast_to(intercepts, len(coefficients.T)).tolist()
        return list(zip(prepared.outputs, coefficients.T.tolist(), each, strict=True))

    def as_json(self) -> dict[str, Any]:
        """Return JSON values under the names that `deeplin train --json` and saved runs use."""
        run, prepared, left = self.run, self.reading.preparation, self.left_out
        outputs, coefficients, intercepts = zip(*self.formulas, strict=True)
        values = {
            "halvings": run.evidence["halvings"],
            "inputs": [column.label for column in prepared.inputs],
            "columns": [(column.name, column.category) for column in prepared.inputs],
            "targets": prepared.targets,
            "classes": prepared.classes,
            "outputs": outputs,
            "status": str(run.status),
            "steps": int(run.steps),
            "done": self.done,
            "separable": self.separable,
            "optimizer": self.optimizer,
            "initialization": self.initialization,
            "learning_rate": self.learning_rate,
            "risk": float(run.evidence["risk"]),
            "minimal_risk": self.reading.problem.minimal_risk,
            "scores": self.scores,
            "sharpness": self.sharpness,
            "coefficients": coefficients,
            "intercepts": intercepts,
            "data": self.reading.notes,
            "advice": self.remarks,
            "critical_learning_rate": self.advice.critical_learning_rate,
            "minimal_sharpness": self.advice.minimal_sharpness,
            "balanced_sharpness": self.advice.balanced_sharpness,
            "largest_stable_sharpness": self.largest_stable_sharpness,
            "left_out": left and asdict(left),
        }
        if not prepared.classes:
            values["r_squared"] = {score.target: score.network for score in self.scores}
            values["r_squared_at_best"] = {score.target: score.linear for score in self.scores}
            if left is not None:
                kinds = {"network": "network", "least_squares": "linear"}
                values["left_out"] |= {
                    name: {score.target: getattr(score, kind) for score in left.scores}
                    for name, kind in kinds.items()
                }
        return plain_values(values)


def train_on_table(
    reading: Reading,
    spec: TrainingSpec,
    *,
    start: Mapping[str, Any],
    learning_rate: float | str,
    steps: int,
    seed: int,
    folds: bool,
    first_rate: float | None = None,
    announce: Callable[[float], None] = lambda rate: None,
    watch: Callable | None = None,
) -> TrainingReport:
    """Train on a table, and score the network on rows left out.

    `start` holds the options of `starting_network`, and `first_rate` replaces the advised rate. If
    `folds` is true and no rows are held out, the network is scored by 5-fold cross-validation.
    `announce` and `watch` are those of `descend`.
    """
    problem, prepared = reading.problem, reading.preparation
    how: dict[str, Any] = {"optimizer": spec, "seed": seed, **start}
    hidden = default_width(problem) if start["width"] is None else start["width"]
    widths = (problem.dimension, *[hidden] * (start["depth"] - 1), problem.outputs)
    records = max(
        2, min(MAX_RECORDED_NUMBERS // sum(a * b for a, b in pairwise(widths)), MAX_RECORDS)
    )

    def fit(part: Problem) -> tuple[Any, Any]:
        """Return what the same training learns from other rows."""
        return fitted(train(part, learning_rate=used, steps=int(run.steps), **how).network)

    with few_threads(problem):
        run = train(
            reading,
            learning_rate=learning_rate,
            steps=steps,
            announce=announce,
            watch=watch,
            record_every=steps // records | 1,  # odd, so that it shows both points of an orbit
            **({} if first_rate is None else {"first_rate": first_rate}),
            **how,
        )
        used = float(np.mean(np.asarray(run.learning_rate))) / spec.rate_factor(problem)
        hidden = min(run.network.widths[1:-1], default=None)
        biased = run.network.biases is not None
        advice = advise(problem, run.network.depth, spec, width=hidden, biases=biased)
        end = sharpness(problem, run.network)
        left, learned = None, fitted(run.network)
        if run.status != "diverged" and reading.held_out is not None:
            rows, Y = reading.held_out
            found = scores(problem, prepared.targets, Y, outputs(problem, rows, *learned))
            left = LeftOutScores(f"{len(rows)} rows held out of training", found)
        elif run.status != "diverged" and folds:
            left = cross_validate(problem, prepared, fit, seed=seed)
        trained = scores_on_training(problem, prepared.targets, *learned)
    return TrainingReport(
        reading=reading,
        spec=spec,
        initialization=start["initialization"],
        run=run,
        learning_rate=used,
        advice=advice,
        sharpness=float(end.value),
        scores=trained,
        left_out=left,
    )
