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

from deeplin.dynamics.objective import objective_of
from deeplin.dynamics.run import CLOSE, CONVERGED, DIVERGED, STOPPED, Records, Run
from deeplin.errors import InputError, positive_number, require_float64, whole_number
from deeplin.execution import check_interrupt, interruptible
from deeplin.hessian import hessian_spectrum
from deeplin.networks import Network
from deeplin.problems import Problem

SUBSTEPS = 4
"""Number of substeps of a step of descent, in each of which the oscillation is fixed; at the edge
hηS is then ½, well inside the stable range of a Runge-Kutta step."""
ITERATIONS = 2000
"""Maximum number of iterations for X; a few dozen are usual."""


@interruptible
def central_flow(
    problem: Problem,
    net: Network,
    learning_rate: float,
    steps: int,
    *,
    modes: int = 3,
    substeps: int = SUBSTEPS,
) -> Run:
    """Integrate the averaged path of gradient descent through the edge of stability.

    Below the edge it is the gradient flow, in units of one step of descent. `run.records` holds at
    every step `risk` (on the path), `averaged_risk` (R + ½⟨Σ, H⟩, the mean over the oscillation),
    `sharpness`, `eigenvalues` (the `modes` largest), and `oscillation` (tr Σ, the mean squared
    displacement). Compare them with means over two consecutive iterates of descent.

    Arguments:
        problem: the least-squares problem.
        net: the initial network (a single one).
        learning_rate: η of the descent that is modeled.
        steps: number of its steps.
        modes: largest number of eigenvalues at the edge at the same time.
        substeps: integration steps for one step of descent; use more if the sharpness changes fast.

    ```python
    import deeplin as dl, jax, numpy as np
    jax.config.update("jax_enable_x64", True)
    X = np.random.default_rng(0).normal(size=(50, 2))
    problem = dl.Problem.from_data(X, X @ np.ones(2))
    net = dl.initialize.gaussian(jax.random.key(0), widths=(2, 2, 1), scale=1.0)
    run = dl.central_flow(problem, net, learning_rate=0.1, steps=5)
    run.records["sharpness"], run.records["oscillation"]
    ```
    """
    if not isinstance(net, Network) or net.batch is not None:
        raise InputError("central_flow follows one network; pass a deeplin.Network without batch.")
    require_float64("the central flow", net.weights)
    rate = positive_number("learning_rate", learning_rate)
    most = whole_number("steps", steps)
    count = min(whole_number("modes", modes), sum(weight.size for weight in net.weights))
    pieces = whole_number("substeps", substeps)
    objective = objective_of(problem, net)
    weights, fixed = objective.layout.split(net)
    surface = objective.gradient, (objective.data, fixed)
    rows: list[dict[str, Any]] = []
    status, held = STOPPED, np.zeros((count, count))
    value, slope = _first_order(*surface, weights)
    first = float(value)
    for piece in range(most * pieces + 1):
        check_interrupt()
        network = objective.layout.tree(weights, fixed)
        spectrum = hessian_spectrum(problem, network, count=count)
        values, vectors = np.asarray(spectrum.values), np.asarray(spectrum.vectors)
        rises = np.asarray(_slopes(*surface, weights, vectors)).reshape(count * count, -1)
        held = _oscillation(rises, np.asarray(slope), values, rate, 1 / pieces, held)
        risk = float(value) + objective.floor
        if piece % pieces == 0:
            rows.append(
                {
                    "step": piece // pieces,
                    "risk": risk,
                    "averaged_risk": risk + 0.5 * float(np.sum(np.diag(held) * values)),
                    "sharpness": float(values[0]),
                    "eigenvalues": values,
                    "oscillation": float(np.trace(held)),
                }
            )
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
        network=network,
        initial=net,
        status=status,
        steps=rows[-1]["step"],
        records=records,
        learning_rate=rate,
        evidence={"risk": risk, "gap": gap},
        dynamics="flow",
        variant="central",
    )


@partial(jax.jit, static_argnums=0)
def _first_order(rule, given, weights):
    """Return R − floor and its flat gradient, by the rule of an `Objective`."""
    data, fixed = given
    value, gradient = rule(data, weights, fixed)
    return value, ravel_pytree(gradient)[0]


def _flat(rule, given, weights):
    """Return the flat weights θ, ∇R(θ) and uᵀH(θ)v as functions of θ, and the unflattening."""
    theta, unravel = ravel_pytree(weights)

    def slope(flat):
        return _first_order(rule, given, unravel(flat))[1]

    def curvature(flat, u, v):
        return jnp.vdot(u, jax.jvp(slope, (flat,), (v,))[1])

    return theta, slope, curvature, unravel


@partial(jax.jit, static_argnums=0)
def _slopes(rule, given, weights, vectors):
    """Return ∇_θ(u_iᵀH u_j) for all i, j: (k, k, N)."""
    theta, _, curvature, _ = _flat(rule, given, weights)
    rise = partial(jax.grad(curvature), theta)
    return jax.vmap(lambda u: jax.vmap(lambda v: rise(u, v))(vectors))(vectors)


@partial(jax.jit, static_argnums=0)
def _advance(rule, given, weights, root, rate, h):
    """Advance the weights by a time h with Σ = BᵀB fixed, where `root` holds the rows of B."""
    theta, slope, curvature, unravel = _flat(rule, given, weights)

    def push(flat):
        return 0.5 * jnp.sum(jax.vmap(lambda b: curvature(flat, b, b))(root))

    def drift(flat):
        return -rate * (slope(flat) + jax.grad(push)(flat))

    a = drift(theta)
    b = drift(theta + h / 2 * a)
    c = drift(theta + h / 2 * b)
    d = drift(theta + h * c)
    return unravel(theta + h / 6 * (a + 2 * b + 2 * c + d))


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
