"""Quantities along a trajectory in NumPy: a slider that changes a shape must not compile anything.

The same quantities as `deeplin.dynamics.measure`, which the tests hold against these.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from deeplin.networks import Network
from deeplin.problems import Problem


def against_optimum(problem: Problem, networks: Network) -> dict[str, np.ndarray]:
    """risk, gap and squared distance of linear networks with any leading axes (FM-L8)."""
    difference = product(networks) - problem.optimum.reshape(-1)
    gap = np.sum(difference * (difference @ problem.covariance), axis=-1)
    distance = np.sum(difference**2, axis=-1)
    return {"risk": gap + problem.minimal_risk, "gap": gap, "distance": distance}


def product(networks: Network) -> np.ndarray:
    """w = W_1ᵀ…W_Lᵀp of networks with one output and any leading axes, (…, d)."""
    layers = [np.asarray(weight) for weight in networks.weights]
    readout = np.ones(1) if networks.readout is None else np.asarray(networks.readout)
    vectors = np.broadcast_to(readout, (*layers[0].shape[:-2], readout.shape[-1]))
    for weight in reversed(layers):
        vectors = np.einsum("...ij,...i->...j", weight, vectors)
    return vectors


def of_layers(networks: Network) -> dict[str, np.ndarray]:
    """singular_values, layer_norms (…, L) and alignment (…, L−1) (FM-L2)."""
    layers = [np.asarray(weight) for weight in networks.weights]
    factors = [np.linalg.svd(weight, full_matrices=False) for weight in layers]
    columns = {
        "singular_values": np.stack([values[..., 0] for _, values, _ in factors], axis=-1),
        "layer_norms": np.stack([np.linalg.norm(w, axis=(-2, -1)) for w in layers], axis=-1),
    }
    if len(layers) > 1:
        columns["alignment"] = np.stack(
            [
                np.sum(upper[..., 0, :] * lower[..., :, 0], axis=-1) ** 2
                for (lower, _, _), (_, _, upper) in pairwise(factors)
            ],
            axis=-1,
        )
    return columns
