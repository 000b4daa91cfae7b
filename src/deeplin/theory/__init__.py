"""The statements of the papers, executable: bounds, exact values, certificates."""

from deeplin.theory.certificate import Certificate, certify
from deeplin.theory.logistic import logistic_descent
from deeplin.theory.minimal_sharpness import (
    MinimalSharpness,
    balanced_sharpness,
    critical_learning_rate,
    minimal_sharpness,
    minimizer_lower_bound,
)
from deeplin.theory.residual_initialization import (
    admissible_range,
    log_failure_probability,
    noise_scale,
    product_bounds,
    product_bounds_frequency,
    residual_constants,
    residual_displacement,
    smallest_admissible_depth,
)
from deeplin.theory.small_initialization import initialization_scale, lojasiewicz_constant
from deeplin.theory.statements import STATEMENTS, Check, NotApplicable, Statement, statement

__all__ = [
    "STATEMENTS",
    "Certificate",
    "Check",
    "MinimalSharpness",
    "NotApplicable",
    "Statement",
    "admissible_range",
    "balanced_sharpness",
    "certify",
    "critical_learning_rate",
    "initialization_scale",
    "log_failure_probability",
    "logistic_descent",
    "lojasiewicz_constant",
    "minimal_sharpness",
    "minimizer_lower_bound",
    "noise_scale",
    "product_bounds",
    "product_bounds_frequency",
    "residual_constants",
    "residual_displacement",
    "smallest_admissible_depth",
    "statement",
]
