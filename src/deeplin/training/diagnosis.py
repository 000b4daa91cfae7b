"""A data set diagnosed: which learning rates can work at which depth? Is interpolation benign?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import InputError, seed_number, whole_number
from deeplin.problems import Problem
from deeplin.theory import balanced_sharpness, minimal_sharpness
from deeplin.theory.small_initialization import scale_of_layers
from deeplin.training import diagnosis_words as words
from deeplin.training.advice import Advice, Optimizer, advise
from deeplin.training.overfitting import Overfitting, estimate_overfitting, r_squared
from deeplin.training.recipe import default_width
from deeplin.validation import validated

if TYPE_CHECKING:
    import pandas as pd

DEPTHS = (2, 3, 5, 10, 20, 40)
DRAWS = 20
"""Random initialisations that must all meet FM-A2 at the scale that is reported."""


@dataclass(frozen=True)
class Diagnosis:
    """What the theory says about a data set, as numbers and in words."""

    samples: int
    dimension: int
    rank: int
    condition_number: float
    smallest_eigenvalue: float
    largest_eigenvalue: float
    alignment: float | None
    """a = ŵᵀΣ̂ŵ; defined for one target."""
    optimum_norm: float
    minimal_risk: float
    zero_risk: float
    """The risk of predicting zero, R_0."""
    targets: tuple[str, ...]
    r_squared: dict[str, float]
    """1 − R_min/Var(y) of each target: the part of its variance that a linear map explains."""
    width: int
    """Hidden width for which the initialization scales are given."""
    optimizer: Optimizer
    advice: tuple[Advice, ...] = field(repr=False)
    """The learning rate for each depth, with remarks."""
    alone: dict[str, tuple[Advice, ...]] = field(repr=False)
    """The same for each of several targets with a network of its own."""
    eigenvalues: np.ndarray = field(repr=False)
    optimum: dict[str, float | list[float]] = field(repr=False)
    """w* by the name of the input; for several targets a list of one number each."""
    rows: tuple[dict[str, Any], ...] = field(repr=False)
    """One for each depth, see `depths`."""
    scale_obstacle: str | None
    """Why no initialization scale is admissible under FM-A2, if none is: theory, not practice."""
    overfitting: Overfitting | None
    """Effective ranks and errors of the minimum-norm interpolant, for d > n."""
    notes: tuple[str, ...]
    """What was done to the table, and what is worth knowing about it."""

    @property
    def depths(self) -> pd.DataFrame:
        """One row for each depth: FM-T2 bracket, S_min, S_bal, learning rates, admissible scale."""
        import pandas as pd  # a third of a second that the answer need not wait for

        return pd.DataFrame(self.rows)

    @property
    def answer(self) -> str:
        """The learning rate to use, in one plain sentence."""
        return words.answer(self.advice, self.optimizer, len(self.targets))

    @property
    def summary(self) -> tuple[str, ...]:
        """The answers in plain words, the most useful first."""
        remarks = tuple(dict.fromkeys(r for advice in self.advice for r in advice.remarks))
        return (
            self.answer,
            *remarks,
            *words.explained(self),
            *words.interpolation(self),
            *words.conditioning(self.condition_number),
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values only; infinite numbers become strings, missing ones null."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["optimizer"] = asdict(self.optimizer)
        values["advice"] = [asdict(advice) for advice in self.advice]
        values["alone"] = {name: [asdict(it) for it in found] for name, found in self.alone.items()}
        over = self.overfitting
        values |= {
            "eigenvalues": self.eigenvalues.tolist(),
            "depths": self.depths.to_dict(orient="records"),
            "overfitting": None if over is None else asdict(over) | {"verdict": over.verdict},
            "answer": self.answer,
            "summary": self.summary,
        }
        return _plain(values)


@validated
def diagnose(
    problem: Problem,
    depths: Iterable[int] = DEPTHS,
    *,
    optimizer: Optimizer | None = None,
    readout: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    notes: Iterable[str] = (),
    width: int | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Which learning rates can work on this problem, at which depth, and why.

    For every depth: the exact S_min (X-2, X-7), S_bal (X-3), the critical learning rate of the
    optimizer and the one to use; for one target the bracket of FM-T2 and the largest scale of a
    Gaussian initialization that meets FM-A2. With more inputs than samples also the effective ranks
    and bounds of BO.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training import Optimizer, diagnose
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X @ np.ones(5))
    report = diagnose(problem, depths=[2, 10], optimizer=Optimizer(momentum=0.9))
    report.answer, report.depths
    ```
    """
    problem.require_signal("the diagnosis")
    levels = [whole_number("each depth", depth) for depth in depths]
    if not levels:
        raise InputError("no depth was given; pass at least one, such as 10 or 2..40.")
    hidden = default_width(problem) if width is None else whole_number("width", width)
    chosen = optimizer or Optimizer()
    advice = tuple(advise(problem, L, chosen, readout=readout) for L in levels)
    obstacle = _scale_obstacle(problem, readout)
    rows = [_row(problem, it, readout, hidden, seed, obstacle is None) for it in advice]
    w = problem.optimum.reshape(problem.dimension, -1)
    labels = [f"x{k + 1}" for k in range(len(w))] if names is None else names
    columns = [f"y{k + 1}" for k in range(problem.outputs)] if targets is None else targets
    weights = w[:, 0].tolist() if problem.outputs == 1 else w.tolist()
    interpolates = problem.inputs is not None and problem.dimension > problem.samples
    return Diagnosis(
        samples=problem.samples,
        dimension=problem.dimension,
        rank=problem.rank,
        condition_number=problem.condition_number,
        smallest_eigenvalue=problem.smallest_eigenvalue,
        largest_eigenvalue=problem.largest_eigenvalue,
        alignment=problem.alignment if problem.outputs == 1 else None,
        optimum_norm=problem.optimum_norm,
        minimal_risk=problem.minimal_risk,
        zero_risk=problem.target_moment,
        targets=tuple(columns),
        r_squared=dict(zip(columns, r_squared(problem).tolist(), strict=True)),
        width=hidden,
        optimizer=chosen,
        advice=advice,
        alone=_alone(problem, columns, levels, chosen),
        eigenvalues=problem.spectrum.eigenvalues,
        optimum=dict(zip(labels, weights, strict=True)),
        rows=tuple(rows),
        scale_obstacle=obstacle,
        overfitting=_overfitting(problem) if interpolates else None,
        notes=tuple(notes),
    )


def _alone(
    problem: Problem, names: Sequence[str], depths: list[int], optimizer: Optimizer
) -> dict[str, tuple[Advice, ...]]:
    """Advice for each of several targets that has a signal, with a network of its own."""
    if problem.outputs == 1:
        return {}
    parts = {name: problem.only_target(k) for k, name in enumerate(names)}
    return {
        name: tuple(advise(part, L, optimizer) for L in depths)
        for name, part in parts.items()
        if part.optimum_norm > 0
    }


def _row(
    problem: Problem, advice: Advice, readout: Any, width: int, seed: int, small: bool
) -> dict[str, Any]:
    """What the theory says about one depth."""
    depth = advice.depth
    flattest = minimal_sharpness(problem, depth, readout)
    scale = admissible_scale(problem.dimension, depth, width, seed) if small else None
    return {
        "depth": depth,
        "lower": flattest.lower,
        "minimal_sharpness": flattest.exact,
        "upper": flattest.upper,
        "balanced_sharpness": balanced_sharpness(problem, depth, readout),
        "critical_learning_rate": advice.critical_learning_rate,
        "suggested_learning_rate": advice.learning_rate,
        "largest_scale": scale,
    }


def admissible_scale(dimension: int, depth: int, width: int, seed: int = 0) -> float:
    """The largest scale at which Gaussian weights meet 32 L √ε ≤ 1 (FM-A2), in all of 20 draws.

    ε grows with the square of the scale (FM-ε), so that one draw at scale 1 gives it exactly.
    """
    rng = np.random.default_rng(seed_number(seed))
    sizes = [dimension, *[width] * (depth - 1), 1]
    draws = [
        [rng.normal(size=(sizes[k + 1], sizes[k])) for k in range(depth)] for _ in range(DRAWS)
    ]
    return 1 / (32 * depth * math.sqrt(max(map(scale_of_layers, draws))))


def _scale_obstacle(problem: Problem, readout: ArrayLike | None) -> str | None:
    """Which hypothesis of FM-A2 no initialisation can meet, if any."""
    if problem.outputs > 1:
        return "FM-A2 is about networks with one output"
    if readout is not None:
        return "FM-A2 is about networks whose last layer is the output, without a read-out"
    if problem.rank < problem.dimension:
        return f"Σ̂ has rank {problem.rank} of {problem.dimension}"
    if problem.optimum_norm < 1:
        return f"‖w*‖ = {problem.optimum_norm:.3g} is below 1 (change the unit of the target)"
    return None


def _overfitting(problem: Problem) -> Overfitting | None:
    """None where rows depend on one another or are one, so that leaving one out means nothing."""
    dependent = problem.rank < max(problem.samples - 1, 2)
    return None if dependent else estimate_overfitting(problem)


def _plain(value: Any) -> Any:
    """Values that JSON can hold."""
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
