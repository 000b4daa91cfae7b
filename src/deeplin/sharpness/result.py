"""What a sharpness computation returns: the eigenvalue with its evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sharpness:
    """An extreme eigenvalue of the Hessian (FM-sharp) with a bound of its error.

    For a batch of networks `value`, `error`, `converged` and `products` are arrays with one entry
    for each network, and `vector` has one row for each.
    """

    value: Any
    """The eigenvalue: algebraically the largest, or the smallest where that was asked for."""
    error: Any
    """The true eigenvalue is within this distance of `value`, rounding included."""
    method: Any
    """`exact`, `lanczos`, `dense` or `power`; an array if the networks of a batch differ."""
    converged: Any
    """Whether `error` is within the tolerance."""
    vector: np.ndarray | None = field(default=None, repr=False)
    """A unit eigenvector over the flattened parameters, where the method finds one."""
    products: Any = 0
    """Hessian-vector products used."""
