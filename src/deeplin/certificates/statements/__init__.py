"""Every statement of the papers and of the exact results, evaluated on a context."""

from deeplin.certificates.registry import CATALOGUE, STATEMENTS
from deeplin.certificates.statements import (
    benign_overfitting,
    exact,
    flat_minima,
    residual_start,
    small_start,
    wide_networks,
)

__all__ = [
    "STATEMENTS",
    "benign_overfitting",
    "exact",
    "flat_minima",
    "residual_start",
    "small_start",
    "wide_networks",
]

for _id in CATALOGUE:  # in the order in which certificates list them
    STATEMENTS[_id] = STATEMENTS.pop(_id)
