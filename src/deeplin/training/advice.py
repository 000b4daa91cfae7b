"""Which learning rate to use, for the optimizer and the loss that the user has.

One place for every job: `diagnose` prints it, `train` and the estimator use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import InputError, positive_number, whole_number
from deeplin.problems import Problem
from deeplin.theory import (
    balanced_sharpness,
    critical_learning_rate,
    decayed_minimum,
    minimal_sharpness,
    stability_limit,
    stochastic_sharpness,
    stochastic_sharpness_bound,
)
from deeplin.theory.minimizers import balanced_factors, balanced_network
from deeplin.theory.weight_decay import DecayedMinimum

REDUCTIONS = ("mean", "sum")
CAUTION = 0.5
"""Part of the largest stable rate that is advised: the way to the solution may be sharper."""
INTERPOLATED = 1e-16
"""R_min/R_0 up to which the data count as interpolated (residuals of 1e-8 of the targets)."""


@dataclass(frozen=True)
class Optimizer:
    """How the network is trained: what decides which learning rates are stable.

    The loss is ‖Y − XΘᵀ‖² summed over the targets, and over the samples (of a batch) their mean or
    their sum (`reduction`), with or without a factor ½, plus `weight_decay` · Σ_k‖W_k‖_F².
    """

    momentum: float = 0.0
    nesterov: bool = False
    batch_size: int | None = None
    weight_decay: float = 0.0
    reduction: str = "mean"
    half: bool = False

    def __post_init__(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise InputError(f"reduction is {self.reduction!r}; pass 'mean' or 'sum'.")
        positive_number("weight_decay", self.weight_decay, zero_allowed=True)
        if self.nesterov and not self.momentum:
            raise InputError("nesterov needs momentum; pass momentum between 0 and 1 with it.")
        if self.batch_size is not None:
            whole_number("batch_size", self.batch_size)

    def loss_factor(self, problem: Problem) -> float:
        """The loss (of a batch) without weight decay is this many times R, the mean without ½."""
        samples = self.batches(problem) or problem.samples
        return (samples if self.reduction == "sum" else 1) * (0.5 if self.half else 1.0)

    def batches(self, problem: Problem) -> int | None:
        """The batch size, or None where a batch is all samples."""
        full = self.batch_size is None or self.batch_size >= problem.samples
        return None if full else self.batch_size

    def settings(self, problem: Problem, key: Any = None) -> dict[str, Any]:
        """The keywords of `gradient_descent` on R that train as the user's optimizer does."""
        settings: dict[str, Any] = {
            "momentum": self.momentum,
            "nesterov": self.nesterov,
            "weight_decay": self.weight_decay / self.loss_factor(problem),
        }
        batch = self.batches(problem)
        return settings if batch is None else settings | {"batch_size": batch, "key": key}

    def __str__(self) -> str:
        kind = "full-batch gradient descent"
        if self.batch_size is not None:
            kind = f"gradient descent on batches of {self.batch_size}"
        if self.momentum:
            kind += f" with {'Nesterov ' if self.nesterov else ''}momentum {self.momentum:g}"
        half = "half " if self.half else ""
        loss = f"{half}the {'mean' if self.reduction == 'mean' else 'sum of'} squared error"
        loss = loss.replace("sum of squared error", "sum of squared errors")
        decay = f" plus {self.weight_decay:g}·Σ‖W‖²" if self.weight_decay else ""
        return f"{kind} on {loss}{'' if self.half else ' (no ½)'}{decay}"


@dataclass(frozen=True)
class Advice:
    """A learning rate to use, and the one above which nothing can settle."""

    depth: int
    learning_rate: float
    """Half of the largest rate of plain descent that is stable where small initializations end,
    times 1 − β with momentum."""
    critical_learning_rate: float
    """Above it no minimizer is stable (FM-crit, X-7, X-9, X-10)."""
    certain: bool = True
    """Whether no run settles above the critical rate. On batches it is that of the mean square,
    which rare excursions carry: a single run may settle above it."""
    settles: bool = True
    """Whether training can settle at a constant rate; on batches only where R_min = 0 (X-10)."""
    remarks: tuple[str, ...] = ()
    """What the user should know about this combination."""


def advise(
    problem: Problem,
    depth: int,
    optimizer: Optimizer | None = None,
    *,
    readout: ArrayLike | None = None,
) -> Advice:
    """The learning rate for a network of this depth, in the units of the user's loss.

    Small initializations end near the balanced minimizer, stable up to (2+2β)/S_bal (X-3); with
    weight decay at the one global minimizer, S_λ (X-9); on batches the second moment decides, S_B
    (X-10). Half of the rate that plain descent bears there is advised, and with momentum β the part
    1 − β of it: a push then moves the weights η/(1 − β) in all, and on the way to the solution
    the pace decides, not the stability at its end.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training import Optimizer, advise
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X @ np.ones(5))
    advice = advise(problem, depth=10, optimizer=Optimizer(momentum=0.9))
    assert advice.learning_rate < advice.critical_learning_rate
    ```
    """
    chosen = optimizer or Optimizer()
    factor = chosen.loss_factor(problem)
    decay = chosen.weight_decay / factor
    minimum = decayed_minimum(problem, depth, decay, readout) if decay > 0 else None
    plain, limit = stability_limit(), stability_limit(chosen.momentum, nesterov=chosen.nesterov)
    if minimum is None:
        stable = plain / balanced_sharpness(problem, depth, readout)
        critical = limit / minimal_sharpness(problem, depth, readout).exact
    else:
        stable, critical = plain / minimum.sharpness, limit / minimum.sharpness
    remarks = _about_decay(minimum)
    batch = chosen.batches(problem)
    settles = batch is None or (minimum is None and _interpolated(problem))
    if batch is not None:
        at_end = _on_batches(problem, depth, batch, minimum, readout)
        stable, remarks = plain / at_end.sharpness, (*remarks, *at_end.remarks)
        if settles and at_end.exact and not chosen.momentum:
            critical = critical_learning_rate(problem, depth, batch_size=batch)
    elif chosen.batch_size is not None and chosen.batch_size > problem.samples:
        remarks += (f"A batch of {chosen.batch_size} holds all {problem.samples} samples.",)
    rate = CAUTION * (1 - chosen.momentum) * stable
    return Advice(depth, rate / factor, critical / factor, batch is None, settles, remarks)


def _interpolated(problem: Problem) -> bool:
    return problem.minimal_risk <= INTERPOLATED * problem.target_moment


class _AtEnd(NamedTuple):
    """S_B where training on batches ends, or a bound of it, with what has to be said about it."""

    sharpness: float
    exact: bool
    remarks: tuple[str, ...]


def _on_batches(
    problem: Problem,
    depth: int,
    batch: int,
    minimum: DecayedMinimum | None,
    readout: ArrayLike | None,
) -> _AtEnd:
    """Exact for one output without weight decay and read-out (X-10), a bound for all others."""
    remarks: tuple[str, ...] = ()
    if minimum is not None or not _interpolated(problem):
        why = "With weight decay no minimum" if minimum is not None else "No linear map"
        remarks = (
            f"{why} fits these data exactly, so at a constant learning rate training on "
            "batches does not settle: it stays in a cloud about the solution that shrinks with the "
            "rate. Lower the rate towards the end.",
        )
    if problem.outputs == 1 and minimum is None and readout is None:
        end = balanced_network(problem, depth)
        at_end = stochastic_sharpness(problem, end, batch, linearized=not _interpolated(problem))
        return _AtEnd(at_end.value, True, remarks)
    if minimum is None:
        product = problem.optimum.reshape(problem.dimension, -1)
        fixed = None if readout is None else np.asarray(readout)
        end, decay = balanced_factors(product, depth, readout=fixed), 0.0
    else:
        end, decay = minimum.network, minimum.weight_decay
    bound = stochastic_sharpness_bound(problem, end, batch, weight_decay=decay)
    remarks += (
        "On batches the exact rates are known for one target without weight decay and read-out. "
        "Here the rate to use keeps the mean square stable by a bound (the sharpest single "
        "sample), and the critical rate is that of the full batch.",
    )
    return _AtEnd(bound, False, remarks)


def _about_decay(minimum: DecayedMinimum | None) -> tuple[str, ...]:
    if minimum is None:
        return ()
    if minimum.collapsed:
        return (
            "This weight decay is so strong that the best network is the zero network: nothing is "
            "learned. Use a smaller one.",
        )
    if not minimum.certified:
        return (
            "The learning rates are those of the best network found with this weight decay; with "
            "several targets and so strong a weight decay it is not proved to be the best.",
        )
    return ()
