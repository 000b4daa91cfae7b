"""Networks: weights, products, risk, gradients, initialisations, activations."""

from deeplin.networks import initialize, products
from deeplin.networks.activations import ACTIVATIONS
from deeplin.networks.network import Network, stack
from deeplin.networks.risk import (
    check_fits,
    check_loss,
    data_risk,
    distance_to_optimum,
    explained,
    gap_and_gradient,
    landscape,
    linear_gradient,
    linear_risk,
)
from deeplin.networks.trajectory import Trajectory
from deeplin.networks.trees import Layout

__all__ = [
    "ACTIVATIONS",
    "Layout",
    "Network",
    "Trajectory",
    "check_fits",
    "check_loss",
    "data_risk",
    "distance_to_optimum",
    "explained",
    "gap_and_gradient",
    "initialize",
    "landscape",
    "linear_gradient",
    "linear_risk",
    "products",
    "stack",
]
