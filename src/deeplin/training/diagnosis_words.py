"""A diagnosis in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deeplin.training.advice import Advice, Optimizer

if TYPE_CHECKING:
    from deeplin.training.diagnosis import Diagnosis

ILL_CONDITIONED = 1e4
"""Λ/λ from which descent needs more steps than the default of `train` (20 000) to get there."""


def answer(advice: Sequence[Advice], optimizer: Optimizer, outputs: int) -> str:
    """The learning rate to use."""
    ends = advice if len(advice) == 1 else (advice[0], advice[-1])
    rates = " and ".join(f"{it.learning_rate:.3g} at depth {it.depth}" for it in ends)
    limits = " and ".join(f"{it.critical_learning_rate:.3g}" for it in ends)
    several = f", summed over the {outputs} targets," if outputs > 1 else ""
    beyond = "nothing can settle" if ends[0].certain else "the mean square error cannot settle"
    plural = "respectively " if len(ends) > 1 else ""
    return (
        f"Use learning rate {rates} with {optimizer}{several or ';'} "
        f"{'and ' if several else ''}above {limits} {plural}{beyond}."
    )


def explained(it: Diagnosis) -> list[str]:
    """How much of the targets the inputs explain."""
    size = f"{it.samples} samples of {it.dimension} inputs"
    if len(it.targets) == 1:
        name, value = next(iter(it.r_squared.items()))
        part = f"R² = {value:.3g}: {size} explain {max(value, 0):.1%} of the variance of {name}"
    else:
        each = ", ".join(f"{name} {value:.3g}" for name, value in it.r_squared.items())
        part = f"R² from {size}: {each}"
    found = [f"{part}, at best (least squares)."]
    if min(it.r_squared.values()) < 0:
        found.append(
            "A negative R² is worse than predicting the mean: these networks have no intercept. "
            "Subtract the means (--intercept, or --standardize)."
        )
    return found


def interpolation(it: Diagnosis) -> list[str]:
    """Whether fitting every sample is benign, where there are more inputs than samples."""
    over = it.overfitting
    if over is None:
        return []
    ratio = over.leave_one_out / over.zero_error
    measured = (
        "There are more inputs than samples, so networks fit them exactly. On samples left out, "
        f"that solution (of minimal norm) errs {ratio:.2g} times as much as predicting zero"
    )
    spectrum = (
        "no tail of the spectrum is flat enough for benign overfitting (k = ∞)"
        if math.isinf(over.tail.index)
        else f"beyond k = {over.tail.index:.0f} directions the effective rank is "
        f"{over.tail.large_rank:.3g}, so fitting the noise costs about {over.noise_cost:.2g} of "
        "its variance"
    )
    if not over.beats_zero:
        return [
            f"{measured}: these inputs do not predict the target, and interpolating cannot be "
            f"called benign whatever the spectrum allows ({spectrum})."
        ]
    advice = "" if over.verdict == "benign" else " Regularise or stop early."
    return [f"{measured}.", f"Interpolation looks {over.verdict}: {spectrum}.{advice}"]


def conditioning(condition_number: float) -> list[str]:
    """Advice where the directions of the data need very different numbers of steps."""
    if condition_number <= ILL_CONDITIONED:
        return []
    return [
        "The problem is ill-conditioned: the slowest direction needs about "
        f"{condition_number:.1g} times the steps of the fastest. Standardise the inputs if they "
        "are not (--standardize), or drop nearly dependent ones."
    ]
