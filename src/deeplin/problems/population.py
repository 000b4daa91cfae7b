"""The distribution of the data, and the exact population risk without sampling (BO-risk)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from deeplin.errors import InputError, finite_array, positive_number, validated
from deeplin.problems.problem import Problem

LARGEST_DENSE = 5000
"""Largest dimension for which a d×d matrix is formed implicitly."""


class Factored(NamedTuple):
    """Σ = F Fᵀ + diag(e): a d×k factor, and optionally a diagonal (length d, or one number)."""

    factor: Any
    diagonal: Any = None


Covariance = np.ndarray | Factored


def check_covariance(covariance: Any) -> Covariance:
    """Return Σ as a diagonal (d), dense (d×d) or `Factored`, checked and in float64.

    A matrix that is not square can only be a factor.
    """
    if not isinstance(covariance, Factored):
        matrix = finite_array("covariance", covariance, (1, 2))
        if matrix.ndim == 1:
            _check_not_negative(matrix)
            return matrix
        if matrix.shape[0] == matrix.shape[1]:
            if not np.allclose(matrix, matrix.T, rtol=1e-10, atol=1e-12 * np.abs(matrix).max()):
                raise InputError(
                    "covariance is not symmetric; pass the eigenvalues or the diagonal (d), a "
                    "symmetric d×d matrix, or Factored(F) with Σ = F Fᵀ."
                )
            return matrix
        covariance = Factored(matrix)
    factor = finite_array("the factor of the covariance", covariance.factor, (2,))
    given = 0.0 if covariance.diagonal is None else covariance.diagonal
    diagonal = finite_array("the diagonal of the covariance", given, (0, 1))
    if diagonal.ndim and len(diagonal) != len(factor):
        raise InputError(
            f"the factor has {len(factor)} rows and the diagonal {len(diagonal)} entries; "
            "pass one entry for each row, or one number."
        )
    _check_not_negative(diagonal)
    return Factored(factor, np.broadcast_to(diagonal, len(factor)))


def covariance_dimension(covariance: Covariance) -> int:
    """Return the number of inputs d."""
    return len(covariance.factor if isinstance(covariance, Factored) else covariance)


def apply_covariance(covariance: Covariance, columns: np.ndarray) -> np.ndarray:
    """Return Σ C for columns C (…, d, k), without forming a d×d matrix unless Σ is dense."""
    if isinstance(covariance, Factored):
        low = covariance.factor @ (covariance.factor.T @ columns)
        return low + covariance.diagonal[:, None] * columns
    return covariance[:, None] * columns if covariance.ndim == 1 else covariance @ columns


def covariance_spectrum(covariance: Covariance) -> np.ndarray:
    """Return the eigenvalues λ_1 ≥ … ≥ λ_d of Σ.

    A factor plus a constant diagonal needs only the singular values of the factor.
    """
    if isinstance(covariance, Factored):
        factor, diagonal = covariance
        if np.ptp(diagonal) == 0:
            singular = np.linalg.svd(factor, compute_uv=False)
            padded = np.zeros(len(factor))
            padded[: len(singular)] = singular**2
            return padded + diagonal[0]
        if len(factor) > LARGEST_DENSE:
            raise InputError(
                f"the spectrum of a factor plus a varying diagonal needs a {len(factor)}×"
                f"{len(factor)} matrix; pass the eigenvalues, or a constant diagonal."
            )
        return np.linalg.eigvalsh(factor @ factor.T + np.diag(diagonal))[::-1]
    if covariance.ndim == 1:
        return np.sort(covariance)[::-1]
    eigenvalues = np.linalg.eigvalsh(covariance)[::-1]
    _check_not_negative(eigenvalues, slack=1e-10 * np.abs(eigenvalues).max())
    return np.maximum(eigenvalues, 0.0)


@validated
def population_risk(theta, *, optimum, covariance):
    """Return Risk(Θ) = E‖x(Θ − Θ*)‖² = Tr((Θ−Θ*)ᵀ Σ (Θ−Θ*)), exactly (BO-risk).

    `theta` is (d,) or (d, q), or a batch (runs, d, q); `optimum` has the same shape or is shared by
    the batch. `covariance` is Σ as its eigenvalues or diagonal (d), dense (d×d), a factor F (d×k,
    Σ = F Fᵀ), or `Factored(F, diagonal)` for Σ = F Fᵀ + diag; d = 10⁵ needs no d×d matrix.

    ```python
    import deeplin as dl, numpy as np
    optimum, spectrum = np.ones(3), np.array([1.0, 0.5, 0.1])
    assert dl.population_risk(0 * optimum, optimum=optimum, covariance=spectrum) == 1.6
    ```
    """
    sigma = check_covariance(covariance)
    d = covariance_dimension(sigma)
    estimate, truth = _as_columns("theta", theta, d), _as_columns("optimum", optimum, d)
    if estimate.shape[-1] != truth.shape[-1] or (
        truth.ndim == 3 and estimate.shape[:-2] != truth.shape[:-2]
    ):
        raise InputError(
            f"theta has shape {np.shape(theta)} and optimum {np.shape(optimum)}; pass the same "
            "number of outputs, and one optimum or one for each run."
        )
    difference = estimate - truth
    risk = np.sum(difference * apply_covariance(sigma, difference), axis=(-2, -1))
    scale = np.max(np.abs(risk), initial=0.0)
    _check_not_negative(np.atleast_1d(risk), slack=1e-9 * scale if risk.ndim else 0.0)
    return float(risk) if risk.ndim == 0 else risk


@dataclass(frozen=True, eq=False)
class Population:
    """Distribution of the data: y = xΘ* + ω, E[xᵀx] = Σ, ω of variance `noise`² for each output.

    ```python
    import deeplin as dl
    data = dl.problems.synthetic.spiked(seed=0, dimension=500)
    population = dl.Population(data.truth, data.spectrum, noise=1.0)
    population.risk(data.problem.optimum)      # of the minimum-norm interpolant
    ```
    """

    optimum: np.ndarray
    covariance: Covariance
    noise: float = 1.0
    drawn: bool = False
    """Whether the data were drawn from it, with centered independent Gaussian x and ω (BO-A1 to
    BO-A4)."""

    def __post_init__(self):
        sigma = check_covariance(self.covariance)
        columns = _as_columns("optimum", self.optimum, covariance_dimension(sigma))
        if columns.ndim != 2:
            raise InputError(f"optimum has shape {columns.shape}; pass (d,) or (d, q).")
        object.__setattr__(self, "covariance", sigma)
        object.__setattr__(self, "optimum", columns)
        object.__setattr__(self, "noise", positive_number("noise", self.noise, zero_allowed=True))

    @property
    def dimension(self) -> int:
        """Number of inputs d."""
        return len(self.optimum)

    @property
    def outputs(self) -> int:
        """Number of outputs q."""
        return self.optimum.shape[1]

    @cached_property
    def spectrum(self) -> np.ndarray:
        """Eigenvalues of Σ, largest first."""
        return covariance_spectrum(self.covariance)

    def require_fit(self, problem: Problem) -> None:
        """Raise unless Θ* maps the problem's inputs to its targets."""
        if self.optimum.shape != (problem.dimension, problem.outputs):
            raise InputError(
                f"the population has Θ* of shape {self.optimum.shape} and the problem "
                f"{problem.dimension} inputs and {problem.outputs} output(s); pass matching ones."
            )

    def risk(self, theta):
        """Return Tr((Θ−Θ*)ᵀ Σ (Θ−Θ*)) (BO-risk)."""
        return population_risk(theta, optimum=self.optimum, covariance=self.covariance)

    def apply(self, columns: np.ndarray) -> np.ndarray:
        """Return Σ C."""
        return apply_covariance(self.covariance, columns)


def _as_columns(name: str, value: Any, dimension: int) -> np.ndarray:
    """Return `value` as (d, q), or (runs, d, q)."""
    array = finite_array(name, value, (1, 2, 3))
    columns = array[:, None] if array.ndim == 1 else array
    if columns.shape[-2] != dimension:
        raise InputError(
            f"{name} has shape {array.shape} and the covariance {dimension} inputs; pass "
            f"({dimension},), ({dimension}, q) or a batch (runs, {dimension}, q)."
        )
    return columns


def _check_not_negative(values: np.ndarray, slack: float = 0.0) -> None:
    if np.min(values) < -slack:
        raise InputError(
            f"the covariance is not positive semi-definite (found {np.min(values):.3g}); pass a "
            "second-moment matrix E[xᵀx]."
        )
