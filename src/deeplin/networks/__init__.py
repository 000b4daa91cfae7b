"""Networks: weights, products, risk, gradients, initializations, activations."""

from deeplin.networks import initialize, products
from deeplin.networks.network import ACTIVATIONS, Network, Trajectory, stack

__all__ = ["ACTIVATIONS", "Network", "Trajectory", "initialize", "products", "stack"]
