"""Trace and spectral density of a Hessian from products with random vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float, PyTree
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from deeplin.errors import InputError, finite_array, positive_number, whole_number
from deeplin.hessian.lanczos import Recurrence
from deeplin.hessian.operators import FullHessian, full_hessian, subject
from deeplin.networks import Network
from deeplin.networks.network import Loss, explain_loss_errors
from deeplin.problems import Problem

ONE = np.zeros(1, int)
"""Index of the only network, for products with its Hessian."""


class Trace(NamedTuple):
    """The trace of a Hessian with its standard error."""

    value: float
    error: float
    """Standard error of the mean over random vectors; 0 where every diagonal entry was computed."""
    products: int
    """Products of Hessian and vector used."""


def hessian_trace(
    problem: Problem | Loss | LinearOperator,
    network: PyTree = None,
    *,
    samples: int = 100,
    seed: int = 0,
) -> Trace:
    """Estimate the trace of the Hessian of the risk (Hutchinson): the mean of zᵀHz, z_i = ±1.

    The variance of a sample is 2(‖H‖_F² − Σ H_ii²). With at most `samples` parameters the diagonal
    is computed instead, and the error is 0.

    Args:
        problem: A `Problem`, a loss, a `TorchLoss` or an operator, as for `sharpness`.
        network: One `Network`, pytree of parameters or PyTorch module.
        samples: Number of random vectors, at least 2; each needs one product.
        seed: Seed of the random vectors.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    trace = dl.hessian_trace(problem, net)
    trace.value, trace.error
    ```
    """
    samples = whole_number("samples", samples, minimum=2)
    hessian = _hessian_of_one(problem, network)
    size = hessian.shape[1]
    rng = np.random.default_rng(seed)
    with explain_loss_errors(problem, network):
        if size <= samples:
            vectors = np.eye(size, dtype=hessian.dtype)
        else:
            vectors = (rng.choice([-1, 1], size).astype(hessian.dtype) for _ in range(samples))
        found = np.array([_quadratic(hessian, vector) for vector in vectors])
    if size <= samples:
        return Trace(float(found.sum()), 0.0, size)
    return Trace(float(found.mean()), float(found.std(ddof=1) / np.sqrt(samples)), samples)


@dataclass(frozen=True)
class SpectralDensity:
    """The distribution of the eigenvalues of a Hessian, as points with weights."""

    points: Float[np.ndarray, "samples steps"] = field(repr=False)
    """Ritz values of each random start."""
    weights: Float[np.ndarray, "samples steps"] = field(repr=False)
    """Weights of the Ritz values, which sum to 1 for each start."""
    products: int
    """Products of Hessian and vector used."""

    def at(self, values: ArrayLike, width: float) -> Float[np.ndarray, " n"]:
        """Return the density at `values`, each point widened to a Gaussian of this deviation."""
        width = positive_number("width", width)
        values = finite_array("values", values, (1,))
        apart = (values[:, None] - self.points.ravel()) / width
        bells = np.exp(-(apart**2) / 2) / (width * np.sqrt(2 * np.pi))
        return bells @ self.weights.ravel() / len(self.points)

    def share_above(self, value: float) -> tuple[float, float]:
        """Return the share of eigenvalues above a value, and its standard error."""
        shares = np.sum(self.weights * (self.points > value), axis=1)
        return float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(len(shares)))


def spectral_density(
    problem: Problem | Loss | LinearOperator,
    network: PyTree = None,
    *,
    samples: int = 10,
    steps: int = 60,
    seed: int = 0,
) -> SpectralDensity:
    """Estimate the density of the Hessian's eigenvalues by stochastic Lanczos quadrature.

    From a random unit vector v, m steps of Lanczos give the Gauss quadrature of the measure
    Σ_i ⟨v, u_i⟩² δ(λ_i): it integrates polynomials of degree 2m − 1 exactly, and its mean over v is
    the density of all N eigenvalues.

    Args:
        problem: A `Problem`, a loss, a `TorchLoss` or an operator, as for `sharpness`.
        network: One `Network`, pytree of parameters or PyTorch module.
        samples: Number of random starts, at least 2.
        steps: Products for each start.
        seed: Seed of the random vectors.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    density = dl.spectral_density(problem, net)
    density.at(np.linspace(-1, 1, 5), width=0.1), density.share_above(0.1)
    ```
    """
    samples = whole_number("samples", samples, minimum=2)
    hessian = _hessian_of_one(problem, network)
    limit = min(whole_number("steps", steps), hessian.shape[1])
    points, weights = np.zeros((2, samples, limit))
    with explain_loss_errors(problem, network):
        for sample in range(samples):
            start = int(np.random.default_rng([seed, sample]).integers(2**32))
            recurrence = Recurrence(hessian.shape, limit, hessian.dtype, start)
            for _ in range(limit):
                recurrence.advance(lambda vectors: hessian(ONE, vectors))
            # after a breakdown the recurrence continues from another vector, which has no weight
            diagonal, off_diagonal = (row[0].astype(float) for row in recurrence.tridiagonal)
            if not np.isfinite(diagonal.sum() + off_diagonal.sum()):
                raise InputError("the Hessian is not finite here; pass other parameters.")
            points[sample], mixing = scipy.linalg.eigh_tridiagonal(diagonal, off_diagonal)
            weights[sample] = mixing[0] ** 2
    return SpectralDensity(points, weights, samples * limit)


def _hessian_of_one(problem: Problem | Loss | LinearOperator, network: PyTree) -> FullHessian:
    if isinstance(network, Network) and network.batch is not None:
        raise InputError(f"received a batch of {network.batch} networks; pass one at a time.")
    with explain_loss_errors(problem, network):
        return full_hessian(problem, subject(problem, network))


def _quadratic(hessian: FullHessian, vector: np.ndarray) -> float:
    """Return vᵀHv."""
    return float(vector @ hessian(ONE, vector[None])[0])
