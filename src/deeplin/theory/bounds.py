"""Bounds and constants of the papers' theorems and of the sharper versions of them."""

from deeplin.theory.benign_overfitting import (
    best_interpolant,
    degrees_of_freedom_bounds,
    flat_tail,
    interpolation_bound,
    noise_cost_bound,
    random_start_bound,
    spike_bound,
)
from deeplin.theory.brackets import sharpness_brackets
from deeplin.theory.critical_rate import (
    sam_sharpness_limit,
)
from deeplin.theory.minimizers import (
    minimizer_lower_bound,
)
from deeplin.theory.modes import (
    balanced_mode,
)
from deeplin.theory.residual_initialization import (
    admissible_range,
    certified_depth,
    draw_constants,
    least_margin,
    log_failure_probability,
    noise_scale,
    product_bounds,
    residual_constants,
    sharp_failure_probability,
    sharp_product_bounds,
    smallest_admissible_depth,
)
from deeplin.theory.small_initialization import (
    flow_end_bounds,
    initialization_scale,
    lojasiewicz_constant,
)
from deeplin.theory.stochastic import (
    stochastic_sharpness_bound,
)

__all__ = [
    "admissible_range",
    "balanced_mode",
    "best_interpolant",
    "certified_depth",
    "degrees_of_freedom_bounds",
    "draw_constants",
    "flat_tail",
    "flow_end_bounds",
    "initialization_scale",
    "interpolation_bound",
    "least_margin",
    "log_failure_probability",
    "lojasiewicz_constant",
    "minimizer_lower_bound",
    "noise_cost_bound",
    "noise_scale",
    "product_bounds",
    "random_start_bound",
    "residual_constants",
    "sam_sharpness_limit",
    "sharp_failure_probability",
    "sharp_product_bounds",
    "sharpness_brackets",
    "smallest_admissible_depth",
    "spike_bound",
    "stochastic_sharpness_bound",
]
