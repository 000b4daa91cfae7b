"""The risk as a function of the product Θ (d×q): what training and Hessians ask of a problem."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from deeplin.problems.losses import ConvexLoss


class LeastSquares(NamedTuple):
    """R(Θ) = R_min + Tr((Θ−Θ*)ᵀ Σ̂ (Θ−Θ*)) (FM-L8).

    Written about the optimum, the gap R − R_min keeps its relative accuracy down to rounding,
    which the expanded form ‖y‖²/n − 2wᵀb + wᵀΣ̂w does not.
    """

    covariance: Float[Array, "d d"]
    optimum: Float[Array, "d q"]
    minimal_risk: Float[Array, ""]

    def value_and_gradient(self, theta: Any) -> tuple[Any, Any]:
        """R(Θ) − `minimal_risk` and ∇R(Θ) of Θ (…, d, q)."""
        difference = theta - self.optimum
        slope = 2 * self.covariance @ difference
        return 0.5 * (difference * slope).sum(axis=(-2, -1)), slope

    def curvature_product(self, theta: Any, direction: Any) -> Any:
        """∇²R(Θ)[D] = 2Σ̂D."""
        return 2 * self.covariance @ direction


class GeneralizedLinear(eqx.Module):
    """R(Θ) = (1/n)Σφ(Θᵀx_i, y_i) of any convex loss φ (X-14, X-17), from the rows.

    About the predictions of a minimizer, R − R_min is the mean excess of φ over its tangents there,
    which keeps its accuracy; data without a minimizer have none, and the infimum is subtracted.
    """

    inputs: Float[Array | np.ndarray, "n d"]
    targets: Float[Array | np.ndarray, "n q"]
    predictions: Float[Array | np.ndarray, "n q"] | None
    """Those of a minimizer, if there is one."""
    minimal_risk: Float[Array | np.ndarray, ""]
    """The infimum of R."""
    loss: ConvexLoss = eqx.field(static=True)

    def value_and_gradient(self, theta: Any) -> tuple[Any, Any]:
        """R(Θ) − `minimal_risk` and ∇R(Θ) of Θ (…, d, q)."""
        z, n = self.inputs @ theta, self.inputs.shape[0]
        gradient = self.inputs.T @ self.loss.slope(z, self.targets) / n
        if self.predictions is None:
            return self.loss.value(z, self.targets).mean(axis=-1) - self.minimal_risk, gradient
        return self.loss.excess(self.predictions, z, self.targets).mean(axis=-1), gradient

    def curvature_product(self, theta: Any, direction: Any) -> Any:
        """∇²R(Θ)[D] = (1/n)Xᵀ φ''(XΘ)[XD]."""
        bent = self.loss.bend(self.inputs @ theta, self.targets, self.inputs @ direction)
        return self.inputs.T @ bent / self.inputs.shape[0]


Objective: TypeAlias = LeastSquares | GeneralizedLinear
