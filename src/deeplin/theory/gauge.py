# ruff: noqa: D102 (methods are documented once, in the base class)
"""The flattest minimizer by a geodesically convex program: softmax, bottlenecks, biases.

Let W⁰ be a factorization of the product Θ with all hidden widths r = rank Θ. Every other one is
W_k = M_kW⁰_kM_{k−1}⁻¹. With δ_k = M_ka_kM_{k−1}⁻¹ the second-order change of the risk is a form
Q(a) that does not depend on the M_k, while Σ‖δ_k‖² = Σ tr(a_kᵀP_ka_kP_{k−1}⁻¹), P_k = M_kᵀM_k. So
the smallest top eigenvalue of the Hessian at a factorization is

    S_min = min over P_1 … P_{L−1} ≻ 0 of λ_max(M),  M = Q^{1/2} [⊕_k P_k⁻¹⊗P_{k−1}] Q^{1/2},

with P_0 = I and P_L = I, and its logarithm is geodesically convex in the P_k (X-17, X-34): a local
minimum is a global one. Biases add the block 2(I + Σ_{k<L} B⁰_kP_k⁻¹B⁰_kᵀ) to M (X-38).

An interior-point method solves it: −log det(I − M/S) = Σ_j tr(M^j)S^{−j}/j is geodesically convex
in the P_k and log S together, and the minimum of τ log S plus this barrier tends to S_min as τ
grows. The dual certifies it: S_min ≥ min_P tr RM for every R ⪰ 0 of trace one, a smooth
geodesically convex problem. With R ∝ (S − M)⁻¹ the bound tends to S_min, because at the solution
the derivative of tr RM vanishes for some R on the top eigenspace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular
from threadpoolctl import threadpool_limits

from deeplin.problems import Problem
from deeplin.problems.factorizations import numerical_rank
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.problems.problem import as_map

Matrices = list[np.ndarray]

GAPS = tuple(10.0**-k for k in range(9))
"""Relative distances of S from S_min, about, at which the barrier is minimized in turn."""
CENTERED = 1e-6
"""Predicted decrease of log S at which such a minimization stops, relative to the gap."""
RESOLUTION = 1e-13
"""Smallest decrease of log S that rounding leaves visible."""
ANGLE_STEP = 1e-6
"""Step of the differences by which angles of tied directions are differentiated."""

one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
"""Decorate a function whose many small products would make threads of BLAS wait for each other."""


class Moments(NamedTuple):
    """The function Σ_k ⟨Γ_k, P_k⁻¹⊗P_{k−1}⟩ of the P_k, with P_0 and P_L traced out."""

    inverse: Matrices
    """Weights of P_1⁻¹ … P_{L−1}⁻¹ alone."""
    middle: Matrices
    """Γ_2 … Γ_{L−1} as arrays (a, i, b, j) of rows and columns of a_k."""
    last: np.ndarray
    """Weight of P_{L−1}."""
    constant: float = 0.0

    def at(self, factors: Matrices) -> tuple[float, Matrices]:
        """Return the value and its derivatives in the P_k, given their Cholesky factors."""
        P, inverses = [C @ C.T for C in factors], [inverse(C) for C in factors]
        outer = [weight.copy() for weight in self.inverse]
        inner = [np.zeros_like(C) for C in P[:-1]] + [self.last]
        for k, weight in enumerate(self.middle):
            outer[k + 1] += np.einsum("aibj,ij->ab", weight, P[k])
            inner[k] = np.einsum("aibj,ab->ij", weight, inverses[k + 1])
        value = self.constant + float(np.sum(self.last * P[-1]))
        value += sum(float(np.sum(G * X)) for G, X in zip(outer, inverses, strict=True))
        return value, [g - X @ G @ X for g, G, X in zip(inner, outer, inverses, strict=True)]


@dataclass(frozen=True, eq=False)
class Form(ABC):
    """The form Q at a factorization W⁰ whose hidden widths are its rank."""

    start: tuple[np.ndarray, ...]
    """W⁰, in the bases of the inputs and outputs that the form uses."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The rank of Q, or more."""

    @abstractmethod
    def barrier(self, factors: Matrices, level: float) -> tuple[float, Moments] | None:
        """Return −log det(I − M/S) and the Γ_k of tr (S − M)⁻¹M; None unless M ≺ S."""

    @abstractmethod
    def top(self, factors: Matrices) -> float:
        """Return λ_max(M)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number and size of the P_k."""
        return len(self.start) - 1, len(self.start[0])

    def identities(self) -> Matrices:
        """Return P_k = I, the start itself."""
        count, r = self.shape
        return [np.eye(r)] * count

    def weights(self, factors: Matrices) -> Matrices:
        """Return the layers W_k = M_kW⁰_kM_{k−1}⁻¹ of these P_k."""
        before, layers = np.eye(self.start[0].shape[1]), []
        for W, C in zip(self.start, [*factors, np.eye(len(self.start[-1]))], strict=True):
            layers.append(C.T @ W @ before)
            before = inverse_factor(C).T
        return layers


# --- forms ----------------------------------------------------------------------------------------


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


class Solution(NamedTuple):
    """Solution of the program."""

    form: Form
    factors: Matrices
    """Cholesky factors of P_1 … P_{L−1}."""
    value: float
    """λ_max(M), attained by `weights`."""
    lower: float
    """The dual bound of it; where directions are tied, only for those chosen."""

    @property
    def weights(self) -> Matrices:
        """The layers, in the bases of the form."""
        return self.form.weights(self.factors)


@one_thread
def solve(family: Callable[[np.ndarray], Form], angles: np.ndarray, start: float) -> Solution:
    """Minimize λ_max(M) over the P_k, and over angles on which the form depends.

    Args:
        family: the form for each array of angles, which is empty where the product is unique.
        angles: where to start.
        start: λ_max(M) there at P_k = I.
    """
    shape = family(angles).shape
    cut = shape[0] * shape[1] * (shape[1] + 1) // 2
    tau = 1.0

    def barrier(x: np.ndarray, turn: np.ndarray) -> tuple[float, Moments] | None:
        return family(turn).barrier(unpacked(x[:cut], shape), float(np.exp(x[cut])))

    def objective(x: np.ndarray) -> tuple[float, np.ndarray] | None:
        turn = x[cut + 1 :]
        steps = ANGLE_STEP * np.eye(len(turn))
        around = [(barrier(x, turn + step), barrier(x, turn - step)) for step in steps]
        found = barrier(x, turn)
        if found is None or any(None in pair for pair in around):
            return None
        value, slopes = found[1].at(unpacked(x[:cut], shape))
        turning = [(high[0] - low[0]) / (2 * ANGLE_STEP) for high, low in around]  # pyright: ignore
        slope = [packed(slopes, unpacked(x[:cut], shape)), [tau - value], turning]
        return x[cut] + found[0] / tau, np.concatenate(slope) / tau

    x = np.concatenate([np.zeros(cut), [np.log(1.5 * start)], angles])
    curvature, before = None, x
    for gap in GAPS:
        tau = family(angles).size / gap
        ahead = x + 0.1 * (x - before)  # x is nearly linear in the gap
        before, x = x, x if objective(ahead) is None else ahead
        x, curvature = quasi_newton(objective, x, max(CENTERED * gap, RESOLUTION), curvature)
    form, factors, level = (
        family(x[cut + 1 :]),
        unpacked(x[:cut], shape),
        np.exp(x[cut]),
    )
    found = form.barrier(factors, float(level))
    assert found is not None  # the last point that the search accepted
    trace = (form.size + found[1].at(factors)[0]) / level
    value = form.top(factors)
    return Solution(form, factors, value, min(value, least(found[1], factors)[0] / trace))


@one_thread
def least(moments: Moments, factors: Matrices) -> tuple[float, Matrices]:
    """Return the least Σ⟨Γ_k, P_k⁻¹⊗P_{k−1}⟩ and the Cholesky factors of its P_k."""
    shape = len(factors), len(factors[0])

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        factors = unpacked(x, shape)
        value, slopes = moments.at(factors)
        return float(np.log(value)), packed(slopes, factors) / value

    x, _ = quasi_newton(objective, entries(factors), RESOLUTION)
    return float(np.exp(objective(x)[0])), unpacked(x, shape)


def quasi_newton(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray] | None],
    x: np.ndarray,
    tolerance: float,
    inverse: np.ndarray | None = None,
    steps: int = 300,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Minimize by BFGS with backtracking from a point of the domain.

    SciPy's line searches stop at the edge of a domain, and forget the curvature between calls.

    Args:
        objective: the value and gradient; None outside the domain.
        x: where to start.
        tolerance: the predicted decrease at which to stop.
        inverse: an approximate inverse of the Hessian from an earlier call.
        steps: the largest number of steps.

    Returns:
        The minimum and the approximate inverse of the Hessian there.
    """
    value, slope = objective(x)  # pyright: ignore[reportGeneralTypeIssues]
    stalled = 0
    for _ in range(steps):
        direction = -slope if inverse is None else -inverse @ slope
        descent = float(slope @ direction)
        if descent >= 0:
            inverse, direction, descent = None, -slope, -float(slope @ slope)
        if -descent <= tolerance or stalled == 3:
            break
        length = min(1.0, 1 / float(np.linalg.norm(direction))) if inverse is None else 1.0
        while (found := objective(x + length * direction)) is None or not (
            found[0] <= value + 1e-4 * length * descent
        ):
            length *= 0.3
            if length < 1e-12:
                return x, inverse
        step, change = length * direction, found[1] - slope
        bend = float(step @ change)
        if bend > 0:
            if inverse is None:
                inverse = np.eye(len(x)) * bend / float(change @ change)
            scaled = inverse @ change
            inverse = inverse - (np.outer(step, scaled) + np.outer(scaled, step)) / bend
            inverse += (1 + change @ scaled / bend) * np.outer(step, step) / bend
        stalled = stalled + 1 if value - found[0] <= 4e-16 * max(1.0, abs(value)) else 0
        x, (value, slope) = x + step, found
    return x, inverse


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


def balanced_top(theta: np.ndarray, hessian: np.ndarray, depth: int) -> float:
    """Return λ_max(H^{1/2} Σ_k (ΘΘᵀ)^{(L−k)/L}⊗(ΘᵀΘ)^{(k−1)/L} H^{1/2}) of balanced layers."""
    U, s, Vt = np.linalg.svd(theta)
    q, n = theta.shape
    full = np.zeros(max(q, n))
    full[: len(s)] = s
    # 0⁰ = 1: the first and last terms are identities
    powers = [full ** (2 * k / depth) if k else np.ones(len(full)) for k in range(depth)]
    kernel = sum(
        np.kron(U * powers[depth - 1 - k][:q] @ U.T, Vt.T * powers[k][:n] @ Vt)
        for k in range(depth)
    )
    values, vectors = np.linalg.eigh(hessian)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return float(np.linalg.eigvalsh(root.T @ kernel @ root)[-1])


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


def unpacked(flat: np.ndarray, shape: tuple[int, int]) -> Matrices:
    """Return lower triangular matrices whose diagonals are exponentials of the entries."""
    count, r = shape
    rows, columns = np.tril_indices(r)
    factors, entries = np.zeros((count, r, r)), flat.reshape(count, len(rows))
    with np.errstate(over="ignore"):
        factors[:, rows, columns] = np.where(rows == columns, np.exp(entries), entries)
    return list(factors)


def entries(factors: Matrices) -> np.ndarray:
    """Return the entries from which `unpacked` makes these factors."""
    rows, columns = np.tril_indices(len(factors[0]))
    below = [np.where(np.eye(len(C)) > 0, np.log(np.diag(C)), C) for C in factors]
    return np.concatenate([C[rows, columns] for C in below])


def packed(slopes: Matrices, factors: Matrices) -> np.ndarray:
    """Return derivatives in the entries of `unpacked` from those in the P_k = CCᵀ."""
    rows, columns = np.tril_indices(len(factors[0]))
    parts = []
    for slope, C in zip(slopes, factors, strict=True):
        entries = (2 * slope @ C)[rows, columns]
        parts.append(np.where(rows == columns, entries * C[rows, columns], entries))
    return np.concatenate(parts)


def cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """Return the Cholesky factor of a positive definite matrix, None of another."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None


def log_det(factor: np.ndarray) -> float:
    """Return log det CCᵀ."""
    return 2 * float(np.sum(np.log(np.diag(factor))))


def solve_lower(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return C⁻¹B."""
    return solve_triangular(factor, right, lower=True, check_finite=False)


def inverse_factor(factor: np.ndarray) -> np.ndarray:
    """Return C⁻¹."""
    return solve_lower(factor, np.eye(len(factor)))


def inverse(factor: np.ndarray) -> np.ndarray:
    """Return (CCᵀ)⁻¹."""
    half = inverse_factor(factor)
    return half.T @ half
