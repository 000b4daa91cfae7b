"""How a network is trained: optimizer and loss in the user's own units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from deeplin.errors import InputError, positive_number, whole_number
from deeplin.problems import Problem
from deeplin.problems.losses import Loss

REDUCTIONS = ("mean", "sum")
OPTIMIZERS = ("descent", "sam", "adam", "rmsprop")
ADAPTIVE = ("adam", "rmsprop")
"""Optimizers that divide by the root of a mean of squared gradients."""

LOSS_WORDS = {
    "squared": ("squared error", "squared errors"),
    "logistic": ("log-loss", "log-losses"),
    "softmax": ("log-loss", "log-losses"),
    "poisson": ("Poisson loss", "Poisson losses"),
    "huber": ("Huber loss", "Huber losses"),
}
"""What the loss of one sample is called, and that of several."""


@dataclass(frozen=True)
class TrainingSpec:
    """Optimizer and loss: what decides which learning rates are stable.

    The loss is ‖Y − XΘᵀ‖² summed over the targets (of classes the log-loss), and over the samples
    (of a batch) their mean or their sum (`reduction`), with or without a factor ½, plus
    `weight_decay` · Σ_k‖W_k‖_F².

    `optimizer` is "descent", "sam" (θ ← θ − η∇F(θ + ρ∇F(θ)), X-23), "adam" or "rmsprop" (`beta1`
    and `epsilon`, which stands outside the root; X-24).

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
    optimizer: str = "descent"
    rho: float = 0.05
    beta1: float = 0.9
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise InputError(f"reduction is {self.reduction!r}; pass 'mean' or 'sum'.")
        if self.optimizer not in OPTIMIZERS:
            raise InputError(
                f"optimizer is {self.optimizer!r}; pass one of {', '.join(OPTIMIZERS)}."
            )
        positive_number("weight_decay", self.weight_decay, zero_allowed=True)
        positive_number("rho", self.rho, zero_allowed=True)
        positive_number("epsilon", self.epsilon)
        if not 0 <= positive_number("beta1", self.beta1, zero_allowed=True) < 1:
            raise InputError(f"beta1 is {self.beta1:g}; pass a number from 0 to below 1.")
        if self.nesterov and not self.momentum:
            raise InputError("nesterov needs momentum; pass momentum between 0 and 1 with it.")
        if self.momentum and self.adaptive:
            raise InputError(f"{self.optimizer} takes no momentum; pass momentum=0.")
        if self.batch_size is not None:
            whole_number("batch_size", self.batch_size)
            if self.optimizer == "sam":
                raise InputError("SAM on batches is not covered; pass batch_size=None.")

    @property
    def adaptive(self) -> bool:
        """Whether it is Adam or RMSProp."""
        return self.optimizer in ADAPTIVE

    def loss_factor(self, problem: Problem) -> float:
        """The loss (of a batch) without weight decay is this many times R, the mean without ½."""
        if self.half and problem.classes is not None:
            raise InputError("half is for squared errors; the log-loss has no factor ½.")
        samples = self.batches(problem) or problem.samples
        return (samples if self.reduction == "sum" else 1) * (0.5 if self.half else 1.0)

    def rate_factor(self, problem: Problem) -> float:
        """A rate for the loss is this many times smaller than on R; Adam's do not depend on it."""
        return 1.0 if self.adaptive else self.loss_factor(problem)

    def decay(self, problem: Problem) -> float:
        """λ of the objective R + λΣ‖W_k‖² that the loss is a multiple of."""
        return self.weight_decay / self.loss_factor(problem)

    def radius(self, problem: Problem) -> float:
        """ρ of SAM on R, 0 for other optimizers."""
        return self.rho * self.loss_factor(problem) if self.optimizer == "sam" else 0.0

    def epsilon_on_risk(self, problem: Problem) -> float:
        """ε of Adam on R."""
        return self.epsilon / self.loss_factor(problem)

    def batches(self, problem: Problem) -> int | None:
        """The batch size, or None where a batch is all samples."""
        full = self.batch_size is None or self.batch_size >= problem.samples
        return None if full else self.batch_size

    def settings(self, problem: Problem, key: Any = None) -> dict[str, Any]:
        """The keywords of `gradient_descent` on R that train as this loss and optimizer do."""
        decay = self.decay(problem)
        settings: dict[str, Any] = {"weight_decay": decay}
        if self.optimizer == "descent":
            settings |= {"momentum": self.momentum, "nesterov": self.nesterov}
        elif self.optimizer == "sam":
            made = _sam(self.radius(problem), decay, self.momentum, self.nesterov)
            settings |= {"optimizer": made}
        else:
            beta1 = self.beta1 if self.optimizer == "adam" else None
            settings |= {"optimizer": _adaptive(beta1, self.epsilon_on_risk(problem))}
        batch = self.batches(problem)
        return settings if batch is None else settings | {"batch_size": batch, "key": key}

    def described(self, loss: Loss = "squared") -> str:
        """Optimizer and loss in words."""
        kind = {"descent": "gradient descent", "sam": f"SAM (ρ = {self.rho:g})"}.get(
            self.optimizer, "RMSProp" if self.optimizer == "rmsprop" else "Adam"
        )
        batches = f"{kind} on batches of {self.batch_size}"
        kind = f"full-batch {kind}" if self.batch_size is None else batches
        if self.momentum:
            kind += f" with {'Nesterov ' if self.nesterov else ''}momentum {self.momentum:g}"
        one, many = LOSS_WORDS.get(loss if isinstance(loss, str) else "", ("loss", "losses"))
        error = f"mean {one}" if self.reduction == "mean" else f"sum of {many}"
        factor = "half the" if self.half else "the"
        unit = " (no ½)" if loss == "squared" and not self.half else ""
        decay = f" plus {self.weight_decay:g}·Σ‖W‖²" if self.weight_decay else ""
        return f"{kind} on {factor} {error}{unit}{decay}"

    def __str__(self) -> str:
        return self.described()


@lru_cache  # one object for equal settings: descent compiles anew for each
def _sam(radius: float, decay: float, momentum: float, nesterov: bool) -> Any:
    """From a rate: descent along the gradient of R + λΣ‖W‖² at θ + ρ∇ instead of at θ."""
    import jax
    import optax

    def ascended(gradient, state, params, *, grad_fn, **extra):
        away = jax.tree.map(lambda w, g: w + radius * g, params, gradient)
        return jax.tree.map(lambda g, w: g + 2 * decay * w, grad_fn(away), away), state

    init = optax.identity().init
    first = optax.GradientTransformationExtraArgs(init, ascended)  # pyright: ignore
    return lambda rate: optax.chain(first, optax.sgd(rate, momentum or None, nesterov))


@lru_cache
def _adaptive(beta1: float | None, epsilon: float) -> Any:
    """From a rate: Adam, or RMSProp without β₁."""
    import optax

    if beta1 is None:
        return lambda rate: optax.rmsprop(rate, 0.99, epsilon, eps_in_sqrt=False)
    return lambda rate: optax.adam(rate, b1=beta1, eps=epsilon)
