"""Mini-batch descent: at which rates its second moment is stable (X-10)."""

from deeplin.theory.stochastic.sharpness import (
    MinimalStochasticSharpness,
    StochasticSharpness,
    minimal_stochastic_sharpness,
    stochastic_sharpness,
    stochastic_sharpness_bound,
)

__all__ = [
    "MinimalStochasticSharpness",
    "StochasticSharpness",
    "minimal_stochastic_sharpness",
    "stochastic_sharpness",
    "stochastic_sharpness_bound",
]
