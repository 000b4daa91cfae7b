"""The statements of the papers, executable: bounds, exact values, certificates."""

from importlib import import_module

from deeplin.theory.benign_overfitting import (
    RiskBound,
    RiskSplit,
    conditional_variance,
    interpolation_bound,
    minimum_norm_interpolant,
    random_start_bound,
    risk_split,
    spike_bound,
)
from deeplin.theory.benign_overfitting.effective_ranks import (
    EffectiveRanks,
    effective_index,
    effective_ranks,
)
from deeplin.theory.benign_overfitting.interpolation import Constants
from deeplin.theory.certificate import Certificate, certify
from deeplin.theory.minimizers import (
    MinimalSharpness,
    balanced_sharpness,
    critical_learning_rate,
    minimal_sharpness,
    minimizer_lower_bound,
)
from deeplin.theory.registry import STATEMENTS, Check, NotApplicable, Statement, statement
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
from deeplin.theory.talk import logistic_descent

__all__ = [
    "STATEMENTS",
    "Certificate",
    "Check",
    "Constants",
    "EffectiveRanks",
    "MinimalSharpness",
    "NotApplicable",
    "RiskBound",
    "RiskSplit",
    "Statement",
    "admissible_range",
    "balanced_sharpness",
    "certify",
    "conditional_variance",
    "critical_learning_rate",
    "effective_index",
    "effective_ranks",
    "initialization_scale",
    "interpolation_bound",
    "log_failure_probability",
    "logistic_descent",
    "lojasiewicz_constant",
    "minimal_sharpness",
    "minimizer_lower_bound",
    "minimum_norm_interpolant",
    "noise_scale",
    "product_bounds",
    "product_bounds_frequency",
    "random_start_bound",
    "residual_constants",
    "residual_displacement",
    "risk_split",
    "smallest_admissible_depth",
    "spike_bound",
    "statement",
]


def __getattr__(name: str):
    """Names that moved: measuring a critical rate trains, so it belongs to `deeplin.training`."""
    if name in ("CriticalRate", "empirical_critical_rate"):
        return getattr(import_module("deeplin.training"), name)
    raise AttributeError(f"module 'deeplin.theory' has no attribute {name!r}")
