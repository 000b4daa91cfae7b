"""How flat a minimizer can be (FM Section 3, X-1 to X-3, X-7, X-8)."""

from deeplin.theory.minimizers.balanced import (
    balanced_factors,
    balanced_network,
    balanced_sharpness,
)
from deeplin.theory.minimizers.minimal_sharpness import (
    MinimalSharpness,
    minimal_sharpness,
    minimizer_lower_bound,
)
from deeplin.theory.minimizers.trace import MinimalTrace, minimal_trace

__all__ = [
    "MinimalSharpness",
    "MinimalTrace",
    "balanced_factors",
    "balanced_network",
    "balanced_sharpness",
    "minimal_sharpness",
    "minimal_trace",
    "minimizer_lower_bound",
]
