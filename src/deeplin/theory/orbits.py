"""Beyond the edge of stability: the period-two orbit of a balanced mode (X-12).

L equal weights x with the loss c(x^L − σ)² take the step x ← x + η'(σ − x^L)x^{L−1}, η' = 2cη.
Above η' = 2/(Lσ^{2−2/L}) they settle on an orbit x → ax → x instead of σ^{1/L}.
Orbits of deep linear networks and the thresholds of diag(10, 9.5, 9): Ghosh et al. 2025; the edge
of stability: Cohen et al. 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deeplin.errors import InputError, positive_number, whole_number
from deeplin.problems import Problem
from deeplin.theory.architecture import is_white, numerical_rank
from deeplin.theory.secular import root


@dataclass(frozen=True)
class Orbit:
    """x → ax → x for one mode, and what happens beside it."""

    target: float
    depth: int
    low: float
    """x, the smaller of the two weights; `high` is ax."""
    high: float
    multiplier: float
    """Derivative of the two-step map: what a small error of the common weight is multiplied by."""
    balance_multiplier: float
    """(2−a)(2−1/a): what a small difference between layers is multiplied by in two steps."""

    @property
    def ratio(self) -> float:
        """a > 1."""
        return self.high / self.low

    @property
    def stable(self) -> bool:
        """Whether iterates of this mode nearby, balanced or not, end on the orbit.

        In a network several modes that oscillate at once can also mix, which is not judged here.
        """
        return abs(self.multiplier) < 1 and abs(self.balance_multiplier) < 1

    @property
    def products(self) -> tuple[float, float]:
        """x^L and (ax)^L, below and above the target."""
        return self.low**self.depth, self.high**self.depth

    @property
    def amplitude(self) -> float:
        """Half the distance of the two products."""
        return (self.high**self.depth - self.low**self.depth) / 2


def balanced_orbit(
    target: float, depth: int, learning_rate: float, curvature: float = 1.0
) -> Orbit | None:
    """The orbit of period two of a balanced mode, or None where it settles (X-12).

    With the loss c(x^L − σ)² and η' = 2cη: a = 1 + η'(σ − x^L)x^{L−2} and
    σ = x^L(1 + a^{2L−1})/(1 + a^{L−1}). As η' grows with a, each rate above 2/(Lσ^{2−2/L}) has one
    orbit. `curvature` c is 1 for deeplin's risk with Σ̂ = I, and ½ for the loss ½(x^L − σ)².

    ```python
    import deeplin as dl
    orbit = dl.theory.balanced_orbit(10.0, depth=3, learning_rate=0.032, curvature=0.5)
    assert orbit.stable and orbit.low < 10 ** (1 / 3) < orbit.high
    assert dl.theory.balanced_orbit(10.0, depth=3, learning_rate=0.030, curvature=0.5) is None
    ```
    """
    sigma, L = positive_number("target", target), whole_number("depth", depth, minimum=2)
    rate = 2 * positive_number("curvature", curvature) * positive_number("rate", learning_rate)
    scaled = rate * sigma ** (2 - 2 / L)
    if scaled <= 2 / L * (1 + 1e-14):  # at the threshold up to rounding
        return None

    def excess(u: float) -> float:
        return np.log(_scaled_rate(u, L) / scaled)

    high = 1.0
    while excess(high) < 0:
        high *= 2
    a = float(np.exp(root(excess, 1e-9, high)))  # log a is at least about the root of 1e-14
    x = float((sigma * _share(np.log(a), L)) ** (1 / L))
    slopes = [
        1 + rate * ((L - 1) * sigma * y ** (L - 2) - (2 * L - 1) * y ** (2 * L - 2))
        for y in (x, a * x)
    ]
    return Orbit(sigma, L, x, a * x, slopes[0] * slopes[1], (2 - a) * (2 - 1 / a))


def mode_orbits(problem: Problem, depth: int, learning_rate: float) -> tuple[Orbit | None, ...]:
    """The orbit of every mode (singular value of Θ*) of balanced weights, largest first (X-12).

    For white inputs, Σ̂ = cI on its range, where balanced modes do not touch one another; None for
    a mode that settles. How many oscillate is the number of orbits.

    ```python
    import deeplin as dl, numpy as np
    X = np.sqrt(1.5) * np.eye(3)                        # Σ̂ = I/2: the risk is ½‖Θ − S‖²
    problem = dl.Problem.from_data(X, X @ np.diag([10, 9.5, 9]))
    orbits = dl.theory.mode_orbits(problem, depth=3, learning_rate=0.034)
    assert [orbit is not None for orbit in orbits] == [True, True, False]
    ```
    """
    problem.require_signal("the orbits of the modes")
    high, low = problem.largest_eigenvalue, problem.smallest_eigenvalue
    if not is_white(problem):
        raise InputError(
            "modes move apart from one another for white inputs (Σ̂ = cI) only; the eigenvalues of "
            f"Σ̂ run from {low:.4g} to {high:.4g}. Whiten the inputs."
        )
    sizes = np.linalg.svd(problem.spectrum.coordinates, compute_uv=False)
    rank = numerical_rank(sizes, max(problem.spectrum.coordinates.shape))
    return tuple(
        balanced_orbit(float(size), depth, learning_rate, (high + low) / 2) for size in sizes[:rank]
    )


def _share(u: float, L: int) -> float:
    """x^L/σ = (1 + a^{L−1})/(1 + a^{2L−1}), a = e^u."""
    return float(np.exp(np.logaddexp(0, (L - 1) * u) - np.logaddexp(0, (2 * L - 1) * u)))


def _scaled_rate(u: float, L: int) -> float:
    """η'σ^{2−2/L} = (a − 1)/((1 − s)s^{1−2/L}) with s = x^L/σ and 1 − s without cancellation."""
    s = _share(u, L)
    rest = np.expm1(L * u) * np.exp((L - 1) * u - np.logaddexp(0, (2 * L - 1) * u))
    return float(np.expm1(u) / (rest * s ** (1 - 2 / L)))
