"""The statements of the papers, executable: bounds, exact values, certificates."""

from importlib import import_module
from typing import TYPE_CHECKING

from deeplin.theory.architecture import stability_limit
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
from deeplin.theory.benign_overfitting.ridgeless import RidgelessRisk, ridgeless_risk
from deeplin.theory.critical_rate import critical_learning_rate, layerwise_sharpness
from deeplin.theory.minimizers import (
    MinimalSharpness,
    MinimalTrace,
    balanced_sharpness,
    minimal_sharpness,
    minimal_trace,
    minimizer_lower_bound,
)
from deeplin.theory.orbits import Orbit, balanced_orbit, mode_orbits
from deeplin.theory.orbits.network import NetworkOrbit, network_orbit
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
from deeplin.theory.stochastic import (
    MinimalStochasticSharpness,
    StochasticSharpness,
    minimal_stochastic_sharpness,
    stochastic_sharpness,
    stochastic_sharpness_bound,
)
from deeplin.theory.talk import logistic_descent
from deeplin.theory.weight_decay import (
    CriticalWeightDecay,
    DecayedMinimum,
    critical_weight_decay,
    decayed_minimum,
)
from deeplin.theory.white_inputs import TwoLayerFlow, balanced_mode, time_to_reach, two_layer_flow

if TYPE_CHECKING:
    from deeplin.theory.certificate import Certificate, certify

__all__ = [
    "STATEMENTS",
    "Certificate",
    "Check",
    "Constants",
    "CriticalWeightDecay",
    "DecayedMinimum",
    "EffectiveRanks",
    "MinimalSharpness",
    "MinimalStochasticSharpness",
    "MinimalTrace",
    "NetworkOrbit",
    "NotApplicable",
    "Orbit",
    "RidgelessRisk",
    "RiskBound",
    "RiskSplit",
    "Statement",
    "StochasticSharpness",
    "TwoLayerFlow",
    "admissible_range",
    "balanced_mode",
    "balanced_orbit",
    "balanced_sharpness",
    "certify",
    "conditional_variance",
    "critical_learning_rate",
    "critical_weight_decay",
    "decayed_minimum",
    "effective_index",
    "effective_ranks",
    "initialization_scale",
    "interpolation_bound",
    "layerwise_sharpness",
    "log_failure_probability",
    "logistic_descent",
    "lojasiewicz_constant",
    "minimal_sharpness",
    "minimal_stochastic_sharpness",
    "minimal_trace",
    "minimizer_lower_bound",
    "minimum_norm_interpolant",
    "mode_orbits",
    "network_orbit",
    "noise_scale",
    "product_bounds",
    "product_bounds_frequency",
    "random_start_bound",
    "residual_constants",
    "residual_displacement",
    "ridgeless_risk",
    "risk_split",
    "smallest_admissible_depth",
    "spike_bound",
    "stability_limit",
    "statement",
    "stochastic_sharpness",
    "stochastic_sharpness_bound",
    "time_to_reach",
    "two_layer_flow",
]


_HOMES = {
    "Certificate": "deeplin.theory.certificate",
    "certify": "deeplin.theory.certificate",
    "CriticalRate": "deeplin.training",
    "empirical_critical_rate": "deeplin.training",
}
"""What is imported when asked for: certificates are tables (pandas takes a third of a second), and
measuring a critical rate trains, so it moved to `deeplin.training`."""


def __getattr__(name: str):
    """Import what is asked for."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'deeplin.theory' has no attribute {name!r}")
