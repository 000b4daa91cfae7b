"""Problems with a convex loss other than the squared one: logistic, Poisson, Huber, softmax …

Their minimizers are found by Newton's method, if there are any (X-14, X-16); see `newton`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from deeplin.errors import InputError, whole_number
from deeplin.execution import few_threads
from deeplin.problems.best_of_rank import BestOfRank, Factors
from deeplin.problems.factorizations import numerical_rank, thin_svd
from deeplin.problems.losses import ConvexLoss, Softmax
from deeplin.problems.newton import Coordinates, Fit, assembled, fit
from deeplin.problems.problem import Problem, Spectrum, as_columns, as_map


class GeneralizedLinear(eqx.Module):
    """R(Θ) = (1/n)Σφ(Θᵀx_i, y_i) of any convex loss φ (X-14, X-17), from the rows.

    R − R_min is computed accurately as the mean excess of φ over its tangents at the predictions of
    a minimizer. For data without a minimizer the infimum is subtracted.
    """

    inputs: Float[Array | np.ndarray, "n d"]
    targets: Float[Array | np.ndarray, "n q"]
    predictions: Float[Array | np.ndarray, "n q"] | None
    """Predictions of a minimizer, if there is one."""
    minimal_risk: Float[Array | np.ndarray, ""]
    """The infimum of R."""
    loss: ConvexLoss = eqx.field(static=True)

    def value_and_gradient(self, theta: Any) -> tuple[Any, Any]:
        """Return R(Θ) − `minimal_risk` and ∇R(Θ) of Θ (…, d, q)."""
        z, n = self.inputs @ theta, self.inputs.shape[0]
        gradient = self.inputs.T @ self.loss.slope(z, self.targets) / n
        if self.predictions is None:
            return self.loss.value(z, self.targets).mean(axis=-1) - self.minimal_risk, gradient
        return self.loss.excess(self.predictions, z, self.targets).mean(axis=-1), gradient

    def curvature_product(self, theta: Any, direction: Any) -> Any:
        """Return ∇²R(Θ)[D] = (1/n)Xᵀ φ''(XΘ)[XD]."""
        second = self.loss.second_product(
            self.inputs @ theta, self.targets, self.inputs @ direction
        )
        return self.inputs.T @ second / self.inputs.shape[0]


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
        """Last iterate of Newton's method, in the shape of the optimum, if there is one."""
        return as_map(self.coordinates.theta(self._fit.coordinates))

    @cached_property
    def optimum_columns(self) -> np.ndarray:
        """Θ*: the minimizer of least norm, (d, q); raises where there is none (X-16)."""
        if self._fit.settled:
            return self.coordinates.theta(self._fit.coordinates)
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
    def risk_of_columns(self) -> GeneralizedLinear:
        """The risk about its optimum with NumPy arrays, in double precision."""
        predictions = self._fit.predictions if self._fit.settled else None
        return GeneralizedLinear(
            *self._rows, predictions, np.asarray(self.minimal_risk), self.convex_loss
        )

    def gap(self, theta: np.ndarray) -> np.ndarray:
        """Return R − R_min of linear maps, (…, q, d) or (…, d)."""
        columns = as_columns(np.asarray(theta), self.outputs)
        return self.risk_of_columns.value_and_gradient(columns)[0]

    def value_and_gradient(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return R and ∇R of linear maps, (…, q, d) or (…, d); the gradient has their shape."""
        columns = as_columns(np.asarray(theta), self.outputs)
        gap, gradient = self.risk_of_columns.value_and_gradient(columns)
        return self.minimal_risk + gap, as_map(gradient)

    def slope_bound(self, theta: np.ndarray) -> np.ndarray:
        """Return ‖X‖_F‖φ'‖_F/n ≥ ‖∇R‖ of maps (…, q, d) or (…, d), at least that of Θ = 0."""
        X, y = self._rows
        z = X @ as_columns(theta, self.outputs)
        at = (self.convex_loss.slope(at, y) for at in (z, np.zeros_like(y)))
        sizes = (np.linalg.norm(slope, axis=(-2, -1)) for slope in at)
        return np.linalg.norm(X) * np.maximum(*sizes) / self.samples

    @cached_property
    def curvature(self) -> np.ndarray:
        """H at Θ*: (d, d), or (q·d, q·d) class-major for softmax."""
        return self.curvature_at(self.optimum)

    def curvature_at(self, theta: np.ndarray) -> np.ndarray:
        """Return H(Θ) = ∇²R at a linear map, (q, d) or (d,), in the layout of `curvature`."""
        X, y = self._rows
        return assembled(X, self.convex_loss.blocks(X @ as_columns(theta, self.outputs), y))

    @cached_property
    def spectrum(self) -> Spectrum:
        """The nonzero eigenvalues of H/2, largest first, with eigenvectors and w* in that basis."""
        self.require_single_target("the spectrum of H/2 as a matrix of the inputs")
        rows, optimum = self.curvature_rows("the spectrum of H"), self.optimum_columns
        _, singular, right = thin_svd(rows, rows[:, :0])
        keep = singular > np.finfo(np.float64).eps * max(rows.shape) * singular[0]
        vectors = right[keep].T
        return Spectrum(singular[keep] ** 2 / len(rows), vectors, vectors.T @ optimum)

    def curvature_rows(self, quantity: str) -> np.ndarray:
        """Return (φ_i''/2)^{1/2}x_i at the optimum, for one output."""
        self.require_single_target(quantity)
        X, y = self._rows
        return np.sqrt(self.convex_loss.second(X @ self.optimum_columns, y) / 2) * X

    @property
    def residual_share(self) -> float:
        """Mean of φ'² at the optimum over that at zero: 0 if every φ_i' vanishes."""
        X, y = self._rows
        at = [X @ self.optimum_columns, np.zeros_like(y)]
        there, zero = (float(np.mean(self.convex_loss.slope(z, y) ** 2)) for z in at)
        return there / zero if zero > 0 else 0.0

    def best_of_rank(self, rank: int) -> BestOfRank:
        """Return the product of rank at most r with the least risk that descent finds (X-34)."""
        r = whole_number("rank", rank)
        optimum = self.optimum_columns
        values = np.linalg.svd(optimum, compute_uv=False)
        full = numerical_rank(values, max(optimum.shape))
        if r >= full:
            product, excess = optimum, 0.0
        else:
            if r not in self._best_products:
                self._best_products[r] = self._best_factors(r)
            product = self._best_products[r]
            excess = float(self.risk_of_columns.value_and_gradient(product)[0])
        return BestOfRank(
            product=as_map(product),
            risk=self.minimal_risk + excess,
            excess=excess,
            rank=min(r, full),
            unique=r >= full,
            exact=r >= full,
        )

    @cached_property
    def _best_products(self) -> dict[int, np.ndarray]:
        return {}

    def _best_factors(self, rank: int) -> np.ndarray:
        """Return the best product (d, q) of this rank that descent finds, in whitened inputs."""
        loss, targets, E = self.convex_loss, self._rows[1], self.coordinates.outputs
        Q, R = np.linalg.qr(self.coordinates.rows)
        n, rows = len(Q), np.sqrt(len(Q)) * Q

        def risk(product: np.ndarray) -> tuple[float, np.ndarray]:
            z = rows @ product @ E.T
            return float(loss.value(z, targets).mean()), rows.T @ (loss.slope(z, targets) @ E) / n

        def hessian(product: np.ndarray) -> np.ndarray:
            return assembled(rows, E.T @ loss.blocks(rows @ product @ E.T, targets) @ E)

        best = Factors(risk, hessian, rows.shape[1], E.shape[1], rank).least(
            R @ self._fit.coordinates / np.sqrt(n)
        )
        return self.coordinates.theta(np.linalg.solve(R, np.sqrt(n) * best))

    def require_signal(self, quantity: str) -> None:
        """Raise InputError if w* = 0 or H^{1/2}w* = 0, where the infimum of S is 0."""
        super().require_signal(quantity)
        if self.outputs == 1:
            size = float(np.linalg.norm(self.spectrum.coordinates))
            if size <= 1e-14 * self.optimum_norm:
                raise InputError(
                    f"{quantity} is 0, and no minimizer has it: the risk does not bend along w* "
                    "(every sample that sees w* lies on a linear part of the loss)."
                )

    @property
    def zero_risk(self) -> float:
        """R(0), the risk of the zero map."""
        return self.minimal_risk + self.zero_gap

    _solution_name, _curvature_name = "minimizer", "H"

    @cached_property
    def _eigenvalues(self) -> np.ndarray:
        if not isinstance(self.convex_loss, Softmax):
            return self.spectrum.eigenvalues
        values = np.linalg.eigvalsh(self.curvature)[::-1] / 2
        return values[values > np.finfo(np.float64).eps * len(values) * max(values[0], 0.0)]

    @cached_property
    def _fit(self) -> Fit:
        with few_threads(self):
            return fit(self.convex_loss, self.coordinates, self._rows[1])

    @property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        return self.require_data("a loss that is not squared")
