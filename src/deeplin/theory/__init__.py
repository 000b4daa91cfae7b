"""The statements of the papers, executable: bounds, exact values, certificates."""

from deeplin.theory.minimal_sharpness import (
    MinimalSharpness,
    balanced_sharpness,
    critical_learning_rate,
    minimal_sharpness,
    minimizer_lower_bound,
)

__all__ = [
    "MinimalSharpness",
    "balanced_sharpness",
    "critical_learning_rate",
    "minimal_sharpness",
    "minimizer_lower_bound",
]
