"""Linear networks as one writes them first, every layer in full: the oracle of runs and thresholds.

A fixed read-out is a last layer, whose gradient is left out.
"""

from functools import reduce

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp


def product(weights):
    """W_L … W_1."""
    return reduce(lambda left, right: right @ left, weights)


def gradients(X, Y, weights, decay=0.0):
    """∇_k of ‖Y − XΘ‖²/n + λΣ‖W‖² by the chain rule over the samples."""
    activations = [X.T]
    for weight in weights:
        activations.append(weight @ activations[-1])
    error = 2 / len(X) * (activations[-1] - Y.T)
    slopes = []
    for weight, below in zip(reversed(weights), reversed(activations[:-1]), strict=True):
        slopes.append(error @ below.T + 2 * decay * weight)
        error = weight.T @ error
    return slopes[::-1]


def descend(X, Y, weights, rates, steps, momentum=0.0, *, nesterov=False, decay=0.0):
    """Heavy-ball descent on ‖Y − XΘ‖²/n, or Nesterov's, with one rate or one for each layer."""
    weights = [np.array(weight) for weight in weights]
    speeds = [np.zeros_like(weight) for weight in weights]
    rates = np.broadcast_to(rates, len(weights))
    for _ in range(steps):
        ahead = momentum if nesterov else 0.0
        at = [w + ahead * v for w, v in zip(weights, speeds, strict=True)] if ahead else weights
        slopes = gradients(X, Y, at, decay)
        for speed, weight, rate, slope in zip(speeds, weights, rates, slopes, strict=True):
            speed[:] = momentum * speed - rate * slope
            weight += speed
    return weights


def gap_after(problem, network, rates, steps, **options):
    """‖X(Θ − Θ_0)‖²/n after some steps from a network moved by 1e-4, Θ_0 its map before."""
    X, Y = problem.inputs, problem.target_columns
    rng = np.random.default_rng(0)
    start = [np.asarray(weight) for weight in network.weights]
    moved = [weight + 1e-4 * rng.normal(size=weight.shape) for weight in start]
    with np.errstate(over="ignore", invalid="ignore"):
        end = product(descend(X, Y, moved, rates, steps, **options))
        gap = np.sum((X @ (end - product(start)).T) ** 2) / len(X)
    return gap if gap < 1e6 else np.inf


def flow(X, Y, weights, time, readout=None):
    """dW/dt = −∇R up to `time`, by a solver of another library."""
    shapes = [weight.shape for weight in weights]
    cuts = np.cumsum([weight.size for weight in weights])[:-1]
    fixed = [] if readout is None else [readout[None]]

    def unflatten(state):
        parts = np.split(state, cuts)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def rate(_, state):
        slopes = gradients(X, Y, [*unflatten(state), *fixed])[: len(shapes)]
        return -np.concatenate([slope.ravel() for slope in slopes])

    start = np.concatenate([np.asarray(weight).ravel() for weight in weights])
    solution = solve_ivp(rate, (0, time), start, method="DOP853", rtol=1e-12, atol=1e-14)
    return unflatten(solution.y[:, -1])


def hessian(problem, network):
    """∇²R over all weights on the rows: for linear networks without a program for each shape."""
    data = problem.inputs, problem.target_columns
    if network.activation != "linear":
        return np.asarray(automatic_hessian(network, *data))
    fixed = [] if network.readout is None else [np.asarray(network.readout)[None]]
    return linear_hessian(*data, [np.asarray(weight) for weight in network.weights], fixed)


@eqx.filter_jit
def automatic_hessian(network, X, Y):
    """∇²R by automatic differentiation, any activation."""
    flat, unravel = ravel_pytree(network.weights)

    def risk(x):
        outputs = eqx.tree_at(lambda net: net.weights, network, unravel(x))(X)
        return jnp.sum((outputs - Y) ** 2) / len(X)

    return jax.hessian(risk)(flat)


def linear_hessian(X, Y, weights, fixed=()):
    """∇²R in NumPy; the last layers are `fixed`.

    The entry of W_j[a, b] and W_k[c, d], j ≤ k, is that of 2/n Σ ∂f∂f, which is
    (A_jᵀA_k)[a, c] (Z_jZ_kᵀ)[b, d], and for j < k that of 2/n Σ (f − y) ∂²f, with M the layers in
    between: (A_kᵀEZ_jᵀ)[c, b] M[d, a].
    """
    layers, count = [*weights, *fixed], len(weights)
    below = [X.T]
    for layer in layers:
        below.append(layer @ below[-1])
    error = below[-1] - Y.T
    above = [product([*layers[k + 1 :], np.eye(Y.shape[1])]) for k in range(count)]
    blocks = [[None] * count for _ in range(count)]
    for j in range(count):
        for k in range(j, count):
            block = np.einsum("ac,bd->abcd", above[j].T @ above[k], below[j] @ below[k].T)
            if j < k:
                between = product([np.eye(len(weights[j])), *layers[j + 1 : k]])
                block += np.einsum("cb,da->abcd", above[k].T @ error @ below[j].T, between)
            matrix = block.reshape(weights[j].size, weights[k].size)
            blocks[j][k], blocks[k][j] = matrix, matrix.T
    return 2 / len(X) * np.block(blocks)


def agree(ours, theirs, **tolerance):
    """Assert that two lists of weights are equal within a tolerance."""
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, **tolerance)
