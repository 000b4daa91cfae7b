"""Preparation of the columns of a table for a problem, described by notes.

Each column undergoes an affine change z ↦ (z − c)/s, which can be applied to rows, to moments, and
to another table whose rows are to be predicted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from deeplin.errors import InputError, finite_array
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.problems.moments import Moments
from deeplin.problems.problem import Problem
from deeplin.tables.columns import Column, NumberStyle, counted, listed
from deeplin.tables.passes import Gathered

__all__ = ["Column", "Preparation", "Reading", "prepare"]

REPRESENTABLE = 1e140
"""Largest size of a column, and inverse of the smallest, whose second moments fit into float64."""
WIDE_SPREAD = 1e3
"""Ratio of standard deviations of the inputs above which there is a note."""


@dataclass(frozen=True, eq=False)
class Preparation:
    """Conversion of a table to inputs and targets: its columns, and z ↦ (z − center)/scale of each.

    It is saved with a run as plain numbers and names, so that the run can predict the rows of
    another table (`Run.predict`).
    """

    inputs: tuple[Column, ...]
    targets: tuple[str, ...]
    center: np.ndarray
    """One number for each input, then one for each target."""
    scale: np.ndarray
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The categories of each encoded column in the training data."""
    centered: bool = False
    standardized: bool = False
    classes: tuple[str | int | float, ...] = ()
    """The classes of the target, sorted; empty for regression."""
    constant: bool = False
    """Whether a constant input 1 follows the others: the intercept of a classification."""
    fill: tuple[float, ...] = ()
    """What replaces a missing value of each input, in the units of the table; empty: nothing."""
    marks: tuple[str, str] = (".", "")
    """The decimal mark of the table's text, and the mark of thousands that the caller named."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return (*(column.label for column in self.inputs), *(["constant"] * self.constant))

    @property
    def kind(self) -> str:
        """Change of the numbers: `standardized`, `centered`, or `as it is` for none."""
        if self.standardized:
            return "standardized"
        return "centered" if self.centered else "as it is"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Name of each output of the network: a target, or the class of its log-odds."""
        if not self.classes:
            return self.targets
        shown = self.classes[1:] if len(self.classes) == 2 else self.classes
        return tuple(f"{self.targets[0]}={label}" for label in shown)

    def in_table_units(
        self, coefficients: ArrayLike, intercept: ArrayLike = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (d×q) and intercepts in the units of the table's columns.

        `coefficients`, (q, d) or (d,), and `intercept` are those of the prepared inputs.
        """
        d = len(self.inputs)
        theta = np.asarray(coefficients).reshape(-1, d + self.constant).T
        original = theta[:d] * self.scale[d:] / self.scale[:d, None]
        constant = (theta[d] if self.constant else 0.0) + np.asarray(intercept)
        return original, self.center[d:] + self.scale[d:] * constant - self.center[:d] @ original

    def rows(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and targets (targets last) as the network sees them.

        A class becomes ±1 (two classes: the second is +1) or an indicator of it.
        """
        d = len(self.inputs)
        changed = (table - self.center) / self.scale
        X, Y = changed[:, :d], changed[:, d:]
        if self.constant:
            X = np.column_stack([X, np.ones(len(X))])
        if self.classes:
            Y = (
                2 * Y - 1
                if len(self.classes) == 2
                else np.eye(len(self.classes))[Y[:, 0].astype(int)]
            )
        return X, Y

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Return the probability of each class, (n, classes), from the network's outputs (n, q)."""
        values = np.hstack([0 * outputs, outputs]) if len(self.classes) == 2 else outputs
        return softmax(values, axis=1)

    def predictions(self, outputs: np.ndarray) -> np.ndarray:
        """Return targets (n,) or (n, q), or the most probable class of each row.

        `outputs` are those of the network.
        """
        if not self.classes:
            return outputs[:, 0] if outputs.shape[1] == 1 else outputs
        chosen = np.asarray(self.classes)[self.probabilities(outputs).argmax(axis=1)]
        unknown = ~np.isfinite(outputs).all(axis=1)
        if unknown.any():
            chosen = chosen.astype(object)
            chosen[unknown] = None
        return chosen

    def to_json(self) -> str:
        """Return the preparation as text that `from_json` reads."""
        inputs = [column[:3] for column in self.inputs]
        return json.dumps(vars(self) | {"inputs": inputs}, default=np.ndarray.tolist)

    @classmethod
    def from_json(cls, text: str) -> Preparation:
        """Read the text of `to_json`; a damaged text raises `InputError`."""
        try:
            found = json.loads(text)
            found["inputs"] = tuple(
                Column(name, category, None if style is None else NumberStyle(*style))
                for name, category, style in found["inputs"]
            )
            for name in ("targets", "classes", "fill", "marks"):
                found[name] = tuple(found[name])
            for name in ("center", "scale"):
                found[name] = finite_array(name, found[name], (1,))
            found["categories"] = {name: tuple(it) for name, it in found["categories"].items()}
            made = cls(**found)
            sizes = {len(it) - len(made.targets) for it in (made.center, made.scale)}
            sizes |= {len(made.fill) or len(made.inputs)}
            if sizes != {len(made.inputs)} or not np.isfinite(made.fill).all():
                raise ValueError("it has other columns than numbers")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"its preparation cannot be read ({error}).") from error
        return made


@dataclass(frozen=True)
class Reading:
    """A problem read from a table, with its preparation and notes."""

    problem: Problem
    preparation: Preparation
    notes: tuple[str, ...]
    """One sentence for each change of the table or remark about it."""
    held_out: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)
    """Inputs and targets, prepared, of rows that are not in the problem."""
    sample: Problem | None = field(default=None, repr=False)
    """The problem of a seeded sample of the rows, where the table is larger than the memory limit
    and `problem` has moments only; else None."""

    @property
    def rows(self) -> Problem:
        """The problem whose rows baselines and left-out scores use: `sample`, else `problem`."""
        return self.problem if self.sample is None else self.sample

    @property
    def task(self) -> str:
        """`classification` or `regression`."""
        return "classification" if self.preparation.classes else "regression"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return self.preparation.labels

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return self.preparation.targets

    def in_table_units(self, coefficients: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (d×q) of the prepared inputs in the table's units, and intercepts.

        Removed columns have no coefficient; see `inputs`.
        """
        return self.preparation.in_table_units(coefficients)


def prepare(
    gathered: Gathered,
    columns: Sequence[Column],
    targets: int,
    *,
    standardize: bool,
    intercept: bool,
    scale_targets: bool,
    leave: Sequence[int],
    classes: tuple[str | int | float, ...],
    categories: Mapping[str, tuple[str, ...]],
    marks: tuple[str, str],
    first_notes: Sequence[str],
) -> Reading:
    """Return the problem of rows or moments with the targets in the last columns.

    With `classes` the last column holds the index of each row's class; an intercept is then a
    constant input instead of a change of the means. The inputs in `leave` are left out; the other
    options are those of `read_problem`.
    """
    known, held = gathered.rows, gathered.held
    mean, deviation, size = _statistics(known)
    constant = deviation == 0
    names = np.array([column.label for column in columns], dtype=object)
    is_input = np.arange(len(names)) < len(names) - targets
    _require_representable(size if held is None else np.maximum(size, abs(held).max(0)), names)
    offset = standardize or intercept
    centered = standardize or (intercept and not classes)
    fixed = constant if offset else constant & (mean == 0)
    if np.any(fixed & ~is_input):
        beyond = " beyond the intercept" if offset else ""
        raise InputError(
            f"the target {names[fixed & ~is_input][0]!r} is constant: there is nothing to explain"
            f"{beyond}. Pass a target that varies."
        )
    keep = ~fixed
    keep[list(leave)] = False
    used = keep & is_input
    if not np.any(used):
        raise InputError("every input is constant; pass at least one column that varies.")
    amount = is_input | (not classes)
    scaled = is_input & standardize | ~is_input & scale_targets & amount
    notes = _notes(deviation, names, used, fixed & is_input, standardize, intercept, bool(classes))
    if scale_targets and standardize and not classes:
        notes.append(
            "Targets were divided by their deviation too: learning rates are for the standardized "
            "table, predictions are in the units of the target."
        )
    preparation = Preparation(
        tuple(columns[int(j)] for j in np.flatnonzero(used)),
        tuple(column.name for column in columns[len(columns) - targets :]),
        np.where(centered & amount, mean, 0.0)[keep],
        np.where(scaled & ~constant, deviation, 1.0)[keep],
        categories,
        centered=centered,
        standardized=standardize,
        classes=classes,
        constant=bool(classes) and offset,
        fill=() if gathered.fill is None else tuple(gathered.fill[used].tolist()),
        marks=marks,
    )
    problem = _problem(known, keep, preparation)
    _require_resolved_scales(problem)
    return Reading(
        problem,
        preparation,
        (*first_notes, *notes, *_fit_notes(problem, centered)),
        None if held is None else preparation.rows(held[:, keep]),
        None if gathered.sample is None else _problem(gathered.sample, keep, preparation),
    )


def _require_representable(size: np.ndarray, names: np.ndarray) -> None:
    """Raise InputError for columns whose squares float64 cannot hold."""
    too_large = ~(size <= REPRESENTABLE)
    too_small = (size > 0) & (size < 1 / REPRESENTABLE)
    limits = ((too_large, "above", REPRESENTABLE), (too_small, "all below", 1 / REPRESENTABLE))
    for wrong, what, bound in limits:
        if np.any(wrong):
            raise InputError(
                f"column {names[wrong][0]!r} has values {what} {bound:.0e}, whose squares float64 "
                "cannot hold; change its unit, or ignore it."
            )


@np.errstate(over="ignore", invalid="ignore")
def _statistics(gathered: np.ndarray | Moments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, standard deviation and size of every column.

    The size is the largest absolute value, or the root of the second moment if only moments are
    known.
    """
    if isinstance(gathered, Moments):
        variance = np.maximum(np.diag(gathered.centered), 0.0)
        size = np.maximum(np.sqrt(np.diag(gathered.raw)), np.abs(gathered.mean))
        return gathered.mean, np.sqrt(variance), size
    shifted = gathered - gathered[0]  # exactly zero in a constant column
    mean = shifted.mean(axis=0)
    shifted -= mean
    deviation = np.sqrt(np.einsum("ij,ij->j", shifted, shifted) / len(shifted))
    return gathered[0] + mean, deviation, np.abs(gathered).max(axis=0)


def _problem(gathered: np.ndarray | Moments, keep: np.ndarray, change: Preparation) -> Problem:
    if isinstance(gathered, Moments):
        moments = Moments(
            gathered.count,
            (gathered.shift[keep] - change.center) / change.scale,
            gathered.total[keep] / change.scale,
            gathered.scatter[np.ix_(keep, keep)] / np.outer(change.scale, change.scale),
            gathered.targets,
        )
        return Problem.from_accumulated(moments)
    X, Y = change.rows(gathered[:, keep])
    if not change.classes:
        return Problem.from_data(X, Y[:, 0] if len(change.targets) == 1 else Y)
    labels = np.asarray(change.classes)[gathered[:, -1].astype(int)]
    return Problem.from_data(X, labels, "logistic" if len(change.classes) == 2 else "softmax")


def _require_resolved_scales(problem: Problem) -> None:
    """Raise InputError if rounding of the largest column hides a direction of smaller ones.

    Rescaling the columns does not change the rank, so a larger rank of the rescaled Σ̂ shows it.
    """
    if problem.inputs is not None or problem.rank == problem.dimension:
        return
    size = np.sqrt(np.diag(problem.covariance))
    eigenvalues = np.linalg.eigvalsh(problem.covariance / np.outer(size, size))
    visible = eigenvalues > np.finfo(float).eps * len(size) * eigenvalues[-1]
    if np.count_nonzero(visible) > problem.rank:
        raise InputError(
            f"the inputs differ in size by a factor of {size.max() / size.min():.1g}, too much for "
            "their second moments in float64; standardize them (standardize=True, no --raw)."
        )


# --- sentences ---------------------------------------------------------------------------------


def _notes(
    deviation, names, used, fixed, standardize: bool, intercept: bool, classes: bool
) -> list[str]:
    """Return sentences on means, deviations and constant columns."""
    notes = []
    if standardize:
        notes.append("Every input was standardized: its mean subtracted, divided by its deviation.")
    if classes and (standardize or intercept):
        notes.append("A constant input was added, which fits an intercept.")
    elif standardize or intercept:
        what = "the targets" if standardize else "inputs and targets"
        notes.append(f"The means of {what} were subtracted, which fits an intercept.")
    if np.any(fixed):
        why = "constant" if standardize or intercept else "zero everywhere"
        notes.append(f"Removed because {why}: {listed(names[fixed])}.")
    constant = (deviation == 0) & used
    if np.any(constant):
        notes.append(f"Constant, so it acts as an intercept: {listed(names[constant])}.")
    spread = deviation[used & (deviation > 0)]
    if not standardize and len(spread) and spread.max() > WIDE_SPREAD * spread.min():
        notes.append(
            f"The deviations of inputs differ by a factor of {spread.max() / spread.min():.1g}: "
            "training will crawl along the small ones. Standardize them (without --raw)."
        )
    return notes


def _fit_notes(problem: Problem, centered: bool) -> list[str]:
    classes = isinstance(problem, GeneralizedLinearProblem)
    d, r = problem.dimension, problem.coordinates.rows.shape[1] if classes else problem.rank
    free = problem.samples - (centered and not classes)  # centered rows sum to zero
    notes = []
    if problem.inputs is None:
        rows = counted(problem.samples, "row")
        notes.append(f"{rows} were streamed; only their second moments are kept.")
    if r < min(free, d):
        notes.append(f"The inputs are linearly dependent: rank {r} of {min(free, d)} possible.")
    if not classes and r < free and problem.minimal_risk <= 1e-13 * problem.target_moment:
        notes.append("The target is a linear function of the inputs, to rounding.")
    return notes
