"""Model of the averaged path of gradient descent at the edge of stability.

This is the central flow of Cohen et al. 2024; the edge of stability is due to Cohen et al. 2021.

Above the edge descent oscillates along the top eigenvectors U of the Hessian H with a covariance
Σ = UXUᵀ, and the oscillation pushes the path towards smaller curvature. In units of one step

    θ̇ = −η[∇R + ½∇⟨Σ, H⟩],  X ⪰ 0,  d/dt UᵀHU ⪯ 0 where UᵀHU = 2/η,  ⟨X, d/dt UᵀHU⟩ = 0:

the oscillation is just large enough to hold the eigenvalues at 2/η. One mode:
X = max(0, −2⟨∇R, ∇S⟩/‖∇S‖²). This is a model, not a theorem: it leaves out terms of fourth order
in the size of the oscillation, so it fails where the oscillation is large (a catapult at the start,
a rate above the critical one), and it says nothing about single iterates.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from deeplin.dynamics.objective import Objective, objective_of
from deeplin.dynamics.run import CLOSE, CONVERGED, DIVERGED, STOPPED, Records, Run, Watch
from deeplin.errors import InputError, positive_number, whole_number
from deeplin.hessian import hessian_spectrum
from deeplin.networks import Network
from deeplin.networks.network import in_float64
from deeplin.problems import Problem

SUBSTEPS = 4
"""Number of substeps of a step of descent, in each of which the oscillation is fixed; at the edge
hηS is then ½, well inside the stable range of a Runge-Kutta step."""
DENSE = 1500
"""Number of parameters up to which the Hessian is formed."""
GUARDS, ROUNDS, RESIDUAL = 2, 12, 1e-9
"""Eigenvectors kept beside the largest ones, rounds of improving them, and the norm of Hv − λv,
relative to λ, at which they are done (the error of λ is its square)."""
ITERATIONS = 2000
"""Maximum number of iterations for X; a few dozen are usual."""


# Threads of BLAS would wait for each other in many small products.
@threadpool_limits.wrap(limits=1, user_api="blas")
def central_flow(
    problem: Problem,
    network: Network,
    learning_rate: float,
    steps: int,
    *,
    modes: int = 3,
    substeps: int = SUBSTEPS,
    watch: Watch | None = None,
) -> Run:
    """Integrate the averaged path of gradient descent through the edge of stability.

    Below the edge it is the gradient flow, in units of one step of descent.

    Args:
        problem: The least-squares problem.
        network: The initial network (a single one).
        learning_rate: η of the descent that is modeled.
        steps: Number of its steps.
        modes: Largest number of eigenvalues at the edge at the same time.
        substeps: Integration steps for one step of descent; use more if the sharpness changes fast.
        watch: Called as `watch(step, quantities)` at every step, to show progress.

    Returns:
        A `Run` whose `records` hold at every step `risk` (on the path), `averaged_risk`
        (R + ½⟨Σ, H⟩, the mean over the oscillation), `sharpness`, `eigenvalues` (the `modes`
        largest), and `oscillation` (tr Σ, the mean squared displacement). Compare them with means
        over two consecutive iterates of descent.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 2))
    problem = dl.Problem.from_data(X, X @ np.ones(2))
    network = dl.initialize.gaussian(jax.random.key(0), widths=(2, 2, 1), scale=1.0)
    run = dl.central_flow(problem, network, learning_rate=0.1, steps=5)
    run.records["sharpness"], run.records["oscillation"]
    ```
    """
    if not isinstance(network, Network) or network.batch is not None:
        raise InputError("central_flow follows one network; pass a deeplin.Network without batch.")
    initial = in_float64(network)
    rate = positive_number("learning_rate", learning_rate)
    most = whole_number("steps", steps)
    count = min(whole_number("modes", modes), sum(array.size for array in initial.parameters))
    pieces = whole_number("substeps", substeps)
    objective = objective_of(problem, initial)
    weights, fixed = objective.layout.split(initial)
    surface = objective.gradient, (objective.data, fixed)
    leading = _Leading(problem, objective, fixed, count)
    rows: list[dict[str, Any]] = []
    status, held = STOPPED, np.zeros((count, count))
    value, slope = _first_order(*surface, weights)
    first = risk = float(value)
    pairs = np.triu_indices(count)
    for piece in range(most * pieces + 1):
        values, vectors = leading(weights)
        rises = np.zeros((count, count, vectors.shape[1]))
        rises[pairs] = _slopes(*surface, weights, vectors[pairs[0]], vectors[pairs[1]])
        rises[pairs[::-1]] = rises[pairs]
        rises = rises.reshape(count * count, -1)
        held = _oscillation(rises, np.asarray(slope), values, rate, 1 / pieces, held)
        risk = float(value) + objective.floor
        if piece % pieces == 0:
            row = {
                "step": piece // pieces,
                "risk": risk,
                "averaged_risk": risk + 0.5 * float(np.sum(np.diag(held) * values)),
                "sharpness": float(values[0]),
                "eigenvalues": values,
                "oscillation": float(np.trace(held)),
            }
            rows.append(row)
            if watch is not None:
                watch(row["step"], row)
        if piece == most * pieces:
            break
        moved = _advance(*surface, weights, _root(vectors, held), rate, 1 / pieces)
        ahead = _first_order(*surface, moved)
        if not np.isfinite(float(ahead[0])):
            status = DIVERGED
            break
        weights, (value, slope) = moved, ahead
    records = Records({name: np.stack([row[name] for row in rows]) for name in rows[0]})
    gap = float(value) - (0.0 if objective.has_gap else problem.minimal_risk)
    if status == STOPPED and objective.has_gap and gap <= CLOSE * first:
        status = CONVERGED
    return Run(
        network=objective.layout.tree(weights, fixed),
        initial=initial,
        status=status,
        steps=rows[-1]["step"],
        records=records,
        learning_rate=rate,
        evidence={"risk": risk, "gap": gap},
        dynamics="flow",
        variant="central",
    )


class _Leading:
    """The largest eigenvalues of the Hessian along a path, each from those before it."""

    def __init__(self, problem: Problem, objective: Objective, fixed: tuple, count: int):
        self.problem, self.objective, self.fixed, self.count = problem, objective, fixed, count
        self.start: np.ndarray | None = None

    def __call__(self, weights: tuple) -> tuple[np.ndarray, np.ndarray]:
        """Return the largest eigenvalues, (k,), and their eigenvectors as rows, (k, N)."""
        if sum(weight.size for weight in weights) > DENSE:
            network = self.objective.layout.tree(weights, self.fixed)
            found = hessian_spectrum(self.problem, network, count=self.count)
            return np.asarray(found.values), np.asarray(found.vectors)
        given = self.objective.data, self.fixed
        hessian = np.asarray(_hessian(self.objective.gradient, given, weights))
        found = None if self.start is None else _improved(hessian, self.start, self.count)
        values, vectors = np.linalg.eigh(hessian) if found is None else found
        self.start = vectors[:, -self.count - GUARDS :]
        return values[: -self.count - 1 : -1], vectors[:, : -self.count - 1 : -1].T


def _improved(
    matrix: np.ndarray, start: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return eigenpairs, largest last, by block Krylov spaces from nearby ones; None if too slow.

    A random column is added, so that an eigenvector that comes up from below is not missed.
    """
    size, random = len(matrix), np.random.default_rng(0)
    if size <= 4 * start.shape[1] + 4:
        return None
    columns = start
    for _ in range(ROUNDS):
        block = [np.column_stack([columns, random.standard_normal(size) / np.sqrt(size)])]
        for _ in range(3):
            image = matrix @ block[-1]
            block.append(image / np.linalg.norm(image, axis=0))
        basis = np.linalg.qr(np.concatenate(block, axis=1))[0]
        images = matrix @ basis
        values, inner = np.linalg.eigh(basis.T @ images)
        inner = inner[:, -start.shape[1] :]
        columns, values = basis @ inner, values[-start.shape[1] :]
        missed = images @ inner[:, -count:] - columns[:, -count:] * values[-count:]
        if np.linalg.norm(missed, axis=0).max() <= RESIDUAL * abs(values[-1]):
            return values, columns
    return None


@partial(jax.jit, static_argnums=0)
def _first_order(rule, given, weights):
    """Return R − floor and its flat gradient, by the rule of an `Objective`."""
    data, fixed = given
    value, gradient = rule(data, weights, fixed)
    return value, ravel_pytree(gradient)[0]


def _flat(rule, given, weights):
    """Return the flat weights θ, ∇R and its derivative along one and two directions, at θ."""
    theta, unravel = ravel_pytree(weights)

    def slope(flat):
        return _first_order(rule, given, unravel(flat))[1]

    def once(flat, u):
        return jax.jvp(slope, (flat,), (u,))[1]

    def twice(flat, u, v):
        return jax.jvp(lambda at: once(at, u), (flat,), (v,))[1]

    return theta, slope, once, twice


@partial(jax.jit, static_argnums=0)
def _hessian(rule, given, weights):
    """Return ∇²R, (N, N)."""
    theta, _, once, _ = _flat(rule, given, weights)
    return jax.vmap(partial(once, theta))(jnp.eye(len(theta), dtype=theta.dtype))


@partial(jax.jit, static_argnums=0)
def _slopes(rule, given, weights, left, right):
    """Return ∇_θ(uᵀHv) = ∇³R[u, v] for pairs of vectors: (pairs, N)."""
    theta, _, _, twice = _flat(rule, given, weights)
    return jax.vmap(partial(twice, theta))(left, right)


@partial(jax.jit, static_argnums=0)
def _advance(rule, given, weights, root, rate, h):
    """Advance the weights by a time h with Σ = BᵀB fixed, where `root` holds the rows of B."""
    theta, slope, _, twice = _flat(rule, given, weights)

    def drift(flat):
        push = jax.vmap(lambda b: twice(flat, b, b))(root).sum(0)
        return -rate * (slope(flat) + 0.5 * push)

    def stage(before, coefficients):  # a loop compiles the drift once, not four times
        ahead, share = coefficients
        now = drift(theta + h * ahead * before)
        return now, share * now

    nodes = jnp.array([0.0, 0.5, 0.5, 1.0]), jnp.array([1.0, 2.0, 2.0, 1.0]) / 6
    moves = jax.lax.scan(stage, jnp.zeros_like(theta), nodes)[1]
    return ravel_pytree(weights)[1](theta + h * moves.sum(0))


def _oscillation(
    slopes: Float[np.ndarray, "kk N"],
    gradient: Float[np.ndarray, " N"],
    values: Float[np.ndarray, " k"],
    rate: float,
    h: float,
    before: Float[np.ndarray, "k k"],
) -> Float[np.ndarray, "k k"]:
    """Return X ⪰ 0 with C = 2/η − UᵀHU − h(A − (η/2)T X) ⪰ 0 and ⟨X, C⟩ = 0, for a time h.

    A = UᵀḢU under −η∇R alone and ⟨Y, TX⟩ = ⟨∇⟨UYUᵀ, H⟩, ∇⟨UXUᵀ, H⟩⟩: the optimality conditions of
    minimizing (hη/4)⟨X, TX⟩ + ⟨Q, X⟩ over X ⪰ 0 with Q = 2/η − UᵀHU − hA, a convex problem.
    Eigenvalues that stay below the edge have X = 0 in its solution.
    """
    k = len(values)
    push = -rate * h * slopes @ gradient
    need = (2 / rate) * np.eye(k) - np.diag(values) - push.reshape(k, k)
    need = (need + need.T) / 2
    if np.linalg.eigvalsh(need)[0] >= 0:
        return np.zeros((k, k))
    resist = rate * h / 2 * slopes @ slopes.T
    return _complementary(resist, need, before)


def _complementary(resist: np.ndarray, need: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Minimize ½⟨X, MX⟩ + ⟨Q, X⟩ over X ⪰ 0 by projected gradients with momentum (FISTA)."""
    k = len(need)
    length = 1 / max(np.linalg.eigvalsh(resist)[-1], np.finfo(float).tiny)
    x = z = start
    pace = 1.0
    for _ in range(ITERATIONS):
        slope = (resist @ z.ravel()).reshape(k, k) + need
        moved = _positive_part(z - length * slope)
        following = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        if np.sum((z - moved) * (moved - x)) > 0:  # overshoot: restart the momentum
            following = 1.0
        z = moved + (pace - 1) / following * (moved - x)
        change = np.abs(moved - x).max()
        x, pace = moved, following
        if change <= 1e-12 * max(np.abs(x).max(), np.finfo(float).tiny):
            break
    return x


def _positive_part(matrix: np.ndarray) -> np.ndarray:
    """Return the nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, 0)) @ vectors.T


def _root(vectors: np.ndarray, oscillation: np.ndarray) -> np.ndarray:
    """Return B (k×N) with BᵀB = UXUᵀ."""
    values, basis = np.linalg.eigh(oscillation)
    return (np.sqrt(np.maximum(values, 0)) * basis).T @ vectors
