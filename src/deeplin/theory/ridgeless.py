"""What the minimum-norm interpolant is expected to cost, beside the bounds of BO."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from deeplin.errors import InputError, whole_number
from deeplin.problems import Population
from deeplin.problems.population import LARGEST_DENSE, Factored
from deeplin.theory.secular import root


@dataclass(frozen=True)
class RidgelessRisk:
    """The expected risk of the least-norm least-squares solution from n Gaussian samples."""

    bias: float
    """What a noise-free target costs: 0 for n ≥ d."""
    variance: float
    """What fitting the noise costs."""
    exact: bool
    """Exact at this n; otherwise the limit of many samples and inputs, n/d fixed."""
    kappa: float
    """κ with Σ λ_i/(λ_i+κ) = n, the ridge that interpolating amounts to; 0 for n ≥ rank Σ."""
    degrees_of_freedom: float
    """df₂ = Σ λ_i²/(λ_i+κ)²."""

    @property
    def total(self) -> float:
        """Bias and variance."""
        return self.bias + self.variance


def ridgeless_risk(population: Population, samples: int) -> RidgelessRisk:
    """E Risk(Θ̂) of the minimum-norm interpolant from n Gaussian samples, Risk as in BO-risk.

    For n < rank Σ the equation Σ λ_i/(λ_i+κ) = n gives κ, and with df₂ = Σ λ_i²/(λ_i+κ)²

        bias = κ² Σ λ_i‖θ_i‖²/(λ_i+κ)² / (1 − df₂/n),    variance = σ²q df₂/(n − df₂),

    θ_i the rows of Θ* along the eigenvectors: the limit of n, d → ∞. At every finite n exact are
    equal eigenvalues, where the variance is σ²q n/(d−n−1), and n > d, where it is σ²q d/(n−d−1) for
    every Σ and the bias is 0. Within one of n = rank Σ the expectation is infinite.

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


@dataclass(frozen=True, eq=False)
class _Modes:
    """Nonzero eigenvalues λ of Σ, how often each stands, and ‖θ‖² along its eigenvectors."""

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
    if flat:
        excess = modes.rank - n - 1
        variance = noise * n / excess if excess > 0 else (np.inf if noise > 0 else 0.0)
    else:
        variance = noise * second / left
    return RidgelessRisk(bias, float(variance), bool(flat), kappa, second)


def _implicit_ridge(modes: _Modes, n: int) -> float:
    """κ, between λ_min(rank Σ − n)/n and tr Σ/n: there Σ λ_i/(λ_i+κ) is at least and at most n."""

    def excess(log_kappa: float) -> float:
        shares = modes.eigenvalues / (modes.eigenvalues + np.exp(log_kappa))
        return float(modes.counts @ shares) - n

    high = np.log(float(modes.counts @ modes.eigenvalues) / n)
    low = np.log(float(modes.eigenvalues.min()) * (modes.rank - n) / n)
    return float(np.exp(root(excess, low - 1e-9, high + 1e-9)))


def _modes(population: Population) -> _Modes:
    """The spectrum of Σ with the truth in its eigenbasis; no d×d matrix where there is a factor."""
    sigma, truth = population.covariance, population.optimum
    if isinstance(sigma, Factored) and np.ptp(sigma.diagonal) == 0:
        vectors, singular, _ = np.linalg.svd(sigma.factor, full_matrices=False)
        along = np.sum((vectors.T @ truth) ** 2, axis=1)
        beside = max(float(np.sum(truth**2)) - float(np.sum(along)), 0.0)
        level = float(sigma.diagonal[0])
        counts = np.append(np.ones(len(singular)), len(truth) - len(singular))
        return _nonzero(np.append(singular**2 + level, level), counts, np.append(along, beside))
    if not isinstance(sigma, Factored) and sigma.ndim == 1:
        return _nonzero(sigma, np.ones(len(sigma)), np.sum(truth**2, axis=1))
    if len(truth) > LARGEST_DENSE:
        raise InputError(
            f"the spectrum of this covariance needs a {len(truth)}×{len(truth)} matrix; pass the "
            "population with its eigenvalues, or a factor with a constant diagonal."
        )
    dense = sigma
    if isinstance(sigma, Factored):
        dense = sigma.factor @ sigma.factor.T + np.diag(sigma.diagonal)
    eigenvalues, vectors = np.linalg.eigh(dense)
    return _nonzero(eigenvalues, np.ones(len(dense)), np.sum((vectors.T @ truth) ** 2, axis=1))


def _nonzero(eigenvalues: np.ndarray, counts: np.ndarray, powers: np.ndarray) -> _Modes:
    floor = len(eigenvalues) * np.finfo(float).eps * eigenvalues.max()
    keep = (eigenvalues > floor) & (counts > 0)
    return _Modes(eigenvalues[keep], counts[keep], powers[keep])
