"""Gradient flow from a small initialisation (FM Section 4: d_L = 1, p = 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from deeplin.networks import Network, host_arrays
from deeplin.networks.products import imbalance
from deeplin.networks.singular_values import values_of_layers
from deeplin.problems import Problem


def initialization_scale(network: Network) -> float | np.ndarray:
    """ε = 3 max_k ‖W_k‖_F² + 2 Σ_{k<L} ‖W_kW_kᵀ − W_{k+1}ᵀW_{k+1}‖_2 at the start (FM-ε).

    A float, or one for each network of a batch.

    ```python
    import deeplin as dl, jax
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.01)
    epsilon = dl.theory.initialization_scale(net)
    ```
    """
    epsilon = scale_of_layers(host_arrays(network)[0])
    return float(epsilon) if network.batch is None else epsilon


def scale_of_layers(weights: Sequence[np.ndarray]) -> Any:
    """FM-ε of layers in NumPy; for one network without the time to start JAX or load a kernel."""
    largest = np.max([np.sum(w**2, axis=(-1, -2)) for w in weights], axis=0)
    differences = imbalance(weights)  # none, where there is but one layer
    if largest.ndim == 0 and np.isfinite(largest):
        return 3 * largest + 2 * sum(np.linalg.norm(part, 2) for part in differences)
    unequal = np.sum(values_of_layers(differences)[..., 0], axis=-1) if differences else 0.0
    return 3 * largest + 2 * unequal


class LojasiewiczConstant(NamedTuple):
    """The constant μ of FM-T3 and the C that gives it."""

    constant: np.ndarray
    threshold: np.ndarray


def lojasiewicz_constant(
    problem: Problem, depth: int, epsilon: Any, early_gap: Any
) -> LojasiewiczConstant:
    """The largest μ of FM-T3 over C > √(2ε)L, from ε and the gap R(W(1)) − R_min.

    μ = 4λ·min((C − √(2ε)L)^{L−1}, b/C)² with b = min((R_0 − R(W(1)))/(4Λ‖w*‖), ‖w*‖). The first
    term grows with C and the second falls, so the best C is where they meet:
    (C − √(2ε)L)^{L−1}·C = b, solved by bisection for log(C − √(2ε)L).
    """
    size, Lambda = problem.optimum_norm, problem.largest_eigenvalue
    progress = problem.zero_gap - np.asarray(early_gap, dtype=np.float64)
    b = np.minimum(np.maximum(progress, 0) / (4 * Lambda * size), size)
    floor = np.sqrt(2 * np.asarray(epsilon, dtype=np.float64)) * depth
    with np.errstate(divide="ignore", invalid="ignore"):
        high = np.log(b) / depth
        low = (np.log(b) - np.log(floor + np.exp(high))) / (depth - 1)
        for _ in range(100):
            middle = (low + high) / 2
            beyond = (depth - 1) * middle + np.log(floor + np.exp(middle)) > np.log(b)
            low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
        C = floor + np.exp(low)
        mu = 4 * problem.smallest_eigenvalue * np.minimum(np.exp((depth - 1) * low), b / C) ** 2
    return LojasiewiczConstant(np.where(b > 0, mu, 0.0), C)
