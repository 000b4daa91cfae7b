"""The sharpness during training, in any training loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from deeplin.errors import InputError, positive_number, whole_number
from deeplin.hessian._sharpness import sharpness
from deeplin.hessian.torch_loss import TorchLoss, closure_parameters
from deeplin.networks.network import Loss

FAILURE_PROBABILITY = 1e-3
"""Probability with which one measured error is too small, a trade of certainty for products."""


class SharpnessMonitor:
    """Measure the sharpness every few steps of a training loop, from the eigenvector found last.

    Gradient descent with learning rate η is stable where λ_max ≤ 2/η, that is where `stability`,
    η·λ_max/2, is at most 1. Each measurement starts from the eigenvector of the one before, which
    takes about a dozen Hessian-vector products.

    Args:
        loss: a PyTorch closure without arguments that returns the loss, or a `TorchLoss`; or a
            JAX loss, a function of the parameters. Use the same data at every call (one fixed
            batch, or a loader).
        every: number of steps between measurements.
        log: called as `log(values, step)` after each measurement with a dictionary of numbers:
            `print`, `wandb.log`, or None.
        tolerance: requested error of λ_max, relative to it.
        max_products: largest number of Hessian-vector products of one measurement.

    The measurements are kept in `records`, a list of the dictionaries with their step.

    ```python
    import deeplin as dl, jax.numpy as jnp
    monitor = dl.SharpnessMonitor(lambda w: jnp.sum(w**4), every=10, log=None)
    w = jnp.array([1.0, 2.0])
    for step in range(30):
        monitor(step, 0.01, w)
        w = w - 0.01 * 4 * w**3
    [record["sharpness"] for record in monitor.records]
    ```
    """

    def __init__(
        self,
        loss: Loss | TorchLoss | Callable[[], Any],
        every: int = 50,
        log: Callable[[dict[str, float], int], Any] | None = print,
        *,
        tolerance: float = 0.01,
        max_products: int = 200,
    ):
        if not callable(loss):
            raise InputError(f"loss is a {type(loss).__name__}; pass a function or a TorchLoss.")
        if log is not None and not callable(log):
            raise InputError(f"log is a {type(log).__name__}; pass a function, or None.")
        self.loss: Any = loss
        self.log = log
        self.every = whole_number("every", every)
        self.tolerance = positive_number("tolerance", tolerance)
        self.max_products = whole_number("max_products", max_products)
        self.records: list[dict[str, float]] = []
        self._vector: Any = None
        self._parameters: Any = None

    def __call__(
        self, step: int, learning_rate: float, parameters: Any = None
    ) -> dict[str, float] | None:
        """Measure at this step if it is a multiple of `every`.

        Args:
            step: number of the step.
            learning_rate: the current η.
            parameters: the pytree of a JAX loss, or the module of a `TorchLoss`; a PyTorch closure
                needs none.

        Returns:
            The numbers `sharpness` (λ_max), `error` (a bound of its error), `stability` (η·λ_max/2)
            and `products`, or None at other steps.
        """
        if whole_number("step", step, minimum=0) % self.every:
            return None
        rate = positive_number("learning_rate", learning_rate, zero_allowed=True)
        loss, subject = self._subject(parameters)
        found = sharpness(
            loss,
            subject,
            method="lanczos",
            tolerance=self.tolerance,
            start=self._vector,
            max_products=self.max_products,
            failure_probability=FAILURE_PROBABILITY,
        )
        self._vector = found.vector
        values = {
            "sharpness": float(found.value),
            "error": float(found.error),
            "stability": rate * float(found.value) / 2,
            "products": int(found.products),
        }
        self.records.append({"step": step, **values})
        if self.log is not None:
            self.log(values, step)
        return values

    def _subject(self, parameters: Any) -> tuple[Any, Any]:
        """Return the loss, and the parameters or module at which it is differentiated."""
        if parameters is not None:
            return self.loss, parameters
        if isinstance(self.loss, TorchLoss):
            raise InputError("a TorchLoss needs its module; call monitor(step, rate, module).")
        if inspect.signature(self.loss).parameters:
            raise InputError(
                "the loss is a function of its parameters; call monitor(step, rate, parameters)."
            )
        if self._parameters is None:
            self._parameters = closure_parameters(self.loss)
        return (lambda _: self.loss()), self._parameters
