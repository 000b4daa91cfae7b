"""The data of X-14 to X-17, and independent oracles: dense Hessians and plain descent."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from deeplin import Problem


def _inputs(seed: int, n: int) -> tuple[np.random.Generator, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(n, 3)) * [1, 0.6, 1.5]


def logistic() -> Problem:
    """Seed 0 of A-2."""
    rng, X = _inputs(0, 30)
    y = np.where(X @ [1, -1, 0.5] + 1.5 * rng.normal(size=30) > 0, 1, -1)
    return Problem.from_data(X, y, loss="logistic")


def poisson() -> Problem:
    """Fewer samples than inputs."""
    rng, X = _inputs(1, 2)
    return Problem.from_data(X, rng.poisson(3.0, 2) + 1, loss="poisson")


def huber() -> Problem:
    """With outliers."""
    rng, X = _inputs(2, 25)
    y = X @ [1, -1, 0.5] + 1.5 * rng.standard_t(2, size=25)
    return Problem.from_data(X, y, loss="huber")


def separable() -> Problem:
    """Two classes that a hyperplane separates."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 3))
    return Problem.from_data(X, np.sign(X @ [1, -1, 0.5]), loss="logistic")


def softmax() -> Problem:
    """Three classes of A-6."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(40, 3)) * [1, 0.5, 1.6]
    T = np.array([[1, 0, -0.5], [-1, 1, 0], [0, -1, 1]])
    labels = np.argmax(X @ T.T + 1.3 * rng.gumbel(size=(40, 3)), 1)
    return Problem.from_data(X, np.array(["a", "b", "c"])[labels], loss="softmax")


def plain_risk(problem: Problem):
    """The loss written down once more, as a function of Θ (d, q) of JAX arrays."""
    X, y = jnp.asarray(problem.inputs), jnp.asarray(problem.target_columns)

    def risk(theta):
        z = X @ theta
        if problem.loss == "logistic":
            return jnp.mean(jax.nn.softplus(-y * z))
        if problem.loss == "poisson":
            return jnp.mean(jnp.exp(z) - y * z)
        if problem.loss == "softmax":
            return jnp.mean(jax.nn.logsumexp(z, axis=1) - jnp.sum(y * z, axis=1))
        r = jnp.abs(z - y)
        return jnp.mean(jnp.where(r <= problem.delta, r**2 / 2, problem.delta * (r - 0.5)))

    return risk


def product(weights, norm=1.0):
    """Θ = (W_L … W_1)ᵀ times the norm of a read-out of one entry."""
    theta = weights[0].T
    for weight in weights[1:]:
        theta = theta @ weight.T
    return norm * theta


def dense_hessian(problem: Problem, weights, norm=1.0) -> np.ndarray:
    """∇² of the plain loss over all weights."""
    flat, unravel = ravel_pytree([jnp.asarray(w) for w in weights])
    risk = plain_risk(problem)
    hessian = jax.jit(jax.hessian(lambda x: risk(product(unravel(x), norm))))
    return np.asarray(hessian(flat))


def flattest_by_search(problem: Problem, depth: int, norm=1.0, starts=3) -> float:
    """min λ_max of the dense Hessian over weights whose product is a minimizer, by BFGS.

    Layers of width two. All but the first are free; the first one has any part that the others do
    not see beside the one that makes the product Θ*. The outputs of softmax sum to zero.
    """
    target = jnp.asarray(problem.optimum_columns).T
    basis = jnp.eye(1)
    if problem.outputs > 1:
        basis = jnp.linalg.qr(jnp.eye(problem.outputs)[:, 1:] - 1 / problem.outputs)[0]
    risk = plain_risk(problem)
    shapes = [(2, problem.dimension), *[(2, 2)] * (depth - 2), (basis.shape[1], 2)]
    sizes = np.cumsum([a * b for a, b in shapes])

    def layers(x):
        parts = jnp.split(x, sizes[:-1])
        beside, *rest = (part.reshape(s) for part, s in zip(parts, shapes, strict=True))
        suffix = rest[0]
        for weight in rest[1:]:
            suffix = weight @ suffix
        inverse = suffix.T @ jnp.linalg.inv(suffix @ suffix.T)
        first = inverse @ basis.T @ target / norm + beside - inverse @ suffix @ beside
        return [first, *rest[:-1], basis @ rest[-1]]

    @jax.jit
    def log_norm(x, power):
        flat, unravel = ravel_pytree(layers(x))
        H = jax.hessian(lambda v: risk(product(unravel(v), norm)))(flat)
        values = jnp.linalg.eigvalsh(H)
        shares = jnp.clip(values / values[-1], 0.0, None)
        return jnp.log(values[-1]) + jnp.log(jnp.sum(shares**power)) / power, values[-1]

    slope = jax.jit(jax.value_and_grad(lambda x, power: log_norm(x, power)[0]))
    best = np.inf
    for seed in range(starts):
        x = np.random.default_rng(seed).normal(size=int(sizes[-1]))
        for power in (10.0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7):
            x = minimize(lambda v, p: tuple(map(np.asarray, slope(v, p))), x, (power,), jac=True).x
        best = min(best, float(log_norm(x, 1.0)[1]))
    return best
