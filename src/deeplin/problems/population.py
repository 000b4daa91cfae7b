"""The distribution of the data, and the exact population risk without sampling (BO-risk)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from deeplin.errors import InputError, finite_array, positive_number
from deeplin.problems.problem import Problem, as_columns, as_map

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


def population_risk(theta: Any, *, optimum: Any, covariance: Any) -> Any:
    """Return Risk(Θ) = E‖(Θ − Θ*)x‖² = Tr((Θ−Θ*) Σ (Θ−Θ*)ᵀ), exactly (BO-risk).

    Args:
        theta: A linear map, (q, d), or (d,) for one output; or a batch of maps, (runs, q, d) or
            (runs, d).
        optimum: Θ*, a map of the same shape, or (runs, q, d), one for each run.
        covariance: Σ as its eigenvalues or diagonal (d), dense (d×d), a factor F (d×k, Σ = F Fᵀ),
            or `Factored(F, diagonal)` for Σ = F Fᵀ + diag; d = 10⁵ needs no d×d matrix.

    Returns:
        The risk, a number, or one for each run.

    ```python
    import deeplin as dl, numpy as np
    optimum, spectrum = np.ones(3), np.array([1.0, 0.5, 0.1])
    assert dl.population_risk(0 * optimum, optimum=optimum, covariance=spectrum) == 1.6
    ```
    """
    sigma = check_covariance(covariance)
    d = covariance_dimension(sigma)
    truth = _as_columns("optimum", optimum, d)
    estimate = _as_columns("theta", theta, d, outputs=truth.shape[-1])
    if truth.ndim == 3 and estimate.shape[:-2] != truth.shape[:-2]:
        raise InputError(
            f"theta has shape {np.shape(theta)} and optimum {np.shape(optimum)}; pass one optimum "
            "or one for each run."
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
    """Θ*: (q, d), or (d,) for one output."""
    covariance: Covariance
    noise: float = 1.0
    drawn: bool = False
    """Whether the data were drawn from it, with centered independent Gaussian x and ω (BO-A1 to
    BO-A4)."""

    def __post_init__(self):
        sigma = check_covariance(self.covariance)
        columns = _as_columns("optimum", self.optimum, covariance_dimension(sigma))
        if columns.ndim != 2:
            raise InputError(f"optimum has shape {np.shape(self.optimum)}; pass (d,) or (q, d).")
        object.__setattr__(self, "covariance", sigma)
        object.__setattr__(self, "optimum", as_map(columns))
        object.__setattr__(self, "noise", positive_number("noise", self.noise, zero_allowed=True))

    @property
    def dimension(self) -> int:
        """Number of inputs d."""
        return self.optimum.shape[-1]

    @property
    def outputs(self) -> int:
        """Number of outputs q."""
        return 1 if self.optimum.ndim == 1 else len(self.optimum)

    @property
    def optimum_columns(self) -> np.ndarray:
        """`optimum` as columns, (d, q), the layout of computations."""
        return as_columns(self.optimum, self.outputs)

    def columns(self, name: str, theta: Any) -> np.ndarray:
        """Return linear maps of this population's shape, or a batch of them, as columns."""
        return _as_columns(name, theta, self.dimension, outputs=self.outputs)

    @cached_property
    def spectrum(self) -> np.ndarray:
        """Eigenvalues of Σ, largest first."""
        return covariance_spectrum(self.covariance)

    def require_fit(self, problem: Problem) -> None:
        """Raise unless Θ* maps the problem's inputs to its targets."""
        if (self.dimension, self.outputs) != (problem.dimension, problem.outputs):
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


def _as_columns(name: str, value: Any, d: int, outputs: int | None = None) -> np.ndarray:
    """Return a linear map (q, d) or (d,) as (d, q), or a batch of such maps as (runs, d, q).

    Without the number of outputs, a matrix is one map.
    """
    array = finite_array(name, value, (1, 2, 3))
    if array.shape[-1] != d:
        raise InputError(
            f"{name} has shape {array.shape} and the covariance {d} inputs; pass ({d},), (q, {d}) "
            f"or a batch (runs, q, {d})."
        )
    if array.ndim == 1 or (array.ndim == 2 and outputs == 1):
        array = array[..., None, :]  # of one output
    if outputs is not None and array.shape[-2] != outputs:
        raise InputError(
            f"{name} has shape {array.shape}, that is {array.shape[-2]} output(s), and the optimum "
            f"{outputs}; pass the same number of outputs."
        )
    return array.mT


def _check_not_negative(values: np.ndarray, slack: float = 0.0) -> None:
    if np.min(values) < -slack:
        raise InputError(
            f"the covariance is not positive semi-definite (found {np.min(values):.3g}); pass a "
            "second-moment matrix E[xᵀx]."
        )
