"""Laws of the part of a trained wide network orthogonal to the data (X-25 to X-30).

W_1 ~ N(0, α²) (m×d), identity in between, W_L ~ N(0, β²) (q×m), trained to interpolation. With U =
W_2ᵀ…W_Lᵀ the part of Θ orthogonal to the data is Θ_⊥ = (I−P)W_1(0)ᵀU, and U is independent of
W_1(0)(I−P): so E‖Θ−Θ_min‖² = α²(d−n)E‖U‖² and the risk grows by α²tr((I−P)Σ)E‖U‖² (X-25). This
module has the laws of E‖U‖². Notation: a² = α²m, b² = β²m, ℓ = L−2, s_i the singular values of
Θ_min.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from deeplin.dynamics import gradient_flow
from deeplin.dynamics.reduction import in_coordinates
from deeplin.errors import InputError, positive_number, whole_number
from deeplin.markup import html_table
from deeplin.networks import Network
from deeplin.networks.products import product
from deeplin.problems import Population, Problem
from deeplin.theory.benign_overfitting import require_interpolation, unseen_trace
from deeplin.theory.roots import root

LAZY, RICH = 0.01, 1.0
"""Squared relative motion of the layers below which a network is lazy, and above which rich."""
STATUS = {
    "X-6": "exact: a zero first layer leaves nothing beside the data",
    "X-27": "theorem in the limit of width, any α and depth; finite width to leading order",
    "X-28": "theorem in the limit of width for α → 0; small α to leading order",
    "X-29": "leading order in the motion of the layers",
    "X-30": "limit of width, by one deterministic flow",
}
"""Status of the value of each method: exact, theorem or leading order."""


@dataclass(frozen=True)
class Law:
    """Mean effect, over the start, of the part of a trained wide network orthogonal to the data."""

    distance: float
    """E‖Θ(∞) − Θ_min‖_F², squared (X-25)."""
    deviation: float
    """Standard deviation of that squared distance over single runs, to leading order."""
    added_risk: float | None
    """E Risk(Θ(∞)) − Risk(Θ_min); None without a population."""
    squared_product: float
    """E‖U‖_F², through which depth, width, α and β act."""
    method: str
    """The result that gave it: X-6, X-27, X-28, X-29 or X-30."""
    regime: str
    """`lazy`, `intermediate` or `rich`, by how far the layers move."""
    error: float
    """Estimated relative error of the three means, from the terms left out."""

    @property
    def status(self) -> str:
        """Which part of the method is a theorem and which is leading order."""
        return STATUS[self.method]

    def _repr_html_(self) -> str:
        risk = "pass a population" if self.added_risk is None else f"{self.added_risk:.4g}"
        rows = {
            "E‖Θ − Θ_min‖²": f"{self.distance:.4g} (one run: ± {self.deviation:.2g})",
            "added risk": risk,
            "E‖U‖²": f"{self.squared_product:.4g}",
            "method": f"{self.method}: {self.status}",
            "regime": self.regime,
            "relative error": f"about {self.error:.1g}",
        }
        return html_table(rows)


class Start(NamedTuple):
    """A random start and the singular values of the target."""

    singular: Float[np.ndarray, " q"]
    """s_i of Θ_min, one for each output."""
    samples: int
    width: float
    depth: int
    alpha: float
    beta: float

    @property
    def a2(self) -> float:
        """a² = α²m."""
        return self.alpha**2 * self.width

    @property
    def b2(self) -> float:
        """b² = β²m."""
        return self.beta**2 * self.width

    @property
    def motion(self) -> float:
        """The next order of X-29, relative to what training adds.

        J² + (ℓabJ)² + ℓb²(1+ℓa²)J² with J = s_1/(a²+b²+ℓa²b²).
        """
        a2, b2, hidden = self.a2, self.b2, self.depth - 2
        J2 = (float(self.singular.max()) / _stiffness(a2, b2, self.depth)) ** 2
        return J2 * (1 + hidden**2 * a2 * b2 + hidden * b2 * (1 + hidden * a2))

    @property
    def regime(self) -> str:
        """`lazy`, `intermediate` or `rich`, by `motion`."""
        return "lazy" if self.motion < LAZY else "intermediate" if self.motion < RICH else "rich"


class Modes(NamedTuple):
    """Mean squared singular values of U(∞), with their method and relative error."""

    squares: Float[np.ndarray, " q"]
    method: str
    error: float


def wide_law(
    problem: Problem,
    width: int,
    depth: int,
    alpha: float,
    beta: float,
    population: Population | None = None,
) -> Law:
    """Return mean distance to Θ_min and mean added risk of a trained wide network (X-25 to X-30).

    Gradient flow (or descent with stable steps) to interpolation from W_1 ~ N(0, α²), identity in
    between, W_L ~ N(0, β²):

        E‖Θ−Θ_min‖² = α²(d−n)E‖U‖²,    E Risk − Risk(Θ_min) = α²tr((I−P)Σ)E‖U‖².

    E‖U‖² comes from X-27 for β = 0, from the closed form X-29 where the layers move little, from
    X-28 for very small α, and else from one flow of a network of width n + q (X-30).

    Args:
        problem: data X (n×d, d > n, independent rows) and Y.
        width: m, at least max(n, q) + 2.
        depth: L, at least 2.
        alpha: standard deviation of the entries of the first layer.
        beta: standard deviation of the entries of the last layer.
        population: where the data come from, for `added_risk`.

    ```python
    import deeplin as dl
    data = dl.problems.synthetic.spiked(seed=0, dimension=500)
    law = dl.theory.wide_law(data.problem, width=5030, depth=3, alpha=1.0, beta=0.0)
    assert law.distance > 0 and law.method == "X-27"    # β → 0 does not give Θ_min
    ```
    """
    start = _start(problem, width, depth, alpha, beta)
    modes = expected_modes(start)
    if modes is None:
        squares = np.linalg.svd(wide_limit(problem, depth, start.a2, start.b2)[1], compute_uv=False)
        modes = Modes(squares**2, "X-30", (start.samples + problem.outputs + 1) / start.width)
    total, variance = float(np.sum(modes.squares)), start.alpha**2
    free = problem.dimension - problem.rank
    if population is not None:
        population.require_fit(problem)
    trace = None if population is None else unseen_trace(problem, population)
    return Law(
        distance=variance * free * total,
        deviation=variance * float(np.sqrt(2 * free * np.sum(modes.squares**2))),
        added_risk=None if trace is None else variance * trace * total,
        squared_product=total,
        method=modes.method,
        regime=start.regime,
        error=modes.error,
    )


def expected_modes(start: Start) -> Modes | None:
    """Return the law in closed form, or None if it needs a flow (X-30)."""
    if start.alpha == 0:
        # U is that of X-28 with a = 0, but nothing multiplies it
        return Modes(_vanishing_first(start), "X-6", 0.0)
    if start.beta == 0:
        return _zero_last(start)
    lazy = lazy_modes(start)
    if lazy.error <= LAZY or start.motion <= LAZY:
        return lazy
    small = 2 * start.a2 * (start.depth - 2 + 1 / start.b2)
    if small <= LAZY / 10:
        return Modes(_vanishing_first(start), "X-28", small + _coarse(start) ** 2)
    return None


def learned_share(singular: np.ndarray, scale: float, depth: int) -> np.ndarray:
    """Return κ_i ≥ 0 with κ(1+κ)^{L−2}(z+κ) = s_i², the root of X-27 (z = a²) and X-28 (z = b²)."""
    return np.array([_share(float(s), scale, depth - 2) for s in np.atleast_1d(singular)])


def _share(s: float, z: float, hidden: int) -> float:
    if s == 0:
        return 0.0
    # f(κ) ≥ κ² and f(κ) ≥ κz, so the root is below both; then f(κ) ≤ κ(1+high)^ℓ(z+high).
    # All in logarithms: s² may be below the smallest number.
    log_high = min(np.log(s), 2 * np.log(s) - np.log(z)) if z > 0 else np.log(s)
    high = np.exp(log_high)
    low = 2 * np.log(s) - hidden * np.log1p(high) - np.log(z + high)

    def excess(log: float) -> float:
        kappa = np.exp(log)
        return log + hidden * np.log1p(kappa) + np.log(z + kappa) - 2 * np.log(s)

    return float(np.exp(root(excess, low - 1e-9, log_high + 1e-9)))


def zero_last_modes(singular: np.ndarray, scale: float, depth: int) -> np.ndarray:
    """Return s_i²/(z+κ_i(z)), whose sum is v(z) of X-27.

    It holds for β = 0 and W_1(0)Q with columns of norm √z.
    """
    if scale == 0 and np.any(singular == 0):
        safe = np.where(singular > 0, singular, 1.0)
        return np.where(singular > 0, zero_last_modes(safe, scale, depth), 0.0)
    return singular**2 / (scale + learned_share(singular, scale, depth))


def zero_first_modes(
    singular: np.ndarray, scale: float, depth: int, start: float | None = None
) -> np.ndarray:
    """Return (b²+x_i)(1+x_i)^{L−2}, x_i the root of X-28, for α → 0 and initial W_LW_Lᵀ = b²I.

    The bounds for other starts have one singular value of W_L(0), squared, in the root (`scale`)
    and another one in the place of b² (`start`).
    """
    x = learned_share(singular, scale, depth)
    return ((scale if start is None else start) + x) * np.exp((depth - 2) * np.log1p(x))


def _vanishing_first(start: Start) -> np.ndarray:
    return zero_first_modes(start.singular, start.b2, start.depth)


def _zero_last(start: Start) -> Modes:
    """Return X-27 at finite width: a² is α²(m−n−1) when lazy (exact), and α²m when rich.

    In between the two are weighted by a²/(a²+κ); the error estimate is their difference, which
    vanishes at both ends, plus the finite-width terms.
    """
    s, L, m, spare = start.singular, start.depth, start.width, start.width - start.samples - 1
    share = start.a2 / (start.a2 + learned_share(s, start.a2, L))
    reduced, full = (zero_last_modes(s, start.alpha**2 * z, L) for z in (spare, m))
    modes = share * reduced + (1 - share) * full
    total = max(float(np.sum(modes)), np.finfo(float).tiny)
    apart = float(np.sum((1 - share) * (reduced - full))) / total
    return Modes(modes, "X-27", apart + (2 / spare) ** 2)


def _stiffness(a2: float, b2: float, depth: int) -> float:
    """Return κ = a² + b² + (L−2)a²b²; 2‖X‖²κ is the sharpness of ℒ at a wide start (X-31)."""
    return a2 + b2 + (depth - 2) * a2 * b2


def lazy_coefficient(a2: float, b2: float, depth: int) -> float:
    """Return c_L(a, b), the share of ‖Θ_min‖² that training adds to ‖U‖² (X-29); a²c_L ≤ 3/2."""
    hidden = depth - 2
    first = a2 * (1 + hidden * b2) ** 2
    last = b2 * (1 + hidden * (a2 + b2) + a2 * b2 * hidden * (hidden - 1) / 2)
    return (first + last) / _stiffness(a2, b2, depth) ** 2


def lazy_modes(start: Start) -> Modes:
    """Return E‖U‖² = β²mq + c_L‖Θ_min‖² + (c_L − 2(1+ℓb²)/κ)α²β²mnq, mode by mode (X-29).

    The coefficient of ‖Θ_min‖² has a² = α²(m−n−1), b² = β²(m−q−1); the others a² = α²m, b² = β²m.
    """
    s, n, m, L, alpha, beta = start
    a2, b2, q = start.a2, start.b2, len(s)
    learned = lazy_coefficient(alpha**2 * (m - n - 1), beta**2 * (m - q - 1), L) * s**2
    meeting = lazy_coefficient(a2, b2, L) - 2 * (1 + (L - 2) * b2) / _stiffness(a2, b2, L)
    squares = b2 + learned + meeting * a2 * beta**2 * n
    trained = float(np.sum(learned)) / float(np.sum(squares))
    return Modes(squares, "X-29", start.motion * trained + _coarse(start) ** 2)


def _coarse(start: Start) -> float:
    """Return (n+q+1)/m, the size of the finite-width terms that are left out."""
    return (start.samples + len(start.singular) + 1) / start.width


def wide_limit(
    problem: Problem, depth: int, a2: float, b2: float
) -> tuple[Float[np.ndarray, "r q"], Float[np.ndarray, "r q"]]:
    """Return U(0) and U(∞) of an infinitely wide network, by one deterministic flow (X-30).

    The flow of A(0) = [aI_n; 0], W_k = I_{n+q}, B(0) = [0, bI_q] on the data in their own span.
    """
    n, q = problem.rank, problem.outputs
    eye = np.eye(n + q)
    layers = (np.sqrt(a2) * eye[:, :n], *[eye] * (depth - 2), np.sqrt(b2) * eye[n:])
    network = Network(layers)
    small = in_coordinates(problem, problem.spectrum.vectors)
    goal = 1e-12 * problem.zero_gap
    run = gradient_flow(small, network, gap=goal, keep_weights=False, rtol=1e-8, atol=1e-12)
    end = [np.asarray(layer) for layer in run.network.weights]
    return product(layers[1:]), product(end[1:])


def _start(problem: Problem, width: int, depth: int, alpha: float, beta: float) -> Start:
    require_interpolation(problem, "the law of wide networks")
    n, q = problem.rank, problem.outputs
    if problem.dimension <= n:
        raise InputError(
            f"the problem has {problem.dimension} inputs and {n} independent samples; pass fewer "
            "samples than inputs, since only then is anything left beside the data."
        )
    m, L = whole_number("width", width), whole_number("depth", depth, minimum=2)
    if m < max(n, q) + 2:
        raise InputError(
            f"width is {m}; the laws are expansions for wide networks, pass at least "
            f"{max(n, q) + 2} here, or use simulate_wide."
        )
    sizes = (
        positive_number(name, value, zero_allowed=True)
        for name, value in (("alpha", alpha), ("beta", beta))
    )
    alpha, beta = sizes
    if alpha == 0 and beta == 0:
        raise InputError(
            "alpha and beta are 0: such a network never moves; pass one of them above 0."
        )
    found = np.linalg.svd(problem.spectrum.coordinates, compute_uv=False)
    singular = np.zeros(q)
    singular[: len(found)] = found
    return Start(singular, n, float(m), L, alpha, beta)
