"""The tangent kernel of linear networks, and how far it moves in training."""

from __future__ import annotations

from typing import Any

import numpy as np

from deeplin.checks import InputError
from deeplin.networks import Network, products
from deeplin.problems import Problem
from deeplin.sharpness.exact import Factors, host_arrays


def tangent_kernel(problem: Problem, networks: Network) -> np.ndarray:
    """The tangent kernel of linear networks on the data, (…, r·q, r·q).

    K = Σ_k (B_kᵀB_k) ⊗ (V_kᵀV_k), with Σ̂ = CCᵀ and B_k = W_{k−1}…W_1C: the n·q×n·q kernel
    ⟨∇f_i(x_a), ∇f_j(x_b)⟩ divided by n, in the singular basis of the data, where it is not
    zero. Any leading axes: `tangent_kernel(problem, run.trajectory)` gives it at every record.

    ```python
    import deeplin as dl, jax, numpy as np
    from deeplin.sharpness import tangent_kernel
    X = np.random.default_rng(0).normal(size=(50, 5))
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    assert tangent_kernel(dl.Problem.from_data(X, X[:, 0]), net).shape == (5, 5)
    ```
    """
    if networks.activation != "linear":
        raise InputError("tangent_kernel is for linear networks; pass one without activation.")
    weights, readout = host_arrays(getattr(networks, "stacked", networks))
    backward = products.backward_products(weights, readout)
    forward = products.forward_products(weights, Factors.of(problem).root)
    return products.tangent_kernel(backward, forward)


def tangent_kernel_change(problem: Problem, trajectory: Any) -> np.ndarray:
    """‖K(t) − K(0)‖_F/‖K(0)‖_F at each record: 0 in the lazy regime, large where features move."""
    kernels = tangent_kernel(problem, trajectory)
    start = np.linalg.norm(kernels[0], axis=(-2, -1))
    return np.linalg.norm(kernels - kernels[0], axis=(-2, -1)) / start
