"""The second moment of mini-batch descent at a minimizer: a symmetric eigenvalue problem (X-10).

Beside a minimizer one step with batch b is e ← (I − 2ηKΣ̂_b)e in function space, K = JJᵀ. Write
K = GGᵀ and choose G so that A = GᵀΣ̂G = diag(a). With rows x̃_i = Gᵀx_i the mean of (A_b N A_b) over
all batches of B rows out of n, drawn without replacement, is

    (p/n) Σ_i (x̃_iᵀNx̃_i) x̃_ix̃_iᵀ + (1−p) ANA,    p = (n−B)/(B(n−1)),

and the second moment E[eeᵀ] is stable exactly up to η = (2+2β)/S with

    S = max over symmetric N of 2⟨N, E(N)⟩ / Σ_ij ½(a_i+a_j)N_ij²

where E is the mean above for plain descent. Heavy-ball momentum β multiplies what exceeds ANA by
(1+β)/(1−β) and takes away β/(1−β)²(a_i−a_j)²N_ij.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

DENSE = 20
"""Dimension up to which the matrix of size r(r+1)/2 is formed; beyond it Lanczos multiplies."""
MOST = 60
"""Minimizers tried on the way to the flattest one."""
CELLS, SHARES = 64, 4
"""Cells of the search for the lowest cut, and into how many one that may hold it is divided."""

Cut = tuple[float, float, float]


@dataclass(frozen=True)
class TopMoment:
    """The largest eigenvalue with its bounds, and the symmetric matrix N that belongs to it."""

    value: float
    """⟨N, E(N)⟩/⟨N, D(N)⟩ at the N found: a lower bound."""
    upper: float
    """An upper bound: by the cone for plain descent, by the residual with momentum."""
    moment: Float[np.ndarray, "r r"]
    """N in the coordinates of the rows given, so that other K can be tested with it."""


class SecondMoment:
    """The eigenvalue problem for rows (n×r, spanning), K (r×r, positive definite) and B."""

    def __init__(
        self,
        rows: Float[np.ndarray, "n r"],
        kernel: Float[np.ndarray, "r r"],
        batch_size: int,
        momentum: float = 0.0,
    ):
        self.share = noise_share(len(rows), batch_size)
        self.momentum = momentum
        factor = np.linalg.cholesky(kernel)
        _, singular, right = np.linalg.svd(_triangle(rows @ factor), full_matrices=False)
        self.basis = factor @ right.T
        self.rows = rows @ self.basis
        self.levels = singular**2 / len(rows)
        """a, the eigenvalues of A."""
        self.middle = np.add.outer(self.levels, self.levels) / 2
        noise = (1 + momentum) / (1 - momentum) * self.share
        gaps = np.subtract.outer(self.levels, self.levels) ** 2
        products = np.multiply.outer(self.levels, self.levels)
        self.noise = noise
        """The factor of the mean over single rows in E …"""
        self.rest = (1 - noise) * products - momentum / (1 - momentum) ** 2 * gaps
        """… and of N_ij beside it."""

    def mean(self, N: Float[np.ndarray, "r r"]) -> Float[np.ndarray, "r r"]:
        """2E(N)."""
        spread = np.einsum("ij,ij->i", self.rows @ N, self.rows)
        single = (self.rows.T * spread) @ self.rows / len(self.rows)
        return 2 * (self.noise * single + self.rest * N)

    def top(self, start: Float[np.ndarray, "r r"] | None = None) -> TopMoment:
        """The largest eigenvalue, with bounds; `start` is a guess of N in the rows' coordinates."""
        if self.share == 0:  # one batch: the Hessian itself
            N = np.zeros_like(self.middle)
            N[0, 0] = 1.0
            value = 2 * float(self.levels[0])
            return TopMoment(value, value, self._given(N))
        N = self._dense() if len(self.levels) <= DENSE else self._lanczos(start)
        value = float(np.sum(N * self.mean(N)) / np.sum(self.middle * N**2))
        return TopMoment(value, max(value, self._upper(N, value)), self._given(N))

    def _given(self, N: np.ndarray) -> np.ndarray:
        return self.basis @ N @ self.basis.T

    def _dense(self) -> np.ndarray:
        """N from the matrix on the r(r+1)/2 entries on and above the diagonal."""
        from scipy.linalg import eigh  # as in `secular.root`

        r = len(self.levels)
        upper = np.triu_indices(r)
        weight = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0))
        scale = weight / np.sqrt(self.middle[upper])
        features = self.rows[:, upper[0]] * self.rows[:, upper[1]] * scale
        matrix = self.noise * features.T @ features / len(self.rows)
        matrix[np.diag_indices_from(matrix)] += self.rest[upper] / self.middle[upper]
        last = len(matrix) - 1
        _, vectors = eigh(matrix, subset_by_index=(last, last))
        entries = vectors[:, 0] / (weight * np.sqrt(self.middle[upper]))
        N = np.zeros((r, r))
        N[upper] = entries
        N = N + N.T - np.diag(np.diag(N))
        return N if np.trace(N) >= 0 else -N

    def _lanczos(self, start: np.ndarray | None) -> np.ndarray:
        """N by Lanczos on r×r matrices; antisymmetric ones have smaller quotients.

        The eigenvector is a positive matrix (E and 1/√(a_i+a_j) keep the cone), so a positive
        start has a part along it.
        """
        from scipy.sparse.linalg import LinearOperator, eigsh

        r, root = len(self.levels), np.sqrt(self.middle)

        def product(flat: np.ndarray) -> np.ndarray:
            return (self.mean(flat.reshape(r, r) / root) / root).reshape(-1)

        inverse = np.linalg.inv(self.basis)
        first = np.eye(r) if start is None else inverse @ start @ inverse.T
        operator = LinearOperator((r * r, r * r), matvec=product, dtype=np.float64)  # pyright: ignore[reportCallIssue]
        guess = (first * root).reshape(-1)
        _, vectors = eigsh(operator, k=1, which="LA", v0=guess, tol=1e-12)  # pyright: ignore[reportArgumentType]
        N = vectors.reshape(r, r) / root
        N = (N + N.T) / 2
        return N if np.trace(N) >= 0 else -N

    def _upper(self, N: np.ndarray, value: float) -> float:
        """An upper bound of the largest eigenvalue near N.

        Plain descent: N ↦ T(N) = E(N)/½(a_i+a_j) keeps the cone of positive matrices, so its
        spectral radius is at most s wherever T(N) ⪯ sN for one N ≻ 0 (Collatz and Wielandt).
        """
        root = np.sqrt(self.middle)
        residual = (self.mean(N) - value * self.middle * N) / root
        nearest = value + float(np.linalg.norm(residual) / np.linalg.norm(N * root))
        if self.momentum > 0:
            return nearest
        sizes = []
        for floor in (0.0, 1e-12, 1e-8):
            positive = self.mean(N + floor * np.trace(N) * np.eye(len(N))) / self.middle
            image = self.mean(positive) / self.middle
            sizes.append(_largest_quotient(image, positive))
        return min(sizes)


def noise_share(samples: int, batch_size: int) -> float:
    """p = (n−B)/(B(n−1)): the share of the single rows in the second moment of a batch."""
    if batch_size == samples:
        return 0.0
    return (samples - batch_size) / (batch_size * (samples - 1))


def _triangle(rows: np.ndarray) -> np.ndarray:
    """A matrix with the same Gram matrix and no more rows than columns."""
    return np.asarray(np.linalg.qr(rows, mode="r")) if len(rows) > rows.shape[1] else rows


def _largest_quotient(image: np.ndarray, positive: np.ndarray) -> float:
    """The least s with image ⪯ s·positive, or ∞ where `positive` is not positive definite."""
    from scipy.linalg import LinAlgError, eigh

    try:
        last = len(positive) - 1
        return float(eigh(image, positive, eigvals_only=True, subset_by_index=(last, last))[0])
    except LinAlgError:
        return np.inf


@dataclass(frozen=True, eq=False)
class AlignedFamily:
    """The kernels K_t on the row space, among which the flattest minimizer is found (X-10).

    Every minimizer has K ⪰ K_t = t²I + (L−1)(‖p‖/t)^{2/(L−1)}w*w*ᵀ for some t > 0 (proof of X-2),
    S_B grows with K, and K_t is attained: S_min(B) = min over t of S_B(K_t). Any symmetric N gives
    a lower bound for all t at once, a cut,

        S_B(K_t) ≥ c t²/(A − κ(t)B),   c = 2⟨N, E(N)⟩, A = tr Σ̂N², B = ŵᵀNΣ̂Nŵ, κ = b/(1+b),

    b = (L−1)(‖p‖/t)^{2/(L−1)}‖w*‖²/t². In τ = log t the slope of the logarithm of a cut lies
    between −2/(L−1) and 2, so the least value of the highest cut is known from its values on a
    grid. No convexity is needed.
    """

    rows: Float[np.ndarray, "n r"]
    eigenvalues: Float[np.ndarray, " r"]
    coordinates: Float[np.ndarray, " r"]
    depth: int
    norm: float
    batch_size: int

    @cached_property
    def unscaled(self) -> SecondMoment:
        """That of K = I."""
        return SecondMoment(self.rows, np.eye(len(self.coordinates)), self.batch_size)

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
        """c, A and B of the lower bound that N gives."""
        inside = self.unscaled.basis.T @ N @ self.unscaled.basis
        w = self.coordinates / np.linalg.norm(self.coordinates)
        top = float(np.sum(inside * self.unscaled.mean(inside)))
        whole = float(np.sum(self.eigenvalues[:, None] * N**2))
        return top, whole, float(self.eigenvalues @ (N @ w) ** 2)

    def heights(self, cuts: list[Cut], tau: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """The logarithm of the highest cut at each τ."""
        c, A, B = np.array(cuts).T[..., None]
        b = self.ratio(tau) * float(np.sum(self.coordinates**2)) * np.exp(-2 * tau)
        # A − κB = (A − B) + B/(1+b), without cancellation where A = B
        return np.max(np.log(c) + 2 * tau - np.log((A - B) + B / (1 + b)), axis=0)


def flattest(
    family: AlignedFamily, guess: float, tolerance: float
) -> tuple[float, float, float, float]:
    """A lower bound of S_min(B), the value at the best t found, its upper bound, and log t.

    S_B(K_t) is evaluated where the highest cut is lowest, until both agree to `tolerance`.
    """
    w = family.coordinates / np.linalg.norm(family.coordinates)
    cuts = [family.cut(np.outer(w, w))]  # grows without bound for t → 0
    tau, best, lower = guess, None, -np.inf
    found = None
    for _ in range(MOST):
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
    return min(float(np.exp(lower)), top.value), top.value, top.upper, at


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
    falling, rising = -2 / (family.depth - 1), 2.0  # between which the slopes of all cuts lie
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
