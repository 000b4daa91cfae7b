"""Results about deep linear networks as functions: bounds, exact values, laws."""

from deeplin.compatibility import moved
from deeplin.theory.adam import adam_critical_learning_rate
from deeplin.theory.architecture import stability_limit
from deeplin.theory.benign_overfitting import (
    FirstGuess,
    LowerRisk,
    RiskBound,
    RiskSplit,
    best_interpolant,
    conditional_variance,
    degrees_of_freedom_bounds,
    first_guess,
    guess_start,
    interpolation_bound,
    lower_risk_probability,
    minimum_norm_interpolant,
    noise_cost_bound,
    random_direction_gain,
    random_start_bound,
    risk_split,
    spike_bound,
)
from deeplin.theory.critical_rate import critical_learning_rate, layerwise_sharpness
from deeplin.theory.effective_rank import (
    EffectiveRanks,
    effective_index,
    effective_ranks,
)
from deeplin.theory.minimizers import (
    MinimalSharpness,
    MinimalTrace,
    balanced_sharpness,
    minimal_sharpness,
    minimal_trace,
    minimizer_lower_bound,
)
from deeplin.theory.network_orbits import NetworkOrbit, network_orbit
from deeplin.theory.orbits import Orbit, balanced_orbit, mode_orbits
from deeplin.theory.paths import parallel_sharpness
from deeplin.theory.residual_depth import (
    certified_depth,
    certified_gap,
    least_margin,
    sharp_failure_probability,
    sharp_product_bounds,
)
from deeplin.theory.residual_initialization import (
    DrawConstants,
    admissible_range,
    draw_constants,
    log_failure_probability,
    noise_scale,
    product_bounds,
    product_bounds_frequency,
    residual_constants,
    residual_displacement,
    smallest_admissible_depth,
)
from deeplin.theory.ridgeless import RidgelessRisk, double_descent, ridgeless_risk
from deeplin.theory.sam import sam_sharpness_limit
from deeplin.theory.sharpness_brackets import (
    SharpnessBrackets,
    sharpness_brackets,
    worst_sharpness_ratio,
)
from deeplin.theory.small_initialization import (
    FlowEndBounds,
    flow_end_bounds,
    initialization_scale,
    lojasiewicz_constant,
)
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
from deeplin.theory.wide_networks import Law, wide_law

__all__ = [
    "CriticalWeightDecay",
    "DecayedMinimum",
    "DrawConstants",
    "EffectiveRanks",
    "FirstGuess",
    "FlowEndBounds",
    "Law",
    "LowerRisk",
    "MinimalSharpness",
    "MinimalStochasticSharpness",
    "MinimalTrace",
    "NetworkOrbit",
    "Orbit",
    "RidgelessRisk",
    "RiskBound",
    "RiskSplit",
    "SharpnessBrackets",
    "StochasticSharpness",
    "TwoLayerFlow",
    "adam_critical_learning_rate",
    "admissible_range",
    "balanced_mode",
    "balanced_orbit",
    "balanced_sharpness",
    "best_interpolant",
    "certified_depth",
    "certified_gap",
    "conditional_variance",
    "critical_learning_rate",
    "critical_weight_decay",
    "decayed_minimum",
    "degrees_of_freedom_bounds",
    "double_descent",
    "draw_constants",
    "effective_index",
    "effective_ranks",
    "first_guess",
    "flow_end_bounds",
    "guess_start",
    "initialization_scale",
    "interpolation_bound",
    "layerwise_sharpness",
    "least_margin",
    "log_failure_probability",
    "logistic_descent",
    "lojasiewicz_constant",
    "lower_risk_probability",
    "minimal_sharpness",
    "minimal_stochastic_sharpness",
    "minimal_trace",
    "minimizer_lower_bound",
    "minimum_norm_interpolant",
    "mode_orbits",
    "network_orbit",
    "noise_cost_bound",
    "noise_scale",
    "parallel_sharpness",
    "product_bounds",
    "product_bounds_frequency",
    "random_direction_gain",
    "random_start_bound",
    "residual_constants",
    "residual_displacement",
    "ridgeless_risk",
    "risk_split",
    "sam_sharpness_limit",
    "sharp_failure_probability",
    "sharp_product_bounds",
    "sharpness_brackets",
    "smallest_admissible_depth",
    "spike_bound",
    "stability_limit",
    "stochastic_sharpness",
    "stochastic_sharpness_bound",
    "time_to_reach",
    "two_layer_flow",
    "wide_law",
    "worst_sharpness_ratio",
]

__getattr__ = moved("deeplin.theory")
