"""Diagnosis of a data set: the learning rates that work at each depth, and overfitting."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import InputError, seed_number, validated, whole_number
from deeplin.networks.initialize import default_width
from deeplin.problems import Problem
from deeplin.report import text
from deeplin.tables.formats import Column
from deeplin.tables.preparation import Preparation
from deeplin.tables.reading import Reading, read_data
from deeplin.theory.small_initialization import scale_of_layers
from deeplin.training.advice import TRIED_STARTS, Advice, TrainingSpec, Trials, advise, try_starts
from deeplin.training.evaluation import (
    Overfitting,
    Score,
    best_map,
    class_indices,
    cross_validate,
    estimate_overfitting,
    r_squared,
    r_squared_left_out,
    scores_on_training,
)

if TYPE_CHECKING:
    import pandas as pd

DEPTHS = (2, 3, 5, 10, 20, 40)
DRAWS = 20
"""Number of random initializations that must all satisfy FM-A2 at the reported scale."""
ILL_CONDITIONED = 1e4
"""Λ/λ above which descent needs more steps to converge than the default of `train` (20 000)."""
LARGE_TARGET = 1e3
"""Root mean square of the targets above which, or below the inverse of which, common starts are
far from the solution."""
DEPENDENCE_THRESHOLD = 1e-3
"""Eigenvalue of the correlation matrix below which inputs count as nearly dependent."""
PARTICIPATION_THRESHOLD = 0.1
"""Squared entry in the eigenvector from which an input counts as one of the dependent inputs."""


@dataclass(frozen=True)
class Standardized:
    """Condition number, advice and trials when every column has mean zero and variance one."""

    condition_number: float
    advice: tuple[Advice, ...] = field(repr=False)
    trials: tuple[Trials, ...]


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Results of the theory and of a few simulated runs on a data set, as numbers and as text."""

    samples: int
    dimension: int
    rank: int
    condition_number: float
    """Λ/λ of Σ̂, over the nonzero eigenvalues; also for classes, that of the inputs alone."""
    smallest_eigenvalue: float
    largest_eigenvalue: float
    alignment: float | None
    """a = ŵᵀΣ̂ŵ; defined for one target."""
    optimum_norm: float
    """‖w*‖; infinite where the risk has no minimizer."""
    minimal_risk: float
    zero_risk: float
    """R_0, the risk of predicting zero."""
    task: str
    """`regression` or `classification`."""
    loss: str
    """The name of the loss; `own` if it was passed as functions."""
    prepared: str
    """The form of the table that the rates are for: `as it is`, `centered` (means subtracted) or
    `standardized`."""
    targets: tuple[str, ...]
    classes: tuple[Any, ...]
    """The sorted classes of the target; () for a regression."""
    r_squared: dict[str, float]
    """1 − R_min/Var(y) of each target: the fraction of its variance that a linear map explains."""
    r_squared_left_out: dict[str, float]
    """The same for least squares on rows left out one at a time; empty where it is undefined."""
    scores: tuple[Score, ...]
    """For classes: accuracy and log-loss of logistic regression and of a constant on the rows."""
    scores_left_out: tuple[Score, ...]
    """The same on rows left out by cross-validation."""
    width: int
    """Hidden width of the simulated starts and of the initialization scales."""
    optimizer: TrainingSpec
    advice: tuple[Advice, ...]
    """The closed-form learning rates for each depth, with remarks."""
    trials: tuple[Trials, ...]
    """Results of simulated starts at the first and the last depth."""
    alone: dict[str, tuple[Advice, ...]]
    """With several targets, the advice for a separate network for each of them."""
    eigenvalues: np.ndarray
    optimum: dict[str, float | list[float]]
    """w* by the name of the input; for several outputs, a list with one number per output."""
    seed: int
    """Seed of the simulated starts."""
    scale_obstacle: str | None
    """Why no initialization scale satisfies FM-A2, if none does; training may work regardless."""
    standardized: Standardized | None
    """Results for the standardized table, if training on the table as it is would be slow."""
    dependent: tuple[str, ...]
    """Inputs that are nearly linearly dependent."""
    overfitting: Overfitting | None
    """Effective ranks and errors of the minimum-norm interpolant, if d > n."""
    notes: tuple[str, ...]
    """How the table was read and prepared, and remarks on it."""

    @property
    def depths(self) -> pd.DataFrame:
        """Table with one row per depth: FM-T2 bounds, S_min, S_bal, learning rates, scale."""
        import pandas as pd  # imported here because it takes a third of a second

        return pd.DataFrame(self._rows)

    @cached_property
    def scales(self) -> tuple[float | None, ...]:
        """For each depth, the largest scale of a Gaussian initialization that satisfies FM-A2."""
        if self.scale_obstacle is not None:
            return (None,) * len(self.advice)
        shape = self.width, self.seed
        return tuple(admissible_scale(self.dimension, it.depth, *shape) for it in self.advice)

    @property
    def _rows(self) -> list[dict[str, Any]]:
        named = ("depth", "lower", "minimal_sharpness", "upper", "balanced_sharpness")
        return [
            {name: getattr(it, name) for name in (*named, "critical_learning_rate")}
            | {"suggested_learning_rate": it.learning_rate, "largest_scale": scale}
            for it, scale in zip(self.advice, self.scales, strict=True)
        ]

    @property
    def answer(self) -> str:
        """One sentence with the learning rate to use."""
        return text.answer(self)

    @property
    def summary(self) -> tuple[str, ...]:
        """The main results as sentences, the most useful first."""
        return text.summary(self)

    def __repr__(self) -> str:
        size = f"{self.samples} samples of {self.dimension} inputs"
        depths = ", ".join(str(it.depth) for it in self.advice)
        return f"<Diagnosis of {size}, depth {depths}: {self.answer}>"

    def __str__(self) -> str:
        return text.diagnosis_text(self)

    def _repr_html_(self) -> str:
        lead, *others = map(html.escape, (*self.summary, *self.notes))
        items = "".join(f"<li>{sentence}</li>" for sentence in others)
        tables = "".join(
            f"<h4>{html.escape(name)}</h4>{table.to_html(index=False)}"
            for name, table in text.tables(self)
        )
        more = f"<details><summary>Tables</summary>{tables}</details>"
        return f"<p><b>{lead}</b></p><ul>{items}</ul>{more}"

    def as_json(self) -> dict[str, Any]:
        """Return JSON values: infinite numbers become strings, missing ones null."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        over = self.overfitting
        over = over and asdict(over) | {"verdict": over.verdict}
        values |= {"depths": self._rows, "overfitting": over}
        return plain_values(values | {"answer": self.answer, "summary": self.summary})


@validated
def diagnose(
    problem: Any,
    y: Any = None,
    depths: int | Iterable[int] | None = None,
    *,
    target: str | Sequence[str] | None = None,
    task: str = "auto",
    optimizer: TrainingSpec | None = None,
    initialization: str | None = "torch",
    readout: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    notes: Iterable[str] = (),
    width: int | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Determine which learning rates work on this problem, for each depth and kind of start.

    For every depth, compute the exact S_min (X-2, X-7, X-14, X-17), S_bal (X-3), the critical
    learning rate of the optimizer and the advised rate for small starts; for one target, also the
    bounds of FM-T2 and the largest scale of a Gaussian initialization that satisfies FM-A2. At the
    first and the last depth, simulate training from some starts of the kind `initialization` (see
    `try_starts`; None: no simulation). With more inputs than samples, also estimate the cost of
    interpolation.

    Pass a table (a DataFrame or a file) with its `target`, or inputs X and targets y; both are read
    with `read_problem` as a regression or a classification (`task`) with an intercept. Or pass a
    `Problem`, or the result of `read_problem`, followed by the depth or depths.

    ```python
    import deeplin as dl, jax, numpy as np, pandas as pd
    jax.config.update("jax_enable_x64", True)
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=["a", "b", "y"])
    report = dl.diagnose(frame, depths=3, target="y")
    print(report)
    ```
    """
    if initialization not in (None, *TRIED_STARTS):
        raise InputError(f"init is {initialization!r}; pass one of {', '.join(TRIED_STARTS)}.")
    if depths is None and (target is not None or isinstance(problem, Problem | Reading)):
        y, depths = None, y
    if not isinstance(problem, Problem | Reading):
        problem = read_data(problem, y, target, task=task)
    reading = problem if isinstance(problem, Reading) else _unprepared(problem, names, targets)
    problem, labels, columns = reading.problem, reading.inputs, reading.targets
    if problem.has_minimizer:
        problem.require_signal("the diagnosis")
    if isinstance(depths, int):
        depths = (depths,)
    layer_counts = [
        whole_number("each depth", depth) for depth in (DEPTHS if depths is None else depths)
    ]
    if not layer_counts:
        raise InputError("no depth was given; pass at least one, such as 10 or 2..40.")
    hidden = default_width(problem) if width is None else whole_number("width", width)
    spec = optimizer or TrainingSpec()
    kind = None if readout is not None else initialization

    def simulate(problem: Problem, advice: Sequence[Advice]) -> tuple[Trials, ...]:
        """Return trials at the first and the last depth."""
        if kind is None:
            return ()
        ends = {it.depth: it for it in (advice[0], advice[-1])}.values()
        options = {"width": hidden, "seed": seed}
        return tuple(try_starts(problem, it.depth, kind, spec, advice=it, **options) for it in ends)

    advice = tuple(advise(problem, L, spec, readout=readout) for L in layer_counts)
    classes = () if problem.classes is None else tuple(problem.classes.tolist())
    squared = problem.loss == "squared"
    w = best_map(problem)
    weights = w[:, 0].tolist() if problem.outputs == 1 else w.tolist()
    eigenvalues = _spectrum(problem)
    centered = _is_centered(problem)
    explained, left_out, trained = {}, None, ()
    if classes:
        trained = scores_on_training(problem, columns)
        left_out = cross_validate(problem, reading.preparation, seed=seed)
    elif squared:
        explained = dict(zip(columns, r_squared(problem).tolist(), strict=True))
    left = r_squared_left_out(problem, centered=centered) if squared else None
    interpolates = problem.inputs is not None and problem.dimension > problem.samples
    dependent, other = _standardized(problem, labels, eigenvalues)
    better = None
    if other is not None and readout is None:
        ends = dict.fromkeys((advice[0].depth, advice[-1].depth))
        its = tuple(advise(other, L, spec) for L in ends)
        better = Standardized(_condition(_spectrum(other)), its, simulate(other, its))
    return Diagnosis(
        samples=problem.samples,
        dimension=problem.dimension,
        rank=len(eigenvalues),
        condition_number=_condition(eigenvalues),
        smallest_eigenvalue=float(eigenvalues[-1]),
        largest_eigenvalue=float(eigenvalues[0]),
        alignment=problem.alignment if problem.outputs == 1 and problem.has_minimizer else None,
        optimum_norm=problem.optimum_norm if problem.has_minimizer else math.inf,
        minimal_risk=problem.minimal_risk,
        zero_risk=problem.zero_risk,
        task=reading.task,
        loss=problem.loss if isinstance(problem.loss, str) else "own",
        prepared=reading.preparation.kind,
        targets=tuple(columns),
        classes=classes,
        r_squared=explained,
        r_squared_left_out=({} if left is None else dict(zip(columns, left.tolist(), strict=True))),
        scores=trained,
        scores_left_out=() if left_out is None else left_out.scores,
        width=hidden,
        optimizer=spec,
        advice=advice,
        trials=simulate(problem, advice),
        alone={} if not squared else _advice_for_each_target(problem, columns, layer_counts, spec),
        eigenvalues=eigenvalues,
        optimum=dict(zip(labels, weights, strict=True)),
        seed=seed_number(seed),
        scale_obstacle=_scale_obstacle(problem, readout),
        standardized=better,
        dependent=dependent,
        overfitting=_overfitting(reading, centered) if interpolates and squared else None,
        notes=(*reading.notes, *notes),
    )


def _unprepared(
    problem: Problem, names: Sequence[str] | None, targets: Sequence[str] | None
) -> Reading:
    """Return a problem as if read from a table with its inputs and targets as columns."""
    inputs = [f"x{k + 1}" for k in range(problem.dimension)] if names is None else names
    count = problem.outputs if problem.classes is None else 1
    columns = [f"y{k + 1}" for k in range(count)] if targets is None else targets
    size = len(inputs) + len(columns)
    classes = () if problem.classes is None else tuple(problem.classes.tolist())
    plain = Preparation(
        tuple(map(Column, inputs)), tuple(columns), np.zeros(size), np.ones(size), classes=classes
    )
    return Reading(problem, plain, ())


def _spectrum(problem: Problem) -> np.ndarray:
    """Return the nonzero eigenvalues of Σ̂, largest first; for classes, those of the inputs."""
    if problem.loss == "squared":
        return problem.spectrum.eigenvalues
    X, _ = problem.require_data("the spectrum")
    singular = np.linalg.svd(X, compute_uv=False)
    return singular[singular > np.finfo(float).eps * max(X.shape) * singular[0]] ** 2 / len(X)


def _condition(eigenvalues: np.ndarray) -> float:
    return float(eigenvalues[0] / eigenvalues[-1])


def _is_centered(problem: Problem) -> bool:
    """Return whether the means of inputs and targets are zero up to rounding."""
    if problem.inputs is None or problem.targets is None:
        return False
    parts = (problem.inputs, problem.targets)
    return all(
        np.all(np.abs(part.mean(axis=0)) <= 1e-8 * np.abs(part).max(axis=0)) for part in parts
    )


def _standardized(
    problem: Problem, labels: Sequence[str], eigenvalues: np.ndarray
) -> tuple[tuple[str, ...], Problem | None]:
    """Return nearly dependent inputs, and the standardized problem if training on this one is slow.

    Both come from the second moments, which stay accurate when columns are rescaled.
    """
    d = problem.dimension
    if problem.loss != "squared" and problem.classes is None:
        return (), None
    size = math.sqrt(problem.target_moment / problem.outputs)
    fine = _condition(eigenvalues) <= ILL_CONDITIONED and 1 / LARGE_TARGET < size < LARGE_TARGET
    if fine or d > min(problem.samples, 2000):
        return (), None
    moments = problem.second_moments
    if problem.inputs is not None and problem.targets is not None:
        rows = np.hstack([problem.inputs, problem.targets])
        moments = np.cov(rows, rowvar=False, bias=True)
    assert moments is not None
    variance = np.diag(moments)
    varies = variance[:d] > 0
    scale = np.where(variance > 0, np.sqrt(variance), 1.0)
    table = moments / np.outer(scale, scale)
    correlations = table[:d, :d][np.ix_(varies, varies)]
    values, vectors = np.linalg.eigh(correlations)
    involved = (vectors[:, 0] ** 2 >= PARTICIPATION_THRESHOLD) & (values[0] < DEPENDENCE_THRESHOLD)
    dependent = tuple(np.array(labels)[varies][involved].tolist())
    targets = variance[d:] if problem.classes is None else []
    if np.allclose([*variance[:d][varies], *targets], 1.0, rtol=1e-6):
        return dependent, None  # already standardized
    if problem.classes is not None:
        X, _ = problem.require_data("standardizing")
        X = np.where(varies, (X - X.mean(axis=0)) / scale[:d], X)  # keep constant columns
        return dependent, Problem.from_data(
            X, problem.classes[class_indices(problem)], problem.loss
        )
    cross = table[:d, d:][varies]
    cross = cross[:, 0] if problem.single_target else cross
    other = Problem.from_moments(correlations, cross, table[d:, d:], problem.samples)
    return dependent, other if other.optimum_norm > 0 else None


def _advice_for_each_target(
    problem: Problem, names: Sequence[str], depths: list[int], optimizer: TrainingSpec
) -> dict[str, tuple[Advice, ...]]:
    """Return advice for a separate network for each of several targets that has a signal."""
    if problem.outputs == 1:
        return {}
    parts = {name: problem.only_target(k) for k, name in enumerate(names)}
    return {
        name: tuple(advise(part, L, optimizer) for L in depths)
        for name, part in parts.items()
        if part.optimum_norm > 0
    }


def admissible_scale(dimension: int, depth: int, width: int, seed: int = 0) -> float:
    """Return the largest scale at which Gaussian weights satisfy 32 L √ε ≤ 1 (FM-A2) in 20 draws.

    ε is proportional to the square of the scale (FM-ε), so a draw at scale 1 determines it exactly.
    """
    rng = np.random.default_rng(seed_number(seed))
    sizes = [dimension, *[width] * (depth - 1), 1]
    draws = [
        [rng.normal(size=(sizes[k + 1], sizes[k])) for k in range(depth)] for _ in range(DRAWS)
    ]
    return 1 / (32 * depth * math.sqrt(max(map(scale_of_layers, draws))))


def _scale_obstacle(problem: Problem, readout: ArrayLike | None) -> str | None:
    """Return the hypothesis of FM-A2 that no initialization can satisfy, or None."""
    if problem.loss != "squared":
        return "FM-A2 is about the squared loss"
    if problem.outputs > 1:
        return "FM-A2 is about networks with one output"
    if readout is not None:
        return "FM-A2 is about networks whose last layer is the output, without a read-out"
    if problem.rank < problem.dimension:
        return f"Σ̂ has rank {problem.rank} of {problem.dimension}"
    if problem.optimum_norm < 1:
        return f"‖w*‖ = {problem.optimum_norm:.3g} is below 1 (change the unit of the target)"
    return None


def _overfitting(reading: Reading, centered: bool) -> Overfitting | None:
    """Return the cost of interpolation, or None if rows are too dependent to leave one out."""
    problem, prepared = reading.problem, reading.preparation
    if problem.rank < max(problem.samples - 1, 2):
        return None
    before = None
    if prepared.standardized:
        X, Y = problem.require_data("the left-out error")
        before = Problem.from_data(X * prepared.scale[: problem.dimension], Y)
    return estimate_overfitting(problem, centered=centered, unstandardized=before)


def plain_values(value: Any) -> Any:
    """Return values that JSON can represent: infinite numbers become text, missing ones None."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(name): plain_values(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return plain_values(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
