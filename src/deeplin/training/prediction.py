"""What the theory predicts about a training run before it starts, and whether it came true."""

from __future__ import annotations

import math
from dataclasses import dataclass

from deeplin.dynamics import Run
from deeplin.hessian import Sharpness
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.theory import stability_limit
from deeplin.training.advice import advise
from deeplin.training.spec import TrainingSpec

FLATTEST_MARGIN = 1e-6
"""Relative slack of S ≥ S_min at a run that ends near a minimiser, not in it."""


@dataclass(frozen=True)
class Prediction:
    """Can descent settle at this learning rate, and how sharp is it where it does? (FM-crit)"""

    learning_rate: float
    critical_learning_rate: float
    """Above it no minimizer is stable, with this optimizer and loss."""
    largest_stable_sharpness: float
    """Sharper minimizers of R repel full-batch descent: 2/η, (2 + 2β)/η with momentum."""
    minimal_sharpness: float
    """S_min (X-2, X-7)."""
    balanced_sharpness: float
    """S_bal (X-3): where small initializations end."""
    settles: bool
    """Whether training can settle at all: on batches only where the data can be interpolated."""
    bounded: bool
    """Whether the sharpness of R where it settles lies between S_min and the largest stable one."""
    passing: bool = False
    """Whether the critical rate is about the last steps alone: Adam passes close by solutions."""
    remarks: tuple[str, ...] = ()
    """What is to be known about this optimizer on these data."""

    @property
    def can_settle(self) -> bool:
        """Whether any minimizer is stable."""
        return self.settles and not self.learning_rate > self.critical_learning_rate

    def __str__(self) -> str:
        rate, critical = f"{self.learning_rate:.4g}", f"{self.critical_learning_rate:.4g}"
        if self.learning_rate > self.critical_learning_rate and self.passing:
            return (
                f"learning rate {rate} is above the critical {critical}: training comes close to a "
                "solution, but does not stay there"
            )
        if self.learning_rate > self.critical_learning_rate:
            return (
                f"learning rate {rate} is above the critical {critical}: from almost no start does "
                "training settle"
            )
        if math.isnan(self.critical_learning_rate):
            return f"none: there is no critical rate to compare the learning rate {rate} with"
        below = f"learning rate {rate} is below the critical {critical}: training can settle"
        if not self.settles:
            return f"{below} only while the rate is lowered (the data cannot be interpolated)"
        if not self.bounded:
            return below
        return (
            f"{below}, at a sharpness between S_min = {self.minimal_sharpness:.4g} and the largest "
            f"stable one, {self.largest_stable_sharpness:.4g}"
        )


@dataclass(frozen=True)
class Verdict:
    """Whether the prediction came true: yes, no, or None where the run does not decide it."""

    came_true: bool | None
    reason: str

    def __str__(self) -> str:
        word = {True: "it came true", False: "it did not come true", None: "the run is undecided"}
        return f"{word[self.came_true]}: {self.reason}"


def predict(
    problem: Problem, network: Network, learning_rate: float, optimizer: TrainingSpec | None = None
) -> Prediction:
    """What the theory says about training from this network at this learning rate.

    ```python
    import deeplin as dl, jax, numpy as np
    from deeplin.training import predict
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X @ np.ones(5))
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.3)
    assert not predict(problem, net, learning_rate=10.0).can_settle
    ```
    """
    chosen, L, readout = optimizer or TrainingSpec(), network.depth, network.readout
    advice = advise(problem, L, chosen, readout=readout)
    limit = stability_limit(chosen.momentum, nesterov=chosen.nesterov)
    plain = limit / (learning_rate * chosen.loss_factor(problem))
    radius = chosen.radius(problem)  # S(1 + ρS) is at most the plain limit
    full = chosen.batches(problem) is None
    return Prediction(
        learning_rate=learning_rate,
        critical_learning_rate=advice.critical_learning_rate,
        largest_stable_sharpness=2 * plain / (1 + math.sqrt(1 + 4 * radius * plain)),
        minimal_sharpness=advice.minimal_sharpness,
        balanced_sharpness=advice.balanced_sharpness,
        settles=advice.settles or (full and problem.has_minimizer),
        bounded=full and not chosen.weight_decay and problem.has_minimizer and not chosen.adaptive,
        passing=chosen.adaptive,
        remarks=advice.remarks,
    )


def judge(prediction: Prediction, run: Run, end: Sharpness) -> Verdict:
    """Compare a finished run, and the sharpness where it ended, with the prediction."""
    sharp = f"sharpness {end.value:.4g}"
    if prediction.passing or math.isnan(prediction.critical_learning_rate):
        outcome = f"training {run.status} after {run.steps} steps, at {sharp}"
        return Verdict(None, f"{outcome}; nothing was predicted that a run could refute")
    if run.status != "converged":
        outcome = f"training {run.status} after {run.steps} steps, at {sharp}"
        if not prediction.can_settle:
            return Verdict(True, outcome)
        advice = "pass more steps" if run.status == "stopped" else "pass a smaller learning rate"
        return Verdict(None, f"{outcome}; being able to settle is no promise, {advice}")
    outcome = f"training settled after {run.steps} steps at {sharp}"
    if not prediction.can_settle:
        return Verdict(False, outcome)
    if not prediction.bounded:
        return Verdict(True, outcome)
    limit, least = prediction.largest_stable_sharpness, prediction.minimal_sharpness
    if end.value - end.error > limit:
        return Verdict(False, f"{outcome}, above the largest stable one, {limit:.4g}")
    if end.value + end.error < least * (1 - FLATTEST_MARGIN):
        return Verdict(False, f"{outcome}, below S_min = {least:.4g}")
    return Verdict(True, f"{outcome}, {end.value / limit:.0%} of the largest stable one")
