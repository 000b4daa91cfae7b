"""The flattest minimiser for mini-batches, with a certificate that none is flatter (X-10).

Every minimiser has K ⪰ K_t = t²I + (L−1)(‖p‖/t)^{2/(L−1)}w*w*ᵀ for some t > 0 (proof of X-2), S_B
grows with K, and K_t is attained: S_min(B) = min over t of S_B(K_t). Any symmetric N gives a lower
bound for all t at once, a cut,

    S_B(K_t) ≥ c t²/(A − κ(t)B),   c = 2⟨N, E(N)⟩, A = tr Σ̂N², B = ŵᵀNΣ̂Nŵ, κ = b/(1+b),

b = (L−1)(‖p‖/t)^{2/(L−1)}‖w*‖²/t². In τ = log t the slope of the logarithm of a cut lies between
−2/(L−1) and 2, so the least value of the highest cut is known from its values on a grid. No
convexity is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from deeplin.theory.stochastic.second_moment import SecondMoment, TopMoment

CELLS = 64
SHARES = 4
"""Parts into which a cell that may hold the minimum is divided."""


@dataclass(frozen=True, eq=False)
class AlignedFamily:
    """The kernels K_t on the row space: rows (n×r), Σ̂ = diag(ℓ), coordinates of w*, L, ‖p‖, B."""

    rows: Float[np.ndarray, "n r"]
    eigenvalues: Float[np.ndarray, " r"]
    coordinates: Float[np.ndarray, " r"]
    depth: int
    norm: float
    batch_size: int

    @property
    def slopes(self) -> tuple[float, float]:
        """Between which d log(cut)/dτ lies."""
        return -2 / (self.depth - 1), 2.0

    def ratio(self, tau: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """(L−1)(‖p‖/t)^{2/(L−1)}, the weight of w*w*ᵀ in K_t."""
        return (self.depth - 1) * (self.norm * np.exp(-tau)) ** (2 / (self.depth - 1))

    def kernel(self, tau: float) -> Float[np.ndarray, "r r"]:
        """K_t."""
        w, weight = self.coordinates, self.ratio(np.array([tau]))[0]
        return np.exp(2 * tau) * np.eye(len(w)) + weight * np.outer(w, w)

    def top(self, tau: float, start: np.ndarray | None = None) -> TopMoment:
        """S_B(K_t)."""
        return SecondMoment(self.rows, self.kernel(tau), self.batch_size).top(start)

    def cut(self, N: Float[np.ndarray, "r r"]) -> Cut:
        """The lower bound that N gives."""
        unscaled = SecondMoment(self.rows, np.eye(len(N)), self.batch_size)
        inside = unscaled.basis.T @ N @ unscaled.basis
        w = self.coordinates / np.linalg.norm(self.coordinates)
        return Cut(
            float(np.sum(inside * unscaled.mean(inside))),
            float(np.sum(self.eigenvalues[:, None] * N**2)),
            float(self.eigenvalues @ (N @ w) ** 2),
        )

    def heights(self, cuts: list[Cut], tau: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """The logarithm of the highest cut at each τ."""
        c, A, B = np.array([(cut.top, cut.whole, cut.along) for cut in cuts]).T[..., None]
        b = self.ratio(tau) * float(np.sum(self.coordinates**2)) * np.exp(-2 * tau)
        # A − κB = (A − B) + B/(1+b), without cancellation where A = B
        return np.max(np.log(c) + 2 * tau - np.log((A - B) + B / (1 + b)), axis=0)


@dataclass(frozen=True)
class Cut:
    """c, A and B of one N."""

    top: float
    whole: float
    along: float


@dataclass(frozen=True)
class Flattest:
    """S_min(B): bounds, the value at the best t found, and that t."""

    lower: float
    value: float
    upper: float
    tau: float


def flattest(family: AlignedFamily, guess: float, tolerance: float, most: int = 60) -> Flattest:
    """Evaluate S_B(K_t) where the highest cut is lowest, until both agree to `tolerance`."""
    w = family.coordinates / np.linalg.norm(family.coordinates)
    cuts = [family.cut(np.outer(w, w))]  # grows without bound for t → 0
    tau, best, lower = guess, None, -np.inf
    found = None
    for _ in range(most):
        found = family.top(tau, None if found is None else found.moment)
        cuts.append(family.cut(found.moment))
        if best is None or found.value < best[0].value:
            best = found, tau
        low, high = _reach(family, cuts, np.log(best[0].value), tau)
        lower, tau = _lowest(family, cuts, low, high, tolerance / 4)
        if lower >= np.log(best[0].value) - tolerance:
            break
    assert best is not None
    top, at = best
    return Flattest(min(float(np.exp(lower)), top.value), top.value, top.upper, at)


def _reach(family: AlignedFamily, cuts: list[Cut], level: float, tau: float) -> tuple[float, float]:
    """An interval outside which the cuts are above this level."""
    ends = []
    for step in (-1.0, 1.0):
        # the first cut grows to the left and every cut to the right, at constant rates in the end
        while family.heights(cuts, np.array([tau + step]))[0] <= level:
            step *= 2
        ends.append(tau + step)
    return ends[0], ends[1]


def _lowest(
    family: AlignedFamily, cuts: list[Cut], low: float, high: float, tolerance: float
) -> tuple[float, float]:
    """A lower bound of the highest cut on [low, high], and where it is (nearly) lowest."""
    falling, rising = family.slopes
    left = np.linspace(low, high, CELLS + 1)[:-1]
    width = (high - low) / CELLS
    lowest, at, settled = np.inf, low, np.inf
    while len(left):
        start, end = family.heights(cuts, left), family.heights(cuts, left + width)
        for values, points in ((start, left), (end, left + width)):
            if values.min() < lowest:
                lowest, at = float(values.min()), float(points[values.argmin()])
        meeting = np.clip((start - end + rising * width) / (rising - falling), 0, width)
        bounds = start + falling * meeting
        open_cells = bounds < lowest - tolerance
        settled = min(settled, float(bounds[~open_cells].min(initial=np.inf)))
        width /= SHARES
        left = (left[open_cells, None] + width * np.arange(SHARES)).reshape(-1)
    return min(settled, lowest), at
