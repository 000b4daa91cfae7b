"""Expected risk of the minimum-norm interpolant, for comparison with the bounds of BO."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from deeplin.errors import InputError, whole_number
from deeplin.problems import Population
from deeplin.problems.population import (
    LARGEST_DENSE,
    Covariance,
    Factored,
    covariance_dimension,
)
from deeplin.problems.problem import as_map
from deeplin.theory.roots import root

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RidgelessRisk:
    """The expected risk of the least-norm least-squares solution from n Gaussian samples."""

    bias: float
    """Risk for a noise-free target: 0 for n ≥ d."""
    variance: float
    """Risk due to fitting the noise."""
    exact: bool
    """Whether the values are exact at this n, rather than the limit n, d → ∞ with n/d fixed."""
    kappa: float
    """κ with Σ λ_i/(λ_i+κ) = n, the implicit ridge of interpolation; 0 for n ≥ rank Σ."""
    degrees_of_freedom: float
    """df₂ = Σ λ_i²/(λ_i+κ)²."""

    @property
    def total(self) -> float:
        """Sum of bias and variance."""
        return self.bias + self.variance


def ridgeless_risk(population: Population, samples: int) -> RidgelessRisk:
    """Return E Risk(Θ̂) of the minimum-norm interpolant of n Gaussian samples (BO-risk).

    For n < rank Σ the equation Σ λ_i/(λ_i+κ) = n gives κ, and with df₂ = Σ λ_i²/(λ_i+κ)²

        bias = κ² Σ λ_i‖θ_i‖²/(λ_i+κ)² / (1 − df₂/n),    variance = σ²q df₂/(n − df₂),

    with θ_i the rows of Θ* along the eigenvectors, in the limit n, d → ∞. The result is exact at
    every finite n for equal eigenvalues, where the variance is σ²q n/(d−n−1), and for n > d, where
    it is σ²q d/(n−d−1) for every Σ and the bias is 0. Within one of n = rank Σ the expectation is
    infinite.

    ```python
    import deeplin as dl
    data = dl.problems.synthetic.spiked(seed=0, dimension=500)
    population = dl.problems.Population(data.truth, data.spectrum, noise=1.0)
    risk = dl.theory.ridgeless_risk(population, samples=100)
    assert 0 < risk.bias < risk.total
    ```

    References: Hastie, Montanari, Rosset, Tibshirani, Surprises in high-dimensional ridgeless least
    squares interpolation, Annals of Statistics 2022; Bach, High-dimensional analysis of double
    descent for linear regression with random projections, 2024.
    """
    n = whole_number("samples", samples)
    modes = _modes(population)
    if n < modes.rank:
        return _interpolating(modes, n, population)
    excess = n - modes.rank - 1
    noise = population.noise**2 * population.outputs
    variance = np.inf if excess <= 0 and noise > 0 else noise * modes.rank / max(excess, 1)
    return RidgelessRisk(0.0, float(variance), True, 0.0, float(modes.rank))


def double_descent(population: Population, samples: int, dimensions: Iterable[int]) -> pd.DataFrame:
    """Return the expected excess risk of the minimum-norm solution on the first d′ features.

    The features left out act as noise: with Σ split into used (S) and unused (R) ones, Gaussian
    inputs give y = x_S(θ_S + Σ_SS⁻¹Σ_SRθ_R) + independent noise of variance σ² + its Schur part,

        Δ = Tr(θ_Rᵀ(Σ_RR − Σ_RSΣ_SS⁻¹Σ_SR)θ_R).

    On those data `ridgeless_risk` holds, on both sides of d′ = n; Δ is part of the bias.

    Args:
        population: Θ*, Σ and the noise; the order of the features is that of Θ*.
        samples: n.
        dimensions: numbers d′ of features to use, each from 1 to d.

    Returns:
        A table with the columns `dimension`, `excess_risk` (= bias + variance), `bias`, `variance`,
        `error` and `method`: `exact` at this n, or `equivalent`, the limit of many samples and
        features with n/d′ fixed. Near its peak the limit is too small: for equal eigenvalues by the
        factor (d′−n)/(d′−n−1) of the variance, a quarter at d′ = n + 5, and `error` is what this
        factor adds, an estimate for other spectra. Within one of d′ = n the variance is infinite.

    ```python
    import deeplin as dl, numpy as np
    population = dl.Population(np.ones(60) / 8, np.ones(60), noise=0.5)
    table = dl.double_descent(population, samples=20, dimensions=[5, 19, 60])
    assert table["excess_risk"].argmax() == 1      # the peak at d′ = n
    ```
    """
    import pandas as pd  # takes a third of a second

    n = whole_number("samples", samples)
    rows = []
    for given in dimensions:
        d = whole_number("dimensions", given)
        if d > population.dimension:
            raise InputError(
                f"dimensions holds {d} and the population has {population.dimension} features; "
                "pass numbers from 1 to that."
            )
        used, missed = _first_features(population, d)
        risk = ridgeless_risk(used, n)
        beyond = max(d - n - 1, 0)
        missing = 0.0 if risk.exact else risk.variance / beyond if beyond else np.inf
        rows.append(
            {
                "dimension": d,
                "excess_risk": risk.total + missed,
                "bias": risk.bias + missed,
                "variance": risk.variance,
                "error": missing,
                "method": "exact" if risk.exact else "equivalent",
            }
        )
    columns = ["dimension", "excess_risk", "bias", "variance", "error", "method"]
    return pd.DataFrame(rows, columns=columns)


def _first_features(population: Population, d: int) -> tuple[Population, float]:
    """Return the population of the first d features, and the risk that they cannot remove."""
    sigma, truth = population.covariance, population.optimum_columns
    rest = truth[d:]
    if isinstance(sigma, Factored):
        part = Factored(sigma.factor[:d], sigma.diagonal[:d])
        across = sigma.factor[:d] @ (sigma.factor[d:].T @ rest)
    elif sigma.ndim == 1:
        part, across = sigma[:d], np.zeros_like(truth[:d])
    else:
        part, across = sigma[:d, :d], sigma[:d, d:] @ rest
    moved = solve_covariance(part, across)
    alone = np.concatenate([np.zeros_like(truth[:d]), rest])
    unseen = np.sum(alone * population.apply(alone)) - np.sum(across * moved)
    unseen = max(float(unseen), 0.0)
    noise = np.sqrt(population.noise**2 + unseen / population.outputs)
    return Population(as_map(truth[:d] + moved), part, float(noise)), unseen


def solve_covariance(covariance: Covariance, columns: np.ndarray) -> np.ndarray:
    """Return Σ⁺C; a factor with positive diagonal needs only a matrix of the factor's rank."""
    if not np.any(columns):
        return np.zeros_like(columns)
    if isinstance(covariance, Factored) and np.all(covariance.diagonal > 0):
        factor, weight = covariance.factor, 1 / covariance.diagonal[:, None]
        inner = np.eye(factor.shape[1]) + factor.T @ (weight * factor)
        plain = weight * columns
        return plain - weight * (factor @ np.linalg.solve(inner, factor.T @ plain))
    if not isinstance(covariance, Factored) and covariance.ndim == 1:
        inverse = np.divide(1.0, covariance, out=np.zeros_like(covariance), where=covariance > 0)
        return inverse[:, None] * columns
    return np.linalg.lstsq(dense_covariance(covariance), columns, rcond=None)[0]


def dense_covariance(covariance: Covariance) -> Float[np.ndarray, "d d"]:
    """Return Σ as a d×d matrix, or raise InputError if d is too large."""
    d = covariance_dimension(covariance)
    if d > LARGEST_DENSE:
        raise InputError(
            f"this needs the covariance as a {d}×{d} matrix; pass the population with its "
            "eigenvalues, or a factor with a constant diagonal."
        )
    if isinstance(covariance, Factored):
        return covariance.factor @ covariance.factor.T + np.diag(covariance.diagonal)
    return np.diag(covariance) if covariance.ndim == 1 else covariance


@dataclass(frozen=True, eq=False)
class _Modes:
    """Nonzero eigenvalues λ of Σ with multiplicities, and ‖θ‖² along their eigenvectors."""

    eigenvalues: Float[np.ndarray, " k"]
    counts: Float[np.ndarray, " k"]
    powers: Float[np.ndarray, " k"]

    @property
    def rank(self) -> int:
        return int(np.sum(self.counts))


def _interpolating(modes: _Modes, n: int, population: Population) -> RidgelessRisk:
    eigenvalues, counts, powers = modes.eigenvalues, modes.counts, modes.powers
    kappa = _implicit_ridge(modes, n)
    shares = eigenvalues / (eigenvalues + kappa)
    second = float(counts @ shares**2)
    # 1 − df₂/n = Σ shares(1 − shares)/n, without cancellation
    left = float(counts @ (shares * (1 - shares)))
    bias = n * float((1 - shares) ** 2 @ (eigenvalues * powers)) / left
    noise = population.noise**2 * population.outputs
    flat = np.ptp(eigenvalues) <= 1e-12 * eigenvalues[0]
    excess = modes.rank - n - 1
    if excess <= 0:  # the inverse of XXᵀ has no mean
        variance = np.inf if noise > 0 else 0.0
    else:
        variance = noise * n / excess if flat else noise * second / left
    return RidgelessRisk(bias, float(variance), bool(flat), kappa, second)


def _implicit_ridge(modes: _Modes, n: int) -> float:
    """Return κ, which lies between λ_min(rank Σ − n)/n and tr Σ/n.

    At these ends Σ λ_i/(λ_i+κ) is at least and at most n.
    """

    def excess(log_kappa: float) -> float:
        shares = modes.eigenvalues / (modes.eigenvalues + np.exp(log_kappa))
        return float(modes.counts @ shares) - n

    high = np.log(float(modes.counts @ modes.eigenvalues) / n)
    low = np.log(float(modes.eigenvalues.min()) * (modes.rank - n) / n)
    return float(np.exp(root(excess, low - 1e-9, high + 1e-9)))


def _modes(population: Population) -> _Modes:
    """Return the spectrum of Σ with the truth in its eigenbasis.

    No d×d matrix is formed where Σ has a factor.
    """
    sigma, truth = population.covariance, population.optimum_columns
    if isinstance(sigma, Factored) and np.ptp(sigma.diagonal) == 0:
        vectors, singular, _ = np.linalg.svd(sigma.factor, full_matrices=False)
        along = np.sum((vectors.T @ truth) ** 2, axis=1)
        remainder = max(float(np.sum(truth**2)) - float(np.sum(along)), 0.0)
        level = float(sigma.diagonal[0])
        counts = np.append(np.ones(len(singular)), len(truth) - len(singular))
        return _nonzero(np.append(singular**2 + level, level), counts, np.append(along, remainder))
    if not isinstance(sigma, Factored) and sigma.ndim == 1:
        return _nonzero(sigma, np.ones(len(sigma)), np.sum(truth**2, axis=1))
    eigenvalues, vectors = np.linalg.eigh(dense_covariance(sigma))
    return _nonzero(eigenvalues, np.ones(len(truth)), np.sum((vectors.T @ truth) ** 2, axis=1))


def _nonzero(eigenvalues: np.ndarray, counts: np.ndarray, powers: np.ndarray) -> _Modes:
    floor = len(eigenvalues) * np.finfo(float).eps * eigenvalues.max()
    keep = (eigenvalues > floor) & (counts > 0)
    return _Modes(eigenvalues[keep], counts[keep], powers[keep])
