"""How flat a minimizer can be, and which learning rates that allows (FM Section 3, X-1 to X-3)."""

from deeplin.theory.minimizers.balanced import balanced_curvature, balanced_network
from deeplin.theory.minimizers.minimal_sharpness import (
    MinimalSharpness,
    balanced_sharpness,
    critical_learning_rate,
    largest_eigenvalue_of_update,
    minimal_sharpness,
    minimizer_lower_bound,
)

__all__ = [
    "MinimalSharpness",
    "balanced_curvature",
    "balanced_network",
    "balanced_sharpness",
    "critical_learning_rate",
    "largest_eigenvalue_of_update",
    "minimal_sharpness",
    "minimizer_lower_bound",
]
