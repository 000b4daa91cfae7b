"""Residual initialization: products of layers, the constants of FM Section 5, X-20 and X-21.

FM's Lemma 3 needs a fine net of the sphere to bound σ_min. In X-21 σ_min(Π)^{−1} = ‖Π^{−T}‖ is
bounded as a norm, by its own chain with a coarse net, which removes s^{−2/3} from the conditions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, logsumexp

from deeplin.errors import InputError, positive_number, whole_number
from deeplin.networks import Network
from deeplin.networks.network import host_arrays
from deeplin.networks.products import values_of_layers
from deeplin.theory.roots import root

U_GRID = np.geomspace(1e-3, 1e3, 6001)
"""Grid of u for the search of admissible constants, with a ratio of 1.0023."""


class ProductBounds(NamedTuple):
    """M_{s,u} and m_{s,u}: bounds of ‖Π_{k:1}‖_2 from above and σ_min(Π_{k:1}) from below."""

    largest: float | np.ndarray
    smallest: float | np.ndarray


def product_bounds(scale: ArrayLike, width: int, u: float | np.ndarray) -> ProductBounds:
    """Return M = 2exp(s²/2 + u) and m = ½exp(−2s²/d − u), the bounds of FM-L3 at θ = 0."""
    s2 = np.square(scale)
    return ProductBounds(2 * np.exp(s2 / 2 + u), 0.5 * np.exp(-2 * s2 / width - u))


def log_failure_probability(scale: float, width: int, depth: int, u: ArrayLike) -> np.ndarray:
    """Return the log of the bound on the probability that FM-L3 fails at θ = 0, for any s, u > 0.

    5^d[e^{−du²/16s²} + e^{−Ldu²/(4s⁴+4us²)}] +
    (2M/m+1)^d[e^{−du²/16s²} + e^{−Ld²u²/(16s²(4s²+du))} + Le^{−Ld/32s²}]
    in log space, since its terms exceed the range of float64 in both directions. The second and
    fourth denominators are the corrected ones (errata E-1, E-2).

    ```python
    import deeplin as dl
    log_bound = dl.theory.bounds.log_failure_probability(scale=0.1, width=20, depth=50, u=2.0)
    ```
    """
    s2 = positive_number("scale", scale) ** 2
    d, L = whole_number("width", width), whole_number("depth", depth)
    u = np.asarray(u, dtype=np.float64)
    coarse = d * np.log(5)
    fine = d * np.logaddexp(np.log(8) + s2 / 2 + 2 * s2 / d + 2 * u, 0)  # log(2M/m + 1)^d
    terms = [
        coarse - d * u**2 / (16 * s2),
        coarse - L * d * u**2 / (4 * s2**2 + 4 * u * s2),
        fine - d * u**2 / (16 * s2),
        fine - L * d**2 * u**2 / (16 * s2 * (4 * s2 + d * u)),
        fine + np.log(L) - L * d / (32 * s2) + 0 * u,
    ]
    return np.logaddexp.reduce(terms, axis=0)


@lru_cache(maxsize=256)
def least_failure_u(scale: float, width: int, depth: int) -> float:
    """Return the u at which the failure bound of FM-L3 is smallest."""
    return float(U_GRID[np.argmin(log_failure_probability(scale, width, depth, U_GRID))])


class Admissible(NamedTuple):
    """The u for which FM-L3 holds as stated at given s, d, L: from C̃_3 to C̃_4 L^{1/4}."""

    lower: float
    upper: float


@lru_cache(maxsize=256)
def admissible_range(scale: float, width: int, depth: int) -> Admissible | None:
    """Return the range of u with failure bound ≤ 8exp(−du²/(32s²)) < 1 (FM-L3), or None.

    The paper leaves C̃_1 … C̃_4 existential. For given s, d ≥ 4, L the first interval of such u makes
    them explicit: C̃_1 = L, C̃_2 = d, C̃_3 = lower end, C̃_4 = upper end / L^{1/4}.
    """
    log_claim = np.log(8) - width * U_GRID**2 / (32 * positive_number("scale", scale) ** 2)
    bound = log_failure_probability(scale, width, depth, U_GRID)
    good = np.flatnonzero((bound <= log_claim) & (log_claim < 0))
    if width < 4 or len(good) == 0:
        return None
    gaps = np.flatnonzero(np.diff(good) > 1)
    last = good[gaps[0]] if len(gaps) else good[-1]
    return Admissible(float(U_GRID[good[0]]), float(U_GRID[last]))


def smallest_admissible_depth(scale: float, width: int, limit: int = 10**9) -> int | None:
    """Return the smallest L at which FM-L3 has an admissible u, or None beyond `limit`.

    Compare `certified_depth`, which bounds the products directly (X-21).

    ```python
    import deeplin as dl
    assert dl.theory.bounds.smallest_admissible_depth(scale=0.1, width=5) == 3
    ```
    """
    return smallest_depth(lambda L: admissible_range(scale, width, L) is not None, limit)


def smallest_depth(enough: Callable[[int], bool], limit: int = 10**9) -> int | None:
    """Return the smallest L from which on `enough` holds, by bisection; None beyond `limit`."""
    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
        if high > limit:
            return None
    return bisect_left(range(high), True, low + 1, high, key=enough)


class ResidualConstants(NamedTuple):
    """The constants of FM-T4 and FM-C3 made explicit at given s, d, L."""

    probability: float
    """1 − 16exp(−C_3 d), the probability with which FM-T4 holds (never below 0)."""
    gap: float
    """C_4: FM-T4 requires R(W(0)) − R_min ≤ C_4λ²‖p‖²/Λ."""
    radius: float
    """C_5: every ‖θ_k‖_F stays below it."""
    rate: float
    """μ/(λ‖p‖²), μ the Polyak-Łojasiewicz constant of the proof."""
    sharpness_ratio: float
    """C of FM-C3: S/S_min ≤ CΛ/λ."""
    u: float
    """C̃_3, the u with which FM-L3 is applied."""


def residual_constants(scale: float, width: int, depth: int) -> ResidualConstants | None:
    """Return C_3, C_4, C_5, μ and C of FM-T4 and FM-C3, or None if FM-L3 has no admissible u.

    C_4 = 2^{−36}exp(−6s² − 16s²/d − 20u), C_5 = exp(−2s² − 4u)/64 (erratum E-23, X-20).

    ```python
    import deeplin as dl
    constants = dl.theory.bounds.residual_constants(scale=0.05, width=5, depth=10)
    ```
    """
    admissible = admissible_range(scale, width, depth)
    if admissible is None:
        return None
    s2, d, u = scale**2, width, admissible.lower
    gap = 2.0**-36 * np.exp(-6 * s2 - 16 * s2 / d - 20 * u)
    shrink = np.exp(-2 * s2 / d - u) / 4 - np.sqrt(gap)
    return ResidualConstants(
        probability=max(0.0, 1 - 16 * float(np.exp(-d * u**2 / (32 * s2)))),
        gap=float(gap),
        radius=float(np.exp(-2 * s2 - 4 * u) / 64),
        rate=float(2.0**-6 * np.exp(-8 * s2 / d - 4 * u) * depth),
        sharpness_ratio=float(2.0**8 * np.exp(2 * s2 + 4 * u) / shrink**2),
        u=u,
    )


class DrawConstants(NamedTuple):
    """Constants of convergence of the flow from a given start with square layers (X-20)."""

    largest: float | np.ndarray
    """M_0 ≥ 1: no product Π_{k:1} or Π_{L:k} of the start has a larger norm."""
    smallest: float | np.ndarray
    """m_0 ≤ 1: none has a smaller singular value."""
    gap: float | np.ndarray
    """C_4: the flow converges from R(W(0)) − R_min ≤ C_4λ‖p‖²."""
    radius: float | np.ndarray
    """ρ: every ‖θ_k‖_F stays below it."""
    rate: float | np.ndarray
    """μ/(λ‖p‖²), μ the Polyak-Łojasiewicz constant along the flow."""
    sharpness_ratio: float | np.ndarray
    """C: S/S_min ≤ C(Λ/a)L/G(Λ/a) at the end, for Σ̂ of full rank."""


def draw_constants(network: Network) -> DrawConstants:
    """Return the constants of X-20 for a given start, or for each network of a batch (theorem).

    With M_0, m_0 measured on the products of the start and any x ∈ (0, ½]: ρ = x m_0/M_0,
    √C_4 = x e^{−2x}(1 − x/L)^{4L}m_0⁵/M_0³; the best x = 2L/(6L+1+√((6L+1)² − 8L)) is near 1/6. In
    FM-T4 the start must satisfy R(W(0)) − R_min ≤ C_4λ²‖p‖²/Λ with a far smaller C_4.

    ```python
    import deeplin as dl, jax
    net = dl.initialize.residual(jax.random.key(0), width=3, depth=10, scale=0.1)
    assert 1e-4 < dl.theory.bounds.draw_constants(net).gap < 4e-3
    ```
    """
    if len(set(network.widths)) > 1:
        raise InputError(f"the widths are {network.widths}; pass a network of square layers.")
    weights = host_arrays(network)[0]
    values = np.concatenate([prefix_singular_values(weights), suffix_singular_values(weights)], -2)
    M0 = np.maximum(np.max(values[..., 0], axis=-1), 1.0)
    m0 = np.minimum(np.min(values[..., 1], axis=-1), 1.0)
    found = product_constants(M0, m0, network.depth)
    return DrawConstants(*(float(x) for x in found)) if network.batch is None else found


def product_constants(M0: ArrayLike, m0: ArrayLike, depth: int) -> DrawConstants:
    """Return the constants of X-20 from bounds M_0 ≥ 1 and 0 ≤ m_0 ≤ 1 of the initial products."""
    M0, m0, L = np.asarray(M0, float), np.asarray(m0, float), depth
    x = 2 * L / (6 * L + 1 + np.sqrt((6 * L + 1) ** 2 - 8 * L))
    m, root = m0 * (1 - x / L) ** L, x * np.exp(-2 * x) * (1 - x / L) ** (4 * L) * m0**5 / M0**3
    with np.errstate(divide="ignore"):
        ratio = (M0 * np.exp(x)) ** 4 * (m0 - root) ** (-2 + 2 / L)
    return DrawConstants(M0, m0, root**2, x * m0 / M0, 4 * m**4 * L, ratio)


def prefix_singular_values(weights: Sequence[np.ndarray]) -> np.ndarray:
    """Return ‖Π_{k:1}‖_2 and σ_min(Π_{k:1}) for k = 1 … L, of shape (…, L, 2)."""
    return values_of_layers(list(accumulate(weights, lambda done, weight: weight @ done)))


def suffix_singular_values(weights: Sequence[np.ndarray]) -> np.ndarray:
    """Return ‖Π_{L:k}‖_2 and σ_min(Π_{L:k}) for k = 1 … L, of shape (…, L, 2)."""
    return values_of_layers(list(accumulate(weights[::-1], np.matmul)))[..., ::-1, :]


def noise_scale(network: Network) -> float | np.ndarray:
    """Return s of W_k(0) = I + (s/√(Ld))N_k, the root mean square of √(Ld)(W_k − I).

    A float, or one for each network of a batch.
    """
    noise = residual_noise(network)
    root = np.sqrt(np.mean(noise**2, axis=(-1, -2, -3)))
    return float(root) if network.batch is None else root


def residual_noise(network: Network) -> np.ndarray:
    """Return s N_k = √(Ld)(W_k − I), of shape (…, L, d, d)."""
    d, L = network.widths[0], network.depth
    weights = np.stack(host_arrays(network)[0], axis=-3)
    return (weights - np.eye(d)) * np.sqrt(L * d)


REACH = 9.0
"""Range of Gaussian integrals in standard deviations; the mass beyond it is below 1e-18."""


def sharp_product_bounds(scale: float, u: float) -> ProductBounds:
    """Return M_0 = 2exp(s²/2 + u) and m_0 = ½exp(−s²/2 − u) (X-21)."""
    s2 = positive_number("scale", scale) ** 2
    return ProductBounds(2 * np.exp(s2 / 2 + u), np.exp(-s2 / 2 - u) / 2)


@lru_cache(maxsize=256)
def sharp_failure_probability(
    scale: float, width: int, depth: int, u: float, *, target: float = 0.01
) -> float:
    """Return a bound on the probability that a Π_{k:1} or Π_{L:k} leaves its bounds (X-21).

    The bounds are those of `sharp_product_bounds`.

    W_k = I + (s/√(Ld))N_k: 2·5^d inf_p [max(1, Eξ^p)^L + max(1, Eζ^p)^L] e^{−p(s²+2u)} + target/20
    (theorem, expectations by quadrature). ξ and ζ are the factors by which one layer and its
    inverse transpose change a squared length, with ζ cut off at norms of N_k that occur with
    probability target/20.

    Args:
        scale: s.
        width: d ≥ 2.
        depth: L.
        u: The margin of the bounds, above 0.
        target: The intended total probability, which determines the cut-off.

    ```python
    import deeplin as dl
    assert dl.theory.bounds.sharp_failure_probability(scale=0.25, width=5, depth=10, u=0.8) < 0.01
    ```
    """
    s, u = positive_number("scale", scale), positive_number("u", u)
    d, L = whole_number("width", width, minimum=2), whole_number("depth", depth)
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
    """Return log ξ, log ζ and log weights at nodes (g, χ²_{d−1}), g up to REACH beyond `end`.

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
    """Return min over p ∈ [0, end] of L max(0, log E growth^p) − p·level, convex in p."""

    def exponent(p: float) -> float:
        return L * max(0.0, float(np.asarray(logsumexp(p * log_growth + log_weight)))) - p * level

    found: Any = minimize_scalar(
        exponent, bounds=(0.0, end), method="bounded", options={"xatol": 1e-4}
    )
    return min(0.0, float(found.fun))


@lru_cache(maxsize=32)
def _chi_square(freedom: int) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Return nodes and log weights of the χ² law, by the trapezoidal rule in log(χ²/2).

    The range is from where 1e-22 of the mass is left to four times the mean, where powers of ξ may
    still matter.
    """
    a = freedom / 2
    step = 0.7 / np.sqrt(a + 4)
    t = np.arange(np.log(a) - 10 / np.sqrt(a) - 50 / a, np.log(4 * a + 60), step)
    return 2 * np.exp(t), a * t - np.exp(t) - gammaln(a) + np.log(step)


@lru_cache(maxsize=256)
def least_margin(scale: float, width: int, target: float = 0.01) -> float:
    """Return u_∞, the least u whose failure probability (X-21) is `target` as L → ∞.

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
    """Return the least L at which products stay conditioned with probability ≥ 1 − target (X-21).

    It uses u = margin·u_∞ (`least_margin`), for d ≥ 2, and is None beyond `limit`. FM-L3 requires
    far larger depths (`smallest_admissible_depth`).

    ```python
    import deeplin as dl
    assert dl.theory.bounds.certified_depth(scale=0.25, width=5) < 20
    assert dl.theory.bounds.smallest_admissible_depth(scale=0.25, width=5) == 48
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
