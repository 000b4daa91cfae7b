"""The flattest minimizer by a geodesically convex program: softmax, bottlenecks, biases.

Let W⁰ be a factorization of the product Θ with all hidden widths r = rank Θ. Every other one is
W_k = M_kW⁰_kM_{k−1}⁻¹. With δ_k = M_ka_kM_{k−1}⁻¹ the second-order change of the risk is a form
Q(a) that does not depend on the M_k, while Σ‖δ_k‖² = Σ tr(a_kᵀP_ka_kP_{k−1}⁻¹), P_k = M_kᵀM_k. So
the smallest top eigenvalue of the Hessian at a factorization is

    S_min = min over P_1 … P_{L−1} ≻ 0 of λ_max(M),  M = Q^{1/2} [⊕_k P_k⁻¹⊗P_{k−1}] Q^{1/2},

with P_0 = I and P_L = I, and its logarithm is geodesically convex in the P_k (X-17, X-34): a local
minimum is a global one. Biases add the block 2(I + Σ_{k<L} B⁰_kP_k⁻¹B⁰_kᵀ) to M (X-38).
The method that solves it is in `interior_point`.
"""

# ruff: noqa: D102 (methods are documented once, in the base class)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from deeplin.problems import Problem
from deeplin.problems.factorizations import numerical_rank
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.problems.problem import as_map
from deeplin.theory.interior_point import (
    Form,
    Matrices,
    Moments,
    cholesky,
    inverse,
    inverse_factor,
    log_det,
    solve_lower,
)


@dataclass(frozen=True, eq=False)
class DenseForm(Form):
    """Q of any loss, from its Hessian (qn, qn), output-major, and gradient (q, n) at the product.

    At the best product of a rank the gradient is orthogonal to the range and row space of the
    product, so a_L and a_1 are the only two layers whose joint change it sees.
    """

    hessian: np.ndarray
    gradient: np.ndarray

    @cached_property
    def blocks(self) -> Matrices:
        """F with Q = FFᵀ, as arrays (rows of a_k, columns of a_k, rank of Q)."""
        forward, backward = [np.eye(self.start[0].shape[1])], [np.eye(len(self.start[-1]))]
        for W in self.start[:-1]:
            forward.append(W @ forward[-1])
        for W in reversed(self.start[1:]):
            backward.append(backward[-1] @ W)
        pairs = zip(reversed(backward), forward, strict=True)
        jacobian = np.hstack([np.kron(B, A.T) for B, A in pairs])
        shapes = [W.shape for W in self.start]
        sizes = [a * b for a, b in shapes]
        Q = jacobian.T @ self.hessian @ jacobian
        between = np.eye(len(self.start[0]))
        for W in self.start[1:-1]:
            between = W @ between
        cross = np.einsum("oi,uv->ouvi", self.gradient, between).reshape(sizes[-1], sizes[0])
        Q[-sizes[-1] :, : sizes[0]] += cross
        Q[: sizes[0], -sizes[-1] :] += cross.T
        values, vectors = np.linalg.eigh(Q)
        keep = values > 1e-14 * values[-1]
        parts = np.split(vectors[:, keep] * np.sqrt(values[keep]), np.cumsum(sizes)[:-1])
        return [part.reshape(*shape, -1) for part, shape in zip(parts, shapes, strict=True)]

    @property
    def size(self) -> int:
        return self.blocks[0].shape[-1]

    def matrix(self, factors: Matrices) -> np.ndarray:
        """Return M = Fᵀ[⊕P_k⁻¹⊗P_{k−1}]F."""
        total, before = np.zeros((self.size, self.size)), None
        for block, C in zip(self.blocks, [*factors, None], strict=True):
            scaled = block if before is None else np.einsum("aim,ij->ajm", block, before)
            if C is not None:
                scaled = np.tensordot(inverse_factor(C), scaled, 1)
            flat = scaled.reshape(-1, self.size)
            total += flat.T @ flat
            before = C
        return total

    def barrier(self, factors: Matrices, level: float) -> tuple[float, Moments] | None:
        if (C := cholesky(np.eye(self.size) - self.matrix(factors) / level)) is None:
            return None
        return -log_det(C), self.moments(inverse_factor(C).T / np.sqrt(level))

    def moments(self, root: np.ndarray) -> Moments:
        """Return the Γ_k of tr RM for R = `root`·`root`ᵀ."""
        first, *middle, last = (block @ root for block in self.blocks)
        weight = np.tensordot(first, first, ((1, 2), (1, 2)))
        return Moments(
            inverse=[weight, *[np.zeros_like(weight)] * len(middle)],
            middle=[np.tensordot(part, part, (2, 2)) for part in middle],
            last=np.tensordot(last, last, ((0, 2), (0, 2))),
        )

    def top(self, factors: Matrices) -> float:
        return float(np.linalg.eigvalsh(self.matrix(factors))[-1])


@dataclass(frozen=True, eq=False)
class LeastSquaresForm(Form):
    """Q of the squared loss, in the eigenbasis of Σ̂ and with the outputs that matter.

    Θ = UUᵀΘ*, M = UᵀΘ* is kept, N = U_⊥ᵀΘ* dropped, and W⁰ is the minimizer of X-7 for Θ: M/t, then
    s times identities, then sU with s^{L−1} = t. With a_L = Ub + U_⊥c and β = b + Σ_{1<k<L} a_k

        Q = 2‖(t a_1 + βM/s)Σ̂^{1/2}‖² + (2/s²)‖cMΣ̂^{1/2}‖² − 4(t/s) tr(NΣ̂a_1ᵀcᵀ).

    The weight of β is that of T = Σ_{k≥2} P_k⁻¹⊗P_{k−1}, and a_1 is eliminated column by column,
    which leaves matrices of size r·rank Θ*.
    """

    eigenvalues: Float[np.ndarray, " n"]
    kept: Float[np.ndarray, "r n"]
    """M in the eigenbasis."""
    dropped: Float[np.ndarray, "p n"]
    """N in the eigenbasis."""
    suffix_norm: float
    """t."""

    @property
    def size(self) -> int:
        return len(self.kept) * (len(self.eigenvalues) + len(self.dropped))

    @cached_property
    def layer_norm(self) -> float:
        """s."""
        return self.suffix_norm ** (1 / (len(self.start) - 1))

    @cached_property
    def gram(self) -> np.ndarray:
        """MΣ̂Mᵀ."""
        return (self.kept * self.eigenvalues) @ self.kept.T

    @cached_property
    def seen(self) -> np.ndarray:
        """The vectors (m_i, −n_i), one row for each input."""
        return np.vstack([self.kept, -self.dropped]).T

    def at_start(self) -> float:
        """Return λ_max(M) of P_k = I by a matrix of size n + rank Θ*.

        MΣ̂Mᵀ is diagonal, so the rows of a_1 and β and the columns of c decouple, and the largest of
        these equal blocks is that of the largest kept singular value.
        """
        t, s, (r, n) = self.suffix_norm, self.layer_norm, self.kept.shape
        share = np.ones(r + len(self.dropped))
        share[:r] = np.sqrt(len(self.start) - 1)  # T = (L − 1)I
        whole = np.diag(np.append(2 * t**2 * self.eigenvalues, np.zeros(len(share))))
        whole[:n, n:] = 2 * t / s * self.eigenvalues[:, None] * self.seen * share
        whole[n:, :n] = whole[:n, n:].T
        corner = whole[n:, n:]
        corner[:r, :r] = 2 / s**2 * self.gram * share[0] ** 2
        corner[r:, r:] = 2 / s**2 * np.eye(len(share) - r) * np.linalg.eigvalsh(self.gram)[-1]
        return float(np.linalg.eigvalsh(whole)[-1])

    def barrier(self, factors: Matrices, level: float) -> tuple[float, Moments] | None:
        if (found := self._eliminated(factors, level)) is None:
            return None
        (r, n), p = self.kept.shape, len(self.dropped)
        half = inverse_factor(found.schur)
        Z = (half.T @ half).reshape(r, r + p, r, r + p)
        # what a_1 takes over from β and c
        reached = (Z.reshape(-1, r + p) @ self.seen.T).reshape(r, r + p, r, n)
        reached = np.einsum("jwki,iw->jki", reached, self.seen)
        gains = found.pi / (found.pi - found.load[:, None])
        moved = gains * (found.load / (self.suffix_norm * self.layer_norm))[:, None]
        first = np.einsum("jki,ij,ik->jk", reached, moved, moved, optimize=True)
        first[np.diag_indices(r)] += found.load @ gains
        shared = Z[:, :r, :, :r].reshape(r * r, r * r)
        beta = (found.weight @ shared @ found.weight - found.weight).reshape(r, r, r, r)
        beta = np.einsum("aj,juki,bk->aubi", found.axes, beta, found.axes, optimize=True)
        final = inverse(factors[-1])
        outside = found.axes @ np.einsum("jvkv->jk", Z[:, r:, :, r:]) @ found.axes.T
        middle = len(factors) - 1
        moments = Moments(
            inverse=[found.axes @ first @ found.axes.T, *[np.zeros((r, r))] * middle],
            middle=[beta] * middle,
            last=np.einsum("aiaj->ij", beta) + final @ outside @ final - p * final,
        )
        return -found.log_det, moments

    def _eliminated(self, factors: Matrices, level: float) -> Eliminated | None:
        (r, _), p, s = self.kept.shape, len(self.dropped), self.layer_norm
        pi, axes = np.linalg.eigh(factors[0] @ factors[0].T)
        load = 2 * self.suffix_norm**2 * self.eigenvalues / level
        if pi[0] <= load.max():
            return None
        taken = (load / (self.suffix_norm * s))[:, None] ** 2 / (pi - load[:, None])
        taken = np.einsum("ij,iw,iv->jwv", taken, self.seen, self.seen, optimize=True)
        P = [C @ C.T for C in factors]
        after = [axes.T @ inverse(C) @ axes for C in factors[1:]] + [np.eye(r)]
        T = cholesky(np.sum([np.kron(X, Y) for X, Y in zip(after, P, strict=True)], axis=0))
        if T is None:
            return None
        weight, own = inverse(T), 2 / (s**2 * level) * self.gram
        Z = np.zeros((r, r + p, r, r + p))
        Z[:, :r, :, :r] = weight.reshape(r, r, r, r)
        for v in range(r, r + p):
            Z[:, v, :, v] = axes.T @ (inverse(factors[-1]) - own) @ axes
        for j in range(r):
            Z[j, :r, j, :r] -= own
            Z[j, :, j] -= taken[j]
        if (schur := cholesky(Z.reshape(r * (r + p), -1))) is None:
            return None
        total = float(np.sum(np.log1p(-load[:, None] / pi))) + p * log_det(factors[-1])
        return Eliminated(pi, axes, load, weight, schur, total + log_det(T) + log_det(schur))

    def top(self, factors: Matrices) -> float:
        high = 2 * max(self.at_start(), 1e-300)
        while self._eliminated(factors, high) is None:
            high *= 2
        low = high / 2
        while self._eliminated(factors, low) is not None:
            low, high = low / 2, low
        while low < (between := (low + high) / 2) < high:
            if self._eliminated(factors, between) is None:
                low = between
            else:
                high = between
        return high


class Eliminated(NamedTuple):
    """I − M/S of least squares after the elimination of a_1."""

    pi: np.ndarray
    """Eigenvalues of P_1."""
    axes: np.ndarray
    """Its eigenvectors, the basis of the rows of a_1 and β and the columns of c."""
    load: np.ndarray
    """2t²ℓ_i/S."""
    weight: np.ndarray
    """T⁻¹."""
    schur: np.ndarray
    """Cholesky factor of the Schur complement for β and c."""
    log_det: float
    """log det(I − M/S)."""


@dataclass(frozen=True, eq=False)
class WithBiases(Form):
    """A form with the block of the biases, for centered inputs (X-38)."""

    form: Form

    @cached_property
    def suffixes(self) -> Matrices:
        """B⁰_1 … B⁰_{L−1}."""
        found = [self.start[-1]]
        for W in reversed(self.start[1:-1]):
            found.append(found[-1] @ W)
        return found[::-1]

    @property
    def size(self) -> int:
        return self.form.size + len(self.start[-1])

    def block(self, factors: Matrices) -> np.ndarray:
        """Return 2(I + Σ_{k<L} B⁰_kP_k⁻¹B⁰_kᵀ)."""
        total = np.eye(len(self.start[-1]))
        for B, C in zip(self.suffixes, factors, strict=True):
            half = solve_lower(C, B.T)
            total = total + half.T @ half
        return 2 * total

    def barrier(self, factors: Matrices, level: float) -> tuple[float, Moments] | None:
        values, vectors = np.linalg.eigh(self.block(factors))
        inside = self.form.barrier(factors, level) if values[-1] < level else None
        if inside is None:
            return None
        R = vectors / (level - values) @ vectors.T
        pairs = zip(inside[1].inverse, self.suffixes, strict=True)
        moments = inside[1]._replace(
            inverse=[G + 2 * B.T @ R @ B for G, B in pairs],
            constant=inside[1].constant + 2 * float(np.trace(R)),
        )
        return inside[0] - float(np.sum(np.log1p(-values / level))), moments

    def top(self, factors: Matrices) -> float:
        return max(float(np.linalg.eigvalsh(self.block(factors))[-1]), self.form.top(factors))


# --- the program ----------------------------------------------------------------------------------


# --- programs of problems -------------------------------------------------------------------------


class Reduced(NamedTuple):
    """A loss near a product, in bases of the outputs and inputs that change predictions."""

    theta: Float[np.ndarray, "q n"]
    hessian: Float[np.ndarray, "qn qn"]
    gradient: Float[np.ndarray, "q n"]
    outputs: Float[np.ndarray, "c q"]
    """Basis of the outputs: for softmax of the vectors with sum zero."""
    inputs: Float[np.ndarray, "d n"]
    """Basis of the span of the samples."""

    @classmethod
    def of(cls, problem: GeneralizedLinearProblem, columns: np.ndarray) -> Reduced:
        """Return the loss at a product, (d, q)."""
        X, _ = problem.require_data("the minimal sharpness")
        _, singular, right = np.linalg.svd(X, full_matrices=False)
        V = right[: numerical_rank(singular, max(X.shape))].T
        E = problem.coordinates.outputs
        both = np.kron(E, V)
        hessian = both.T @ problem.curvature_at(as_map(columns)) @ both
        gradient = problem.value_and_gradient(as_map(columns))[1]
        return cls(E.T @ columns.T @ V, hessian, E.T @ gradient @ V, E, V)

    def form(self, depth: int) -> DenseForm:
        """Return the form at the balanced factorization of the product."""
        left, values, right = np.linalg.svd(self.theta, full_matrices=False)
        r = numerical_rank(values, max(self.theta.shape))
        share = values[:r] ** (1 / depth)
        W = share[:, None] * right[:r], *[np.diag(share)] * (depth - 2), left[:, :r] * share
        return DenseForm(W, self.hessian, self.gradient)


def least_squares_family(
    problem: Problem, rank: int, depth: int, suffix_norm: float
) -> tuple[Callable[[np.ndarray], LeastSquaresForm], int]:
    """Return the forms of the best products of a rank, and the number of angles between them."""
    eigenvalues, _, coordinates = problem.spectrum
    part, every = problem.truncation(rank), problem.truncation(max(coordinates.shape)).left
    rest = len(part.tied) - part.free
    s = suffix_norm ** (1 / (depth - 1))

    def form(angles: np.ndarray) -> LeastSquaresForm:
        left = part.left
        if angles.size:
            X = angles.reshape(rest, part.free)
            turn = rotation(X) @ part.tied
            left = np.vstack([part.kept, turn[: part.free]])
        kept = left @ coordinates.T
        outside = every - every @ left.T @ left
        basis = np.linalg.svd(outside, full_matrices=False)[2][: len(every) - len(left)]
        start = kept / suffix_norm, *[s * np.eye(len(left))] * (depth - 2), s * left.T
        return LeastSquaresForm(start, eigenvalues, kept, basis @ coordinates.T, suffix_norm)

    return form, part.free * rest


def rotation(X: np.ndarray) -> np.ndarray:
    """Return the rotation exp [[0, −Xᵀ], [X, 0]]; its first rows span every subspace."""
    from scipy.linalg import expm

    rest, free = X.shape
    skew = np.zeros((rest + free, rest + free))
    skew[free:, :free], skew[:free, free:] = X, -X.T
    return expm(skew)


# --- triangular factors ---------------------------------------------------------------------------
