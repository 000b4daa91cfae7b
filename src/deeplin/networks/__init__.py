"""Networks: weights, product, risk, gradients, initialisations, activations."""

from deeplin.networks import initialize
from deeplin.networks.activations import ACTIVATIONS
from deeplin.networks.network import (
    Network,
    backward_products,
    forward_products,
    stack,
)
from deeplin.networks.risk import (
    check_fits,
    data_risk,
    gap,
    landscape,
    linear_gradient,
    linear_risk,
)

__all__ = [
    "ACTIVATIONS",
    "Network",
    "backward_products",
    "check_fits",
    "data_risk",
    "forward_products",
    "gap",
    "initialize",
    "landscape",
    "linear_gradient",
    "linear_risk",
    "stack",
]
