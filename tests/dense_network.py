"""Linear networks as one writes them first, every layer in full: the oracle of runs and thresholds.

A fixed read-out is a last layer, whose gradient is left out.
"""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

import deeplin as dl


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
    X, Y = problem.inputs, problem.targets
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
    """∇²R over all weights by automatic differentiation on the rows, any activation."""
    flat, unravel = ravel_pytree(network.weights)

    def risk(x):
        outputs = dl.Network(unravel(x), network.readout, network.activation)(problem.inputs)
        return jnp.sum((outputs - problem.targets) ** 2) / problem.samples

    return np.asarray(jax.jit(jax.hessian(risk))(flat))


def agree(ours, theirs, **tolerance):
    """Assert that two lists of weights are equal within a tolerance."""
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, **tolerance)
