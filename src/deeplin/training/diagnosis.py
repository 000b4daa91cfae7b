"""A data set diagnosed: which learning rates can work at which depth? Is interpolation benign?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from deeplin.checks import InputError, seed_number, whole_number
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.theory.minimizers import balanced_sharpness, minimal_sharpness
from deeplin.theory.small_initialization import initialization_scale
from deeplin.training.overfitting import Overfitting, estimate_overfitting
from deeplin.training.recipe import default_width

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
    alignment: float
    optimum_norm: float
    minimal_risk: float
    zero_risk: float
    """The risk of predicting zero, R_0."""
    width: int
    """Hidden width for which the initialisation scales are given."""
    eigenvalues: np.ndarray = field(repr=False)
    optimum: dict[str, float] = field(repr=False)
    """w*, by the name of the input."""
    depths: pd.DataFrame = field(repr=False)
    """One row for each depth: FM-T2 bracket, S_min, S_bal, learning rates, admissible scale."""
    scale_obstacle: str | None
    """Why no initialisation scale is admissible under FM-A2, if none is."""
    overfitting: Overfitting | None
    """Effective ranks and errors of the minimum-norm interpolant, for d > n."""
    notes: tuple[str, ...]
    """What was done to the table, and what is worth knowing about it."""

    @property
    def explained(self) -> float:
        """1 − R_min/R_0: the part of the target's second moment that a linear map explains."""
        return 1 - self.minimal_risk / self.zero_risk

    @property
    def summary(self) -> tuple[str, ...]:
        """The answers in plain words."""
        return tuple(_facts(self) + _rates(self) + _interpolation(self) + _advice(self))

    def as_json(self) -> dict[str, Any]:
        """Plain values only; infinite numbers become strings, missing ones null."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        over = self.overfitting
        values |= {
            "eigenvalues": self.eigenvalues.tolist(),
            "depths": self.depths.to_dict(orient="records"),
            "overfitting": None if over is None else asdict(over) | {"verdict": over.verdict},
            "explained": self.explained,
            "summary": self.summary,
        }
        return _plain(values)


def diagnose(
    problem: Problem,
    depths: Iterable[int] = DEPTHS,
    *,
    readout: Any = None,
    names: Sequence[str] | None = None,
    notes: Iterable[str] = (),
    width: int | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Which learning rates can work on this problem, at which depth, and why.

    For every depth: the bracket of FM-T2, the exact S_min (X-2), the critical learning rate
    2/S_min, S_bal (X-3) and the largest scale of a Gaussian initialisation that meets FM-A2. With
    more inputs than samples also the effective ranks and bounds of BO.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training.diagnosis import diagnose
    X = np.random.default_rng(0).normal(size=(50, 5))
    report = diagnose(dl.Problem.from_data(X, X @ np.ones(5)), depths=[2, 10])
    report.depths, report.summary
    ```
    """
    problem.require_single_target("the diagnosis")
    problem.require_signal("the diagnosis")
    levels = [whole_number("each depth", depth) for depth in depths]
    if not levels:
        raise InputError("no depth was given; pass at least one, such as 10 or 2..40.")
    hidden = default_width(problem) if width is None else whole_number("width", width)
    obstacle = _scale_obstacle(problem, readout)
    rows = [_row(problem, L, readout, hidden, seed, obstacle is None) for L in levels]
    w = problem.optimum.reshape(-1)
    labels = [f"x{k + 1}" for k in range(len(w))] if names is None else names
    interpolates = problem.inputs is not None and problem.dimension > problem.samples
    return Diagnosis(
        samples=problem.samples,
        dimension=problem.dimension,
        rank=problem.rank,
        condition_number=problem.condition_number,
        smallest_eigenvalue=problem.smallest_eigenvalue,
        largest_eigenvalue=problem.largest_eigenvalue,
        alignment=problem.alignment,
        optimum_norm=problem.optimum_norm,
        minimal_risk=problem.minimal_risk,
        zero_risk=problem.target_moment,
        width=hidden,
        eigenvalues=problem.spectrum.eigenvalues,
        optimum=dict(zip(labels, w.tolist(), strict=True)),
        depths=pd.DataFrame(rows),
        scale_obstacle=obstacle,
        overfitting=_overfitting(problem) if interpolates else None,
        notes=tuple(notes),
    )


def _row(problem: Problem, depth: int, readout, width: int, seed: int, admissible: bool) -> dict:
    flattest = minimal_sharpness(problem, depth, readout)
    balanced = balanced_sharpness(problem, depth, readout)
    return {
        "depth": depth,
        "lower": flattest.lower,
        "minimal_sharpness": flattest.exact,
        "upper": flattest.upper,
        "balanced_sharpness": balanced,
        "critical_learning_rate": 2 / flattest.exact,
        "suggested_learning_rate": 1 / balanced,
        "largest_scale": (
            admissible_scale(problem.dimension, depth, width, seed) if admissible else None
        ),
    }


def admissible_scale(dimension: int, depth: int, width: int, seed: int = 0) -> float:
    """The largest scale at which Gaussian weights meet 32 L √ε ≤ 1 (FM-A2), in all of 20 draws.

    ε grows with the square of the scale (FM-ε), so that one draw at scale 1 gives it exactly.
    """
    rng = np.random.default_rng(seed_number(seed))
    sizes = [dimension, *[width] * (depth - 1), 1]
    draws = (
        Network([rng.normal(size=(sizes[k + 1], sizes[k])) for k in range(depth)])
        for _ in range(DRAWS)
    )
    return 1 / (32 * depth * math.sqrt(max(initialization_scale(draw) for draw in draws)))


def _scale_obstacle(problem: Problem, readout: Any) -> str | None:
    """Which hypothesis of FM-A2 no initialisation can meet, if any."""
    if readout is not None:
        return "FM-A2 is about networks whose last layer is the output, without a read-out"
    if problem.rank < problem.dimension:
        return f"Σ̂ has rank {problem.rank} of {problem.dimension}"
    if problem.optimum_norm < 1:
        return f"‖w*‖ = {problem.optimum_norm:.3g} is below 1 (change the unit of the target)"
    return None


def _overfitting(problem: Problem) -> Overfitting | None:
    """None where rows depend on one another, so that leaving one out means nothing."""
    dependent = problem.rank < problem.samples - 1
    return None if dependent else estimate_overfitting(problem)


# --- in words ----------------------------------------------------------------------------------


def _facts(it: Diagnosis) -> list[str]:
    return [
        f"{it.samples} samples of {it.dimension} inputs, of rank {it.rank}; the eigenvalues of Σ̂ "
        f"span a factor of {it.condition_number:.3g}.",
        f"The best linear map explains {it.explained:.1%} of the target's second moment "
        f"(R_min = {it.minimal_risk:.4g}) and has norm ‖w*‖ = {it.optimum_norm:.4g}.",
    ]


def _rates(it: Diagnosis) -> list[str]:
    first, last = it.depths.iloc[0], it.depths.iloc[-1]
    sentences = [
        f"At depth {row['depth']:.0f} gradient descent cannot settle with a learning rate above "
        f"{row['critical_learning_rate']:.3g}; start with {row['suggested_learning_rate']:.3g}."
        for row in ([first] if len(it.depths) == 1 else [first, last])
    ]
    if it.scale_obstacle is None:
        sentences.append(
            f"Gaussian weights of width {it.width} are small enough for the theory of small "
            f"initialisation up to a scale of {last['largest_scale']:.2g} at depth "
            f"{last['depth']:.0f} (FM-A2)."
        )
    else:
        sentences.append(f"No initialisation scale is admissible under FM-A2: {it.scale_obstacle}.")
    return sentences


def _interpolation(it: Diagnosis) -> list[str]:
    over = it.overfitting
    if over is None:
        return []
    ratio = over.leave_one_out / over.zero_error
    sentences = [
        f"There are more inputs than samples, so networks interpolate. On a sample left out, the "
        f"minimum-norm interpolant has {ratio:.2g} times the error of predicting zero."
    ]
    if math.isinf(over.tail.index):
        sentences.append(
            "No tail of the spectrum is flat enough for benign overfitting (k = ∞): noise in the "
            "target will hurt. Regularise or stop early."
        )
    else:
        sentences.append(
            f"Interpolation looks {over.verdict}: beyond k = {over.tail.index:.0f} directions the "
            f"effective rank is {over.tail.large_rank:.3g}, and fitting the noise costs about "
            f"{over.noise_cost:.2g} of its variance."
        )
    return sentences


def _advice(it: Diagnosis) -> list[str]:
    if it.condition_number > 1e4:
        return [
            "The problem is ill-conditioned: the slowest direction needs about "
            f"{it.condition_number:.1g} times the steps of the fastest. Standardise the inputs if "
            "they are not (--standardize), or drop nearly dependent ones."
        ]
    return []


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
