"""Networks: weights, products, risk, gradients, initializations, activations."""

from deeplin.networks import initialize, products
from deeplin.networks.network import (
    ACTIVATIONS,
    Layout,
    Loss,
    Network,
    Trajectory,
    check_fits,
    check_pair,
    data_risk,
    distance_to_optimum,
    explain_loss_errors,
    gap_and_gradient,
    host_arrays,
    in_float64,
    linear_gradient,
    linear_risk,
    risk_and_data,
    stack,
)

__all__ = [
    "ACTIVATIONS",
    "Layout",
    "Loss",
    "Network",
    "Trajectory",
    "check_fits",
    "check_pair",
    "data_risk",
    "distance_to_optimum",
    "explain_loss_errors",
    "gap_and_gradient",
    "host_arrays",
    "in_float64",
    "initialize",
    "linear_gradient",
    "linear_risk",
    "products",
    "risk_and_data",
    "stack",
]
