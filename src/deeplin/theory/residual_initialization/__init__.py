"""Gradient flow from a residual initialization (FM Section 5)."""

from deeplin.theory.residual_initialization.formulas import (
    Admissible,
    Frequency,
    ProductBounds,
    ResidualConstants,
    admissible_range,
    least_failure_u,
    log_failure_probability,
    noise_scale,
    prefix_singular_values,
    product_bounds,
    product_bounds_frequency,
    residual_constants,
    residual_displacement,
    residual_noise,
    smallest_admissible_depth,
    suffix_singular_values,
)

__all__ = [
    "Admissible",
    "Frequency",
    "ProductBounds",
    "ResidualConstants",
    "admissible_range",
    "least_failure_u",
    "log_failure_probability",
    "noise_scale",
    "prefix_singular_values",
    "product_bounds",
    "product_bounds_frequency",
    "residual_constants",
    "residual_displacement",
    "residual_noise",
    "smallest_admissible_depth",
    "suffix_singular_values",
]
