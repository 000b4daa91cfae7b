"""The flattest minimizer of the softmax loss, by a geodesically convex program (X-17).

With Θ (q×d) the optimum, H (qd×qd) the Hessian of the risk there, P_k = B_kB_kᵀ for
B_k = W_L…W_{k+1} and P_L = I, the curvature of a minimizer is that of K = Σ_k P_k⊗A_kᵀA_k, where
A_1 = I and A_{k+1}ᵀA_{k+1} ⪰ ΘᵀP_k⁻¹Θ with equality for suitable weights. So

    S_min = inf over P_1 … P_{L−1} ≻ 0 of λ_max(H^{1/2} Σ_k P_k⊗ΘᵀP_{k−1}⁻¹Θ H^{1/2}),

the first term P_1⊗I, and the logarithm of the objective is geodesically convex in the P_k: a local
minimum is a global one. Adding the same vector to the logits of all classes changes nothing, so the
outputs are taken in a basis E of the vectors with sum zero, and the inputs in a basis of the span
of the samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from deeplin.networks import Network
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.theory.architecture import numerical_rank, require_width

POWERS = (10.0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7)
"""Powers β of the Schatten norms that approximate λ_max in turn, each within a factor n^{1/β}."""


@dataclass(frozen=True, eq=False)
class Program:
    """Θ and H in reduced bases of the outputs and inputs."""

    theta: Float[np.ndarray, "q r"]
    hessian: Float[np.ndarray, "qr qr"]
    outputs: Float[np.ndarray, "c q"]
    """E, the map from reduced outputs to classes."""
    inputs: Float[np.ndarray, "d r"]

    @classmethod
    def of(cls, problem: GeneralizedLinearProblem) -> Program:
        """Return the program of a softmax problem."""
        X, _ = problem.require_data("the minimal sharpness")
        _, singular, right = np.linalg.svd(X, full_matrices=False)
        V = right[: numerical_rank(singular, max(X.shape))].T
        E = problem.coordinates.outputs
        both = np.kron(E, V)
        return cls(E.T @ problem.optimum.T @ V, both.T @ problem.curvature @ both, E, V)

    @cached_property
    def root(self) -> np.ndarray:
        """H^{1/2}."""
        values, vectors = np.linalg.eigh(self.hessian)
        return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T

    def terms(self, factors: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return P_k and Q_k with K = ΣP_k⊗Q_k, from Cholesky factors of P_1 … P_{L−1}."""
        q, r = self.theta.shape
        solved = [solve_triangular(C, self.theta, lower=True) for C in factors]
        left = [C @ C.T for C in factors] + [np.eye(q)]
        return left, [np.eye(r), *(Z.T @ Z for Z in solved)]

    def curvature(self, left: list[np.ndarray], right: list[np.ndarray]) -> np.ndarray:
        """Return H^{1/2}KH^{1/2}; its λ_max is the sharpness, its trace that of the Hessian."""
        kernel = sum(np.kron(P, Q) for P, Q in zip(left, right, strict=True))
        matrix = self.root @ kernel @ self.root
        return (matrix + matrix.T) / 2

    def solve(self, depth: int, powers: tuple[float, ...] = POWERS) -> Solution:
        """Return the best P_1 … P_{L−1} for the last of these Schatten norms (β = 1: trace)."""
        q, r = self.theta.shape
        root, lower = self.root, np.tril_indices(q)
        diagonal = lower[0] == lower[1]

        def unpacked(flat: np.ndarray) -> list[np.ndarray]:
            factors = np.zeros((depth - 1, q, q))
            entries = flat.reshape(depth - 1, len(diagonal))
            factors[:, lower[0], lower[1]] = np.where(diagonal, np.exp(entries), entries)
            return list(factors)

        def objective(flat: np.ndarray, power: float) -> tuple[float, np.ndarray]:
            factors = unpacked(flat)
            left, right = self.terms(factors)
            values, vectors = np.linalg.eigh(self.curvature(left, right))
            shares = np.maximum(values / values[-1], 0.0)
            total = float(np.sum(shares**power))
            weights = shares ** (power - 1) / (total * values[-1])
            G = ((root @ vectors) * weights @ (root @ vectors).T).reshape(q, r, q, r)
            gradients = []
            for k, C in enumerate(factors):
                # d(P_{k+1}⊗Q_{k+2}) through Q = ΘᵀP⁻¹Θ: dQ = −ΘᵀP⁻¹dP P⁻¹Θ
                outer = np.einsum("aibj,ij->ab", G, right[k])
                inner = np.einsum("aibj,ab->ij", G, left[k + 1])
                Z = solve_triangular(C.T, solve_triangular(C, self.theta, lower=True))
                slope = 2 * (outer - Z @ inner @ Z.T) @ C
                entries = slope[lower]
                gradients.append(np.where(diagonal, entries * C[lower], entries))
            value = np.log(values[-1]) + np.log(total) / power
            return float(value), np.concatenate(gradients)

        flat = self._start(depth, lower, diagonal)
        for power in powers if depth > 1 else ():
            settled = max(1e-6 / power, 1e-13)  # of the bias, log(n)/β
            options = {"maxiter": 500, "ftol": settled, "gtol": 1e-12, "maxcor": 30}
            found = minimize(objective, flat, (power,), "L-BFGS-B", jac=True, options=options)
            flat = found.x
        factors = unpacked(flat)
        values, vectors = np.linalg.eigh(self.curvature(*self.terms(factors)))
        shares = np.maximum(values / values[-1], 0.0)
        weights = shares ** (powers[-1] - 1) / float(np.sum(shares ** (powers[-1] - 1)))
        return Solution(factors, values, vectors * weights @ vectors.T)

    def _start(self, depth: int, lower: tuple, diagonal: np.ndarray) -> np.ndarray:
        """Return the balanced P_k = (ΘΘᵀ)^{(L−k)/L}, kept away from the boundary."""
        values, vectors = np.linalg.eigh(self.theta @ self.theta.T)
        values = np.maximum(values, 1e-3 * values[-1])
        powers = [(depth - k) / depth for k in range(1, depth)]
        factors = [np.linalg.cholesky(vectors * values**s @ vectors.T) for s in powers]
        entries = [C[lower] for C in factors]
        for part in entries:
            part[diagonal] = np.log(part[diagonal])
        return np.concatenate([*entries, np.zeros(0)])

    def dual(self, rho: np.ndarray) -> float:
        """Return 2‖Γ_1^{1/2}ΘΓ_2^{1/2}‖_* ≤ S_min of two layers, Γ = H^{1/2}ρH^{1/2}, for any ρ.

        ρ ⪰ 0 with trace one; Γ_1 and Γ_2 are the partial traces over inputs and outputs. The best ρ
        makes it equal to S_min.
        """
        q, r = self.theta.shape
        gamma = (self.root @ rho @ self.root / np.trace(rho)).reshape(q, r, q, r)
        one, two = np.einsum("aibi->ab", gamma), np.einsum("aiaj->ij", gamma)
        return 2 * _nuclear(_square_root(one) @ self.theta @ _square_root(two))

    def product_bound(self, depth: int, rho: np.ndarray) -> float:
        """Return L(tr ρ tr Ξ)^{1/L}‖ρ^{1/2}ΘΞ^{1/2}‖_*^{2(L−1)/L}/tr((ρ⊗Ξ)H⁻¹) ≤ S_min, for H ≻ 0.

        Every ρ, Ξ ⪰ 0 give a bound; the largest is searched for, starting from the partial traces
        of H^{1/2}ρH^{1/2}.
        """
        values = np.linalg.eigvalsh(self.hessian)
        if values[0] <= 1e-12 * values[-1]:
            return 0.0
        (q, r), L = self.theta.shape, depth
        inverse = np.linalg.inv(self.hessian).reshape(q, r, q, r)
        gamma = (self.root @ rho @ self.root).reshape(q, r, q, r)
        first = [np.einsum("aibi->ab", gamma), np.einsum("aiaj->ij", gamma)]
        start = [_square_root(matrix / np.trace(matrix)) for matrix in first]

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            R, T = flat[: q * q].reshape(q, q), flat[q * q :].reshape(r, r)
            U, s, Vt = np.linalg.svd(R.T @ self.theta @ T, full_matrices=False)
            rest = np.einsum("aibj,ij->ab", inverse, T @ T.T)
            other = np.einsum("aibj,ab->ij", inverse, R @ R.T)
            cost, nu = float(np.sum((R @ R.T) * rest)), float(np.sum(s))
            traces = float(np.sum(R**2)), float(np.sum(T**2))
            c = 2 * (L - 1) / L
            value = np.log(L) + np.sum(np.log(traces)) / L + c * np.log(nu) - np.log(cost)
            dR = 2 / L * R / traces[0] + c * self.theta @ T @ (U @ Vt).T / nu - 2 * rest @ R / cost
            dT = 2 / L * T / traces[1] + c * self.theta.T @ R @ U @ Vt / nu - 2 * other @ T / cost
            return -float(value), -np.concatenate([dR.ravel(), dT.ravel()])

        flat = np.concatenate([matrix.ravel() for matrix in start])
        found = minimize(objective, flat, method="L-BFGS-B", jac=True, options={"maxiter": 2000})
        return float(np.exp(-found.fun))

    def scalar_bounds(self) -> tuple[np.ndarray, float, float]:
        """Return G, c_1 and c_2 with c_1 I⊗G ⪯ H ⪯ c_2 I⊗G.

        G is the partial trace over the outputs.
        """
        q, r = self.theta.shape
        G = np.einsum("aiaj->ij", self.hessian.reshape(q, r, q, r))
        values, vectors = np.linalg.eigh(G)
        half = np.kron(np.eye(q), vectors / np.sqrt(values) @ vectors.T)
        ends = np.linalg.eigvalsh(half @ self.hessian @ half)
        return G, float(ends[0]), float(ends[-1])


class Solution(NamedTuple):
    """Solution of the program."""

    factors: list[np.ndarray]
    """Cholesky factors of P_1 … P_{L−1}."""
    values: Float[np.ndarray, " qr"]
    """The eigenvalues of H^{1/2}KH^{1/2}, smallest first."""
    rho: Float[np.ndarray, "qr qr"]
    """The derivative of their norm: the matrix of trace one that the dual takes."""


def minimizer_of(program: Program, factors: list[np.ndarray], hidden: int | None) -> Network:
    """Return the weights W_k = B_k⁺B_{k−1}, B_0 = Θ, B_L = I, with B_kB_kᵀ ⪯ P_k.

    Here B_kB_kᵀ = Θ(ΘᵀP_k⁻¹Θ)⁺Θᵀ.
    """
    theta, (E, V) = program.theta, (program.outputs, program.inputs)
    rank = int(np.linalg.matrix_rank(theta))
    products = [theta]
    for C in factors:
        Z = solve_triangular(C, theta, lower=True)
        U = np.linalg.svd(Z, full_matrices=False)[0][:, :rank]
        products.append(C @ U)  # Θ(ΘᵀP⁻¹Θ)⁺Θᵀ = C (projection on the range of Z) Cᵀ
    products.append(np.eye(len(theta)))
    layers = [np.linalg.pinv(B) @ A for A, B in pairwise(products)]
    layers[0] = layers[0] @ V.T
    layers[-1] = E @ layers[-1]
    width = require_width(hidden or len(V), rank, len(layers))
    sizes = [len(V), *[width] * (len(layers) - 1), len(E)]
    padded = [np.zeros((b, a)) for a, b in pairwise(sizes)]
    for whole, part in zip(padded, layers, strict=True):
        whole[: part.shape[0], : part.shape[1]] = part
    return Network(padded)


def balanced_curvature(program: Program, depth: int) -> np.ndarray:
    """Return H^{1/2}KH^{1/2} of the balanced minimizer.

    It has P_k = (ΘΘᵀ)^{(L−k)/L} and Q_k = (ΘᵀΘ)^{(k−1)/L}.
    """
    U, s, Vt = np.linalg.svd(program.theta, full_matrices=False)
    q, r = program.theta.shape
    left = [U * s ** (2 * (depth - k) / depth) @ U.T for k in range(1, depth)] + [np.eye(q)]
    right = [Vt.T * s ** (2 * (k - 1) / depth) @ Vt for k in range(2, depth + 1)]
    return program.curvature(left, [np.eye(r), *right])


def _square_root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T


def _nuclear(matrix: np.ndarray) -> float:
    return float(np.sum(np.linalg.svd(matrix, compute_uv=False)))
