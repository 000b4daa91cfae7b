"""What the theory predicts about a training run before it starts, and whether it came true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deeplin.dynamics import Run
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.sharpness import Sharpness
from deeplin.theory.minimizers import balanced_sharpness, minimal_sharpness

FLATTEST_MARGIN = 1e-6
"""Relative slack of S ≥ S_min at a run that ends near a minimiser, not in it."""


@dataclass(frozen=True)
class Prediction:
    """Can descent settle at this learning rate, and how sharp is it where it does? (FM-crit)"""

    learning_rate: float
    largest_stable_sharpness: float
    """(2 + 2β)/η: sharper minimisers repel descent."""
    minimal_sharpness: float | None
    """S_min (X-2); known for one target."""
    balanced_sharpness: float
    """S_bal (X-3): where small initialisations end."""

    @property
    def can_settle(self) -> bool | None:
        """Whether any minimiser is stable; None where S_min is not known."""
        if self.minimal_sharpness is None:
            return None
        return self.minimal_sharpness <= self.largest_stable_sharpness

    @property
    def critical_learning_rate(self) -> float | None:
        """The learning rate above which no minimiser is stable."""
        if self.minimal_sharpness is None:
            return None
        return self.learning_rate * self.largest_stable_sharpness / self.minimal_sharpness

    def __str__(self) -> str:
        limit = f"{self.largest_stable_sharpness:.4g}"
        if self.minimal_sharpness is None:
            return f"where descent settles, the sharpness is at most 2/η = {limit}"
        critical = f"the critical rate {self.critical_learning_rate:.4g} (2/S_min)"
        if not self.can_settle:
            return f"η = {self.learning_rate:.4g} is above {critical}: descent cannot settle"
        return (
            f"η = {self.learning_rate:.4g} is below {critical}: descent can settle, at a sharpness "
            f"between S_min = {self.minimal_sharpness:.4g} and 2/η = {limit}"
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
    problem: Problem, network: Network, learning_rate: float, momentum: float = 0.0
) -> Prediction:
    """What FM-crit says about descent from this network at this learning rate.

    ```python
    import deeplin as dl, jax, numpy as np
    from deeplin.training.prediction import predict
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X @ np.ones(5))
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.3)
    assert not predict(problem, net, learning_rate=10.0).can_settle
    ```
    """
    L = network.depth
    readout: Any = None if network.readout is None else np.asarray(network.readout)
    single = problem.outputs == 1
    return Prediction(
        learning_rate=learning_rate,
        largest_stable_sharpness=(2 + 2 * momentum) / learning_rate,
        minimal_sharpness=minimal_sharpness(problem, L, readout).exact if single else None,
        balanced_sharpness=(balanced_sharpness(problem, L, readout if single else None)),
    )


def judge(prediction: Prediction, run: Run, end: Sharpness) -> Verdict:
    """Compare a finished run, and the sharpness where it ended, with the prediction."""
    sharp = f"sharpness {end.value:.4g}"
    if run.status != "converged":
        outcome = f"descent {run.status} after {run.steps} steps, at {sharp}"
        if prediction.can_settle is False:
            return Verdict(True, outcome)
        advice = "pass more steps" if run.status == "stopped" else "pass a smaller learning rate"
        return Verdict(None, f"{outcome}; being able to settle is no promise, {advice}")
    outcome = f"descent settled after {run.steps} steps at {sharp}"
    if prediction.can_settle is False:
        return Verdict(False, outcome)
    limit, least = prediction.largest_stable_sharpness, prediction.minimal_sharpness or 0.0
    if end.value - end.error > limit:
        return Verdict(False, f"{outcome}, above 2/η = {limit:.4g}")
    if end.value + end.error < least * (1 - FLATTEST_MARGIN):
        return Verdict(False, f"{outcome}, below S_min = {least:.4g}")
    return Verdict(True, f"{outcome}, {end.value / limit:.0%} of 2/η")
