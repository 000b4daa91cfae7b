"""Diagnosis of a data set: the learning rates that work at each depth, and overfitting."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplin.errors import InputError, seed_number, whole_number
from deeplin.execution import few_threads
from deeplin.networks.initialize import default_width
from deeplin.problems import Problem
from deeplin.tables.preparation import Column, Preparation
from deeplin.tables.reading import Reading, read_data
from deeplin.training import text
from deeplin.training.learning_rate import Advice, TrainingSpec
from deeplin.training.overfitting import Overfitting, estimate_overfitting
from deeplin.training.scores import (
    LeftOutScores,
    Score,
    class_indices,
    cross_validate,
    r_squared_left_out,
    scores_on_training,
)
from deeplin.training.trials import advise_start, has_biases, require_initialization

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_DEPTH = 3
ILL_CONDITIONED = 1e4
"""Λ/λ above which descent needs more steps to converge than the default of `train` (20 000)."""
DEPENDENCE_THRESHOLD = 1e-3
"""Eigenvalue of the correlation matrix below which inputs count as nearly dependent."""
PARTICIPATION_THRESHOLD = 0.1
"""Squared entry in the eigenvector from which an input counts as one of the dependent inputs."""
LARGEST_CORRELATION = 2000
"""Most inputs among which nearly dependent ones are looked for."""


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Learning rates for a data set, and how well linear maps predict it; numbers and text."""

    reading: Reading
    """The problem, its preparation, and notes on how the table was read."""
    optimizer: TrainingSpec
    advice: tuple[Advice, ...]
    """The rate to use and the critical rate for each depth, with the simulated starts."""
    initialization: str | None
    """The kind of start that the rates are for; None: small starts, without simulation."""
    biases: bool
    """Whether the simulated networks have biases."""
    width: int
    """Hidden width of the simulated starts."""
    seed: int
    """Seed of the simulated starts."""
    scores: tuple[Score, ...]
    """R² of least squares for each target; for classes, accuracy and log-loss of scikit-learn's
    `LogisticRegression()` and of a constant, on the rows of the table."""
    left_out: LeftOutScores | None
    """The same on rows left out; None where it is undefined."""
    overfitting: Overfitting | None
    """Effective ranks and errors of the minimum-norm interpolant, if d > n."""

    @property
    def problem(self) -> Problem:
        """The problem that the rates are for: that of the table as it was prepared."""
        return self.reading.problem

    @property
    def learning_rate(self) -> float | list[float]:
        """The rate to use; a list with one for each depth if there are several."""
        rates = [it.learning_rate for it in self.advice]
        return rates[0] if len(rates) == 1 else rates

    @property
    def classes(self) -> tuple[Any, ...]:
        """The sorted classes of the target; () for a regression."""
        return () if self.problem.classes is None else tuple(self.problem.classes.tolist())

    @property
    def notes(self) -> tuple[str, ...]:
        """How the table was read and prepared, and remarks on it."""
        return self.reading.notes

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return self.reading.targets

    @cached_property
    def eigenvalues(self) -> np.ndarray:
        """The nonzero eigenvalues of Σ̂, largest first; also for classes, those of the inputs."""
        return _spectrum(self.problem)

    @property
    def condition_number(self) -> float:
        """Λ/λ of Σ̂, over the nonzero eigenvalues."""
        return float(self.eigenvalues[0] / self.eigenvalues[-1])

    @cached_property
    def dependent(self) -> tuple[str, ...]:
        """The inputs that are nearly linearly dependent, if the problem is ill-conditioned."""
        return _dependent(self.reading) if self.condition_number > ILL_CONDITIONED else ()

    @property
    def r_squared(self) -> dict[str, float]:
        """1 − R_min/Var(y) of each target: the fraction of its variance that a linear map
        explains; {} for classes and other losses."""
        return {it.target: it.linear for it in self.scores if it.measure == "R²"}

    @property
    def r_squared_left_out(self) -> dict[str, float]:
        """The same for least squares on rows left out one at a time; {} where it is undefined."""
        found = self.left_out.scores if self.left_out else ()
        return {it.target: it.linear for it in found if it.measure == "R²"}

    @cached_property
    def raw(self) -> tuple[Advice, ...]:
        """The advice for the columns as they are, if they were standardized and kept; else ()."""
        problem = _as_it_was(self.reading)
        if problem is None:
            return ()
        options: dict[str, Any] = {"width": self.width, "biases": self.biases, "seed": self.seed}
        return tuple(
            advise_start(problem, it.depth, self.initialization, self.optimizer, **options)
            for it in self.advice
        )

    @property
    def depths(self) -> pd.DataFrame:
        """Table with one row per depth: FM-T2 bounds, S_min, S_bal, learning rates."""
        import pandas as pd  # imported here because it takes a third of a second

        rows = [asdict(it) for it in self.advice]
        return pd.DataFrame([{k: v for k, v in row.items() if k in text.HEADINGS} for row in rows])

    @property
    def answer(self) -> str:
        """One sentence with the learning rate to use."""
        return text.answer(self)

    @property
    def summary(self) -> tuple[str, ...]:
        """The main results as sentences, the most useful first."""
        return text.summary(self)

    def __repr__(self) -> str:
        size = f"{self.problem.samples} samples of {self.problem.dimension} inputs"
        depths = ", ".join(str(it.depth) for it in self.advice)
        return f"<Diagnosis of {size}, depth {depths}: {self.answer}>"

    def __str__(self) -> str:
        return text.diagnosis_text(self)

    def _repr_html_(self) -> str:
        lead, *others = map(html.escape, (*self.summary, *self.notes))
        items = "".join(f"<li>{sentence}</li>" for sentence in others)
        table = text.depths(self).to_html(index=False)
        more = f"<details><summary>By depth</summary>{table}</details>"
        return f"<p><b>{lead}</b></p><ul>{items}</ul>{more}"

    def as_json(self) -> dict[str, Any]:
        """Return JSON values: infinite numbers become strings, missing ones null."""
        problem, over, left = self.problem, self.overfitting, self.left_out
        values = {
            "learning_rate": self.learning_rate,
            "answer": self.answer,
            "depths": self.advice,
            "initialization": self.initialization,
            "biases": self.biases,
            "width": self.width,
            "optimizer": self.optimizer,
            "seed": self.seed,
            "task": self.reading.task,
            "loss": problem.loss if isinstance(problem.loss, str) else "own",
            "prepared": self.reading.preparation.kind,
            "targets": self.targets,
            "classes": self.classes,
            "samples": problem.samples,
            "dimension": problem.dimension,
            "rank": len(self.eigenvalues),
            "eigenvalues": self.eigenvalues,
            "condition_number": self.condition_number,
            "optimum_norm": problem.optimum_norm if problem.has_minimizer else math.inf,
            "minimal_risk": problem.minimal_risk,
            "zero_risk": problem.zero_risk,
            "r_squared": self.r_squared,
            "r_squared_left_out": self.r_squared_left_out,
            "scores": self.scores,
            "scores_left_out": left.scores if left else (),
            "overfitting": over and asdict(over) | {"verdict": over.verdict},
            "dependent": self.dependent,
            "summary": self.summary,
            "notes": self.notes,
        }
        return plain_values(values)


def diagnose(
    problem: Any,
    y: Any = None,
    depth: int | Iterable[int] | None = None,
    *,
    target: str | Sequence[str] | None = None,
    task: str = "auto",
    standardize: bool = True,
    optimizer: TrainingSpec | None = None,
    initialization: str | None = "torch",
    biases: bool = True,
    width: int | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Determine which learning rates work on this problem, for each depth and kind of start.

    The rate to use comes from simulated training: some starts of the kind `initialization`, with
    the biases that PyTorch draws unless `biases` is false (`advise_start`). Beside it stands the
    critical learning rate of the optimizer, in closed form (X-2, X-7, X-14, X-17, X-38). With more
    inputs than samples, also estimate the cost of interpolation.

    Pass a table (a DataFrame or a file) with its `target`, or inputs X and targets y; both are read
    with `read_problem` as a regression or a classification (`task`) with an intercept, and every
    column is standardized unless `standardize` is false. Or pass a `Problem`, or the result of
    `read_problem`, which are taken as they are.

    Args:
        problem: a table, inputs X, a `Problem`, or a `Reading`.
        y: the targets of inputs X.
        depth: the number of layers, or several of them; default: 3.
        target: the name of the target in a table, or of several.
        task: "regression", "classification" or "auto".
        standardize: whether to standardize the columns of a table.
        optimizer: the optimizer and the loss.
        initialization: the kind of start; None for small starts, without simulation.
        biases: whether the simulated networks have the biases of `torch.nn.Linear`.
        width: the hidden width; default: that of the inputs, at most 32.
        seed: the seed of the simulated starts.

    Returns:
        A `Diagnosis`; its `learning_rate` is the number on the screen.

    ```python
    import deeplin as dl, numpy as np, pandas as pd
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=["a", "b", "y"])
    report = dl.diagnose(frame, target="y")
    print(report.learning_rate, report)
    ```
    """
    require_initialization(initialization)
    if depth is None and (target is not None or isinstance(problem, Problem | Reading)):
        y, depth = None, y
    if not isinstance(problem, Problem | Reading):
        scaled = {"standardize": standardize, "scale_targets": standardize}
        problem = read_data(problem, y, target, task=task, **scaled)
    reading = problem if isinstance(problem, Reading) else _unprepared(problem)
    problem, columns = reading.problem, reading.targets
    if problem.has_minimizer:
        problem.require_signal("the diagnosis")
    given = DEFAULT_DEPTH if depth is None else depth
    several = (given,) if isinstance(given, int) else given
    depths = [whole_number("each depth", L) for L in several]
    if not depths:
        raise InputError("no depth was given; pass at least one, such as 10 or 2..40.")
    hidden = default_width(problem) if width is None else whole_number("width", width)
    spec = optimizer or TrainingSpec()
    options: dict[str, Any] = {"optimizer": spec, "width": width, "biases": biases, "seed": seed}
    squared = problem.loss == "squared"
    rows = reading.rows
    centered = reading.preparation.centered
    trained, left = (), None
    interpolates = problem.inputs is not None and problem.dimension > problem.samples
    with few_threads(rows):
        if problem.classes is not None:
            trained = scores_on_training(rows, columns)
            left = cross_validate(rows, reading.preparation, seed=seed)
        elif squared:
            trained = scores_on_training(problem, columns)
            left = _one_at_a_time(rows, columns, centered=centered)
        return Diagnosis(
            reading=reading,
            optimizer=spec,
            advice=tuple(advise_start(problem, L, initialization, **options) for L in depths),
            initialization=initialization,
            biases=biases and has_biases(initialization),
            width=hidden,
            seed=seed_number(seed),
            scores=trained,
            left_out=left,
            overfitting=_overfitting(reading, centered) if interpolates and squared else None,
        )


def _one_at_a_time(
    problem: Problem, targets: Sequence[str], *, centered: bool
) -> LeftOutScores | None:
    """Return R² of least squares on rows left out one at a time, or None if undefined."""
    values = r_squared_left_out(problem, centered=centered)
    if values is None:
        return None
    pairs = zip(targets, values.tolist(), strict=True)
    found = tuple(Score("R²", name, value, 0.0) for name, value in pairs)
    return LeftOutScores("one row left out at a time", found)


def _unprepared(problem: Problem) -> Reading:
    """Return a problem as if read from a table with its inputs and targets as columns."""
    inputs = [f"x{k + 1}" for k in range(problem.dimension)]
    count = problem.outputs if problem.classes is None else 1
    columns = [f"y{k + 1}" for k in range(count)]
    size = len(inputs) + len(columns)
    classes = () if problem.classes is None else tuple(problem.classes.tolist())
    plain = Preparation(
        tuple(map(Column, inputs)), tuple(columns), np.zeros(size), np.ones(size), classes=classes
    )
    return Reading(problem, plain, ())


def _as_it_was(reading: Reading) -> Problem | None:
    """Return the problem before its columns were divided by their deviations, if rows are kept.

    For amounts the means stay subtracted, as an intercept does it.
    """
    problem, prepared = reading.problem, reading.preparation
    if not prepared.standardized or problem.inputs is None or problem.targets is None:
        return None
    d = len(prepared.inputs)
    X = problem.inputs[:, :d] * prepared.scale[:d]
    if problem.classes is None:
        return Problem.from_data(X, problem.target_columns * prepared.scale[d:])
    X = np.hstack([X + prepared.center[:d], problem.inputs[:, d:]])
    return Problem.from_data(X, problem.classes[class_indices(problem)], problem.loss)


def _spectrum(problem: Problem) -> np.ndarray:
    """Return the nonzero eigenvalues of Σ̂, largest first; for classes, those of the inputs."""
    if problem.loss == "squared":
        return problem.spectrum.eigenvalues
    X, _ = problem.require_data("the spectrum")
    singular = np.linalg.svd(X, compute_uv=False)
    return singular[singular > np.finfo(float).eps * max(X.shape) * singular[0]] ** 2 / len(X)


def _dependent(reading: Reading) -> tuple[str, ...]:
    """Return the inputs with large entries in a direction of nearly zero correlation."""
    problem, d = reading.problem, reading.problem.dimension
    if d > min(problem.samples, LARGEST_CORRELATION):
        return ()
    moments = problem.second_moments
    if problem.inputs is not None:
        moments = np.cov(problem.inputs, rowvar=False, bias=True)
    assert moments is not None
    moments = np.atleast_2d(moments)[:d, :d]
    varies = np.diag(moments) > 0
    size = np.sqrt(np.diag(moments)[varies])
    values, vectors = np.linalg.eigh(moments[np.ix_(varies, varies)] / np.outer(size, size))
    involved = (vectors[:, 0] ** 2 >= PARTICIPATION_THRESHOLD) & (values[0] < DEPENDENCE_THRESHOLD)
    return tuple(np.array(reading.inputs)[varies][involved].tolist())


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
