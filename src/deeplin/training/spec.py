"""How a network is trained: optimizer and loss in the user's own units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deeplin.errors import InputError, positive_number, whole_number
from deeplin.problems import Problem

REDUCTIONS = ("mean", "sum")


@dataclass(frozen=True)
class TrainingSpec:
    """Optimizer and loss: what decides which learning rates are stable.

    The loss is ‖Y − XΘᵀ‖² summed over the targets, and over the samples (of a batch) their mean or
    their sum (`reduction`), with or without a factor ½, plus `weight_decay` · Σ_k‖W_k‖_F².

    ```python
    from deeplin.training import TrainingSpec
    assert "momentum 0.9" in str(TrainingSpec(momentum=0.9))
    ```
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

    def decay(self, problem: Problem) -> float:
        """λ of the objective R + λΣ‖W_k‖² that the loss is a multiple of."""
        return self.weight_decay / self.loss_factor(problem)

    def batches(self, problem: Problem) -> int | None:
        """The batch size, or None where a batch is all samples."""
        full = self.batch_size is None or self.batch_size >= problem.samples
        return None if full else self.batch_size

    def settings(self, problem: Problem, key: Any = None) -> dict[str, Any]:
        """The keywords of `gradient_descent` on R that train as this loss and optimizer do."""
        settings: dict[str, Any] = {
            "momentum": self.momentum,
            "nesterov": self.nesterov,
            "weight_decay": self.decay(problem),
        }
        batch = self.batches(problem)
        return settings if batch is None else settings | {"batch_size": batch, "key": key}

    @property
    def optimizer(self) -> str:
        """The optimizer without the loss, in words."""
        kind = "full-batch gradient descent"
        if self.batch_size is not None:
            kind = f"gradient descent on batches of {self.batch_size}"
        if self.momentum:
            kind += f" with {'Nesterov ' if self.nesterov else ''}momentum {self.momentum:g}"
        return kind

    @property
    def loss(self) -> str:
        """The loss in words."""
        error = "mean squared error" if self.reduction == "mean" else "sum of squared errors"
        decay = f" plus {self.weight_decay:g}·Σ‖W‖²" if self.weight_decay else ""
        return f"{'half ' if self.half else ''}the {error}{'' if self.half else ' (no ½)'}{decay}"

    def __str__(self) -> str:
        return f"{self.optimizer} on {self.loss}"
