"""Effective ranks (BO-D2.1, BO-D2.2); risk of interpolating networks: exact, its parts, bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import InputError, finite_array, positive_number, whole_number
from deeplin.problems import Population, Problem
from deeplin.problems.population import Factored
from deeplin.problems.problem import as_map
from deeplin.theory.ridgeless import dense_covariance, solve_covariance


@dataclass(frozen=True)
class Constants:
    """The free constants of BO.

    Without `c` the statements report the smallest c with which they hold; with it they are judged.
    """

    c: float | None = None
    b: float = 1.0
    """Threshold of the effective rank: k = min{j : r_j ≥ bn} (BO-D2.2)."""
    delta: float = 0.1
    """Probability of failure in the bounds that hold with high probability."""

    def __post_init__(self):
        if self.c is not None:
            positive_number("c", self.c)
        positive_number("b", self.b)
        if positive_number("delta", self.delta) >= 0.5:
            raise InputError(f"delta is {self.delta:g}; pass a probability below 1/2.")


class EffectiveRanks(NamedTuple):
    """s_j, r_j and R_j for j = 0 … d−1."""

    tail_sums: np.ndarray
    """s_j = Σ_{i>j} λ_i."""
    small: np.ndarray
    """r_j = s_j/λ_{j+1}; 0 where λ_{j+1} = 0."""
    large: np.ndarray
    """R_j = s_j²/Σ_{i>j} λ_i²; 0 where the tail is zero."""


def effective_ranks(spectrum: ArrayLike) -> EffectiveRanks:
    """Return s_j = Σ_{i>j}λ_i, r_j = s_j/λ_{j+1}, R_j = s_j²/Σ_{i>j}λ_i² for all j (BO-D2.1).

    ```python
    import deeplin as dl
    ranks = dl.theory.benign_overfitting.effective_ranks([1.0] * 10 + [0.01] * 490)
    ranks.small[10], ranks.large[10]      # both 490: the tail is flat
    ```
    """
    eigenvalues = _descending(spectrum)
    # Summed from the smallest eigenvalue up, so that small tails keep their digits.
    sums = np.cumsum(eigenvalues[::-1])[::-1]
    squares = np.cumsum(eigenvalues[::-1] ** 2)[::-1]
    return EffectiveRanks(sums, _ratio(sums, eigenvalues), _ratio(sums**2, squares))


class Tail(NamedTuple):
    """The flat tail of a spectrum for n samples."""

    n: int
    k: float
    """Index at which it begins (BO-D2.2); infinite if no tail is flat enough."""
    sum: float
    """s_k."""
    rank: float
    """R_k."""


def flat_tail(spectrum: ArrayLike, samples: int, b: float = 1.0) -> Tail:
    """Return n, k, s_k and R_k of a population (BO-D2.1, BO-D2.2)."""
    n, ranks = whole_number("samples", samples), effective_ranks(spectrum)
    found = np.flatnonzero(ranks.small >= positive_number("b", b) * n)
    if len(found) == 0:
        return Tail(n, np.inf, np.inf, np.nan)
    k = int(found[0])
    return Tail(n, float(k), float(ranks.tail_sums[k]), float(ranks.large[k]))


def spike(spectrum: ArrayLike) -> tuple[int, float] | None:
    """Return (k, ε) if k eigenvalues are 1 and the others ε < 1, a (k, ε)-spike (BO-D3.3)."""
    eigenvalues = _descending(spectrum)
    k = int(np.sum(eigenvalues == 1.0))
    tail = eigenvalues[k:]
    if k == 0 or len(tail) == 0 or np.ptp(tail) > 0 or tail[0] > 1.0:
        return None
    return k, float(tail[0])


def _descending(spectrum: ArrayLike) -> np.ndarray:
    eigenvalues = finite_array("spectrum", spectrum, (1,))
    if eigenvalues.min() < 0 or eigenvalues.max() == 0:
        raise InputError(
            f"spectrum runs from {eigenvalues.min():g} to {eigenvalues.max():g}; pass eigenvalues "
            "of at least 0, one of them above 0."
        )
    return np.sort(eigenvalues)[::-1]


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


class RiskSplit(NamedTuple):
    """The risk of an interpolator and its parts; arrays for a batch of maps."""

    total: float | np.ndarray
    """Risk(Θ) = Tr((Θ−Θ*)ᵀΣ(Θ−Θ*)) (BO-risk)."""
    bias: float
    """Tr(Θ*ᵀBΘ*), the conditional bias of Θ_min, B = (I−P_X)Σ(I−P_X)."""
    variance: float
    """σ²q·Tr(C), the mean of `noise` over the noise: the same for every interpolating network."""
    noise: float
    """Tr(ΩᵀCΩ) of the noise in the data."""
    xi: float | np.ndarray
    """Tr(Θ_⊥ᵀBΘ_⊥), the part due to Θ_⊥."""
    cross: float | np.ndarray
    """2Tr((Θ_min−Θ*)ᵀΣΘ_⊥): mean 0 over a Gaussian first layer (X-25). An interpolator has
    Risk(Θ) = Risk(Θ_min) + xi + cross."""
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


def require_interpolation(problem: Problem, quantity: str) -> None:
    """Raise unless XXᵀ is invertible, so that every target can be interpolated."""
    if problem.rank < problem.samples:
        raise InputError(
            f"{quantity} needs XXᵀ invertible; X has {problem.samples} rows and rank "
            f"{problem.rank}. Pass fewer samples than inputs, with independent rows."
        )


def noise_cost(problem: Problem, population: Population) -> float:
    """Return Tr(C), C = (XXᵀ)^{-1}XΣXᵀ(XXᵀ)^{-1}, from the singular vectors of X."""
    eigenvalues, vectors, _ = problem.spectrum
    spread = np.sum(vectors * population.apply(vectors), axis=0)
    return float(np.sum(spread / (problem.samples * eigenvalues)))


def unseen_trace(problem: Problem, population: Population) -> float:
    """Return tr((I−P_X)Σ), the variance of the population orthogonal to the data (X-25)."""
    vectors = problem.spectrum.vectors
    return float(np.sum(population.spectrum) - np.sum(vectors * population.apply(vectors)))


def risk_split(problem: Problem, population: Population, theta: Any) -> RiskSplit:
    """Return the exact risk of Θ with its bias, variance and Θ_⊥ parts (BO-L4.2).

    ```python
    import deeplin as dl
    data = dl.problems.synthetic.spiked(seed=0, dimension=500)
    population = dl.Population(data.truth, data.spectrum, noise=1.0)
    split = dl.theory.risk_split(data.problem, population, data.problem.optimum)
    split.total, split.bias, split.variance, split.xi
    ```
    """
    require_interpolation(problem, "the split of the risk")
    columns = population.columns("theta", theta)
    truth, optimum = population.optimum_columns, problem.optimum_columns
    orthogonal = problem.spectrum.orthogonal_part

    def size(map: np.ndarray) -> Any:
        return np.sum(map * population.apply(map), axis=(-2, -1))

    perpendicular = orthogonal(columns)
    # X⁺Ω = Θ_min − P_XΘ*: the effect of the noise on the interpolant.
    noise_map = optimum - (truth - orthogonal(truth))
    noise = float(size(noise_map))
    missed = size(orthogonal(truth - perpendicular))
    return RiskSplit(
        total=population.risk(theta),
        bias=float(size(orthogonal(truth))),
        variance=population.noise**2 * population.outputs * noise_cost(problem, population),
        noise=noise,
        xi=size(perpendicular),
        cross=2 * np.sum(perpendicular * population.apply(optimum - truth), (-2, -1)),
        bound=2 * missed + 2 * noise,
    )


def noise_cost_bound(problem: Problem, population: Population) -> float:
    """Return a lower bound of Tr(C) for given X and Σ: Σ_i λ_i(v_iᵀP_Xv_i)²/‖Xv_i‖² (X-32).

    v_i are eigenvectors of Σ; directions with Xv_i = 0 are omitted. The bound follows from
    Cauchy-Schwarz and is about 1 − df₂/n of Tr(C), so it is sharp where overfitting is benign.
    """
    eigenvalues, vectors, _ = problem.spectrum
    sigma = population.covariance
    along, spread = vectors, sigma
    if isinstance(sigma, Factored) or sigma.ndim == 2:
        spread, basis = np.linalg.eigh(dense_covariance(sigma))
        along = basis.T @ vectors
    seen, norms = np.sum(along**2, axis=1), np.sum(along**2 * eigenvalues, axis=1)
    some = norms > 0
    return float(np.sum(spread[some] * seen[some] ** 2 / norms[some])) / problem.samples


def degrees_of_freedom_bounds(
    population: Population, samples: int, b: float = 2.0
) -> tuple[float, float] | None:
    """Return bounds of df₂/n by k and R_k, for k = min{j : r_j ≥ bn}, b > 1, x = n/(n−k) (X-32).

    (k/n)/(1+bx)² + (n/R_k)/(1/b+x)² ≤ df₂/n ≤ k/n + (b/(b−1))²n/R_k; None unless k < n exists.
    """
    if positive_number("b", b) <= 1:
        raise InputError(f"b is {b:g}; pass a number above 1.")
    n, k, _, rank = flat_tail(population.spectrum, samples, b)
    if k >= n:
        return None
    x = n / (n - k)
    lower = k / n / (1 + b * x) ** 2 + n / rank / (1 / b + x) ** 2
    return float(lower), float(k / n + (b / (b - 1)) ** 2 * n / rank)


def best_interpolant(problem: Problem, population: Population) -> np.ndarray:
    """Return the interpolator of smallest risk, Θ* + Σ^{-1}Xᵀ(XΣ^{-1}Xᵀ)^{-1}Ω (X-33).

    Its risk Tr(Ωᵀ(XΣ^{-1}Xᵀ)^{-1}Ω) is the smallest of any interpolator, with mean σ²qn/(d−n−1) for
    Gaussian inputs and any Σ. It depends on the noise Ω = Y − XΘ*, so it cannot be trained.
    """
    require_interpolation(problem, "the best interpolant")
    if population.spectrum[-1] <= 0:
        raise InputError("the best interpolant needs an invertible Σ; this one has eigenvalue 0.")
    _, vectors, coordinates = problem.spectrum
    # In the span of X the noise is R(M − QᵀΘ*) for X = RQᵀ, and R cancels.
    missing = coordinates - vectors.T @ population.optimum_columns
    weighted = solve_covariance(population.covariance, vectors)
    found = weighted @ np.linalg.solve(vectors.T @ weighted, missing)
    return as_map(population.optimum_columns + found)


def interpolation_bound(
    population: Population, samples: int, perpendicular: Any, *, delta: float = 0.1, b: float = 1.0
) -> RiskBound:
    """Return the bound c[s_k/n‖Θ*‖² + q log(q/δ)(k/n + n/R_k) + s_k/n‖Θ_⊥‖²] of BO-T3.1.

    `perpendicular` is ‖Θ_⊥‖ of the trained map. The bound is infinite if no tail is flat enough (k
    = ∞).
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
    """Return the bound of BO-T3.2, with Ξ from the initialization alone.

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
    """Return the bound c((εd‖Θ*‖² + qk log(q/δ))/n + nq log(q/δ)/d) of BO-C3.4, c = 1."""
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
