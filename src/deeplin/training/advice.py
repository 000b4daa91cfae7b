"""Which learning rate to use, for the optimizer and the loss that the user has.

One place for every job: `diagnose` prints it, `train` and the estimator use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deeplin.checks import InputError, positive_number, whole_number
from deeplin.problems import Problem
from deeplin.theory import (
    balanced_sharpness,
    critical_learning_rate,
    decayed_minimum,
    stability_limit,
    stochastic_sharpness,
)
from deeplin.theory.minimizers import balanced_network
from deeplin.theory.weight_decay import DecayedMinimum

REDUCTIONS = ("mean", "sum")
CAUTION = 0.5
"""Part of the largest stable rate that is advised: the way to the solution may be sharper."""
INTERPOLATED = 1e-16
"""R_min/R_0 up to which the data count as interpolated (residuals of 1e-8 of the targets)."""


@dataclass(frozen=True)
class Optimizer:
    """How the network is trained: what decides which learning rates are stable.

    The loss is ‖Y − XΘᵀ‖² summed over the targets, and over the samples their mean or their sum
    (`reduction`), with or without a factor ½, plus `weight_decay` · Σ_k‖W_k‖_F².
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
        if self.batch_size is not None:
            whole_number("batch_size", self.batch_size)

    def loss_factor(self, problem: Problem) -> float:
        """The loss without weight decay is this many times R, the mean without ½."""
        return (problem.samples if self.reduction == "sum" else 1) * (0.5 if self.half else 1.0)

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
    problem: Problem, depth: int, optimizer: Optimizer | None = None, *, readout: Any = None
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
    plain, limit = stability_limit(), stability_limit(chosen.momentum, nesterov=chosen.nesterov)
    batch, decay = chosen.batches(problem), chosen.weight_decay / factor
    if batch is not None:
        stable, critical, remarks = _on_batches(problem, depth, chosen, batch, readout)
    elif decay > 0:
        minimum = decayed_minimum(problem, depth, decay, readout)
        stable, critical = plain / minimum.sharpness, limit / minimum.sharpness
        remarks = _about_decay(minimum)
    else:
        stable = plain / balanced_sharpness(problem, depth, readout)
        critical = critical_learning_rate(
            problem, depth, readout, momentum=chosen.momentum, nesterov=chosen.nesterov
        )
        remarks = ()
    settles = batch is None or _interpolated(problem)
    rate = CAUTION * (1 - chosen.momentum) * stable
    return Advice(depth, rate / factor, critical / factor, batch is None, settles, remarks)


def _interpolated(problem: Problem) -> bool:
    return problem.minimal_risk <= INTERPOLATED * problem.target_moment


def _on_batches(problem: Problem, depth: int, chosen: Optimizer, batch: int, readout: Any):
    """Stable and critical rate on batches, with what has to be said about them."""
    if chosen.weight_decay or chosen.nesterov or readout is not None:
        raise InputError(
            "the stable learning rate on batches is known without weight decay, Nesterov momentum "
            "or a read-out; leave these out, or leave out batch_size."
        )
    interpolates = _interpolated(problem)
    end = balanced_network(problem, depth)
    at_end = stochastic_sharpness(problem, end, batch, linearized=not interpolates)
    remarks: tuple[str, ...] = ()
    if not interpolates:
        remarks = (
            "No linear map fits these data exactly, so at a constant learning rate training on "
            "batches does not settle: it stays in a cloud about the solution that shrinks with the "
            "rate. Lower the rate towards the end.",
        )
    exact = interpolates and not chosen.momentum
    critical = critical_learning_rate(
        problem, depth, momentum=chosen.momentum, batch_size=batch if exact else None
    )
    return at_end.critical_learning_rate, critical, remarks


def _about_decay(minimum: DecayedMinimum) -> tuple[str, ...]:
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
