"""A network trained on a table, compared with the prediction, and scored on rows left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import numpy as np

from deeplin.dynamics import Run
from deeplin.hessian import sharpness
from deeplin.report.text import conditioning
from deeplin.tables.preparation import Reading
from deeplin.training.diagnosis import plain_values
from deeplin.training.evaluation import (
    LeftOut,
    Score,
    cross_validate,
    score_rows,
    scores_on_training,
)
from deeplin.training.prediction import Prediction, Verdict, judge, predict
from deeplin.training.recipe import descend, starting_network
from deeplin.training.spec import TrainingSpec

RECORDS = 400
"""Records along a run, as long as their weights together stay below `KEPT` numbers."""
KEPT = 2**25


@dataclass(frozen=True)
class TrainingReport:
    """What is known about a finished training: how it went, how well it predicts, the formula."""

    notes: tuple[str, ...]
    """What was done to the table."""
    remarks: tuple[str, ...]
    """What is to be known about this optimizer on these data."""
    halvings: tuple[tuple[float, int], ...]
    """Learning rates that diverged, and after how many steps."""
    inputs: tuple[str, ...]
    columns: tuple[tuple[str, str | None], ...]
    targets: tuple[str, ...]
    classes: tuple[Any, ...]
    outputs: tuple[str, ...]
    status: str
    steps: int
    done: bool
    """Settled, or all steps taken where training is not expected to settle."""
    separable: bool
    """Whether a hyperplane separates the classes, so that there is no solution (X-16)."""
    optimizer: str
    learning_rate: float
    risk: float
    minimal_risk: float
    scores: tuple[Score, ...]
    left_out: LeftOut | None
    sharpness: float
    prediction: Prediction
    verdict: Verdict
    coefficients: list[list[float]]
    """Of each output, for the columns of the table in their units."""
    intercepts: list[float]

    def as_json(self) -> dict[str, Any]:
        """Plain values: the names that `deeplin train --json` prints and a saved run keeps."""
        left = self.left_out
        values = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("notes", "remarks", "prediction", "verdict", "left_out")
        }
        values |= {
            "data": self.notes,
            "advice": self.remarks,
            "critical_learning_rate": self.prediction.critical_learning_rate,
            "minimal_sharpness": self.prediction.minimal_sharpness,
            "balanced_sharpness": self.prediction.balanced_sharpness,
            "prediction": str(self.prediction),
            "verdict": str(self.verdict),
            "came_true": self.verdict.came_true,
            "left_out": left and asdict(left),
        }
        if not self.classes:
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
    announce: Callable[[float, Run | None], None] = lambda rate, diverged: None,
    watch: Callable | None = None,
) -> tuple[Run, TrainingReport]:
    """Train on a table, compare with the prediction, and score the network on rows left out.

    `start` holds the options of `starting_network`; `folds` says whether networks of five folds are
    trained where no rows are held out. `announce` and `watch` are those of `descend`.
    """
    problem, prepared = reading.problem, reading.preparation
    first, batches = jax.random.split(jax.random.key(seed))
    network = starting_network(problem, first, **start)
    size = sum(weight.size for weight in network.weights)
    records = max(2, min(KEPT // size, RECORDS))
    options: dict[str, Any] = {"optimizer": spec, "key": batches}
    factor = spec.rate_factor(problem)
    halvings: list[tuple[float, int]] = []

    def announced(rate: float, diverged: Run | None) -> None:
        if diverged is not None:
            halvings.append(
                (float(np.mean(np.asarray(diverged.learning_rate))) / factor, int(diverged.steps))
            )
        announce(rate, diverged)

    run = descend(
        problem,
        network,
        learning_rate,
        steps,
        announce=announced,
        watch=watch,
        record_every=max(1, steps // records),
        **options,
    )
    used = float(np.mean(np.asarray(run.learning_rate))) / factor
    prediction = predict(problem, network, used, spec)
    end = sharpness(problem, run.network)

    def fit(part: Any) -> np.ndarray:
        """The same training on other rows."""
        begin = starting_network(part, first, **start)
        return np.asarray(descend(part, begin, used, int(run.steps), **options).network.product)

    product, left = run.network.product, None
    if run.status != "diverged" and reading.held_out is not None:
        left = score_rows(problem, prepared.targets, product, *reading.held_out)
    elif run.status != "diverged" and folds:
        left = cross_validate(problem, prepared, fit, seed=seed)
    coefficients, intercepts = prepared.in_table_units(product)
    condition = problem.condition_number if problem.has_minimizer else math.nan
    settling = prediction.settles and not prediction.passing
    report = TrainingReport(
        notes=reading.notes,
        remarks=(*prediction.remarks, *conditioning(condition)),
        halvings=tuple(halvings),
        inputs=tuple(column.label for column in prepared.inputs),
        columns=tuple((column.name, column.category) for column in prepared.inputs),
        targets=prepared.targets,
        classes=prepared.classes,
        outputs=prepared.outputs,
        status=str(run.status),
        steps=int(run.steps),
        done=run.status == "converged" or (run.status == "stopped" and not settling),
        separable=not problem.has_minimizer and not spec.weight_decay,
        optimizer=spec.described(problem.loss),
        learning_rate=used,
        risk=float(run.evidence["risk"]),
        minimal_risk=problem.minimal_risk,
        scores=scores_on_training(problem, prepared.targets, product),
        left_out=left,
        sharpness=float(end.value),
        prediction=prediction,
        verdict=judge(prediction, run, end),
        coefficients=coefficients.T.tolist(),
        intercepts=np.broadcast_to(intercepts, len(coefficients.T)).tolist(),
    )
    return replace(run, preparation=prepared), report
