"""Gradient flow from a small initialization (FM Section 4: d_L = 1, p = 1), and X-19."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import InputError
from deeplin.networks import Network
from deeplin.networks.network import host_arrays
from deeplin.networks.products import extreme_values, imbalance
from deeplin.problems import Problem


def initialization_scale(network: Network) -> float | np.ndarray:
    """Return ε = 3 max_k ‖W_k‖_F² + 2 Σ_{k<L} ‖W_kW_kᵀ − W_{k+1}ᵀW_{k+1}‖_2 at the start (FM-ε).

    A float, or one for each network of a batch.

    ```python
    import deeplin as dl, jax
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.01)
    epsilon = dl.theory.bounds.initialization_scale(net)
    ```
    """
    epsilon = scale_of_layers(host_arrays(network)[0])
    return float(epsilon) if network.batch is None else epsilon


def scale_of_layers(weights: Sequence[np.ndarray]) -> Any:
    """Return FM-ε of layers in NumPy, each (…, d_k, d_{k−1})."""
    largest = np.max([np.sum(w**2, axis=(-1, -2)) for w in weights], axis=0)
    return 3 * largest + 2 * total_imbalance(weights)


def total_imbalance(weights: Sequence[np.ndarray]) -> Any:
    """Return Δ = Σ_{k<L} ‖W_kW_kᵀ − W_{k+1}ᵀW_{k+1}‖_2 of each network of a batch."""
    return sum(extreme_values(part)[..., 0] for part in imbalance(weights))


class FlowEndBounds(NamedTuple):
    """Bounds for gradient flow with product w, from its conserved quantities (X-19)."""

    imbalance: float | np.ndarray
    """Δ of the start: Σ_k ‖W_kW_kᵀ − W_{k+1}ᵀW_{k+1}‖_2."""
    excess: float | np.ndarray
    """ω = Δ + max(0, max_k ‖W_k(0)‖_F² − ‖W_L(0)‖_F²): bound of each layer's part beyond rank
    one."""
    singular_squares: tuple[float | np.ndarray, float | np.ndarray]
    """r − 2Δ ≤ σ_k² ≤ r + 2Δ for every layer, r = ‖w‖^{2/L}."""
    sharpness_ratio: tuple[float | np.ndarray, float | np.ndarray]
    """The bounds of S/S_bal at a minimizer with this product; (0, ∞) where 2Δ ≥ r."""


def flow_end_bounds(initial: Network, product_norm: ArrayLike) -> FlowEndBounds:
    """Return bounds of σ_k² and S/S_bal where the flow from `initial` has a product of this norm.

    For one output without a read-out, any loss and any time (X-19, theorem; FM-C1 and FM-C2 require
    ε ≤ 1, ‖w*‖ ≥ 1 and 32L√ε ≤ 1). With r = ‖w‖^{2/L} and δ = 2Δ/r < 1: |σ_k² − r| ≤ 2Δ, and at a
    minimizer min((1−δ)^{L−1}, 1/(1+δ)) ≤ S/S_bal ≤ max((1+δ)^{L−1}(1+(L−1)ω/(r+2Δ)), 1/(1−δ)).

    Args:
        initial: The start W(0), or a batch of them.
        product_norm: ‖w‖ at the end: ‖w*‖ for data of full rank.

    ```python
    import deeplin as dl, jax
    net = dl.initialize.zero_layer(jax.random.key(0), (5, 5, 1), 0.01)
    low, high = dl.theory.bounds.flow_end_bounds(net, product_norm=1.0).sharpness_ratio
    assert 0.99 < low < 1 < high < 1.01
    ```
    """
    weights, readout = host_arrays(initial)
    if initial.widths[-1] != 1 or not (readout is None or np.all(readout == 1)):
        raise InputError(
            "these bounds are for one output without a read-out; pass a network whose last layer "
            "has one row."
        )
    L = initial.depth
    norms = np.stack([np.sum(w**2, axis=(-1, -2)) for w in weights], axis=-1)
    delta_sum = np.asarray(total_imbalance(weights))
    omega = delta_sum + np.max(norms - norms[..., -1:], axis=-1)
    r = np.asarray(product_norm, dtype=np.float64) ** (2 / L)
    with np.errstate(divide="ignore", invalid="ignore"):
        delta = 2 * delta_sum / r
        low = np.minimum((1 - delta) ** (L - 1), 1 / (1 + delta))
        rest = 1 + (L - 1) * omega / (r + 2 * delta_sum)
        high = np.maximum((1 + delta) ** (L - 1) * rest, 1 / (1 - delta))
    known = delta < 1
    ends = np.where(known, low, 0.0), np.where(known, high, np.inf)
    bounds = (delta_sum, omega, r - 2 * delta_sum, r + 2 * delta_sum, *ends)
    single = initial.batch is None and np.ndim(product_norm) == 0
    found = [float(bound) for bound in bounds] if single else bounds
    return FlowEndBounds(found[0], found[1], (found[2], found[3]), (found[4], found[5]))


class LojasiewiczConstant(NamedTuple):
    """The constant μ of FM-T3 and the C that gives it."""

    constant: np.ndarray
    threshold: np.ndarray


def lojasiewicz_constant(
    problem: Problem, depth: int, epsilon: Any, early_gap: Any
) -> LojasiewiczConstant:
    """Return the largest μ of FM-T3 over C > √(2ε)L, from ε and the gap R(W(1)) − R_min.

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
