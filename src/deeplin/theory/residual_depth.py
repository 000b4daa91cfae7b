"""How deep a residual network must be for its products to stay conditioned: X-21, beside FM-L3.

FM's Lemma 3 pays for a fine net of the sphere to bound σ_min. Here σ_min(Π)^{−1} = ‖Π^{−T}‖ is
bounded as a norm, by a chain of its own with the coarse net, and s^{−2/3} leaves the conditions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, logsumexp

from deeplin.errors import InputError, positive_number, whole_number
from deeplin.theory.residual_initialization import (
    ProductBounds,
    product_constants,
    smallest_depth,
)
from deeplin.theory.secular import root

REACH = 9.0
"""Standard deviations to which Gaussian integrals are carried: what is beyond is below 1e-18."""


def sharp_product_bounds(scale: float, u: float, *, closed_form: bool = False) -> ProductBounds:
    """M_0 = 2exp(s²/2 + u) and m_0 = ½exp(−s²/2 − u); with `closed_form` ½exp(−s² − u) (X-21)."""
    s2 = positive_number("scale", scale) ** 2
    return ProductBounds(2 * np.exp(s2 / 2 + u), np.exp(-(1 if closed_form else 0.5) * s2 - u) / 2)


@lru_cache(maxsize=256)
def sharp_failure_probability(
    scale: float,
    width: int,
    depth: int,
    u: float,
    *,
    target: float = 0.01,
    closed_form: bool = False,
) -> float:
    """Bound the probability that some Π_{k:1} or Π_{L:k} leaves `sharp_product_bounds` (X-21).

    W_k = I + (s/√(Ld))N_k. In closed form 2·5^d(e^{−3du²/8s²} + e^{−9du²/40s²}) + Le^{−Ld/128s²}
    for L ≥ max(8(u+s²), 256s²), and 1 elsewhere (theorem). The default is sharper and for every L:
    2·5^d inf_p [max(1, Eξ^p)^L + max(1, Eζ^p)^L] e^{−p(s²+2u)} + target/20 (theorem, expectations
    by quadrature). ξ and ζ are what one layer and its inverse transpose do to a squared length, ζ
    cut off at norms of N_k that occur with probability target/20.

    Args:
        scale: s.
        width: d ≥ 2.
        depth: L.
        u: The margin of the bounds, above 0.
        target: The total aimed at, which sets the cut-off.
        closed_form: Evaluate the closed form.

    ```python
    import deeplin as dl
    assert dl.theory.sharp_failure_probability(scale=0.25, width=5, depth=10, u=0.8) < 0.01
    ```
    """
    s, u = positive_number("scale", scale), positive_number("u", u)
    d, L = whole_number("width", width, minimum=2), whole_number("depth", depth)
    if closed_form:
        if max(8 * (u + s**2), 256 * s**2) > L:
            return 1.0
        tails = [-3 * d * u**2 / (8 * s**2), -9 * d * u**2 / (40 * s**2)]
        net = np.log(2) + d * np.log(5) + logsumexp(tails)
        return float(min(1.0, np.exp(np.logaddexp(net, np.log(L) - L * d / (128 * s**2)))))
    c = s / np.sqrt(L * d)
    cut = c * (2 * np.sqrt(d) + np.sqrt(2 * np.log(20 * L / target)))
    if cut >= 1:
        return 1.0
    # The best p is near du/(2s²) + 1/2; there the Gaussian is centered at 2pc.
    steepest = d * u / s**2 + 1
    *growth, log_weight = _growth(c, d, cut, 2 * steepest * c)
    tails = [_doob(log, log_weight, L, s**2 + 2 * u, steepest) for log in growth]
    return float(min(1.0, np.exp(np.log(2) + d * np.log(5) + logsumexp(tails)) + target / 20))


def _growth(c: float, d: int, cut: float, end: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log ξ, log ζ and log weights at nodes (g, χ²_{d−1}), g up to REACH beyond `end`.

    ξ = (1+cg)² + c²χ²; ζ = min((n_1−cg)^{−2}, (1−cut)^{−2}) with n_1 = (1+c²χ²/(1−cut)²)^{−½}.
    """
    g = np.arange(-REACH, REACH + end, 0.3)[:, None]
    square, log_square = _chi_square(d - 1)
    log_weight = -(g**2) / 2 + np.log(0.3 / np.sqrt(2 * np.pi)) + log_square
    inner = (1 + c**2 * square / (1 - cut) ** 2) ** -0.5
    grown = np.log((1 + c * g) ** 2 + c**2 * square)
    return grown, -2 * np.log(np.maximum(np.abs(inner - c * g), 1 - cut)), log_weight


def _doob(
    log_growth: np.ndarray, log_weight: np.ndarray, L: int, level: float, end: float
) -> float:
    """min over p ∈ [0, end] of L max(0, log E growth^p) − p·level, convex in p."""

    def exponent(p: float) -> float:
        return L * max(0.0, float(np.asarray(logsumexp(p * log_growth + log_weight)))) - p * level

    from scipy.optimize import minimize_scalar  # slow to import

    found: Any = minimize_scalar(
        exponent, bounds=(0.0, end), method="bounded", options={"xatol": 1e-4}
    )
    return min(0.0, float(found.fun))


@lru_cache(maxsize=32)
def _chi_square(freedom: int) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Nodes and log weights of the χ² law: the trapezoidal rule in log(χ²/2).

    From where 1e-22 of the mass is left to four times the mean, where powers of ξ may still count.
    """
    a = freedom / 2
    step = 0.7 / np.sqrt(a + 4)
    t = np.arange(np.log(a) - 10 / np.sqrt(a) - 50 / a, np.log(4 * a + 60), step)
    return 2 * np.exp(t), a * t - np.exp(t) - gammaln(a) + np.log(step)


def least_margin(scale: float, width: int, target: float = 0.01) -> float:
    """u_∞: the smallest u at which, as L → ∞, the failure of `sharp_failure_probability` is target.

    2·5^d(e^{−d(u+s²/d)²/2s²} + e^{−du²/2s²}) = target, without the share of the cut-off.
    """
    s, d = positive_number("scale", scale), whole_number("width", width, minimum=2)

    def excess(u: float) -> float:
        tails = [-d * (u + s**2 / d) ** 2 / (2 * s**2), -d * u**2 / (2 * s**2)]
        return float(np.log(2) + d * np.log(5) + logsumexp(tails) - np.log(target))

    return root(excess, 0.0, 10 * s * np.sqrt(2 - np.log(target)))


def certified_depth(
    scale: float, width: int, *, margin: float = 1.1, target: float = 0.01, limit: int = 10**6
) -> int | None:
    """The smallest L at which the products stay conditioned with probability ≥ 1 − target (X-21).

    At u = margin·u_∞ (`least_margin`), for d ≥ 2; None beyond `limit`. FM-L3 asks for far more
    (`smallest_admissible_depth`).

    ```python
    import deeplin as dl
    assert dl.theory.certified_depth(scale=0.25, width=5) < 20
    assert dl.theory.smallest_admissible_depth(scale=0.25, width=5) == 48
    ```
    """
    if not (margin > 1 and 0 < target < 1):
        raise InputError(
            f"margin is {margin} and target {target}; pass a margin above 1 and a target between "
            "0 and 1."
        )
    u = margin * least_margin(scale, width, target)

    def enough(L: int) -> bool:
        return sharp_failure_probability(scale, width, L, u, target=target) <= target

    return smallest_depth(enough, limit)


def certified_gap(scale: float, depth: int, u: float, *, closed_form: bool = False) -> float:
    """C_4 of X-20 at the bounds of X-21: convergence from R(W(0)) − R_min ≤ C_4λ‖p‖²."""
    bounds = sharp_product_bounds(scale, u, closed_form=closed_form)
    return float(product_constants(bounds.largest, bounds.smallest, depth).gap)
