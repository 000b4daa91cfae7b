"""Problems with another convex loss than the squared one: logistic, Poisson, Huber, softmax …"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from deeplin.errors import InputError
from deeplin.problems.losses import Softmax
from deeplin.problems.newton import Coordinates, Fit, assembled, fit
from deeplin.problems.problem import Problem, Spectrum
from deeplin.problems.solving import thin_svd

if TYPE_CHECKING:
    from deeplin.problems.objectives import GeneralizedLinear


@dataclass(frozen=True, eq=False, repr=False)
class GeneralizedLinearProblem(Problem):
    """R(Θ) = (1/n)Σφ(Θᵀx_i, y_i), φ convex; built by `Problem.from_data(X, y, loss=...)`.

    H and H^{1/2}w are the same at all minimizers of a loss of one output (X-14), so that H/2 takes
    the place of Σ̂ in what is known about least squares.
    """

    @cached_property
    def coordinates(self) -> Coordinates:
        """Bases of the inputs and outputs that change predictions."""
        return Coordinates.of(self._rows[0], self.convex_loss, self.outputs)

    @property
    def has_minimizer(self) -> bool:
        """Whether the risk attains its infimum: not for classes that a hyperplane separates."""
        return self._fit.settled

    @property
    def last_iterate(self) -> np.ndarray:
        """Where Newton's method ended, (d, q): the optimum, if there is one."""
        return self.coordinates.theta(self._fit.coordinates)

    @cached_property
    def optimum(self) -> np.ndarray:
        """Θ*: the minimizer of least norm, (d,) or (d, q); raises where there is none (X-16)."""
        if self._fit.settled:
            return self._as_given(self.last_iterate)
        if not self._fit.separable:
            raise InputError(
                "Newton's method found no minimizer of this loss: it may have none on these data, "
                "or its derivatives may be wrong. Scale the inputs, or pass another loss."
            )
        if self.classes is None:
            raise InputError(
                "the risk has no minimizer: in some direction the predictions of samples with "
                "count 0 decrease forever while no other changes. Remove the inputs that only "
                "samples with count 0 have, or add weight decay."
            )
        raise InputError(
            "the risk has no minimizer: the classes are linearly separable, so it keeps "
            "decreasing as the weights grow, and the sharpness tends to 0 with it (X-16). Add "
            "weight decay (theory.decayed_minimum), or samples or fewer inputs so that the "
            "classes overlap."
        )

    @cached_property
    def minimal_risk(self) -> float:
        """R_min, the infimum where it is not attained."""
        return float(self.convex_loss.value(self._fit.predictions, self._rows[1]).mean())

    @cached_property
    def numpy_objective(self) -> GeneralizedLinear:
        """`objective` with NumPy's arrays, in double precision."""
        from deeplin.problems.objectives import GeneralizedLinear

        predictions = self._fit.predictions if self._fit.settled else None
        return GeneralizedLinear(
            *self._rows, predictions, np.asarray(self.minimal_risk), self.convex_loss
        )

    @cached_property
    def objective(self) -> GeneralizedLinear:
        """The risk about its optimum, as JAX arrays of the current default precision."""
        import jax

        return jax.tree.map(lambda leaf: jax.device_put(np.array(leaf)), self.numpy_objective)

    def gap(self, theta: np.ndarray) -> np.ndarray:
        """R − R_min of linear maps Θ (…, d, q)."""
        return self.numpy_objective.value_and_gradient(np.asarray(theta))[0]

    def value_and_gradient(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R and ∇R (…, d, q) of linear maps Θ (…, d, q)."""
        gap, gradient = self.numpy_objective.value_and_gradient(np.asarray(theta))
        return self.minimal_risk + gap, gradient

    def slope_bound(self, theta: np.ndarray) -> np.ndarray:
        """‖X‖_F‖φ'‖_F/n ≥ ‖∇R‖ of linear maps Θ (…, d, q), and at least that of Θ = 0."""
        X, y = self._rows
        at = (self.convex_loss.slope(z, y) for z in (X @ theta, np.zeros_like(y)))
        sizes = (np.linalg.norm(slope, axis=(-2, -1)) for slope in at)
        return np.linalg.norm(X) * np.maximum(*sizes) / self.samples

    @cached_property
    def curvature(self) -> np.ndarray:
        """H at Θ*: (d, d), or (q·d, q·d) class-major for softmax."""
        return self.curvature_at(self.optimum)

    def curvature_at(self, theta: np.ndarray) -> np.ndarray:
        """H(Θ) = ∇²R, as `curvature` is laid out."""
        X, y = self._rows
        return assembled(X, self.convex_loss.blocks(X @ theta.reshape(self.dimension, -1), y))

    @cached_property
    def spectrum(self) -> Spectrum:
        """The nonzero eigenvalues of H/2, largest first, with eigenvectors and w* in that basis."""
        self.require_single_target("the spectrum of H/2 as a matrix of the inputs")
        rows, optimum = self.curvature_rows("the spectrum of H"), self.optimum.reshape(-1, 1)
        _, singular, right = thin_svd(rows, rows[:, :0])
        keep = singular > np.finfo(np.float64).eps * max(rows.shape) * singular[0]
        vectors = right[keep].T
        return Spectrum(singular[keep] ** 2 / len(rows), vectors, vectors.T @ optimum)

    def curvature_rows(self, quantity: str) -> np.ndarray:
        """(φ_i''/2)^{1/2}x_i at the optimum, for one output."""
        self.require_single_target(quantity)
        X, y = self._rows
        return np.sqrt(self.convex_loss.second(X @ self.optimum.reshape(-1, 1), y) / 2) * X

    @property
    def residual_share(self) -> float:
        """Mean of φ'² at the optimum over that at zero: 0 where every φ_i' vanishes."""
        X, y = self._rows
        at = [X @ self.optimum.reshape(self.dimension, -1), np.zeros_like(y)]
        there, zero = (float(np.mean(self.convex_loss.slope(z, y) ** 2)) for z in at)
        return there / zero if zero > 0 else 0.0

    def require_signal(self, quantity: str) -> None:
        """Raise where w* = 0, or H^{1/2}w* is; for other losses the infimum of S is 0 there."""
        super().require_signal(quantity)
        if self.outputs == 1:
            size = float(np.linalg.norm(self.spectrum.coordinates))
            if size <= 1e-14 * self.optimum_norm:
                raise InputError(
                    f"{quantity} is 0, and no minimizer has it: the risk does not bend along w* "
                    "(every sample that sees w* lies on a linear part of the loss)."
                )

    @cached_property
    def rank(self) -> int:
        """Rank of H."""
        return len(self._nonzero)

    @cached_property
    def zero_gap(self) -> float:
        """R(0) − R_min."""
        return float(self.gap(np.zeros((self.dimension, self.outputs))))

    @property
    def zero_risk(self) -> float:
        """R(0), the risk of the zero map."""
        return self.minimal_risk + self.zero_gap

    def only_target(self, index: int) -> Problem:
        """The problem itself: its outputs belong together."""
        return self

    _solution_name = "minimizer"

    @cached_property
    def _nonzero(self) -> np.ndarray:
        """The nonzero eigenvalues of H/2, largest first."""
        if not isinstance(self.convex_loss, Softmax):
            return self.spectrum.eigenvalues
        values = np.linalg.eigvalsh(self.curvature)[::-1] / 2
        return values[values > np.finfo(np.float64).eps * len(values) * max(values[0], 0.0)]

    def _nonzero_spectrum(self) -> np.ndarray:
        if self.rank == 0:
            raise InputError("H is zero: its eigenvalues are undefined. Pass nonzero inputs.")
        return self._nonzero

    @cached_property
    def _fit(self) -> Fit:
        return fit(self.convex_loss, self.coordinates, self._rows[1])

    @property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        return self.require_data("a loss that is not squared")
