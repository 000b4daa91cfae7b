"""Minimizers searched directly: the least sharpness or trace of any of them, by BFGS on weights."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import deeplin as dl


def make_problem(d=3, q=None, *, seed=1, n=20, spread=3.0, rank=None, noise=0.2):
    """Inputs of decreasing power (and of this rank), one target or a matrix of q."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.geomspace(1, 1 / spread, d)
    if rank is not None:
        X = X[:, :rank] @ rng.normal(size=(rank, d))
    outputs = () if q is None else (q,)
    Y = X @ rng.normal(size=(d, *outputs)) + noise * rng.normal(size=(n, *outputs))
    return dl.Problem.from_data(X, Y)


def random_minimizer(problem, depth, rng, *, hidden=3, readout=None, scale=1.0):
    """Random layers W_2 … W_L, and a W_1 that makes the product w* (plus a part off the data)."""
    widths = (*[hidden] * (depth - 1), 1 if readout is None else len(readout))
    layers = [scale * rng.normal(size=(widths[k + 1], widths[k])) for k in range(depth - 1)]
    v = np.ones(1) if readout is None else np.asarray(readout)
    for layer in reversed(layers):
        v = layer.T @ v
    first = rng.normal(size=(len(v), problem.dimension))
    first += np.outer(v, problem.optimum - first.T @ v) / (v @ v)
    return dl.Network([first, *layers], readout=readout)


def completed(weights, theta, U):
    """Free weights → a minimizer: W_1 solves W_L…W_1 = Θ* with W_L mapping onto range Θ*, U."""
    first, *others = weights
    others[-1] = U @ (U.T @ others[-1])
    B = U.T
    for weight in reversed(others):
        B = B @ weight
    return [first + B.T @ jnp.linalg.solve(B @ B.T, U.T @ theta - B @ first), *others]


def gauss_newton(weights, root, rates):
    """2Σ_k η_k B_kB_kᵀ ⊗ Σ̂^{1/2}A_kᵀA_kΣ̂^{1/2}: the Hessian at a minimizer, up to zeros."""
    backward = [jnp.eye(len(weights[-1]))]
    for weight in reversed(weights[1:]):
        backward.append(backward[-1] @ weight)
    forward, total = root, 0.0
    for weight, B, rate in zip(weights, reversed(backward), rates, strict=True):
        total = total + 2 * rate * jnp.kron(B @ B.T, forward.T @ forward)
        forward = weight @ forward
    return total


def largest(matrix):
    return jnp.linalg.eigvalsh(matrix)[-1]


@partial(jax.jit, static_argnums=(0, 1))
def measured(measure, shapes, flat, theta, U, root, rates):
    """The measure of the Hessian at the minimizer of free weights, and its slope."""
    cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]

    def of(flat):
        parts = jnp.split(flat, cuts)
        weights = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        return measure(gauss_newton(completed(weights, theta, U), root, rates))

    return jax.value_and_grad(of)(flat)


def least(problem, depth, measure, *, seeds=1, rates=None):
    """The least `measure` of the Hessian over all minimizers that BFGS finds from some starts."""
    d, q = problem.dimension, problem.outputs
    hidden = max(2, min(d, q))
    shapes = ((hidden, d), *[(hidden, hidden)] * (depth - 2), (q, hidden))
    theta = problem.optimum_columns.T
    values, vectors = np.linalg.eigh(problem.covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    given = theta, np.linalg.svd(theta, full_matrices=False)[0], root
    rates = np.ones(depth) if rates is None else rates
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        start = np.concatenate([rng.normal(size=shape).ravel() for shape in shapes])

        def evaluate(x):
            value, slope = measured(measure, shapes, x, *given, rates)
            return float(value), np.asarray(slope)

        options = {"gtol": 1e-11, "maxiter": 3000}
        found.append(minimize(evaluate, start, jac=True, method="BFGS", options=options).fun)
    return min(found)
