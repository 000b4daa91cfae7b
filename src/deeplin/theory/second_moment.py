"""The eigenvalue problem of the second moment of mini-batch descent near a minimizer (X-10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError, eigh
from scipy.sparse.linalg import LinearOperator, eigsh

DENSE = 20
"""Dimension r up to which the matrix of size r(r+1)/2 is formed; beyond it Lanczos is used."""


@dataclass(frozen=True)
class TopMoment:
    """The largest eigenvalue with its bounds and its symmetric matrix N."""

    value: float
    """⟨N, E(N)⟩/⟨N, D(N)⟩ at the N found: a lower bound."""
    upper: float
    """An upper bound: by the cone for plain descent, by the residual with momentum."""
    moment: Float[np.ndarray, "r r"]
    """N in the coordinates of the given rows, so that it can be used for other K."""


class SecondMoment:
    """The eigenvalue problem for rows (n×r, spanning), K (r×r, positive definite) and B.

    Near a minimizer one step with batch b is e ← (I − 2ηKΣ̂_b)e in function space, K = JJᵀ. Write K
    = GGᵀ and choose G so that A = GᵀΣ̂G = diag(a). With rows x̃_i = Gᵀx_i the mean of (A_b N A_b)
    over all batches of B rows out of n, drawn without replacement, is

        (p/n) Σ_i (x̃_iᵀNx̃_i) x̃_ix̃_iᵀ + (1−p) ANA,    p = (n−B)/(B(n−1)),

    and the second moment E[eeᵀ] is stable exactly up to η = (2+2β)/S with

        S = max over symmetric N of 2⟨N, E(N)⟩ / Σ_ij ½(a_i+a_j)N_ij²

    where E is the mean above for plain descent. Heavy-ball momentum β multiplies what exceeds ANA
    by (1+β)/(1−β) and takes away β/(1−β)²(a_i−a_j)²N_ij.
    """

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
        """Factor of the mean over single rows in E."""
        self.rest = (1 - noise) * products - momentum / (1 - momentum) ** 2 * gaps
        """Factor of N_ij in E."""

    def mean(self, N: Float[np.ndarray, "r r"]) -> Float[np.ndarray, "r r"]:
        """Return 2E(N)."""
        spread = np.einsum("ij,ij->i", self.rows @ N, self.rows)
        single = (self.rows.T * spread) @ self.rows / len(self.rows)
        return 2 * (self.noise * single + self.rest * N)

    def top(self, start: Float[np.ndarray, "r r"] | None = None) -> TopMoment:
        """Return the largest eigenvalue with bounds; `start` guesses N in the rows' coordinates."""
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
        """Return N from the matrix on the r(r+1)/2 entries on and above the diagonal."""
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
        """Return N by Lanczos on r×r matrices; antisymmetric ones have smaller quotients.

        The eigenvector is a positive matrix (E and 1/√(a_i+a_j) keep the cone), so a positive
        start has a part along it.
        """
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
        """Return an upper bound of the largest eigenvalue near N.

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
    """Return p = (n−B)/(B(n−1)), the weight of single rows in the second moment of a batch."""
    if batch_size == samples:
        return 0.0
    return (samples - batch_size) / (batch_size * (samples - 1))


def _triangle(rows: np.ndarray) -> np.ndarray:
    """Return a matrix with the same Gram matrix and no more rows than columns."""
    return np.asarray(np.linalg.qr(rows, mode="r")) if len(rows) > rows.shape[1] else rows


def _largest_quotient(image: np.ndarray, positive: np.ndarray) -> float:
    """Return the least s with image ⪯ s·positive, or ∞ if `positive` is not positive definite."""
    try:
        last = len(positive) - 1
        return float(eigh(image, positive, eigvals_only=True, subset_by_index=(last, last))[0])
    except LinAlgError:
        return np.inf
