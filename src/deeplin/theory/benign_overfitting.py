"""Risk of interpolating networks: exact, split into its parts, and the bounds of BO."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import InputError, finite_array, positive_number, whole_number
from deeplin.problems import Population, Problem
from deeplin.theory.effective_rank import effective_index as effective_index
from deeplin.theory.effective_rank import effective_ranks as effective_ranks
from deeplin.theory.effective_rank import flat_tail, spike


class RiskSplit(NamedTuple):
    """The risk of an interpolator and what it is made of; arrays for a batch of maps."""

    total: float | np.ndarray
    """Risk(Θ) = Tr((Θ−Θ*)ᵀΣ(Θ−Θ*)) (BO-risk)."""
    bias: float
    """Tr(Θ*ᵀBΘ*), the conditional bias of Θ_min, B = (I−P_X)Σ(I−P_X)."""
    variance: float
    """σ²q·Tr(C), the mean of `noise` over the noise: the same for every interpolating network."""
    noise: float
    """Tr(ΩᵀCΩ) of the noise at hand."""
    xi: float | np.ndarray
    """Tr(Θ_⊥ᵀBΘ_⊥), the part due to Θ_⊥."""
    bound: float | np.ndarray
    """2Tr((Θ*−Θ_⊥)ᵀB(Θ*−Θ_⊥)) + 2Tr(ΩᵀCΩ), which is at least the risk (BO-L4.2)."""


class RiskBound(NamedTuple):
    """A bound of the risk up to its constant: Risk ≤ c·(bias + variance + xi)."""

    bias: float | np.ndarray
    variance: float | np.ndarray
    xi: float | np.ndarray

    @property
    def total(self) -> float | np.ndarray:
        """The sum, for c = 1."""
        return self.bias + self.variance + self.xi


def minimum_norm_interpolant(problem: Problem) -> np.ndarray:
    """Θ_min = Xᵀ(XXᵀ)^{-1}Y, (d,) or (d, q), from the singular values of X (BO-D2.5)."""
    require_interpolation(problem, "the minimum-norm interpolant")
    return problem.optimum


def require_interpolation(problem: Problem, quantity: str) -> None:
    """Raise unless XXᵀ is invertible, so that every target can be interpolated."""
    if problem.rank < problem.samples:
        raise InputError(
            f"{quantity} needs XXᵀ invertible; X has {problem.samples} rows and rank "
            f"{problem.rank}. Pass fewer samples than inputs, with independent rows."
        )


def conditional_variance(problem: Problem, population: Population) -> float:
    """σ²q·Tr(C), C = (XXᵀ)^{-1}XΣXᵀ(XXᵀ)^{-1}: what fitting the noise costs (BO-L4.2).

    The same for every interpolating network, whatever its depth, width and initialisation.
    """
    require_interpolation(problem, "the conditional variance")
    return population.noise**2 * population.outputs * noise_cost(problem, population)


def noise_cost(problem: Problem, population: Population) -> float:
    """Tr(C), C = (XXᵀ)^{-1}XΣXᵀ(XXᵀ)^{-1}, from the singular vectors of X."""
    eigenvalues, vectors, _ = problem.spectrum
    spread = np.sum(vectors * population.apply(vectors), axis=0)
    return float(np.sum(spread / (problem.samples * eigenvalues)))


def risk_split(problem: Problem, population: Population, theta: Any) -> RiskSplit:
    """The exact risk of Θ with its bias, variance and Θ_⊥ parts (BO-L4.2).

    ```python
    import deeplin as dl
    data = dl.problems.synthetic.spiked(seed=0, dimension=500)
    population = dl.Population(data.truth, data.spectrum, noise=1.0)
    split = dl.theory.risk_split(data.problem, population, data.problem.optimum)
    split.total, split.bias, split.variance, split.xi
    ```
    """
    require_interpolation(problem, "the split of the risk")
    given = finite_array("theta", theta, (1, 2, 3))
    columns = given[:, None] if given.ndim == 1 else given
    beside = problem.spectrum.beside

    def size(map: np.ndarray) -> Any:
        return np.sum(map * population.apply(map), axis=(-2, -1))

    perpendicular = beside(columns)
    # X⁺Ω = Θ_min − P_XΘ*: what the interpolant makes of the noise.
    noise_map = problem.optimum.reshape(population.optimum.shape) - (
        population.optimum - beside(population.optimum)
    )
    noise = float(size(noise_map))
    missed = size(beside(population.optimum - perpendicular))
    return RiskSplit(
        total=population.risk(theta),
        bias=float(size(beside(population.optimum))),
        variance=conditional_variance(problem, population),
        noise=noise,
        xi=size(perpendicular),
        bound=2 * missed + 2 * noise,
    )


def interpolation_bound(
    population: Population, samples: int, perpendicular: Any, *, delta: float = 0.1, b: float = 1.0
) -> RiskBound:
    """Risk ≤ c[s_k/n‖Θ*‖² + q log(q/δ)(k/n + n/R_k) + s_k/n‖Θ_⊥‖²] (BO-T3.1).

    `perpendicular` is ‖Θ_⊥‖ of the trained map. Infinite where no tail is flat enough (k = ∞).
    """
    tail = flat_tail(population.spectrum, samples, b)
    norm = float(np.linalg.norm(population.optimum))
    return RiskBound(
        bias=tail.sum / tail.n * norm**2,
        variance=population.outputs
        * math.log(population.outputs / positive_number("delta", delta))
        * (tail.k / tail.n + tail.n / tail.rank),
        xi=tail.sum / tail.n * np.asarray(perpendicular) ** 2,
    )


def random_start_bound(
    population: Population,
    samples: int,
    *,
    alpha: ArrayLike,
    beta: ArrayLike,
    depth: int,
    width: int,
    delta: float = 0.1,
    b: float = 1.0,
    corrected: bool = False,
) -> RiskBound:
    """The bound of BO-T3.2, with Ξ from the initialisation alone.

    Ξ ≤ (cα²s_k/n)[qβ² + L²(α+1/L)⁴λ_1n²/s_k² · (λ_1‖Θ*‖² + q + α²β²s_0 q log(n/δ)/m)] as printed;
    `corrected` has (α+1/L)² in the place of (α+1/L)⁴ (errata E-19).
    """
    tail = flat_tail(population.spectrum, samples, b)
    n, q, L, m = tail.n, population.outputs, whole_number("depth", depth), float(width)
    a, last = np.asarray(alpha, float), np.asarray(beta, float)
    largest, s_0 = float(population.spectrum[0]), float(np.sum(population.spectrum))
    norm = float(np.linalg.norm(population.optimum))
    start = (a * last) ** 2 * s_0 * q * math.log(n / delta) / m
    travel = L**2 * (a + 1 / L) ** (2 if corrected else 4) * largest * n**2 / tail.sum**2
    xi = a**2 * tail.sum / n * (q * last**2 + travel * (largest * norm**2 + q + start))
    general = interpolation_bound(population, samples, 0.0, delta=delta, b=b)
    return RiskBound(general.bias, general.variance, xi)


def spike_bound(population: Population, samples: int, *, delta: float = 0.1) -> float:
    """Risk ≤ c((εd‖Θ*‖² + qk log(q/δ))/n + nq log(q/δ)/d) for a spike (BO-C3.4), at c = 1."""
    found = spike(population.spectrum)
    if found is None:
        raise InputError(
            "the population is not a (k, ε)-spike (k eigenvalues 1, all others ε < 1); use "
            "interpolation_bound."
        )
    k, epsilon = found
    n, d, q = whole_number("samples", samples), population.dimension, population.outputs
    factor = q * math.log(q / positive_number("delta", delta))
    norm = float(np.linalg.norm(population.optimum))
    return (epsilon * d * norm**2 + k * factor) / n + n * factor / d
