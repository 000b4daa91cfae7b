"""What a sharpness computation returns: the eigenvalue with its evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer, Shaped


@dataclass(frozen=True)
class Sharpness:
    """An extreme eigenvalue of the Hessian (FM-sharp) with a bound of its error.

    For a batch of networks `value`, `error`, `converged` and `products` are arrays with one entry
    for each network, and `vector` has one row for each.
    """

    value: float | Float[np.ndarray, " batch"]
    """The eigenvalue: algebraically the largest, or the smallest where that was asked for."""
    error: float | Float[np.ndarray, " batch"]
    """The true eigenvalue is within this distance of `value`, rounding included."""
    method: str | Shaped[np.ndarray, " batch"]
    """`exact`, `lanczos`, `dense` or `power`; an array if the networks of a batch differ."""
    converged: bool | Bool[np.ndarray, " batch"]
    """Whether `error` is within the tolerance."""
    vector: np.ndarray | None = field(default=None, repr=False)
    """A unit eigenvector over the flattened parameters, where the method finds one."""
    products: int | Integer[np.ndarray, " batch"] = 0
    """Hessian-vector products used."""


class Tracked(NamedTuple):
    """Sharpness with its evidence, for each network (and each record, along a trajectory)."""

    value: np.ndarray
    """Rayleigh quotient: never above the largest eigenvalue."""
    error: np.ndarray
    """There is an eigenvalue within this distance (the residual ‖Hv − θv‖, and rounding)."""
    products: np.ndarray
    """Hessian-vector products used."""


@dataclass(frozen=True)
class HessianSpectrum:
    """The largest eigenvalues of Hessians; leading axes for batch (and records) where there are."""

    values: Float[np.ndarray, "*batch count"]
    """Eigenvalues, largest first."""
    errors: Float[np.ndarray, "*batch count"]
    """Each value is within this distance of the true one, rounding included."""
    vectors: Float[np.ndarray, "*batch count N"] = field(repr=False)
    """Unit eigenvectors over the flattened parameters; NaN where zero has none of its own."""
    alignment: Float[np.ndarray, "*batch count"] = field(repr=False)
    """⟨∇R, v⟩²/‖∇R‖² for each vector: how much of the gradient points along it."""
    trace: float | Float[np.ndarray, "*batch"] | None = field(repr=False)
    """The sum of all eigenvalues; None where the matrix is too large to know."""
    layers: Float[np.ndarray, "*batch L"] | None = field(repr=False)
    """The largest eigenvalue of each layer's own block of the Hessian; None likewise."""
    method: str
    """`exact` (X-1, at minimisers), `dense` or `lanczos`."""

    def reshaped(self, *axes: int) -> HessianSpectrum:
        """The same with other leading axes."""
        return self._each(lambda array: array.reshape(*axes, *array.shape[1:]))

    def member(self, index: Any) -> HessianSpectrum:
        """That of one network of the batch, or of some."""
        return self._each(lambda array: np.asarray(array[index]))

    def _each(self, function: Callable[[np.ndarray], np.ndarray]) -> HessianSpectrum:
        names = ("values", "errors", "vectors", "alignment", "trace", "layers")
        arrays = {name: getattr(self, name) for name in names}
        return replace(self, **{n: a if a is None else function(a) for n, a in arrays.items()})
