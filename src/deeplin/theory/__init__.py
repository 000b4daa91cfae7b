"""Results about deep linear networks: exact values, laws, and in `bounds` those of the papers."""

from deeplin.dynamics.optimizer import (
    stability_limit,
)
from deeplin.theory import bounds
from deeplin.theory._added_risk import added_risk
from deeplin.theory._learning_coefficient import learning_coefficient
from deeplin.theory.balanced import balanced_sharpness
from deeplin.theory.benign_overfitting import (
    Constants,
    effective_ranks,
    risk_split,
)
from deeplin.theory.brackets import worst_sharpness_ratio
from deeplin.theory.critical_rate import (
    adam_critical_learning_rate,
    critical_learning_rate,
    layerwise_sharpness,
    logistic_descent,
    parallel_sharpness,
)
from deeplin.theory.least_trace import minimal_trace
from deeplin.theory.minimizers import (
    minimal_sharpness,
)
from deeplin.theory.modes import (
    balanced_orbit,
    first_doubling,
    time_to_reach,
    two_layer_flow,
)
from deeplin.theory.ridgeless import (
    double_descent,
    ridgeless_risk,
)
from deeplin.theory.stochastic import (
    minimal_stochastic_sharpness,
    stochastic_sharpness,
)
from deeplin.theory.weight_decay import (
    critical_weight_decay,
    decayed_minimum,
)
from deeplin.theory.wide_networks import (
    wide_law,
)

__all__ = [
    "Constants",
    "adam_critical_learning_rate",
    "added_risk",
    "balanced_orbit",
    "balanced_sharpness",
    "bounds",
    "critical_learning_rate",
    "critical_weight_decay",
    "decayed_minimum",
    "double_descent",
    "effective_ranks",
    "first_doubling",
    "layerwise_sharpness",
    "learning_coefficient",
    "logistic_descent",
    "minimal_sharpness",
    "minimal_stochastic_sharpness",
    "minimal_trace",
    "parallel_sharpness",
    "ridgeless_risk",
    "risk_split",
    "stability_limit",
    "stochastic_sharpness",
    "time_to_reach",
    "two_layer_flow",
    "wide_law",
    "worst_sharpness_ratio",
]
